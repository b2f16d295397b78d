//! A session of the in-memory database.

use std::ops::Range;
use std::sync::Arc;

use binlog_format::event::{EventRef, EventType};
use binlog_format::events::{Query, Rows, TableId, TableMap};
use binlog_format::row_image::{Columns, RowReader};
use bytes::Bytes;

use crate::memory_database::Shared;
use crate::memory_database::crash::{Fate, locked};
use crate::memory_database::table::{Pen, Table};
use crate::memory_database::versions::{Complaint, Key, UNCOMMITTED, Writer};
use applier::backend::{Finished, Refusal, Session, SessionId, Then, WriteError};
use applier::batch::Batch;
use applier::schema::TableName;
use applier::transaction::{Barrier, BarrierEnd, Body, RowChanges, Step, Transaction};

/// One session, with the transaction that is open in it.
#[derive(Debug)]
pub struct MemorySession {
    pub(super) shared: Arc<Shared>,
    pub(super) id: SessionId,
    /// The database's life in which it was opened.
    pub(super) life: u64,
    /// What the open transaction has written.
    pub(super) open: Option<Open>,
}

#[derive(Debug)]
pub(super) struct Open {
    stamp: u64,
    keys: Vec<Key>,
    /// So many of its rows are written.
    rows: usize,
}

/// What is wrong, and where.
struct Wrong {
    table: Option<TableName>,
    row: Option<usize>,
    complaint: Complaint,
}

impl From<Complaint> for Wrong {
    fn from(complaint: Complaint) -> Self {
        Self {
            table: None,
            row: None,
            complaint,
        }
    }
}

const UNREADABLE: Complaint = Complaint::CannotDo("the transaction's events cannot be read");

impl MemorySession {
    /// Does `act`, unless the database crashes before; it may crash behind, too.
    async fn call<T>(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        if !self.shared.options.call_takes.is_zero() {
            tokio::time::sleep(self.shared.options.call_takes).await;
        }
        let fate = self.shared.crashes.next();
        if fate == Fate::CrashBefore {
            self.shared.crash();
        }
        let result = self.within_life(act);
        if fate == Fate::CrashBehind {
            self.shared.crash();
            self.open = None;
            return Err(lost());
        }
        result
    }

    fn within_life<T>(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let shared = Arc::clone(&self.shared);
        let life = shared.crashes.life();
        if *life != self.life {
            self.open = None;
            return Err(lost());
        }
        act(self)
    }

    fn write_rows(&mut self, batch: &Batch, rows: Range<usize>) -> Result<(), Wrong> {
        let Some(first) = batch
            .transactions()
            .first()
            .filter(|_| batch.barrier().is_none())
        else {
            return Err(Complaint::CannotDo("a barrier has no rows to write one by one").into());
        };
        let writer = self.begin(first);
        let written = self.open.as_ref().map_or(0, |open| open.rows);
        for (changes, piece) in batch.pieces(rows.start.max(written)..rows.end) {
            let mut row = piece.start;
            while row < piece.end {
                row = self.write_event(changes, row, piece.end, writer)?;
            }
        }
        Ok(())
    }

    /// Writes rows from `first` on, up to `end` or the end of their event.
    fn write_event(
        &mut self,
        changes: &RowChanges,
        first: usize,
        end: usize,
        writer: Writer,
    ) -> Result<usize, Wrong> {
        let place = changes.rows.get(first).ok_or(UNREADABLE)?.event;
        let event = changes.events.get(place as usize).ok_or(UNREADABLE)?;
        let mapped = changes.tables.get(event.table as usize).ok_or(UNREADABLE)?;
        let name = &mapped.shape.name;
        let wrong = |row: usize, complaint| Wrong {
            table: Some(name.clone()),
            row: Some(row + 1),
            complaint,
        };
        let table = self
            .shared
            .table(name)
            .ok_or_else(|| wrong(first, Complaint::Missing))?;
        let columns = columns_of(&mapped.map).ok_or_else(|| wrong(first, UNREADABLE))?;
        let rows = EventRef::new(&event.event).and_then(Rows::decode);
        let mut rows = rows.map_err(|_| wrong(first, UNREADABLE))?;
        for (at, row) in changes.rows.iter().enumerate().take(end).skip(first) {
            if row.event != place {
                return Ok(at);
            }
            let images = row.images.start as usize..row.images.end as usize;
            rows.images = event.event.get(images).unwrap_or_default().into();
            self.write_images(&table, &rows, &columns, writer)
                .map_err(|complaint| wrong(at, complaint))?;
            if let Some(open) = &mut self.open {
                open.rows += 1;
            }
        }
        Ok(end)
    }

