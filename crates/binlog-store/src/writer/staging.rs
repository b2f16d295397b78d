//! Entries on their way into the file: stamped into a buffer, or written from where they are.

use std::time::Instant;

use binlog_format::canonical::stamp;
use binlog_format::checksum::CHECKSUM_LEN;
use binlog_format::event::{EventHeader, EventRef, HEADER_LEN};
use binlog_format::events::{EncodeEvent, EventOrigin, Rotate as RotateEvent};

use crate::error::StoreError;
use crate::format::{PreparedContent, PreparedEntry, encode_marker};

use super::log_writer::{LogWriter, Staged};

/// The buffer is written when it has this many bytes, so that a large batch takes no second copy of
/// itself; one event at a time may make it larger.
const WRITE_AT_BYTES: usize = 4 << 20;
/// Events from this size on are written from where they are instead of through the buffer.
const DIRECT_EVENT_BYTES: usize = 1 << 20;

impl LogWriter {
    /// Puts an entry's bytes into the buffer.
    pub(super) fn stage(&mut self, entry: &PreparedEntry) -> Result<(), StoreError> {
        self.count(entry);
        let offset = self.state.end;
        let out = &mut self.buffer;
        let mut end = encode_marker(
            &entry.marker,
            &entry.in_marker,
            entry.origin,
            offset,
            &mut self.scratch,
            out,
        );
        match &entry.content {
            PreparedContent::Blank | PreparedContent::Membership(_) => self.state.end = end,
            PreparedContent::Transaction { events, gtid } => {
                self.state.end = end;
                self.stage_events(events)?;
                end = self.state.end;
                if let Some(gtid) = gtid {
                    self.state.gtids.add(*gtid);
                }
            }
            PreparedContent::Rotate(_) => {
                let (timestamp, server_id) = entry.origin;
                let origin = EventOrigin {
                    timestamp,
                    server_id,
                    ..EventOrigin::default()
                };
                let next = self.state.header.number.next().name();
                let event = RotateEvent::to(&next).encode(origin);
                end = stamp(&event, end, out)
                    .expect("an event that was just encoded is one whole event");
                self.state.end = end;
            }
        }
        self.state.last = Some(entry.op_id);
        self.staged.push(Staged {
            op_id: entry.op_id,
            offset,
            end,
            is_membership: matches!(entry.content, PreparedContent::Membership(_)),
        });
        if let PreparedContent::Rotate(rotate) = &entry.content {
            self.rotate(rotate)?;
        } else if self.buffer.len() >= WRITE_AT_BYTES {
            self.write_out()?;
        }
        Ok(())
    }

    /// Stamps a payload's events behind the buffer, the large ones straight into the file.
    fn stage_events(&mut self, events: &[u8]) -> Result<(), StoreError> {
        let whole = "the payload was checked to be whole events";
        let mut rest = events;
        while let Some(event) = EventRef::split_from(&mut rest).expect(whole) {
            if event.bytes().len() < DIRECT_EVENT_BYTES {
                self.state.end =
                    stamp(event.bytes(), self.state.end, &mut self.buffer).expect(whole);
                if self.buffer.len() >= WRITE_AT_BYTES {
                    self.write_out()?;
                }
                continue;
            }
            let end = self.state.end + (event.bytes().len() + CHECKSUM_LEN) as u64;
            let header = EventHeader {
                event_size: (event.bytes().len() + CHECKSUM_LEN) as u32,
                log_pos: end as u32,
                ..*event.header()
            };
            let header = header.encode();
            let body = &event.bytes()[HEADER_LEN..];
            let mut checksum = crc32fast::Hasher::new();
            checksum.update(&header);
            checksum.update(body);
            self.buffer.extend_from_slice(&header);
            self.state.end += HEADER_LEN as u64;
            self.write_out()?;
            self.write_at_end(body)?;
            self.buffer
                .extend_from_slice(&checksum.finalize().to_le_bytes());
            self.state.end = end;
        }
        Ok(())
    }

    /// Writes bytes behind what is in the file; the buffer is empty.
    fn write_at_end(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let offset = self.state.end;
        let begun = Instant::now();
        let written = self.state.file.write_at(bytes, offset);
        self.write_time += begun.elapsed();
        self.state.end += bytes.len() as u64;
        written.map_err(|error| {
            StoreError::io(format!("writing {}", self.state.header.number), &error)
        })
    }

    /// Writes the buffer, which holds the bytes up to the log's end.
    pub(super) fn write_out(&mut self) -> Result<(), StoreError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let offset = self.state.end - self.buffer.len() as u64;
        let begun = Instant::now();
        let written = self.state.file.write_at(&self.buffer, offset);
        self.write_time += begun.elapsed();
        self.buffer.clear();
        if self.buffer.capacity() > 2 * WRITE_AT_BYTES {
            self.buffer = Vec::with_capacity(WRITE_AT_BYTES);
        }
        written.map_err(|error| {
            StoreError::io(format!("writing {}", self.state.header.number), &error)
        })
    }

    /// Counts an entry against the disk budget. It is written whether there is room or not: see [`crate::disk_budget`].
    fn count(&self, entry: &PreparedEntry) {
        // Marker and, where there is one, rotate event and next header are small; this is above them.
        let needed = entry.marker.stored_payload_len() + entry.in_marker.len() as u64 + 128;
        self.state.space.wrote(needed);
    }
}
