//! A reader that looks at the whole database again and again: what it sees must be what a prefix of the log made, and the
//! prefixes must never become shorter.

use std::sync::Arc;
use std::time::Duration;

use applier::backend::{Backend, Finished};
use applier::run::{CommitOrder, Progress, StageName};
use testkit::memory_database::{MemoryBackend, Row, Snapshot};

use crate::log::{Content, Log};

/// What readers of this database may look at.
pub(crate) fn look(memory: &MemoryBackend, order: CommitOrder) -> Snapshot {
    match (memory.finished(), order) {
        // Where commits are in the log's order, or versions in its places, every moment is good.
        (Finished::AtWrite, _) | (_, CommitOrder::Log) => memory.current(),
        (Finished::AtCommit, CommitOrder::Snapshot { .. }) => memory.at_last_prefix_point(),
    }
}

pub(crate) fn content(snapshot: &Snapshot, like: &Content) -> Content {
    let tables = like.keys();
    tables
        .map(|name| {
            let mut rows = snapshot.rows(name);
            rows.sort_unstable();
            (name.clone(), rows)
        })
        .collect()
}

pub(crate) struct Reader {
    pub(crate) memory: MemoryBackend,
    pub(crate) order: CommitOrder,
    pub(crate) log: Arc<Log>,
    pub(crate) window_rows: usize,
    pub(crate) seen: u64,
}

impl Reader {
    /// Looks until it is dropped.
    pub(crate) async fn poll(&mut self, progress: &Progress) {
        loop {
            tokio::time::sleep(Duration::from_millis(2)).await;
            self.look_once();
            // What is decoded and not committed fits into the window; the reader of the log has one more at hand.
            let largest = self.log.largest;
            let rows = |stage| progress.passed(stage).rows as usize;
            let held = rows(StageName::Received) - rows(StageName::Committed);
            assert!(
                held <= self.window_rows.max(largest) + largest,
                "the window is overfull"
            );
        }
    }

    pub(crate) fn look_once(&mut self) {
        let snapshot = look(&self.memory, self.order);
        let point = snapshot.point().0;
        assert!(point >= self.seen, "back from {} to {point}", self.seen);
        self.seen = point;
        let expected = &self.log.contents[point as usize];
        let seen = content(&snapshot, expected);
        for (table, rows) in expected {
            let (extra, missing) = (without(&seen[table], rows), without(rows, &seen[table]));
            assert!(
                seen[table] == *rows,
                "torn at {point}: {table} has {extra:?} and not {missing:?}"
            );
        }
    }
}

fn without(rows: &[Row], others: &[Row]) -> Vec<Row> {
    let mut others = others.to_vec();
    let mut rest = rows.to_vec();
    rest.retain(|row| match others.iter().position(|other| other == row) {
        Some(place) => {
            others.swap_remove(place);
            false
        }
        None => true,
    });
    rest
}
