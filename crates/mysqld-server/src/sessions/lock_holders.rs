//! Sessions whose locks keep a follower from applying the ring's log to its end. An open reader transaction blocks DDL.
//! `SELECT … FOR SHARE` and `LOCK TABLES … READ` block rows. `FLUSH TABLES WITH READ LOCK` blocks everything. While mysqld follows, such
//! sessions are reported, and mysqld lags. During a promotion all clients wait for these sessions, so they are killed at the operator's
//! limit. Members' own sessions often wait for each other, and are not killed. A member's session is reported only if it has held the
//! applier's checkpoint row for long, because that blocks all applying.
//!
//! A prepared XA transaction keeps the locks of its session, and these locks outlive the session. There are two cases:
//!
//! * The transaction was prepared by a client while this server was the primary. The next primary locks only the changed rows, and may
//!   write into a gap or to rows that were only read. Such a write blocks here until an XA end that comes later in the log. A start of
//!   mysqld restores only the locks on changed rows, so a restart ends the wait (decision 125).
//! * The transaction was prepared from the ring's log. It has only the locks on changed rows. It is reported, and waiters (for example on
//!   tables without a primary key) wait for its end.
//!
//! A session that owns a GTID of the log (`SET gtid_next`) without committing blocks that transaction without any lock. mysqld executes the
//! transaction in no other session, and does not let the applier publish it. The member treats such a session as a lock holder.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use binlog_format::events::shown_statement;
use binlog_format::gtid::{GtidSet, parse_gtid_owners};
use futures::future::BoxFuture;
use mysql_link::{ConnectOptions, Connection, LinkError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::STATEMENT_LIMIT;
use crate::sessions::backup_lock::backup_under_way;
use crate::sessions::{BlockingSession, COLUMNS, OF_MEMBERS, asked};

/// Interval between two checks of the locks.
const LOOK: Duration = Duration::from_secs(1);
/// Pause after a slow check, as a multiple of its duration: a check takes CPU time and InnoDB's latches from the applier.
const REST: u32 = 4;
/// Holders are reported after this time, and locks are checked only while mysqld lags by at least this much.
const NAMED: Duration = Duration::from_secs(2);
/// How long a holder is remembered: a waiter for a row sometimes gives up and retries.
const FORGOTTEN: Duration = Duration::from_secs(3);
/// Maximum pause between two appliers. A session that blocked the first is assumed to have blocked in the pause, too.
const BETWEEN_APPLIERS: Duration = Duration::from_secs(15);

/// True if a server with this lag may be blocked by a lock.
pub fn is_far(lag_ms: u64) -> bool {
    Duration::from_millis(lag_ms) >= NAMED
}

/// How long a session may block the applier.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long until the session is killed during a promotion; `None`: never.
    pub kill_after: Option<Duration>,
    /// The age from which a transaction of a member's own session is reported.
    pub own_after: Duration,
}

/// Checks indefinitely for sessions that block the applier. Owners of GTIDs are always checked, since the applier may have applied such a
/// transaction without publishing it. Locks are checked only while mysqld `lags` or `promoting` is true. Sends the holders to `told`, as
/// text; members' own sessions only when their transaction is `own_after` old. `log` returns the transactions of the ring's log, if it is
/// readable.
///
/// Successive appliers share `holders`, because a waiting statement, and its applier, may end before the operator's limit.
pub async fn watch(
    log: impl Fn() -> BoxFuture<'static, Option<GtidSet>>,
    connect: &ConnectOptions,
    limits: Limits,
    holders: &Mutex<Holders>,
    lags: impl Fn() -> bool,
    promoting: watch::Receiver<bool>,
    told: watch::Sender<HeldUp>,
) -> Infallible {
    let connect = connect
        .clone()
        .bounded("witness-lock-holders", STATEMENT_LIMIT);
    locked(holders).go_on(Instant::now());
    let mut pause = LOOK;
    loop {
        tokio::time::sleep(pause).await;
        let is_waited_for = *promoting.borrow() || lags();
        let own_after = is_waited_for.then_some(limits.own_after);
        let began = Instant::now();
        let found = look(&log, &connect, own_after).await;
        let now = Instant::now();
        let mut backup = None;
        pause = pause_after(now.duration_since(began));
        // Read again: another member may be the leader by now.
        let limit = limits.kill_after.filter(|_| *promoting.borrow());
        let overdue = {
            let mut holders = locked(holders);
            match found {
                Ok((found, running)) => {
                    holders.note(found, now);
                    backup = running;
                }
                // mysqld may be down or too slow: the recorded holders may still exist.
                Err(error) => {
                    tracing::debug!(%error, "sessions that hold the applier up cannot be listed")
                }
            }
            for words in holders.not_told(now) {
                tracing::warn!("{words}");
            }
            limit.map(|limit| holders.overdue(limit, now))
        };
        for holder in overdue.into_iter().flatten() {
            let why = "mysqld is to be the primary, and what the ring has waits for it";
            // The holder is reported as long as it exists.
            let _ = holder.kill(&connect, why).await;
        }
        let held_up = HeldUp {
            backup,
            ..locked(holders).held_up(now)
        };
        told.send_if_modified(|told| std::mem::replace(told, held_up.clone()) != held_up);
    }
}

