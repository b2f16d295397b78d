//! Elections of a member whose log may lack acknowledged entries at its end. The entries were lost, were not synced, or were given up by a
//! quorum repair, or the data directory was restored ([`super::restored_directory`]). The member asks the other members for their log ends. It takes
//! part in elections again after it has the entries that they have.
//!
//! # Why this is safe
//!
//! Let `e` be an entry that this member acknowledged and then lost. `e` is committed, or will be committed by that acknowledgement. The
//! ring must never elect a leader without `e`. While this member votes for no candidate, the loss of `e` is equivalent to the member being
//! down, which Raft tolerates.
//!
//! So an end `z` is needed: any log that ends at `z` or later must have `e`. A vote for such a log is safe. After the own log ends at `z`
//! or later, this member may do everything again ([`crate::election::vote_gate`]). Let `T` be the term of the vote that was stored when the
//! bytes were cut, or found to be possibly missing. A vote is stored before the entries that follow it, so the term of `e` is at most `T`.
//! Any of these three is such a `z`:
//!
//! 1. **An entry of a term after `T`.** Its leader was elected without an unsafe vote of this member, so it had `e` (leader completeness).
//!    A member with an entry of that leader has all entries before it (log matching).
//! 2. **The end of the log of a leader of term `T` or a later term, asked after the restart.** A leader of term `T` has everything that
//!    this member acknowledged to it, and everything that was committed in earlier terms. Its log only grows. For a leader of a later term,
//!    1 applies. That member need no longer be the leader. The committed end is not enough: the acknowledgement may be in flight and commit
//!    `e` afterwards.
//! 3. **The latest end of all other members' logs, all of them asked after the restart.** `e` is committed only with the acknowledgements
//!    of other members, or of a leader that has `e`. So one of the asked members has `e`, and its log ends at `e` or later. A log that ends
//!    at the latest end or later has `e`: in the same term by log matching, in a later term by leader completeness. *All* members of the
//!    own membership are asked, not a majority. A majority of the others would elect a leader without this member anyway, so 2 applies; and
//!    a leader outside the voter sets may have entries that no voter has yet. This case is for a ring whose members all lost power. Several
//!    members may then have such a doubt at the same time, and each of them may have the most entries. (If all members that had `e` lost
//!    it, it cannot be recovered, and the ring continues.)
//!
//! If the data directory was restored, other members have recorded its earlier state. `T` is then the latest term that any of them has
//! recorded, the lost vote included. The doubt exists only because of these records, and cannot be more accurate than they are.
//!
//! This member takes the other members from its log, so no membership that it acknowledged may be cut off. Otherwise a one-member ring that
//! lost the entry with its second member would ask no member. The log's durable mark prevents that. The mark covers a membership before its
//! entry counts as written, or before the start that finds the entry is over. If bytes before the mark are missing, the start is refused. A
//! membership that was never acknowledged may be cut off, as if it had never been sent. A restored directory may have an earlier
//! membership, so 3 does not apply while one of the asked members has a later one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use futures::future::join_all;
use raft_types::{DoubtedTail, MemberId, OpId, Term};

use crate::calls::{Answer, LogEnd, Question};
use crate::election::elections::Elections;
use crate::election::interim_leader;
use crate::election::vote_gate::ElectionGate;
use crate::engine::{self, Engine};

/// Returns the current exact end of this member's log. The engine's metrics may lag the end for a moment.
pub(crate) async fn log_end(raft: &Engine, own: MemberId) -> Option<LogEnd> {
    let end = raft.with_raft_state(move |state| {
        let vote = state.vote_ref();
        let leads = vote.committed && vote.leader_id.voted_for == own;
        LogEnd {
            last: state.log_ids.last().copied().map(OpId::from),
            leads: leads.then_some(Term(vote.leader_id.term)),
            membership: None,
        }
    });
    let membership = engine::role(raft).membership.log_id().map(OpId::from);
    let end = end.await.ok()?;
    Some(LogEnd { membership, ..end })
}

/// Returns an end `z`: a log that ends at `z` or later has all entries that may be lost here. Returns `None` if the answers do not show
/// such an end yet. `members` are the members of the own membership, which is the log's entry `membership`.
pub fn enough(
    doubt: &DoubtedTail,
    own: MemberId,
    members: &BTreeSet<MemberId>,
    membership: Option<OpId>,
    answers: &BTreeMap<MemberId, LogEnd>,
) -> Option<OpId> {
    let leaders = answers
        .values()
        .filter(|answer| answer.leads.is_some_and(|term| term.0 >= doubt.term))
        .map(|leader| leader.last.unwrap_or_default());
    let everybody = members
        .iter()
        .all(|id| *id == own || answers.contains_key(id));
    let newer = |answer: &LogEnd| answer.membership > membership;
    let outdated = doubt.restored && answers.values().any(newer);
    let latest = (members.contains(&own) && everybody && !outdated).then(|| {
        let ends = answers.values().filter_map(|answer| answer.last);
        ends.max().unwrap_or_default()
    });
    leaders.chain(latest).min()
}

/// Settles each doubt about the log's end: asks the others, and waits for the missing entries.
pub(crate) async fn settle(elections: Arc<Elections>) {
    loop {
        if let Some(doubt) = elections.engine.starts.doubted_tail() {
            tracing::warn!(
                term = doubt.term,
                "acknowledged entries may be missing at the end of the log: damaged and cut off, not synced when this host stopped, given up by \
                 a quorum repair, or absent from a restored data directory. This member neither votes nor campaigns until the others have \
                 reported their log ends"
            );
            if let Err(error) = ask_until_settled(&elections).await {
                // The log's writer has stopped, and the engine stops with it.
                return tracing::error!(%error, "the log's end cannot be settled");
            }
            tracing::info!(
                "this member has what it may have acknowledged, and takes part in elections again"
            );
        }
        elections.doubted.notified().await;
    }
}

