//! `faults/without-a-patch.md`: the rows of the track record that nothing puts back, and why.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::track_record::{Row, only};

/// Its name in the folder of the patches.
const PAGE: &str = "without-a-patch.md";

/// Why a row has no patch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    /// How the fault begins in the track record.
    row: String,
    pub(crate) why: String,
}

impl Reason {
    /// The one row that it is about.
    ///
    /// # Errors
    /// When no row begins so, or more than one.
    pub(crate) fn row_in<'a>(&self, rows: &'a [Row]) -> Result<&'a Row> {
        only(rows, &self.row).context(PAGE)
    }
}

/// All reasons of a folder; none where it has no such page.
///
/// # Errors
/// When the page cannot be read, or a line of its lists is none of a row.
pub(crate) fn all_in(folder: &Path) -> Result<Vec<Reason>> {
    let page = folder.join(PAGE);
    if !page.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&page).with_context(|| format!("no {}", page.display()))?;
    parse(&text).with_context(|| page.display().to_string())
}

fn parse(text: &str) -> Result<Vec<Reason>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("* "));
    let reason = |line: &str| {
        let (row, why) = line.strip_prefix('`')?.split_once("`: ")?;
        let (row, why) = (row.to_owned(), why.to_owned());
        Some(Reason { row, why })
    };
    lines
        .map(|line| {
            reason(line).with_context(|| format!("a reason is `ROW`: WHY, and not: {line}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_list_is_a_row_and_why() {
        let reasons = parse("# Faults\n\nWords.\n\n* `A ring could`: a race.\n").unwrap();
        let [Reason { row, why }] = &reasons[..] else {
            panic!("{reasons:?}")
        };
        assert_eq!((row.as_str(), why.as_str()), ("A ring could", "a race."));
        for line in ["* A ring could: a race.", "* `A ring could`"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert_eq!(all_in(Path::new("/nowhere")).unwrap(), []);
    }
}
