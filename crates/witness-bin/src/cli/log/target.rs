//! Opens the log that a `log` command reads: a member's data directory, the directory of its binlog files, or one file. Some commands also
//! read mysqld's own binlog files. The log is not changed, and no member has to run.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use binlog_format::MAGIC;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventHeader, EventType, HEADER_LEN, RawEvent};
use binlog_format::framing::{FramedTransaction, FramingError, StreamItem, TransactionFramer};
use binlog_format::gtid::{Gtid, GtidSet};
use binlog_store::{DirectoryError, FileNumber, LogDirectory};
use raft_types::OpId;

use crate::cli::config_args::ConfigArgs;
use crate::cli::log::entry_line::{EntryLine, EventLine};
use crate::config::Mistake;
use crate::terminal::{Attempt, Exit, Failure};

/// The log to read.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// A data directory, the directory of binlog files (a member's or mysqld's own), or one file; without it, `data_dir` of the configuration
    path: Option<PathBuf>,
    /// Configuration file to take `data_dir` from
    #[arg(short, long, value_name = "FILE", env = "WITNESS_CONFIG")]
    config: Option<PathBuf>,
}

impl TargetArgs {
    /// Opens the given log: a member's log, or mysqld's own binlog.
    pub(super) fn log(&self) -> Attempt<Log> {
        let path = self.path()?;
        if path.is_file() && LogDirectory::is_mysqlds_binlog(&path) {
            let files = vec![path.clone()];
            return Ok(Log::Mysqlds(MysqldsLog { path, files }));
        }
        let directory = open(&path)?;
        let numbers = directory.numbers().map_err(failure)?;
        let path_of = |number: &FileNumber| directory.path().join(number.name());
        let files: Vec<PathBuf> = numbers.iter().map(path_of).collect();
        if !(files.iter()).all(|file| LogDirectory::is_mysqlds_binlog(file)) {
            return Ok(Log::Members(directory));
        }
        let path = directory.path().to_owned();
        Ok(Log::Mysqlds(MysqldsLog { path, files }))
    }

    /// Returns the given path; without one, the configured data directory.
    pub(super) fn path(&self) -> Attempt<PathBuf> {
        match &self.path {
            Some(path) => Ok(path.clone()),
            None => ConfigArgs::of_file(self.config.clone()).data_dir(),
        }
    }
}

/// A log to read.
pub(super) enum Log {
    /// The log of a member.
    Members(LogDirectory),
    /// mysqld's own binlog, which has no op ids.
    Mysqlds(MysqldsLog),
}

/// The index of the first entry to read, given as an index or an op id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct From(pub(super) u64);

impl FromStr for From {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(index) = text.parse() {
            return Ok(Self(index));
        }
        let op_id = text.parse::<OpId>();
        let what = || format!("`{text}` is neither an index nor an op id");
        op_id
            .map(|op_id| Self(op_id.index))
            .map_err(|_| Mistake::new(what(), "write 1042 or 3.1042"))
    }
}

/// Opens the log at a path.
///
/// # Errors
/// When there is no log.
pub(super) fn open(path: &Path) -> Attempt<LogDirectory> {
    let opened = match path.is_file() {
        true => LogDirectory::of_file(path),
        false => LogDirectory::on_disk(path),
    };
    opened.map_err(failure)
}

/// Returns the failure of a command that cannot read its log.
pub(super) fn failure(error: DirectoryError) -> Failure {
    if matches!(error, DirectoryError::MysqldsBinlog(_)) {
        return Exit::Error.because(
            error,
            "name a member's data directory; `witness log list`, `show`, `find --gtid` and `verify` read mysqld's own binlog as well",
        );
    }
    if error.is_corruption() {
        Exit::Corrupt.because(
            error,
            "the other members have the log as well: compare with `witness log diff`, and replace this copy",
        )
    } else {
        Failure::error(error)
    }
}

// mysqld's own binlog files, which have transactions and GTIDs, but no op ids. If a server still writes to a file, an incomplete
// transaction at its end is not damage.

/// The size of the buffer for reading a file, in bytes.
const READ_BYTES: usize = 1 << 20;

/// The binlog files of one mysqld, in their order.
pub(super) struct MysqldsLog {
    /// The given path, or the directory of the files.
    pub(super) path: PathBuf,
    /// The files.
    pub(super) files: Vec<PathBuf>,
}

