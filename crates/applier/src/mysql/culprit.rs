//! Finds the row that the server refuses, after a transaction has failed: applies the rows one by one in a transaction that
//! is rolled back.

use std::ops::Range;

use mysql_link::{QueryResult, Ran, ServerError, server_code};

use crate::backend::WriteError;
use crate::batch::Batch;
use crate::mysql::outcome::{Failing, code, failing, refused, write_error};
use crate::mysql::session::{FLUSH_AT, Mark, MysqlSession};

impl MysqlSession {
    /// Returns the refusal for a failure among some rows of a transaction of a batch. The transaction was rolled back.
    pub(super) async fn refusal(
        &mut self,
        batch: &Batch,
        transaction: usize,
        suspects: Range<usize>,
        error: &ServerError,
    ) -> WriteError {
        if failing(error) != Failing::Refused {
            return write_error(error);
        }
        // Rows are reported by their position in the transaction.
        let before = batch.rows_of(transaction).start;
        let told = |error: &ServerError, rows: Range<usize>| {
            let place = rows.start.saturating_sub(before);
            refused(error, batch.table_of(rows), Some(place))
        };
        // The row was sent alone, so repeating it finds nothing new.
        if error.code == server_code::PACKET_TOO_LARGE && suspects.len() == 1 {
            return told(error, suspects);
        }
        let rows = suspects.clone();
        let found = self.first_refused(batch, transaction, rows).await;
        let taken_back = self.rolled_back().await;
        if let (_, Err(lost)) | (Err(lost), _) = (&found, &taken_back) {
            return lost.clone();
        }
        let error = &self.in_full(error).await;
        match found {
            Ok(Some((row, same))) if same.code == error.code => told(error, row..row + 1),
            // All rows succeeded this time, or another error occurred. The cause is one of these rows.
            _ => told(error, suspects),
        }
    }

    /// Returns the error with the message in the server's error log, if it has more than the client's message: for a
    /// missing privilege on a table, and for columns that differ. If the account may not read the error log, the error is
    /// unchanged.
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
        let logged = self.asked(&query).await;
        if logged.is_err() {
            // The query may have begun a transaction. If the session is lost, its next use reports that.
            let _ = self.rolled_back().await;
        }
        let logged = logged.ok();
        error.message = match logged.as_ref().and_then(QueryResult::value) {
            Some(details) => format!("{} ({details})", error.message),
            None => format!(
                "{} (the server's error log says more; most often the account lacks INSERT, UPDATE or DELETE on the table, \
                 or its columns are of other types than the source's)",
                error.message
            ),
        };
        error
    }

    /// Returns the first row that the server refuses when it is sent in its own statement, and its error.
    async fn first_refused(
        &mut self,
        batch: &Batch,
        transaction: usize,
        suspects: Range<usize>,
    ) -> Result<Option<(usize, ServerError)>, WriteError> {
        self.script.clear();
        if let Some(named) = batch.transactions().get(transaction) {
            self.name(named);
        }
        let mut at = batch.rows_of(transaction).start;
        while at < suspects.end {
            let rows = match at < suspects.start {
                true => at..suspects.start,
                false => at..at + 1,
            };
            at = self.script.rows(batch, rows, self.events_bound).end;
            if at == suspects.end || self.script.statements.bytes() > FLUSH_AT {
                let Ran { done, error } = self.run_script().await?;
                if let Some(error) = error {
                    return Ok(match self.script.marks.get(done) {
                        Some(Mark::Rows(rows)) if rows.start >= suspects.start => {
                            Some((rows.start, error))
                        }
                        _ => None,
                    });
                }
                self.script.clear();
            }
        }
        Ok(None)
    }
}
