//! The task that reads ahead: it reads transactions from the source, numbers them, and passes them to the driver while there is
//! room in the window.
//!
//! The reader does not stop at a barrier, since most later transactions use tables that the barrier leaves unchanged. Two rules
//! keep this correct:
//!
//! * When a barrier is passed on, the shapes that it changes are forgotten. So no later transaction is decoded with an outdated
//!   shape. The remaining shapes are valid both before and after the barrier (`Shapes`).
//! * The target is queried about a table only when every barrier passed on is committed. So no answer describes the table before
//!   such a barrier. Barriers run alone and in the log's order (`scheduler`), so the commit of the last one implies the commit of
//!   all. The answer cannot describe the table after a later barrier either, because that barrier is passed on only after the
//!   answer.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use spilling_bytes::long_work;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::backend::Backend;
use crate::decode::{Decoder, Parsed, ReadyTables};
use crate::run::options::{Options, WindowSize};
use crate::run::progress::{Progress, StageName, noted, rows_of};
use crate::run::{ApplyError, reach};
use crate::schema::{TableName, TableShape, distinct};
use crate::source::Source;
use crate::transaction::{Body, Changed, SchemaChange, Seq, Transaction};

/// How long the reader waits for the source before it checks whether the source is drained.
const IDLE: Duration = Duration::from_millis(100);

/// The reader's output.
#[derive(Debug)]
pub(super) enum Item {
    /// The next transaction of the log.
    Transaction(Arc<Transaction>, InFlight),
    /// The end of the log, or an error that ends the run.
    End(Result<(), ApplyError>),
}

/// Kept from a transaction's decoding to its commit: its room in the window.
#[derive(Debug)]
pub(super) struct InFlight {
    _place: Place,
    /// Signals the transaction's commit. Only for a barrier, since the reader may wait for it.
    pub(super) done: Option<oneshot::Sender<()>>,
}

pub(super) struct Reader<S, B> {
    source: S,
    backend: Arc<B>,
    reopen_for: Duration,
    decoder: Decoder,
    /// Shapes of the target's tables.
    shapes: Shapes,
    ready: ReadyTables,
    /// The target's transactions, and the transactions read so far.
    seen: GtidSet,
    window: Window,
    progress: Arc<Progress>,
    /// Channel to the driver.
    items: mpsc::Sender<Item>,
    /// Receives the signal that the last barrier passed on is committed.
    barrier: Option<oneshot::Receiver<()>>,
}

impl<S: Source, B: Backend> Reader<S, B> {
    pub(super) fn new(
        source: S,
        backend: Arc<B>,
        options: &Options,
        executed: GtidSet,
        progress: Arc<Progress>,
        items: mpsc::Sender<Item>,
    ) -> Self {
        Self {
            source,
            backend,
            reopen_for: options.reopen_for,
            decoder: Decoder::new(options.max_transaction_bytes as u64),
            shapes: Shapes::default(),
            ready: ReadyTables::default(),
            seen: executed,
            window: Window::new(options.window),
            progress,
            items,
            barrier: None,
        }
    }

    /// Reads until the source or the driver ends. `first` is the number of the first transaction.
    pub(super) async fn read(mut self, first: Seq) {
        let end = self.read_all(first).await;
        // The channel is closed if the driver has ended.
        let _ = self.items.send(Item::End(end)).await;
    }

    async fn read_all(&mut self, mut seq: Seq) -> Result<(), ApplyError> {
        while let Some(parsed) = self.next().await? {
            let missing = self.shapes.missing(parsed.tables());
            if !missing.is_empty() {
                if let Some(committed) = self.barrier.take()
                    && committed.await.is_err()
                {
                    return Ok(());
                }
                self.query(missing).await?;
            }
            let (ready, shapes) = (&mut self.ready, &self.shapes.known);
            let mut transaction = long_work::run(parsed.transaction.bytes, || {
                parsed.finish_with(ready, |name| shapes.get(name).cloned())
            })?;
            self.seen.add(transaction.gtid);
            transaction.seq = seq;
            seq = seq.next();
            self.progress.pass(StageName::Received, &transaction);
            if !self.pass_on(transaction).await {
                return Ok(());
            }
            self.progress.set_drained(self.source.drained().get());
        }
        self.progress.set_drained(true);
        Ok(())
    }

