//! A log in memory. Its files have a header, and a marker before every entry, as a member's files do. Appended entries are committed only
//! when the test does so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use binlog_format::MAGIC;
use binlog_format::canonical::{stamp, stamp_payload};
use binlog_format::events::{
    CommitTimestamp, EncodeEvent, EventOrigin, FormatDescription, Ignorable, LogicalClock,
    PreviousGtids, Rotate, ServerVersion,
};
use binlog_format::gtid::{Gtid, GtidSet, SourceId, Tag};
use binlog_format::synthesis::{TransactionHead, statement_transaction};
use binlog_server::{
    Account, BinlogServer, CatchUpError, CommandError, CommittedFiles, Consumers, FileNumber,
    KeptFile, LogCommands, LogFile, Position, PurgeTo, ReadError, ServerIdentity, ServerOptions,
};
use bytes::Bytes;
use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub(crate) const USER: &str = "replication";
pub(crate) const PASSWORD: &str = "a password";
pub(crate) const SOURCE: Uuid = Uuid::from_u128(0x3e11_fa47);
const OWN: &[u8] = b"OWN!";

/// The outcome of fetching an older file.
#[derive(Debug, Clone)]
pub(crate) enum Fetching {
    Works,
    Takes(Duration),
    Fails(ReadError),
}

/// The number of current users of each fetched file.
type Kept = Arc<Mutex<BTreeMap<u64, usize>>>;

/// A fetched file, which can be read until it is dropped.
struct Fetched {
    kept: Kept,
    file: u64,
}

impl Drop for Fetched {
    fn drop(&mut self) {
        let mut kept = self.kept.lock().unwrap();
        let times = kept.get_mut(&self.file).unwrap();
        *times -= 1;
        if *times == 0 {
            kept.remove(&self.file);
        }
    }
}

/// A log in memory.
pub(crate) struct MemoryLog {
    files: Mutex<BTreeMap<u64, Vec<u8>>>,
    /// Older files, which can be fetched.
    older: Mutex<BTreeMap<u64, Vec<u8>>>,
    fetching: Mutex<(Fetching, usize)>,
    kept: Kept,
    /// The GTIDs before each file, and the GTIDs of the whole log.
    gtids: Mutex<(BTreeMap<u64, GtidSet>, GtidSet)>,
    committed_gtids: Mutex<GtidSet>,
    /// Reported damage.
    damages: Mutex<Vec<(u64, String)>>,
    /// Number of reads that the disk still refuses.
    refused: Mutex<usize>,
    committed: watch::Sender<Position>,
    /// Why the log gets no more transactions.
    pub(crate) over: watch::Sender<Option<String>>,
    /// A transaction that the ring has committed, but this log has not.
    pub(crate) elsewhere: Mutex<Option<u64>>,
}

pub(crate) fn gtid(number: u64) -> Gtid {
    Gtid {
        source: SourceId(SOURCE),
        tag: Tag::NONE,
        gno: binlog_format::gtid::Gno::new(number).unwrap(),
    }
}

/// The set of these numbers, given as text.
pub(crate) fn set(numbers: &str) -> GtidSet {
    format!("{SOURCE}:{numbers}").parse().unwrap()
}

impl MemoryLog {
    pub(crate) fn new() -> Arc<Self> {
        let log = Self {
            files: Mutex::default(),
            older: Mutex::default(),
            fetching: Mutex::new((Fetching::Works, 0)),
            kept: Kept::default(),
            gtids: Mutex::default(),
            committed_gtids: Mutex::default(),
            damages: Mutex::default(),
            refused: Mutex::default(),
            committed: watch::Sender::new(Position {
                file: FileNumber(1),
                offset: 4,
            }),
            over: watch::Sender::new(None),
            elsewhere: Mutex::new(None),
        };
        log.begin_file(1);
        log.commit();
        Arc::new(log)
    }

    fn begin_file(&self, number: u64) {
        let mut bytes = MAGIC.to_vec();
        let (before, all) = &mut *self.gtids.lock().unwrap();
        before.insert(number, all.clone());
        let previous = PreviousGtids { gtids: all.clone() }.encode(EventOrigin::default());
        let mut end = 4;
        for event in [FormatDescription::built_in_event(), previous] {
            end = stamp(&event, end, &mut bytes).unwrap();
        }
        self.files.lock().unwrap().insert(number, bytes);
        self.append_own(b"begin");
    }

    fn append_own(&self, what: &[u8]) {
        let body = [OWN, what].concat();
        let event = Ignorable { body: body.into() }.encode(Ignorable::origin(0, 1));
        self.append(&event);
    }

    fn append(&self, canonical: &[u8]) {
        let mut files = self.files.lock().unwrap();
        let mut last = files.last_entry().unwrap();
        let end = last.get().len() as u64;
        stamp_payload(canonical, end, last.get_mut()).unwrap();
    }

