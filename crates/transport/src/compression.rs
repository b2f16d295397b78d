//! Compresses payloads for other regions with zstd, once for all receiving members. An entry's checksum is always the checksum of the
//! payload in the log, so receivers verify the decompressed bytes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use raft_types::{
    AssemblyError, OpId, PayloadAssembly, PayloadChecksumError, TransactionPayload, lock,
};
use spilling_bytes::long_work;
use spilling_bytes::{SPILLED_FROM, SpillFolder, SpillingBytes};
use tokio::sync::OnceCell;
use zstd::bulk::{Compressor, Decompressor};
use zstd::stream::write::{Decoder, Encoder};

/// Settings of the compression of payloads for other regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// zstd level, 1 to 19.
    pub level: i32,
    /// In bytes. Smaller payloads are sent uncompressed.
    pub min_bytes: usize,
}

/// The effect of compression: total sizes of compressed payloads in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompressionFigures {
    /// The size before compression.
    pub bytes_in: u64,
    /// The size after compression.
    pub bytes_out: u64,
}

/// Size of the cache of compressed payloads in bytes. All regions receive an entry at about the same time.
const KEPT_BYTES: usize = 32 << 20;
/// The largest payload in bytes that is compressed without another thread. A larger one would block other tasks for too long.
const INLINE_BYTES: usize = 256 << 10;
/// The largest payload in bytes that is decompressed in one step, into memory of the size that the sender states.
const UNPACKED_AT_ONCE: usize = 4 << 20;

/// Compresses payloads, and caches the newest ones.
#[derive(Debug)]
pub(crate) struct Packer {
    options: Compression,
    /// Folder of large compressed payloads.
    spill: SpillFolder,
    kept: Mutex<Kept>,
}

/// A compressed payload; `None` if it is not worth sending compressed.
type Packed = Option<Bytes>;

#[derive(Debug, Default)]
struct Kept {
    payloads: BTreeMap<OpId, KeptPayload>,
    /// The total size of the cached payloads in bytes.
    bytes: usize,
    figures: CompressionFigures,
}

#[derive(Debug, Default)]
struct KeptPayload {
    packed: Arc<OnceCell<Packed>>,
    /// Size in bytes; 0 during compression.
    counted: usize,
}

impl Packer {
    pub(crate) fn new(options: Compression, spill: SpillFolder) -> Self {
        Self {
            options,
            spill,
            kept: Mutex::default(),
        }
    }

    pub(crate) fn figures(&self) -> CompressionFigures {
        lock(&self.kept).figures
    }

    /// Returns an entry's compressed payload; `None` if it is sent uncompressed.
    pub(crate) async fn pack(&self, op_id: OpId, payload: &Bytes) -> Packed {
        if payload.len() < self.options.min_bytes {
            return None;
        }
        let cell = {
            let mut kept = lock(&self.kept);
            kept.payloads.entry(op_id).or_default().packed.clone()
        };
        let packed = cell.get_or_init(|| self.pack_and_keep(op_id, payload.clone()));
        packed.await.clone()
    }

    async fn pack_and_keep(&self, op_id: OpId, payload: Bytes) -> Packed {
        let level = self.options.level;
        let length = payload.len();
        let packed = match length {
            0..=INLINE_BYTES => packed(level, &payload),
            _ => {
                let spill = self.spill.clone();
                let packing = tokio::task::spawn_blocking(move || match payload.len() {
                    0..SPILLED_FROM => packed(level, &payload),
                    _ => packed_in_pieces(level, &payload, &spill).ok(),
                });
                packing.await.ok().flatten()
            }
        };
        let mut kept = lock(&self.kept);
        if let Some(packed) = &packed {
            kept.figures.bytes_in += length as u64;
            kept.figures.bytes_out += packed.len() as u64;
        }
        kept.keep(op_id, packed.as_ref().map_or(0, Bytes::len));
        drop(kept);
        packed
    }
}

impl Kept {
    /// Overhead of a map entry in bytes.
    const PLACE: usize = 128;

    fn keep(&mut self, packed: OpId, bytes: usize) {
        // The entry may have been evicted during compression.
        let Some(kept) = self.payloads.get_mut(&packed) else {
            return;
        };
        kept.counted = bytes + Self::PLACE;
        self.bytes += kept.counted;
        while self.bytes > KEPT_BYTES
            && let Some((_, oldest)) = self.payloads.pop_first()
        {
            self.bytes -= oldest.counted;
        }
    }
}

