//! Some rows of a batch as events that one BINLOG statement applies. Pure.
//!
//! The server opens a statement's tables at its first rows event, so all table maps precede it. It ends the
//! statement at the event with the end flag, which only the last one has.
//!
//! # Foreign keys
//!
//! A source that carries out cascades above its storage engine logs the rows that they change ([`Rows::CASCADES_LOGGED`]), and
//! its rows are applied without foreign keys: no checks, and no cascades. The source has checked them, and its log contains the
//! effects of its cascades, so that its rows alone, in their order, reproduce its data. With foreign keys they do not always.
//! Where a statement changes a child's row both directly and by a cascade, both are in one event. It precedes the parent's row
//! and lacks the flag that admits the cascade's row (1452). And a REPLACE of a parent's row, which keeps its children
//! there, would delete them here. The cost: a target that lacks a parent's row does not report it when a child arrives; rows
//! to change or delete are still searched.

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

/// Offset of the type in an event's header.
const TYPE: usize = 4;
/// Offset of the size in an event's header.
const SIZE: Range<usize> = 9..13;
/// Offset of the table's number in its map and in rows events.
const NUMBER: Range<usize> = HEADER_LEN..HEADER_LEN + 6;
/// Offset of the flags of a rows event.
const FLAGS: Range<usize> = NUMBER.end..NUMBER.end + 2;

/// The first rows of `rows` that fit into one BINLOG statement of at most `bound` bytes of events, table maps aside: at
/// least one row. Rows events with different flags (`foreign_key_checks` and the like) do not share a statement,
/// because the server reads only those of the first one; nor do rows that need different sessions.
pub(super) fn first_run(batch: &Batch, rows: Range<usize>, bound: usize) -> Range<usize> {
    let start = rows.start;
    // A row without an event is left out by its encoding; advancing past it ends every loop over runs.
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
        // The event does not fit as a whole: as many of its rows as do.
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
/// events. Complete ones are copied unchanged, of others the header and the images; writes of one row that can be
/// [joined] are. Tables are renumbered: transactions of different servers may be neighbours, and use
/// one number for different tables.
pub(super) fn append_run(batch: &Batch, rows: Range<usize>, out: &mut Vec<u8>) {
    // By their maps; most statements have a few tables, and one with hundreds is slow anyway.
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

/// Appends some rows of an event, all as they are logged where there are no `writes`.
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
    // No larger than the rows of the run in the log, which are in memory.
    let size = (out.len() - begin) as u32;
    overwrite(out, begin, SIZE, &size.to_le_bytes());
}

/// The events of one row (its table's map, the head of its rows event, its images), without a copy of the images: for a row
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
    // Not larger than the event that it is a part of.
    let size = (head.len() + images.len()) as u32;
    overwrite(&mut head, 0, SIZE, &size.to_le_bytes());
    set_flags(&mut head, 0, true);
    let images = event.event.slice_ref(images);
    vec![part.map.clone(), head.into(), images]
}

/// The session that a row needs.
pub(super) fn context_of(batch: &Batch, row: usize) -> Option<&RowContext> {
    let piece = batch.pieces(row..row + 1).next();
    piece.map(|(changes, _)| &changes.context)
}

/// Bytes of a row's images.
pub(super) fn image_bytes(batch: &Batch, row: usize) -> usize {
    let piece = batch.pieces(row..row + 1).next();
    piece.map_or(0, |(changes, rows)| images(changes, rows.start).len())
}

/// The events of a statement (table maps, then a source's rows events) as those of one or more BINLOG statements of
/// at most about `bound` bytes, each with the maps and an end flag of its own. Rows events are not copied.
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

/// Rows of one event, among some rows of a batch.
struct Part<'a> {
    changes: &'a RowChanges,
    event: &'a RowsEvent,
    /// The map of their table.
    map: &'a Bytes,
    /// Their index range within their transaction.
    rows: Range<usize>,
}

/// Some rows of a batch, event by event.
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

/// A table map without its header and the table's number.
fn content(map: &Bytes) -> &[u8] {
    map.get(NUMBER.end..).unwrap_or_default()
}

