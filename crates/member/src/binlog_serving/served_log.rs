//! The member's log for the binlog server.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use binlog_format::event::EventRef;
use binlog_format::events::FormatDescription;
use binlog_format::gtid::GtidSet;
use binlog_server::{CommittedFiles, FileNumber, KeptFile, LogFile, Position, ReadError};
use binlog_store::{LogPlace, MARKER_MAGIC, Marker};
use bytes::Bytes;
use mysqld_controller::plan::same_uuid::OtherMysqlds;
use raft_types::OpId;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::binlog_serving::older_log::OlderLog;
use crate::ring_handle::RingHandle;
use crate::status::ArchiveView;

/// Committed entries may be written here slightly later.
const NOT_WRITTEN_YET: Duration = Duration::from_millis(1);
/// A new file exists shortly after the commit of the entry that ends the previous one.
const LOOK: Duration = Duration::from_millis(200);
/// How often it is checked whether this member's own mysqld was released.
const RELEASE_LOOK: Duration = Duration::from_secs(1);
/// Interval between queries to a ring without a leader.
const ASK_AGAIN: Duration = Duration::from_millis(200);

pub(crate) struct ServedLog {
    ring: RingHandle,
    /// The served part of the archive before the log.
    older: Option<OlderLog>,
    committed: watch::Sender<Position>,
    /// Why the log gets no further transactions.
    over: watch::Sender<Option<String>>,
}

impl ServedLog {
    pub(crate) fn new(ring: RingHandle, older: Option<OlderLog>) -> Self {
        let now = place(ring.log.committed_end(*ring.member.committed().borrow()));
        Self {
            ring,
            older,
            committed: watch::Sender::new(now),
            over: watch::Sender::new(None),
        }
    }

    /// Checks whether the ring's primary was released, in this member's view and the other members' views. Runs while polled.
    pub(crate) async fn follow_release(
        &self,
        own: impl Fn() -> Option<String>,
        mut others: watch::Receiver<OtherMysqlds>,
    ) {
        loop {
            let released = own().or_else(|| others.borrow().released.values().next().cloned());
            let why = released.map(|name| released_words(&name));
            self.over.send_if_modified(|over| {
                let changed = *over != why;
                *over = why;
                changed
            });
            let changed = tokio::time::timeout(RELEASE_LOOK, others.changed()).await;
            if let Ok(Err(_)) = changed {
                tokio::time::sleep(RELEASE_LOOK).await;
            }
        }
    }

    /// Keeps the log's published state up to date, while polled and the member runs.
    pub(crate) async fn follow(&self) {
        let older = async {
            match &self.older {
                Some(older) => older.follow().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.follow_commits() => {}
            () = older => {}
        }
    }

    /// Adds the serving counters to a view of the archive.
    pub(crate) fn tell(&self, view: &mut ArchiveView) {
        if let Some(older) = &self.older {
            older.tell(view);
        }
    }

    async fn follow_commits(&self) {
        let mut marks = self.ring.member.committed();
        loop {
            let mark = *marks.borrow_and_update();
            let end = place(self.ring.log.committed_end(mark));
            self.committed.send_if_modified(|known| {
                let ahead = *known < end;
                *known = end.max(*known);
                ahead
            });
            let written = self.is_written(mark);
            let look = if written { LOOK } else { NOT_WRITTEN_YET };
            if let Ok(Err(_)) = tokio::time::timeout(look, marks.changed()).await {
                return;
            }
        }
    }

    fn is_written(&self, mark: Option<OpId>) -> bool {
        let durable = self.ring.log.durable().map(|durable| durable.index);
        mark.is_none_or(|mark| durable >= Some(mark.index))
    }

    fn mark(&self) -> Option<OpId> {
        *self.ring.member.committed().borrow()
    }

    /// Waits until everything up to an entry is committed and written here.
    async fn reach(&self, mark: Option<OpId>) -> Result<(), String> {
        let mut marks = self.ring.member.committed();
        let reached = |own: &Option<OpId>| own.map(|own| own.index) >= mark.map(|mark| mark.index);
        let ended = || "this member stops".to_owned();
        marks.wait_for(reached).await.map_err(|_| ended())?;
        while !self.is_written(mark) {
            tokio::time::sleep(NOT_WRITTEN_YET).await;
        }
        Ok(())
    }
}

/// The error for a client that has everything.
fn released_words(primary: &str) -> String {
    format!(
        "the ring gets no more transactions: `witness disable-raft` released its primary `{primary}`, which clients write to without the \
         ring; replicate from its mysqld, or run `witness enable-raft`"
    )
}

fn place(place: LogPlace) -> Position {
    Position {
        file: FileNumber(place.file.get()),
        offset: place.offset,
    }
}

fn number(file: FileNumber) -> binlog_store::FileNumber {
    binlog_store::FileNumber::new(file.0).unwrap_or(binlog_store::FileNumber::FIRST)
}

#[async_trait]
impl CommittedFiles for ServedLog {
    fn files(&self) -> Vec<LogFile> {
        let end = *self.committed.borrow();
        let files = self.ring.log.files().into_iter();
        let listed = files.map(|file| LogFile {
            number: FileNumber(file.number.get()),
            name: file.number.name(),
            bytes: file.bytes,
        });
        let committed = listed.filter(|file| file.number <= end.file);
        let bounded = committed.map(|file| LogFile {
            bytes: if file.number == end.file {
                end.offset
            } else {
                file.bytes
            },
            ..file
        });
        bounded.collect()
    }

