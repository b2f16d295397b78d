//! What stands in the files, byte by byte: names and index, markers, file headers, entries. Pure; no
//! file is opened here.

mod file_header;
mod file_junction;
mod file_name;
mod logged_membership;
mod marker;
mod received_start;
mod stored_entry;

pub use file_header::FileHeader;
pub(crate) use file_header::{FileHeaderBody, HeaderSource, encode_file_header, with_timestamp};
pub(crate) use file_junction::{FileEnd, wrong_part};
pub use file_name::{FileNumber, IndexDamage};
pub(crate) use file_name::{INDEX_NAME, INDEX_TEMPORARY_NAME, parse_index, render_index};
pub(crate) use logged_membership::LoggedMembership;
pub use marker::{MARKER_BODY_LEN, MARKER_MAGIC, MARKER_VERSION, Marker, MarkerError, MarkerKind};
pub(crate) use marker::{MAX_MARKER_EVENT_BYTES, encode_marker};
pub(crate) use received_start::ReceivedStart;
pub use stored_entry::InvalidEntry;
pub(crate) use stored_entry::{
    PreparedContent, PreparedEntry, RotateBody, prepare, transaction_gtid,
};
