//! Where one file ends and the next begins: the next one's header must follow from the log.

use binlog_format::gtid::GtidSet;
use raft_types::{OpId, Rotate};

use super::file_header::{FileHeader, with_timestamp};
use super::logged_membership::LoggedMembership;

/// The log up to the end of a file.
pub(crate) struct FileEnd<'a> {
    pub(crate) last: Option<OpId>,
    pub(crate) gtids: &'a GtidSet,
    pub(crate) membership: Option<&'a LoggedMembership>,
    /// The rotate entry that ends the file.
    pub(crate) rotate: &'a Rotate,
}

/// The part of the next file's header that does not follow from the log before it.
pub(crate) fn wrong_part(end: &FileEnd<'_>, next: &FileHeader) -> Option<&'static str> {
    if next.before != end.last {
        Some("entry before the file")
    } else if next.previous_gtids != *end.gtids {
        Some("previous GTIDs")
    } else if next.format_description != with_timestamp(&end.rotate.format_description, 0)
        || next.timestamp != end.rotate.timestamp
    {
        Some("format description and time")
    } else if next.membership.as_ref() != end.membership {
        Some("membership")
    } else {
        None
    }
}