/// Compresses the payload to one frame. Returns `None` if the frame is not at least a tenth smaller.
fn packed(level: i32, payload: &[u8]) -> Packed {
    thread_local! {
        static PACKER: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    }
    PACKER.with_borrow_mut(|packer| {
        if packer.as_ref().is_none_or(|(known, _)| *known != level) {
            *packer = Some((level, Compressor::new(level).ok()?));
        }
        let (_, compressor) = packer.as_mut()?;
        let packed = compressor.compress(payload).ok()?;
        (packed.len() <= worth_it(payload.len())).then(|| Bytes::from(packed))
    })
}

/// Returns the largest useful size of a compressed payload: at least a tenth smaller.
fn worth_it(length: usize) -> usize {
    length / 10 * 9
}

/// Compresses a large payload as [`packed`] does, but in chunks.
fn packed_in_pieces(level: i32, payload: &[u8], spill: &SpillFolder) -> io::Result<Bytes> {
    let most = worth_it(payload.len());
    let bytes = SpillingBytes::begin(spill, 0);
    let mut encoder = Encoder::new(PackedSink { bytes, most }, level)?;
    encoder.set_pledged_src_size(Some(payload.len() as u64))?;
    for piece in payload.chunks(INLINE_BYTES) {
        encoder.write_all(piece)?;
    }
    let packed = encoder.finish()?.bytes.finish();
    Ok(packed.map_err(io::Error::other)?.bytes)
}

/// Destination of a compressed payload. Writing fails if the compressed payload gets too large to be useful.
struct PackedSink {
    bytes: SpillingBytes,
    most: usize,
}

