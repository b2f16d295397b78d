//! Which row of a transaction the server refuses: found by applying the rows one by one, in a transaction that is rolled
//! back. Only after a failure.

use std::ops::Range;

use mysql_link::{Ran, ServerError, server_code};

use crate::backend::WriteError;
use crate::mysql::outcome::{Failing, code, failing, refused, write_error};
use crate::mysql::session::{FLUSH_AT, Mark, MysqlSession};
use crate::schema::TableName;
use crate::transaction::{Body, RowChanges, Transaction};

impl MysqlSession {
    /// What to say of a failure among some rows of a transaction that has been rolled back.
    pub(super) async fn refusal(
        &mut self,
        transaction: &Transaction,
        suspects: Range<usize>,
        error: &ServerError,
    ) -> WriteError {
        if failing(error) != Failing::Refused {
            return write_error(error);
        }
        let Body::Rows(changes) = &transaction.body else {
            return write_error(error);
        };
        // It was sent alone, and would be sent once more for nothing.
        if error.code == server_code::PACKET_TOO_LARGE && suspects.len() == 1 {
            let table = table_of(changes, suspects.clone());
            return refused(error, table, Some(suspects.start));
        }
        let found = self
            .first_refused(transaction, changes, suspects.clone())
            .await;
        let taken_back = self.rolled_back().await;
        if let (_, Err(lost)) | (Err(lost), _) = (&found, &taken_back) {
            return lost.clone();
        }
        let error = &self.in_full(error).await;
        match found {
            Ok(Some((row, same))) if same.code == error.code => {
                refused(error, table_of(changes, row..row + 1), Some(row))
            }
            // It went through this time, or failed elsewhere: one of these rows it was.
            _ => refused(
                error,
                table_of(changes, suspects.clone()),
                Some(suspects.start),
            ),
        }
    }

    /// The error in more words, where the server tells its error log more than its client: the lack of a right on a table,
    /// and columns that differ. That log is read if the account may.
    async fn in_full(&mut self, error: &ServerError) -> ServerError {
        let mut error = error.clone();
        if error.code != code::UNKNOWN_ERROR {
            return error;
        }
        let query = format!(
            "SELECT data FROM performance_schema.error_log WHERE thread_id = {} AND subsystem = 'Repl' \
             ORDER BY logged DESC LIMIT 1",
            self.connection.id()
        );
        let released = self.connection.execute("SET gtid_next='AUTOMATIC'").await;
        let logged = match released {
            Ok(_) => self.connection.query(query).await.ok(),
            Err(_) => None,
        };
        let logged = logged
            .as_ref()
            .and_then(|answer| answer.first()?.text_at(0));
        error.message = match logged {
            Some(words) => format!("{} ({words})", error.message),
            None => format!(
                "{} (the server's error log says more; most often the account lacks INSERT, UPDATE or DELETE on the table, \
                 or its columns are of other types than the source's)",
                error.message
            ),
        };
        // The question has begun a transaction. A session that is lost is noticed by the next one who uses it.
        let _ = self.connection.execute("ROLLBACK").await;
        error
    }

    /// The first row that fails by itself, and how.
    async fn first_refused(
        &mut self,
        transaction: &Transaction,
        changes: &RowChanges,
        suspects: Range<usize>,
    ) -> Result<Option<(usize, ServerError)>, WriteError> {
        self.script.clear();
        self.script.begin(0, transaction, false);
        let mut at = 0;
        while at < suspects.end {
            let rows = if at < suspects.start {
                at..suspects.start
            } else {
                at..at + 1
            };
            at = self.script.rows(0, changes, rows, self.events_bound).end;
            if at == suspects.end || self.script.statements.bytes() > FLUSH_AT {
                let Ran { done, error } = self.run_script().await?;
                if let Some(error) = error {
                    let row = match self.script.marks.get(done) {
                        Some(Mark::Rows { rows, .. }) if rows.start >= suspects.start => rows.start,
                        _ => return Ok(None),
                    };
                    return Ok(Some((row, error)));
                }
                self.script.clear();
            }
        }
        Ok(None)
    }
}

/// The table of some rows, if they have one in common.
pub(super) fn table_of(changes: &RowChanges, rows: Range<usize>) -> Option<TableName> {
    let mut tables = changes.rows.get(rows)?.iter().map(|row| {
        let event = changes.events.get(row.event as usize)?;
        Some(&changes.tables.get(event.table as usize)?.shape.name)
    });
    let first = tables.next()??;
    tables
        .all(|table| table == Some(first))
        .then(|| first.clone())
}
