//! Fuzzing entry points for the input from the member's own state files and from a server's files. The product does not call them.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::BinlogPlace;
use crate::events::FoundScheduler;
use crate::provision::ProvisionNote;
use crate::standing::Standing;
use crate::supervisor::{is_ending_in, parent_of, pid_of};
pub use crate::tail_trim::fuzzing::last_binlog;
use crate::tail_trim::{TrimmedTail, fuzzing};

/// Reads one of the state files, selected by the first byte. Returns the file as written again.
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

/// Reads one of the small files of a server and its process, or its start options; the first byte selects which. Returns whether the input
/// contains the requested value.
pub fn server_file(bytes: &[u8]) -> bool {
    let Some((kind, text)) = bytes.split_first() else {
        return false;
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    match kind % 5 {
        0 => {
            let folder = Path::new("/data");
            let place = BinlogPlace::of_index(folder.to_owned(), Path::new("binlog.index"));
            let files = place.files_in(text);
            assert!(files.iter().all(|file| file.is_absolute()));
            assert!(files.len() <= text.lines().count());
            !files.is_empty()
        }
        1 => fuzzing::server_uuid(text).is_some(),
        3 => {
            let process = pid_of(text);
            assert!(process.is_none_or(|process| process.0 > 0));
            process.is_some()
        }
        2 => {
            // The state of a process that is ending follows its name in parentheses.
            let is_ending = is_ending_in(text);
            assert!(!is_ending || text.contains(')'));
            parent_of(text).is_some() || is_ending
        }
        _ => {
            let place = BinlogPlace::of_options(text.lines(), Path::new("/data"), "host");
            assert!(
                place
                    .as_ref()
                    .is_none_or(|place| place.index().is_absolute())
            );
            place.is_some()
        }
    }
}
