//! TRANSACTION_PAYLOAD: the events of a transaction after its GTID event, as one compressed block (`binlog_transaction_compression`). The
//! body consists of fields (number, length, value) up to field number 0, then the block. All three parts of a field are length-encoded.

use std::borrow::Cow;

use bytes::Bytes;

use crate::canonical::CanonicalEvents;
use crate::decode::{Cursor, DecodeError, ensure, invalid, put_numbered_field};
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::EncodeEvent;

const PAYLOAD: &str = "transaction payload";
const BLOCK_SIZE: u64 = 1;
const COMPRESSION: u64 = 2;
const UNCOMPRESSED_SIZE: u64 = 3;

/// How the block is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Compressed with Zstandard (`binlog_transaction_compression`).
    Zstd = 0,
    /// Uncompressed events.
    None = 255,
}

/// The events of a transaction after its GTID event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionPayload<'a> {
    /// How [`Self::block`] is compressed.
    pub compression: Compression,
    /// Uncompressed size of the events in bytes, as stated by the server.
    pub uncompressed_size: Option<u64>,
    /// The events after the GTID event, compressed.
    pub block: Cow<'a, [u8]>,
}

impl<'a> TransactionPayload<'a> {
    /// Reads an event without its checksum. Does not decompress.
    ///
    /// # Errors
    /// When the event has another type, is truncated, or has an unknown compression.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::TransactionPayload)?);
        let (mut compression, mut uncompressed_size, mut block_size) = (None, None, None);
        while let Some((number, mut value)) = cursor.numbered_field("payload field")? {
            match number {
                BLOCK_SIZE => block_size = Some(value.length_encoded("payload size")?),
                COMPRESSION => {
                    compression = Some(match value.length_encoded("compression type")? {
                        0 => Compression::Zstd,
                        255 => Compression::None,
                        _ => {
                            let reason = "neither 0 (ZSTD) nor 255 (NONE)";
                            return Err(invalid("compression type", reason));
                        }
                    });
                }
                UNCOMPRESSED_SIZE => {
                    uncompressed_size = Some(value.length_encoded("uncompressed size")?)
                }
                // A later version may add fields; they are skipped.
                _ => {}
            }
        }
        let (Some(compression), Some(block_size)) = (compression, block_size) else {
            return Err(invalid(
                PAYLOAD,
                "it lacks its size or its compression type",
            ));
        };
        let block = cursor.take_rest();
        let fits = block_size == block.len() as u64;
        ensure(fits, PAYLOAD, "its size is not that of the event's rest")?;
        Ok(Self {
            compression,
            uncompressed_size,
            block: Cow::Borrowed(block),
        })
    }

    /// Decompresses the events, which are whole and have no checksums. Uses at most `limit` bytes of memory, plus about 200 KiB for the
    /// decompressor.
    ///
    /// # Errors
    /// [`DecodeError::TooLarge`] if the events have more than `limit` bytes; [`DecodeError::Invalid`] if the block is corrupt or larger
    /// than stated.
    pub fn decompress(&self, limit: u64) -> Result<Bytes, DecodeError> {
        let too_large = |size| DecodeError::TooLarge {
            field: "the uncompressed transaction payload",
            size,
            limit,
        };
        if let Some(size) = self.uncompressed_size.filter(|size| *size > limit) {
            return Err(too_large(size));
        }
        match self.compression {
            Compression::None if self.block.len() as u64 > limit => {
                Err(too_large(self.block.len() as u64))
            }
            Compression::None => Ok(Bytes::copy_from_slice(&self.block)),
            Compression::Zstd => {
                // One-pass decompression into a buffer of fixed size needs no window. So a block cannot cause a larger allocation.
                let capacity = self.uncompressed_size.unwrap_or(limit);
                let capacity = usize::try_from(capacity).map_err(|_| too_large(capacity))?;
                let events = zstd::bulk::decompress(&self.block, capacity).map_err(|_| {
                    invalid(PAYLOAD, "it is corrupt, or larger than it says or may be")
                })?;
                Ok(events.into())
            }
        }
    }

    /// Decompresses the events as [`Self::decompress`] does, and iterates over them.
    ///
    /// # Errors
    /// As [`Self::decompress`].
    pub fn events(&self, limit: u64) -> Result<CanonicalEvents, DecodeError> {
        self.decompress(limit).map(CanonicalEvents::new)
    }
}

impl EncodeEvent for TransactionPayload<'_> {
    const TYPE: EventType = EventType::TransactionPayload;

    fn encode_body(&self, out: &mut Vec<u8>) {
        put_numbered_field(out, COMPRESSION, self.compression as u64);
        if let Some(size) = self.uncompressed_size {
            put_numbered_field(out, UNCOMPRESSED_SIZE, size);
        }
        put_numbered_field(out, BLOCK_SIZE, self.block.len() as u64);
        out.push(0);
        out.extend_from_slice(&self.block);
    }
}

// XID: the commit of a transaction; XA_PREPARE: the end of an XA transaction's first phase.

/// Commit of a transaction in a transactional engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Xid {
    /// The transaction's number in the source's engines, used in recovery.
    pub xid: u64,
}

impl Xid {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When the event has another type or size.
    pub fn decode(event: EventRef<'_>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::Xid)?);
        let xid = cursor.u64("XID")?;
        cursor.finish("the XID")?;
        Ok(Self { xid })
    }
}

impl EncodeEvent for Xid {
    const TYPE: EventType = EventType::Xid;

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.xid.to_le_bytes());
    }
}

/// The end of an XA transaction's event group: XA PREPARE, or XA COMMIT … ONE PHASE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XaPrepare<'a> {
    /// True for XA COMMIT … ONE PHASE: no second phase follows.
    pub one_phase: bool,
    /// The format identifier of the client's XA id.
    pub format_id: u32,
    /// The global part of the XA id.
    pub global_id: Cow<'a, [u8]>,
    /// The branch part of the XA id.
    pub branch: Cow<'a, [u8]>,
}

impl<'a> XaPrepare<'a> {
    /// Maximum bytes of the global or branch part.
    pub const MAX_PART_LEN: usize = 64;

    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When the event has another type, is truncated, or its XA id is longer than XA allows.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::XaPrepare)?);
        let one_phase = match cursor.u8("XA phase")? {
            0 => false,
            1 => true,
            _ => return Err(invalid("XA phase", "neither 0 nor 1")),
        };
        let format_id = cursor.u32("XA format id")?;
        let global_len = part_length(cursor.u32("XA global id length")?)?;
        let branch_len = part_length(cursor.u32("XA branch length")?)?;
        let global_id = Cow::Borrowed(cursor.bytes("XA global id", global_len)?);
        let branch = Cow::Borrowed(cursor.bytes("XA branch", branch_len)?);
        cursor.finish("the XA id")?;
        Ok(Self {
            one_phase,
            format_id,
            global_id,
            branch,
        })
    }
}

fn part_length(length: u32) -> Result<usize, DecodeError> {
    let length = length as usize;
    let fits = length <= XaPrepare::MAX_PART_LEN;
    ensure(fits, "XA id", "a part has more than 64 bytes").map(|()| length)
}

impl EncodeEvent for XaPrepare<'_> {
    const TYPE: EventType = EventType::XaPrepare;

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.one_phase));
        out.extend_from_slice(&self.format_id.to_le_bytes());
        for part in [&self.global_id, &self.branch] {
            out.extend_from_slice(&(part.len() as u32).to_le_bytes());
        }
        out.extend_from_slice(&self.global_id);
        out.extend_from_slice(&self.branch);
    }
}