fn pause_after(look: Duration) -> Duration {
    LOOK.max(look * REST)
}

fn locked(holders: &Mutex<Holders>) -> MutexGuard<'_, Holders> {
    holders.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sessions and transactions that block the applier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldUp {
    /// All holders, as text.
    pub by: Vec<String>,
    /// True if a prepared XA transaction blocks the applier by locks that a start of mysqld ends.
    pub by_prepared: bool,
    /// The backup that a promotion would abort.
    pub backup: Option<String>,
}

/// Lock waits. Columns: `waiting` and `holding` are threads, `holds` is the locked object, `held` the lock's status, and `transaction` the
/// holder of a row lock. The rows are conflicting locks on tables and wider objects, and row locks. A plain reader conflicts only with
/// exclusive locks.
///
/// A transaction that has touched many partitions has many locks. So the query starts with InnoDB's waits, and looks up only their locks.
/// The other order took mysqld half a minute (9.7.4, 1,024 partitions).
const WAITS: &str = "\
    (SELECT wanted.OWNER_THREAD_ID AS waiting, held.OWNER_THREAD_ID AS holding, \
    CONCAT_WS(' ', LOWER(held.OBJECT_TYPE), NULLIF(CONCAT_WS('.', held.OBJECT_SCHEMA, held.OBJECT_NAME), '')) AS holds, held.LOCK_STATUS AS held, \
    NULL AS transaction \
    FROM performance_schema.metadata_locks AS wanted \
    JOIN performance_schema.metadata_locks AS held ON held.OBJECT_TYPE = wanted.OBJECT_TYPE \
    AND held.OBJECT_SCHEMA <=> wanted.OBJECT_SCHEMA AND held.OBJECT_NAME <=> wanted.OBJECT_NAME \
    WHERE wanted.LOCK_STATUS = 'PENDING' AND held.LOCK_STATUS = 'GRANTED' \
    AND (wanted.LOCK_TYPE IN ('EXCLUSIVE', 'SHARED_NO_READ_WRITE') \
    OR held.LOCK_TYPE NOT IN ('SHARED_READ', 'SHARED_HIGH_PRIO', wanted.LOCK_TYPE)) \
    UNION ALL SELECT waits.REQUESTING_THREAD_ID, waits.BLOCKING_THREAD_ID, \
    CONCAT('rows of ', held.OBJECT_SCHEMA, '.', held.OBJECT_NAME), held.LOCK_STATUS, waits.BLOCKING_ENGINE_TRANSACTION_ID \
    FROM performance_schema.data_lock_waits AS waits STRAIGHT_JOIN performance_schema.data_locks AS held \
    ON held.ENGINE_LOCK_ID = waits.BLOCKING_ENGINE_LOCK_ID AND held.ENGINE = waits.ENGINE) AS waits";
/// Prepared transactions without a session. The rollback of a transaction after a crash has no session either.
const PREPARED: &str = "(SELECT trx_id FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = 0 AND trx_state = 'RUNNING')";
const OF_REPLICATION: &str = "LIKE 'thread/sql/replica%'";
const OF_REPLICATION_BEFORE: &str = "LIKE 'thread/sql/slave%'";
/// Replaces the name of a lock for a session that owns a GTID (`SET gtid_next`).
const GTID: &str = "the GTID ";

