//! Creates the packets of a dump from the bytes of a file, and selects the events for the consumer. Pure. Large events are processed in
//! pieces, so that memory does not depend on their size.

use binlog_format::DecodeError;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventHeader, EventRef, EventType, HEADER_LEN};
use binlog_format::events::{EncodeEvent, EventOrigin, GtidEvent, Heartbeat, Ignorable, Rotate};
use binlog_format::gtid::{Gtid, GtidSet};
use thiserror::Error;

use crate::answers::EventPackets;
use crate::committed_files::CommittedFiles;

/// Maximum size of a decoded event; real ones have at most some kilobytes.
const MAX_WHOLE: u64 = 1 << 20;

/// The CRC32 of any bytes that end with their own CRC32, such as an event.
const WHOLE: u32 = 0x2144_df1c;

/// An invalid event in a file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum BadFile {
    #[error("at offset {offset} there is no event: {source}")]
    NoEvent { offset: u64, source: DecodeError },
    #[error("the event at offset {offset} says that it ends at {stated_end}")]
    Misplaced { offset: u64, stated_end: u32 },
    #[error("the event at offset {offset} has {size} bytes, too many for its type")]
    TooLarge { offset: u64, size: u64 },
    #[error("the CRC32 of the event at offset {offset} is not that of its bytes")]
    Checksum { offset: u64 },
}

impl BadFile {
    /// The offset of the invalid event.
    pub(super) fn offset(&self) -> u64 {
        match self {
            Self::NoEvent { offset, .. }
            | Self::Misplaced { offset, .. }
            | Self::TooLarge { offset, .. }
            | Self::Checksum { offset } => *offset,
        }
    }
}

/// Which events a consumer receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rule {
    /// Events of transactions that are not in the set; no markers of the log.
    Without(GtidSet),
    /// All events, so that the copy equals the file. A registered replica counts bytes, but must not apply the log's own markers. So a
    /// marker is sent with the replica's own server id.
    All { registered_as: Option<u32> },
}

/// The current file of a dump, as generated events name it.
pub(super) struct CurrentFile {
    pub(super) name: String,
    /// The binlog server's own id.
    pub(super) server_id: u32,
    /// True if the consumer supports heartbeats of the second form.
    pub(super) heartbeat_v2: bool,
}

impl CurrentFile {
    /// A rotate event, which informs the consumer of the file's name and the position in the file.
    pub(super) fn rotate(&self, offset: u64, checksum: ChecksumAlgorithm) -> Vec<u8> {
        let rotate = Rotate {
            position: offset,
            ..Rotate::to(&self.name)
        };
        let origin = self.origin(EventFlags::ARTIFICIAL);
        finished(rotate.encode(origin), 0, checksum)
    }

    /// A heartbeat, which informs the consumer of its position and shows that the server still runs.
    pub(super) fn heartbeat(&self, offset: u64, checksum: ChecksumAlgorithm) -> Vec<u8> {
        let heartbeat = Heartbeat {
            version_2: self.heartbeat_v2,
            file: self.name.as_bytes().into(),
            position: offset,
        };
        let origin = self.origin(EventFlags::NONE);
        finished(heartbeat.encode(origin), offset as u32, checksum)
    }

    fn origin(&self, flags: EventFlags) -> EventOrigin {
        EventOrigin {
            timestamp: 0,
            server_id: self.server_id,
            flags,
        }
    }
}

/// What happens to an event.
enum Decision {
    Passes,
    Becomes(Vec<u8>),
    /// Skipped, because the consumer has its transaction.
    IsKnown,
    IsLeftOut,
}

/// Selects the events of one file for a consumer.
pub(super) struct Feed<'a> {
    log: &'a dyn CommittedFiles,
    /// Offset of the next byte to process.
    pub(super) offset: u64,
    /// Bytes of the current event that are still to be sent; 0 if the last event is complete.
    pub(super) passing: u64,
    /// Start offset of the current event. `crc` is the CRC32 of its bytes sent so far.
    begun: u64,
    crc: u32,
    /// True if the consumer has the current transaction.
    known: bool,
    /// The end of skipped events, until a heartbeat reports it to the consumer.
    pub(super) skipped_to: Option<u64>,
}

impl<'a> Feed<'a> {
    /// A feed that starts at the start of an event, at this offset in the file.
    pub(super) fn at(offset: u64, log: &'a dyn CommittedFiles) -> Self {
        Self {
            log,
            offset,
            passing: 0,
            begun: offset,
            crc: 0,
            known: false,
            skipped_to: None,
        }
    }

