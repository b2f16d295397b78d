//! Missing or damaged parts of an archive, and other failures.

use std::fmt;

use archive::encryption::EncryptionError;
use archive::manifest::Manifest;
use archive::name::PieceName;
use archive::reading::{ArchivedLog, PieceFault};
use archive::sealed::SealError;
use archive::storage::StorageError;
use binlog_store::LogPlace;
use serde::Serialize;

use super::place::unreachable;
use crate::terminal::{Exit, Failure};

/// A part of the log.
#[derive(Debug, Serialize)]
pub(super) struct Range {
    from: String,
    to: String,
}

impl Range {
    pub(super) fn new(from: LogPlace, to: LogPlace) -> Self {
        Self {
            from: from.to_string(),
            to: to.to_string(),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {} to {}", self.from, self.to)
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Damage {
    pub(super) piece: String,
    pub(super) why: String,
}

impl Damage {
    pub(super) fn new(piece: PieceName, fault: &PieceFault) -> Self {
        Self {
            piece: piece.to_string(),
            why: fault.to_string(),
        }
    }
}

/// Gaps between pieces.
pub(super) fn gaps(wanted: &[PieceName]) -> Vec<Range> {
    let pairs = wanted
        .windows(2)
        .map(|pair| (pair[0].goes_on(), pair[1].begins()));
    let gaps = pairs.filter(|(from, to)| from != to);
    gaps.map(|(from, to)| Range::new(from, to)).collect()
}

/// The gap before the first piece.
pub(super) fn gap_before(log: &ArchivedLog, first: &Manifest) -> Option<Range> {
    let (from, to) = log.missing_before(first)?;
    Some(Range::new(from, to))
}

/// Pieces of a log, in order.
pub(super) fn pieces(log: &ArchivedLog) -> impl Iterator<Item = PieceName> + '_ {
    log.runs().iter().flat_map(|run| &run.pieces).copied()
}

/// The failure that ends the command without a result about the archive: the storage fails, an identity is missing, or another process has
/// pruned the archive in the meantime.
pub(super) async fn says_nothing(
    log: &ArchivedLog,
    piece: PieceName,
    fault: &PieceFault,
) -> Result<(), Failure> {
    if let PieceFault::Seal(SealError::Encryption(error)) = fault
        && fault.lacks_an_identity()
    {
        return Err(no_identity(&piece.to_string(), error));
    }
    match fault.of_storage() {
        None => Ok(()),
        Some(StorageError::NotFound(_)) => {
            let pruned = log.was_pruned(piece).await;
            match pruned.map_err(|error| unreachable(&error))? {
                false => Ok(()),
                true => Err(Failure::new(
                    Exit::Error,
                    format!(
                        "{piece} was deleted while the archive was read, which was pruned meanwhile"
                    ),
                    "run the command again",
                )),
            }
        }
        Some(_) => Err(Failure::error(fault.to_string())),
    }
}

/// An object is encrypted, and the given identities do not decrypt it.
pub(super) fn no_identity(object: &str, error: &EncryptionError) -> Failure {
    let advice = match error {
        EncryptionError::NoIdentity => {
            "name the file with the secret key of one of its recipients: --identity FILE"
        }
        _ => {
            "name the identity of one of its recipients when it was archived, too: --identity may be given several times"
        }
    };
    Failure::new(Exit::Usage, format!("{object}: {error}"), advice)
}

pub(super) fn words(gaps: &[Range], damaged: &[Damage]) -> String {
    let mut text = String::new();
    for Damage { piece, why } in damaged {
        text.push_str(&format!("DAMAGED: {piece}: {why}\n"));
    }
    for gap in gaps {
        text.push_str(&format!("MISSING: {gap}\n"));
    }
    if !text.is_empty() {
        text.push_str("what lies before the first of these can be restored, and behind it only from a backup that was taken behind it\n");
    }
    text
}