/// Returns the sessions that block the applier, and a running backup. Lock holders are checked only if `own_after` is given.
async fn look(
    log: &impl Fn() -> BoxFuture<'static, Option<GtidSet>>,
    connect: &ConnectOptions,
    own_after: Option<Duration>,
) -> Result<(Vec<InTheWay>, Option<String>), LinkError> {
    let mut session = Connection::open_with_own_settings(connect).await?;
    let mut found = owners(log, &mut session).await?;
    if let Some(own_after) = own_after {
        found.extend(lockers(&mut session, own_after).await?);
    }
    let backup = backup_under_way(&mut session).await;
    session.close().await;
    Ok((found, backup))
}

/// Returns the clients' sessions that own a GTID of the log. mysqld does not execute the transaction with that GTID until the session ends.
async fn owners(
    log: &impl Fn() -> BoxFuture<'static, Option<GtidSet>>,
    session: &mut Connection,
) -> Result<Vec<InTheWay>, LinkError> {
    let answer = session.query("SELECT @@GLOBAL.gtid_owned").await?;
    let owned = answer.value();
    let owned = parse_gtid_owners(owned.unwrap_or_default()).unwrap_or_default();
    let log = match owned.is_empty() {
        true => GtidSet::new(),
        false => log().await.unwrap_or_default(),
    };
    let needed = owned.into_iter().filter(|(gtid, _)| log.contains(gtid));
    let needed: BTreeMap<u32, _> = needed
        .flat_map(|(gtid, owners)| owners.into_iter().map(move |id| (id, gtid)))
        .collect();
    let ids: Vec<String> = needed.keys().map(u32::to_string).collect();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let query = format!(
        "SELECT {COLUMNS} FROM performance_schema.threads AS t WHERE t.PROCESSLIST_ID IN ({}) \
         AND t.PROCESSLIST_ID NOT IN {OF_MEMBERS} AND CONNECTION_ID() IN {OF_MEMBERS} \
         AND t.NAME NOT {OF_REPLICATION} AND t.NAME NOT {OF_REPLICATION_BEFORE}",
        ids.join(", ")
    );
    let owners = asked(session, &query).await?.into_iter();
    let owners = owners.filter_map(|owner| {
        let holds = format!("{GTID}{}", needed.get(&owner.id)?);
        Some(InTheWay::Session(BlockingSession { holds, ..owner }))
    });
    Ok(owners.collect())
}

