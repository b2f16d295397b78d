//! The state machine. A member's log is its whole state, so what the engine "applies to" is nothing
//! but the mark up to which the log is committed, and the membership in force there.
//! A leader's own proposals move the mark already when the engine commits them (see `proposal`),
//! everything else when the engine applies it.

use std::io;
use std::sync::Arc;

use futures::{Stream, TryStreamExt};
use openraft::storage::EntryResponder;
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{
    OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta, storage::RaftStateMachine,
};
use raft_types::{EntryPayload, LogId, OpId, StoredMembership, TypeConfig};
use tokio::sync::watch;

/// From where a member goes on at its start: an entry that the store knows to be committed, and the
/// membership in force there. It may be old, and it must never be ahead of what is committed.
#[derive(Debug, Clone, Default)]
pub struct AppliedFloor {
    /// The last entry known to be committed, at or after the last purged one.
    pub last_applied: Option<LogId>,
    /// The last membership at or before it.
    pub membership: StoredMembership,
}

/// The mark up to which the log is committed, for all who wait for it. Never goes back.
#[derive(Debug, Clone)]
pub(crate) struct CommitMark(Arc<watch::Sender<Option<OpId>>>);

impl CommitMark {
    pub(crate) fn new(at: Option<OpId>) -> Self {
        Self(Arc::new(watch::Sender::new(at)))
    }

    /// Moves the mark up to `op_id`; does nothing when it is there already.
    pub(crate) fn advance(&self, op_id: OpId) {
        self.0.send_if_modified(|mark| {
            let ahead = mark.is_none_or(|mark| mark.index < op_id.index);
            if ahead {
                *mark = Some(op_id);
            }
            ahead
        });
    }

    pub(crate) fn get(&self) -> Option<OpId> {
        *self.0.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<OpId>> {
        self.0.subscribe()
    }
}

/// openraft's state machine over the mark.
#[derive(Debug)]
pub struct CommittedLog {
    floor: AppliedFloor,
    mark: CommitMark,
    /// What the last [`MarkBuilder`] saw; it lets the engine purge up to there.
    purgeable: Option<SnapshotMetaOf<TypeConfig>>,
}

impl CommittedLog {
    pub(crate) fn new(floor: AppliedFloor, mark: CommitMark) -> Self {
        Self {
            floor,
            mark,
            purgeable: None,
        }
    }

    fn builder(&mut self) -> MarkBuilder {
        let meta = SnapshotMeta {
            last_log_id: self.floor.last_applied,
            last_membership: self.floor.membership.clone(),
        };
        self.purgeable = Some(meta.clone());
        MarkBuilder { meta }
    }
}

impl RaftStateMachine<TypeConfig> for CommittedLog {
    type SnapshotData = ();
    type SnapshotBuilder = MarkBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.floor.last_applied, self.floor.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            if let EntryPayload::Membership(membership) = entry.payload {
                self.floor.membership = StoredMembership::new(Some(entry.log_id), membership);
            }
            self.floor.last_applied = Some(entry.log_id);
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        if let Some(last) = self.floor.last_applied {
            self.mark.advance(last.into());
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        self.builder()
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<TypeConfig>,
        (): Self::SnapshotData,
    ) -> Result<(), io::Error> {
        // No call of another member leads here: `Inbound` takes entries only. Taken over is the mark,
        // for a log that begins after it.
        self.floor.last_applied = meta.last_log_id;
        self.floor.membership = meta.last_membership.clone();
        self.purgeable = Some(meta.clone());
        if let Some(last) = meta.last_log_id {
            self.mark.advance(last.into());
        }
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<TypeConfig, ()>>, io::Error> {
        let meta = self.purgeable.clone();
        Ok(meta.map(|meta| Snapshot { meta, snapshot: () }))
    }
}

/// Tells the engine how far the log may be purged. There is nothing else in a snapshot of a log.
#[derive(Debug)]
pub struct MarkBuilder {
    meta: SnapshotMetaOf<TypeConfig>,
}

impl RaftSnapshotBuilder<TypeConfig> for MarkBuilder {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, ()>, io::Error> {
        let meta = self.meta.clone();
        Ok(Snapshot { meta, snapshot: () })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_only_moves_up() {
        let mark = CommitMark::new(None);
        let mut seen = mark.subscribe();
        mark.advance(OpId::new(1, 5));
        mark.advance(OpId::new(1, 3));
        assert_eq!(mark.get(), Some(OpId::new(1, 5)));
        mark.advance(OpId::new(2, 6));
        assert_eq!(*seen.borrow_and_update(), Some(OpId::new(2, 6)));
    }
}

#[cfg(test)]
#[path = "../tests/support/memory_log.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with the tests of whole rings"
)]
mod memory_log;

#[cfg(test)]
mod conformance {
    //! The engine's own suite over this state machine and over the log that the ring tests use.

    use openraft::StorageError;
    use openraft::testing::log::{StoreBuilder, Suite};

    use super::memory_log::{MemoryDisk, MemoryLog};
    use super::*;

    struct InMemory;

    impl StoreBuilder<TypeConfig, MemoryLog, CommittedLog> for InMemory {
        async fn build(&self) -> Result<((), MemoryLog, CommittedLog), StorageError<TypeConfig>> {
            let state_machine = CommittedLog::new(AppliedFloor::default(), CommitMark::new(None));
            Ok(((), MemoryDisk::default().open(), state_machine))
        }
    }

    #[tokio::test]
    async fn the_engines_suite_passes() {
        Suite::test_all(InMemory).await.unwrap();
    }
}
