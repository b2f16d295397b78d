//! Object storage's parts of a ring's log: names, manifests, and the bytes of pieces.

use archive::fuzzing;

use crate::{Target, is_written_the_same, repair};

/// Largest unpacked piece in the target, which one event may fill and which stays in memory during its read; plus the buffers of a pass.
const UNPACKED: usize = 1 << 20;

pub(crate) const TARGETS: &[Target] = &[
    // What a piece of an archive says of itself.
    Target::new("archive-manifest", |bytes| {
        is_written_the_same(bytes, fuzzing::manifest)
    }),
    // The names of an archive's objects, and the next one to archive.
    Target::new("archive-listing", |bytes| {
        std::str::from_utf8(bytes).is_ok_and(|text| fuzzing::listing(text) > 0)
    }),
    // A piece of a log's file that is packed, and an object that is unpacked.
    Target::new("archive-piece", archive_piece).within(8 * UNPACKED, 64),
    // An object of an archive that is decrypted and unpacked.
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
    // Files of the keys with which an archive is encrypted and read.
    Target::new("archive-keys", |bytes| {
        match (bytes.split_first(), std::str::from_utf8(bytes)) {
            (Some((which, _)), Ok(text)) if which.is_ascii() => {
                fuzzing::keys(&text[1..], which % 2 == 1)
            }
            _ => false,
        }
    }),
    // What a base backup says of itself.
    Target::new("archive-base-manifest", |bytes| {
        is_written_the_same(bytes, fuzzing::base_manifest)
    }),
    // The data of a base backup as they are unpacked.
    Target::new("archive-base-tar", archive_base_tar).within(UNPACKED, 64),
];

/// The first two bytes are the number of expected files, the next four the number of bytes.
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

/// The first byte selects packed or unpacked. Bytes to pack are split at the byte given by the next two; unpacked ones should have as many
/// bytes as the next four state.
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
