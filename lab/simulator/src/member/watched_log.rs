//! Wraps the store. Passes each request on unchanged, records it, and completes it after the time that the disk needs. After the disk was
//! cut off, nothing is recorded, because the process had ended by then.

use std::io;

use binlog_store::{BinlogStore, LogReader};
use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::type_config::TypeConfigExt;
use raft_types::{
    AppEntry, Entry, EntryPayload, LogId, LogIntake, MemberId, OpId, TypeConfig, Vote,
};
use testkit::disk::FaultyDisk;

use crate::event::{Event, Seen};
use crate::member::disk_pace::DiskWork;
use crate::mutation::Mutation;
use crate::record::Record;

/// The wrapped store.
pub(super) struct WatchedLog {
    pub(super) store: BinlogStore,
    pub(super) watch: Watch,
    pub(super) work: DiskWork,
    pub(super) mutation: Option<Mutation>,
}

/// Records the actions of a store.
#[derive(Clone)]
pub(super) struct Watch {
    pub(super) member: MemberId,
    pub(super) record: Record,
    pub(super) disk: FaultyDisk,
}

impl Watch {
    pub(super) fn saw(&self, event: impl FnOnce(MemberId) -> Event) {
        if !self.disk.is_off() {
            self.record.saw(&event(self.member));
        }
    }

    fn answer(
        &self,
        result: Result<(), io::Error>,
        upto: Option<OpId>,
        callback: IOFlushed<TypeConfig>,
    ) {
        if let (Ok(()), Some(upto)) = (&result, upto) {
            self.saw(|member| Event::Durable { member, upto });
        }
        callback.io_completed(result);
    }
}

impl RaftLogStorage<TypeConfig> for WatchedLog {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        self.store.get_log_state().await
    }

    async fn get_log_reader(&mut self) -> LogReader {
        match self.mutation {
            Some(Mutation::StopAtABadRead) => self.store.reader(),
            _ => self.store.get_log_reader().await,
        }
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.work.soon();
        self.store.save_vote(vote).await?;
        let vote = *vote;
        self.watch.saw(|member| Event::Voted { member, vote });
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.store.save_committed(committed).await
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        self.store.read_committed().await
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: IOFlushed<TypeConfig>,
    ) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let seen: Vec<Seen> = entries.iter().map(Seen::of).collect();
        let upto = seen.last().map(|last| last.op_id);
        if self.mutation == Some(Mutation::WaitInTheLoop) {
            let bytes = entries.iter().map(payload_bytes).sum();
            self.store.handle().queue_room(bytes).await;
        }
        let (signal, flushed) = TypeConfig::oneshot();
        // The event is recorded before the append. If the disk is cut off in between, only a part of the entries may exist.
        self.watch.saw(|member| Event::Appended {
            member,
            entries: seen,
        });
        self.store
            .append(entries, IOFlushed::signal(signal))
            .await?;
        self.work.soon();
        if self.mutation == Some(Mutation::AnswerBeforeTheFlush) {
            self.watch.answer(Ok(()), upto, callback);
            return Ok(());
        }
        let watch = self.watch.clone();
        tokio::spawn(async move {
            let gone = |_| Err(io::Error::other("the store gave no answer"));
            let result = flushed.await.unwrap_or_else(gone);
            watch.answer(result, upto, callback);
        });
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        self.work.soon();
        let keep = last_log_id.map(OpId::from);
        self.watch.saw(|member| Event::Truncated { member, keep });
        self.store.truncate_after(last_log_id).await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        self.work.soon();
        self.store.purge(log_id).await
    }
}

/// Returns how many bytes an entry has in the disk's queue.
fn payload_bytes(entry: &Entry) -> u64 {
    match &entry.payload {
        EntryPayload::Normal(AppEntry::Transaction(payload)) => payload.bytes().len() as u64,
        _ => 0,
    }
}
