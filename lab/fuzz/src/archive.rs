//! Targets for an archive in object storage: names, manifests, pieces and base backups.

use archive::fuzzing;

use crate::{Target, is_written_the_same, repair};

/// Memory for the largest unpacked piece. One event may fill the piece, and stays in memory while it is read. Buffers are included.
const UNPACKED: usize = 1 << 20;

pub(crate) const TARGETS: &[Target] = &[
    // The manifest of an archived piece.
    Target::new("archive-manifest", |bytes| {
        is_written_the_same(bytes, fuzzing::manifest)
    }),
    // The names of an archive's objects, from which the next piece to archive follows.
    Target::new("archive-listing", |bytes| {
        std::str::from_utf8(bytes).is_ok_and(|text| fuzzing::listing(text) > 0)
    }),
    // A part of a log file to pack, or an object to unpack.
    Target::new("archive-piece", archive_piece).within(8 * UNPACKED, 64),
    // An encrypted object of an archive.
    Target::new("archive-encrypted", |bytes| {
        match bytes.split_first_chunk() {
            Some((size, object)) => {
                let bytes = u32::from_le_bytes(*size) as usize % UNPACKED;
                fuzzing::decrypted(object, bytes as u64)
            }
            None => false,
        }
    })
    .within(8 * UNPACKED, 64),
    // Files with the public or secret keys of an archive.
    Target::new("archive-keys", |bytes| {
        match (bytes.split_first(), std::str::from_utf8(bytes)) {
            (Some((which, _)), Ok(text)) if which.is_ascii() => {
                fuzzing::keys(&text[1..], which % 2 == 1)
            }
            _ => false,
        }
    }),
    // The manifest of a base backup.
    Target::new("archive-base-manifest", |bytes| {
        is_written_the_same(bytes, fuzzing::base_manifest)
    }),
    // The tar stream of a base backup.
    Target::new("archive-base-tar", archive_base_tar).within(UNPACKED, 64),
];

/// Reads the number of expected files from the first two bytes, and the number of expected bytes from the next four. The rest is the
/// stream.
fn archive_base_tar(bytes: &[u8]) -> bool {
    let Some((files, rest)) = bytes.split_first_chunk() else {
        return false;
    };
    let Some((of_bytes, stream)) = rest.split_first_chunk() else {
        return false;
    };
    let files = u16::from_le_bytes(*files).into();
    fuzzing::read_tar(stream, files, u32::from_le_bytes(*of_bytes).into())
}

/// Packs or unpacks; the first byte selects which. To pack, the next two bytes state where to split the rest. To unpack, the next four
/// bytes state the expected size.
fn archive_piece(bytes: &[u8]) -> bool {
    let Some((which, rest)) = bytes.split_first() else {
        return false;
    };
    if which % 2 == 0 {
        let Some((at, file)) = rest.split_first_chunk() else {
            return false;
        };
        let parted_at = u16::from_le_bytes(*at).into();
        let repaired = repair::binlog_file(file);
        return fuzzing::packed_file(file, parted_at) | fuzzing::packed_file(&repaired, parted_at);
    }
    let Some((bytes, object)) = rest.split_first_chunk() else {
        return false;
    };
    let bytes = u32::from_le_bytes(*bytes) as usize % UNPACKED;
    fuzzing::unpacked(object, bytes as u64)
}
