//! Fuzzing entry points for a server's last binlog file. The product does not call them.

use std::io::Cursor;

use binlog_format::gtid::{GtidSet, SourceId};

use super::last_file::{Beginning, LastFile};
use super::plan::Plan;
use super::trim::{StartRecord, server_uuid_in};

/// Maximum size of a decompressed transaction, in bytes.
const LIMIT: u64 = 64 << 10;

/// Plans the tail trim of a file for a ring that has committed only the file's previous GTIDs. Returns whether the file has a valid header.
pub fn last_binlog(bytes: &[u8]) -> bool {
    let size = bytes.len() as u64;
    let open = || LastFile::of("binlog.000001".to_owned(), Cursor::new(bytes), size);
    let mut file = open();
    let beginning = file.beginning().expect("it is in memory");
    let Beginning::Header(header) = beginning else {
        return false;
    };
    for own in [None, header.previous.intervals().next()] {
        let own = own.map(|(source, ..)| source);
        let mut file = open();
        let again = file.beginning().expect("it is in memory");
        assert_eq!(again, Beginning::Header(header.clone()));
        let plan = file.plan(&header, &header.previous, own, false, LIMIT);
        if let Plan::Cut { at, gtids } = plan.expect("it is in memory") {
            assert!(at >= header.end && at.0 < size);
            assert_eq!(gtids.intersection(&header.previous), GtidSet::new());
        }
    }
    true
}

/// Reads the record of a start of mysqld. Returns the record as written again.
pub(crate) fn start_record(bytes: &[u8]) -> Option<Vec<u8>> {
    let record: StartRecord = serde_json::from_slice(bytes).ok()?;
    serde_json::to_vec(&record).ok()
}

/// Returns the UUID in a server's `auto.cnf`.
pub(crate) fn server_uuid(text: &str) -> Option<SourceId> {
    server_uuid_in(text)
}