impl MysqldsLog {
    /// Opens each file when the iterator reaches it.
    pub(super) fn files(&self) -> impl Iterator<Item = Attempt<MysqldsFile>> {
        let last = self.files.len().saturating_sub(1);
        let files = self.files.iter().enumerate();
        files.map(move |(at, path)| Ok(MysqldsFile::open(path, at == last)?))
    }

    /// Returns the total size of all files, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let sizes = self.files.iter().filter_map(|file| file.metadata().ok());
        sizes.map(|metadata| metadata.len()).sum()
    }

    /// Finds the transaction with this GTID.
    pub(super) fn find(&self, gtid: &Gtid) -> Attempt<Option<EntryLine>> {
        for file in self.files() {
            let mut file = file?;
            while let Some(read) = file.next()? {
                if read.transaction().is_some_and(|found| found.gtid == *gtid) {
                    return Ok(read.entry_line(&file.name));
                }
            }
        }
        Ok(None)
    }

    /// Returns the failure for an argument with an op id or an index, which mysqld's own binlog does not have.
    pub(super) fn has_no_op_ids(&self, argument: &str) -> Failure {
        Exit::Usage.because(
            format!(
                "{} is mysqld's own binlog, which has no op ids: {argument} cannot be used",
                self.path.display()
            ),
            "use `witness log find --gtid`, or name a member's data directory",
        )
    }
}

/// Why a file is not read to its end.
#[derive(Debug)]
pub(super) enum ReadError {
    /// The bytes of the file are damaged.
    Damaged(String),
    /// The file cannot be read, but may be intact.
    Unreadable(String),
}

impl std::convert::From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged(what) => Exit::Corrupt.because(
                what,
                "the file is mysqld's own: compare it with SHOW BINLOG EVENTS of its server",
            ),
            ReadError::Unreadable(why) => Self::error(why),
        }
    }
}

/// An event with its position, and the transaction that ends with it, if any.
pub(super) struct ReadEvent {
    pos: u64,
    end: u64,
    event: RawEvent,
    checksum: ChecksumAlgorithm,
    transaction: Option<(u64, FramedTransaction)>,
}

impl ReadEvent {
    /// Returns the transaction that ends with this event, if any.
    pub(super) fn transaction(&self) -> Option<&FramedTransaction> {
        self.transaction.as_ref().map(|(_, framed)| framed)
    }

    /// Returns the line for the transaction that ends with this event; `None` if none ends with it.
    pub(super) fn entry_line(&self, log_name: &str) -> Option<EntryLine> {
        let (begin, framed) = self.transaction.as_ref()?;
        Some(EntryLine::of_mysqld(log_name, *begin, self.end, framed))
    }

    /// Returns the line for this event.
    pub(super) fn event_line(&self, log_name: &str) -> EventLine {
        let verified = self.event.verified(self.checksum);
        let event = verified.unwrap_or_else(|_| self.event.canonical());
        EventLine::of_mysqld(log_name, self.pos, event, self.end)
    }
}

/// One binlog file of a mysqld, which is read from its beginning.
pub(super) struct MysqldsFile {
    /// The file's name without its directory.
    pub(super) name: String,
    path: PathBuf,
    from: BufReader<File>,
    /// The size in bytes when the file was opened.
    pub(super) size: u64,
    /// The number of bytes that have been read and are valid.
    pub(super) offset: u64,
    /// True for the last file.
    is_last: bool,
    /// True if the server has not closed the file: it still writes to the file, or has crashed.
    pub(super) in_use: bool,
    framer: TransactionFramer,
    checksum: ChecksumAlgorithm,
    /// The position at which the incomplete transaction begins, if there is one.
    begin: Option<u64>,
    /// The GTIDs of the transactions in all earlier files.
    pub(super) previous_gtids: GtidSet,
    /// A description of the incomplete event or transaction at the end of the last file.
    pub(super) unfinished: Option<String>,
}

