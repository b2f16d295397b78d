//! BINLOG statements: events in base64, straight into the packet.

use std::iter;

use base64::Engine;
use base64::encoded_len;
use base64::engine::general_purpose::STANDARD;
use binlog_format::canonical::stamp;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::events::{EncodeEvent, EventOrigin, FormatDescription};
use bytes::Bytes;

const HEAD: &[u8] = b"BINLOG '";
const TAIL: &[u8] = b"'";

/// Bytes of events that are encoded at once while a statement is sent: a multiple of three, so that only the last piece is
/// padded.
const PIECE: usize = 48 << 10;

/// How many bytes the statement has that applies so many bytes of events.
pub(super) fn statement_bytes(events: usize) -> usize {
    HEAD.len() + encoded_len(events, true).unwrap_or(usize::MAX / 2) + TAIL.len()
}

/// The statement that applies `events`, in pieces that are made one by one.
pub(super) fn statement_pieces(events: &[Bytes]) -> impl Iterator<Item = Vec<u8>> + Send + '_ {
    let mut slices = events.iter();
    let mut slice: &[u8] = &[];
    let encoded = iter::from_fn(move || {
        let mut raw = Vec::with_capacity(PIECE);
        while raw.len() < PIECE {
            if slice.is_empty() {
                match slices.next() {
                    Some(next) => slice = next,
                    None => break,
                }
            }
            let (now, later) = slice.split_at(slice.len().min(PIECE - raw.len()));
            raw.extend_from_slice(now);
            slice = later;
        }
        (!raw.is_empty()).then(|| STANDARD.encode(&raw).into_bytes())
    });
    iter::once(HEAD.to_vec())
        .chain(encoded)
        .chain(iter::once(TAIL.to_vec()))
}

/// Appends the statement that applies `events`.
pub(super) fn append_binlog(events: &[u8], out: &mut Vec<u8>) {
    // Only a length near the end of the address space has no encoded one.
    let length = encoded_len(events.len(), true).unwrap_or(0);
    out.reserve(HEAD.len() + length + TAIL.len());
    out.extend_from_slice(HEAD);
    let start = out.len();
    out.resize(start + length, 0);
    if let Some(room) = out.get_mut(start..) {
        // Fails only for a room that is too small.
        let _ = STANDARD.encode_slice(events, room);
    }
    out.extend_from_slice(TAIL);
}

/// Bytes of events that fit into a statement of so many bytes.
pub(super) fn events_within(statement_bytes: usize) -> usize {
    (statement_bytes.saturating_sub(HEAD.len() + TAIL.len()) / 4) * 3
}

/// The statement that tells a session how the events of later ones are written: as canonical events are, without
/// checksums. (This event itself has one: a format description always does.)
pub(super) fn format_description() -> Vec<u8> {
    let description = FormatDescription {
        checksum: ChecksumAlgorithm::None,
        ..FormatDescription::built_in(FormatDescription::BUILT_IN_VERSION)
    };
    let event = description.encode(EventOrigin::default());
    let mut stamped = Vec::new();
    // Only bytes that are no event cannot be stamped.
    let _ = stamp(&event, 0, &mut stamped);
    let mut statement = Vec::new();
    append_binlog(&stamped, &mut statement);
    statement
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_as_long_as_was_said() {
        for limit in 20..200 {
            let mut statement = Vec::new();
            append_binlog(&vec![7; events_within(limit)], &mut statement);
            assert!(statement.len() <= limit && statement.len() + 4 > limit);
        }
        let mut statement = b"x;".to_vec();
        append_binlog(b"abcd", &mut statement);
        assert_eq!(statement, b"x;BINLOG 'YWJjZA=='");
    }

    #[test]
    fn a_statement_in_pieces_is_the_statement_as_a_whole() {
        let sizes = [0, 1, 2, 3, 50, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 2];
        for (first, second) in sizes
            .iter()
            .flat_map(|one| sizes.iter().map(move |two| (*one, *two)))
        {
            let events = [vec![1_u8; first], Vec::new(), vec![2; second]].map(Bytes::from);
            let mut whole = Vec::new();
            append_binlog(&events.concat(), &mut whole);
            let pieces: Vec<_> = statement_pieces(&events).collect();
            assert_eq!(whole.len(), statement_bytes(first + second));
            assert!(pieces.iter().all(|piece| piece.len() <= PIECE / 3 * 4));
            assert!(pieces.concat() == whole, "{first} {second}");
        }
    }

    #[test]
    fn the_format_description_has_a_checksum_and_announces_none() {
        let statement = format_description();
        let text = &statement[HEAD.len()..statement.len() - TAIL.len()];
        let event = STANDARD.decode(text).unwrap();
        let event = binlog_format::event::EventRef::new(&event).unwrap();
        let verified = event.verified(ChecksumAlgorithm::Crc32).unwrap();
        let description = FormatDescription::decode(verified).unwrap();
        assert_eq!(description.checksum, ChecksumAlgorithm::None);
    }
}
