//! Errant transactions: a server executed them, and the ring has not committed them. Such a server may neither follow nor lead.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use applier::source::{DumpSource, Source};
use binlog_format::canonical::CanonicalEvents;
use binlog_format::event::{EventRef, EventType};
use binlog_format::events::{Query, StatementKind};
use binlog_format::framing::FramedTransaction;
use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, DumpOptions};
use mysqld_server::tail_trim::changes_no_data;
use uuid::Uuid;

use crate::apply::catching_up::executed_gtids;

/// Errant transactions, with their common kind if it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Errant {
    pub(super) gtids: GtidSet,
    /// The kind, if all transactions have the same one, and their statements or tables.
    all: Option<Kinds>,
}

/// Kinds of errant transactions that arise in normal operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The server has emptied MEMORY tables after its start.
    Emptied,
    /// A client has ended prepared XA transactions, which `super_read_only` does not prevent.
    XaEnded,
    /// An administrator has run statements that change no data.
    Administrative,
}

/// A kind, and the statements or tables of its transactions.
type Kinds = (Kind, BTreeSet<String>);

/// Adds one transaction. Returns false if its kind differs.
fn add(all: &mut Option<Kinds>, (kind, name): (Kind, String)) -> bool {
    let (of, named) = all.get_or_insert_with(|| (kind, BTreeSet::new()));
    named.insert(name);
    *of == kind
}

/// Maximum number of transactions to inspect.
const MOST_LOOKED_INTO: u128 = 1000;
/// Time limit of the inspection.
const LOOKING: Duration = Duration::from_secs(10);
/// The server id and UUID of this binlog reader. A second reader with the same ids would end the first, but only one exists at a time.
const READER: (u32, Uuid) = (
    1_999_999_998,
    Uuid::from_u128(0x7769_746e_6573_7300_6572_7261_6e74_0000),
);

impl Errant {
    /// Determines the kind of errant transactions from the server's own binlog. If that fails, the kind stays unknown.
    pub(super) async fn look_into(gtids: GtidSet, connect: &ConnectOptions) -> Self {
        let read = tokio::time::timeout(LOOKING, kind_of_all(&gtids, connect));
        let all = read.await.unwrap_or(Ok(None)).unwrap_or_else(|cause| {
            tracing::debug!(%cause, "what a server has beyond the ring cannot be read");
            None
        });
        Self { gtids, all }
    }
}

impl fmt::Display for Errant {
    /// Writes the kind and the remedy.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, gtids) = (self.gtids.count(), shortened(self.gtids.to_string()));
        write!(
            f,
            "mysqld has {count} transactions that the ring has not committed (errant): {gtids}. "
        )?;
        match &self.all {
            None => f.write_str(
                "Clients may have been told that they succeeded. Inspect them with mysqlbinlog, then run \
                 `witness reprovision MEMBER --from`",
            ),
            Some((Kind::Emptied, tables)) => write!(
                f,
                "No client has written them: mysqld empties an in-memory table (ENGINE = MEMORY) when it is used first after a \
                 start, and does so in a transaction of its own: {}. At the primary, ALTER TABLE … ENGINE = InnoDB, or drop \
                 them; then run `witness reprovision MEMBER --from`, which helps only until the next restart while there are such \
                 tables",
                listed(tables)
            ),
            Some((Kind::XaEnded, statements)) => write!(
                f,
                "A client ended transactions here that XA had prepared, which super_read_only does not stop, and was told that it \
                 succeeded: {}. The ring's transaction is as it was before: end it at the primary, where XA RECOVER CONVERT XID \
                 lists it, then run `witness reprovision MEMBER --from`",
                listed(statements)
            ),
            Some((Kind::Administrative, statements)) => write!(
                f,
                "They change no data. mysqld gives statements of administrators a GTID even under super_read_only: {}. On a follower, \
                 and in its cron jobs, run them with NO_WRITE_TO_BINLOG or LOCAL (`FLUSH LOCAL SLOW LOGS`); then run \
                 `witness reprovision MEMBER --from`",
                listed(statements)
            ),
        }
    }
}

fn listed(words: &BTreeSet<String>) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    shortened(words.join(", "))
}

