//! Encodes rows of a batch as events that one BINLOG statement applies. Pure.
//!
//! The server opens the tables of a statement at its first rows event, so all table maps precede that event. The statement ends
//! at the rows event with the end-of-statement flag, which only the last one has.
//!
//! # Foreign keys
//!
//! Some sources execute cascades above the storage engine, and log the rows that the cascades change
//! ([`Rows::CASCADES_LOGGED`]). Rows of such a source are applied without foreign keys: neither checks nor cascades. The source
//! has checked them, and its log contains the effects of its cascades. So the logged rows alone, in their order, reproduce its
//! data.
//!
//! With foreign keys they would sometimes fail:
//!
//! * A statement may change a child's row directly, and another one by a cascade. The log then has both in one event. The event
//!   precedes the parent's row, and lacks the flag that would allow the cascaded row (error 1452).
//! * A REPLACE of a parent's row, which keeps its children on the source, would delete them here.
//!
//! The cost: if the target lacks a parent's row, it does not report this when a child's row arrives. It still reports a missing
//! row that is to be changed or deleted.

use std::iter;
use std::ops::Range;

use base64::engine::general_purpose::STANDARD;
use base64::{Engine, encoded_len};
use binlog_format::canonical::stamp;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventType, HEADER_LEN};
use binlog_format::events::{EncodeEvent, EventOrigin, FormatDescription, Rows};
use bytes::Bytes;

use crate::batch::{Batch, Commits};
use crate::keys::{Access, KeyHash, KeyMap};
use crate::transaction::{RowChanges, RowContext, RowsEvent};

/// Offset of the event type in an event's header.
const TYPE: usize = 4;
/// Offset of the event size in an event's header.
const SIZE: Range<usize> = 9..13;
/// Offset of the table's number in table maps and rows events.
const NUMBER: Range<usize> = HEADER_LEN..HEADER_LEN + 6;
/// Offset of the flags in a rows event.
const FLAGS: Range<usize> = NUMBER.end..NUMBER.end + 2;

/// Returns the first rows of `rows` that fit into one BINLOG statement: at most `bound` bytes of events, not counting table
/// maps, but at least one row. Rows events with different flags (such as `foreign_key_checks`) do not share a statement,
/// because the server reads only the flags of the first event. Rows that need different session settings do not share a
/// statement either.
pub(super) fn first_run(batch: &Batch, rows: Range<usize>, bound: usize) -> Range<usize> {
    let start = rows.start;
    // A row without an event is omitted when it is encoded. Advancing past it ensures that every loop over runs ends.
    let at_least = (start + 1).min(rows.end);
    let mut end = start;
    let mut bytes = 0_usize;
    let mut first = None;
    for part in parts(batch, rows) {
        let of_event = (statement_flags(part.event), &part.changes.context);
        if *first.get_or_insert(of_event) != of_event {
            break;
        }
        if bytes + part.event.event.len() <= bound {
            bytes += part.event.event.len();
            end += part.rows.len();
            continue;
        }
        // The whole event does not fit: take as many of its rows as do.
        bytes += part.event.images_at as usize;
        for row in part.rows {
            bytes += images(part.changes, row).len();
            if bytes > bound && end > start {
                return start..end;
            }
            end += 1;
        }
    }
    start..end.max(at_least)
}

