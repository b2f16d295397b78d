//! The log of the binlog server: the member's log, and before it the archived part of the ring's log. Clients need the archived part if
//! they were absent for longer than this member keeps its files.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use archive::encryption::Identities;
use archive::serving::{ArchivedFile, CacheOptions, ServedArchive, ServingError};
use archive::storage::{Storage, StorageSettings};
use async_trait::async_trait;
use binlog_format::event::EventRef;
use binlog_format::events::FormatDescription;
use binlog_format::gtid::GtidSet;
use binlog_server::{
    CatchUpError, CommittedFiles, Consumers, DumpKind, FileNumber, KeptFile, LogFile, Position,
    ReadError,
};
use binlog_store::{LogBegin, LogPlace, MARKER_MAGIC, Marker};
use bytes::Bytes;
use mysqld_controller::plan::same_uuid::OtherMysqlds;
use raft_types::OpId;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::ring_handle::RingHandle;
use crate::settings::{ArchiveSettings, Settings};
use crate::status::{ArchiveView, ConsumerView};

/// Interval between two checks for a committed entry that is not written here yet.
const NOT_WRITTEN_YET: Duration = Duration::from_millis(1);
/// Interval between two checks for a new file. It exists shortly after the commit of the entry that ends the previous file.
const FILE_CHECK: Duration = Duration::from_secs(1);
/// Interval between two checks whether this member's own mysqld was released.
const RELEASE_CHECK: Duration = Duration::from_secs(1);
/// Interval between queries to a ring without a leader.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// The clients of the binlog server, and the log that it serves.
pub(crate) struct Serving {
    pub(crate) consumers: Consumers,
    pub(crate) log: Arc<ServedLog>,
}

impl Serving {
    /// Returns the views of the attached clients.
    pub(crate) fn views(&self) -> Vec<ConsumerView> {
        let views = self.consumers.views(&*self.log).into_iter();
        let view = |view: binlog_server::ConsumerView| ConsumerView {
            name: name(&view),
            address: view.address.to_string(),
            server_id: view.server_id,
            server_uuid: view.uuid,
            asked_by: match view.kind {
                DumpKind::Gtids => "gtids".to_owned(),
                DumpKind::Position => "position".to_owned(),
            },
            file: self.log.name_of(view.position.file),
            position: view.position.offset,
            behind_bytes: view.behind_bytes,
            queued_bytes: view.queued_bytes,
            attached_seconds: view.attached.as_secs_f64(),
        };
        views.map(view).collect()
    }
}

/// Returns the name of a client, for operators.
fn name(view: &binlog_server::ConsumerView) -> String {
    match (&view.host[..], view.port, view.server_id) {
        ("", _, 0) => view.address.to_string(),
        ("", _, id) => format!("server {id}"),
        (host, 0, _) => host.to_owned(),
        (host, port, _) => format!("{host}:{port}"),
    }
}

pub(crate) struct ServedLog {
    ring: RingHandle,
    /// The archived part before the member's log.
    older: Option<ServedArchive>,
    committed: watch::Sender<Position>,
    /// Set if the log gets no more transactions: the reason.
    over: watch::Sender<Option<String>>,
}

impl ServedLog {
    pub(crate) fn new(settings: &Settings, ring: RingHandle) -> Self {
        let now = place(ring.log.committed_end(*ring.member.committed().borrow()));
        Self {
            older: served_archive(settings, &ring),
            ring,
            committed: watch::Sender::new(now),
            over: watch::Sender::new(None),
        }
    }

    /// Checks, while polled, whether the ring's primary was released, in the view of this member and of the other members.
    pub(crate) async fn follow_release(
        &self,
        own: impl Fn() -> Option<String>,
        mut others: watch::Receiver<OtherMysqlds>,
    ) {
        loop {
            let released = own().or_else(|| others.borrow().released.values().next().cloned());
            let why = released.map(|name| released_message(&name));
            self.over.send_if_modified(|over| {
                let changed = *over != why;
                *over = why;
                changed
            });
            let changed = tokio::time::timeout(RELEASE_CHECK, others.changed()).await;
            if let Ok(Err(_)) = changed {
                sleep(RELEASE_CHECK).await;
            }
        }
    }