impl MysqldsFile {
    fn open(path: &Path, is_last: bool) -> Result<Self, ReadError> {
        let unreadable = |error: &dyn fmt::Display| {
            ReadError::Unreadable(format!("cannot read {}: {error}", path.display()))
        };
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        let size = file.metadata().map_err(|error| unreadable(&error))?.len();
        let mut from = BufReader::with_capacity(READ_BYTES, file);
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic)
            .map_err(|error| unreadable(&error))?;
        if magic != MAGIC {
            return Err(unreadable(
                &"it is encrypted; read it from its server: mysqlbinlog --read-from-remote-server",
            ));
        }
        let name = path.file_name().unwrap_or_default();
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            path: path.to_owned(),
            from,
            size,
            offset: MAGIC.len() as u64,
            is_last,
            in_use: false,
            framer: TransactionFramer::new(ChecksumAlgorithm::Crc32, u64::MAX).without_payloads(),
            checksum: ChecksumAlgorithm::Crc32,
            begin: None,
            previous_gtids: GtidSet::new(),
            unfinished: None,
        })
    }

    /// Reads the file to its end, or to its first damage, and returns a description of the damage.
    pub(super) fn scan(&mut self, mut each: impl FnMut(&ReadEvent)) -> Attempt<Option<String>> {
        loop {
            match self.next() {
                Ok(Some(read)) => each(&read),
                Ok(None) => return Ok(None),
                Err(ReadError::Damaged(what)) => return Ok(Some(what)),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads the next event; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<ReadEvent>, ReadError> {
        let pos = self.offset;
        let left = self.size - pos;
        if left == 0 {
            return match self.framer.in_transaction() {
                true => self.ends_early("it ends within a transaction"),
                false => Ok(None),
            };
        }
        if left < HEADER_LEN as u64 {
            return self.ends_early("it ends within an event");
        }
        let mut bytes = vec![0; HEADER_LEN];
        self.read(&mut bytes)?;
        let header = EventHeader::parse(&bytes).map_err(|error| self.damaged(&error))?;
        let end = pos + u64::from(header.event_size);
        if end > self.size {
            return self.ends_early("it ends within an event");
        }
        bytes.resize(header.event_size as usize, 0);
        self.read(&mut bytes[HEADER_LEN..])?;
        // The header of an event has no room for a position above 4 GiB, so such a position is not checked.
        if u32::try_from(end).is_ok_and(|low| low != header.log_pos) {
            let why = format!("an event ends at {end} and says {}", header.log_pos);
            return Err(self.damaged(&why));
        }
        if header.event_type == EventType::FormatDescription {
            self.in_use = header.flags.contains(EventFlags::BINLOG_IN_USE);
        }
        let event = RawEvent::new(bytes.into()).map_err(|error| self.damaged(&error))?;
        let item = self.framer.push(&event).map_err(|error| match error {
            FramingError::AnonymousTransaction => ReadError::Unreadable(format!(
                "cannot read {} at offset {pos}: its transactions have no GTIDs (gtid_mode=OFF); use mysqlbinlog",
                self.path.display()
            )),
            error => self.damaged(&error),
        })?;
        if self.framer.in_transaction() {
            self.begin.get_or_insert(pos);
        }
        let transaction = match item {
            Some(StreamItem::Transaction(framed)) => {
                Some((self.begin.take().unwrap_or(pos), framed))
            }
            Some(StreamItem::FormatDescription { checksum, .. }) => {
                self.checksum = checksum;
                None
            }
            Some(StreamItem::PreviousGtids(gtids)) => {
                self.previous_gtids = gtids;
                None
            }
            _ => None,
        };
        self.offset = end;
        let checksum = match header.event_type {
            EventType::FormatDescription => ChecksumAlgorithm::Crc32,
            _ => self.checksum,
        };
        Ok(Some(ReadEvent {
            pos,
            end,
            event,
            checksum,
            transaction,
        }))
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<(), ReadError> {
        let read: io::Result<()> = self.from.read_exact(buffer);
        read.map_err(|error| {
            let (path, offset) = (self.path.display(), self.offset);
            ReadError::Unreadable(format!("cannot read {path} at offset {offset}: {error}"))
        })
    }

    /// Handles a file that ends within an event or a transaction. This is damage, unless the file is the last one and in use.
    fn ends_early(&mut self, what: &str) -> Result<Option<ReadEvent>, ReadError> {
        if !(self.in_use && self.is_last) {
            return Err(self.damaged(&what));
        }
        let (name, offset) = (&self.name, self.offset);
        self.unfinished = Some(format!("{name} at offset {offset}: {what}"));
        Ok(None)
    }

    fn damaged(&self, what: &dyn fmt::Display) -> ReadError {
        let (name, offset) = (&self.name, self.offset);
        ReadError::Damaged(format!("{name} at offset {offset}: {what}"))
    }
}