/// Appends the events of some rows, which must be one run of [`first_run`], to `out`: the maps of their tables, then rows
/// events. Complete events are copied unchanged. Of an incomplete event, the header and the images of its rows are copied.
/// Writes of one row are [joined] if possible. Tables are numbered again, because transactions of different servers may use one
/// number for different tables.
pub(super) fn append_run(batch: &Batch, rows: Range<usize>, out: &mut Vec<u8>) {
    // Tables are identified by their maps. Linear search: most statements have few tables, and a statement with hundreds is
    // slow anyway.
    let mut tables: Vec<&[u8]> = Vec::new();
    for part in parts(batch, rows.clone()) {
        if !tables.contains(&content(part.map)) {
            tables.push(content(part.map));
            let begin = out.len();
            out.extend_from_slice(part.map);
            set_number(out, begin, tables.len());
        }
    }
    let joined = joined(batch, rows.clone());
    let mut writes = joined.as_slice();
    let mut last = None;
    for part in parts(batch, rows) {
        let of_part;
        (of_part, writes) = writes.split_at(part.rows.len().min(writes.len()));
        if !of_part.is_empty() && of_part.iter().all(|write| *write == Write::LeftOut) {
            continue;
        }
        let begin = out.len();
        let event = &part.event.rows;
        let is_whole = part.rows == (event.start as usize..event.end as usize);
        if is_whole && of_part.iter().all(|write| *write == Write::AsLogged) {
            out.extend_from_slice(&part.event.event);
        } else {
            append_part(&part, of_part, begin, out);
        }
        let place = tables.iter().position(|table| *table == content(part.map));
        set_number(out, begin, place.map_or(0, |place| place + 1));
        set_flags(out, begin, false);
        last = Some(begin);
    }
    if let Some(begin) = last {
        set_flags(out, begin, true);
    }
}

/// Appends some rows of an event. If `writes` is empty, all rows are appended as they are logged.
fn append_part(part: &Part<'_>, writes: &[Write<'_>], begin: usize, out: &mut Vec<u8>) {
    let event = &part.event.event;
    let head = event.get(..part.event.images_at as usize);
    out.extend_from_slice(head.unwrap_or_default());
    let writes = writes.iter().chain(iter::repeat(&Write::AsLogged));
    for (row, write) in part.rows.clone().zip(writes) {
        let all = images(part.changes, row);
        let after_at = part.changes.rows.get(row);
        let after_at = after_at.and_then(|row| row.joinable_after);
        let (kept, after) = match (write, after_at) {
            (Write::LeftOut, _) => continue,
            (Write::EndsAs(after), Some(at)) => (all.start..at.get() as usize, *after),
            (Write::EndsAs(_) | Write::AsLogged, _) => (all, &[][..]),
        };
        out.extend_from_slice(event.get(kept).unwrap_or_default());
        out.extend_from_slice(after);
    }
    // The cast is lossless: the event is no larger than the rows of the run in the log, which are in memory.
    let size = (out.len() - begin) as u32;
    overwrite(out, begin, SIZE, &size.to_le_bytes());
}

/// Returns the events of one row: the table map, the head of the rows event, and the images, which are not copied. For a row
/// that is too large to share a statement.
pub(super) fn single_row(batch: &Batch, row: usize) -> Vec<Bytes> {
    let Some(part) = parts(batch, row..row + 1).next() else {
        return Vec::new();
    };
    let event = part.event;
    let images = event.event.get(images(part.changes, part.rows.start));
    let images = images.unwrap_or_default();
    let head = event.event.get(..event.images_at as usize);
    let mut head = head.unwrap_or_default().to_vec();
    // The cast is lossless: the event is not larger than the event from which its row comes.
    let size = (head.len() + images.len()) as u32;
    overwrite(&mut head, 0, SIZE, &size.to_le_bytes());
    set_flags(&mut head, 0, true);
    let images = event.event.slice_ref(images);
    vec![part.map.clone(), head.into(), images]
}

/// Returns the session context that a row needs.
pub(super) fn context_of(batch: &Batch, row: usize) -> Option<&RowContext> {
    let piece = batch.pieces(row..row + 1).next();
    piece.map(|(changes, _)| &changes.context)
}

/// Returns the size of a row's images in bytes.
pub(super) fn image_bytes(batch: &Batch, row: usize) -> usize {
    let piece = batch.pieces(row..row + 1).next();
    piece.map_or(0, |(changes, rows)| images(changes, rows.start).len())
}

