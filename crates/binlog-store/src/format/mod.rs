//! The byte formats of the files: names and index, markers, file headers, entries. No file is opened here.

mod file_header;
mod file_name;
mod marker;
mod stored_entry;

pub use crate::format::file_header::{ContentFault, FileHeader};
pub(crate) use crate::format::file_header::{
    LoggedMembership, decode_body, encode_file_header, with_timestamp,
};
pub use crate::format::file_name::{FileNumber, InvalidFileNumber};
pub(crate) use crate::format::file_name::{
    INDEX_NAME, INDEX_TEMPORARY_NAME, parse_index, render_index,
};
pub use crate::format::marker::{
    MARKER_BODY_LEN, MARKER_LAYOUTS, MARKER_MAGIC, Marker, MarkerError, MarkerKind,
};
pub(crate) use crate::format::marker::{MAX_MARKER_EVENT_BYTES, encode_marker};
pub use crate::format::stored_entry::InvalidEntry;
pub(crate) use crate::format::stored_entry::{
    Content, FirstEvent, PreparedEntry, decode_rotate, prepare,
};