    /// Appends a transaction of about this many bytes.
    pub(crate) fn transaction(&self, number: u64, bytes: usize) {
        self.append_own(b"transaction");
        let head = TransactionHead {
            gtid: gtid(number),
            server_id: 1,
            thread_id: 1,
            commit: CommitTimestamp(1_700_000_000_000_000),
            version: ServerVersion(90_704),
            clock: LogicalClock::default(),
            xid: number,
        };
        let statement: String = format!("-- {number} {}", "x".repeat(bytes));
        self.append(&statement_transaction(head, "test", &statement));
        self.gtids.lock().unwrap().1.add(gtid(number));
    }

    /// Ends the file and begins the next one.
    pub(crate) fn rotate(&self) {
        let next = self.files.lock().unwrap().keys().last().unwrap() + 1;
        self.append_own(b"rotate");
        let name = self.name_of(FileNumber(next));
        self.append(&Rotate::to(&name).encode(EventOrigin::default()));
        self.begin_file(next);
    }

    /// Commits everything that was appended.
    pub(crate) fn commit(&self) {
        *self.committed_gtids.lock().unwrap() = self.gtids.lock().unwrap().1.clone();
        let files = self.files.lock().unwrap();
        let (file, bytes) = files.last_key_value().unwrap();
        self.committed.send_replace(Position {
            file: FileNumber(*file),
            offset: bytes.len() as u64,
        });
    }

    /// Removes the oldest file.
    pub(crate) fn purge_one(&self) {
        self.files.lock().unwrap().pop_first();
    }

    /// Purges the oldest file, which can be fetched from then on.
    pub(crate) fn archive_one(&self) {
        let (number, bytes) = self.files.lock().unwrap().pop_first().unwrap();
        self.older.lock().unwrap().insert(number, bytes);
    }

    /// Loses the oldest of the files that can be fetched.
    pub(crate) fn lose_oldest(&self) {
        self.older.lock().unwrap().pop_first().unwrap();
    }

    pub(crate) fn fetch_by(&self, how: Fetching) {
        self.fetching.lock().unwrap().0 = how;
    }

    /// Number of fetches so far.
    pub(crate) fn fetched(&self) -> usize {
        self.fetching.lock().unwrap().1
    }

    /// The fetched files that are in use.
    pub(crate) fn kept(&self) -> Vec<u64> {
        self.kept.lock().unwrap().keys().copied().collect()
    }

    fn first(&self) -> u64 {
        let first = self.files.lock().unwrap().keys().next().copied();
        let older = self.older.lock().unwrap().keys().next().copied();
        older.or(first).unwrap()
    }

    fn listed(&self, files: &BTreeMap<u64, Vec<u8>>) -> Vec<LogFile> {
        let end = *self.committed.borrow();
        let listed = files.iter().filter(|(number, _)| **number <= end.file.0);
        let listed = listed.map(|(number, bytes)| LogFile {
            number: FileNumber(*number),
            name: self.name_of(FileNumber(*number)),
            bytes: if *number == end.file.0 {
                end.offset
            } else {
                bytes.len() as u64
            },
        });
        listed.collect()
    }

    fn last_within(&self, have: &GtidSet, files: &BTreeMap<u64, Vec<u8>>) -> Option<FileNumber> {
        let before = &self.gtids.lock().unwrap().0;
        let mut newest_first = files.keys().rev();
        let found = newest_first.find(|file| have.contains_set(&before[*file]));
        found.map(|file| FileNumber(*file))
    }

    /// A file's bytes.
    pub(crate) fn bytes_of(&self, file: u64) -> Vec<u8> {
        self.files.lock().unwrap()[&file].clone()
    }

    /// Flips a bit.
    pub(crate) fn damage(&self, file: u64, offset: usize) {
        self.files.lock().unwrap().get_mut(&file).unwrap()[offset] ^= 1;
    }

    /// The files that were reported as damaged, and why.
    pub(crate) fn damages(&self) -> Vec<(u64, String)> {
        self.damages.lock().unwrap().clone()
    }

    /// Makes the disk refuse the next reads.
    pub(crate) fn refuse_reads(&self, reads: usize) {
        *self.refused.lock().unwrap() = reads;
    }
}

#[async_trait]
impl CommittedFiles for MemoryLog {
    fn files(&self) -> Vec<LogFile> {
        self.listed(&self.files.lock().unwrap())
    }

    fn name_of(&self, file: FileNumber) -> String {
        format!("binlog.{:06}", file.0)
    }

    fn number_of(&self, name: &str) -> Option<FileNumber> {
        name.strip_prefix("binlog.")?.parse().ok().map(FileNumber)
    }

    fn committed(&self) -> watch::Receiver<Position> {
        self.committed.subscribe()
    }

    fn over(&self) -> watch::Receiver<Option<String>> {
        self.over.subscribe()
    }

    fn gtids(&self) -> GtidSet {
        self.committed_gtids.lock().unwrap().clone()
    }

    fn purged(&self) -> GtidSet {
        let first = self.first();
        self.gtids.lock().unwrap().0[&first].clone()
    }

    fn begin_for(&self, have: &GtidSet) -> Option<FileNumber> {
        self.last_within(have, &self.files.lock().unwrap())
    }

