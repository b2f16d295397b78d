//! A member's log contents at its opening, read completely.

use std::io;

use binlog_store::BinlogStore;
use openraft::RaftLogReader;
use openraft::storage::RaftLogStorage;
use raft_types::{OpId, Vote};

use crate::event::Seen;

/// Contents of a log that was just opened.
pub(super) struct OpenedLog {
    pub(super) floor: Option<OpId>,
    pub(super) entries: Vec<Seen>,
    pub(super) vote: Option<Vote>,
}

impl OpenedLog {
    pub(super) async fn read(store: &mut BinlogStore) -> io::Result<Self> {
        let state = store.get_log_state().await?;
        let mut reader = store.reader();
        let vote = reader.read_vote().await?;
        let entries = reader.try_get_log_entries(0_u64..).await?;
        Ok(Self {
            floor: state.last_purged_log_id.map(OpId::from),
            entries: entries.iter().map(Seen::of).collect(),
            vote,
        })
    }
}
