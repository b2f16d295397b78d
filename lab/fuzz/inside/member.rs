//! Fuzzing entry points for the input from a data directory. The product does not call them.

use std::path::Path;

use raft_types::{FormatRange, FormatVersion};

use crate::data_directory::IdentityRecord;
use crate::settings::PasswordSource;

/// Reads the file that identifies the member of a data directory. Returns the file as written again.
pub fn identity(bytes: &[u8]) -> Option<Vec<u8>> {
    let speaks = FormatRange::only(FormatVersion::FIRST);
    let read = IdentityRecord::read(bytes, Path::new("identity"), speaks).ok()?;
    Some(read.written().expect("it is written to memory"))
}

/// The password in a file's contents.
pub fn password(text: &str) -> &str {
    PasswordSource::in_file(text)
}