    async fn catch_up(&self, patience: Duration) -> Result<(), CatchUpError> {
        let elsewhere = *self.elsewhere.lock().unwrap();
        let Some(number) = elsewhere else {
            return Ok(());
        };
        let mut committed = self.committed.subscribe();
        let known = committed.wait_for(|_| self.gtids().contains(&gtid(number)));
        let known = tokio::time::timeout(patience, known).await;
        known
            .map(|_| ())
            .map_err(|_| CatchUpError::Unknown("no leader is known".into()))
    }

    fn keep(&self, file: FileNumber) -> Option<KeptFile> {
        let there = self.files.lock().unwrap().contains_key(&file.0);
        there.then(|| Box::new(()) as KeptFile)
    }

    async fn read(&self, from: Position, at_most: usize) -> Result<Bytes, ReadError> {
        let mut refused = self.refused.lock().unwrap();
        if let Some(left) = refused.checked_sub(1) {
            *refused = left;
            return Err(ReadError::Failed("input/output error".to_owned()));
        }
        let (files, older) = (self.files.lock().unwrap(), self.older.lock().unwrap());
        let kept = self.kept.lock().unwrap().contains_key(&from.file.0);
        let fetched = || older.get(&from.file.0).filter(|_| kept);
        let here = files.get(&from.file.0).or_else(fetched);
        let bytes = here.ok_or(ReadError::Gone)?;
        let begin = (from.offset as usize).min(bytes.len());
        let end = (begin + at_most).min(bytes.len());
        Ok(Bytes::copy_from_slice(&bytes[begin..end]))
    }

    fn damaged(&self, file: FileNumber, why: &str) {
        let mut damages = self.damages.lock().unwrap();
        damages.push((file.0, why.to_owned()));
    }

    fn older_files(&self) -> Vec<LogFile> {
        self.listed(&self.older.lock().unwrap())
    }

    async fn look_for_older_files(&self) -> Result<Vec<LogFile>, ReadError> {
        Ok(self.older_files())
    }

    async fn older_begin_for(&self, have: &GtidSet) -> Result<Option<FileNumber>, ReadError> {
        Ok(self.last_within(have, &self.older.lock().unwrap()))
    }

    async fn fetch(&self, file: FileNumber) -> Result<KeptFile, ReadError> {
        let how = self.fetching.lock().unwrap().0.clone();
        match how {
            Fetching::Works => {}
            Fetching::Takes(time) => tokio::time::sleep(time).await,
            Fetching::Fails(error) => return Err(error),
        }
        if !self.older.lock().unwrap().contains_key(&file.0) {
            return Err(ReadError::Gone);
        }
        self.fetching.lock().unwrap().1 += 1;
        *self.kept.lock().unwrap().entry(file.0).or_default() += 1;
        Ok(Box::new(Fetched {
            kept: self.kept.clone(),
            file: file.0,
        }))
    }

    fn server_version(&self) -> String {
        "9.7.4-test".to_owned()
    }

    fn is_own(&self, body: &[u8]) -> bool {
        body.starts_with(OWN)
    }

    fn describe_own(&self, body: &[u8]) -> String {
        String::from_utf8_lossy(&body[OWN.len()..]).into_owned()
    }
}

/// Answers with the command that it received.
pub(crate) struct Echo;

#[async_trait]
impl LogCommands for Echo {
    async fn flush(&self) -> Result<String, CommandError> {
        Err("only the leader does that".into())
    }

    async fn purge(&self, to: PurgeTo) -> Result<String, CommandError> {
        Ok(format!("{to:?}"))
    }
}

/// A server of a log in memory.
pub(crate) struct Served {
    pub(crate) log: Arc<MemoryLog>,
    pub(crate) port: u16,
    pub(crate) consumers: Consumers,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

pub(crate) fn options() -> ServerOptions {
    let account = Account {
        user: USER.to_owned(),
        password: PASSWORD.into(),
    };
    let identity = ServerIdentity {
        server_id: 4_000_000_007,
        server_uuid: Uuid::from_u128(7),
        name: "witness-7".to_owned(),
    };
    ServerOptions::new(account, identity)
}

impl Served {
    pub(crate) async fn start(log: Arc<MemoryLog>, options: ServerOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = BinlogServer::new(listener, options, log.clone(), Arc::new(Echo)).unwrap();
        let stop = CancellationToken::new();
        let (port, consumers) = (server.address().port(), server.consumers());
        let task = tokio::spawn(server.serve(stop.clone()));
        Self {
            log,
            port,
            consumers,
            stop,
            task,
        }
    }

    pub(crate) fn login(&self) -> ConnectOptions {
        let endpoint = Endpoint::tcp("127.0.0.1", self.port);
        let mut options = ConnectOptions::new(endpoint, USER, PASSWORD);
        options.tls.mode = mysql_link::TlsMode::Disabled;
        options
    }

    pub(crate) async fn connect(&self) -> Result<Connection, LinkError> {
        Connection::open(&self.login()).await
    }

    /// Stops the server, and waits until all its sessions have ended.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}
