//! Reads a server's last binlog file from front to back, one event at a time.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventHeader, EventRef, EventType, HEADER_LEN, RawEvent};
use binlog_format::events::{FormatDescription, GtidEvent, PreviousGtids, Query, StatementKind};
use binlog_format::gtid::{Gtid, GtidSet, SourceId};
use binlog_format::{DecodeError, ENCRYPTED_MAGIC, MAGIC};
use bytes::Bytes;
use mysql_link::ServerVersion;

use crate::tail_trim::plan::{Ending, FileOffset, Plan, Planner, Refusal};
use crate::tail_trim::undo::{ServerFacts, UndoCheck};

/// Offset of an encrypted file's events, magic included.
const ENCRYPTED_HEADER: u64 = 512;
/// Offset of the flags in an event's header.
const FLAGS: u64 = 17;
/// Bytes per read.
const READ_BYTES: usize = 1 << 20;

/// The beginning of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Beginning {
    Header(FileHeader),
    /// The file is shorter than its header, so it contains no transaction.
    Torn,
    Encrypted,
    /// The file is not a binlog file, or was overwritten.
    Damaged(FileOffset, String),
}

/// The header of a binlog file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// True if the server did not close the file.
    pub(super) in_use: bool,
    /// True if the file is the first one that the server wrote after a start.
    pub(super) after_a_start: bool,
    /// The GTIDs in earlier files.
    pub(super) previous: GtidSet,
    /// The version of the server; the oldest version if the header names none.
    version: ServerVersion,
    /// The checksum algorithm of the file's events.
    checksum: ChecksumAlgorithm,
    /// Where the header ends and the first transaction may begin.
    pub(super) end: FileOffset,
}

/// Returns the byte of an encrypted file that contains the in-use flag of its format description. `None` if the file is not encrypted, or
/// ends before that byte. The key stream at an offset is constant while the file exists, so a change of the flag is visible without the
/// key.
pub(super) fn encrypted_flags(path: &Path) -> io::Result<Option<u8>> {
    let mut file = File::open(path)?;
    let at = ENCRYPTED_HEADER + MAGIC.len() as u64 + FLAGS;
    if file.metadata()?.len() <= at {
        return Ok(None);
    }
    let mut magic = [0; ENCRYPTED_MAGIC.len()];
    file.read_exact(&mut magic)?;
    if magic != ENCRYPTED_MAGIC {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(at))?;
    let mut flags = [0];
    file.read_exact(&mut flags)?;
    Ok(Some(flags[0]))
}

/// A file during reading.
pub(super) struct LastFile<R = File> {
    name: String,
    input: BufReader<R>,
    size: u64,
    at: FileOffset,
}

/// The next content of the file.
enum Next {
    Event(FileOffset, RawEvent),
    /// The end of the file, or a write that the crash interrupted.
    End,
    Damaged(FileOffset, String),
}

impl LastFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok(Self::of(path.display().to_string(), file, size))
    }
}

impl<R: Read + Seek> LastFile<R> {
    /// Creates a reader for a file with this name and size. `input` is at the beginning of the file.
    pub(super) fn of(name: String, input: R, size: u64) -> Self {
        Self {
            name,
            size,
            input: BufReader::with_capacity(READ_BYTES, input),
            at: FileOffset(0),
        }
    }