    /// Returns the next transaction that the target lacks; `None` at the end of the source.
    async fn next(&mut self) -> Result<Option<Parsed>, ApplyError> {
        let drained = self.source.drained();
        loop {
            // The call is never dropped, however long it takes: a repeated call may begin from the start, and never complete.
            let mut next = pin!(self.source.next());
            let framed = loop {
                match timeout(IDLE, next.as_mut()).await {
                    Ok(framed) => break framed?,
                    Err(_) => self.progress.set_drained(drained.get()),
                }
            };
            let Some(framed) = framed else {
                return Ok(None);
            };
            if !self.seen.contains(&framed.gtid) {
                let parsed = long_work::run(framed.payload.len(), || self.decoder.parse(&framed));
                return Ok(Some(parsed?));
            }
            self.progress.count(|counts| counts.skipped += 1);
        }
    }

    /// Queries unknown tables in one call. Do not drop the future and repeat the call: a query that takes long would never
    /// complete.
    async fn query(&mut self, missing: Vec<TableName>) -> Result<(), ApplyError> {
        let shapes = reach(self.reopen_for, || self.backend.tables(&missing)).await?;
        let remarks = self.progress.remarks();
        // A missing table is reported when its rows are decoded.
        for (name, shape) in missing.into_iter().zip(shapes) {
            let known = shape.as_ref();
            let keyless = known.is_some_and(|shape| shape.primary_key.is_none());
            if noted(&remarks.without_primary_key, &name, keyless) {
                tracing::warn!(
                    table = %name,
                    "a table without a primary key: its writes are applied one after the other"
                );
            }
            let engine = known.and_then(|shape| shape.without_transactions.as_deref());
            if noted(&remarks.without_transactions, &name, engine.is_some()) {
                tracing::warn!(
                    table = %name,
                    engine,
                    "a table whose engine has no transactions: each write is applied alone, and one that is ended in the middle stops \
                     the applier. At the primary: ALTER TABLE … ENGINE = InnoDB"
                );
            }
            self.shapes.put(name, shape);
        }
        Ok(())
    }

    /// Passes a transaction to the driver, after waiting for room in the window. Returns false if the driver has ended.
    async fn pass_on(&mut self, transaction: Transaction) -> bool {
        let (rows, bytes) = (rows_of(&transaction), transaction.bytes);
        if self.window.is_full_for(rows, bytes) {
            self.progress.count(|counts| counts.window_waits += 1);
        }
        let Ok(place) = self.window.enter(rows, bytes).await else {
            return false;
        };
        let (change, done) = match &transaction.body {
            Body::Rows(_) => (None, None),
            Body::Barrier(barrier) => {
                let (done, committed) = oneshot::channel();
                (Some((barrier.changes.clone(), committed)), Some(done))
            }
        };
        let in_flight = InFlight {
            _place: place,
            done,
        };
        let item = Item::Transaction(Arc::new(transaction), in_flight);
        if self.items.send(item).await.is_err() {
            return false;
        }
        if let Some((change, committed)) = change {
            self.shapes.forget(&change);
            self.backend.schema_changed(&change);
            self.barrier = Some(committed);
        }
        true
    }
}

// The known shapes of the target's tables.
//
// A shape is valid from its query until a barrier changes the table. When a barrier is passed on, the shapes of the tables that
// it names are forgotten, and the shapes that depend on them. A shape contains the tables to which its foreign keys refer, the
// tables that refer to it, and all tables that its cascades reach, directly or indirectly.
//
// A new or dropped foreign key connects two tables. The statement names both, or only the child. The parent's shape depends on
// the child, and so does the shape of every table whose cascades reached the child; all of them are forgotten. A new key extends
// the cascades of those tables whose cascades reach its parent, and the statement names the parent. So no outdated shape is kept.
// The shapes of the parent's other children, and of the parent's own parents, are unchanged.

/// The most tables in one query, when forgotten tables are queried together with a missing one. The cost is mostly per query, not
/// per table.
const MOST_AT_ONCE: usize = 64;

/// The known shapes, by table.
#[derive(Debug, Default)]
struct Shapes {
    known: HashMap<TableName, Arc<TableShape>>,
    /// Tables that were forgotten and not queried since. They will probably be needed again.
    forgotten: Vec<TableName>,
}

