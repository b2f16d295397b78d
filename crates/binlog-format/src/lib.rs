//! MySQL's binlog format: events, GTID sets, transaction framing, and the ring's canonical form. Pure: it uses no file, no socket and no
//! clock. Input is untrusted: invalid bytes cause a [`DecodeError`], never a panic or an unbounded allocation.

pub mod canonical;
/// An event's checksum.
pub mod checksum {
    pub use crate::event::{CHECKSUM_LEN, ChecksumAlgorithm};
}
mod decode;
pub mod event;
mod event_type;
pub mod events;
pub mod framing;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
#[path = "../../../lab/fuzz/inside/binlog_format.rs"]
pub mod fuzzing;
pub mod gtid;
pub mod row_image;
#[cfg(feature = "synthesis")]
pub mod synthesis;

pub use crate::decode::DecodeError;

/// First bytes of every binlog file.
pub const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
/// First bytes of a binlog file that mysqld encrypts (`binlog_encryption`).
pub const ENCRYPTED_MAGIC: [u8; 4] = [0xfd, b'b', b'i', b'n'];

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
