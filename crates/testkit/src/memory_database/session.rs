//! A session of the in-memory database.

use std::ops::Range;
use std::sync::Arc;

use applier::backend::{Refusal, Session, SessionId, Then, WriteError};
use applier::batch::{Batch, Commits};
use applier::schema::TableName;
use applier::transaction::{Barrier, BarrierEnd, Body, Step, Transaction};
use binlog_format::event::{EventRef, EventType};
use binlog_format::events::{Query, Rows, TableId, TableMap};
use binlog_format::row_image::Columns;
use bytes::Bytes;

use crate::memory_database::rows::{Complaint, MISSING, Pen};
use crate::memory_database::table::{Table, UNREADABLE};
use crate::memory_database::{MemoryBackend, State};

/// One session.
#[derive(Debug)]
pub struct MemorySession {
    pub(super) backend: MemoryBackend,
    pub(super) id: SessionId,
}

/// An error, and where it occurred.
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

impl MemorySession {
    /// Runs `act`, unless a planned crash occurs before it. A crash may also occur after it. An error rolls the
    /// transaction back.
    fn call(&self, act: impl FnOnce(&mut State) -> Result<(), Wrong>) -> Result<(), WriteError> {
        let lost = || {
            Err(WriteError::Lost(
                "the in-memory database has crashed".to_owned(),
            ))
        };
        let mut state = self.backend.state();
        state.calls += 1;
        let call = state.calls;
        let crash = state.crash_at.take_if(|point| point.call == call);
        if crash.is_some_and(|point| !point.after) {
            state.crash();
        }
        if self.id.0 <= state.lost {
            return lost();
        }
        let result = act(&mut state);
        if crash.is_some() {
            state.crash();
            return lost();
        }
        result.map_err(|wrong| {
            state.rows.roll_back(self.id);
            WriteError::Refused(Box::new(Refusal {
                table: wrong.table,
                row: wrong.row,
                code: 0,
                message: wrong.complaint.to_owned(),
            }))
        })
    }
}

impl State {
    fn write(
        &mut self,
        session: SessionId,
        batch: &Batch,
        rows: Range<usize>,
    ) -> Result<(), Wrong> {
        let mut pen = Pen {
            rows: &mut self.rows,
            session,
        };
        for (changes, piece) in batch.pieces(rows) {
            let mut number = piece.start;
            let rows = changes.rows.get(piece).unwrap_or_default();
            for of_event in rows.chunk_by(|row, next| row.event == next.event) {
                let event = changes.events.get(of_event[0].event as usize);
                let event = event.ok_or(UNREADABLE)?;
                let mapped = changes.tables.get(event.table as usize).ok_or(UNREADABLE)?;
                let (_, columns) = table_map(&mapped.map)?;
                let mut decoded = rows_event(&event.event)?;
                let name = &mapped.shape.name;
                let table = self.tables.get(name);
                for row in of_event {
                    number += 1;
                    let images = row.images.start as usize..row.images.end as usize;
                    decoded.images = event.event.get(images).unwrap_or_default().into();
                    table
                        .ok_or(MISSING)
                        .and_then(|table| table.write_images(&mut pen, &decoded, &columns))
                        .map_err(|complaint| Wrong {
                            table: Some(name.clone()),
                            row: Some(number),
                            complaint,
                        })?;
                }
            }
        }
        Ok(())
    }

    fn commit(
        &mut self,
        session: SessionId,
        transactions: &[Arc<Transaction>],
    ) -> Result<(), Wrong> {
        for transaction in transactions {
            if u128::from(transaction.seq.0) != self.executed.count() + 1 {
                return Err("it is not the next transaction of the log".into());
            }
            self.executed.add(transaction.gtid);
        }
        self.rows.commit(session);
        Ok(())
    }

