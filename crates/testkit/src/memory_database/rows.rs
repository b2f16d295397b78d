//! All rows and all values of unique keys: the committed ones, and those that open transactions have written
//! and locked.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use applier::backend::SessionId;

use crate::memory_database::row::Row;

/// A key's bytes: table, index, values.
pub(super) type Key = Box<[u8]>;

/// Why a write is refused.
pub(super) type Complaint = &'static str;

pub(super) const LOCKED: Complaint =
    "an open transaction has written the row: it was not safe to write it";
pub(super) const DUPLICATE: Complaint = "a row with this key is there already";
pub(super) const MISSING: Complaint = "there is no such row";
pub(super) const DIFFERS: Complaint = "the row differs from its image in the log";

#[derive(Debug, Default)]
pub(super) struct Rows {
    committed: BTreeMap<Key, Row>,
    /// Locked keys: for each key, the session that locked it, and the row that the session wrote.
    uncommitted: HashMap<Key, (SessionId, Option<Row>)>,
}

impl Rows {
    pub(super) fn commit(&mut self, session: SessionId) {
        let written = self
            .uncommitted
            .extract_if(|_, (owner, _)| *owner == session);
        for (key, (_, row)) in written {
            match row {
                Some(row) => self.committed.insert(key, row),
                None => self.committed.remove(&key),
            };
        }
    }

    pub(super) fn roll_back(&mut self, session: SessionId) {
        self.uncommitted.retain(|_, (owner, _)| *owner != session);
    }

    pub(super) fn lose_uncommitted(&mut self) {
        self.uncommitted.clear();
    }

    /// All committed rows whose keys begin with `prefix`, in the order of their keys.
    pub(super) fn committed(&self, prefix: &[u8]) -> impl Iterator<Item = (&Key, &Row)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let rows = self.committed.range::<[u8], _>(from);
        rows.take_while(move |(key, _)| key.starts_with(prefix))
    }
}

/// Writes rows for one session.
#[derive(Debug)]
pub(super) struct Pen<'a> {
    pub(super) rows: &'a mut Rows,
    pub(super) session: SessionId,
}

impl Pen<'_> {
    /// Writes a key. `decide` receives the row that the session sees, and returns the new row.
    pub(super) fn write(
        &mut self,
        key: Key,
        decide: impl FnOnce(Option<&Row>) -> Result<Option<Row>, Complaint>,
    ) -> Result<(), Complaint> {
        let there = match self.rows.uncommitted.get(&key) {
            Some((owner, _)) if *owner != self.session => return Err(LOCKED),
            Some((_, row)) => row.as_ref(),
            None => self.rows.committed.get(&key),
        };
        let row = decide(there)?;
        self.rows.uncommitted.insert(key, (self.session, row));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_locked_and_invisible_until_their_commit() {
        let mut rows = Rows::default();
        let row = Row::of([Some(&b"a"[..])]);
        let [one, other] = [1, 2].map(SessionId);
        let write = |rows: &mut Rows, session, row: Option<&Row>| {
            let key = b"key".as_slice().into();
            Pen { rows, session }.write(key, |_| Ok(row.cloned()))
        };
        let seen = |rows: &Rows| rows.committed(b"k").count();
        write(&mut rows, one, Some(&row)).unwrap();
        assert_eq!(write(&mut rows, other, None), Err(LOCKED));
        assert_eq!(seen(&rows), 0);
        rows.commit(one);
        assert_eq!(seen(&rows), 1);
        for _ in 0..2 {
            write(&mut rows, other, None).unwrap();
            assert_eq!(seen(&rows), 1);
            rows.roll_back(other);
        }
        write(&mut rows, one, None).unwrap();
        rows.commit(one);
        assert_eq!(seen(&rows), 0);
    }
}
