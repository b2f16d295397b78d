//! The table of `docs/evidence.md` that says how many mutants of each subject a test notices.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::evidence::around_table;
use crate::kept_seeds::today;

/// Between these lines of the page stands the table.
const BEGIN: &str = "<!-- the table is written by `cargo xtask mutants` -->\n";
const END: &str = "<!-- the table of mutants ends -->\n";
const HEAD: &str = "\
| subject | mutants | killed | timed out | unviable | survivors explained | survivors open | not run | date | command |
|---|---|---|---|---|---|---|---|---|---|
";

/// How many of a subject's mutants came to what end.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) mutants: usize,
    pub(super) killed: usize,
    pub(super) timed_out: usize,
    pub(super) unviable: usize,
    pub(super) explained: usize,
    pub(super) open: usize,
    pub(super) not_run: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} mutants, {} killed, {} timed out, {} unviable, {} survivors explained, {} open, {} not run",
            self.mutants,
            self.killed,
            self.timed_out,
            self.unviable,
            self.explained,
            self.open,
            self.not_run
        )
    }
}

/// The page.
pub(super) struct Table {
    path: PathBuf,
}

impl Table {
    /// # Errors
    /// When the page has no place for the table.
    pub(super) fn of_the_checkout() -> Result<Self> {
        let path = testkit::checkout().join("docs/evidence.md");
        let page = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
        with_row(&page, "", "")?;
        Ok(Self { path })
    }

    /// Writes a subject's row, in the place of an older one.
    ///
    /// # Errors
    /// When the page cannot be read or written.
    pub(super) fn put(&mut self, subject: &str, counts: &Counts, command: &str) -> Result<()> {
        let page = fs::read_to_string(&self.path)?;
        let row = format!(
            "| {subject} | {} | {} | {} | {} | {} | {} | {} | {} | `{command}` |\n",
            counts.mutants,
            counts.killed,
            counts.timed_out,
            counts.unviable,
            counts.explained,
            counts.open,
            counts.not_run,
            today()
        );
        Ok(fs::write(&self.path, with_row(&page, subject, &row)?)?)
    }
}

/// The page with this row. Rows of other subjects stay as they are.
fn with_row(page: &str, subject: &str, row: &str) -> Result<String> {
    let [before, table, after] =
        around_table(page, BEGIN, END).context("docs/evidence.md: the table of mutants")?;
    let beginning = format!("| {subject} |");
    let mut rows: Vec<String> = table
        .lines()
        .skip(HEAD.lines().count())
        .map(|line| format!("{line}\n"))
        .collect();
    match rows.iter_mut().find(|line| line.starts_with(&beginning)) {
        Some(line) => row.clone_into(line),
        None => rows.push(row.to_owned()),
    }
    Ok(format!(
        "{before}{BEGIN}{HEAD}{}{END}{after}",
        rows.concat()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subjects_row_takes_the_place_of_its_older_one() {
        let page = format!("a\n{BEGIN}{HEAD}| x | 1 |\n| y | 1 |\n{END}z\n");
        let page = with_row(&page, "x", "| x | 2 |\n").unwrap();
        let page = with_row(&page, "new", "| new | 3 |\n").unwrap();
        assert_eq!(
            page,
            format!("a\n{BEGIN}{HEAD}| x | 2 |\n| y | 1 |\n| new | 3 |\n{END}z\n")
        );
        assert!(with_row("a page without one", "x", "").is_err());
        Table::of_the_checkout().unwrap();
    }
}
