//! What the members say of the mysqlds beside them when somebody is to get the leadership: whether each could be the primary,
//! and what it lacks. Asked of all at once, within a short time, so that the choice is one decision about all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use raft_types::{MemberId, MemberKind};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::calls::{Answer, DatabaseState, MemberCalls, Question};
use crate::member::core::MemberCore;
use crate::ring_view::{RingMember, RingView};

/// A mysqld that lacks more transactions keeps clients waiting for about a second.
pub const SOON_THERE: u64 = 500;

/// What was answered; who did not answer is not in it.
pub(crate) type DatabaseStates = BTreeMap<MemberId, DatabaseState>;

/// How good a choice one of them is; the lower, the better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fitness {
    /// It could be the primary.
    Fit,
    /// It did not say, or was not heard in time.
    Unknown,
    /// It could not, as it says itself.
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

/// Asks the database members that vote, all at once. Those that have not answered a heartbeat of this leadership yet may be gone, and
/// are waited for less: a choice that is due for their sake is not held up by them.
pub(crate) async fn ask(
    core: &MemberCore,
    calls: &Arc<dyn MemberCalls>,
    view: &RingView,
) -> DatabaseStates {
    let said = watch::Sender::default();
    Asking::begin(core, calls, view, &said).wait().await;
    said.send_replace(DatabaseStates::new())
}

/// Asks the one that an operator has named, which may be this member; nothing where that did not say.
pub(crate) async fn ask_one(
    core: &MemberCore,
    calls: &Arc<dyn MemberCalls>,
    id: MemberId,
) -> Option<DatabaseState> {
    let primary = core.database.version();
    if id == core.id {
        return core.database.state(None).await;
    }
    let view = core.ring_view();
    let peer = candidates(&view).find(|peer| peer.id == id)?;
    let question = Question::Database { primary };
    match calls.ask(id, &peer.record, question, NAMED).await {
        Ok(Answer::Database(state)) => Some(state),
        Ok(_) | Err(_) => None,
    }
}

/// Members that have been asked, and for how long each is waited for. An answer that comes later counts all the same.
pub(crate) struct Asking(Vec<(Duration, JoinHandle<()>)>);

impl Asking {
    /// Asks the database members that vote. What they answer comes into `said`; of who does not answer, what it said before goes.
    pub(crate) fn begin(
        core: &MemberCore,
        calls: &Arc<dyn MemberCalls>,
        view: &RingView,
        said: &watch::Sender<DatabaseStates>,
    ) -> Self {
        let (lease, heartbeat) = (core.timers.lease, core.timers.heartbeat);
        // A witness has none, and does not know which one the last primary's was.
        let primary = core.database.version();
        let asked = candidates(view).map(|peer| {
            let question = Question::Database {
                primary: primary.clone(),
            };
            let (id, record) = (peer.id, peer.record.clone());
            let (calls, said) = (calls.clone(), said.clone());
            let asking = tokio::spawn(async move {
                let answer = calls.ask(id, &record, question, patience(true, heartbeat));
                let now = match answer.await {
                    Ok(Answer::Database(state)) => Some(state),
                    // One of an earlier version, without a mysqld, or too slow: nothing is known of it.
                    Ok(_) | Err(_) => None,
                };
                said.send_if_modified(|said| {
                    let before = match now.clone() {
                        Some(state) => said.insert(id, state),
                        None => said.remove(&id),
                    };
                    before != now
                });
            });
            (patience(peer.answers(lease), heartbeat), asking)
        });
        Self(asked.collect())
    }

    /// Waits for them, each as long as it is waited for.
    pub(crate) async fn wait(self) {
        let asked = self.0.into_iter();
        join_all(asked.map(|(patience, asking)| tokio::time::timeout(patience, asking))).await;
    }
}

/// How long the member that an operator has named may take to answer. Its mysqld may take a third of that.
const NAMED: Duration = Duration::from_secs(1);

/// How long the choice may wait for an answer.
const LONGEST: Duration = Duration::from_millis(500);

/// How long it waits for one member, which may have answered a heartbeat of this leadership, or not yet.
fn patience(answers: bool, heartbeat: Duration) -> Duration {
    match answers {
        true => heartbeat.min(LONGEST),
        false => (heartbeat / 5).min(LONGEST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/roles.md says so: a witness that was elected because a database member has died does not wait long for that one.
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