    fn run_barrier(&mut self, session: SessionId, barrier: &Barrier) -> Result<(), Wrong> {
        if let BarrierEnd::Xa(_) = barrier.end {
            return Err("the in-memory database has no prepared transactions (XA)".into());
        }
        for step in &barrier.steps {
            match step {
                Step::Rows(events) => self.write_events(session, events)?,
                Step::Statement(statement) => {
                    let query = EventRef::new(&statement.query).and_then(Query::decode);
                    let query = query.map_err(|_| UNREADABLE)?;
                    let statement = String::from_utf8_lossy(&query.statement).into_owned();
                    if let Some(shape) = self.after.get(&statement).cloned() {
                        self.put(shape);
                    }
                    self.statements.push(statement);
                }
            }
        }
        if barrier.end == BarrierEnd::Rollback {
            self.rows.roll_back(session);
        }
        Ok(())
    }

    /// Writes the rows of table maps and rows events from the log.
    fn write_events(&mut self, session: SessionId, events: &[Bytes]) -> Result<(), Wrong> {
        let mut pen = Pen {
            rows: &mut self.rows,
            session,
        };
        let mut tables: Vec<(TableId, &Table, Columns)> = Vec::new();
        for bytes in events {
            let event = EventRef::new(bytes).map_err(|_| UNREADABLE)?;
            if event.event_type() == EventType::TableMap {
                let (map, columns) = table_map(bytes)?;
                let name = TableName {
                    schema: String::from_utf8_lossy(&map.schema).into(),
                    table: String::from_utf8_lossy(&map.table).into(),
                };
                let table = self.tables.get(&name).ok_or(MISSING)?;
                tables.retain(|(id, ..)| *id != map.table_id);
                tables.push((map.table_id, table, columns));
                continue;
            }
            let rows = rows_event(bytes)?;
            let of_table = tables.iter().find(|(id, ..)| *id == rows.table_id);
            let (_, table, columns) = of_table.ok_or(UNREADABLE)?;
            table
                .write_images(&mut pen, &rows, columns)
                .map_err(|complaint| Wrong {
                    table: Some(table.shape.name.clone()),
                    row: None,
                    complaint,
                })?;
        }
        Ok(())
    }
}

fn table_map(event: &[u8]) -> Result<(TableMap<'_>, Columns), Complaint> {
    let map = EventRef::new(event).and_then(TableMap::decode);
    let map = map.map_err(|_| UNREADABLE)?;
    let columns = Columns::of(&map).map_err(|_| UNREADABLE)?;
    Ok((map, columns))
}

fn rows_event(event: &[u8]) -> Result<Rows<'_>, Complaint> {
    let rows = EventRef::new(event).and_then(Rows::decode);
    rows.map_err(|_| UNREADABLE)
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
        _: impl FnMut() + Send,
    ) -> Result<(), WriteError> {
        self.call(|state| {
            state.write(self.id, batch, rows)?;
            match then {
                Then::StayOpen => Ok(()),
                Then::Commit | Then::InTurn(_) => state.commit(self.id, batch.transactions()),
            }
        })
    }

    async fn apply(&mut self, batch: &Arc<Batch>, from: usize) -> (usize, Result<(), WriteError>) {
        let mut committed = 0;
        let result = self.call(|state| {
            for transaction in &batch.transactions()[from..] {
                let alone = vec![Arc::clone(transaction)];
                let alone = Batch::new(batch.seq, Commits::OneByOne, alone);
                state.write(self.id, &alone, 0..alone.rows())?;
                state.commit(self.id, alone.transactions())?;
                committed += 1;
            }
            Ok(())
        });
        (committed, result)
    }

    async fn run_barrier(&mut self, transaction: &Arc<Transaction>) -> Result<(), WriteError> {
        self.call(|state| {
            match &transaction.body {
                Body::Barrier(barrier) => state.run_barrier(self.id, barrier)?,
                Body::Rows(_) => return Err("rows are no barrier".into()),
            }
            state.commit(self.id, std::slice::from_ref(transaction))
        })
    }

    async fn roll_back(&mut self) -> Result<(), WriteError> {
        self.call(|state| {
            state.rows.roll_back(self.id);
            Ok(())
        })
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        self.backend.state().rows.roll_back(self.id);
    }
}
