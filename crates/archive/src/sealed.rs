//! A piece as an object: one zstd frame, which `zstd -d` unpacks without this program, after `age -d` if it is encrypted. It is written and
//! read in one pass of bounded memory, which also computes both hashes.
//!
//! In an encrypted object, a skippable frame with the SHA-256 of the log's bytes follows the first frame.

use std::io::{self, BufRead, BufReader, Read, Write};

use sha2::{Digest, Sha256};

use crate::contents::{Contents, ContentsError, ContentsReader, Hash};
use crate::encryption::{Encryption, EncryptionError, Identities, Recipients, Sealing};
use crate::manifest::{Manifest, Object};
use crate::name::PieceName;

/// The default level of zstd.
pub(crate) const LEVEL: i32 = 3;
const CHUNK_BYTES: usize = 256 << 10;
/// Binary logarithm of the largest accepted window: 8 MiB, which every decoder must support (RFC 8878). This program's frames need at most
/// 2 MiB. Without the limit, a few header bytes could make zstd allocate 128 MiB.
pub(crate) const MOST_WINDOW_LOG: u32 = 23;
/// The magic number of a skippable zstd frame, and its size.
const SKIPPABLE: [u8; 8] = [0x57, 0x2a, 0x4d, 0x18, 32, 0, 0, 0];