    /// Processes bytes, which start at [`Self::offset`], until they are all used or `room` is full. Returns how many bytes the next call
    /// needs at least. A skipped event may end after the bytes.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        rule: &Rule,
        file: &CurrentFile,
        out: &mut EventPackets,
        room: usize,
    ) -> Result<usize, BadFile> {
        loop {
            if self.passing > 0 {
                let left = usize::try_from(self.passing).unwrap_or(usize::MAX);
                let fits = room.saturating_sub(out.len());
                let now = left.min(bytes.len()).min(fits);
                let (pass, rest) = bytes.split_at(now);
                let mut crc = crc32fast::Hasher::new_with_initial(self.crc);
                crc.update(pass);
                self.crc = crc.finalize();
                if now as u64 == self.passing && self.crc != WHOLE {
                    // The event's last bytes are not sent, so the consumer never receives the damaged event.
                    return Err(BadFile::Checksum { offset: self.begun });
                }
                out.put(pass);
                self.offset += now as u64;
                self.passing -= now as u64;
                bytes = rest;
                if self.passing > 0 {
                    return Ok(1);
                }
                continue;
            }
            if out.len() >= room {
                return Ok(1);
            }
            let Some(header) = bytes.get(..HEADER_LEN) else {
                return Ok(HEADER_LEN);
            };
            let header = self.header(header)?;
            let size = u64::from(header.event_size);
            let whole = if is_decoded(header.event_type) {
                if size > MAX_WHOLE {
                    let offset = self.offset;
                    return Err(BadFile::TooLarge { offset, size });
                }
                match bytes.get(..size as usize) {
                    Some(whole) => Some(whole),
                    None => return Ok(size as usize),
                }
            } else {
                None
            };
            match self.decision(&header, whole, rule)? {
                Decision::Passes => {
                    if let Some(skipped) = self.skipped_to.take() {
                        out.event(&file.heartbeat(skipped, ChecksumAlgorithm::Crc32));
                    }
                    out.begin(size);
                    (self.passing, self.begun, self.crc) = (size, self.offset, 0);
                    continue;
                }
                Decision::Becomes(event) => out.event(&event),
                Decision::IsKnown => self.skipped_to = Some(self.offset + size),
                Decision::IsLeftOut => {}
            }
            self.offset += size;
            bytes = bytes.get(size as usize..).unwrap_or_default();
        }
    }

    fn header(&self, bytes: &[u8]) -> Result<EventHeader, BadFile> {
        let offset = self.offset;
        let header = EventHeader::parse(bytes);
        let header = header.map_err(|source| BadFile::NoEvent { offset, source })?;
        let end = offset + u64::from(header.event_size);
        if header.log_pos != end as u32 {
            let stated_end = header.log_pos;
            return Err(BadFile::Misplaced { offset, stated_end });
        }
        Ok(header)
    }

    fn decision(
        &mut self,
        header: &EventHeader,
        whole: Option<&[u8]>,
        rule: &Rule,
    ) -> Result<Decision, BadFile> {
        let offset = self.offset;
        let read = |bytes: &[u8]| -> Result<(bool, Option<Gtid>), DecodeError> {
            let event = EventRef::new(bytes)?.verified(ChecksumAlgorithm::Crc32)?;
            Ok(match header.event_type {
                EventType::Ignorable => {
                    let body = Ignorable::decode(event)?.body;
                    (self.log.is_own(&body), None)
                }
                _ => (false, Some(GtidEvent::decode(event)?.gtid)),
            })
        };
        let decoded = whole.map(read).transpose();
        let decoded = decoded.map_err(|source| BadFile::NoEvent { offset, source })?;
        let (is_own, gtid) = decoded.unwrap_or_default();
        let have = match rule {
            Rule::Without(have) => have,
            Rule::All { registered_as } => {
                // The event appears as written by the consumer itself. The consumer counts its bytes, and ignores it otherwise.
                let rewritten = |(id, whole)| Decision::Becomes(rewritten(whole, SERVER_ID, id));
                let own = registered_as.zip(whole).filter(|_| is_own);
                return Ok(own.map_or(Decision::Passes, rewritten));
            }
        };
        self.known = match (header.event_type, gtid) {
            (_, Some(gtid)) => have.contains(&gtid),
            // Every consumer receives the end of the file, and transactions without a GTID.
            (EventType::Rotate | EventType::AnonymousGtid, None) => false,
            _ => self.known && !is_own,
        };
        Ok(match (is_own, self.known) {
            (true, _) => Decision::IsLeftOut,
            (false, true) => Decision::IsKnown,
            (false, false) => Decision::Passes,
        })
    }
}