    /// Writes all rows of an event.
    fn write_images(
        &mut self,
        table: &Table,
        rows: &Rows<'_>,
        columns: &Columns,
        writer: Writer,
    ) -> Result<(), Complaint> {
        let Some(open) = &mut self.open else {
            return Err(UNREADABLE);
        };
        let mut pen = Pen {
            versions: &self.shared.versions,
            writer,
            written: &mut open.keys,
        };
        let mut reader = RowReader::new(rows, columns).map_err(|_| UNREADABLE)?;
        while let Some(row) = reader.next_row().map_err(|_| UNREADABLE)? {
            table.write(&mut pen, &row)?;
        }
        Ok(())
    }

    /// Begins a transaction, if it is not open.
    fn begin(&mut self, transaction: &Transaction) -> Writer {
        let stamp = match self.shared.options.finished {
            Finished::AtWrite => transaction.seq.0,
            Finished::AtCommit => UNCOMMITTED,
        };
        let shared = &self.shared;
        self.open.get_or_insert_with(|| Open {
            stamp,
            keys: Vec::new(),
            rows: locked(&shared.kept).remove(&stamp).unwrap_or_default(),
        });
        Writer {
            session: self.id,
            stamp,
            horizon: self.shared.horizon(),
        }
    }

    fn commit_now(&mut self, transactions: &[Arc<Transaction>]) {
        let keys = self.open.take().map(|open| open.keys).unwrap_or_default();
        let shared = &self.shared;
        locked(&shared.commits).commit(transactions, |stamp| {
            for key in &keys {
                shared.versions.commit(key, stamp);
            }
        });
    }

    /// The open transaction begins again, or never. Where rows have versions, those that it has written stay: later ones
    /// may have gone on from them, and nobody sees them before it is committed.
    fn take_back(&mut self) {
        let Some(open) = self.open.take() else { return };
        if open.stamp == UNCOMMITTED {
            self.undo(&open);
        } else {
            locked(&self.shared.kept).insert(open.stamp, open.rows);
        }
    }

    /// What runs alone leaves nothing behind.
    fn give_up(&mut self) {
        if let Some(open) = self.open.take() {
            self.undo(&open);
        }
    }

    fn undo(&self, open: &Open) {
        for key in &open.keys {
            self.shared.versions.take_back(key, open.stamp);
        }
    }

    /// An error takes the transaction back.
    fn or_take_back(&mut self, result: Result<(), Wrong>) -> Result<(), WriteError> {
        result.map_err(|wrong| {
            self.take_back();
            WriteError::Refused(Box::new(Refusal {
                table: wrong.table,
                row: wrong.row,
                code: 0,
                words: wrong.complaint.words().to_owned(),
            }))
        })
    }

    fn do_barrier(&mut self, transaction: &Transaction, barrier: &Barrier) -> Result<(), Wrong> {
        if let BarrierEnd::Xa(_) = barrier.end {
            let words = "the in-memory database has no prepared transactions (XA)";
            return Err(Complaint::CannotDo(words).into());
        }
        let writer = self.begin(transaction);
        for step in &barrier.steps {
            match step {
                Step::Rows(events) => self.write_raw_events(events, writer)?,
                Step::Statement(statement) => {
                    let query = EventRef::new(&statement.query).and_then(Query::decode);
                    let query = query.map_err(|_| UNREADABLE)?;
                    self.shared
                        .run_statement(&String::from_utf8_lossy(&query.statement));
                }
            }
        }
        if barrier.end == BarrierEnd::Rollback {
            self.give_up();
        }
        Ok(())
    }

