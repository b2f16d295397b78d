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

use std::sync::Mutex;
use std::time::Instant;

use binlog_format::gtid::Gtid;

use crate::backend::{Refusal, WriteError};
use crate::locked;
use crate::mysql::checkpoint::TABLE;
use crate::mysql::outcome::refused_by_us;
use crate::schema::TableName;
use crate::transaction::{Barrier, SchemaChange};

/// The row of the applier's table with the last transaction begun.
pub(super) const NOTE: u32 = 2;

/// Shared state of an applier's sessions.
#[derive(Debug, Default)]
pub(super) struct Begun {
    /// The last transaction begun; used where there is no row for it.
    pub(super) last: Mutex<Option<Gtid>>,
    /// Some of the server's tables without transactions, and the time of the query.
    pub(super) tables: Mutex<Option<(Instant, Vec<TableName>)>>,
}

impl Begun {
    /// A barrier has ended.
    pub(super) fn ended(&self, barrier: &Barrier) {
        if barrier.changes != SchemaChange::Nothing {
            *locked(&self.tables) = None;
        }
    }
}

/// Why a failed transaction must not be retried: some of its changes stay.
pub(super) fn half_written(why: WriteError, tables: &[TableName]) -> WriteError {
    let stays = format!(
        "; and the rows that it had written before that stay in {}, whose engine takes nothing back",
        names(tables)
    );
    match why {
        WriteError::Refused(refusal) => {
            let words = refusal.words.clone() + &stays;
            WriteError::Refused(Box::new(Refusal { words, ..*refusal }))
        }
        WriteError::Again(words) | WriteError::Lost(words) => refused_by_us(words + &stays),
    }
}

/// Why an irreversible transaction that was begun before must not begin again.
pub(super) fn begun_before(writes: &str, tables: &[TableName], has_row: bool) -> String {
    let tables = names(tables);
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

pub(super) fn names(tables: &[TableName]) -> String {
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
