//! A reader that repeatedly reads the whole database. Each result must correspond to a prefix of the log, and the
//! prefixes must never become shorter.

use std::sync::Arc;
use std::time::Duration;

use applier::run::{Progress, StageName};
use testkit::memory_database::{MemoryBackend, Row};

use crate::log::Log;

pub(crate) struct Reader {
    pub(crate) memory: MemoryBackend,
    pub(crate) log: Arc<Log>,
    pub(crate) window_rows: usize,
    /// The number of committed transactions at the reader's last read.
    pub(crate) seen: usize,
}

impl Reader {
    /// Reads repeatedly until the future is dropped.
    pub(crate) async fn poll(&mut self, progress: &Progress) {
        loop {
            tokio::time::sleep(Duration::from_millis(2)).await;
            self.look_once();
            // Decoded and uncommitted transactions must fit into the window. The log's reader has one more
            // transaction.
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
        let point = self.memory.committed() as usize;
        assert!(point >= self.seen, "back from {} to {point}", self.seen);
        self.seen = point;
        for (table, rows) in &self.log.contents[point] {
            let mut seen = self.memory.rows(table);
            seen.sort_unstable();
            let (extra, missing) = (without(&seen, rows), without(rows, &seen));
            assert!(
                seen == *rows,
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