pub(crate) fn shortened(mut text: String) -> String {
    const SHOWN: usize = 300;
    if text.len() > SHOWN {
        let end = (0..=SHOWN).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

/// Returns the common kind; `None` if the kinds differ or one is unknown.
async fn kind_of_all(
    gtids: &GtidSet,
    connect: &ConnectOptions,
) -> Result<Option<Kinds>, Box<dyn Error + Send + Sync>> {
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
    let mut all = None;
    while !missing.is_empty() {
        let Some(transaction) = source.next().await? else {
            return Ok(None);
        };
        // Skips transactions committed in the meantime.
        if !missing.contains(&transaction.gtid) {
            continue;
        }
        missing.remove(&transaction.gtid);
        if !kind_of(&transaction).is_some_and(|one| add(&mut all, one)) {
            return Ok(None);
        }
    }
    Ok(all)
}

/// Returns the kind of a transaction that is a single statement of a known kind.
fn kind_of(transaction: &FramedTransaction) -> Option<(Kind, String)> {
    let mut events = CanonicalEvents::new(transaction.payload.clone());
    let _gtid = events.next()?.ok()?;
    let mut kind = None;
    for event in events {
        let event = event.ok()?;
        if event.event_type() != EventType::Query {
            return None;
        }
        let query = Query::decode(event.canonical()).ok()?;
        match StatementKind::of(&query.statement) {
            // These statements surround a DELETE.
            StatementKind::Begin | StatementKind::Commit => {}
            _ if kind.is_some() => return None,
            _ => kind = Some(kind_of_statement(event.canonical(), &query)?),
        }
    }
    kind
}

fn kind_of_statement(event: EventRef<'_>, query: &Query<'_>) -> Option<(Kind, String)> {
    if let Some(table) = emptied_by(&query.statement) {
        return Some((Kind::Emptied, table));
    }
    let statement = std::str::from_utf8(&query.statement).ok()?;
    let ends_xa = ["XA COMMIT ", "XA ROLLBACK "];
    let kind = match ends_xa.iter().any(|ends| statement.starts_with(ends)) {
        true => Some(Kind::XaEnded),
        false => changes_no_data(event, query).then_some(Kind::Administrative),
    };
    Some((kind?, statement.to_owned()))
}

fn emptied_by(statement: &[u8]) -> Option<String> {
    // The second form is that of versions before 8.0.32.
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
    use binlog_format::events::{EncodeEvent, EventOrigin};

    use super::*;
    use crate::apply::catching_up::errant;

    #[test]
    fn only_what_the_ring_lacks_is_errant() {
        const UUID: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let set = |text: &str| format!("{UUID}:{text}").parse::<GtidSet>().unwrap();
        assert!(errant(&set("1-5"), &set("1-9")).is_empty());
        let found = errant(&set("1-12"), &set("1-9"));
        assert_eq!(found, set("10-12"));
        let words = |all| {
            let gtids = found.clone();
            Errant { gtids, all }.to_string()
        };
        let unknown = words(None);
        assert!(unknown.contains(":10-12") && unknown.contains("3 transactions"));
        assert!(unknown.contains("Clients may have been told"), "{unknown}");
        let emptied = words(Some((
            Kind::Emptied,
            BTreeSet::from(["`d`.`m`".to_owned()]),
        )));
        assert!(
            emptied.contains("`d`.`m`. At the primary, ALTER TABLE … ENGINE = InnoDB"),
            "{emptied}"
        );
        assert!(!emptied.contains("Clients"), "{emptied}");
    }

    fn all_of(statements: &[&str]) -> Option<Kinds> {
        let mut all = None;
        let mut add = |statement: &&str| kind(statement).is_some_and(|one| add(&mut all, one));
        let same = statements.iter().all(&mut add);
        all.filter(|_| same)
    }

    fn kind(statement: &str) -> Option<(Kind, String)> {
        let query = Query {
            statement: statement.as_bytes().into(),
            ..Query::default()
        };
        let event = query.encode(EventOrigin::default());
        kind_of_statement(EventRef::new(&event).unwrap(), &query)
    }

    #[test]
    fn statements_of_administrators_are_named_and_how_to_run_them() {
        let all = all_of(&["FLUSH SLOW LOGS", "REPAIR TABLE d.t"]);
        let gtids = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-2".parse().unwrap();
        let message = Errant { gtids, all }.to_string();
        assert!(
            message.contains("FLUSH SLOW LOGS, REPAIR TABLE d.t")
                && message.contains("NO_WRITE_TO_BINLOG"),
            "{message}"
        );
        assert_eq!(kind("TRUNCATE TABLE d.t"), None);
        assert_eq!(kind("CREATE TABLE IF NOT EXISTS d.t (a INT)"), None);
    }

    #[test]
    fn what_a_client_has_ended_by_xa_is_named_and_where_to_end_it() {
        let both = all_of(&["XA COMMIT X'78',X'',1", "XA ROLLBACK X'79',X'',1"]);
        let gtids = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1-2".parse().unwrap();
        let words = Errant { gtids, all: both }.to_string();
        assert!(
            words.contains("XA COMMIT X'78',X'',1, XA ROLLBACK X'79',X'',1")
                && words.contains("end it at the primary"),
            "{words}"
        );
        let emptied =
            "TRUNCATE TABLE `d`.`m` /* generated by server, implicitly emptying in-memory table */";
        assert_eq!(all_of(&[emptied, "XA COMMIT X'78',X'',1"]), None);
        for other in [
            "XA PREPARE X'78',X'',1",
            "INSERT INTO d.t VALUES ('XA COMMIT ')",
        ] {
            assert_eq!(kind(other), None, "{other}");
        }
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
