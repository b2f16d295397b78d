//! Transactions that a server has and the ring has not committed: nobody may follow with them, or lead.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use applier::source::{DumpSource, Source};
use binlog_format::canonical::CanonicalEvents;
use binlog_format::event::EventType;
use binlog_format::events::{Query, StatementKind};
use binlog_format::framing::FramedTransaction;
use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, DumpOptions};
use uuid::Uuid;

use crate::apply::catching_up::executed_gtids;

/// What a server has beyond the ring's committed log.
pub(super) fn errant(executed: &GtidSet, committed: &GtidSet) -> GtidSet {
    executed.difference(committed)
}

/// Such transactions, with what is known of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Errant {
    pub(super) gtids: GtidSet,
    /// The in-memory tables that the server has emptied by itself, if all of the transactions are that and nothing else.
    emptied: Option<BTreeSet<String>>,
}

/// More than these are not looked into.
const MOST_LOOKED_INTO: u128 = 1000;
/// How long it may take.
const LOOKING: Duration = Duration::from_secs(10);
/// As whom the server's binlog is read for this. A second reader would end the first one, which there is not.
const READER: (u32, Uuid) = (
    1_999_999_998,
    Uuid::from_u128(0x7769_746e_6573_7300_6572_7261_6e74_0000),
);

impl Errant {
    /// Reads in the server's own binlog what they are. Where that cannot be done, they may be anything.
    pub(super) async fn look_into(gtids: GtidSet, connect: &ConnectOptions) -> Self {
        let read = tokio::time::timeout(LOOKING, emptied_tables(&gtids, connect));
        let emptied = match read.await {
            Ok(Ok(emptied)) => emptied,
            Ok(Err(cause)) => {
                tracing::debug!(%cause, "what a server has beyond the ring cannot be read");
                None
            }
            Err(_) => None,
        };
        Self { gtids, emptied }
    }
}

impl fmt::Display for Errant {
    /// What they are and what to do about them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, gtids) = (self.gtids.count(), shortened(self.gtids.to_string()));
        write!(
            f,
            "mysqld has {count} transactions that the ring has not committed (errant): {gtids}. "
        )?;
        let Some(tables) = &self.emptied else {
            return f.write_str(
                "Clients may have been told that they succeeded. Inspect them with mysqlbinlog, then run \
                 `witness reprovision MEMBER --from`",
            );
        };
        let tables = tables.iter().map(String::as_str).collect::<Vec<_>>();
        let tables = shortened(tables.join(", "));
        write!(
            f,
            "No client has written them: mysqld empties an in-memory table (ENGINE = MEMORY) when it is used first behind a \
             start, and does so in a transaction of its own: {tables}. At the primary, ALTER TABLE … ENGINE = InnoDB, or drop \
             them; then run `witness reprovision MEMBER --from`, which helps only until the next restart while there are such \
             tables"
        )
    }
}

fn shortened(mut text: String) -> String {
    const SHOWN: usize = 300;
    if text.len() > SHOWN {
        let end = (0..=SHOWN).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

/// The tables that these transactions have emptied; `None` where one of them is something else.
async fn emptied_tables(
    gtids: &GtidSet,
    connect: &ConnectOptions,
) -> Result<Option<BTreeSet<String>>, String> {
    if gtids.count() > MOST_LOOKED_INTO {
        return Ok(None);
    }
    let executed = executed_gtids(connect).await?;
    let (server_id, uuid) = READER;
    let dump = DumpOptions {
        semi_sync: false,
        register: false,
        ..DumpOptions::new(server_id, uuid, executed.difference(gtids))
    };
    let (patience, most) = (Duration::ZERO, 64 << 20);
    let mut source = DumpSource::new(connect.clone(), dump, patience, most);
    let mut missing = gtids.clone();
    let mut tables = BTreeSet::new();
    while !missing.is_empty() {
        let next = source.next().await.map_err(|error| error.to_string())?;
        let Some(transaction) = next else {
            return Ok(None);
        };
        // What was committed since comes behind.
        if !missing.contains(&transaction.gtid) {
            continue;
        }
        let Some(table) = emptied_table(&transaction) else {
            return Ok(None);
        };
        missing.remove(&transaction.gtid);
        tables.insert(table);
    }
    Ok(Some(tables))
}

/// The table, if the transaction is nothing but the statement by which mysqld empties one in memory.
fn emptied_table(transaction: &FramedTransaction) -> Option<String> {
    let mut events = CanonicalEvents::new(transaction.payload.clone());
    let _gtid = events.next()?.ok()?;
    let mut emptied = None;
    for event in events {
        let event = event.ok()?;
        if event.event_type() != EventType::Query {
            return None;
        }
        let query = Query::decode(event.canonical()).ok()?;
        match StatementKind::of(&query.statement) {
            // Around a DELETE.
            StatementKind::Begin | StatementKind::Commit => {}
            _ if emptied.is_some() => return None,
            _ => emptied = Some(emptied_by(&query.statement)?),
        }
    }
    emptied
}

fn emptied_by(statement: &[u8]) -> Option<String> {
    // The second one before 8.0.32.
    const BEFORE: [&str; 2] = ["TRUNCATE TABLE ", "DELETE FROM "];
    const BEHIND: &str = " /* generated by server, implicitly emptying in-memory table */";
    let statement = std::str::from_utf8(statement).ok()?;
    let statement = statement.strip_suffix(BEHIND)?;
    let name = BEFORE
        .iter()
        .find_map(|before| statement.strip_prefix(before))?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_ring_lacks_is_errant() {
        const UUID: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let set = |text: &str| format!("{UUID}:{text}").parse::<GtidSet>().unwrap();
        assert!(errant(&set("1-5"), &set("1-9")).is_empty());
        let found = errant(&set("1-12"), &set("1-9"));
        assert_eq!(found, set("10-12"));
        let words = |emptied| {
            let gtids = found.clone();
            Errant { gtids, emptied }.to_string()
        };
        let unknown = words(None);
        assert!(unknown.contains(":10-12") && unknown.contains("3 transactions"));
        assert!(unknown.contains("Clients may have been told"), "{unknown}");
        let emptied = words(Some(BTreeSet::from(["`d`.`m`".to_owned()])));
        assert!(
            emptied.contains("`d`.`m`. At the primary, ALTER TABLE … ENGINE = InnoDB"),
            "{emptied}"
        );
        assert!(!emptied.contains("Clients"), "{emptied}");
    }

    #[test]
    fn only_the_servers_own_words_empty_a_table() {
        for words in ["TRUNCATE TABLE", "DELETE FROM"] {
            let generated = format!(
                "{words} `d`.`m 1` /* generated by server, implicitly emptying in-memory table */"
            );
            let table = emptied_by(generated.as_bytes());
            assert_eq!(table.as_deref(), Some("`d`.`m 1`"));
        }
        for other in [
            "TRUNCATE TABLE `d`.`m`",
            "DROP TABLE `d`.`m` /* generated by server */",
            "DELETE FROM `d`.`m`",
        ] {
            assert_eq!(emptied_by(other.as_bytes()), None, "{other}");
        }
    }
}
