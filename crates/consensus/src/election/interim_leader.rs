//! The interim leader: a non-voter that leads for a short time, because its log has the latest end of all logs.
//!
//! A member with a doubt about its log's end ([`super::doubted_tail`]) elects no member whose log ends before those of all others. The log
//! with the latest end may belong to a non-voter: a leader sends entries to all members concurrently. The voters may have lost the entries
//! in a power failure, or had no room for them. Then no voter is elected, and a non-voter does not campaign without a request.
//!
//! The non-voter's entries are not given up, because they may be committed. A leader uses a new membership as soon as the membership is in
//! its log, for earlier entries too. If the membership removes a voter, the member in doubt may have been a quorum alone. If the membership
//! gives the non-voter a vote, the non-voter and the member in doubt may have been a quorum. This membership may be among the lost entries.
//! So the non-voter with the entries is asked to campaign once.
//!
//! Only the candidate differs from an ordinary election. The voters' votes count; each voter checks its log and keeps the lease that it
//! granted. The engine lets a non-voter campaign only in a leadership transfer, and then declares leases over. In this case, no leader has
//! ended its lease. So this declaration is removed from the vote requests ([`super::counted_votes`]).
//!
//! The interim leader leads until a voter has all of its entries. Then it transfers the leadership, as a witness does. It does not move the
//! quorum to its region, and its mysqld is no primary, because the operator's preferences have not changed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::raft::TransferLeaderRequest;
use raft_types::{MemberId, OpId, Term};
use tokio::time::Instant;

use crate::calls::{CallError, LogEnd, Question};
use crate::election::elections::Elections;
use crate::engine::Fault;

/// Returns the member to ask to be the interim leader, according to the other members' log ends. A log that ends at `needed` or later has
/// all entries that may be lost.
///
/// Returns `None` if another member leads, or does not answer and so may lead. Such a leader would receive the candidate's term later, and
/// step down needlessly. Also returns `None` if a voter may be elected.
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
    // A voter that has the entries campaigns without a request.
    if has_all.clone().any(|(id, _)| voters.contains(id)) {
        return None;
    }
    let (id, _) = has_all.max_by_key(|(_, answer)| answer.last)?;
    Some(*id)
}

/// Asks a member to be the interim leader, after it has been the choice for as long as an election takes.
#[derive(Debug, Default)]
pub(crate) struct InterimSearch(Option<(MemberId, Instant)>);

impl InterimSearch {
    /// Returns the member to ask now, if any.
    fn due(
        &mut self,
        chosen: Option<MemberId>,
        now: Instant,
        patience: Duration,
    ) -> Option<MemberId> {
        let begun = self.0.filter(|(id, _)| Some(*id) == chosen);
        let (id, since) = begun.or(chosen.map(|id| (id, now))).unzip();
        let due = since.is_some_and(|since| now - since >= patience);
        // If the member is still the choice, it is asked again after the same time.
        let since = if due { Some(now) } else { since };
        self.0 = id.zip(since);
        id.filter(|_| due)
    }

    /// Checks whether an interim leader is needed, and asks one if so.
    pub(crate) async fn go_on(
        &mut self,
        elections: &Elections,
        needed: Option<OpId>,
        answers: &BTreeMap<MemberId, LogEnd>,
    ) {
        let engine = &elections.engine;
        let role = engine.role();
        let others = role.others(engine.id).map(|(id, _)| id).collect();
        let voters = role.voter_sets().iter().flatten().copied().collect();
        let led = role.leader.is_some();
        let chosen = needed.filter(|_| !led);
        let chosen = chosen.and_then(|needed| choose(needed, &others, &voters, answers));
        let patience = engine.timers.longest_election();
        let Some(id) = self.due(chosen, Instant::now(), patience) else {
            return;
        };
        let Some(record) = role.membership.membership().get_node(&id) else {
            return;
        };
        tracing::warn!(member = %id, "no voter has what this member may have acknowledged, and that one, which has no vote, has it: it is asked to lead until a voter has it too");
        let asked = engine
            .calls
            .ask(id, record, Question::InterimLead, engine.timers.lease);
        if let Err(refusal) = asked.await {
            tracing::warn!(member = %id, %refusal, "it does not");
        }
    }
}

/// Campaigns although this member has no vote. Another member has requested this: it may have lost entries, and found them only in this
/// member's log.
///
/// # Errors
/// [`CallError`] if this member may not campaign, or the engine has stopped.
pub(crate) async fn campaign(elections: &Elections) -> Result<(), CallError> {
    let (raft, own) = (&elections.engine.raft, elections.engine.id);
    if let Some(why) = elections.campaigning.gate.stays_out() {
        return Err(CallError::new(why));
    }
    let role = elections.engine.role();
    if role.voter_sets().iter().any(|set| set.contains(&own)) {
        let reason = "this member has a vote, and campaigns by itself";
        return Err(CallError::new(reason));
    }
    if let Some(leader) = role.leader {
        let reason = format!("member {leader} leads, as this one hears");
        return Err(CallError(reason));
    }
    let vote = raft.with_raft_state(|state| *state.vote_ref()).await;
    let vote = vote.map_err(Fault::from).map_err(CallError::new)?;
    // If the vote has changed by then, the engine does nothing.
    elections
        .interim_term
        .campaigns_in(Term(vote.leader_id.term + 1));
    let request = TransferLeaderRequest::new(vote, own, None);
    let taken = raft.handle_transfer_leader(request).await;
    let taken = taken.map_err(Fault::from).map_err(CallError::new)?;
    taken.map_err(CallError::new)
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
    fn the_interim_leader_has_the_longest_log() {
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
            (
                "no member has all",
                &[(2, end(4, 28)), (8, end(4, 29))],
                None,
            ),
            ("a member leads", &[(2, leads), (8, end(4, 30))], None),
            ("a member may lead", &[(8, end(4, 30))], None),
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
    fn an_interim_leader_is_asked_after_the_longest_election() {
        let (begun, patience) = (Instant::now(), Duration::from_secs(1));
        let mut asking = InterimSearch::default();
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
        assert_eq!(due(Some(8), 3100), None, "a member led in between");
        assert_eq!(due(Some(9), 4200), None, "another one has more");
        assert_eq!(due(Some(9), 5200), Some(9));
    }
}
