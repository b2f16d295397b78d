//! The binlog in real files: `binlog.NNNNNN` and `binlog.index` in the data directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use binlog_format::MAGIC;
use binlog_format::canonical::{stamp, stamp_payload};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventType, RawEvent};
use binlog_format::events::{EncodeEvent, EventOrigin, FormatDescription, PreviousGtids, Rotate};
use binlog_format::framing::{StreamItem, TransactionFramer};
use binlog_format::gtid::{Gtid, GtidSet};
use bytes::Bytes;

const INDEX: &str = "binlog.index";
/// The file offset of the format description event's flags.
const FLAGS_AT: u64 = 4 + 17;
/// Limit for a transaction, in bytes. All transactions of the model are smaller.
const MAX_TRANSACTION: u64 = 1 << 30;

/// A position in the binlog. Positions are ordered as in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) file: u32,
    pub(crate) offset: u64,
}

/// Returns the name of a binlog file.
pub(crate) fn file_name(number: u32) -> String {
    format!("binlog.{number:06}")
}

/// Returns the number in the name of a binlog file.
pub(crate) fn file_number(name: &str) -> Option<u32> {
    name.strip_prefix("binlog.")?.parse().ok()
}

/// The server's properties that its events contain.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) server_id: u32,
    pub(crate) version: String,
}

impl Identity {
    fn origin(&self, timestamp: u32, flags: EventFlags) -> EventOrigin {
        EventOrigin {
            timestamp,
            server_id: self.server_id,
            flags,
        }
    }
}

/// One file of the binlog.
#[derive(Debug, Clone)]
pub(crate) struct LogFile {
    pub(crate) number: u32,
    /// All GTIDs in the files before this one.
    pub(crate) previous: GtidSet,
}

/// The state of the binlog that a starting server finds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    files: Vec<LogFile>,
    /// All GTIDs in the binlog.
    pub(crate) logged: GtidSet,
    /// The transactions of the last file, if the file was not closed.
    pub(crate) to_recover: Vec<Gtid>,
}

/// Reads the existing files. If the last file was not closed, truncates its incomplete last transaction and clears its in-use flag.
pub(crate) fn recover(folder: &Path) -> io::Result<Found> {
    let names = match fs::read_to_string(folder.join(INDEX)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::default()),
        names => names?,
    };
    let mut found = Found::default();
    let names: Vec<&str> = names.lines().filter(|line| !line.is_empty()).collect();
    for (at, name) in names.iter().enumerate() {
        let name = name.strip_prefix("./").unwrap_or(name);
        let number = file_number(name)
            .ok_or_else(|| io::Error::other(format!("{name} is no file of the binlog")))?;
        let path = folder.join(name);
        let is_last = at + 1 == names.len();
        let content = read_content(&path, is_last)?;
        found.files.push(LogFile {
            number,
            previous: content.previous.clone(),
        });
        if is_last {
            found.logged = content.previous;
            found.logged.extend(content.transactions.iter().copied());
            if content.in_use {
                let file = OpenOptions::new().write(true).open(&path)?;
                file.set_len(content.end)?;
                file.write_all_at(&[0, 0], FLAGS_AT)?;
                found.to_recover = content.transactions;
            }
        }
    }
    Ok(found)
}

struct Content {
    in_use: bool,
    previous: GtidSet,
    transactions: Vec<Gtid>,
    /// The end offset of the last complete transaction.
    end: u64,
}

/// Reads a file. If `whole` is false, reads only up to its previous GTIDs.
fn read_content(path: &Path, whole: bool) -> io::Result<Content> {
    let bytes = Bytes::from(fs::read(path)?);
    let mut content = Content {
        in_use: false,
        previous: GtidSet::new(),
        transactions: Vec::new(),
        end: MAGIC.len() as u64,
    };
    let mut framer = TransactionFramer::new(ChecksumAlgorithm::Crc32, MAX_TRANSACTION);
    let mut rest = bytes.slice(MAGIC.len().min(bytes.len())..);
    let mut offset = MAGIC.len() as u64;
    while let Ok(Some(event)) = RawEvent::split_from(&mut rest) {
        offset += event.bytes().len() as u64;
        if event.event_type() == EventType::FormatDescription {
            content.in_use = event.header().flags.contains(EventFlags::BINLOG_IN_USE);
        }
        let Ok(item) = framer.push(&event) else {
            break;
        };
        match item {
            Some(StreamItem::PreviousGtids(gtids)) => {
                content.previous = gtids;
                if !whole {
                    return Ok(content);
                }
            }
            Some(StreamItem::Transaction(framed)) => content.transactions.push(framed.gtid),
            _ => {}
        }
        if !framer.in_transaction() {
            content.end = offset;
        }
    }
    Ok(content)
}