    /// Keeps the published state of the log up to date, while polled and the member runs.
    pub(crate) async fn follow(&self) {
        tokio::select! {
            () = self.follow_commits() => {}
            () = self.follow_archive() => {}
        }
    }

    /// Keeps the state of the archive up to date, and removes fetched files that are no longer used.
    async fn follow_archive(&self) {
        let Some(archive) = &self.older else {
            return std::future::pending().await;
        };
        let mut next = Instant::now();
        let mut begin = None;
        loop {
            let now = self.ring.log.begin();
            if now != begin || Instant::now() >= next {
                let valid = match &now {
                    // The failure appears in the status and in the member's log file.
                    Some(now) if archive.look(now, BEGIN_CHECK).await.is_err() => ARCHIVE_RETRY,
                    _ => ARCHIVE_CHECK,
                };
                begin = now;
                next = Instant::now() + valid;
            }
            archive.tidy();
            sleep(BEGIN_CHECK).await;
        }
    }

    /// Adds the serving counters to a view of the archive.
    pub(crate) fn tell(&self, view: &mut ArchiveView) {
        let Some(archive) = &self.older else { return };
        let figures = archive.figures(self.ring.log.begin().as_ref());
        view.served_files_total = figures.files_total;
        view.served_bytes_total = figures.bytes_total;
        view.serve_failures_total = figures.failures_total;
        view.serve_error = figures.error;
        view.serve_disk_bytes = figures.disk_bytes;
        view.serves_from = figures.first.map(|file| file.name());
    }

    fn begin(&self) -> Result<LogBegin, ReadError> {
        self.ring.log.begin().ok_or(ReadError::Gone)
    }

    /// Returns the archive, and where the log begins; `None` if one of them does not exist.
    fn older(&self) -> Option<(&ServedArchive, LogBegin)> {
        self.older.as_ref().zip(self.ring.log.begin())
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
            let look = if written { FILE_CHECK } else { NOT_WRITTEN_YET };
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

    /// Waits until all entries up to `mark` are committed and written here.
    async fn reach(&self, mark: Option<OpId>) -> Result<(), CatchUpError> {
        let mut marks = self.ring.member.committed();
        let reached = |own: &Option<OpId>| own.map(|own| own.index) >= mark.map(|mark| mark.index);
        let reached = marks.wait_for(reached).await;
        reached.map_err(|_| CatchUpError::Stopping)?;
        while !self.is_written(mark) {
            sleep(NOT_WRITTEN_YET).await;
        }
        Ok(())
    }
}

/// Returns the error for a client that has all transactions.
fn released_message(primary: &str) -> String {
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
        let listed = files.map(|file| {
            let number = FileNumber(file.number.get());
            LogFile {
                number,
                name: file.number.name(),
                bytes: match number == end.file {
                    true => end.offset,
                    false => file.bytes,
                },
            }
        });
        listed.filter(|file| file.number <= end.file).collect()
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
        // `None` if the archive adds nothing to the log.
        let older = self.older();
        let before = older.and_then(|(archive, begin)| archive.gtids_before(&begin));
        before.unwrap_or_else(|| self.ring.log.purged_gtids())
    }

    fn begin_for(&self, have: &GtidSet) -> Option<FileNumber> {
        let within = self.ring.log.last_file_within(have)?;
        // Files after the committed part are not reported, because they do not exist yet for clients.
        let last = self.committed.borrow().file;
        Some(FileNumber(within.number.get()).min(last))
    }

    async fn catch_up(&self, patience: Duration) -> Result<(), CatchUpError> {
        let deadline = Instant::now() + patience;
        let mark = loop {
            match self.ring.member.committed_in_ring().await {
                Ok(mark) => break mark,
                Err(error) if Instant::now() >= deadline => {
                    return Err(CatchUpError::Unknown(error.into()));
                }
                Err(_) => sleep(ASK_AGAIN).await,
            }
        };
        let reached = tokio::time::timeout_at(deadline, self.reach(mark)).await;
        reached.unwrap_or(Err(CatchUpError::Late))
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
            && let Some(asked) = binlog_store::FileNumber::new(asked.0)
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
        let files = self.older();
        let files = files.map(|(archive, begin)| archive.older_files(&begin));
        files.unwrap_or_default().iter().map(listed).collect()
    }

