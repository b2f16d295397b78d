//! Joins writes of one row in a run: a row that is written repeatedly is written once, in its final state.
//!
//! ```text
//! update 7: A → B │ update 8 … │ update 7: B → C │ update 7: C → D    becomes    update 7: A → D │ update 8 …
//! ```
//!
//! An update is joined to an earlier write only if
//!
//! * it begins with the image, byte for byte, that the other one leaves, so that it is the same row, and nothing has changed
//!   it in between;
//! * it leaves every key of the row unchanged, those of parents too. So it takes no value that another row of the run has or
//!   had, and refers to no row that appears or disappears in the run: its position among the other rows does not matter;
//! * no write in between takes a key of the row, or all keys of its table.
//!
//! Rows of a run become visible together, so no reader can have seen the omitted states. Transactions that commit
//! one by one are not joined: a refusal must name the row.

#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::batch::{Batch, Commits};
use crate::keys::{Access, KeyHash, KeyMap};
use crate::mysql::row_run::{NUMBER, Part, map_of, parts};

/// How a row's write appears in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write<'a> {
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
    /// The write to which an update of the same row may be joined; `None` where none may.
    open: Option<Open<'a>>,
}

/// A row that a later update may change at its earlier position.
#[derive(Debug, Clone, Copy)]
struct Open<'a> {
    /// The index of its write in the run.
    written_at: usize,
    /// The map of its table, without the table's number.
    map: &'a [u8],
    /// The image that the last write leaves.
    after: &'a [u8],
}

/// The form of each row of a run, in the order of [`parts`]. Empty: all of them are written unchanged.
pub(super) fn joined(batch: &Batch, rows: Range<usize>) -> Vec<Write<'_>> {
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
            let mut open = Open {
                written_at: at,
                map: joinable.map,
                after: joinable.after,
            };
            let table_taken_at = taken.get(&joinable.table).map(|taken| taken.at);
            let last = taken.get(&joinable.primary_key);
            let last = last.filter(|last| table_taken_at < Some(last.at));
            if let Some(last) = last.and_then(|last| last.open)
                && last.after == joinable.before
                && last.map == joinable.map
                && let Some(written) = writes.get_mut(last.written_at)
            {
                *written = Write::EndsAs(joinable.after);
                open.written_at = last.written_at;
                if let Some(write) = writes.get_mut(at) {
                    *write = Write::LeftOut;
                }
            }
            let open = Some(open);
            taken.insert(joinable.primary_key, Taken { at, open });
        }
    }
    match writes.contains(&Write::LeftOut) {
        true => writes,
        false => Vec::new(),
    }
}

/// A write that can be joined, or to which others can.
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
            map: map_of(part.changes, part.event)?.get(NUMBER.end..)?,
            before: images(write.images.start..after_at)?,
            after: images(after_at..write.images.end)?,
        })
    }
}
