//! The results of a command for its caller: an exit code with a message, and text or JSON on standard output. Writing never panics: if the
//! reader closes the pipe, the command ends without a message.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};

use crate::text::lines;

/// The exit codes of every command. The numbers never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The command succeeded.
    Done = 0,
    /// Any failure without a code of its own.
    Error = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The ring has no quorum, or the member asked is not the leader.
    NoQuorum = 3,
    /// A precondition does not hold, so nothing was done.
    Refused = 4,
    /// Timeout; whether the change happened is unknown.
    Unknown = 5,
    /// The client certificate does not allow it; nothing was done.
    NotAllowed = 6,
    /// Data on a disk is damaged, or acknowledged transactions are lost.
    Corrupt = 7,
}

impl Exit {
    /// Creates a failure with this code, a message and advice.
    pub fn because(self, what: impl fmt::Display, advice: impl fmt::Display) -> Failure {
        Failure {
            exit: self,
            what: what.to_string(),
            advice: advice.to_string(),
        }
    }

    /// Ends a command with this code and without a message if a condition does not hold.
    ///
    /// # Errors
    /// If `ok` is false: a failure with this code, which prints nothing.
    pub fn unless(self, ok: bool) -> Attempt {
        match ok {
            true => Ok(()),
            false => Err(Failure::silent(self)),
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The result of a command, or of a part of one.
pub type Attempt<T = ()> = Result<T, Failure>;

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit code of the process.
    pub exit: Exit,
    /// What happened, in one sentence.
    pub what: String,
    /// What the operator can do; empty if `what` already includes it.
    pub advice: String,
}

impl Failure {
    /// Creates a failure with [`Exit::Error`] and without advice.
    pub fn error(what: impl fmt::Display) -> Self {
        Exit::Error.because(what, "")
    }

    /// Creates a failure without a message: the command has already printed everything on standard output.
    pub fn silent(exit: Exit) -> Self {
        exit.because("", "")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if self.advice.is_empty() {
            Ok(())
        } else {
            write!(f, "\n  {}", self.advice)
        }
    }
}

impl std::error::Error for Failure {}

/// A closed pipe (as with `| head`) is not an error.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::silent(Exit::Done)
        } else {
            Self::error(error.to_string())
        }
    }
}

// What commands print: aligned tables for people, JSON for programs.

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
    bar("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
}

/// A progress bar of this form on standard error. The bar is hidden if standard error is not a terminal.
pub(crate) fn bar(template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    shape(&bar, template);
    bar
}

/// Gives a progress bar another form.
pub(crate) fn shape(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

/// Columns of text under their titles.
#[derive(Debug, Clone, Default)]
pub struct Table {
    titles: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows; titles are separated by spaces.
    pub(crate) fn titled(titles: &'static str) -> Self {
        Self {
            titles: titles.split(' ').collect(),
            rows: Vec::new(),
        }
    }

    /// A table with one row for each JSON document. A column shows the field with its title as the name, in lower case. For a different
    /// field, the name follows the title after a colon, as in `Behind:lag_ms`.
    pub(crate) fn of(columns: &'static str, documents: &impl Serialize) -> Self {
        let columns = columns.split(' ');
        let columns = columns.map(|column| match column.split_once(':') {
            Some((title, field)) => (title, field.to_owned()),
            None => (column, column.to_lowercase()),
        });
        let (titles, fields): (Vec<_>, Vec<_>) = columns.unzip();
        let documents = serde_json::to_value(documents).unwrap_or_default();
        let documents = documents.as_array().into_iter().flatten();
        let rows = documents.map(|document| fields.iter().map(|field| shown(&document[field])));
        Self {
            titles,
            rows: rows.map(Iterator::collect).collect(),
        }
    }

    /// Adds a row; it has as many cells as there are titles.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.titles.len());
        self.rows.push(cells);
    }

    /// The lines: titles first, numbers aligned to the right.
    pub fn lines(&self) -> Vec<String> {
        // An address such as `10.0.0.1:7400` begins with a digit but is not a number.
        let number =
            |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit()) && !cell.contains(':');
        let columns = self.titles.iter().enumerate().map(|(column, title)| {
            let cells = || self.rows.iter().filter_map(|row| row.get(column));
            let widths = cells().map(|cell| cell.chars().count());
            let width = widths.fold(title.chars().count(), usize::max);
            let is_numeric = cells().all(|cell| cell == "-" || number(cell));
            (width, is_numeric && !self.rows.is_empty())
        });
        let columns: Vec<_> = columns.collect();
        let line = |cells: Vec<&str>| {
            let padded = cells.iter().zip(&columns);
            let padded = padded.map(|(cell, &(width, is_numeric))| match is_numeric {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let rows = self.rows.iter();
        let rows = rows.map(|row| line(row.iter().map(String::as_str).collect()));
        let titles = line(self.titles.clone());
        std::iter::once(titles).chain(rows).collect()
    }
}

/// Writes every line with a line feed at its end.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&lines("", self.lines()))
    }
}

/// Adds the fields of another document.
pub(crate) fn merge(json: &mut Value, other: &impl Serialize) {
    if let (Value::Object(json), Value::Object(other)) = (json, json!(other)) {
        json.extend(other);
    }
}

/// Returns the JSON form of a value, such as a variant of an enum, as text without quotes.
pub(crate) fn word(value: &impl Serialize) -> String {
    shown(&json!(value))
}

/// Returns the text for a JSON value in a cell of a table.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(yes) => yes_no(*yes),
        Value::String(text) => text.replace('\n', ""),
        op_id @ Value::Object(_) => format!("{}.{}", op_id["term"], op_id["index"]),
        other => other.to_string(),
    }
}

/// Returns the text for an optional value in a cell of a table; "-" for `None`.
pub(crate) fn cell(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Returns "yes" or "no", for a cell of a table.
pub(crate) fn yes_no(yes: bool) -> String {
    if yes { "yes" } else { "no" }.to_owned()
}

/// Prints JSON or the text, as `format` selects.
///
/// # Errors
/// When standard output cannot be written. If its reader has closed the pipe, the failure prints nothing.
pub fn print<T: fmt::Display>(
    format: Format,
    json: &impl Serialize,
    text: impl FnOnce() -> T,
) -> Attempt {
    match format {
        Format::Json => print_json(json),
        Format::Table => print_text(&text().to_string()),
    }
}

/// Prints one JSON document, indented.
///
/// # Errors
/// When standard output cannot be written. If its reader has closed the pipe, the failure prints nothing.
pub fn print_json(json: &impl Serialize) -> Attempt {
    let text = serde_json::to_string_pretty(json).map_err(Failure::error)?;
    print_text(&format!("{text}\n"))
}

/// Prints one JSON object on one line.
///
/// # Errors
/// When standard output cannot be written. If its reader has closed the pipe, the failure prints nothing.
pub fn print_json_line(json: &impl Serialize) -> Attempt {
    let text = serde_json::to_string(json).map_err(Failure::error)?;
    print_text(&format!("{text}\n"))
}

/// Prints text unchanged.
///
/// # Errors
/// When standard output cannot be written. If its reader has closed the pipe, the failure prints nothing.
pub fn print_text(text: &str) -> Attempt {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Whether to colour standard output: it is a terminal, and `NO_COLOR` is not set.
pub fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_numbers_stand_to_the_right() {
        let mut table = Table::titled("Log_name File_size");
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