/// Why a piece cannot be stored, or an object does not match its manifest.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The bytes cannot be read, or are not in this program's compressed format.
    #[error(transparent)]
    Io(io::Error),
    /// The bytes cannot be written.
    #[error(transparent)]
    Write(io::Error),
    /// The bytes cannot be decrypted.
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
    /// The bytes are not a piece of a log.
    #[error(transparent)]
    Contents(#[from] ContentsError),
    /// The number of bytes differs from the piece's size.
    #[error("{found} bytes of it were read, and the piece has {expected}")]
    Size {
        /// The piece's size.
        expected: u64,
        /// Number of bytes read. If it exceeds the piece's size, there may be more bytes.
        found: u64,
    },
    /// The SHA-256 of the bytes differs from the archived one.
    #[error("its bytes are not those that were archived: their SHA-256 is {found}, not {expected}")]
    Changed {
        /// SHA-256 of the archived bytes.
        expected: Hash,
        /// SHA-256 of the bytes read.
        found: Hash,
    },
    /// The bytes of an encrypted piece are not followed by their SHA-256.
    #[error("its bytes are not followed by their SHA-256")]
    NoHash,
    /// The manifest contradicts the bytes.
    #[error("its manifest says another thing of {0} than its bytes")]
    Manifest(&'static str),
}

impl From<io::Error> for SealError {
    fn from(error: io::Error) -> Self {
        match EncryptionError::of_io(&error) {
            Some(error) => Self::Encryption(error.clone()),
            None => Self::Io(error),
        }
    }
}

/// An object to be created.
#[derive(Debug, Clone)]
pub struct NewObject {
    piece: PieceName,
    /// The object's name, below the ring's folder.
    pub name: String,
    recipients: Option<Recipients>,
}

impl NewObject {
    /// The object of a piece. If there are recipients, the object is encrypted for them.
    pub fn of(piece: PieceName, recipients: Option<Recipients>) -> Self {
        let name = match recipients {
            None => piece.object(),
            Some(_) => piece.encrypted_object(uuid::Uuid::new_v4().as_u128()),
        };
        Self {
            piece,
            name,
            recipients,
        }
    }
}

/// Reads a piece of the log and writes its object.
///
/// # Errors
/// When reading or writing fails, or the bytes are not that piece.
pub fn seal(
    new: NewObject,
    from: impl Read,
    to: impl Write,
) -> Result<(Contents, Object), SealError> {
    let to = Sealing::of(Hashed::new(to), new.recipients.as_ref())?;
    let mut encoder = zstd::stream::write::Encoder::new(to, LEVEL)?;
    // The frame contains its size and a checksum for manual unpacking.
    encoder.set_pledged_src_size(Some(new.piece.end.saturating_sub(new.piece.start)))?;
    encoder.include_checksum(true)?;
    let contents = pass(new.piece, from, &mut encoder)?;
    let mut to = encoder.finish()?;
    let encryption = new.recipients.map(|_| Encryption::Age);
    if encryption.is_some() {
        to.write_all(&SKIPPABLE)?;
        to.write_all(&contents.sha256.0)?;
    }
    let (mut to, bytes, sha256) = to.finish()?.into_parts();
    to.flush()?;
    let object = Object {
        name: new.name,
        bytes,
        sha256,
        encryption,
    };
    Ok((contents, object))
}

/// Reads the object of a manifest, writes the piece of the log, and verifies everything.
///
/// # Errors
/// When reading or writing fails, the object does not match the manifest, or no identity decrypts it. The written bytes are then unusable.
pub fn unseal(
    manifest: &Manifest,
    identities: &Identities,
    from: impl Read,
    to: impl Write,
) -> Result<Contents, SealError> {
    // One excess byte shows that the object differs, however long it is.
    let from = from.take(manifest.object.bytes.saturating_add(1));
    let mut object = Hashed::new(from);
    let unpacked = match manifest.object.encryption {
        None => {
            let decoder = zstd::stream::read::Decoder::new(&mut object)?;
            unpack(decoder, manifest.piece, to).map(|(contents, _)| contents)
        }
        Some(Encryption::Age) => decrypt(manifest.piece, identities, &mut object, to),
    };
    let expected = manifest.object.sha256;
    let contents = match unpacked {
        Ok(contents) => contents,
        // If no identity matches, the object may also be damaged or replaced. So its hash is checked first.
        Err(SealError::Encryption(error)) if error != EncryptionError::NoIdentity => {
            let (_, found) = object.finish_reading()?;
            assert_is(expected, found)?;
            return Err(error.into());
        }
        Err(error) => return Err(error),
    };
    let (_, found) = object.finish_reading()?;
    assert_is(expected, found)?;
    if let Some(expected) = manifest.sha256 {
        assert_is(expected, contents.sha256)?;
    }
    if contents.gtids != manifest.gtids {
        return Err(SealError::Manifest("its GTIDs"));
    }
    let ends = contents.entries.map(|(_, last)| last);
    if ends != manifest.last {
        return Err(SealError::Manifest("its last entry"));
    }
    Ok(contents)
}

fn assert_is(expected: Hash, found: Hash) -> Result<(), SealError> {
    match found == expected {
        true => Ok(()),
        false => Err(SealError::Changed { expected, found }),
    }
}

/// Unpacks a frame and all frames after it, and returns the rest of the reader.
fn unpack<R: BufRead>(
    mut decoder: zstd::stream::read::Decoder<'_, R>,
    piece: PieceName,
    to: impl Write,
) -> Result<(Contents, R), SealError> {
    decoder.window_log_max(MOST_WINDOW_LOG)?;
    let contents = pass(piece, &mut decoder, to)?;
    Ok((contents, decoder.finish()))
}

/// Decrypts and unpacks an object, and compares its bytes with the SHA-256 after them.
fn decrypt(
    piece: PieceName,
    identities: &Identities,
    object: impl Read,
    to: impl Write,
) -> Result<Contents, SealError> {
    let plain = identities.decrypt(BufReader::new(object))?;
    let decoder = zstd::stream::read::Decoder::with_buffer(plain)?;
    let (contents, rest) = unpack(decoder.single_frame(), piece, to)?;
    let mut trailer = Vec::new();
    // One more byte than expected is read, to detect excess bytes.
    let most = SKIPPABLE.len() as u64 + 32 + 1;
    rest.take(most).read_to_end(&mut trailer)?;
    let archived = trailer.strip_prefix(&SKIPPABLE);
    let archived = archived.and_then(|bytes| bytes.try_into().ok());
    let archived = archived.map(Hash).ok_or(SealError::NoHash)?;
    assert_is(archived, contents.sha256)?;
    Ok(contents)
}

/// Copies a piece of the log and returns its contents. Never copies more bytes than the piece has: a few compressed bytes may unpack to
/// more than the disk can store.
fn pass(piece: PieceName, mut from: impl Read, mut to: impl Write) -> Result<Contents, SealError> {
    let expected = piece.end.saturating_sub(piece.start);
    let mut found = 0;
    let mut contents = ContentsReader::from(piece.start);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        found += read as u64;
        if found > expected {
            return Err(SealError::Size { expected, found });
        }
        contents.take(&chunk[..read])?;
        to.write_all(&chunk[..read]).map_err(SealError::Write)?;
    }
    to.flush().map_err(SealError::Write)?;
    let contents = contents.finish()?;
    if found != expected {
        return Err(SealError::Size { expected, found });
    }
    if contents.closed != piece.closed {
        return Err(SealError::Manifest("the end of its file"));
    }
    Ok(contents)
}

/// Counts and hashes the bytes that pass through.
pub(crate) struct Hashed<T> {
    inner: T,
    bytes: u64,
    sha256: Sha256,
}

impl<T> Hashed<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self {
            inner,
            bytes: 0,
            sha256: Sha256::new(),
        }
    }

    fn count(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.sha256.update(bytes);
    }

    /// Returns the inner value, the number of bytes, and their SHA-256.
    pub(crate) fn into_parts(self) -> (T, u64, Hash) {
        (self.inner, self.bytes, Hash(self.sha256.finalize().into()))
    }
}

impl<T: Read> Hashed<T> {
    /// Reads the rest of the stream, which belongs to the object as well.
    pub(crate) fn finish_reading(mut self) -> io::Result<(u64, Hash)> {
        io::copy(&mut self, &mut io::sink())?;
        let (_, bytes, sha256) = self.into_parts();
        Ok((bytes, sha256))
    }
}

