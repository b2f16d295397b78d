//! The end of a command: exit codes, which scripts rely on, and a message for the operator.

use std::fmt;
use std::io;

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
    /// Ends a command with this code, and without a message, unless `ok`.
    ///
    /// # Errors
    /// Where it is not.
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
