//! How a command ends: the exit codes, which scripts rely on, and the sentence for a person.

use std::fmt;
use std::io;

/// The exit codes of every command. Their numbers never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The command did what it was asked for.
    Done = 0,
    /// Anything that has no code of its own.
    Error = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The ring has no quorum, or the member asked is not the leader.
    NoQuorum = 3,
    /// A precondition does not hold, so nothing was done.
    Refused = 4,
    /// Time ran out; whether it happened is not known.
    Unknown = 5,
    /// The certificate that was shown does not allow it; nothing was done.
    NotAllowed = 6,
    /// Data on a disk is damaged, or acknowledged transactions are lost.
    Corrupt = 7,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The code with which the process ends.
    pub exit: Exit,
    /// What happened, in one sentence.
    pub what: String,
    /// What to do about it; empty when the sentence says it.
    pub advice: String,
}

impl Failure {
    /// A failure with an advice.
    pub fn new(exit: Exit, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            exit,
            what: what.into(),
            advice: advice.into(),
        }
    }

    /// A failure that explains itself, with the code for everything else.
    pub fn error(what: impl Into<String>) -> Self {
        Self::new(Exit::Error, what, "")
    }

    /// The end of a command that has already said everything on standard output.
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

/// Writing to a closed pipe (`| head`) is the reader's wish and no error.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::silent(Exit::Done)
        } else {
            Self::error(error.to_string())
        }
    }
}
