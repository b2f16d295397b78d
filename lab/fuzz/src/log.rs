//! Targets for a member's log: log files, their index, the hard state, truncated tails.

use binlog_format::gtid::GtidSet;
use binlog_store::{CutTail, FileNumber, Marker, fuzzing};

use crate::{Target, document, is_written_the_same, repair};

/// Memory for the windows over a file: one in each of three scanners, and two in a search.
const WINDOWS: usize = 2 << 20;

pub(crate) const TARGETS: &[Target] = &[
    // A log file.
    Target::new("log-file", log_file).within(WINDOWS, 64),
    // The header of a log file, which a leader sends to a member that needs purged entries.
    Target::new("log-file-header", log_file_header).within(WINDOWS, 64),
    // The list of the log's files.
    Target::new("log-index", log_index),
    // The marker before each entry of the log.
    Target::new("log-marker", log_marker),
    // A record of the hard state: vote, commit index, purge floor and others.
    Target::new("hard-state", hard_state),
    // The document about a tail that was truncated from the log.
    Target::new("cut-tail", cut_tail),
];

fn log_file(bytes: &[u8]) -> bool {
    let as_it_is = fuzzing::log_file(bytes);
    let repaired = fuzzing::log_file(&repair::binlog_file(bytes));
    as_it_is.max(repaired).is_some_and(|entries| entries > 0)
}

fn log_file_header(bytes: &[u8]) -> bool {
    fuzzing::file_header(bytes) | fuzzing::file_header(&repair::binlog_file(bytes))
}

fn log_index(bytes: &[u8]) -> bool {
    if let Ok(name) = std::str::from_utf8(bytes)
        && let Some(number) = FileNumber::from_name(name)
    {
        assert_eq!(number.name(), name);
        return true;
    }
    let Some(written) = fuzzing::index(bytes) else {
        return false;
    };
    assert_eq!(written, bytes);
    true
}

fn log_marker(bytes: &[u8]) -> bool {
    let Ok((marker, held)) = Marker::decode(bytes) else {
        return false;
    };
    assert_eq!([&marker.encode(), held].concat(), bytes);
    true
}

/// Reads a record of the hard state, selected by the first byte.
fn hard_state(bytes: &[u8]) -> bool {
    let Some((which, json)) = bytes.split_first() else {
        return false;
    };
    let which = usize::from(*which) % fuzzing::RECORDS;
    assert!(fuzzing::record(which, json).is_none() || json.starts_with(&[1]));
    is_written_the_same(&repair::record(json), |record| {
        fuzzing::record(which, record)
    })
}

fn cut_tail(bytes: &[u8]) -> bool {
    is_written_the_same(bytes, |bytes| {
        let tail: CutTail = serde_json::from_slice(bytes).ok()?;
        let _set = tail.gtids.parse::<GtidSet>();
        document::<CutTail>(bytes)
    })
}
