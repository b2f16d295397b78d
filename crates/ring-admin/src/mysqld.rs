//! The members' mysqlds in a leadership transfer. Before a planned transfer, the leader's mysqld stops accepting writes, so that no write
//! is lost. The database members report whether their mysqlds could be the primary, and how many transactions they lack. They are queried
//! concurrently with a short timeout, so that one decision can compare all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use consensus::{Answer, DatabaseState, Question, RaftNode, RingMember, RingView};
use futures::future::{BoxFuture, join_all};
use raft_types::{MemberId, MemberKind};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Why a writer could not be paused.
pub type NotPaused = Box<dyn std::error::Error + Send + Sync>;

/// The part of a member that writes to its log.
pub trait Writer: Send + Sync + 'static {
    /// Stops accepting writes, and waits until the accepted writes are committed or refused. Called on a leader that serves clients.
    ///
    /// # Errors
    /// When writes are still in progress after the writer's time limit. The leader then keeps the leadership.
    fn pause(&self) -> BoxFuture<'_, Result<(), NotPaused>>;

    /// Accepts writes again, if this member leads.
    fn resume(&self);
}

/// A pause of the member's writer, if it has one. The pause ends when this guard is dropped, also if the member no longer leads.
pub(crate) struct Paused<'a>(Option<&'a dyn Writer>);

impl<'a> Paused<'a> {
    pub(crate) async fn begin(writer: Option<&'a dyn Writer>) -> Result<Self, NotPaused> {
        let paused = Self(writer);
        if let Some(writer) = writer {
            writer.pause().await?;
        }
        Ok(paused)
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if let Some(writer) = self.0 {
            writer.resume();
        }
    }
}

/// The mysqld of a member.
pub trait Database: Send + Sync + 'static {
    /// Returns whether this mysqld could be promoted now, and how many transactions it lacks. `primary` is the version of the present
    /// primary, if known. Must return quickly: the caller waits a few hundred milliseconds.
    fn state(&self, primary: Option<String>) -> BoxFuture<'_, DatabaseState>;

    /// Returns the version of this mysqld, if known.
    fn version(&self) -> Option<String>;
}

/// After its promotion, a mysqld that lacks more transactions than this delays clients by about a second or more.
pub const SOON_THERE: u64 = 500;

/// The reports of the members' mysqlds. Members that did not answer are not included.
pub(crate) type DatabaseStates = BTreeMap<MemberId, DatabaseState>;

/// The rank of a candidate; lower is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fitness {
    /// The mysqld could be the primary.
    Fit,
    /// The member has not reported in time.
    Unknown,
    /// The mysqld could not be the primary, as the member reports.
    Unfit,
}

impl Fitness {
    pub(crate) fn of(state: Option<&DatabaseState>) -> Self {
        match state {
            None => Self::Unknown,
            Some(state) if state.unfit.is_some() => Self::Unfit,
            Some(_) => Self::Fit,
        }
    }
}

/// Returns the other database members that vote.
pub(crate) fn candidates(view: &RingView) -> impl Iterator<Item = &RingMember> {
    view.members.iter().filter(|peer| {
        peer.record.kind == MemberKind::Database && peer.record.votes && peer.id != view.own
    })
}

/// Queries in progress, each with the time to wait for it. Later answers are recorded, too. A member that has not answered a heartbeat of
/// this leader may have failed, so the wait for it is shorter: its failure may be the reason for the choice.
pub(crate) struct Asking(Vec<(Duration, JoinHandle<()>)>);

impl Asking {
    /// Queries the voting database members. `primary` is the version of this member's own mysqld; `None` for a witness. Answers are stored
    /// in `reports`. If a member does not answer, its earlier report is removed.
    pub(crate) fn begin(
        node: &RaftNode,
        primary: Option<String>,
        view: &RingView,
        reports: &watch::Sender<DatabaseStates>,
    ) -> Self {
        let heartbeat = node.timers().heartbeat;
        let asked = candidates(view).map(|peer| {
            let question = Question::Database {
                primary: primary.clone(),
            };
            let (id, record) = (peer.id, peer.record.clone());
            let (calls, reports) = (node.calls().clone(), reports.clone());
            let asking = tokio::spawn(async move {
                let answer = calls.ask(id, &record, question, patience(true, heartbeat));
                let now = match answer.await {
                    Ok(Answer::Database(state)) => Some(state),
                    // The state is unknown: the member has an earlier version or no mysqld, or is too slow.
                    Ok(_) | Err(_) => None,
                };
                reports.send_if_modified(|reports| {
                    let before = match now.clone() {
                        Some(state) => reports.insert(id, state),
                        None => reports.remove(&id),
                    };
                    before != now
                });
            });
            (patience(view.answers(peer), heartbeat), asking)
        });
        Self(asked.collect())
    }

    /// Waits for each query up to its timeout.
    pub(crate) async fn wait(self) {
        let asked = self.0.into_iter();
        join_all(asked.map(|(patience, asking)| tokio::time::timeout(patience, asking))).await;
    }
}

/// Timeout for the query of a member that an operator named. The member itself waits a third of this time for its mysqld.
pub(crate) const NAMED: Duration = Duration::from_secs(1);

/// The longest wait for an answer before the choice.
const LONGEST: Duration = Duration::from_millis(500);

/// Returns the time to wait for one member. `answers`: the member has answered a heartbeat of this leader.
fn patience(answers: bool, heartbeat: Duration) -> Duration {
    match answers {
        true => heartbeat.min(LONGEST),
        false => (heartbeat / 5).min(LONGEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: docs/roles.md. A witness that is elected after the failure of a database member waits only briefly for that member.
    #[test]
    fn a_silent_member_costs_a_fifth_of_a_heartbeat() {
        let millis = Duration::from_millis;
        let table = [
            (false, 500, 100),
            (false, 1_000, 200),
            (false, 60_000, 500),
            (true, 300, 300),
            (true, 500, 500),
            (true, 60_000, 500),
        ];
        for (answers, heartbeat, expected) in table {
            let waited = patience(answers, millis(heartbeat));
            assert_eq!(waited, millis(expected), "{answers} {heartbeat}");
        }
    }
}
