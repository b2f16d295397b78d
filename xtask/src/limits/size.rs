//! Counts the lines of code and the files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

/// Number of lines that are neither blank nor comments, up to a file's first `#[cfg(test)]`, and number of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Size {
    pub(super) lines: usize,
    pub(super) files: usize,
}

/// Returns the total size of the files that `is_in` selects.
pub(super) fn sum<'a>(
    root: &Path,
    files: impl Iterator<Item = &'a PathBuf>,
    is_in: &dyn Fn(&Path) -> bool,
) -> Result<Size> {
    let mut size = Size::default();
    for file in files.filter(|file| is_in(file)) {
        let text =
            fs::read_to_string(root.join(file)).with_context(|| file.display().to_string())?;
        size.lines += lines(&text).count();
        size.files += 1;
    }
    Ok(size)
}

/// Returns the lines of a file that count.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_tests_do_not_count() {
        let text = "//! A file.\n\nuse a;\n    // Why.\nfn f() {}\n#[cfg(test)]\nmod tests {}\n";
        assert_eq!(lines(text).collect::<Vec<_>>(), ["use a;", "fn f() {}"]);
    }
}