/// The binlog of a running server.
#[derive(Debug)]
pub(crate) struct Binlog {
    folder: PathBuf,
    identity: Identity,
    pub(crate) files: Vec<LogFile>,
    current: File,
    /// The position of the next transaction.
    pub(crate) end: Position,
    /// The end of the synced part, which survives a power loss.
    forced: Position,
    /// All GTIDs in the binlog.
    logged: GtidSet,
    /// GTIDs that a clone brought, which are executed but in no binlog file.
    unlogged: GtidSet,
    /// The number of transactions in the current file.
    pub(crate) sequence: i64,
    /// The number of bytes written since the server's start.
    pub(crate) bytes_written: u64,
    buffer: Vec<u8>,
}

impl Binlog {
    /// Begins a new file after the existing ones. `now` is in seconds since 1970.
    pub(crate) fn begin(
        folder: &Path,
        identity: Identity,
        found: Found,
        unlogged: GtidSet,
        now: u32,
    ) -> io::Result<Self> {
        let number = found.files.last().map_or(1, |last| last.number + 1);
        let mut this = Self {
            folder: folder.to_owned(),
            identity,
            files: found.files,
            current: File::create(folder.join(file_name(number)))?,
            end: Position::default(),
            forced: Position::default(),
            logged: found.logged,
            unlogged,
            sequence: 0,
            bytes_written: 0,
            buffer: Vec::new(),
        };
        this.head(number, now, now)?;
        Ok(this)
    }

    /// Writes the first events of an empty file. `created` is 0 after a rotation.
    fn head(&mut self, number: u32, created: u32, now: u32) -> io::Result<()> {
        let description = FormatDescription {
            created,
            ..FormatDescription::built_in(&self.identity.version)
        };
        let in_use = self.identity.origin(now, EventFlags::BINLOG_IN_USE);
        let previous = PreviousGtids {
            gtids: self.logged.clone(),
        };
        let plain = self.identity.origin(now, EventFlags::IGNORABLE);
        self.files.push(LogFile {
            number,
            previous: self.logged.clone(),
        });
        self.end = Position {
            file: number,
            offset: MAGIC.len() as u64,
        };
        self.sequence = 0;
        self.current.write_all(&MAGIC)?;
        self.write(&[description.encode(in_use), previous.encode(plain)].concat())?;
        self.forced = self.end;
        self.store_index()
    }

    fn store_index(&self) -> io::Result<()> {
        let lines = self
            .files
            .iter()
            .map(|file| format!("./{}\n", file_name(file.number)));
        fs::write(self.folder.join(INDEX), lines.collect::<String>())
    }

    /// Appends canonical events in one write.
    fn write(&mut self, canonical: &[u8]) -> io::Result<()> {
        self.buffer.clear();
        let end = stamp_payload(canonical, self.end.offset, &mut self.buffer);
        let end = end.map_err(io::Error::other)?;
        self.current.write_all(&self.buffer)?;
        self.bytes_written += self.buffer.len() as u64;
        self.end.offset = end;
        Ok(())
    }

    /// Appends a transaction. Returns its end position.
    pub(crate) fn append(
        &mut self,
        gtid: Gtid,
        canonical: &[u8],
        force: bool,
    ) -> io::Result<Position> {
        self.write(canonical)?;
        self.sequence += 1;
        self.logged.add(gtid);
        if force {
            self.forced = self.end;
        }
        Ok(self.end)
    }

