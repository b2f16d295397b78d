//! A member without a vote that leads for a moment, because the latest end of all logs is its own.
//!
//! A member whose log's end is in doubt ([`super::doubted_tail`]) elects nobody whose log ends before those of all others. That latest
//! end may be that of a member without a vote: a leader sends its entries to all at once, and the voters may have lost theirs with their
//! power, or had no room for them. Then no voter is elected, and a member without a vote does not campaign by itself.
//!
//! Its entries are not given up, because nobody can tell whether they are committed. A leader counts by a new membership as soon as that is
//! in its own log, also what stands before it. A voter less may have made the member in doubt a quorum by itself, and a vote for the one
//! that has none may have made a quorum of the two; and that membership may be gone with what was lost. So who has those entries is asked to
//! stand in: it campaigns once.
//!
//! Nothing else than an election comes of it. It counts the votes of the voters, each of which looks at its log and keeps the
//! lease that it has granted. The engine lets a member without a vote campaign in a transfer of the leadership only, and says then
//! that leases are over; as nobody has ended one here, that word is taken from the votes that it asks for ([`StandIn::asks_in`]).
//!
//! Who stands in leads until one of those that vote has what it has, and gives the leadership away as a witness does. It does not move
//! the quorum to its region meanwhile, and the mysqld beside it is no primary: what an operator wanted of it has not changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::raft::TransferLeaderRequest;
use raft_types::{MemberId, OpId};
use tokio::time::Instant;

use crate::calls::{CallError, LogEnd, MemberCalls, Question};
use crate::engine::Fault;
use crate::lease::leadership::Term;
use crate::member::core::MemberCore;

/// The term in which this member stands in; clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct StandIn(Arc<AtomicU64>);

impl StandIn {
    /// It is about to campaign in this term.
    pub(crate) fn campaigns_in(&self, term: Term) {
        self.0.store(term.0, Ordering::Release);
    }

    /// Whether it campaigned in this term to stand in.
    pub(crate) fn asks_in(&self, term: Term) -> bool {
        // No election is held in the first term, which is 0.
        term.0 > 0 && self.0.load(Ordering::Acquire) == term.0
    }
}

/// Who is to stand in for those that vote, by what the others say of their logs. Nobody where one of them leads, or does not answer and may
/// (a leader that the candidate does not reach would hear of its term later, and step down for nothing), and nobody where a voter may be elected.
/// A log that has what may be lost ends at `needed` or behind it.
pub(crate) fn choose(
    needed: OpId,
    others: &BTreeSet<MemberId>,
    voters: &BTreeSet<MemberId>,
    answers: &BTreeMap<MemberId, LogEnd>,
) -> Option<MemberId> {
    let led = answers.values().any(|answer| answer.leads.is_some());
    if led || others.iter().any(|id| !answers.contains_key(id)) {
        return None;
    }
    let has_all = answers
        .iter()
        .filter(|(_, answer)| answer.last >= Some(needed));
    // A voter that has it campaigns by itself.
    if has_all.clone().any(|(id, _)| voters.contains(id)) {
        return None;
    }
    let (id, _) = has_all.max_by_key(|(_, answer)| answer.last)?;
    Some(*id)
}

/// Asks one to stand in that is to do so for as long as elections take.
#[derive(Debug, Default)]
pub(crate) struct Asking(Option<(MemberId, Instant)>);

impl Asking {
    /// Whom to ask now, where this one is to stand in.
    fn due(
        &mut self,
        chosen: Option<MemberId>,
        now: Instant,
        patience: Duration,
    ) -> Option<MemberId> {
        let begun = self.0.filter(|(id, _)| Some(*id) == chosen);
        let (id, since) = begun.or(chosen.map(|id| (id, now))).unzip();
        let due = since.is_some_and(|since| now - since >= patience);
        // It is asked again when as much time has passed.
        let since = if due { Some(now) } else { since };
        self.0 = id.zip(since);
        id.filter(|_| due)
    }

    /// Looks whether somebody is to stand in, and asks it.
    pub(crate) async fn go_on(
        &mut self,
        core: &MemberCore,
        calls: &dyn MemberCalls,
        needed: Option<OpId>,
        answers: &BTreeMap<MemberId, LogEnd>,
    ) {
        let role = core.role();
        let nodes = role.membership.membership().nodes().map(|(id, _)| *id);
        let others = nodes.filter(|id| *id != core.id).collect();
        let voters = role.voter_sets().iter().flatten().copied().collect();
        let led = role.leader.is_some();
        let chosen = needed.filter(|_| !led);
        let chosen = chosen.and_then(|needed| choose(needed, &others, &voters, answers));
        let patience = core.timers.longest_election();
        let Some(id) = self.due(chosen, Instant::now(), patience) else {
            return;
        };
        let Some(record) = role.membership.membership().get_node(&id) else {
            return;
        };
        tracing::warn!(member = %id, "no voter has what this member may have acknowledged, and that one, which has no vote, has it: it is asked to lead until a voter has it too");
        let asked = calls.ask(id, record, Question::StandIn, core.timers.lease);
        if let Err(refusal) = asked.await {
            tracing::warn!(member = %id, %refusal, "it does not");
        }
    }
}