    fn name_of(&self, file: FileNumber) -> String {
        number(file).name()
    }

    fn number_of(&self, name: &str) -> Option<FileNumber> {
        let number = binlog_store::FileNumber::from_name(name)?;
        Some(FileNumber(number.get()))
    }

    fn committed(&self) -> watch::Receiver<Position> {
        self.committed.subscribe()
    }

    fn over(&self) -> watch::Receiver<Option<String>> {
        self.over.subscribe()
    }

    fn gtids(&self) -> GtidSet {
        self.ring.log.committed_gtids(self.mark())
    }

    fn purged(&self) -> GtidSet {
        let older = self.older.as_ref().and_then(OlderLog::purged);
        older.unwrap_or_else(|| self.ring.log.purged_gtids())
    }

    fn begin_for(&self, have: &GtidSet) -> Option<FileNumber> {
        let within = self.ring.log.last_file_within(have)?;
        // The files after the committed part do not exist yet.
        let last = self.committed.borrow().file;
        Some(FileNumber(within.number.get()).min(last))
    }

    async fn catch_up(&self, patience: Duration) -> Result<(), String> {
        let deadline = Instant::now() + patience;
        let mark = loop {
            match self.ring.member.committed_in_ring().await {
                Ok(mark) => break mark,
                Err(error) if Instant::now() >= deadline => return Err(error.to_string()),
                Err(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        };
        let late = || "this member is far behind the ring".to_owned();
        let reached = tokio::time::timeout_at(deadline, self.reach(mark)).await;
        reached.unwrap_or_else(|_| Err(late()))
    }

    fn keep(&self, file: FileNumber) -> Option<KeptFile> {
        let hold = self.ring.log.hold_file(number(file))?;
        Some(Box::new(hold))
    }

    async fn read(&self, from: Position, at_most: usize) -> Result<Bytes, ReadError> {
        let asked = from.file;
        let from = LogPlace {
            file: number(asked),
            offset: from.offset,
        };
        let mut read = self.ring.log.read_file(from, at_most).await;
        if let Err(error) = &read
            && error.kind() == io::ErrorKind::NotFound
            && let Some(older) = &self.older
            && let Some(fetched) = older.read(asked, from.offset, at_most).await
        {
            read = fetched;
        }
        read.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => ReadError::Gone,
            _ => ReadError::Failed(error.to_string()),
        })
    }

    fn damaged(&self, file: FileNumber, why: &str) {
        self.ring.log.found_damaged(number(file), why);
    }

    fn older_files(&self) -> Vec<LogFile> {
        self.older.as_ref().map_or_else(Vec::new, OlderLog::files)
    }

    async fn look_for_older_files(&self) -> Result<Vec<LogFile>, ReadError> {
        match &self.older {
            Some(older) => older.look_for_files().await,
            None => Ok(Vec::new()),
        }
    }

    async fn older_begin_for(&self, have: &GtidSet) -> Result<Option<FileNumber>, ReadError> {
        match &self.older {
            Some(older) => older.begin_for(have).await,
            None => Ok(None),
        }
    }

    async fn fetch(&self, file: FileNumber) -> Result<KeptFile, ReadError> {
        match &self.older {
            Some(older) => older.fetch(file).await,
            None => Err(ReadError::Gone),
        }
    }

    fn server_version(&self) -> String {
        let event = self.ring.log.format_description();
        let description = EventRef::new(&event).and_then(FormatDescription::decode);
        description.map_or_else(
            |_| FormatDescription::BUILT_IN_VERSION.to_owned(),
            |description| String::from_utf8_lossy(&description.server_version).into_owned(),
        )
    }

    fn is_own(&self, body: &[u8]) -> bool {
        body.starts_with(&MARKER_MAGIC)
    }

    fn describe_own(&self, body: &[u8]) -> String {
        match Marker::decode(body) {
            Ok((marker, _)) => {
                let op_id = marker.op_id.map(|op_id| format!(" {op_id}"));
                format!("{}{}", marker.kind.name(), op_id.unwrap_or_default())
            }
            Err(error) => error.to_string(),
        }
    }
}
