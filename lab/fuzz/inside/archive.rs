//! Fuzzing entry points for the input from an archive. The product does not call them.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::SystemTime;

use binlog_format::gtid::GtidSet;
use binlog_store::{FileNumber, LogPlace};
use raft_types::{MemberId, RingId};

use crate::base_backup::{BaseManifest, Extent, Nowhere, unpack};
use crate::chain::Pieces;
use crate::contents::{Contents, Hash};
use crate::encryption::{Encryption, Identities, Recipients};
use crate::manifest::{Archiving, MANIFEST_VERSION, Manifest, Object};
use crate::name::{PieceName, Timeline};
use crate::next_piece::{Log, Next, next};
use crate::sealed::{NewObject, SealError, seal, unseal};

/// Reads a manifest, expecting the piece and the ring that the manifest names. Returns the manifest as written again.
pub fn manifest(bytes: &[u8]) -> Option<Vec<u8>> {
    let named: Manifest = serde_json::from_slice(bytes).ok()?;
    let (piece, ring) = (PieceName::of_manifest(&named.piece.manifest())?, named.ring);
    let Ok(read) = Manifest::read(bytes, piece, Some(ring)) else {
        let says_nothing_of_its_bytes = named.sha256.is_none() && named.object.encryption.is_none();
        assert!(named.version > MANIFEST_VERSION || says_nothing_of_its_bytes);
        return None;
    };
    assert_eq!(read, named);
    let another = PieceName {
        closed: !piece.closed,
        ..piece
    };
    assert!(Manifest::read(bytes, another, Some(ring)).is_err());
    Some(read.to_bytes())
}

/// Reads a base backup's manifest, expecting the backup and the ring that the manifest names. Returns the manifest as written again.
pub fn base_manifest(bytes: &[u8]) -> Option<Vec<u8>> {
    let named: BaseManifest = serde_json::from_slice(bytes).ok()?;
    let read = BaseManifest::read(bytes, named.name, Some(named.ring)).ok()?;
    assert_eq!(read, named);
    assert!(read.gtids_at_most.contains_set(&read.gtids_at_least));
    // The manifest may name only objects in the backup's own folder.
    let folder = read.name.folder();
    let mut objects = read.objects.iter();
    assert!(objects.all(|object| object.name.starts_with(&folder)));
    Some(read.to_bytes())
}

/// Maximum number of log files that are archived.
const MOST_FILES: usize = 8;

/// Reads a listing of pieces, one name per line. Then archives a log with the files given by the lines `number bytes`. Returns the number
/// of pieces in the listing.
pub fn listing(text: &str) -> usize {
    let names = text.lines().filter_map(PieceName::of_manifest);
    let mut names: BTreeSet<PieceName> = names.collect();
    let count = names.len();
    let mut pieces = hold_together(&names);
    let Some(log) = log_of(text) else {
        return count;
    };
    // Each file needs at most three pieces: a continuation, a gap filled to the end of the file, and the whole file. One file may follow a
    // gap.
    for _ in 0..=3 * MOST_FILES + 1 {
        let (Next::Continue(piece)
        | Next::AfterGap { piece, .. }
        | Next::Fill(piece)
        | Next::Whole(piece)) = next(&pieces, Timeline::FIRST, &log)
        else {
            return count;
        };
        let file = log.files.iter().find(|(file, _)| *file == piece.file);
        let (_, bytes) = file.expect("it is of the log");
        assert!(piece.start < piece.end && piece.end <= *bytes);
        assert_eq!(piece.closed, piece.file < log.committed.file);
        names.insert(piece);
        pieces = hold_together(&names);
    }
    panic!("there is always something to archive");
}

fn pieces_of<'a>(names: impl Iterator<Item = &'a PieceName>) -> Pieces {
    let mut pieces = Pieces::default();
    names.for_each(|name| pieces.add(*name));
    pieces
}

/// Collects the pieces of these names, and asserts that their runs are consistent.
fn hold_together(names: &BTreeSet<PieceName>) -> Pieces {
    let pieces = pieces_of(names.iter());
    let superfluous = pieces.superfluous();
    let needed = names.iter().filter(|name| !superfluous.contains(name));
    let left = pieces_of(needed);
    assert_eq!(left.superfluous(), []);
    for timeline in pieces.timelines() {
        let history = pieces.history(timeline);
        for run in &history {
            let mut following = run.pieces.windows(2);
            assert!(following.all(|two| two[0].continues_at() == two[1].begins()));
        }
        let mut parted = history.windows(2);
        assert!(parted.all(|two| two[0].continues_at() != two[1].begins()));
        // The history must be the same without the superfluous pieces.
        assert_eq!(left.history(timeline), history);
    }
    pieces
}

/// The log of the lines `number bytes`: consecutive files, the last of which is open.
fn log_of(text: &str) -> Option<Log> {
    let files = text.lines().filter_map(|line| {
        let (number, bytes) = line.split_once(' ')?;
        let number = FileNumber::new(number.parse().ok()?)?;
        let bytes: u64 = bytes.parse().ok()?;
        (bytes > 0).then_some((number, bytes))
    });
    let mut log: Vec<(FileNumber, u64)> = Vec::new();
    for (number, bytes) in files.take(MOST_FILES) {
        let follows = log.last().is_none_or(|(last, _)| last.next() == number);
        if follows {
            log.push((number, bytes));
        }
    }
    let (file, offset) = *log.last()?;
    Some(Log {
        files: log,
        committed: LogPlace { file, offset },
    })
}

/// A piece of a file that starts at byte `start`. `bytes` is its length, and `closed` is true if the piece reaches the file's end.
fn piece(start: u64, bytes: u64, closed: bool) -> PieceName {
    PieceName {
        timeline: Timeline::FIRST,
        file: FileNumber::FIRST,
        start,
        end: start.saturating_add(bytes),
        closed,
    }
}