/// Asks the other members until this member's log has the entries that it needs.
async fn ask_until_settled(elections: &Elections) -> io::Result<()> {
    let (engine, starts) = (&elections.engine, &elections.engine.starts);
    let mut asking = interim_leader::InterimSearch::default();
    loop {
        {
            let _nobody_doubts_meanwhile = elections.doubting.lock().await;
            let Some(needed) = elections.campaigning.gate.needed() else {
                return Ok(());
            };
            if starts.settle_tail(needed).await? {
                let campaigning = &elections.campaigning;
                campaigning.change_gate(&engine.raft, ElectionGate::settled);
                return Ok(());
            }
        }
        let (members, answers) = ask(elections).await;
        let membership = engine::role(&engine.raft)
            .membership
            .log_id()
            .map(OpId::from);
        {
            let _nobody_doubts_meanwhile = elections.doubting.lock().await;
            // The term of the doubt may have become later since the last round.
            let doubt = starts.doubted_tail();
            let end =
                doubt.and_then(|doubt| enough(&doubt, engine.id, &members, membership, &answers));
            if let Some(end) = end {
                elections.campaigning.gate.enough(end);
            }
        }
        let needed = elections.campaigning.gate.needed();
        asking.go_on(elections, needed, &answers).await;
        tokio::time::sleep(engine.timers.heartbeat / 2).await;
    }
}

/// Asks the members, and returns the answers that arrive in time.
async fn ask(elections: &Elections) -> (BTreeSet<MemberId>, BTreeMap<MemberId, LogEnd>) {
    let engine = &*elections.engine;
    let role = engine.role();
    let asked = role.others(engine.id).map(|(id, record)| async move {
        let answer = engine
            .calls
            .ask(id, record, Question::LogEnd, engine.timers.lease);
        match answer.await {
            Ok(Answer::LogEnd(end)) => Some((id, end)),
            _ => None,
        }
    });
    let answers = join_all(asked).await.into_iter().flatten().collect();
    let members = role.membership.nodes().map(|(id, _)| *id);
    (members.collect(), answers)
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

    fn leader(of: u64, term: u64, index: u64) -> LogEnd {
        LogEnd {
            leads: Some(Term(of)),
            ..end(term, index)
        }
    }

    #[test]
    fn the_needed_end_follows_from_leaders_or_all_members() {
        let id = OpId::new;
        let none = LogEnd {
            last: None,
            leads: None,
            membership: None,
        };
        type Row<'a> = (&'a str, &'a [u64], &'a [(u64, LogEnd)], Option<OpId>);
        let rows: [Row<'_>; 11] = [
            ("no answers", &[1, 2, 3], &[], None),
            (
                "a majority of three is not all others",
                &[1, 2, 3],
                &[(2, end(4, 30))],
                None,
            ),
            (
                "all others: the latest counts",
                &[1, 2, 3],
                &[(2, end(4, 30)), (3, end(3, 70))],
                Some(id(4, 30)),
            ),
            (
                "an answer of another member does no harm",
                &[1, 2, 3],
                &[(2, end(4, 30)), (3, end(4, 31)), (9, end(4, 40))],
                Some(id(4, 40)),
            ),
            (
                "a leader of the term is enough",
                &[1, 2, 3],
                &[(3, leader(5, 5, 12))],
                Some(id(5, 12)),
            ),
            (
                "a leader of a later term is enough",
                &[1, 2, 3],
                &[(3, leader(6, 6, 1))],
                Some(id(6, 1)),
            ),
            (
                "a leader of an earlier term is one of the others",
                &[1, 2, 3],
                &[(3, leader(4, 4, 90))],
                None,
            ),
            (
                "the lower of both",
                &[1, 2, 3],
                &[(2, end(5, 14)), (3, leader(5, 5, 12))],
                Some(id(5, 12)),
            ),
            ("a ring of one", &[1], &[], Some(OpId::default())),
            (
                "all others are empty",
                &[1, 2],
                &[(2, none)],
                Some(OpId::default()),
            ),
            ("the own log does not know its membership", &[], &[], None),
        ];
        for (what, members, answers, expected) in rows {
            let members = members.iter().copied().map(MemberId).collect();
            let answers = answers
                .iter()
                .map(|(id, end)| (MemberId(*id), *end))
                .collect();
            let found = enough(
                &DoubtedTail::of_term(5),
                MemberId(1),
                &members,
                None,
                &answers,
            );
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn a_member_restored_to_an_older_membership_waits_for_a_leader() {
        let doubt = DoubtedTail {
            term: 5,
            restored: true,
        };
        let members = [1, 2, 3].map(MemberId).into();
        let own = Some(OpId::new(3, 7));
        let answer = |membership| LogEnd {
            membership,
            ..end(4, 30)
        };
        let found = |one, other| {
            let answers = [(MemberId(2), answer(one)), (MemberId(3), answer(other))].into();
            enough(&doubt, MemberId(1), &members, own, &answers)
        };
        assert_eq!(found(own, Some(OpId::new(2, 5))), Some(OpId::new(4, 30)));
        // Members that are not in this log's membership may have joined, and may have the entries that are missing here.
        assert_eq!(found(own, Some(OpId::new(4, 20))), None);
        let led = LogEnd {
            leads: Some(Term(5)),
            ..answer(Some(OpId::new(4, 20)))
        };
        let answers = [(MemberId(3), led)].into();
        let found = enough(&doubt, MemberId(1), &members, own, &answers);
        assert_eq!(found, Some(OpId::new(4, 30)), "a leader has all of it");
    }
}
