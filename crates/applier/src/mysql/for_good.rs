//! Irreversible transactions: those that write to tables whose engine has no transactions. Their writes stay
//! after a rollback, and are duplicated by a retry.
//!
//! So each of them is applied alone, after a note: in a row of the applier's table (`id` 2), durable
//! before the first of its rows is written; in memory where there is no such table. A lost session, a killed applier
//! and a server that ends leave the note. An executed transaction is never retried; a retry of this one finds
//! the note, and stops.
//!
//! An error answered by the server is unambiguous. Its ROLLBACK warns where changes stay, and then the applier stops. Otherwise
//! the note is removed, and a lock timeout is retried as usual.
//!
//! The tables written by a statement of the log are unknown. Where the server has tables without transactions, each transaction of
//! statements is assumed to write to them.

use std::borrow::Cow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use binlog_format::gtid::Gtid;
use mysql_link::QueryResult;

use crate::backend::{Refusal, WriteError};
use crate::mysql::barrier::has_statements;
use crate::mysql::checkpoint::TABLE;
use crate::mysql::outcome::{link_error, refused_by_us, write_error};
use crate::mysql::session::MysqlSession;
use crate::mysql::table_shape::rolls_back;
use crate::schema::TableName;
use crate::transaction::{Barrier, BarrierEnd, SchemaChange};

/// The row of the applier's table with the last transaction begun.
const NOTE: u32 = 2;
/// `Some non-transactional changed tables couldn't be rolled back`: the warning of a ROLLBACK after which changes stay.
const NOT_ROLLED_BACK: &str = "1196";

/// How long the list of the server's tables without transactions is valid: a client may create one. Changes by the log are
/// noticed immediately.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// Only messages name them, and one is enough.
const NAMED: usize = 10;

/// Shared state of an applier's sessions.
#[derive(Debug, Default)]
pub(super) struct Begun {
    /// The last transaction begun; used where there is no row for it.
    last: Mutex<Option<Gtid>>,
    /// Some of the server's tables without transactions, and the time of the query.
    tables: Mutex<Option<(Instant, Vec<TableName>)>>,
}

impl Begun {
    fn lock(&self) -> MutexGuard<'_, Option<Gtid>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tables(&self) -> MutexGuard<'_, Option<(Instant, Vec<TableName>)>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A barrier has ended.
    pub(super) fn ended(&self, barrier: &Barrier) {
        if barrier.changes != SchemaChange::Nothing {
            *self.tables() = None;
        }
    }
}

