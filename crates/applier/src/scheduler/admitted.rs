//! What the scheduler keeps of a transaction: its keys until they are finished, and which of its rows wait.

use crate::keys::KeyHash;

/// A row that waits, and for how many of its keys.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    row: u32,
    keys: u32,
}

/// A transaction that is not committed.
#[derive(Debug, Default)]
pub(super) struct Admitted {
    /// It waits for everything before some transaction to be committed.
    pub(super) held: bool,
    rows: u32,
    /// The keys of all rows, in order.
    keys: Vec<KeyHash>,
    /// Where in `keys` each row ends, when rows are finished one by one.
    row_ends: Vec<u32>,
    /// So many of `keys` are finished.
    finished: usize,
    /// Rows that waited when it came in, in order.
    waiting: Vec<Waiting>,
    /// So many of `waiting`, from the first on, wait no longer.
    through: usize,
}

impl Admitted {
    /// Adds a row; returns its place.
    pub(super) fn add_row(&mut self) -> u32 {
        let row = self.rows;
        self.rows += 1;
        row
    }

    /// Adds a key of the latest row; `waits` is the row that waits for it.
    pub(super) fn add_key(&mut self, key: KeyHash, waits: Option<u32>) {
        self.keys.push(key);
        let Some(row) = waits else { return };
        match self.waiting.last_mut() {
            Some(last) if last.row == row => last.keys += 1,
            _ => self.waiting.push(Waiting { row, keys: 1 }),
        }
    }

    /// The latest row has all its keys.
    pub(super) fn end_row_of_keys(&mut self) {
        self.row_ends
            .push(u32::try_from(self.keys.len()).unwrap_or(u32::MAX));
    }

    pub(super) fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Rows before the first that waits.
    pub(super) fn safe_rows(&self) -> usize {
        self.waiting
            .get(self.through)
            .map_or(self.rows, |waiting| waiting.row) as usize
    }

    /// A row waits for one key less. Says whether more rows are safe than before.
    pub(super) fn release(&mut self, row: u32) -> bool {
        if let Ok(place) = self.waiting.binary_search_by_key(&row, |one| one.row) {
            self.waiting[place].keys = self.waiting[place].keys.saturating_sub(1);
        }
        let before = self.through;
        while self
            .waiting
            .get(self.through)
            .is_some_and(|one| one.keys == 0)
        {
            self.through += 1;
        }
        self.through > before
    }

    /// The keys that are finished when the first `upto` rows are.
    pub(super) fn finish_rows(&mut self, upto: usize) -> &[KeyHash] {
        let end = upto
            .min(self.row_ends.len())
            .checked_sub(1)
            .and_then(|last| self.row_ends.get(last))
            .map_or(0, |end| *end as usize);
        self.finish(end)
    }

    /// All keys that were not finished so far.
    pub(super) fn finish_all(&mut self) -> &[KeyHash] {
        self.finish(self.keys.len())
    }

    fn finish(&mut self, end: usize) -> &[KeyHash] {
        let from = self.finished;
        self.finished = from.max(end);
        self.keys.get(from..self.finished).unwrap_or_default()
    }
}
