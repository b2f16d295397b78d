//! Whether a server has everything of the ring's log.

use std::time::Duration;

use binlog_format::gtid::{GtidSet, parse_gtid_owned};
use mysql_link::{ConnectOptions, Connection};
use tokio::time::Instant;

use crate::apply::errant::errant;
use crate::apply::standing::{Standing, may_propose};
use crate::ring::Ring;

/// How a server's transactions compare with the log's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compared {
    /// Transactions of the log that the server lacks.
    pub(super) lacks: GtidSet,
    /// Transactions of the server that the log lacks.
    pub(super) beyond: GtidSet,
    /// All transactions of the log.
    pub(super) log: GtidSet,
}

/// What a server is good for in the leadership of its member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fitness {
    /// It may be the primary.
    Fit,
    /// It lacks transactions of the log.
    Lacks,
    /// It has these, which the ring has not, and which were not written at the ring's primary.
    Errant(GtidSet),
}

impl Compared {
    /// The verdict, pure. What a server has beyond the log that was the primary before, the ring takes in. What one has that the
    /// applier was at work on since, in this life of the member (`followed`) or an earlier one (`standing`), nobody knows.
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

/// Compares what the server has with the log of a member that serves. What waits there for an ACK it has: the ACK comes with
/// the attachment. On a server that has `followed` no commit waits for one: a session that owns a GTID there has not executed it,
/// and may never do so.
///
/// # Errors
/// In words: one of the two cannot be asked.
pub(super) async fn compare<R: Ring>(
    ring: &R,
    connection: &mut Connection,
    followed: bool,
) -> Result<Compared, String> {
    let log = ring.log().await.map_err(|error| error.to_string())?;
    // First, so that a transaction that commits meanwhile is seen in one of the two.
    let owned = text(connection, "SELECT @@GLOBAL.gtid_owned").await?;
    let owned = parse_gtid_owned(&owned);
    let owned = owned.map_err(|error| format!("gtid_owned cannot be read: {error}"))?;
    let executed = ask(connection).await?;
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

/// What the server has executed, asked on a connection of its own.
///
/// # Errors
/// In words: it cannot be asked, or its answer cannot be read.
pub async fn executed_gtids(connect: &ConnectOptions) -> Result<GtidSet, String> {
    let mut connection = open(connect).await?;
    let executed = ask(&mut connection).await?;
    connection.close().await;
    Ok(executed)
}

/// What the primary has in no binlog file and the ring's log has not, as behind a dump that was loaded with its `SET GTID_PURGED`:
/// nobody ever sends it. Empty where all is well.
///
/// # Errors
/// In words: it cannot be asked, or its answer cannot be read.
pub async fn never_sent<R: Ring>(ring: &R, connect: &ConnectOptions) -> Result<GtidSet, String> {
    let mut connection = open(connect).await?;
    let purged = gtids(&mut connection, "gtid_purged").await?;
    connection.close().await;
    // In this order: a file is purged behind the ACKs of all that is in it.
    let log = ring.log().await.map_err(|error| error.to_string())?;
    Ok(purged.difference(&log.gtids))
}

async fn ask(connection: &mut Connection) -> Result<GtidSet, String> {
    gtids(connection, "gtid_executed").await
}

async fn gtids(connection: &mut Connection, variable: &str) -> Result<GtidSet, String> {
    let set = text(connection, &format!("SELECT @@GLOBAL.{variable}")).await?;
    set.parse()
        .map_err(|error| format!("{variable} cannot be read: {error}"))
}

async fn text(connection: &mut Connection, query: &str) -> Result<String, String> {
    let answer = connection.query(query).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let text = answer.first().and_then(|row| row.text_at(0));
    let text = text.ok_or_else(|| format!("`{query}` did not answer with a text"));
    Ok(text?.to_owned())
}

/// Waits until the server has executed all of `wanted`, for `limit` at most, and says what it lacks then, so that the way can
/// be shown. Asked again and again, which costs a question each two milliseconds during a change of the primary.
///
/// # Errors
/// In words: the server cannot be asked.
pub(super) async fn lacks_of(
    connection: &mut Connection,
    wanted: &GtidSet,
    limit: Duration,
) -> Result<GtidSet, String> {
    let deadline = Instant::now() + limit;
    loop {
        let lacks = wanted.difference(&ask(connection).await?);
        if lacks.is_empty() || Instant::now() >= deadline {
            return Ok(lacks);
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

const ASK_AGAIN: Duration = Duration::from_millis(2);

/// A session for the questions.
///
/// # Errors
/// In words.
pub(super) async fn open(connect: &ConnectOptions) -> Result<Connection, String> {
    let opened = Connection::open_with_own_settings(connect).await;
    opened.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::LeaderTerm;

    #[test]
    fn what_a_comparison_says_depends_on_what_the_server_was() {
        const UUID: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let set = |text: &str| format!("{UUID}:{text}").parse::<GtidSet>().unwrap();
        let (none, origin, log) = (GtidSet::new(), set("1-5"), set("1-9"));
        let (lacks, beyond) = (set("9"), set("10-12"));
        let primary = Some(Standing::primary(LeaderTerm(3)));
        let following = Some(Standing::Following);
        let errant = Fitness::Errant(beyond.clone());
        // Has nothing more and lacks nothing, lacks something, has more, both.
        let proposes = [Fitness::Fit, Fitness::Lacks, Fitness::Fit, Fitness::Lacks];
        let does_not = [Fitness::Fit, Fitness::Lacks, errant.clone(), errant];
        let table = [
            (false, primary, &log, &proposes),
            (false, following, &log, &does_not),
            (false, None, &log, &does_not),
            (false, None, &origin, &proposes),
            // It is written down that it was the primary, and the applier was at work since.
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