/// Returns the holders of locks that members' sessions and replica threads wait for. Empty if mysqld does not list this session among the
/// members' sessions, because a holder could then be a member's session.
async fn lockers(
    session: &mut Connection,
    own_after: Duration,
) -> Result<Vec<InTheWay>, LinkError> {
    // A batch holds the row only for the duration of its commit.
    let own_for_long = format!(
        "waits.holds = 'rows of witness_applier.checkpoint' AND waits.held = 'GRANTED' AND t.PROCESSLIST_ID IN \
         (SELECT trx_mysql_thread_id FROM information_schema.innodb_trx WHERE trx_started <= NOW() - INTERVAL {} SECOND)",
        own_after.as_secs()
    );
    let of_ours = format!(
        "JOIN performance_schema.threads AS waiter ON waiter.THREAD_ID = waits.waiting \
         AND (waiter.PROCESSLIST_ID IN {OF_MEMBERS} OR waiter.NAME {OF_REPLICATION} OR waiter.NAME {OF_REPLICATION_BEFORE}) \
         AND CONNECTION_ID() IN {OF_MEMBERS}"
    );
    let sessions = format!(
        "SELECT {COLUMNS}, waits.holds, COALESCE(waiter.PROCESSLIST_INFO, ''), t.PROCESSLIST_ID IN {OF_MEMBERS} FROM {WAITS} {of_ours} \
         JOIN performance_schema.threads AS t ON t.THREAD_ID = waits.holding \
         WHERE (t.PROCESSLIST_ID NOT IN {OF_MEMBERS} OR {own_for_long}) \
         AND COALESCE(waits.transaction NOT IN {PREPARED}, TRUE) AND t.TYPE = 'FOREGROUND' AND t.PROCESSLIST_COMMAND <> 'Daemon' \
         AND t.NAME NOT {OF_REPLICATION} AND t.NAME NOT {OF_REPLICATION_BEFORE}"
    );
    // The session that prepared the transaction may run other statements since. A metadata lock shows only its owner. Members' sessions
    // change only rows. A transaction from before the start of mysqld has no session, and only row locks.
    let prepared = format!(
        "SELECT COALESCE(waits.holding, 0), waits.holds, COALESCE(waiter.PROCESSLIST_INFO, ''), \
         COALESCE(waits.holding, 0) = 0 OR COALESCE(t.PROCESSLIST_ID IN {OF_MEMBERS} OR t.NAME {OF_REPLICATION} \
         OR t.NAME {OF_REPLICATION_BEFORE}, FALSE) \
         FROM {WAITS} {of_ours} LEFT JOIN performance_schema.threads AS t ON t.THREAD_ID = waits.holding \
         WHERE waits.held = 'GRANTED' \
         AND COALESCE(waits.transaction IN {PREPARED}, t.THREAD_ID IS NULL AND EXISTS {PREPARED})"
    );
    let sessions = asked(session, &sessions).await?;
    let prepared = session.query(prepared).await?;
    let sessions = sessions.into_iter().map(InTheWay::Session);
    let prepared = prepared.rows.iter().filter_map(|row| {
        Some(InTheWay::Prepared {
            thread: row.text_at(0)?.parse().ok()?,
            holds: row.text_at(1)?.to_owned(),
            waiting: row.text_at(2)?.to_owned(),
            of_rows: row.text_at(3)? == "1",
        })
    });
    Ok(sessions.chain(prepared).collect())
}

/// The holder of a lock or GTID that the applier waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum InTheWay {
    Session(BlockingSession),
    /// A prepared XA transaction.
    Prepared {
        /// The preparing session's thread in `performance_schema`, which identifies the transaction. 0 after a mysqld start.
        thread: u64,
        holds: String,
        /// The statement that waits.
        waiting: String,
        /// True if the transaction has only the locks of the rows that it changed, which a start of mysqld does not end.
        of_rows: bool,
    },
}

