//! What this crate reads from its data directory, for fuzzing. Nothing of the product calls it.

use std::path::Path;

use raft_types::{FormatRange, FormatVersion};

use crate::data_directory::IdentityRecord;
use crate::settings::PasswordSource;

/// Reads the file that says whose data directory it is, and writes it.
pub fn identity(bytes: &[u8]) -> Option<Vec<u8>> {
    let speaks = FormatRange::only(FormatVersion::FIRST);
    let read = IdentityRecord::read(bytes, Path::new("identity"), speaks).ok()?;
    Some(read.written().expect("it is written to memory"))
}

/// The password in what a file holds.
pub fn password(text: &str) -> &str {
    PasswordSource::in_file(text)
}
