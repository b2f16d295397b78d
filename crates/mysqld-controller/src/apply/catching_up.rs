//! Compares a server with the ring's log.

use std::time::Duration;

use binlog_format::gtid::{GtidSet, ParseGtidError, parse_gtid_owned};
use mysql_link::{ConnectOptions, Connection, LinkError};
use mysqld_server::standing::{Standing, may_propose};
use thiserror::Error;
use tokio::time::Instant;

use crate::ring::{Ring, RingError};

/// Why a server could not be compared with the log.
#[derive(Debug, Error)]
pub enum CompareError {
    /// The server cannot be queried.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The ring does not report its log.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The value of this variable is not a GTID set.
    #[error("{0} cannot be read: {1}")]
    Unreadable(&'static str, ParseGtidError),
    /// The server's answer is not a text.
    #[error("`{0}` did not answer with a text")]
    NoText(String),
}

/// The difference between a server's transactions and the log's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compared {
    /// Transactions of the log that the server lacks.
    pub(super) lacks: GtidSet,
    /// Transactions of the server that the log lacks.
    pub(super) beyond: GtidSet,
    /// All transactions of the log.
    pub(super) log: GtidSet,
}

/// The result of a comparison in the leadership of the server's member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fitness {
    /// The server may be the primary.
    Fit,
    /// The server lacks transactions of the log.
    Lacks,
    /// The server has these transactions, which the ring lacks and the ring's primary did not write.
    Errant(GtidSet),
}

impl Compared {
    /// Evaluates the comparison. Pure. The ring accepts excess transactions of a server that was the primary. After the applier has run, in
    /// this run of the member (`followed`) or an earlier one (`standing`), the source of excess transactions is unknown.
    pub(super) fn judge(
        self,
        followed: bool,
        standing: Option<Standing>,
        origin: &GtidSet,
    ) -> Fitness {
        let ours = !followed && may_propose(standing, &self.log, origin);
        if !self.beyond.is_empty() && !ours {
            Fitness::Errant(self.beyond)
        } else if !self.lacks.is_empty() {
            Fitness::Lacks
        } else {
            Fitness::Fit
        }
    }
}

/// Returns the server's transactions that the ring has not committed.
pub(super) fn errant(executed: &GtidSet, committed: &GtidSet) -> GtidSet {
    executed.difference(committed)
}

/// Compares the server with the log of a serving member. Transactions that wait for an ACK in the server count as present, because the ACK
/// comes after the attachment. On a server that has `followed` no commit waits for an ACK, and a session that owns a GTID may never execute
/// it.
///
/// # Errors
/// The server or the log cannot be queried.
pub(super) async fn compare<R: Ring>(
    ring: &R,
    connection: &mut Connection,
    followed: bool,
) -> Result<Compared, CompareError> {
    let log = ring.log().await?;
    // Queried first, so that a transaction that commits in between appears in one of the two variables.
    let owned = text(connection, "SELECT @@GLOBAL.gtid_owned").await?;
    let owned = parse_gtid_owned(&owned).map_err(unreadable("gtid_owned"))?;
    let executed = executed_by(connection).await?;
    let lacks = log.gtids.difference(&executed);
    Ok(Compared {
        lacks: match followed {
            true => lacks,
            false => lacks.difference(&owned),
        },
        beyond: errant(&executed, &log.gtids),
        log: log.gtids,
    })
}

/// Returns the executed transactions of the server, queried on a separate connection.
///
/// # Errors
/// The server cannot be queried, or its answer cannot be parsed.
pub async fn executed_gtids(connect: &ConnectOptions) -> Result<GtidSet, CompareError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    let executed = executed_by(&mut connection).await?;
    connection.close().await;
    Ok(executed)
}

/// Returns the executed transactions of the server, queried on this connection.
///
/// # Errors
/// As [`executed_gtids`].
pub async fn executed_by(connection: &mut Connection) -> Result<GtidSet, CompareError> {
    let set = text(connection, "SELECT @@GLOBAL.gtid_executed").await?;
    set.parse().map_err(unreadable("gtid_executed"))
}

fn unreadable(variable: &'static str) -> impl FnOnce(ParseGtidError) -> CompareError {
    move |error| CompareError::Unreadable(variable, error)
}

async fn text(connection: &mut Connection, query: &str) -> Result<String, CompareError> {
    let answer = connection.query(query).await?;
    let text = answer.value();
    let text = text.ok_or_else(|| CompareError::NoText(query.to_owned()));
    Ok(text?.to_owned())
}

/// Waits at most `limit` until the server has executed all of `wanted`, and returns the transactions that it then lacks, to show progress.
/// Polls every two milliseconds while the primary changes.
///
/// # Errors
/// The server cannot be queried.
pub(super) async fn lacks_of(
    connection: &mut Connection,
    wanted: &GtidSet,
    limit: Duration,
) -> Result<GtidSet, CompareError> {
    let deadline = Instant::now() + limit;
    loop {
        let lacks = wanted.difference(&executed_by(connection).await?);
        if lacks.is_empty() || Instant::now() >= deadline {
            return Ok(lacks);
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

const ASK_AGAIN: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use raft_types::Term;

    use super::*;

    #[test]
    fn what_a_comparison_says_depends_on_what_the_server_was() {
        const UUID: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let set = |text: &str| format!("{UUID}:{text}").parse::<GtidSet>().unwrap();
        let (none, origin, log) = (GtidSet::new(), set("1-5"), set("1-9"));
        let (lacks, beyond) = (set("9"), set("10-12"));
        let primary = Some(Standing::primary(Term(3)));
        let following = Some(Standing::Following);
        let errant = Fitness::Errant(beyond.clone());
        // Expected results if the server lacks nothing, lacks some transactions, has errant ones, and both.
        let proposes = [Fitness::Fit, Fitness::Lacks, Fitness::Fit, Fitness::Lacks];
        let does_not = [Fitness::Fit, Fitness::Lacks, errant.clone(), errant];
        let table = [
            (false, primary, &log, &proposes),
            (false, following, &log, &does_not),
            (false, None, &log, &does_not),
            (false, None, &origin, &proposes),
            // The server is recorded as the primary, and the applier has run since.
            (true, primary, &log, &does_not),
            (true, following, &log, &does_not),
            (true, None, &origin, &does_not),
        ];
        for (followed, standing, log, expected) in table {
            let found = [
                (&none, &none),
                (&lacks, &none),
                (&none, &beyond),
                (&lacks, &beyond),
            ];
            for ((lacks, beyond), expected) in found.into_iter().zip(expected) {
                let compared = Compared {
                    lacks: lacks.clone(),
                    beyond: beyond.clone(),
                    log: log.clone(),
                };
                let said = format!("{followed} {standing:?} {compared:?}");
                assert_eq!(
                    &compared.judge(followed, standing, &origin),
                    expected,
                    "{said}"
                );
            }
        }
    }
}