impl MysqlSession {
    /// The tables that a barrier changes irreversibly, or may change.
    pub(super) async fn written_for_good<'a>(
        &mut self,
        barrier: &'a Barrier,
    ) -> Result<Cow<'a, [TableName]>, WriteError> {
        // Standalone statements change tables, not rows, and a retry finds them changed.
        let by_statements = barrier.end != BarrierEnd::ByItself && has_statements(barrier);
        if !by_statements || !barrier.without_transactions.is_empty() {
            return Ok(Cow::Borrowed(&barrier.without_transactions));
        }
        let known = self.for_good.tables().clone();
        if let Some((_, tables)) = known.filter(|(asked, _)| asked.elapsed() < KNOWN_FOR) {
            return Ok(Cow::Owned(tables));
        }
        let answer = self
            .asked(
                "SELECT table_schema, table_name, engine FROM information_schema.tables WHERE table_type = 'BASE TABLE' \
                 AND engine <> 'InnoDB' AND table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')",
            )
            .await?;
        let rows = answer.rows.iter();
        let tables = rows.filter(|row| row.text_at(2).is_some_and(|engine| !rolls_back(engine)));
        let tables =
            tables.filter_map(|row| Some(TableName::new(row.text_at(0)?, row.text_at(1)?)));
        let tables: Vec<TableName> = tables.take(NAMED).collect();
        *self.for_good.tables() = Some((Instant::now(), tables.clone()));
        Ok(Cow::Owned(tables))
    }

    /// Runs a query outside of any transaction. A GTID may still be named, which a query would use up.
    async fn asked(&mut self, question: &str) -> Result<QueryResult, WriteError> {
        let named = self.connection.execute("SET gtid_next='AUTOMATIC'").await;
        named.map_err(link_error)?;
        let answer = self.connection.query(question).await.map_err(link_error)?;
        self.rolled_back().await?;
        Ok(answer)
    }

    /// Call this before a barrier begins that changes these tables irreversibly, or may change them.
    pub(super) async fn begin_for_good(
        &mut self,
        gtid: Gtid,
        barrier: &Barrier,
        tables: &[TableName],
    ) -> Result<(), WriteError> {
        let has_row = self.usable_checkpoint().is_some();
        let noted = match has_row {
            true => self.noted().await?,
            false => self.for_good.lock().map(|gtid| gtid.to_string()),
        };
        if noted.is_some_and(|noted| noted == gtid.to_string()) {
            let writes = match barrier.without_transactions.is_empty() {
                true => "may write to",
                false => "writes to",
            };
            return Err(refused_by_us(begun_before(writes, tables, has_row)));
        }
        self.note(Some(gtid)).await
    }

    /// No change of the begun transaction remains.
    pub(super) async fn nothing_stays(&mut self) -> Result<(), WriteError> {
        self.note(None).await
    }

    /// The content of the row.
    async fn noted(&mut self) -> Result<Option<String>, WriteError> {
        let query = format!("SELECT gtids FROM {TABLE} WHERE id = {NOTE}");
        let answer = self.asked(&query).await?;
        let gtid = answer.first().and_then(|row| row.text_at(0));
        Ok(gtid.map(str::to_owned))
    }

    async fn note(&mut self, gtid: Option<Gtid>) -> Result<(), WriteError> {
        // Also in case the row can no longer be written.
        *self.for_good.lock() = gtid;
        if self.usable_checkpoint().is_none() {
            return Ok(());
        }
        let text = gtid.map(|gtid| gtid.to_string()).unwrap_or_default();
        let write = format!(
            "INSERT INTO {TABLE} VALUES ({NOTE}, 0, '{text}') ON DUPLICATE KEY UPDATE gtids = '{text}'"
        );
        let ran = self
            .run_as_far(["SET gtid_next='AUTOMATIC'", &write, "COMMIT"])
            .await?;
        match ran.error {
            None => Ok(()),
            Some(error) => {
                self.rolled_back().await?;
                Err(write_error(&error))
            }
        }
    }

    /// Whether the ROLLBACK that was this session's last statement has left changes.
    pub(super) async fn something_stays(&mut self) -> Result<bool, WriteError> {
        let warnings = self.connection.query("SHOW WARNINGS").await;
        // Without an answer that is unknown, as for a lost session.
        let warnings = warnings.map_err(|error| WriteError::Lost(error.to_string()))?;
        let mut codes = warnings.rows.iter().filter_map(|row| row.text("Code"));
        Ok(codes.any(|code| code == NOT_ROLLED_BACK))
    }
}

/// Why a failed transaction must not be retried: some of its changes stay.
pub(super) fn half_written(why: WriteError, tables: &[TableName]) -> WriteError {
    let stays = format!(
        "; and the rows that it had written before that stay in {}, whose engine takes nothing back",
        named(tables)
    );
    match why {
        WriteError::Refused(refusal) => {
            let words = refusal.words.clone() + &stays;
            WriteError::Refused(Box::new(Refusal { words, ..*refusal }))
        }
        WriteError::Again(words) | WriteError::Lost(words) => refused_by_us(words + &stays),
    }
}

fn begun_before(writes: &str, tables: &[TableName], has_row: bool) -> String {
    let tables = named(tables);
    let goes_on = match has_row {
        true => format!("SET sql_log_bin = 0; UPDATE {TABLE} SET gtids = '' WHERE id = {NOTE}"),
        false => "start the applier again".to_owned(),
    };
    format!(
        "it was begun before and was ended in the middle, and it {writes} {tables}, whose engine takes nothing back: rows that stand \
         there already would stand twice. ALTER TABLE … ENGINE = InnoDB at the primary, and copy its data anew. Where none of its \
         rows is there, or you have taken them out, this lets it begin: {goes_on}"
    )
}

fn named(tables: &[TableName]) -> String {
    let names: Vec<String> = tables.iter().map(TableName::to_string).collect();
    match names.is_empty() {
        true => "a table".to_owned(),
        false => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_half_written_is_refused_whatever_failed_and_says_what_failed() {
        let tables = [TableName::new("d", "m"), TableName::new("d", "n")];
        let refusal = Refusal {
            table: Some(TableName::new("d", "n")),
            row: Some(3),
            code: 1062,
            words: "Duplicate entry".to_owned(),
        };
        for (why, code) in [
            (WriteError::Again("Duplicate entry".to_owned()), 0),
            (WriteError::Lost("Duplicate entry".to_owned()), 0),
            (WriteError::Refused(Box::new(refusal)), 1062),
        ] {
            let WriteError::Refused(refused) = half_written(why, &tables) else {
                panic!("it begins again");
            };
            assert_eq!(refused.code, code);
            assert_eq!(
                refused.words,
                "Duplicate entry; and the rows that it had written before that stay in d.m, d.n, whose engine takes nothing back"
            );
        }
        assert!(
            half_written(WriteError::Again(String::new()), &[])
                .to_string()
                .contains("stay in a table")
        );
    }
}
