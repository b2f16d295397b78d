//! `witness enable-raft` and `witness disable-raft`: arguments, output, and calls to the members. The conversion itself is
//! `member::conversion`.

mod arguments;
mod asked_members;
mod disable;
mod enable;
mod screen;

use member::conversion::{ConversionFailure, FailureKind};

pub(crate) use crate::cli::conversion::disable::{DisableArgs, run as disable};
pub(crate) use crate::cli::conversion::enable::{EnableArgs, run as enable};
use crate::terminal::{Exit, Failure};

/// Parses a journal, and serializes it.
#[cfg(feature = "fuzzing")]
pub(crate) fn journal_written_again(bytes: &[u8]) -> Option<Vec<u8>> {
    let entries: member::conversion::JournalEntries = serde_json::from_slice(bytes).ok()?;
    serde_json::to_vec(&entries).ok()
}

impl From<ConversionFailure> for Failure {
    fn from(failure: ConversionFailure) -> Self {
        let exit = match failure.kind {
            FailureKind::Error => Exit::Error,
            FailureKind::Usage => Exit::Usage,
            FailureKind::NoQuorum => Exit::NoQuorum,
            FailureKind::Refused => Exit::Refused,
            FailureKind::Unknown => Exit::Unknown,
            FailureKind::NotAllowed => Exit::NotAllowed,
        };
        Self::new(exit, failure.what, failure.advice)
    }
}

impl From<Failure> for ConversionFailure {
    fn from(failure: Failure) -> Self {
        let kind = match failure.exit {
            Exit::Usage => FailureKind::Usage,
            Exit::NoQuorum => FailureKind::NoQuorum,
            Exit::Refused => FailureKind::Refused,
            Exit::Unknown => FailureKind::Unknown,
            Exit::NotAllowed => FailureKind::NotAllowed,
            Exit::Done | Exit::Error | Exit::Corrupt => FailureKind::Error,
        };
        Self::new(kind, failure.what, failure.advice)
    }
}
