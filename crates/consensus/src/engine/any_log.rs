//! One type for every log over which a member can be started. Openraft is generic over its log storage, and its whole loop is compiled for
//! each log type. With this type, the loop is compiled only once, in this crate. It is not compiled again in every program that starts
//! members.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use openraft::OptionalSend;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use raft_types::{Entry, LogId, TypeConfig, Vote};

type LogResult<'a, T> = BoxFuture<'a, Result<T, io::Error>>;
type Range = (Bound<u64>, Bound<u64>);
type Entries<'a> = dyn Iterator<Item = Entry> + Send + 'a;

/// A log, and its readers outside the engine's loop.
pub(crate) struct AnyLog(Box<dyn DynLog>);
pub(crate) struct AnyReader(Box<dyn DynReader>);

impl AnyLog {
    pub(crate) fn new(log: impl RaftLogStorage<TypeConfig>) -> Self {
        Self(Box::new(log))
    }
}

/// [`RaftLogStorage`] with boxed answers.
trait DynLog: Send + Sync {
    fn state(&mut self) -> LogResult<'_, LogState<TypeConfig>>;
    fn reader(&mut self) -> BoxFuture<'_, AnyReader>;
    fn save_vote<'a>(&'a mut self, vote: &'a Vote) -> LogResult<'a, ()>;
    fn save_committed(&mut self, committed: Option<LogId>) -> LogResult<'_, ()>;
    fn read_committed(&mut self) -> LogResult<'_, Option<LogId>>;
    fn append<'a>(
        &'a mut self,
        entries: &'a mut Entries<'_>,
        flushed: IOFlushed<TypeConfig>,
    ) -> LogResult<'a, ()>;
    fn truncate_after(&mut self, last: Option<LogId>) -> LogResult<'_, ()>;
    fn purge(&mut self, up_to: LogId) -> LogResult<'_, ()>;
}

impl<L: RaftLogStorage<TypeConfig>> DynLog for L {
    fn state(&mut self) -> LogResult<'_, LogState<TypeConfig>> {
        self.get_log_state().boxed()
    }

    fn reader(&mut self) -> BoxFuture<'_, AnyReader> {
        let reader = self.get_log_reader();
        reader.map(|reader| AnyReader(Box::new(reader))).boxed()
    }

    fn save_vote<'a>(&'a mut self, vote: &'a Vote) -> LogResult<'a, ()> {
        RaftLogStorage::save_vote(self, vote).boxed()
    }

    fn save_committed(&mut self, committed: Option<LogId>) -> LogResult<'_, ()> {
        RaftLogStorage::save_committed(self, committed).boxed()
    }

    fn read_committed(&mut self) -> LogResult<'_, Option<LogId>> {
        RaftLogStorage::read_committed(self).boxed()
    }

    fn append<'a>(
        &'a mut self,
        entries: &'a mut Entries<'_>,
        flushed: IOFlushed<TypeConfig>,
    ) -> LogResult<'a, ()> {
        RaftLogStorage::append(self, entries, flushed).boxed()
    }

    fn truncate_after(&mut self, last: Option<LogId>) -> LogResult<'_, ()> {
        RaftLogStorage::truncate_after(self, last).boxed()
    }

    fn purge(&mut self, up_to: LogId) -> LogResult<'_, ()> {
        RaftLogStorage::purge(self, up_to).boxed()
    }
}

impl RaftLogStorage<TypeConfig> for AnyLog {
    type LogReader = AnyReader;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        self.0.state().await
    }

    async fn get_log_reader(&mut self) -> AnyReader {
        self.0.reader().await
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.0.save_vote(vote).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.0.save_committed(committed).await
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        self.0.read_committed().await
    }

    async fn append<I>(
        &mut self,
        entries: I,
        flushed: IOFlushed<TypeConfig>,
    ) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut entries = entries.into_iter();
        self.0.append(&mut entries, flushed).await
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        self.0.truncate_after(last).await
    }

    async fn purge(&mut self, up_to: LogId) -> Result<(), io::Error> {
        self.0.purge(up_to).await
    }
}

/// [`RaftLogReader`] with boxed answers.
trait DynReader: Send + Sync {
    fn entries(&mut self, range: Range) -> LogResult<'_, Vec<Entry>>;
    fn limited(&mut self, start: u64, end: u64) -> LogResult<'_, Vec<Entry>>;
    fn stream(&mut self, range: Range) -> BoxFuture<'_, BoxStream<'_, Result<Entry, io::Error>>>;
    fn vote(&mut self) -> LogResult<'_, Option<Vote>>;
}

impl<R: RaftLogReader<TypeConfig>> DynReader for R {
    fn entries(&mut self, range: Range) -> LogResult<'_, Vec<Entry>> {
        self.try_get_log_entries(range).boxed()
    }

    fn limited(&mut self, start: u64, end: u64) -> LogResult<'_, Vec<Entry>> {
        self.limited_get_log_entries(start, end).boxed()
    }

    fn stream(&mut self, range: Range) -> BoxFuture<'_, BoxStream<'_, Result<Entry, io::Error>>> {
        self.entries_stream(range).map(StreamExt::boxed).boxed()
    }

    fn vote(&mut self) -> LogResult<'_, Option<Vote>> {
        self.read_vote().boxed()
    }
}

impl RaftLogReader<TypeConfig> for AnyReader {
    async fn entries_stream<R>(
        &mut self,
        range: R,
    ) -> impl Stream<Item = Result<Entry, io::Error>> + OptionalSend
    where
        R: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.0.stream(bounds(&range)).await
    }

    async fn try_get_log_entries<R>(&mut self, range: R) -> Result<Vec<Entry>, io::Error>
    where
        R: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        self.0.entries(bounds(&range)).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        self.0.vote().await
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry>, io::Error> {
        self.0.limited(start, end).await
    }
}

fn bounds(range: &impl RangeBounds<u64>) -> Range {
    (range.start_bound().cloned(), range.end_bound().cloned())
}
