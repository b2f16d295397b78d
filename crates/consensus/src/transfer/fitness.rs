//! The members' reports about their mysqlds before a transfer: whether each could be the primary, and how much it lacks. All members are
//! queried concurrently for a short time, so that one decision covers all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use raft_types::{MemberId, MemberKind};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::calls::{Answer, DatabaseState, MemberCalls, Question};
use crate::member::administration::Administration;
use crate::ring_view::{RingMember, RingView};

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

/// Queries the voting database members concurrently. Members that have not answered a heartbeat of this leadership may have failed, and get
/// less time: a choice due to their failure must not wait for them.
pub(crate) async fn ask(
    admin: &Administration,
    calls: &Arc<dyn MemberCalls>,
    view: &RingView,
) -> DatabaseStates {
    let said = watch::Sender::default();
    Asking::begin(admin, calls, view, &said).wait().await;
    said.send_replace(DatabaseStates::new())
}

/// Queries the member that an operator named, possibly this one; `None` without a report.
pub(crate) async fn ask_one(
    admin: &Administration,
    calls: &Arc<dyn MemberCalls>,
    id: MemberId,
) -> Option<DatabaseState> {
    let primary = admin.database.version();
    if id == admin.engine.id {
        return admin.database.state(None).await;
    }
    let view = admin.ring_view();
    let peer = candidates(&view).find(|peer| peer.id == id)?;
    let question = Question::Database { primary };
    match calls.ask(id, &peer.record, question, NAMED).await {
        Ok(Answer::Database(state)) => Some(state),
        Ok(_) | Err(_) => None,
    }
}

/// Queries in progress, each with its timeout. Later answers still count.
pub(crate) struct Asking(Vec<(Duration, JoinHandle<()>)>);

impl Asking {
    /// Queries the voting database members. Reports go into `said`; the earlier report of a member that does not answer is removed.
    pub(crate) fn begin(
        admin: &Administration,
        calls: &Arc<dyn MemberCalls>,
        view: &RingView,
        said: &watch::Sender<DatabaseStates>,
    ) -> Self {
        let (lease, heartbeat) = (admin.engine.timers.lease, admin.engine.timers.heartbeat);
        // A witness has no mysqld, and does not have the last primary's version.
        let primary = admin.database.version();
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
                    // An earlier version, no mysqld, or too slow: its state is unknown.
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

    /// Waits for each query up to its timeout.
    pub(crate) async fn wait(self) {
        let asked = self.0.into_iter();
        join_all(asked.map(|(patience, asking)| tokio::time::timeout(patience, asking))).await;
    }
}

/// Timeout for the member that an operator named. Its mysqld gets a third of that.
const NAMED: Duration = Duration::from_secs(1);

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
