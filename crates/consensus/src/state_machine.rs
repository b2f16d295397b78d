//! The state machine. A member's log is its whole state, so to "apply" an entry only updates the commit mark and the membership. For a
//! leader's own proposals, the engine moves the mark at the commit (see `proposal`); for all other entries, when it applies them.
//!
//! A snapshot of a log is the start of one of the log's files. Another log can begin with it.

use std::io;
use std::sync::{Arc, Mutex};

use futures::{Stream, TryStreamExt};
use openraft::storage::EntryResponder;
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{
    OptionalSend, RaftSnapshotBuilder, Snapshot, SnapshotMeta, storage::RaftStateMachine,
};
use raft_types::{
    FileStart, FileStarts, LogId, OfferedStart, OpId, StoredMembership, TypeConfig, lock,
};
use tokio::sync::watch;

/// The starting point of a member: an entry that the store has recorded as committed, and the membership in force at that entry. It may lag
/// the committed entries, but is never ahead of them.
#[derive(Debug, Clone, Default)]
pub struct AppliedFloor {
    /// The last entry known to be committed, at or after the last purged one.
    pub last_applied: Option<LogId>,
    /// The last membership at or before that entry.
    pub membership: StoredMembership,
}

/// The end of the committed log, as a channel on which tasks can wait. Never decreases.
#[derive(Debug, Clone)]
pub(crate) struct CommitMark(Arc<watch::Sender<Option<OpId>>>);

impl CommitMark {
    pub(crate) fn new(at: Option<OpId>) -> Self {
        Self(Arc::new(watch::Sender::new(at)))
    }

    /// Raises the mark to `op_id`; has no effect if the mark is there already.
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

/// The end of the file up to which the log is to be purged. The engine purges no further than its last snapshot, so the snapshot is built
/// for this entry. No earlier file start is offered, because the entries after it may be purged at any moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct PurgeGoal(Arc<Mutex<Option<OpId>>>);

impl PurgeGoal {
    /// Raises the goal to `op_id`; has no effect if the goal is there already.
    pub(crate) fn raise(&self, op_id: OpId) {
        let mut goal = lock(&self.0);
        *goal = goal
            .filter(|goal| goal.index >= op_id.index)
            .or(Some(op_id));
    }

    fn get(&self) -> Option<OpId> {
        *lock(&self.0)
    }
}

/// openraft's state machine over the mark.
pub struct CommitStateMachine {
    floor: AppliedFloor,
    mark: CommitMark,
    starts: Arc<dyn FileStarts>,
    goal: PurgeGoal,
    /// The last snapshot of a log that has no files.
    marked: Option<SnapshotMetaOf<TypeConfig>>,
}

impl CommitStateMachine {
    pub(crate) fn new(
        floor: AppliedFloor,
        mark: CommitMark,
        starts: Arc<dyn FileStarts>,
        goal: PurgeGoal,
    ) -> Self {
        Self {
            floor,
            mark,
            starts,
            goal,
            marked: None,
        }
    }

    /// Returns the log's first file start after the entries that are purged or will be purged, if it is committed. The engine must not
    /// receive errors of this read. They would stop the member permanently, although they affect only a purge, or a member whose log must
    /// begin again.
    async fn first_start(&self) -> Result<Option<FileStart>, io::Error> {
        let start = self.starts.first_start(self.goal.get()).await?;
        let applied = self.floor.last_applied.map(|applied| applied.index);
        Ok(start.filter(|start| Some(start.before.index) <= applied))
    }

