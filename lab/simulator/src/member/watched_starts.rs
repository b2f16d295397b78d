//! Wraps the store's file starts. Records when a log starts again after a later entry.

use std::io;
use std::sync::Arc;

use binlog_store::LogHandle;
use bytes::Bytes;
use raft_types::{
    DoubtedTail, ElectionNotes, FilePart, FileStart, FileStartAnswer, FileStarts, OpId, Standing,
};

use super::disk_pace::DiskWork;
use super::watched_log::Watch;
use crate::event::Event;
use crate::mutation::Mutation;

/// The wrapped file starts.
pub(super) struct WatchedStarts {
    pub(super) log: LogHandle,
    pub(super) watch: Watch,
    pub(super) work: DiskWork,
    pub(super) mutation: Option<Mutation>,
}

impl FileStarts for WatchedStarts {
    fn first_start(&self, from: Option<OpId>) -> FileStartAnswer<'_, Option<FileStart>> {
        self.log.first_start(from)
    }

    fn part_of_file(&self, part: FilePart) -> FileStartAnswer<'_, Bytes> {
        FileStarts::part_of_file(&self.log, part)
    }

    fn check_start(&self, start: &FileStart) -> io::Result<()> {
        self.log.check_start(start)
    }

    fn begin_at(&self, start: FileStart) -> FileStartAnswer<'_, ()> {
        // The event is recorded first. If the disk is cut off afterwards, the log may already have its new start.
        let stored = &start.membership;
        let membership = stored.log_id().map(|at| {
            let sets = stored.membership().get_joint_config().clone();
            (OpId::from(at), Arc::new(sets))
        });
        self.watch.saw(|member| Event::Began {
            member,
            before: start.before,
            membership,
        });
        self.work.soon();
        self.log.begin_at(start)
    }

    fn doubted_tail(&self) -> Option<DoubtedTail> {
        match self.mutation {
            Some(Mutation::TrustACutTail) => None,
            _ => self.log.doubted_tail(),
        }
    }

    fn note_doubt(&self, doubt: DoubtedTail) -> FileStartAnswer<'_, ()> {
        self.work.soon();
        self.log.note_doubt(doubt)
    }

    fn election_notes(&self) -> ElectionNotes {
        self.log.election_notes()
    }

    fn note_elections(&self, notes: ElectionNotes) -> FileStartAnswer<'_, ()> {
        self.work.soon();
        self.log.note_elections(notes)
    }

    fn standing(&self) -> Option<Standing> {
        self.log.standing()
    }

    fn settle_tail(&self, from: OpId) -> FileStartAnswer<'_, bool> {
        self.work.soon();
        self.log.settle_tail(from)
    }
}