    pub(super) fn beginning(&mut self) -> io::Result<Beginning> {
        let mut magic = [0; MAGIC.len()];
        if self.size < magic.len() as u64 {
            return Ok(Beginning::Torn);
        }
        self.input.read_exact(&mut magic)?;
        if magic == ENCRYPTED_MAGIC {
            return Ok(Beginning::Encrypted);
        }
        if magic != MAGIC {
            let reason = "it does not begin as a binlog file does".to_owned();
            return Ok(match self.end_or_damage(self.at, FileOffset(0), reason)? {
                Next::Damaged(at, reason) => Beginning::Damaged(at, reason),
                _ => Beginning::Torn,
            });
        }
        self.at = FileOffset(magic.len() as u64);
        // A format description always has a CRC32, whatever algorithm it names.
        let first = match self.next(ChecksumAlgorithm::Crc32)? {
            Next::Event(_, event) => event,
            Next::End => return Ok(Beginning::Torn),
            Next::Damaged(at, reason) => return Ok(Beginning::Damaged(at, reason)),
        };
        let start = FileOffset(magic.len() as u64);
        let damaged = |error: DecodeError| Ok(Beginning::Damaged(start, error.to_string()));
        let read = first.verified(ChecksumAlgorithm::Crc32);
        let description = match read.and_then(FormatDescription::decode) {
            Ok(description) => description,
            Err(error) => return damaged(error),
        };
        let checksum = description.checksum;
        let second = match self.next(checksum)? {
            Next::Event(_, event) => event,
            Next::End => return Ok(Beginning::Torn),
            Next::Damaged(at, reason) => return Ok(Beginning::Damaged(at, reason)),
        };
        let read = second.verified(checksum);
        let previous = match read.and_then(PreviousGtids::decode) {
            Ok(previous) => previous,
            Err(error) => return damaged(error),
        };
        Ok(Beginning::Header(FileHeader {
            in_use: first.header().flags.contains(EventFlags::BINLOG_IN_USE),
            after_a_start: description.created != 0,
            previous: previous.gtids,
            version: String::from_utf8_lossy(&description.server_version)
                .parse()
                .unwrap_or_default(),
            checksum,
            end: self.at,
        }))
    }

    /// Reads everything after the header, and plans the cut. `own` is the server's UUID. `other_engines` is true if its data directory has,
    /// or had at its start, tables of another engine than InnoDB. At most `limit` bytes of a transaction are decompressed.
    pub(super) fn plan(
        mut self,
        header: &FileHeader,
        committed: &GtidSet,
        own: Option<SourceId>,
        other_engines: bool,
        limit: u64,
    ) -> io::Result<Plan> {
        let server = ServerFacts {
            version: header.version,
            other_engines,
        };
        let mut planner = Planner::new(committed, &header.previous, own);
        let mut open: Option<OpenTransaction> = None;
        // The check of the current transaction, if it will be cut off.
        let mut check: Option<UndoCheck> = None;
        let ending = loop {
            let (at, event) = match self.next(header.checksum)? {
                Next::Event(at, event) => (at, event),
                Next::End => break Ending::WholeOrTorn,
                Next::Damaged(at, reason) => break self.damaged(at, reason, open),
            };
            // The event's checksum, if it has one, is already verified.
            let read = event.verified(header.checksum);
            match event.event_type() {
                EventType::Gtid | EventType::GtidTagged => {
                    let gtid = match read.and_then(GtidEvent::decode) {
                        Ok(decoded) => decoded.gtid,
                        Err(error) => match self.end_or_damage(at, self.at, error.to_string())? {
                            Next::Damaged(at, reason) => break self.damaged(at, reason, open),
                            _ => break Ending::WholeOrTorn,
                        },
                    };
                    let goes = planner.begins(gtid, at);
                    check = goes.then(|| UndoCheck::new(server));
                    open = Some(OpenTransaction::new(gtid, at));
                }
                EventType::AnonymousGtid => {
                    let file = self.name;
                    break Ending::Refused(Refusal::WithoutGtid { file, at });
                }
                EventType::Rotate | EventType::Stop => open = None,
                _ => {
                    let (Some(open), Ok(read)) = (&mut open, read) else {
                        continue;
                    };
                    open.take(read);
                    if let Some(check) = &mut check
                        && let Err(reason) = check.take(read, limit)
                    {
                        let gtid = open.gtid;
                        planner.refuse(Refusal::CannotBeUndone { gtid, reason });
                    }
                }
            }
        };
        Ok(planner.finish(ending))
    }

