//! The members' mysqlds in a leadership transfer. The leader's own stops accepting writes before a planned one, so that the next leader
//! loses none. All members report before it whether their mysqld could be the primary, and how much it lacks. They are queried concurrently
//! for a short time, so that one decision covers all of them.

use std::collections::BTreeMap;
use std::time::Duration;

use consensus::{Answer, DatabaseState, Question, RaftNode, RingMember, RingView};
use futures::future::{BoxFuture, join_all};
use raft_types::{MemberId, MemberKind};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What keeps a writer from a pause.
pub type NotPaused = Box<dyn std::error::Error + Send + Sync>;

/// The part of a member that writes to its log.
pub trait Writer: Send + Sync + 'static {
    /// Stops accepting writes, and waits until the accepted ones are committed or refused. Called in a leadership that serves clients.
    ///
    /// # Errors
    /// Writes are still in progress after a while; the leadership is kept then.
    fn pause(&self) -> BoxFuture<'_, Result<(), NotPaused>>;

    /// Accepts writes again, if this member leads.
    fn resume(&self);
}

/// A pause of the writer, if the member has one, that ends when it is dropped, whatever the state of the leadership.
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
    /// The cost of a promotion now, after a primary of this version, if known. Bounded: the caller waits a few hundred milliseconds.
    fn state(&self, primary: Option<String>) -> BoxFuture<'_, DatabaseState>;

    /// Its version, if known.
    fn version(&self) -> Option<String>;
}

/// A mysqld that lacks more transactions than this keeps clients waiting for about a second.
pub const SOON_THERE: u64 = 500;

/// The reports; members that did not answer are not included.
pub(crate) type DatabaseStates = BTreeMap<MemberId, DatabaseState>;

/// The rank of a candidate; lower is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fitness {
    /// It could be the primary.
    Fit,
    /// No report, or not in time.
    Unknown,
    /// It reports that it could not be the primary.
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

/// The other database members that vote.
pub(crate) fn candidates(view: &RingView) -> impl Iterator<Item = &RingMember> {
    view.members.iter().filter(|peer| {
        peer.record.kind == MemberKind::Database && peer.record.votes && peer.id != view.own
    })
}

/// Queries in progress, each with its timeout. Later answers still count. Members that have not answered a heartbeat of this leadership may
/// have failed, and get less time: a choice due to their failure must not wait for them.
pub(crate) struct Asking(Vec<(Duration, JoinHandle<()>)>);

impl Asking {
    /// Queries the voting database members; `primary` is the version of this member's own mysqld. A witness has none. Reports go into
    /// `reports`; the earlier report of a member that does not answer is removed.
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
                    // An earlier version, no mysqld, or too slow: its state is unknown.
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

/// Timeout for the member that an operator named. Its mysqld gets a third of that.
pub(crate) const NAMED: Duration = Duration::from_secs(1);

/// The longest wait for an answer before the choice.
const LONGEST: Duration = Duration::from_millis(500);

/// Timeout for one member, which may or may not have answered a heartbeat of this leadership.
fn patience(answers: bool, heartbeat: Duration) -> Duration {
    match answers {
        true => heartbeat.min(LONGEST),
        false => (heartbeat / 5).min(LONGEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: docs/roles.md. A witness elected after the death of a database member does not wait long for that member.
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