/// Splits the events of a statement (table maps, then rows events) among one or more BINLOG statements of at most about `bound`
/// bytes. Each has all the maps, and an end-of-statement flag. Rows events are not copied.
pub(super) fn statement_runs(events: &[Bytes], bound: usize) -> Vec<Vec<Bytes>> {
    let is_map = |event: &&Bytes| event.get(TYPE) == Some(&EventType::TableMap.code());
    let maps: Vec<Bytes> = events.iter().filter(is_map).cloned().collect();
    let bytes_of_maps: usize = maps.iter().map(Bytes::len).sum();
    let mut runs: Vec<Vec<Bytes>> = Vec::new();
    let mut bytes = 0;
    let mut rest = events.iter().filter(|event| !is_map(event)).peekable();
    while let Some(event) = rest.next() {
        if runs.is_empty() || bytes + event.len() > bound {
            runs.push(maps.clone());
            bytes = bytes_of_maps;
        }
        bytes += event.len();
        let ends = rest.peek().is_none_or(|next| bytes + next.len() > bound);
        if let Some(run) = runs.last_mut() {
            let (head, images) = event.split_at(event.len().min(FLAGS.end));
            let mut head = head.to_vec();
            set_flags(&mut head, 0, ends);
            run.extend([head.into(), event.slice_ref(images)]);
        }
    }
    runs
}

/// Rows of one event, within some rows of a batch.
struct Part<'a> {
    changes: &'a RowChanges,
    event: &'a RowsEvent,
    /// The map of the event's table.
    map: &'a Bytes,
    /// The indexes of the rows within their transaction.
    rows: Range<usize>,
}

/// Splits some rows of a batch by event.
fn parts(batch: &Batch, rows: Range<usize>) -> impl Iterator<Item = Part<'_>> {
    batch.pieces(rows).flat_map(|(changes, rows)| {
        let mut next = rows.start;
        iter::from_fn(move || {
            let event = changes.rows.get(next).filter(|_| next < rows.end)?.event;
            let event = changes.events.get(event as usize)?;
            let map = &changes.tables.get(event.table as usize)?.map;
            let of_event = event.rows.start as usize..event.rows.end as usize;
            let part = next..of_event.end.min(rows.end);
            next = part.end;
            of_event.contains(&part.start).then_some(Part {
                changes,
                event,
                map,
                rows: part,
            })
        })
    })
}

/// Returns a table map without its header and the table's number.
fn content(map: &Bytes) -> &[u8] {
    map.get(NUMBER.end..).unwrap_or_default()
}

/// Writes a table's number, from 1 on, into the event that begins at this offset.
fn set_number(out: &mut [u8], event: usize, number: usize) {
    let number = (number as u64).to_le_bytes();
    overwrite(out, event, NUMBER, &number[..NUMBER.end - NUMBER.start]);
}

/// Returns the range of a row's images in its event.
fn images(changes: &RowChanges, row: usize) -> Range<usize> {
    changes.rows.get(row).map_or(0..0, |row| {
        row.images.start as usize..row.images.end as usize
    })
}

/// Returns the flags of a rows event that apply to its whole statement.
fn statement_flags(event: &RowsEvent) -> u16 {
    let flags = event.event.get(FLAGS);
    let flags = flags.and_then(|flags| flags.try_into().ok());
    let flags = u16::from_le_bytes(flags.unwrap_or_default());
    without_foreign_keys(flags) & !Rows::END_OF_STATEMENT
}

/// Returns the flags with which rows are applied that have these flags in the log: see the module.
fn without_foreign_keys(flags: u16) -> u16 {
    match flags & Rows::CASCADES_LOGGED {
        0 => flags,
        _ => flags | Rows::NO_FOREIGN_KEY_CHECKS,
    }
}

/// Sets or clears the end-of-statement flag of a rows event.
fn set_flags(out: &mut [u8], event: usize, ends: bool) {
    let place = event + FLAGS.start..event + FLAGS.end;
    if let Some([low, high]) = out.get_mut(place) {
        let flags = without_foreign_keys(u16::from_le_bytes([*low, *high]));
        let end = if ends { Rows::END_OF_STATEMENT } else { 0 };
        [*low, *high] = (flags & !Rows::END_OF_STATEMENT | end).to_le_bytes();
    }
}