    fn mark_here(&self) -> SnapshotMetaOf<TypeConfig> {
        SnapshotMeta {
            last_log_id: self.floor.last_applied,
            last_membership: self.floor.membership.clone(),
        }
    }
}

fn mark_alone(meta: SnapshotMetaOf<TypeConfig>) -> SnapshotOf<TypeConfig, OfferedStart> {
    Snapshot {
        meta,
        snapshot: None,
    }
}

impl RaftStateMachine<TypeConfig> for CommitStateMachine {
    type SnapshotData = OfferedStart;
    type SnapshotBuilder = MarkBuilder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.floor.last_applied, self.floor.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            if let Some(membership) = entry.payload.as_membership() {
                self.floor.membership =
                    StoredMembership::new(Some(entry.log_id), membership.clone());
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

    /// Returns the snapshot that permits the wanted purge; without one, the mark alone.
    async fn get_snapshot_builder(&mut self) -> MarkBuilder {
        let snapshot = match self.first_start().await {
            Ok(Some(start)) => start.snapshot(),
            Ok(None) => {
                let meta = self.mark_here();
                self.marked = Some(meta.clone());
                mark_alone(meta)
            }
            // The mark alone permits no purge. The purge is tried again.
            Err(_) => mark_alone(self.marked.clone().unwrap_or_default()),
        };
        MarkBuilder(snapshot)
    }

    /// The log begins with the file start before the mark moves, because the engine then sends the entries after the file start as the next
    /// entries.
    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<TypeConfig>,
        start: OfferedStart,
    ) -> Result<(), io::Error> {
        match start {
            Some(start) => self.starts.begin_at(start).await?,
            None => self.marked = Some(meta.clone()),
        }
        self.floor.last_applied = meta.last_log_id;
        self.floor.membership = meta.last_membership.clone();
        if let Some(last) = meta.last_log_id {
            self.mark.advance(last.into());
        }
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<TypeConfig, OfferedStart>>, io::Error> {
        Ok(match self.first_start().await {
            Ok(Some(start)) => Some(start.snapshot()),
            Ok(None) => self.marked.clone().map(mark_alone),
            // There is no snapshot to send. The engine tries again.
            Err(error) => {
                tracing::warn!(%error, "no member's log can begin with a file of this one yet");
                Some(mark_alone(self.mark_here()))
            }
        })
    }
}

/// A snapshot that is already complete, as a builder for the engine.
#[derive(Debug)]
pub struct MarkBuilder(SnapshotOf<TypeConfig, OfferedStart>);

impl RaftSnapshotBuilder<TypeConfig> for MarkBuilder {
    type SnapshotData = OfferedStart;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, OfferedStart>, io::Error> {
        Ok(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use raft_types::{DoubtedTail, ElectionNotes, FilePart, FileStartAnswer, Standing};

    use super::*;

    /// A log without readable files.
    struct Unreadable;

    impl FileStarts for Unreadable {
        fn first_start(&self, _: Option<OpId>) -> FileStartAnswer<'_, Option<FileStart>> {
            Box::pin(async { Err(io::Error::other("a bad sector")) })
        }

        fn check_start(&self, _: &FileStart) -> io::Result<()> {
            Ok(())
        }

        fn begin_at(&self, _: FileStart) -> FileStartAnswer<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn doubted_tail(&self) -> Option<DoubtedTail> {
            None
        }

        fn settle_tail(&self, _: OpId) -> FileStartAnswer<'_, bool> {
            Box::pin(async { Ok(true) })
        }

        fn note_doubt(&self, _: DoubtedTail) -> FileStartAnswer<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn election_notes(&self) -> ElectionNotes {
            ElectionNotes::default()
        }

        fn note_elections(&self, _: ElectionNotes) -> FileStartAnswer<'_, ()> {
            Box::pin(async { Ok(()) })
        }

        fn standing(&self) -> Option<Standing> {
            None
        }

        fn part_of_file(&self, _: FilePart) -> FileStartAnswer<'_, Bytes> {
            Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
        }
    }

    /// If the engine received the error, it would stop the member permanently. The error affects only a purge, or a member whose log must
    /// begin again.
    #[tokio::test]
    async fn unreadable_files_are_not_offered_to_the_engine() {
        let (mark, goal) = (CommitMark::new(None), PurgeGoal::default());
        let floor = AppliedFloor {
            last_applied: Some(LogId::from(OpId::new(2, 9))),
            membership: StoredMembership::default(),
        };
        let mut machine = CommitStateMachine::new(floor, mark, Arc::new(Unreadable), goal);
        let offered = machine.get_current_snapshot().await.unwrap().unwrap();
        assert!(offered.snapshot.is_none());
        assert_eq!(offered.meta.last_log_id.map(|last| last.index), Some(9));
        let mut builder = machine.get_snapshot_builder().await;
        let built = builder.build_snapshot().await.unwrap();
        assert_eq!(built.meta.last_log_id, None, "no purge is allowed");
    }

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
#[path = "../../ring-admin/tests/support/memory_log.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with the tests of whole rings"
)]
mod memory_log;

#[cfg(test)]
mod conformance {
    //! openraft's own test suite over this state machine and over the log that the ring tests use.

    use openraft::StorageError;
    use openraft::testing::log::{StoreBuilder, Suite};

    use super::memory_log::{MemoryDisk, MemoryLog};
    use super::*;

    struct InMemory;

    impl StoreBuilder<TypeConfig, MemoryLog, CommitStateMachine> for InMemory {
        async fn build(
            &self,
        ) -> Result<((), MemoryLog, CommitStateMachine), StorageError<TypeConfig>> {
            let disk = MemoryDisk::default();
            let state_machine = CommitStateMachine::new(
                AppliedFloor::default(),
                CommitMark::new(None),
                Arc::new(disk.clone()),
                PurgeGoal::default(),
            );
            Ok(((), disk.open(), state_machine))
        }
    }

    #[tokio::test]
    async fn the_engines_suite_passes() {
        Suite::test_all(InMemory).await.unwrap();
    }
}