fn is_decoded(event_type: EventType) -> bool {
    matches!(
        event_type,
        EventType::Ignorable | EventType::Gtid | EventType::GtidTagged
    )
}

// Changes of events from files.

/// Offsets of the fields in an event that are changed.
const SERVER_ID: std::ops::Range<usize> = 5..9;
const SIZE: std::ops::Range<usize> = 9..13;
const LOG_POS: std::ops::Range<usize> = 13..17;
const CRC_LEN: usize = 4;

fn finished(mut event: Vec<u8>, log_pos: u32, checksum: ChecksumAlgorithm) -> Vec<u8> {
    let size = event.len() + checksum.event_overhead();
    put(&mut event, SIZE, size as u32);
    put(&mut event, LOG_POS, log_pos);
    if checksum == ChecksumAlgorithm::Crc32 {
        let crc = crc32fast::hash(&event);
        event.extend_from_slice(&crc.to_le_bytes());
    }
    event
}

/// A file's format description for a consumer that begins later in the file. The consumer must not count its bytes, so its position is 0.
pub(super) fn out_of_place(stored: &[u8]) -> Vec<u8> {
    rewritten(stored, LOG_POS, 0)
}

fn rewritten(stored: &[u8], field: std::ops::Range<usize>, value: u32) -> Vec<u8> {
    let mut event = stored.to_vec();
    put(&mut event, field, value);
    let body = event.len().saturating_sub(CRC_LEN);
    let crc = crc32fast::hash(event.get(..body).unwrap_or_default());
    put(&mut event, body..body + CRC_LEN, crc);
    event
}

fn put(event: &mut [u8], field: std::ops::Range<usize>, value: u32) {
    if let Some(place) = event.get_mut(field) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use binlog_format::event::EventRef;
    use binlog_format::event::EventType;
    use binlog_format::events::FormatDescription;

    use super::*;

    fn current_file(heartbeat_v2: bool) -> CurrentFile {
        CurrentFile {
            name: "binlog.000003".to_owned(),
            server_id: 9,
            heartbeat_v2,
        }
    }

    #[test]
    fn generated_events_are_complete_and_name_the_position() {
        for checksum in [ChecksumAlgorithm::None, ChecksumAlgorithm::Crc32] {
            let event = current_file(true).rotate(4, checksum);
            let event = EventRef::new(&event).unwrap().verified(checksum).unwrap();
            assert_eq!(event.header().log_pos, 0);
            assert_eq!(event.header().server_id, 9);
            let rotate = Rotate::decode(event).unwrap();
            assert_eq!(
                (rotate.position, &*rotate.next_file),
                (4, &b"binlog.000003"[..])
            );
        }
        let far = (5 << 32) + 7;
        for (version_2, event_type, position) in [
            (false, EventType::Heartbeat, 7),
            (true, EventType::HeartbeatV2, far),
        ] {
            let checksum = ChecksumAlgorithm::Crc32;
            let event = current_file(version_2).heartbeat(far, checksum);
            let event = EventRef::new(&event).unwrap();
            let event = event.verified(ChecksumAlgorithm::Crc32).unwrap();
            assert_eq!(event.event_type(), event_type);
            assert_eq!(Heartbeat::decode(event).unwrap().position, position);
        }
    }

    #[test]
    fn rewritten_events_have_the_right_checksum() {
        let mut stored = Vec::new();
        let canonical = FormatDescription::built_in_event();
        binlog_format::canonical::stamp(&canonical, 4, &mut stored).unwrap();
        let moved = out_of_place(&stored);
        let event = EventRef::new(&moved).unwrap();
        let event = event.verified(ChecksumAlgorithm::Crc32).unwrap();
        assert_eq!(event.header().log_pos, 0);
        let own = rewritten(&stored, SERVER_ID, 77);
        let event = EventRef::new(&own).unwrap();
        let event = event.verified(ChecksumAlgorithm::Crc32).unwrap();
        assert_eq!(event.header().server_id, 77);
    }
}