    /// Closes the current file with a rotate event, and begins the next file.
    pub(crate) fn rotate(&mut self, now: u32) -> io::Result<()> {
        let number = self.end.file + 1;
        let name = file_name(number);
        let rotate = Rotate::to(&name).encode(self.identity.origin(now, EventFlags::NONE));
        self.write(&rotate)?;
        self.clear_in_use()?;
        self.current = File::create(self.folder.join(&name))?;
        self.head(number, 0, now)
    }

    /// Closes the file at a graceful stop.
    pub(crate) fn close(&mut self, now: u32) -> io::Result<()> {
        let stop = Stop.encode(self.identity.origin(now, EventFlags::NONE));
        self.write(&stop)?;
        self.clear_in_use()
    }

    fn clear_in_use(&self) -> io::Result<()> {
        self.current.write_all_at(&[0, 0], FLAGS_AT)
    }

    /// Simulates a power loss: truncates up to `bytes` of the data that is not synced.
    pub(crate) fn lose(&self, bytes: u64) -> io::Result<()> {
        let least = match self.forced.file == self.end.file {
            true => self.forced.offset,
            false => self.end.offset,
        };
        let kept = self.end.offset.saturating_sub(bytes).max(least);
        self.current.set_len(kept)
    }

    /// Returns the GTIDs that were logged in files that no longer exist.
    pub(crate) fn purged(&self) -> GtidSet {
        let first = self.files.first();
        let before = first.map(|file| file.previous.clone());
        before.unwrap_or_default().union(&self.unlogged)
    }

    /// Returns the size of a file, in bytes.
    pub(crate) fn size(&self, number: u32) -> u64 {
        if number == self.end.file {
            return self.end.offset;
        }
        let metadata = fs::metadata(self.folder.join(file_name(number)));
        metadata.map_or(0, |metadata| metadata.len())
    }

    /// Removes all files and begins a first file, as `RESET BINARY LOGS` does.
    pub(crate) fn reset(&mut self, now: u32) -> io::Result<()> {
        for file in self.files.drain(..) {
            fs::remove_file(self.folder.join(file_name(file.number)))?;
        }
        self.logged = GtidSet::new();
        self.unlogged = GtidSet::new();
        self.current = File::create(self.folder.join(file_name(1)))?;
        self.head(1, now, now)
    }

    /// Removes the files before file `number`. Returns false if that file does not exist.
    pub(crate) fn purge_to(&mut self, number: u32) -> io::Result<bool> {
        let Some(at) = self.files.iter().position(|file| file.number == number) else {
            return Ok(false);
        };
        for file in self.files.drain(..at) {
            fs::remove_file(self.folder.join(file_name(file.number)))?;
        }
        self.store_index()?;
        Ok(true)
    }

    /// Returns the bytes of a file between two offsets.
    pub(crate) fn read(&self, number: u32, from: u64, to: u64) -> io::Result<Bytes> {
        let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).unwrap_or_default()];
        let file = File::open(self.folder.join(file_name(number)))?;
        file.read_exact_at(&mut bytes, from)?;
        Ok(bytes.into())
    }

    /// Encodes an artificial event, which a dump sends and no file contains.
    pub(crate) fn made_up(
        &self,
        event: &impl EncodeEvent,
        log_pos: u64,
        checksum: bool,
    ) -> Vec<u8> {
        let flags = match event.event_type() {
            EventType::Rotate => EventFlags::ARTIFICIAL,
            _ => EventFlags::NONE,
        };
        let mut bytes = event.encode(self.identity.origin(0, flags));
        // Stamping sets the checksum. The event's position is then overwritten, because it is not the end of the event.
        if checksum {
            let mut stamped = Vec::new();
            let length = (bytes.len() + 4) as u64;
            let begin = log_pos.wrapping_sub(length);
            if stamp(&bytes, begin, &mut stamped).is_ok() {
                return stamped;
            }
        }
        let place = log_pos as u32;
        if let Some(field) = bytes.get_mut(13..17) {
            field.copy_from_slice(&place.to_le_bytes());
        }
        bytes
    }
}

/// The last event of the binlog of a gracefully stopped server.
struct Stop;

impl EncodeEvent for Stop {
    const TYPE: EventType = EventType::Stop;

    fn encode_body(&self, _: &mut Vec<u8>) {}
}
