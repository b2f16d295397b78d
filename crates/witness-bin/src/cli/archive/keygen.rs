//! `witness archive keygen`: a key pair for an encrypted archive.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use archive::encryption::new_identity;
use serde::Serialize;

use crate::terminal::{Exit, Failure, Format, print_json, print_text};

#[derive(Debug, Serialize)]
struct Made {
    recipient: String,
    identity_file: String,
}

/// Writes the secret key into a file that only the caller can access, and prints the public one.
pub(super) fn keygen(file: &Path, format: Format) -> Result<(), Failure> {
    let (identity, recipient) = new_identity();
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(file);
    let mut made = made.map_err(|error| {
        Failure::new(
            Exit::Refused,
            format!("cannot make {}: {error}", file.display()),
            "name a file that is not there yet: what an identity was lost for cannot be read any more",
        )
    })?;
    made.write_all(identity.as_bytes())?;
    made.sync_all()?;
    match format {
        Format::Json => print_json(&Made {
            recipient,
            identity_file: file.display().to_string(),
        }),
        Format::Table => print_text(&format!("{recipient}\n")),
    }
}
