//! A piece as an object: one zstd frame, which `zstd -d` unpacks without this program. Made and read in one pass of bounded
//! memory, with both hashes.

use std::io::{self, BufReader, Read, Write};

use sha2::{Digest, Sha256};

use crate::contents::{Contents, ContentsError, ContentsReader, Hash};
use crate::manifest::{Manifest, Object};
use crate::name::PieceName;

/// What an object's name ends with.
const COMPRESSED: &str = ".zst";
/// zstd's own default.
const LEVEL: i32 = 3;
const CHUNK_BYTES: usize = 256 << 10;

/// Why a piece could not be made an object, or an object is not the piece of its manifest.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The bytes cannot be read or written, or were not compressed by this program.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// They are no piece of a log.
    #[error(transparent)]
    Contents(#[from] ContentsError),
    /// They are another number of bytes than the piece has.
    #[error("it has {found} bytes, and the piece {expected}")]
    Size {
        /// What the piece has.
        expected: u64,
        /// What was read.
        found: u64,
    },
    /// They are others than those that were archived.
    #[error("its bytes are not those that were archived: their SHA-256 is {found}, not {expected}")]
    Changed {
        /// That of the manifest.
        expected: Hash,
        /// That of what was read.
        found: Hash,
    },
    /// The manifest says something else of them than they do.
    #[error("its manifest says another thing of {0} than its bytes")]
    Manifest(&'static str),
}

impl PieceName {
    /// The name of the object with its bytes, below the folder of the ring.
    #[must_use]
    pub fn object(&self) -> String {
        format!("{self}{COMPRESSED}")
    }
}

/// Reads a piece of the log and writes the object.
///
/// # Errors
/// When either fails, or what is read is not that piece.
pub fn seal(
    piece: PieceName,
    from: impl Read,
    to: impl Write,
) -> Result<(Contents, Object), SealError> {
    let mut encoder = zstd::stream::write::Encoder::new(Hashed::new(to), LEVEL)?;
    // The frame says its own size, and has a checksum for whoever unpacks it by hand.
    encoder.set_pledged_src_size(Some(piece.end - piece.start))?;
    encoder.include_checksum(true)?;
    let contents = pass(piece, from, &mut encoder)?;
    let written = encoder.finish()?;
    let (bytes, sha256) = written.finish()?;
    let object = Object {
        name: piece.object(),
        bytes,
        sha256,
    };
    Ok((contents, object))
}

/// Reads the object of a manifest and writes the piece of the log, all of which is verified.
///
/// # Errors
/// When either fails, or the object is not what the manifest says. What was written is of no use then.
pub fn unseal(manifest: &Manifest, from: impl Read, to: impl Write) -> Result<Contents, SealError> {
    let mut object = Hashed::new(from);
    let decoder = zstd::stream::read::Decoder::new(BufReader::new(&mut object))?;
    let contents = pass(manifest.piece, decoder, to)?;
    let (_, found) = object.finish_reading()?;
    let expected = manifest.object.sha256;
    if found != expected {
        return Err(SealError::Changed { expected, found });
    }
    if contents.sha256 != manifest.sha256 {
        let (expected, found) = (manifest.sha256, contents.sha256);
        return Err(SealError::Changed { expected, found });
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

/// Hands a piece of the log on, and says what it holds.
fn pass(piece: PieceName, mut from: impl Read, mut to: impl Write) -> Result<Contents, SealError> {
    let mut contents = ContentsReader::from(piece.start);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        contents.take(&chunk[..read])?;
        to.write_all(&chunk[..read])?;
    }
    to.flush()?;
    let contents = contents.finish()?;
    let expected = piece.end - piece.start;
    if contents.bytes != expected {
        let found = contents.bytes;
        return Err(SealError::Size { expected, found });
    }
    if contents.closed != piece.closed {
        return Err(SealError::Manifest("the end of its file"));
    }
    Ok(contents)
}

/// Counts and hashes what goes through it.
struct Hashed<T> {
    inner: T,
    bytes: u64,
    sha256: Sha256,
}

impl<T> Hashed<T> {
    fn new(inner: T) -> Self {
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

    fn hashed(self) -> (u64, Hash) {
        (self.bytes, Hash(self.sha256.finalize().into()))
    }
}

impl<T: Write> Hashed<T> {
    fn finish(mut self) -> io::Result<(u64, Hash)> {
        self.inner.flush()?;
        Ok(self.hashed())
    }
}

impl<T: Read> Hashed<T> {
    /// Reads what is left, which belongs to the object as well.
    fn finish_reading(mut self) -> io::Result<(u64, Hash)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(self.hashed())
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