/// Writes the number of an event's table, from 1 on, into the event or map at this offset.
fn set_number(out: &mut [u8], event: usize, number: usize) {
    let number = (number as u64).to_le_bytes();
    overwrite(out, event, NUMBER, &number[..NUMBER.end - NUMBER.start]);
}

/// Range of a row's images in its event.
fn images(changes: &RowChanges, row: usize) -> Range<usize> {
    changes.rows.get(row).map_or(0..0, |row| {
        row.images.start as usize..row.images.end as usize
    })
}

/// The flags of a rows event that apply to its whole statement.
fn statement_flags(event: &RowsEvent) -> u16 {
    let flags = event.event.get(FLAGS);
    let flags = flags.and_then(|flags| flags.try_into().ok());
    let flags = u16::from_le_bytes(flags.unwrap_or_default());
    without_foreign_keys(flags) & !Rows::END_OF_STATEMENT
}

/// The flags for applying rows that have these in the log: see the module.
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
// An update is joined to an earlier write only if
//
// * it begins with the image, byte for byte, that the other one leaves, so that it is the same row, and nothing has changed
//   it in between;
// * it leaves every key of the row unchanged, those of parents too. So it takes no value that another row of the run has or
//   had, and refers to no row that appears or disappears in the run: its position among the other rows does not matter;
// * no write in between takes a key of the row, or all keys of its table.
//
// Rows of a run become visible together, so no reader can have seen the omitted states. Transactions that commit
// one by one are not joined: a refusal must name the row.

/// How a row's write appears in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write<'a> {
    /// It is written as it is in the log.
    AsLogged,
    /// With another image after: that of the last write joined to it.
    EndsAs(&'a [u8]),
    /// Omitted: joined to an earlier one.
    LeftOut,
}

/// The last write that took a key.
#[derive(Debug, Clone, Copy)]
struct Taken<'a> {
    /// Its index in the run.
    at: usize,
    /// The last write of the row to which an update may be joined, with its index in the run; `None` where none may.
    open: Option<(usize, Joinable<'a>)>,
}

/// The form of each row of a run, in the order of [`parts`]. Empty: all of them are written unchanged.
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

/// A write that can be joined, or to which others can.
#[derive(Debug, Clone, Copy)]
struct Joinable<'a> {
    /// Its table as a whole, and its row.
    table: KeyHash,
    primary_key: KeyHash,
    map: &'a [u8],
    /// The image before, of an update; empty for an insert.
    before: &'a [u8],
    after: &'a [u8],
}

impl<'a> Joinable<'a> {
    /// `None` also where a key of the table is unknown: such a write takes the table as a whole.
    fn of(part: &Part<'a>, row: usize) -> Option<Self> {
        let write = part.changes.rows.get(row)?;
        let after_at = write.joinable_after?.get();
        // A write with known keys has its table first, and then its primary key.
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

// BINLOG statements: events in base64, straight into the packet.

const HEAD: &[u8] = b"BINLOG '";
const TAIL: &[u8] = b"'";

/// Bytes of events encoded per piece while a statement is sent: a multiple of three, so that only the last piece is
/// padded.
const PIECE: usize = 48 << 10;

/// Size in bytes of the statement that applies so many bytes of events.
pub(super) fn statement_bytes(events: usize) -> usize {
    HEAD.len() + encoded_len(events, true).unwrap_or(usize::MAX / 2) + TAIL.len()
}

/// The statement that applies `events`, in pieces that are created lazily.
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
    // Only a length near the end of the address space has no encoded one.
    let length = encoded_len(events.len(), true).unwrap_or(0);
    out.reserve(HEAD.len() + length + TAIL.len());
    out.extend_from_slice(HEAD);
    let start = out.len();
    out.resize(start + length, 0);
    if let Some(room) = out.get_mut(start..) {
        // Fails only if the buffer is too small.
        let _ = STANDARD.encode_slice(events, room);
    }
    out.extend_from_slice(TAIL);
}

/// Bytes of events that fit into a statement of this size.
pub(super) fn events_within(statement_bytes: usize) -> usize {
    (statement_bytes.saturating_sub(HEAD.len() + TAIL.len()) / 4) * 3
}

/// The statement that describes the format of later events to a session: canonical events, without
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
