//! What this crate reads from its notes and from a server's files, for fuzzing. Nothing of the product calls it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::apply::Standing;
use crate::events::FoundScheduler;
use crate::provision::ProvisionNote;
pub use crate::tail_trim::fuzzing::last_binlog;
use crate::tail_trim::{TrimmedTail, fuzzing};

/// Reads one of the notes, which the first byte says, and writes it.
pub fn note(bytes: &[u8]) -> Option<Vec<u8>> {
    let (kind, json) = bytes.split_first()?;
    let written = match kind % 5 {
        0 => again::<Standing>(json),
        1 => again::<ProvisionNote>(json),
        2 => again::<TrimmedTail>(json),
        3 => again::<FoundScheduler>(json),
        _ => fuzzing::start_record(json),
    }?;
    Some([&[*kind], written.as_slice()].concat())
}

fn again<T: Serialize + DeserializeOwned>(json: &[u8]) -> Option<Vec<u8>> {
    let note: T = serde_json::from_slice(json).ok()?;
    serde_json::to_vec(&note).ok()
}
