//! MySQL's binlog, bytes in and bytes out: events, GTID sets, the framing of transactions, and the
//! canonical form that the ring carries. Pure: no file, no socket, no clock. Input is never trusted:
//! what comes from a disk or a peer yields a [`DecodeError`], never a panic or an unbounded allocation.

pub mod canonical;
pub mod checksum;
mod cursor;
mod decode_error;
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

pub use crate::decode_error::DecodeError;

/// What every binlog file begins with.
pub const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
/// What a binlog file begins with that mysqld encrypts (`binlog_encryption`).
pub const ENCRYPTED_MAGIC: [u8; 4] = [0xfd, b'b', b'i', b'n'];

/// The examples of the README, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