/// Campaigns although this member has no vote, because one that may have lost entries has found them here alone.
///
/// # Errors
/// [`CallError`] where that is not for it to do, or the engine has stopped.
pub(crate) async fn campaign(core: &MemberCore) -> Result<(), CallError> {
    if let Some(why) = core.campaigning.gate.stays_out() {
        return Err(CallError(why.to_string()));
    }
    let role = core.role();
    if role.voter_sets().iter().any(|set| set.contains(&core.id)) {
        let reason = "this member has a vote, and campaigns by itself";
        return Err(CallError(reason.to_owned()));
    }
    if let Some(leader) = role.leader {
        return Err(CallError(format!(
            "member {leader} leads, as this one hears"
        )));
    }
    let stopped = |error: Fault| CallError(error.to_string());
    let vote = core.raft.with_raft_state(|state| *state.vote_ref()).await;
    let vote = vote.map_err(Fault::from).map_err(stopped)?;
    // The engine does nothing where its vote is another one by then.
    core.stand_in.campaigns_in(Term(vote.leader_id.term + 1));
    let request = TransferLeaderRequest::new(vote, core.id, None);
    let taken = core.raft.handle_transfer_leader(request).await;
    let taken = taken.map_err(Fault::from).map_err(stopped)?;
    taken.map_err(|refusal| CallError(refusal.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(term: u64, index: u64) -> LogEnd {
        LogEnd {
            last: Some(OpId::new(term, index)),
            leads: None,
            membership: None,
        }
    }

    #[test]
    fn who_stands_in() {
        let leads = LogEnd {
            leads: Some(Term(3)),
            ..end(4, 30)
        };
        let needed = OpId::new(4, 30);
        type Row<'a> = (&'a str, &'a [(u64, LogEnd)], Option<u64>);
        let rows: [Row<'_>; 7] = [
            (
                "a member without a vote has all, and no voter does",
                &[(2, end(4, 29)), (8, end(4, 30))],
                Some(8),
            ),
            (
                "the one that has most",
                &[(2, end(4, 29)), (8, end(4, 30)), (9, end(4, 31))],
                Some(9),
            ),
            (
                "a voter has as much",
                &[(2, end(4, 30)), (8, end(4, 30))],
                None,
            ),
            (
                "a voter has all, and another one has more",
                &[(2, end(4, 30)), (8, end(4, 31))],
                None,
            ),
            ("nobody has all", &[(2, end(4, 28)), (8, end(4, 29))], None),
            ("somebody leads", &[(2, leads), (8, end(4, 30))], None),
            ("somebody may lead", &[(8, end(4, 30))], None),
        ];
        let voters = [1, 2].map(MemberId).into();
        let others = [2, 8].map(MemberId).into();
        for (what, answers, expected) in rows {
            let answers = answers.iter().map(|(id, end)| (MemberId(*id), *end));
            let chosen = choose(needed, &others, &voters, &answers.collect());
            assert_eq!(chosen, expected.map(MemberId), "{what}");
        }
    }

    #[test]
    fn who_stands_in_is_asked_when_elections_have_had_their_time() {
        let (begun, patience) = (Instant::now(), Duration::from_secs(1));
        let mut asking = Asking::default();
        let mut due = |chosen: Option<u64>, millis| {
            let now = begun + Duration::from_millis(millis);
            let due = asking.due(chosen.map(MemberId), now, patience);
            due.map(|id| id.0)
        };
        assert_eq!(due(Some(8), 0), None);
        assert_eq!(due(Some(8), 999), None);
        assert_eq!(due(Some(8), 1000), Some(8));
        assert_eq!(due(Some(8), 1100), None, "it has been asked");
        assert_eq!(due(Some(8), 2000), Some(8), "and is asked again");
        assert_eq!(due(None, 2100), None);
        assert_eq!(due(Some(8), 3100), None, "somebody led meanwhile");
        assert_eq!(due(Some(9), 4200), None, "another one has more");
        assert_eq!(due(Some(9), 5200), Some(9));
    }

    #[test]
    fn it_stands_in_in_the_term_for_which_it_was_asked() {
        let stands_in = StandIn::default();
        assert!(!stands_in.asks_in(Term(0)));
        stands_in.campaigns_in(Term(5));
        let terms = [4, 5, 6].map(|term| stands_in.asks_in(Term(term)));
        assert_eq!(terms, [false, true, false]);
    }
}
