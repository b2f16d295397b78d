//! Transactions that are written for good: those that write to tables whose engine has no transactions. What they have written stays
//! when they are rolled back, and stands twice where they begin again.
//!
//! So each of them is applied alone, and before it begins, that is noted: in a row of the applier's table (`id` 2), which is on disk
//! before the first of its rows is written; in memory where there is no such table. A session that is lost, an applier that is killed
//! and a server that ends leave the note. Nobody comes to a transaction again that is executed; whoever comes to this one again finds
//! the note, and stops.
//!
//! A failure that the server answers leaves no doubt. Its ROLLBACK warns where something stays, and then the applier stops; where
//! nothing does, the note is taken back, and a lock that was not had in time is tried again as ever.

use std::sync::{Mutex, MutexGuard, PoisonError};

use binlog_format::gtid::Gtid;

use crate::backend::{Refusal, WriteError};
use crate::mysql::checkpoint::TABLE;
use crate::mysql::outcome::{link_error, refused_by_us, write_error};
use crate::mysql::session::MysqlSession;
use crate::schema::TableName;

/// The row of the applier's table with the transaction that was begun last.
const NOTE: u32 = 2;
/// `Some non-transactional changed tables couldn't be rolled back`: the warning of a ROLLBACK behind which something stays.
const NOT_ROLLED_BACK: &str = "1196";

/// Which transaction was begun last; asked where there is no row for it.
#[derive(Debug, Default)]
pub(super) struct Begun {
    last: Mutex<Option<Gtid>>,
}

impl Begun {
    fn lock(&self) -> MutexGuard<'_, Option<Gtid>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MysqlSession {
    /// To be called before a transaction begins that writes to these tables for good.
    pub(super) async fn begin_for_good(
        &mut self,
        gtid: Gtid,
        tables: &[TableName],
    ) -> Result<(), WriteError> {
        let has_row = self.usable_checkpoint().is_some();
        let noted = match has_row {
            true => self.noted().await?,
            false => self.for_good.lock().map(|gtid| gtid.to_string()),
        };
        if noted.is_some_and(|noted| noted == gtid.to_string()) {
            return Err(refused_by_us(begun_before(tables, has_row)));
        }
        self.note(Some(gtid)).await
    }

    /// Nothing of the transaction stands that was begun.
    pub(super) async fn nothing_stays(&mut self) -> Result<(), WriteError> {
        self.note(None).await
    }

    /// What the row says.
    async fn noted(&mut self) -> Result<Option<String>, WriteError> {
        let query = format!("SELECT gtids FROM {TABLE} WHERE id = {NOTE}");
        // A transaction may be named yet, whose GTID a question would use up.
        let named = self.connection.execute("SET gtid_next='AUTOMATIC'").await;
        named.map_err(link_error)?;
        let answer = self.connection.query(query).await.map_err(link_error)?;
        let gtid = answer.first().and_then(|row| row.text_at(0));
        let gtid = gtid.map(str::to_owned);
        self.rolled_back().await?;
        Ok(gtid)
    }

    async fn note(&mut self, gtid: Option<Gtid>) -> Result<(), WriteError> {
        // Also for the case that the row cannot be written any more.
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

    /// Whether the ROLLBACK that was the last statement of this session has left something.
    pub(super) async fn something_stays(&mut self) -> Result<bool, WriteError> {
        let warnings = self.connection.query("SHOW WARNINGS").await;
        // Without an answer nobody knows, as without the session.
        let warnings = warnings.map_err(|error| WriteError::Lost(error.to_string()))?;
        let mut codes = warnings.rows.iter().filter_map(|row| row.text("Code"));
        Ok(codes.any(|code| code == NOT_ROLLED_BACK))
    }
}

/// Why a transaction failed that is not to begin again, since some of it stays.
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

fn begun_before(tables: &[TableName], has_row: bool) -> String {
    let tables = named(tables);
    let goes_on = match has_row {
        true => format!("SET sql_log_bin = 0; UPDATE {TABLE} SET gtids = '' WHERE id = {NOTE}"),
        false => "start the applier again".to_owned(),
    };
    format!(
        "it was begun before and was ended in the middle, and it writes to {tables}, whose engine takes nothing back: rows that stand \
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
