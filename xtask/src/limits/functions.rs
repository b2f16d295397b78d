//! Finds long functions. The files must have rustfmt's format: a function ends at the first `}` with the indentation of its first line.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::limits::size;

/// Maximum length of a function's body, in lines that are neither blank nor comments.
pub(super) const LONGEST: usize = 100;

/// Returns the product's functions with longer bodies: file, name and number of lines.
pub(super) fn too_long<'a>(
    root: &Path,
    files: impl Iterator<Item = &'a PathBuf>,
) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for file in files {
        let shown = file.display();
        let text = fs::read_to_string(root.join(file)).with_context(|| shown.to_string())?;
        let long = functions(&text)
            .into_iter()
            .filter(|(_, lines)| *lines > LONGEST);
        found.extend(long.map(|(name, lines)| format!("{name} of {shown} ({lines} lines)")));
    }
    Ok(found)
}

/// Returns the name of each function except tests, and the number of lines of its body.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    let mut rest = without_tests(text).lines();
    let mut is_test = false;
    loop {
        let signature = rest.clone();
        let Some(line) = rest.next() else {
            return found;
        };
        let follows_mark = std::mem::replace(&mut is_test, line.trim() == "#[test]");
        let Some((name, indent)) = name_of(line).filter(|_| !follows_mark) else {
            continue;
        };
        let end = format!("{:indent$}}}", "");
        let mut body = signature
            .skip_while(|line| !line.ends_with(['{', '}', ';']))
            .peekable();
        let has_lines = body.next_if(|line| line.ends_with('{')).is_some();
        let body = body.take_while(|line| has_lines && *line != end);
        found.push((name, body.flat_map(size::lines).count()));
    }
}

/// Returns the text before the file's own test module. A declaration such as `mod tests;`, for tests in another file, does not count.
fn without_tests(text: &str) -> &str {
    let is_module = |at: &usize| {
        let declared = text[*at..].lines().nth(1);
        declared.is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
    };
    let mut marked = text.match_indices("#[cfg(test)]\n").map(|(at, _)| at);
    &text[..marked.find(is_module).unwrap_or(text.len())]
}

/// If a line begins a function, returns the function's name and the line's indentation.
fn name_of(line: &str) -> Option<(&str, usize)> {
    let code = line.trim_start();
    let (before, after) = code.split_once("fn ")?;
    let qualifiers = ["pub", "async", "const", "unsafe", "extern"];
    let qualifies = |word: &str| qualifiers.iter().any(|known| word.starts_with(known));
    let begins = before.split_whitespace().all(qualifies) && !before.contains("//");
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (begins && end > 0).then_some((&after[..end], line.len() - code.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_functions_body_is_counted() {
        let text = "#[cfg(test)]\nmod cases;\nimpl A {\n    pub(crate) async fn long(\n        a: u8,\n    ) {\n        // Why.\n        a;\n\n        if b {\n            c;\n        }\n    }\n\n    const fn none() {}\n\n    fn after() {\n        d;\n    }\n}\n#[test]\nfn one() {}\n#[cfg(test)]\nmod tests {\n    fn test() {}\n}\n";
        assert_eq!(functions(text), [("long", 4), ("none", 0), ("after", 1)]);
    }
}