fn overwrite(out: &mut [u8], event: usize, place: Range<usize>, bytes: &[u8]) {
    if let Some(room) = out.get_mut(event + place.start..event + place.end) {
        room.copy_from_slice(bytes);
    }
}

// Joins writes of one row in a run: a row that is written repeatedly is written once, in its final state.
//
// ```text
// update 7: A → B │ update 8 … │ update 7: B → C │ update 7: C → D    becomes    update 7: A → D │ update 8 …
// ```
//
// An update is joined to an earlier write only if all of these are true:
//
// * The update's image before is equal, byte for byte, to the image after of the earlier write. So both are of the same row,
//   and nothing has changed the row in between.
// * The update leaves every key of the row unchanged, including parents' keys. So the update takes no value that another row of
//   the run has or had, and refers to no row that is inserted or deleted in the run. Its position among the other rows does not
//   matter.
// * No write in between uses a key of the row exclusively, or all keys of its table.
//
// Rows of a run become visible together, so no reader can have seen the omitted states. Transactions that commit one by one are
// not joined, because a refusal must name the row.

/// How a row's write is encoded in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write<'a> {
    /// As it is in the log.
    AsLogged,
    /// With another image after: the one of the last write that is joined to this write.
    EndsAs(&'a [u8]),
    /// Omitted, because it is joined to an earlier write.
    LeftOut,
}

/// The last write that used a key exclusively.
#[derive(Debug, Clone, Copy)]
struct Taken<'a> {
    /// The write's index in the run.
    at: usize,
    /// The last write of the row to which an update may be joined, with its index in the run; `None` if there is none.
    open: Option<(usize, Joinable<'a>)>,
}

/// Returns how each row of a run is encoded, in the order of [`parts`]. If the result is empty, all rows are written unchanged.
fn joined(batch: &Batch, rows: Range<usize>) -> Vec<Write<'_>> {
    if batch.commits == Commits::OneByOne || rows.len() < 2 {
        return Vec::new();
    }
    let mut taken: KeyMap<Taken<'_>> = KeyMap::default();
    let mut writes: Vec<Write<'_>> = Vec::with_capacity(rows.len());
    for part in parts(batch, rows) {
        for row in part.rows.clone() {
            let at = writes.len();
            writes.push(Write::AsLogged);
            let Some(joinable) = Joinable::of(&part, row) else {
                for access in part.changes.keys_of(row) {
                    if access.access == Access::Exclusive {
                        taken.insert(access.key, Taken { at, open: None });
                    }
                }
                continue;
            };
            let mut written_at = at;
            let table_taken_at = taken.get(&joinable.table).map(|taken| taken.at);
            let last = taken.get(&joinable.primary_key);
            let last = last.filter(|last| table_taken_at < Some(last.at));
            if let Some((place, last)) = last.and_then(|last| last.open)
                && last.after == joinable.before
                && last.map == joinable.map
            {
                writes[place] = Write::EndsAs(joinable.after);
                writes[at] = Write::LeftOut;
                written_at = place;
            }
            let open = Some((written_at, joinable));
            taken.insert(joinable.primary_key, Taken { at, open });
        }
    }
    match writes.contains(&Write::LeftOut) {
        true => writes,
        false => Vec::new(),
    }
}

/// A write that can be joined to an earlier write, or to which later writes can be joined.
#[derive(Debug, Clone, Copy)]
struct Joinable<'a> {
    /// The keys of the table as a whole, and of the row.
    table: KeyHash,
    primary_key: KeyHash,
    map: &'a [u8],
    /// The image before of an update; empty for an insert.
    before: &'a [u8],
    after: &'a [u8],
}