    /// Writes the rows of table maps and rows events as they stand in the log.
    fn write_raw_events(&mut self, events: &[Bytes], writer: Writer) -> Result<(), Wrong> {
        let mut tables: Vec<(TableId, Table, Columns)> = Vec::new();
        for bytes in events {
            let event = EventRef::new(bytes).map_err(|_| UNREADABLE)?;
            if event.event_type() == EventType::TableMap {
                let map = TableMap::decode(event).map_err(|_| UNREADABLE)?;
                let name = TableName {
                    schema: String::from_utf8_lossy(&map.schema).into(),
                    table: String::from_utf8_lossy(&map.table).into(),
                };
                let table = self.shared.table(&name).ok_or(Complaint::Missing)?;
                let columns = Columns::of(&map).map_err(|_| UNREADABLE)?;
                tables.retain(|(id, ..)| *id != map.table_id);
                tables.push((map.table_id, table, columns));
                continue;
            }
            let rows = Rows::decode(event).map_err(|_| UNREADABLE)?;
            let of_table = tables.iter().find(|(id, ..)| *id == rows.table_id);
            let (_, table, columns) = of_table.ok_or(UNREADABLE)?;
            self.write_images(table, &rows, columns, writer)
                .map_err(|complaint| Wrong {
                    table: Some(table.shape.name.clone()),
                    row: None,
                    complaint,
                })?;
        }
        Ok(())
    }
}

impl Session for MemorySession {
    fn id(&self) -> SessionId {
        self.id
    }

    async fn write(
        &mut self,
        batch: &Arc<Batch>,
        rows: Range<usize>,
        then: Then,
    ) -> Result<(), WriteError> {
        self.call(|session| {
            let result = session.write_rows(batch, rows);
            session.or_take_back(result)?;
            if then == Then::Commit {
                session.commit_now(batch.transactions());
            }
            Ok(())
        })
        .await
    }

    async fn commit(&mut self, batch: &Arc<Batch>) -> Result<(), WriteError> {
        self.call(|session| {
            session.commit_now(batch.transactions());
            Ok(())
        })
        .await
    }

    async fn apply(&mut self, batch: &Arc<Batch>, from: usize) -> (usize, Result<(), WriteError>) {
        let mut committed = 0;
        let result = self
            .call(|session| {
                for transaction in &batch.transactions()[from..] {
                    let alone = Batch::alone(batch.seq, Arc::clone(transaction));
                    let result = session.write_rows(&alone, 0..alone.rows());
                    session.or_take_back(result)?;
                    session.commit_now(alone.transactions());
                    committed += 1;
                }
                Ok(())
            })
            .await;
        (committed, result)
    }

    async fn run_barrier(&mut self, transaction: &Arc<Transaction>) -> Result<(), WriteError> {
        self.call(|session| {
            let result = match &transaction.body {
                Body::Barrier(barrier) => session.do_barrier(transaction, barrier),
                Body::Rows(_) => Err(Complaint::CannotDo("rows are no barrier").into()),
            };
            if result.is_err() {
                session.give_up();
            }
            session.or_take_back(result)?;
            session.commit_now(std::slice::from_ref(transaction));
            Ok(())
        })
        .await
    }

    async fn roll_back(&mut self) -> Result<(), WriteError> {
        self.call(|session| {
            session.take_back();
            Ok(())
        })
        .await
    }
}

impl Drop for MemorySession {
    /// What is open ends with its session.
    fn drop(&mut self) {
        let _ = self.within_life(|session| {
            session.take_back();
            Ok(())
        });
        self.shared.close_session();
    }
}

fn columns_of(map: &Bytes) -> Option<Columns> {
    let map = TableMap::decode(EventRef::new(map).ok()?).ok()?;
    Columns::of(&map).ok()
}

fn lost() -> WriteError {
    WriteError::Lost("the in-memory database has crashed".to_owned())
}