impl InTheWay {
    fn who(&self) -> Who {
        match self {
            Self::Session(session) => Who::Session(session.id),
            Self::Prepared { thread, .. } => Who::Prepared(*thread),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Session(u32),
    Prepared(u64),
}

/// The sessions and transactions that block the applier, with times. Pure.
#[derive(Debug, Default)]
pub struct Holders {
    seen: BTreeMap<Who, Holder>,
}

#[derive(Debug)]
struct Holder {
    is: InTheWay,
    since: Instant,
    seen_at: Instant,
    is_told: bool,
    is_killed: bool,
}

impl Holders {
    /// Notes that another applier begins, after a pause without checks.
    fn go_on(&mut self, now: Instant) {
        self.seen
            .retain(|_, holder| now.duration_since(holder.seen_at) < BETWEEN_APPLIERS);
        for holder in self.seen.values_mut() {
            holder.seen_at = now;
        }
    }

    fn note(&mut self, found: Vec<InTheWay>, now: Instant) {
        for is in found {
            let holder = self.seen.entry(is.who()).or_insert(Holder {
                since: now,
                seen_at: now,
                is_told: false,
                is_killed: false,
                is: is.clone(),
            });
            (holder.is, holder.seen_at) = (is, now);
        }
        self.seen
            .retain(|_, holder| now.duration_since(holder.seen_at) < FORGOTTEN);
    }

    /// Returns the holders to report.
    fn held_up(&self, now: Instant) -> HeldUp {
        let named = self.seen.values().filter(|holder| holder.is_named(now));
        let is_prepared =
            |holder: &Holder| matches!(holder.is, InTheWay::Prepared { of_rows: false, .. });
        HeldUp {
            by_prepared: named.clone().any(is_prepared),
            by: named.map(|holder| holder.in_words(now)).collect(),
            backup: None,
        }
    }

    /// Returns holders to report for the first time, each only once.
    fn not_told(&mut self, now: Instant) -> Vec<String> {
        let named = self
            .seen
            .values_mut()
            .filter(|holder| !holder.is_told && holder.is_named(now));
        let told = named.map(|holder| {
            holder.is_told = true;
            holder.in_words(now)
        });
        told.collect()
    }

    /// Returns sessions that have reached the limit, each only once.
    fn overdue(&mut self, limit: Duration, now: Instant) -> Vec<BlockingSession> {
        let over = self.seen.values_mut().filter_map(|holder| {
            let is_over = holder.seen_at == now && now.duration_since(holder.since) >= limit;
            match &holder.is {
                InTheWay::Session(session)
                    if is_over && !holder.is_killed && !session.of_member =>
                {
                    holder.is_killed = true;
                    Some(session.clone())
                }
                InTheWay::Session(_) | InTheWay::Prepared { .. } => None,
            }
        });
        over.collect()
    }
}

impl Holder {
    fn is_named(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= NAMED
    }

    fn in_words(&self, now: Instant) -> String {
        let (holder, holds, waiting, ends) = match &self.is {
            InTheWay::Session(session) => {
                let BlockingSession { id, account, .. } = session;
                let ends = match session.of_member {
                    true => "It is the member's own, which no other session kills: if it does not end by itself, it does",
                    false => "It ends by itself, or",
                };
                (
                    format!("session {id} of {account}"),
                    &session.holds,
                    session.waiting.as_deref().unwrap_or_default(),
                    format!("{ends} by KILL {id}"),
                )
            }
            InTheWay::Prepared {
                holds,
                waiting,
                of_rows,
                ..
            } => (
                "a transaction that XA has prepared".to_owned(),
                holds,
                waiting.as_str(),
                match of_rows {
                    true => "These locks end with the transaction, whose end comes later in the ring's log: see \"What a log cannot say\" \
                             in docs/applier.md",
                    false => "A start of mysqld ends these locks. Do not end the transaction at this server",
                }
                .to_owned(),
            ),
        };
        let holds = match holds.as_str() {
            "global" | "commit" => "the whole server",
            "backup lock" => "the server's files, as for a backup",
            named => named,
        };
        let waiting = match waiting {
            "" => "what the ring has".to_owned(),
            rows if rows.starts_with("BINLOG") => "rows that the ring has".to_owned(),
            statement => format!("`{}`", shown_statement(statement.as_bytes(), SHOWN)),
        };
        let held_up = now.duration_since(self.since).as_secs();
        let has = match holds.starts_with(GTID) {
            true => "owns",
            false => "has locked",
        };
        format!(
            "{holder} {has} {holds}: {waiting} has waited for it for {held_up} s, and everything behind that as well. {ends}"
        )
    }
}

/// Maximum number of characters shown of a statement.
const SHOWN: usize = 100;

#[cfg(test)]
mod tests {
    use mysql_link::Endpoint;
    use testkit::mysql_tree::MysqlTree;
    use testkit::mysqld::Mysqld;

    use super::*;

    /// Regression: `data_locks` has rows for each partition that a transaction has touched. The query took half a minute. The member
    /// abandoned each query, and mysqld continued it alongside the next ones.
    #[tokio::test]
    async fn holders_of_many_partitions_are_found_within_the_limit_of_a_statement()
    -> anyhow::Result<()> {
        const READERS: usize = 4;
        let server = Mysqld::launch(&MysqlTree::require())?;
        server.client().sql(
            "CREATE DATABASE d; CREATE TABLE d.p (i INT PRIMARY KEY, v INT) PARTITION BY KEY (i) PARTITIONS 1024; \
             SET cte_max_recursion_depth = 10000; \
             INSERT INTO d.p WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 5000) SELECT i, 0 FROM n",
        )?;
        let of = |program: &str| {
            let mut connect = ConnectOptions::new(Endpoint::unix(server.socket()), "root", "");
            program.clone_into(&mut connect.program_name);
            connect
        };
        let mut readers = Vec::new();
        for _ in 0..READERS {
            let mut reader = Connection::open(&of("reports")).await?;
            reader.execute("BEGIN").await?;
            reader.query("SELECT COUNT(*) FROM d.p FOR SHARE").await?;
            readers.push(reader);
        }
        let mut applier = Connection::open(&of("witness-applier")).await?;
        let applies =
            tokio::spawn(async move { applier.execute("UPDATE d.p SET v = 1 WHERE i = 1").await });
        let looks = of("witness-lock-holders").bounded("witness-lock-holders", STATEMENT_LIMIT);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let mut session = Connection::open_with_own_settings(&looks).await?;
            let found = lockers(&mut session, Duration::from_secs(60)).await?;
            if found.len() == READERS {
                break;
            }
            anyhow::ensure!(Instant::now() < deadline, "{found:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        applies.abort();
        Ok(())
    }

    fn in_the_way(id: u32, waiting: &str) -> InTheWay {
        InTheWay::Session(session(id, waiting))
    }

    fn session(id: u32, waiting: &str) -> BlockingSession {
        BlockingSession {
            id,
            seconds: 40,
            account: "`reports`@`10.0.0.7`".to_owned(),
            holds: "table d.t".to_owned(),
            waiting: Some(waiting.to_owned()),
            of_member: false,
        }
    }

    #[test]
    fn who_holds_the_applier_up_is_named_and_killed_once_at_the_limit() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let limit = Duration::from_secs(10);
        let mut holders = Holders::default();
        let alter = || vec![in_the_way(7, "ALTER TABLE d.t ADD c INT")];
        holders.note(alter(), at(0));
        assert!(holders.held_up(at(0)).by.is_empty() && holders.not_told(at(1)).is_empty());
        for seconds in 1..10 {
            // The waiter sometimes gives up and retries.
            let found = if seconds % 3 == 1 { vec![] } else { alter() };
            holders.note(found, at(seconds));
            assert!(holders.overdue(limit, at(seconds)).is_empty());
        }
        let told = holders.not_told(at(9));
        assert_eq!(
            told,
            [
                "session 7 of `reports`@`10.0.0.7` has locked table d.t: `ALTER TABLE d.t ADD c INT` has waited for it for 9 s, and \
                 everything behind that as well. It ends by itself, or by KILL 7"
            ]
        );
        assert!(holders.not_told(at(9)).is_empty() && holders.held_up(at(9)).by.len() == 1);
        // A later holder has its own limit.
        let both = [alter(), vec![in_the_way(8, "BINLOG '…'")]].concat();
        holders.note(both.clone(), at(10));
        let killed = holders.overdue(limit, at(10));
        assert_eq!(killed, [session(7, "ALTER TABLE d.t ADD c INT")]);
        holders.note(both, at(11));
        assert!(holders.overdue(limit, at(11)).is_empty());
    }

    #[test]
    fn who_is_not_in_the_way_any_more_is_forgotten_and_not_killed() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut holders = Holders::default();
        holders.note(vec![in_the_way(7, "BINLOG '…'")], at(0));
        holders.note(vec![], at(2));
        assert!(holders.overdue(Duration::from_secs(1), at(2)).is_empty());
        assert_eq!(holders.held_up(at(2)).by.len(), 1);
        holders.note(vec![], at(3));
        assert!(holders.held_up(at(3)).by.is_empty());
        holders.note(vec![in_the_way(7, "BINLOG '…'")], at(4));
        assert!(holders.overdue(Duration::from_secs(1), at(4)).is_empty());
    }

    #[test]
    fn looks_that_take_long_are_taken_less_often_and_forget_no_holder() {
        assert_eq!(pause_after(Duration::from_millis(30)), LOOK);
        let given_up = STATEMENT_LIMIT;
        assert_eq!(pause_after(given_up), 4 * given_up);
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut holders = Holders::default();
        holders.note(vec![in_the_way(7, "BINLOG '…'")], at(0));
        // The checks in between failed.
        assert_eq!(holders.held_up(at(12)).by.len(), 1);
        holders.note(vec![in_the_way(7, "BINLOG '…'")], at(20));
        let limit = Duration::from_secs(10);
        assert_eq!(holders.overdue(limit, at(20)), [session(7, "BINLOG '…'")]);
    }

    #[test]
    fn an_owner_of_a_gtid_is_named_with_it_and_killed_at_the_limit() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let owner = BlockingSession {
            holds: format!("{GTID}3e11fa47-71ca-11e1-9e33-c80aa9429562:5"),
            waiting: None,
            ..session(7, "")
        };
        let mut holders = Holders::default();
        holders.note(vec![InTheWay::Session(owner.clone())], at(0));
        holders.note(vec![InTheWay::Session(owner.clone())], at(3));
        assert_eq!(
            holders.not_told(at(3)),
            [
                "session 7 of `reports`@`10.0.0.7` owns the GTID 3e11fa47-71ca-11e1-9e33-c80aa9429562:5: what the ring has has waited \
                 for it for 3 s, and everything behind that as well. It ends by itself, or by KILL 7"
            ]
        );
        assert_eq!(holders.overdue(Duration::from_secs(3), at(3)), [owner]);
    }