    async fn look_for_older_files(&self) -> Result<Vec<LogFile>, ReadError> {
        let Some(archive) = &self.older else {
            return Ok(Vec::new());
        };
        let files = archive.look_for_files(&self.begin()?).await;
        Ok(files.map_err(read_error)?.iter().map(listed).collect())
    }

    async fn older_begin_for(&self, have: &GtidSet) -> Result<Option<FileNumber>, ReadError> {
        let Some(archive) = &self.older else {
            return Ok(None);
        };
        let file = archive.begin_for(&self.begin()?, have).await;
        Ok(file.map_err(read_error)?.map(|file| FileNumber(file.get())))
    }

    async fn fetch(&self, file: FileNumber) -> Result<KeptFile, ReadError> {
        let archive = self.older.as_ref().ok_or(ReadError::Gone)?;
        let number = binlog_store::FileNumber::new(file.0).ok_or(ReadError::Gone)?;
        let held = archive.fetch(&self.begin()?, number).await;
        Ok(Box::new(held.map_err(read_error)?))
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

// The archived part before the log.

/// Directory of fetched files in the data directory.
const DIRECTORY: &str = "archived-files";
/// Fetched files leave this multiple of the disk reserve free, so that they never cause refused transactions.
const RESERVES: u64 = 4;
/// Interval between two checks whether the log's beginning has moved.
const BEGIN_CHECK: Duration = Duration::from_secs(1);
/// How long a check of the archive is valid.
const ARCHIVE_CHECK: Duration = Duration::from_secs(600);
/// The interval while the archive is unreachable.
const ARCHIVE_RETRY: Duration = Duration::from_secs(30);

/// Returns the served part of the archive; `None` without an archive, or if none of it is to be served.
fn served_archive(settings: &Settings, ring: &RingHandle) -> Option<ServedArchive> {
    let archive = settings.archive.clone()?;
    let most_bytes = archive.serve_bytes?;
    let reserve = settings.log.disk_reserve_bytes;
    let cache = CacheOptions {
        directory: settings.data_dir.join(DIRECTORY),
        most_bytes,
        stays_free: reserve.saturating_mul(RESERVES),
        free: free_bytes,
        idle: Duration::from_secs(600),
        patience: Duration::from_secs(60),
    };
    let id = ring.member.status().ring;
    let open = Box::new(move || opened(&archive));
    Some(ServedArchive::new(id, open, cache))
}

fn listed(file: &ArchivedFile) -> LogFile {
    LogFile {
        number: FileNumber(file.number.get()),
        name: file.number.name(),
        bytes: file.bytes,
    }
}

/// Converts the error for a client.
fn read_error(error: ServingError) -> ReadError {
    match error {
        ServingError::Gone(_) => ReadError::Gone,
        error if error.may_pass() => {
            ReadError::Unavailable(format!("{error}; it is tried again when you come again"))
        }
        error => ReadError::Unusable(error.to_string()),
    }
}

/// Opens the archive. Both files are read each time, because credentials and keys may be renewed.
fn opened(settings: &ArchiveSettings) -> Result<(Storage, Identities), ServingError> {
    let (url, file) = (settings.url.clone(), settings.options_file.as_deref());
    let reached = StorageSettings::with_options_of(url, file, settings.call_limit)?;
    let identities = match &settings.identity_file {
        Some(file) => Identities::of_private_file(file).map_err(ServingError::IdentityFile)?,
        None => Identities::default(),
    };
    Ok((Storage::open(&reached)?, identities))
}

fn free_bytes(directory: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(directory)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use archive::storage::StorageError;

    use super::*;

    #[test]
    fn only_temporary_failures_of_the_archive_advise_a_retry() {
        let number = binlog_store::FileNumber::FIRST;
        let silent = StorageError::Silent("read log/x".to_owned(), Duration::from_secs(1));
        let passes = read_error(ServingError::Storage(silent));
        assert!(
            matches!(&passes, ReadError::Unavailable(words) if words.contains("did not answer"))
        );
        let stays = read_error(ServingError::Encrypted(number, "no key".to_owned()));
        assert!(matches!(&stays, ReadError::Unusable(words) if words.contains("binlog.000001")));
        assert_eq!(read_error(ServingError::Gone(number)), ReadError::Gone);
    }
}