fn manifest_of(piece: PieceName, contents: &Contents, object: &[u8]) -> Manifest {
    let object = Object {
        name: piece.object(),
        bytes: object.len() as u64,
        sha256: Hash::of(object),
        encryption: None,
    };
    let archiving = Archiving {
        ring: RingId(
            "11111111-2222-3333-4444-555555555555"
                .parse()
                .expect("a UUID"),
        ),
        member: MemberId(1),
        now: SystemTime::UNIX_EPOCH,
        gtids_before: GtidSet::new(),
        before: None,
    };
    Manifest::of(piece, contents, object, archiving)
}

/// Packs bytes of a file that start at this offset, and unpacks them. The result must be the same bytes. Returns the piece's contents, if
/// the bytes are a valid piece.
fn packed(start: u64, bytes: &[u8]) -> Option<Contents> {
    let mut object = Vec::new();
    let mut sealed = |closed| {
        object.clear();
        let piece = piece(start, bytes.len() as u64, closed);
        seal(NewObject::of(piece, None), bytes, &mut object).map(|(contents, _)| (piece, contents))
    };
    let (piece, contents) = match sealed(false) {
        // The piece contains the end of its file.
        Err(SealError::Manifest(_)) => sealed(true).expect("it was read the other way"),
        done => done.ok()?,
    };
    let mut unpacked = Vec::new();
    let manifest = manifest_of(piece, &contents, &object);
    let again = unseal(
        &manifest,
        &Identities::default(),
        object.as_slice(),
        &mut unpacked,
    );
    assert_eq!(again.expect("what was packed is unpacked"), contents);
    assert!(unpacked == bytes);
    Some(contents)
}

/// Packs a file as one piece and as two pieces split at byte `parted_at`. The contents of the two must add up to the file's contents.
/// Returns whether the file is a log file.
pub fn packed_file(file: &[u8], parted_at: usize) -> bool {
    let Some(whole) = packed(0, file) else {
        return false;
    };
    let Some((first, second)) = file.split_at_checked(parted_at) else {
        return true;
    };
    if let (Some(first), Some(second)) = (packed(0, first), packed(parted_at as u64, second)) {
        assert_eq!(first.gtids.union(&second.gtids), whole.gtids);
        assert_eq!(first.transactions + second.transactions, whole.transactions);
        let ends = [first.entries, second.entries];
        let of_both = ends.iter().flatten();
        let begin = of_both.clone().next().map(|(first, _)| *first);
        let end = of_both.last().map(|(_, last)| *last);
        assert_eq!(begin.zip(end), whole.entries);
        assert_eq!(second.closed, whole.closed);
    }
    true
}

/// Unpacks an object as a piece of `bytes` bytes at the beginning of a file. Asserts that no further byte is returned. Returns whether the
/// object has that many bytes.
pub fn unpacked(object: &[u8], bytes: u64) -> bool {
    let nothing = Contents {
        bytes,
        ..Contents::default()
    };
    [false, true].into_iter().any(|closed| {
        let manifest = manifest_of(piece(0, bytes, closed), &nothing, object);
        let mut to = Counted(0);
        let unpacked = unseal(&manifest, &Identities::default(), object, &mut to);
        assert!(to.0 <= bytes);
        // The contents differ from the manifest, although the size is correct.
        matches!(unpacked, Ok(_) | Err(SealError::Changed { .. })) && to.0 == bytes
    })
}

/// The identity that [`decrypted`] uses, from age's own tests.
const IDENTITY: &[u8] =
    b"AGE-SECRET-KEY-1GQ9778VQXMMJVE8SK7J6VT8UJ4HDQAJUVSFCWCM02D8GEWQ72PVQ2Y5J33\n";

/// Decrypts and unpacks an object as a piece of `bytes` bytes at the beginning of a file. Asserts that no further byte is returned. The
/// result is true if the object is encrypted for the identity of these tests.
pub fn decrypted(object: &[u8], bytes: u64) -> bool {
    let identities = Identities::of_text(IDENTITY).expect("an identity");
    let mut manifest = manifest_of(piece(0, bytes, false), &Contents::default(), object);
    (manifest.sha256, manifest.object.encryption) = (None, Some(Encryption::Age));
    let mut to = Counted(0);
    let unpacked = unseal(&manifest, &identities, object, &mut to);
    assert!(to.0 <= bytes);
    !matches!(unpacked, Err(SealError::Encryption(_)))
}

/// Returns whether this is a tar stream of `files` files and `of_bytes` bytes.
///
/// # Panics
/// If the stream contains more than that.
pub fn read_tar(bytes: &[u8], files: u64, of_bytes: u64) -> bool {
    let expected = Extent {
        files,
        bytes: of_bytes,
    };
    let mut told = 0;
    let mut progress = |done| {
        assert!(done > told && done <= of_bytes);
        told = done;
        ControlFlow::Continue(())
    };
    unpack(bytes, expected, &mut Nowhere, &mut progress).is_ok()
}

/// Reads a file of public or secret keys. Asserts that an error message does not contain the keys. Returns whether the file is valid.
pub fn keys(text: &str, secret: bool) -> bool {
    let read = match secret {
        true => Identities::of_text(text.as_bytes()).map(|_| ()),
        false => Recipients::of_text(text).map(|_| ()),
    };
    if let Err(why) = &read {
        let keys = text.lines().map(str::trim);
        let mut keys = keys.filter(|line| line.len() >= 32 && line.contains('7'));
        let why = why.to_string();
        assert!(!keys.any(|key| why.contains(key)), "{why}");
    }
    read.is_ok()
}

/// A writer that only counts its bytes.
struct Counted(u64);

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