impl<'a> Joinable<'a> {
    /// Returns `None` for other writes. A write with an unknown key value is among them: it uses the table as a whole.
    fn of(part: &Part<'a>, row: usize) -> Option<Self> {
        let write = part.changes.rows.get(row)?;
        let after_at = write.joinable_after?.get();
        // If all keys of a write are known, the table is the first one, and the primary key the second.
        let [table, primary_key, ..] = part.changes.keys_of(row) else {
            return None;
        };
        if (table.access, primary_key.access) != (Access::Shared, Access::Exclusive) {
            return None;
        }
        let images = |range: Range<u32>| {
            let event = &part.event.event;
            event.get(range.start as usize..range.end as usize)
        };
        Some(Self {
            table: table.key,
            primary_key: primary_key.key,
            map: content(part.map),
            before: images(write.images.start..after_at)?,
            after: images(after_at..write.images.end)?,
        })
    }
}

// BINLOG statements: events in base64, which are encoded directly into the packet.

const HEAD: &[u8] = b"BINLOG '";
const TAIL: &[u8] = b"'";

/// Bytes of events per piece that is encoded while a statement is sent. A multiple of three, so that only the last piece is
/// padded.
const PIECE: usize = 48 << 10;

/// Returns the size in bytes of the statement that applies this many bytes of events.
pub(super) fn statement_bytes(events: usize) -> usize {
    HEAD.len() + encoded_len(events, true).unwrap_or(usize::MAX / 2) + TAIL.len()
}

/// Returns the statement that applies `events`, in pieces that are encoded when they are needed.
pub(super) fn statement_pieces(events: &[Bytes]) -> impl Iterator<Item = Vec<u8>> + Send + '_ {
    let mut slices = events.iter();
    let mut slice: &[u8] = &[];
    let encoded = iter::from_fn(move || {
        let mut raw = Vec::with_capacity(PIECE);
        while raw.len() < PIECE {
            if slice.is_empty() {
                let Some(next) = slices.next() else { break };
                slice = next;
            }
            let (now, later) = slice.split_at(slice.len().min(PIECE - raw.len()));
            raw.extend_from_slice(now);
            slice = later;
        }
        (!raw.is_empty()).then(|| STANDARD.encode(&raw).into_bytes())
    });
    let tail = iter::once(TAIL.to_vec());
    iter::once(HEAD.to_vec()).chain(encoded).chain(tail)
}

/// Appends the statement that applies `events`.
pub(super) fn append_binlog(events: &[u8], out: &mut Vec<u8>) {
    // Only a length near the end of the address space has no encoded length.
    let length = encoded_len(events.len(), true).unwrap_or(0);
    out.reserve(HEAD.len() + length + TAIL.len());
    out.extend_from_slice(HEAD);
    let start = out.len();
    out.resize(start + length, 0);
    if let Some(room) = out.get_mut(start..) {
        // Encoding fails only if the buffer is too small.
        let _ = STANDARD.encode_slice(events, room);
    }
    out.extend_from_slice(TAIL);
}

/// Returns how many bytes of events fit into a statement of this size.
pub(super) fn events_within(statement_bytes: usize) -> usize {
    (statement_bytes.saturating_sub(HEAD.len() + TAIL.len()) / 4) * 3
}

/// Returns the statement that describes the format of later events to a session: canonical events, without checksums. (The
/// format description event itself always has a checksum.)
pub(super) fn format_description() -> Vec<u8> {
    let description = FormatDescription {
        checksum: ChecksumAlgorithm::None,
        ..FormatDescription::built_in(FormatDescription::BUILT_IN_VERSION)
    };
    let event = description.encode(EventOrigin::default());
    let mut stamped = Vec::new();
    // Stamping fails only if the bytes are not an event.
    let _ = stamp(&event, 0, &mut stamped);
    let mut statement = Vec::new();
    append_binlog(&stamped, &mut statement);
    statement
}

#[cfg(test)]
mod binlog_statement_tests {
    use super::*;

    #[test]
    fn statement_sizes_are_predicted() {
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

#[cfg(test)]
mod tests;