    /// Regression: the applier ends together with the statement that waits for `FLUSH TABLES WITH READ LOCK`, before the operator's limit.
    #[test]
    fn who_holds_one_applier_after_the_other_up_is_killed_at_the_limit() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let limit = Duration::from_secs(10);
        let waits = || vec![in_the_way(7, "UPDATE witness_applier.checkpoint")];
        let mut holders = Holders::default();
        for seconds in 0..8 {
            holders.note(waits(), at(seconds));
            assert!(holders.overdue(limit, at(seconds)).is_empty());
        }
        // The next applier begins after a pause, and waits a second later.
        holders.go_on(at(14));
        holders.note(waits(), at(15));
        assert_eq!(
            holders.overdue(limit, at(15)),
            [session(7, "UPDATE witness_applier.checkpoint")]
        );
        // An applier that begins after a longer pause starts with no holders.
        holders.go_on(at(40));
        holders.note(waits(), at(41));
        assert!(holders.overdue(limit, at(41)).is_empty());
    }

    #[test]
    fn a_session_of_the_member_is_named_and_never_killed() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let own = InTheWay::Session(BlockingSession {
            of_member: true,
            ..session(7, "UPDATE witness_applier.checkpoint")
        });
        let mut holders = Holders::default();
        holders.note(vec![own.clone()], at(0));
        holders.note(vec![own], at(2));
        assert!(holders.overdue(Duration::ZERO, at(2)).is_empty());
        let told = holders.not_told(at(2)).join("");
        assert!(told.ends_with("It is the member's own, which no other session kills: if it does not end by itself, it does by KILL 7"), "{told}");
    }

    /// No session could be killed, and ending the transaction by hand would be errant.
    #[test]
    fn what_xa_has_prepared_is_told_apart_once_it_is_in_the_way_for_long() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let prepared = InTheWay::Prepared {
            thread: 41,
            holds: "rows of d.t".to_owned(),
            waiting: "BINLOG '…'".to_owned(),
            of_rows: false,
        };
        let mut holders = Holders::default();
        holders.note(vec![prepared.clone(), in_the_way(41, "")], at(0));
        holders.note(vec![prepared, in_the_way(41, "")], at(1));
        assert_eq!(holders.held_up(at(1)), HeldUp::default());
        let held_up = holders.held_up(at(2));
        assert!(held_up.by_prepared && held_up.by.len() == 2);
        let words = held_up.by.join("");
        assert!(
            words.contains("a transaction that XA has prepared has locked rows of d.t: rows that the ring has has waited"),
            "{words}"
        );
        assert_eq!(holders.overdue(Duration::ZERO, at(1)).len(), 1);
        holders.note(vec![in_the_way(41, "")], at(4));
        assert!(!holders.held_up(at(4)).by_prepared);
    }

    #[test]
    fn what_xa_has_prepared_from_the_log_is_named_and_no_reason_for_a_start() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let prepared = InTheWay::Prepared {
            thread: 41,
            holds: "rows of d.t".to_owned(),
            waiting: "DELETE FROM d.t".to_owned(),
            of_rows: true,
        };
        let mut holders = Holders::default();
        holders.note(vec![prepared.clone()], at(0));
        holders.note(vec![prepared], at(2));
        let held_up = holders.held_up(at(2));
        assert!(!held_up.by_prepared);
        assert!(
            held_up.by.join("").contains("What a log cannot say"),
            "{held_up:?}"
        );
    }
}
