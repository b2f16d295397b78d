//! mysqld's own binlog files for the `log` commands: they have transactions and GTIDs, but no op ids. A file that a server still writes may
//! end within a transaction; that is no damage.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use binlog_format::MAGIC;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventHeader, EventType, HEADER_LEN, RawEvent};
use binlog_format::framing::{FramedTransaction, FramingError, StreamItem, TransactionFramer};
use binlog_format::gtid::{Gtid, GtidSet};

use crate::cli::log::entry_line::{EntryLine, EventLine};
use crate::terminal::{Attempt, Exit, Failure};

/// The bytes that one read asks the file for.
const READ_BYTES: usize = 1 << 20;

/// Files of one mysqld, in their order.
pub(super) struct MysqldsLog {
    /// The given path, or the directory of the files.
    pub(super) path: PathBuf,
    /// The files.
    pub(super) files: Vec<PathBuf>,
}

impl MysqldsLog {
    /// Opens the files in turn.
    pub(super) fn files(&self) -> impl Iterator<Item = Attempt<MysqldsFile>> {
        let last = self.files.len().saturating_sub(1);
        let files = self.files.iter().enumerate();
        files.map(move |(at, path)| Ok(MysqldsFile::open(path, at == last)?))
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        let sizes = self.files.iter().filter_map(|file| file.metadata().ok());
        sizes.map(|metadata| metadata.len()).sum()
    }

    /// The transaction with this GTID.
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

    /// The refusal of an argument that names an op id or an index.
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
    /// Its bytes are damaged.
    Damaged(String),
    /// It may be intact, but cannot be read here.
    Unreadable(String),
}

impl From<ReadError> for Failure {
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

/// An event with its position, and the transaction that it ends.
pub(super) struct ReadEvent {
    pos: u64,
    end: u64,
    event: RawEvent,
    checksum: ChecksumAlgorithm,
    transaction: Option<(u64, FramedTransaction)>,
}

impl ReadEvent {
    /// The transaction that ends with this event.
    pub(super) fn transaction(&self) -> Option<&FramedTransaction> {
        self.transaction.as_ref().map(|(_, framed)| framed)
    }

    /// The line for this transaction.
    pub(super) fn entry_line(&self, log_name: &str) -> Option<EntryLine> {
        let (begin, framed) = self.transaction.as_ref()?;
        Some(EntryLine::of_mysqld(log_name, *begin, self.end, framed))
    }

    /// The line for this event.
    pub(super) fn event_line(&self, log_name: &str) -> EventLine {
        let verified = self.event.verified(self.checksum);
        let event = verified.unwrap_or_else(|_| self.event.canonical());
        EventLine::of_mysqld(log_name, self.pos, event, self.end)
    }
}

/// One file, read from front to back.
pub(super) struct MysqldsFile {
    /// Its name without the directory.
    pub(super) name: String,
    path: PathBuf,
    from: BufReader<File>,
    /// Its size in bytes when it was opened.
    pub(super) size: u64,
    /// Bytes read and valid.
    pub(super) offset: u64,
    /// Whether no file follows.
    is_last: bool,
    /// The server did not close it: it still writes to it, or ended without closing it.
    pub(super) in_use: bool,
    framer: TransactionFramer,
    checksum: ChecksumAlgorithm,
    /// Start of the open transaction.
    begin: Option<u64>,
    /// The GTIDs of the files before it.
    pub(super) previous_gtids: GtidSet,
    /// The unfinished end of the last file.
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

    /// Reads it to its end, or to its first damage, which is returned.
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

    /// The next event; none at the end.
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
        // Positions above 4 GiB do not fit into the header.
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

    /// The file ends within an event or a transaction.
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