impl<T: Write> Write for Hashed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.count(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Hashed<T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.count(&bytes[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use binlog_format::canonical::stamp;
    use binlog_format::events::{EncodeEvent, Ignorable};
    use binlog_format::gtid::GtidSet;
    use binlog_store::{FileNumber, Marker, MarkerKind};
    use raft_types::{MemberId, OpId, RingId};

    use super::*;
    use crate::name::Timeline;

    /// Encodes the binary logarithm of a window size for a frame header.
    const fn window(log: u8) -> u8 {
        (log - 10) << 3
    }

    /// A zstd frame with this window and no size. It contains some bytes, then `blocks` blocks of 128 KiB of zeros, each encoded in four
    /// bytes.
    fn frame(window: u8, bytes: &[u8], blocks: usize) -> Vec<u8> {
        const RAW: u32 = 0;
        const REPEATED: u32 = 1 << 1;
        let block = |kind: u32, size: usize| ((size as u32) << 3 | kind).to_le_bytes();
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, window];
        frame.extend(&block(RAW, bytes.len())[..3]);
        frame.extend(bytes);
        for _ in 0..blocks {
            frame.extend(&block(REPEATED, 128 << 10)[..3]);
            frame.push(0);
        }
        frame.extend(&[1, 0, 0]);
        frame
    }

    /// Start of the piece in its file.
    const BEGIN: u64 = 100;

    /// The header of a row event so large that all following bytes belong to it.
    fn endless_event() -> [u8; 19] {
        const SIZE: u32 = 1_000_000_000;
        let mut header = [0; 19];
        header[4] = 30;
        header[9..13].copy_from_slice(&SIZE.to_le_bytes());
        header[13..17].copy_from_slice(&(SIZE + BEGIN as u32).to_le_bytes());
        header
    }

    fn piece(bytes: u64) -> PieceName {
        PieceName {
            timeline: Timeline::FIRST,
            file: FileNumber::FIRST,
            start: BEGIN,
            end: BEGIN + bytes,
            closed: false,
        }
    }

    fn manifest(piece: PieceName, object: &[u8]) -> Manifest {
        Manifest {
            version: 1,
            ring: RingId("11111111-2222-3333-4444-555555555555".parse().unwrap()),
            piece,
            sha256: Some(Hash([0; 32])),
            first: None,
            last: None,
            terms: Vec::new(),
            follows: None,
            transactions: 0,
            gtids: GtidSet::new(),
            gtids_before: GtidSet::new(),
            committed_from_us: None,
            committed_to_us: None,
            object: Object {
                name: piece.object(),
                bytes: object.len() as u64,
                sha256: Hash::of(object),
                encryption: None,
            },
            before: None,
            archived_by: MemberId(1),
            archived_at: 0,
        }
    }

    fn unseal_plain(
        manifest: &Manifest,
        from: impl Read,
        to: impl Write,
    ) -> Result<Contents, SealError> {
        unseal(manifest, &Identities::default(), from, to)
    }

    /// Bytes unpacked from an object for a piece of `bytes` bytes, and the error.
    fn unsealed(object: &[u8], bytes: u64) -> (u64, SealError) {
        let mut unpacked = Vec::new();
        let refused =
            unseal_plain(&manifest(piece(bytes), object), object, &mut unpacked).unwrap_err();
        (unpacked.len() as u64, refused)
    }

    #[test]
    fn unpacking_is_bounded_by_the_piece_size() {
        let object = frame(window(21), &endless_event(), 800);
        for bytes in [1, 10_000, 1 << 20] {
            let (unpacked, refused) = unsealed(&object, bytes);
            assert!(unpacked <= bytes, "{unpacked}");
            assert!(matches!(refused, SealError::Size { .. }), "{refused}");
        }
    }

    #[test]
    fn frame_with_a_large_window_is_refused() {
        let refused = |log| unsealed(&frame(window(log), &endless_event(), 0), 19).1;
        let (small, large) = (refused(23), refused(24));
        assert!(matches!(small, SealError::Contents(_)), "{small}");
        assert!(matches!(large, SealError::Io(_)), "{large}");
    }

    #[test]
    fn endless_object_is_bounded() {
        let marker = Marker::holding(MarkerKind::Blank, Some(OpId::new(1, 7)), &[]);
        let body = marker.encode().to_vec().into();
        let event = Ignorable { body }.encode(Ignorable::origin(0, 1));
        let mut bytes = Vec::new();
        stamp(&event, BEGIN, &mut bytes).unwrap();
        let piece = piece(bytes.len() as u64);
        let mut object = Vec::new();
        let (contents, _) =
            seal(NewObject::of(piece, None), bytes.as_slice(), &mut object).unwrap();
        let mut manifest = manifest(piece, &object);
        (manifest.sha256, manifest.last) = (Some(contents.sha256), Some(OpId::new(1, 7)));
        unseal_plain(&manifest, object.as_slice(), io::sink()).unwrap();
        let endless = object.chain(io::repeat(0));
        unseal_plain(&manifest, endless, io::sink()).unwrap_err();
    }
}
