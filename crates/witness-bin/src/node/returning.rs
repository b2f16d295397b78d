//! A member that comes back to its ring. Before its Raft starts, it asks the others whether the ring still goes on from
//! what its log says; if an operator repaired a lost quorum meanwhile, it cuts its log back to where it agrees with them.
//! And it does not campaign before it knows: two members that were given up must not elect each other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use binlog_store::{BinlogStore, CutBackError, LogHandle};
use consensus::{
    Agreement, Leadership, Member, MemberCalls, Recollection, Rejoin, ask_for_agreement,
    judge_rejoin,
};
use raft_types::{MemberId, MemberRecord};
use tokio::time::Instant;

use super::ring_handle::now_in_seconds;

/// How long a member that is about to start waits for the others' answers.
const FIRST_ANSWERS: Duration = Duration::from_secs(1);
/// How often a member that must not campaign yet asks those again that did not answer.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How long it waits for all of them. After a power cut in which one of them died, this is how long the ring stays down.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
pub(crate) struct Returning {
    own: Recollection,
    others: BTreeMap<MemberId, MemberRecord>,
    calls: Arc<dyn MemberCalls>,
    answers: BTreeMap<MemberId, Agreement>,
}

/// Comes back with a log: cuts it back if the ring went on without its end.
///
/// # Errors
/// When the log has to be cut back and cannot be.
pub(crate) async fn come_back(
    store: &mut BinlogStore,
    own: MemberId,
    calls: Arc<dyn MemberCalls>,
) -> Result<Returning, CutBackError> {
    let mut returning = Returning::new(&store.handle(), own, calls.clone());
    returning.ask(FIRST_ANSWERS).await;
    let Rejoin::CutBack { to, ring_last } = returning.judge() else {
        return Ok(returning);
    };
    let reason = format!(
        "the quorum was repaired without this member; the ring goes on to {ring_last} without these entries"
    );
    let at = u64::from(now_in_seconds());
    let tail = store.cut_back(to, &reason, at).await?;
    let gtids = tail.map(|tail| tail.gtids).unwrap_or_default();
    tracing::warn!(?to, %ring_last, %gtids, "the log was cut back: {reason}; what was cut is kept in `trimmed`");
    Ok(Returning::new(&store.handle(), own, calls))
}

impl Returning {
    /// What the log remembers, and whom to ask.
    fn new(log: &LogHandle, own: MemberId, calls: Arc<dyn MemberCalls>) -> Self {
        let (committed, membership) = log.applied_at_open();
        let members = membership.membership().nodes();
        let others = members.filter(|(id, _)| **id != own);
        Self {
            own: Recollection {
                runs: log.term_runs(),
                committed,
            },
            others: others.map(|(id, record)| (*id, record.clone())).collect(),
            calls,
            answers: BTreeMap::new(),
        }
    }

    /// Keeps the member from campaigning until it has heard from a leader, or all others agree with its log, or it has
    /// waited long enough.
    pub(crate) async fn campaign_when_known(mut self, member: Member) {
        if self.own.runs.is_empty() || self.all_agree() {
            return;
        }
        member.set_campaigning(false);
        let until = Instant::now() + PATIENCE;
        let mut leadership = member.leadership();
        loop {
            let known = match *leadership.borrow_and_update() {
                Leadership::Follower { leader } => leader.is_some(),
                Leadership::Candidate => false,
                Leadership::LeaderNotServing { .. } | Leadership::Serving { .. } => true,
            };
            if known || self.all_agree() {
                break;
            }
            if Instant::now() >= until {
                let missing: Vec<&MemberId> = self
                    .others
                    .keys()
                    .filter(|id| !self.answers.contains_key(id))
                    .collect();
                tracing::warn!(
                    ?missing,
                    "campaigning without having heard from all other members; if a quorum was repaired without this one, stop it"
                );
                break;
            }
            self.ask(ASK_AGAIN).await;
            if let Rejoin::CutBack { to, ring_last } = self.judge() {
                tracing::error!(
                    ?to,
                    %ring_last,
                    "the quorum was repaired without this member; it does not campaign: start it again, and it cuts its log back"
                );
                return;
            }
            tokio::select! {
                _ = leadership.changed() => {}
                () = tokio::time::sleep(ASK_AGAIN) => {}
            }
        }
        member.set_campaigning(true);
    }

    /// Asks those that did not answer yet.
    async fn ask(&mut self, deadline: Duration) {
        let left: BTreeMap<MemberId, MemberRecord> = self
            .others
            .iter()
            .filter(|(id, _)| !self.answers.contains_key(id))
            .map(|(id, record)| (*id, record.clone()))
            .collect();
        let answers = ask_for_agreement(&*self.calls, &left, &self.own, deadline).await;
        let answered = answers
            .into_iter()
            .filter_map(|(id, answer)| Some((id, answer.ok()?)));
        self.answers.extend(answered);
    }

    fn all_agree(&self) -> bool {
        self.answers.len() == self.others.len() && self.judge() == Rejoin::AsItIs
    }

    fn judge(&self) -> Rejoin {
        judge_rejoin(&self.own, self.answers.values().cloned())
    }
}
