//! Output of commands: aligned tables for people, JSON for programs, on standard output. Writing
//! never panics: a closed pipe ends the command quietly.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::exit::Failure;

/// The form of what a command prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// A table with aligned columns.
    #[default]
    Table,
    /// One JSON document, or one object a line where a command follows something.
    Json,
}

/// A progress bar in bytes on standard error, when that is a terminal; the caller sets its length.
pub(crate) fn bytes_bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    match ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Columns of text under their titles.
#[derive(Debug, Clone, Default)]
pub struct Table {
    titles: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with a title for each column and no rows.
    pub fn new(titles: &[&'static str]) -> Self {
        Self {
            titles: titles.to_vec(),
            rows: Vec::new(),
        }
    }

    /// The same for titles that are separated by spaces.
    pub(crate) fn titled(titles: &'static str) -> Self {
        Self::new(&titles.split(' ').collect::<Vec<_>>())
    }

    /// Adds a row; it has as many cells as there are titles.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.titles.len());
        self.rows.push(cells);
    }

    /// The lines: titles first, numbers aligned to the right.
    pub fn lines(&self) -> Vec<String> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(self.titles[column].chars().count())
        };
        let numeric = |column: usize| {
            let mut cells = self
                .rows
                .iter()
                .filter_map(|row| row.get(column))
                .peekable();
            // An address can begin with a digit, too.
            let number =
                |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit()) && !cell.contains(':');
            cells.peek().is_some() && cells.all(|cell| cell == "-" || number(cell))
        };
        let columns: Vec<_> = (0..self.titles.len())
            .map(|c| (width(c), numeric(c)))
            .collect();
        let line = |cells: Vec<&str>| {
            let padded = cells.iter().zip(&columns).map(|(cell, (width, numeric))| {
                let fill = " ".repeat(width.saturating_sub(cell.chars().count()));
                if *numeric {
                    format!("{fill}{cell}")
                } else {
                    format!("{cell}{fill}")
                }
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let titles = line(self.titles.clone());
        let rows = self
            .rows
            .iter()
            .map(|row| line(row.iter().map(String::as_str).collect()));
        std::iter::once(titles).chain(rows).collect()
    }
}

/// Every line with its end.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines()
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// The cell of a value; "-" without one.
pub(crate) fn cell(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// The cell of a condition.
pub(crate) fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

/// Prints JSON or the text, as `format` selects.
///
/// # Errors
/// When standard output cannot be written; silent when the pipe is closed.
pub fn print<T: fmt::Display>(
    format: Format,
    json: &impl Serialize,
    text: impl FnOnce() -> T,
) -> Result<(), Failure> {
    match format {
        Format::Json => print_json(json),
        Format::Table => print_text(&text().to_string()),
    }
}

/// Prints one JSON document, indented.
///
/// # Errors
/// When standard output cannot be written; silent when the pipe is closed.
pub fn print_json(json: &impl Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(json).map_err(|error| Failure::error(error.to_string()))?;
    print_text(&format!("{text}\n"))
}

/// Prints one JSON object on one line.
///
/// # Errors
/// When standard output cannot be written; silent when the pipe is closed.
pub fn print_json_line(json: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(json).map_err(|error| Failure::error(error.to_string()))?;
    print_text(&format!("{text}\n"))
}

/// Prints text unchanged.
///
/// # Errors
/// When standard output cannot be written; silent when the pipe is closed.
pub fn print_text(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Whether to colour standard output: it is a terminal, and `NO_COLOR` is not set.
pub fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A member's message as a sentence, with an initial capital.
pub(crate) fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_numbers_stand_to_the_right() {
        let mut table = Table::new(&["Log_name", "File_size"]);
        table.row(vec!["binlog.000001".into(), "1048576".into()]);
        table.row(vec!["binlog.2".into(), "-".into()]);
        assert_eq!(
            table.lines(),
            [
                "Log_name       File_size",
                "binlog.000001    1048576",
                "binlog.2               -"
            ]
        );
    }
}