impl Write for PackedSink {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + piece.len() > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.push(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Why a payload cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// The payload is not a zstd frame, or its length differs from the stated one.
    #[error("it cannot be unpacked: {0}")]
    Frame(#[from] io::Error),
    /// The unpacked bytes differ from the original.
    #[error(transparent)]
    Checksum(#[from] PayloadChecksumError),
    /// The pieces do not form the payload.
    #[error(transparent)]
    Assembly(#[from] AssemblyError),
}

/// Decompresses a complete payload, and checks it.
pub(crate) fn unpack(
    packed: &[u8],
    length: usize,
    crc32c: u32,
    spill: &SpillFolder,
) -> Result<TransactionPayload, UnpackError> {
    if length > UNPACKED_AT_ONCE {
        let mut unpacking = Unpacking::begin(length, crc32c, spill)?;
        unpacking.push(packed)?;
        return unpacking.finish();
    }
    thread_local! {
        static UNPACKER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    let unpacked = UNPACKER.with_borrow_mut(|unpacker| {
        let unpacker = match unpacker {
            Some(unpacker) => unpacker,
            None => unpacker.insert(Decompressor::new()?),
        };
        unpacker.decompress(packed, length)
    })?;
    if unpacked.len() != length {
        return Err(wrong_length(unpacked.len(), length).into());
    }
    Ok(TransactionPayload::verify(Bytes::from(unpacked), crc32c)?)
}

fn wrong_length(found: usize, stated: usize) -> io::Error {
    io::Error::other(format!("it has {found} bytes, and {stated} were stated"))
}

/// A compressed payload that arrives in pieces.
pub(crate) struct Unpacking {
    decoder: Decoder<'static, Sink>,
    length: usize,
}

struct Sink {
    payload: PayloadAssembly,
    length: usize,
}

impl Unpacking {
    pub(crate) fn begin(length: usize, crc32c: u32, spill: &SpillFolder) -> io::Result<Self> {
        let payload = PayloadAssembly::begin(length, crc32c, spill);
        let decoder = Decoder::new(Sink { payload, length })?;
        Ok(Self { decoder, length })
    }

    /// Adds a piece. Its decompressed size is unknown: a row of one repeated letter grows a thousandfold.
    pub(crate) fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        long_work::run(self.length, || self.decoder.write_all(piece))
    }

    pub(crate) fn finish(mut self) -> Result<TransactionPayload, UnpackError> {
        self.decoder.flush()?;
        let sink = self.decoder.into_inner();
        match sink.payload.received() {
            received if received == self.length => Ok(sink.payload.finish()?),
            received => Err(wrong_length(received, self.length).into()),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let received = self.payload.received() + piece.len();
        if received > self.length {
            return Err(wrong_length(received, self.length));
        }
        self.payload.push(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(length: usize) -> Bytes {
        (0..length).map(|at| b"row of an order "[at % 16]).collect()
    }

    fn noise(length: usize) -> Bytes {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        (0..length).map(|_| next()).collect()
    }

    fn packer() -> Packer {
        Packer::new(
            Compression {
                level: 3,
                min_bytes: 1024,
            },
            SpillFolder::default(),
        )
    }

    /// A far member may catch up on old entries while new ones are sent. Then the oldest payloads are evicted, even while they are
    /// compressed.
    #[test]
    fn payloads_evicted_during_compression_are_not_counted() {
        let mut kept = Kept::default();
        let op_id = |index| OpId::new(1, index);
        for index in 1..=10 {
            kept.payloads.entry(op_id(index)).or_default();
        }
        for index in 2..=10 {
            kept.keep(op_id(index), KEPT_BYTES / 8);
        }
        assert!(!kept.payloads.contains_key(&op_id(1)), "it was the oldest");
        kept.keep(op_id(1), KEPT_BYTES / 8);
        let counted = kept.payloads.values().map(|kept| kept.counted);
        assert_eq!(kept.bytes, counted.sum::<usize>());
        assert_eq!(kept.payloads.len(), 7);
    }

    #[tokio::test]
    async fn a_payload_is_packed_once_and_unpacks_to_the_original() {
        let packer = packer();
        for length in [1024, 300 << 10, 6 << 20, SPILLED_FROM + 1] {
            let payload = text(length);
            let crc32c = crc32c::crc32c(&payload);
            let op_id = OpId::new(1, length as u64);
            let packed = packer.pack(op_id, &payload).await.unwrap();
            assert!(packed.len() < length / 5);
            let again = packer.pack(op_id, &payload).await.unwrap();
            assert_eq!(again.as_ptr(), packed.as_ptr(), "packed a second time");
            let whole = unpack(&packed, length, crc32c, &SpillFolder::default()).unwrap();
            assert_eq!(whole.bytes(), &payload);
            let mut unpacking = Unpacking::begin(length, crc32c, &SpillFolder::default()).unwrap();
            for piece in packed.chunks(100) {
                unpacking.push(piece).unwrap();
            }
            assert_eq!(unpacking.finish().unwrap().bytes(), &payload);
        }
        let figures = packer.figures();
        assert_eq!(
            figures.bytes_in,
            (1024 + (300 << 10) + (6 << 20) + SPILLED_FROM + 1) as u64
        );
        assert!(figures.bytes_out < figures.bytes_in / 5);
    }

    #[tokio::test]
    async fn small_and_incompressible_payloads_are_sent_uncompressed() {
        let packer = packer();
        assert!(packer.pack(OpId::new(1, 1), &text(1023)).await.is_none());
        assert!(packer.pack(OpId::new(1, 2), &noise(5000)).await.is_none());
        let large = noise(SPILLED_FROM);
        assert!(packer.pack(OpId::new(1, 3), &large).await.is_none());
        assert_eq!(packer.figures(), CompressionFigures::default());
    }

    #[tokio::test]
    async fn the_cache_is_bounded() {
        let packer = Packer::new(
            Compression {
                level: 1,
                min_bytes: 1,
            },
            SpillFolder::default(),
        );
        let mut payload = noise(100 << 10).to_vec();
        payload.extend_from_slice(&text(100 << 10));
        let payload = Bytes::from(payload);
        for index in 0..1000 {
            assert!(packer.pack(OpId::new(1, index), &payload).await.is_some());
        }
        let kept = lock(&packer.kept);
        assert!(kept.bytes <= KEPT_BYTES && kept.bytes > KEPT_BYTES / 2);
        let there: usize = kept
            .payloads
            .values()
            .filter_map(|kept| {
                kept.packed
                    .get()?
                    .as_ref()
                    .map(|packed| packed.len() + Kept::PLACE)
            })
            .sum();
        assert_eq!(there, kept.bytes);
    }

    #[test]
    fn damaged_frames_and_wrong_lengths_are_refused() {
        let payload = text(2000);
        let crc32c = crc32c::crc32c(&payload);
        let frame = packed(3, &payload).unwrap();
        assert!(unpack(&frame, 2000, crc32c, &SpillFolder::default()).is_ok());
        assert!(unpack(&frame, 2000, crc32c ^ 1, &SpillFolder::default()).is_err());
        for length in [0, 1999, 2001, UNPACKED_AT_ONCE + 1] {
            assert!(
                unpack(&frame, length, crc32c, &SpillFolder::default()).is_err(),
                "{length}"
            );
        }
        assert!(unpack(b"no frame", 2000, crc32c, &SpillFolder::default()).is_err());
        assert!(
            unpack(
                &frame[..frame.len() - 1],
                2000,
                crc32c,
                &SpillFolder::default()
            )
            .is_err()
        );
        let mut short = Unpacking::begin(2000, crc32c, &SpillFolder::default()).unwrap();
        short.push(&frame[..frame.len() / 2]).unwrap();
        assert!(short.finish().is_err());
    }
}
