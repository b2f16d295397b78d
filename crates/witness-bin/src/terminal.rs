//! A command's results for its caller: an exit code with a message, and text or JSON on standard output. Writing never panics: a closed
//! pipe ends the command quietly.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

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
    /// Ends a command with this code and without a message if a condition does not hold.
    ///
    /// # Errors
    /// A silent failure with this code, unless `ok`.
    pub fn unless(self, ok: bool) -> Result<(), Failure> {
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

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit code of the process.
    pub exit: Exit,
    /// What happened, in one sentence.
    pub what: String,
    /// What to do about it; empty when `what` already says so.
    pub advice: String,
}

impl Failure {
    /// A failure with advice.
    pub fn new(exit: Exit, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            exit,
            what: what.into(),
            advice: advice.into(),
        }
    }

    /// A failure with [`Exit::Usage`].
    pub fn usage(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what, advice)
    }

    /// A failure with [`Exit::Refused`].
    pub fn refused(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Exit::Refused, what, advice)
    }

    /// A failure without advice, with [`Exit::Error`].
    pub fn error(what: impl fmt::Display) -> Self {
        Self::new(Exit::Error, what.to_string(), "")
    }

    /// A failure that prints nothing more: the command has already printed everything on standard output.
    pub fn silent(exit: Exit) -> Self {
        Self::new(exit, "", "")
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

/// A closed pipe (`| head`) is the reader's choice and not an error.
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