    /// Returns the transactions that begin after the header.
    pub(super) fn gtids(&mut self, header: &FileHeader) -> io::Result<GtidSet> {
        let damaged = |at: FileOffset, reason: &str| {
            io::Error::other(format!("it is damaged at {at}: {reason}"))
        };
        let mut gtids = GtidSet::new();
        loop {
            match self.next(header.checksum)? {
                Next::Event(at, event) => {
                    if matches!(event.event_type(), EventType::Gtid | EventType::GtidTagged) {
                        let read = event.verified(header.checksum).and_then(GtidEvent::decode);
                        let decoded = read.map_err(|error| damaged(at, &error.to_string()))?;
                        gtids.add(decoded.gtid);
                    }
                }
                Next::End => return Ok(gtids),
                Next::Damaged(at, reason) => return Err(damaged(at, &reason)),
            }
        }
    }

    fn damaged(self, at: FileOffset, reason: String, open: Option<OpenTransaction>) -> Ending {
        let within = open.filter(|open| !open.ended);
        let file = self.name;
        Ending::Damaged {
            at: within.map_or(at, |open| open.begins),
            within: within.map(|open| open.gtid),
            refusal: Refusal::Damaged { file, at, reason },
        }
    }

    /// Reads the next complete event. Verifies its checksum only to distinguish a torn end from damage.
    fn next(&mut self, checksum: ChecksumAlgorithm) -> io::Result<Next> {
        let at = self.at;
        let left = self.size.saturating_sub(at.0);
        if left < HEADER_LEN as u64 {
            return Ok(Next::End);
        }
        let mut head = [0; HEADER_LEN];
        self.input.read_exact(&mut head)?;
        let header = match EventHeader::parse(&head) {
            Ok(header) => header,
            Err(error) => {
                let after = FileOffset(at.0 + HEADER_LEN as u64);
                return self.end_or_damage(at, after, error.to_string());
            }
        };
        let size = u64::from(header.event_size);
        if size > left {
            return Ok(Next::End);
        }
        let mut bytes = vec![0; header.event_size as usize];
        bytes[..HEADER_LEN].copy_from_slice(&head);
        self.input.read_exact(&mut bytes[HEADER_LEN..])?;
        self.at = FileOffset(at.0 + size);
        let event = match RawEvent::new(Bytes::from(bytes)) {
            Ok(event) => event,
            Err(error) => return Ok(Next::Damaged(at, error.to_string())),
        };
        match event.verified(checksum) {
            Ok(_) => Ok(Next::Event(at, event)),
            Err(error) => self.end_or_damage(at, self.at, error.to_string()),
        }
    }

    /// Distinguishes a torn end from damage. A write that a power cut interrupted may exist in part, with zeros where the file had grown.
    /// If any other bytes follow, the write was complete, so this is damage.
    fn end_or_damage(
        &mut self,
        at: FileOffset,
        after: FileOffset,
        reason: String,
    ) -> io::Result<Next> {
        self.input.seek(SeekFrom::Start(after.0))?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let read = self.input.read(&mut buffer)?;
            if read == 0 {
                return Ok(Next::End);
            }
            if buffer[..read].iter().any(|byte| *byte != 0) {
                return Ok(Next::Damaged(at, reason));
            }
        }
    }
}

// The current transaction of a file: its beginning, and whether it has ended.

#[derive(Debug, Clone, Copy)]
pub(super) struct OpenTransaction {
    pub(super) gtid: Gtid,
    pub(super) begins: FileOffset,
    /// After BEGIN or XA START.
    inside: bool,
    pub(super) ended: bool,
}

impl OpenTransaction {
    pub(super) fn new(gtid: Gtid, begins: FileOffset) -> Self {
        Self {
            gtid,
            begins,
            inside: false,
            ended: false,
        }
    }

    /// Processes the next event, which has no checksum.
    pub(super) fn take(&mut self, event: EventRef<'_>) {
        match event.event_type() {
            EventType::Xid | EventType::XaPrepare | EventType::TransactionPayload => {
                self.ended = true;
            }
            EventType::Query => {
                let Ok(query) = Query::decode(event) else {
                    return;
                };
                match StatementKind::of(&query.statement) {
                    StatementKind::Begin | StatementKind::XaStart => self.inside = true,
                    StatementKind::Savepoint | StatementKind::Other => self.ended = !self.inside,
                    StatementKind::Commit | StatementKind::Rollback | StatementKind::XaRollback => {
                        self.ended = true;
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