impl Shapes {
    /// Returns the tables to query if `wanted` are needed: none if all are known. Otherwise the unknown ones, and some forgotten
    /// tables with them.
    fn missing<'a>(&self, wanted: impl Iterator<Item = &'a TableName>) -> Vec<TableName> {
        let missing = distinct(wanted.filter(|name| !self.known.contains_key(name)));
        if missing.is_empty() {
            return missing;
        }
        let more = MOST_AT_ONCE.saturating_sub(missing.len());
        distinct(missing.iter().chain(self.forgotten.iter().take(more)))
    }

    /// Records the target's answer for a table.
    fn put(&mut self, name: TableName, shape: Option<TableShape>) {
        self.forgotten.retain(|forgotten| *forgotten != name);
        if let Some(shape) = shape {
            self.known.insert(name, Arc::new(shape));
        }
    }

    /// Forgets the shapes that a barrier may change.
    fn forget(&mut self, change: &SchemaChange) {
        // `None` means all tables.
        let changed = match change {
            SchemaChange::Nothing => return,
            SchemaChange::Anything => None,
            SchemaChange::Tables(changed) => Some(changed),
        };
        let is_gone = |name: &TableName, shape: &TableShape| {
            changed.is_none_or(|changed| {
                changed.iter().any(|changed| {
                    let mut reached = std::iter::once(name).chain(&shape.cascades_to);
                    let parents = shape.parents.iter().map(|parent| &parent.table);
                    let mut tied = parents.chain(&shape.children);
                    reached.any(|name| changed.names(name))
                        || !matches!(changed, Changed::Referred(_))
                            && tied.any(|name| changed.names(name))
                })
            })
        };
        let forgotten = &mut self.forgotten;
        self.known.retain(|name, shape| {
            let gone = is_gone(name, shape);
            if gone {
                forgotten.push(name.clone());
            }
            !gone
        });
    }
}

// The memory limit: rows and bytes of transactions that are decoded and not yet committed.

/// Bytes are counted in units of this size.
const UNIT: usize = 1024;

/// The free room for decoded transactions, in rows and in units of bytes.
#[derive(Debug)]
struct Window {
    free: [Arc<Semaphore>; 2],
    size: [usize; 2],
}

/// A transaction's part of the window. Dropping it releases the room.
type Place = [OwnedSemaphorePermit; 2];

impl Window {
    fn new(size: WindowSize) -> Self {
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let size = [size.rows, size.bytes.div_ceil(UNIT)].map(|size| size.clamp(1, most));
        Self {
            free: size.map(|size| Arc::new(Semaphore::new(size))),
            size,
        }
    }

    /// Returns a transaction's rows and units. If it is larger than the window, it occupies the whole window.
    fn parts(&self, rows: usize, bytes: usize) -> [usize; 2] {
        let [most_rows, most_units] = self.size;
        [
            rows.clamp(1, most_rows),
            bytes.div_ceil(UNIT).clamp(1, most_units),
        ]
    }

    /// Whether a transaction of this size would have to wait.
    fn is_full_for(&self, rows: usize, bytes: usize) -> bool {
        let mut all = self.free.iter().zip(self.parts(rows, bytes));
        all.any(|(free, part)| free.available_permits() < part)
    }

