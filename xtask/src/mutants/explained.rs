//! `docs/mutants.md`: survivors that mean nothing, and why.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::outcomes::Mutant;

/// One line of the page: a change, the line of code that it is made to, and why no test can or need notice.
struct Explanation {
    file: String,
    change: String,
    line: String,
    why: String,
}

/// All of them.
pub(super) struct Explanations(Vec<Explanation>);

impl Explanations {
    /// # Errors
    /// When the page cannot be read, or one of its lines is not understood.
    pub(super) fn of_the_checkout() -> Result<Self> {
        let path = testkit::checkout().join("docs/mutants.md");
        let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        parse(&text).with_context(|| path.display().to_string())
    }

    /// Why this one means nothing.
    pub(super) fn of(&self, mutant: &Mutant) -> Option<&str> {
        let found = self.0.iter().find(|one| {
            one.file == mutant.file && one.change == mutant.change && one.line == mutant.line
        });
        found.map(|one| one.why.as_str())
    }
}

/// The third heading names a file, and behind it stand its lines: ``* `CHANGE` at `LINE`: why``. A line that holds backticks
/// itself stands between two of them each.
fn parse(text: &str) -> Result<Explanations> {
    let mut file = None;
    let mut all = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            file = Some(name.trim_matches('`').to_owned());
        }
        let Some(item) = line.strip_prefix("* `") else {
            continue;
        };
        let Some(explanation) = parsed(file.as_deref(), item) else {
            bail!("not understood: {line}");
        };
        all.push(explanation);
    }
    Ok(Explanations(all))
}

fn parsed(file: Option<&str>, item: &str) -> Option<Explanation> {
    let (change, rest) = item.split_once("` at ")?;
    let (line, why) = match rest.strip_prefix("`` ") {
        Some(rest) => rest.split_once(" ``: ")?,
        None => rest.strip_prefix('`')?.split_once("`: ")?,
    };
    Some(Explanation {
        file: file?.to_owned(),
        change: change.to_owned(),
        line: line.to_owned(),
        why: why.to_owned(),
    })
}

/// Whether the line that an explanation is about is in the checkout.
fn is_there(checkout: &Path, explanation: &Explanation) -> bool {
    let text = fs::read_to_string(checkout.join(&explanation.file)).unwrap_or_default();
    text.lines().any(|line| line.trim() == explanation.line)
}

impl Explanations {
    /// Those of code that is not there any more.
    pub(super) fn stale(&self, checkout: &Path) -> Vec<String> {
        let stale = self.0.iter().filter(|one| !is_there(checkout, one));
        stale
            .map(|one| format!("{}: `{}` at `{}`", one.file, one.change, one.line))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_page_is_understood() {
        let page = "# Title\n\n### `a.rs`\n\n* `replace < with <= in f` at `a < b`: never equal.\n\
                    * `replace f -> String with \"x\"` at `` let x = `y`; ``: words alone.\n";
        let all = parse(page).unwrap().0;
        let shown: Vec<_> = all
            .iter()
            .map(|one| [&*one.file, &*one.change, &*one.line, &*one.why])
            .collect();
        assert_eq!(
            shown,
            [
                ["a.rs", "replace < with <= in f", "a < b", "never equal."],
                [
                    "a.rs",
                    "replace f -> String with \"x\"",
                    "let x = `y`;",
                    "words alone."
                ]
            ]
        );
        assert!(parse("### `a.rs`\n* `replace`: no line\n").is_err());
        assert!(parse("* `replace` at `x`: no file\n").is_err());
    }

    #[test]
    fn explanations_are_of_code_that_is_there() {
        let all = Explanations::of_the_checkout().unwrap();
        assert_eq!(all.stale(&testkit::checkout()), Vec::<String>::new());
    }
}