    /// Waits until there is room for a transaction. If it is larger than the window, it waits until the window is empty. The
    /// semaphores are never closed, so no error occurs in practice.
    async fn enter(&self, rows: usize, bytes: usize) -> Result<Place, AcquireError> {
        // The casts are lossless: the parts are at most the window's size, which has 32 bits.
        let [rows, units] = self.parts(rows, bytes).map(|part| part as u32);
        let [of_rows, of_units] = self.free.clone();
        Ok([
            of_rows.acquire_many_owned(rows).await?,
            of_units.acquire_many_owned(units).await?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_transaction_larger_than_the_window_passes_alone() {
        let window = Window::new(WindowSize {
            rows: 10,
            bytes: 4096,
        });
        let small = window.enter(3, 100).await.unwrap();
        assert!(window.is_full_for(1000, 10) && window.is_full_for(8, 10));
        assert!(window.is_full_for(1, 4000) && !window.is_full_for(7, 3000));
        drop(small);
        assert!(!window.is_full_for(1000, 1 << 40));
        let huge = window.enter(1000, 1 << 40).await.unwrap();
        assert!(window.is_full_for(0, 0));
        drop(huge);
        assert!(!window.is_full_for(10, 4096));
    }
}

#[cfg(test)]
mod shapes_tests {
    use super::*;
    use crate::schema::ParentShape;

    fn name(table: &str) -> TableName {
        TableName::new("d", table)
    }

    /// Returns the shapes of `grandparent <- parent <- child` with cascades, and of `other`, which is unrelated.
    fn family() -> Shapes {
        let shape =
            |table: &str, parents: &[&str], children: &[&str], cascades: &[&str]| TableShape {
                parents: parents
                    .iter()
                    .map(|parent| ParentShape {
                        columns: Vec::new(),
                        table: name(parent),
                        referenced: Vec::new(),
                    })
                    .collect(),
                children: children.iter().map(|child| name(child)).collect(),
                cascades_to: cascades.iter().map(|child| name(child)).collect(),
                ..TableShape::new(name(table), Vec::new())
            };
        let mut shapes = Shapes::default();
        for shape in [
            shape("grandparent", &[], &["parent"], &["parent", "child"]),
            shape("parent", &["grandparent"], &["child"], &["child"]),
            shape("child", &["parent"], &[], &[]),
            shape("other", &[], &[], &[]),
        ] {
            shapes.put(shape.name.clone(), Some(shape));
        }
        shapes
    }

    fn kept_after(change: &SchemaChange) -> String {
        let mut shapes = family();
        shapes.forget(change);
        let mut kept: Vec<&str> = shapes.known.keys().map(|name| &*name.table).collect();
        kept.sort_unstable();
        kept.join(" ")
    }

    #[test]
    fn unaffected_shapes_are_kept() {
        let tables = |names: &[&str]| {
            let changed = names.iter().map(|table| Changed::Table(name(table)));
            SchemaChange::Tables(changed.collect())
        };
        let new_child_of = |parent: &str| {
            let child = Changed::Table(name("new"));
            SchemaChange::Tables(vec![child, Changed::Referred(name(parent))])
        };
        for (change, kept) in [
            (SchemaChange::Nothing, "child grandparent other parent"),
            (SchemaChange::Anything, ""),
            (tables(&["new"]), "child grandparent other parent"),
            (tables(&["other"]), "child grandparent parent"),
            // A change of the child affects its parent, and all tables whose cascades reach it.
            (tables(&["child"]), "other"),
            (tables(&["PARENT"]), "other"),
            // The child's shape does not depend on its parent's parent.
            (tables(&["grandparent"]), "child other"),
            // A new child of `child`: the cascades of `child` and of its ancestors now reach further.
            (tables(&["new", "child"]), "other"),
            (new_child_of("child"), "other"),
            // The shapes of the parent's children do not depend on each other.
            (new_child_of("GRANDPARENT"), "child other parent"),
            (
                SchemaChange::Tables(vec![Changed::Table(TableName::new("e", "child"))]),
                "child grandparent other parent",
            ),
            (
                SchemaChange::Tables(vec![Changed::Schema("e".into())]),
                "child grandparent other parent",
            ),
            (SchemaChange::Tables(vec![Changed::Schema("D".into())]), ""),
        ] {
            assert_eq!(kept_after(&change), kept, "{change:?}");
        }
    }

    #[test]
    fn forgotten_shapes_are_queried_with_the_first_missing_one() {
        let mut shapes = family();
        assert!(shapes.missing([&name("child")].into_iter()).is_empty());
        shapes.forget(&SchemaChange::Tables(vec![Changed::Table(name("child"))]));
        assert!(shapes.missing([&name("other")].into_iter()).is_empty());
        let mut missing = shapes.missing([&name("child"), &name("child")].into_iter());
        assert_eq!(missing[0], name("child"));
        missing.sort();
        assert_eq!(
            missing,
            [name("child"), name("grandparent"), name("parent")]
        );
        // The target no longer has these tables. They are not queried again unless they are needed.
        for name in missing {
            shapes.put(name, None);
        }
        assert_eq!(
            shapes.missing([&name("parent")].into_iter()),
            [name("parent")]
        );
    }
}
