//! Plans the repair of a quorum that is permanently lost. From the evidence of the reachable members, the plan selects the survivor and
//! states the possible loss. The planner has no side effects. An operator reads the plan and orders the repair; it is never automatic.
//!
//! # When nothing is lost
//!
//! Every acknowledged entry was committed by a leader in its own term, under the last membership of that leader's log. Two facts prove that
//! the longest log among the answering members, the survivor's, holds all acknowledged entries:
//!
//! 1. *If every quorum contains an answering member, no acknowledged entry is missed.* A member keeps every entry that it acknowledged to
//!    the committing leader. All later leaders have it. So a log that ends at or after the end of that member's log has it too.
//! 2. *A membership is followed by another only after it is committed* (`membership_step`). The survivor's log names the last membership
//!    that is certainly committed, and perhaps one after it. An entry that no answering member has seen was committed under that membership
//!    or a later one. A membership must be committed under its own voter sets before another follows. If neither the last one nor its
//!    permitted direct successors ([`unseen_quorum`]) can commit without the answering members, there is no second successor.
//!
//! Only a member with a complete log counts as answering. A member that cut off bytes it may have acknowledged (`doubted_tail`) does not
//! keep what fact 1 requires. Its answer proves nothing, as if it were missing. Its log may still be the longest, because it is a part of a
//! leader's log.
//!
//! The proof covers the last two memberships of the survivor's log, or only the last if a member has recorded it as committed. It does not
//! depend on which step a leader intended: the step rules hold for operators and leader tasks alike.
//!
//! # A ring that continued past every available log
//!
//! A member that has learned how far the ring continued votes for no log that ends earlier (`vote_gate`). If no answering member has such a
//! log, it elects none, possibly permanently. This happens when the survivor of an earlier repair died or lost power between the repair's
//! term and its entry. Other members had already learned that term. The plan treats such a member as one that does not elect. The entries
//! after the available logs may be lost.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consensus::quorum::{VoterSets, have_majorities, unseen_quorum};
use consensus::{
    Answer, Fault, ForceError, Greeting, HistoryEntry, HistoryEvent, MemberCalls, Named, Question,
    RaftNode, RingView, TERM_LEAP, leap_from,
};
use futures::future::{join, join_all};
use raft_types::{MemberId, MemberKind, Membership, OpId, StoredMembership, Term};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::time::Instant;

use crate::history;
use crate::member::Member;
use crate::status::list;

/// The evidence from one member for a quorum repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberEvidence {
    /// The answering member.
    pub member: MemberId,
    /// The latest term it has seen.
    pub term: Term,
    /// The end of its log.
    pub log_end: Option<OpId>,
    /// The last entry that it has recorded as committed.
    pub committed: Option<OpId>,
    /// The membership that is in force in its log.
    pub membership: StoredMembership,
    /// The last membership in its log that is certainly committed: the one in force, or the one before it. `None` if it could not tell.
    #[serde(default)]
    pub settled: Option<StoredMembership>,
    /// The leader that it follows: one with a quorum, or one that could not be asked. See `has_quorum`.
    pub leader: Option<MemberId>,
    /// The end of its log may lack acknowledged entries.
    #[serde(default)]
    pub doubted_tail: bool,
    /// The entry that the ring is known to have reached and its log lacks. It votes for no log that ends earlier.
    #[serde(default)]
    pub elects_from: Option<OpId>,
}

/// The possible loss of a repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PossibleLoss {
    /// Entries after this one may have been acknowledged, and would be lost.
    pub after: Option<OpId>,
    /// Voter sets in force, or possible successors, that could commit without the answering members. Empty if only [`RepairPlan::gone_on`]
    /// indicates a loss.
    pub unseen: VoterSets,
}

/// A plan to repair a quorum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairPlan {
    /// The survivor. It is briefly the only voter; then its leader tasks restore the policy.
    pub survivor: MemberId,
    /// The end of its log, after which the repair is written. If it has changed, the repair is not carried out.
    pub log_end: Option<OpId>,
    /// The lowest term of the repair, later than any observed term. The survivor's clock determines the actual one
    /// ([`RepairPlan::term_at`]).
    pub term: Term,
    /// The voter sets that are lost.
    pub lost: VoterSets,
    /// Voters that did not answer. They must not return unless they can reach the survivor.
    pub missing: BTreeSet<MemberId>,
    /// Answering members whose damaged logs may have lost acknowledged entries: they count as missing.
    #[serde(default)]
    pub in_doubt: BTreeSet<MemberId>,
    /// The entry that the ring reached according to an answering member, if no answering member's log goes that far.
    #[serde(default)]
    pub gone_on: Option<OpId>,
    /// Answering members that recorded entries as committed that the survivor lacks. Restart them so that they truncate their logs.
    pub to_restart: BTreeSet<MemberId>,
    /// Answering members with logs that the repair does not use.
    #[serde(default)]
    pub unused: Vec<UnusedLog>,
    /// The possible loss; `None` if no acknowledged entry is lost.
    pub loss: Option<PossibleLoss>,
}

/// The log of an answering member that the repair does not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusedLog {
    /// The member with this log.
    pub member: MemberId,
    /// The reason for using another log.
    pub why: WhyUnused,
}

/// The reason for not using a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyUnused {
    /// It has no membership: the data directory is new, or was emptied.
    Empty,
    /// It ends before the survivor's.
    Shorter,
    /// It ends where the survivor's ends.
    SameEnd,
}

/// The reason for refusing a repair.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RepairRefusal {
    /// No member with a log answers.
    #[error("no member with a log answers; start at least one, or check the addresses")]
    NoEvidence,
    /// A leader has a quorum, or does not report that it has none.
    #[error(
        "member {leader} leads, as member {witness} reports: it has a quorum, or does not answer member {witness}; there is nothing to repair"
    )]
    Led {
        /// The member that leads.
        leader: MemberId,
        /// The member that reports it.
        witness: MemberId,
    },
    /// A majority of every voter set answers, through the longest log or a member that they would elect: an election is enough.
    #[error(
        "the quorum is not lost: a majority of every voter set answers; wait for the election, and look at `witness status --explain`"
    )]
    NotLost,
    /// The longest log cannot be proven complete.
    #[error(
        "it cannot be proven that member {survivor} has everything that was acknowledged: {}. Bring back one that is missing, even if only for its log; or accept that entries after {} may be lost, with `--accept-loss {}`",
        may_have_more(.missing, .in_doubt, .gone_on), end(.after), end(.after)
    )]
    Unproven {
        /// The answering member with the longest log.
        survivor: MemberId,
        /// Members that do not answer and may hold more.
        missing: BTreeSet<MemberId>,
        /// Answering members whose damaged logs may have lost acknowledged entries.
        in_doubt: BTreeSet<MemberId>,
        /// The entry that the ring reached according to an answering member, if no answering member has it.
        gone_on: Option<OpId>,
        /// The last entry of the survivor's log: later entries may be lost.
        after: Option<OpId>,
    },
    /// The operator accepted a loss other than the possible one.
    #[error("entries after {} may be lost, not those after {}; look at the plan again", end(.threatens), end(.accepted))]
    OtherLoss {
        /// The entry after which acknowledged transactions may be lost.
        threatens: Option<OpId>,
        /// The entry that the operator named.
        accepted: Option<OpId>,
    },
    /// The member received a plan for another survivor.
    #[error("the plan is for member {0}")]
    OtherSurvivor(MemberId),
    /// The member's log or vote has changed since the plan was made.
    #[error(
        "the log or the vote of member {0} has changed since the plan was made; make a new one"
    )]
    Changed(MemberId),
    /// A member that did not answer when the plan was made answers now.
    #[error(
        "member {} did not answer when the plan was made, and answers now: it may have what the plan gives up, or elect a leader \
         of its own; make the plan again, or stop it for good first",
        list(.0)
    )]
    Back(BTreeSet<MemberId>),
    /// The survivor was stopped between the others' answers and its own repair, and another member may have been repaired since.
    #[error(
        "this member was stopped for {} ms before its repair: another one may have been repaired since; make a new plan",
        .0.as_millis()
    )]
    Late(Duration),
    /// The consensus engine has stopped, so the repair was not carried out.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

fn end(op_id: &Option<OpId>) -> String {
    op_id.map_or_else(|| "none".to_owned(), |op_id| op_id.to_string())
}

fn may_have_more(
    missing: &BTreeSet<MemberId>,
    in_doubt: &BTreeSet<MemberId>,
    gone_on: &Option<OpId>,
) -> String {
    let named = |members: &BTreeSet<MemberId>| (!members.is_empty()).then(|| list(members));
    let missing = named(missing);
    let missing = missing.map(|list| format!("member {list} may have more, and does not answer"));
    let in_doubt = named(in_doubt).map(|list| {
        format!("the end of the log of member {list} was damaged, and may have been acknowledged")
    });
    let gone_on = gone_on.map(|end| {
        format!("the ring has gone on to {end}, as one of them was told, and none of them has that")
    });
    let all: Vec<String> = missing.into_iter().chain(in_doubt).chain(gone_on).collect();
    all.join("; ")
}

/// Clock times after this one (the year 2255, in microseconds) are ignored, so that every JSON reader represents terms exactly.
const LATEST_CLOCK: u64 = 1 << 53;
/// The part of a clock that is still used when it is earlier than the terms: 2^40 microseconds, twelve days.
const PART_OF_CLOCK: u64 = 1 << 40;

impl RepairPlan {
    /// The term of a repair that is carried out at this time by the survivor's clock: that time in microseconds.
    ///
    /// Two repairs may be made independently, when the second is made while the survivor of the first is down. Entries are identified by
    /// term and index alone. With one term for both, the ring would have two histories that no member can distinguish. With the time as the
    /// term,
    ///
    /// * the terms differ, except when two clocks show the same microsecond, and
    /// * the second term is later than the first and than all terms that followed from it: at most one election per microsecond. A member
    ///   that returns from the first repair therefore sees that the ring continued without it.
    ///
    /// **A wrong clock** breaks only the second property. If the second survivor's clock lags the first one's by more than the time between
    /// the repairs, the first history is the later one. If a clock is earlier than the observed terms (set back, or an earlier repair's
    /// clock was ahead), the lowest term is used. A part of the clock is added, so that the terms still differ.
    #[must_use]
    pub fn term_at(&self, clock: SystemTime) -> Term {
        let least = self.term.0;
        let time = clock.duration_since(UNIX_EPOCH).ok();
        let time = time.and_then(|time| u64::try_from(time.as_micros()).ok());
        let time = time.filter(|time| *time < LATEST_CLOCK).unwrap_or(0);
        Term(match time > least {
            true => time,
            false => least.saturating_add(time % PART_OF_CLOCK),
        })
    }
}

/// Makes the plan from the evidence.
///
/// # Errors
/// [`RepairRefusal`] when no repair is needed, or no member can carry it out.
pub fn plan_repair(evidence: &[MemberEvidence]) -> Result<RepairPlan, RepairRefusal> {
    // A member that answers without reporting itself as leader has no quorum in any term up to its own, whatever others report.
    let does_not_lead = |leader: MemberId, reporter: &MemberEvidence| {
        let of_itself = evidence.iter().find(|one| one.member == leader);
        of_itself.is_some_and(|one| one.leader != Some(leader) && one.term >= reporter.term)
    };
    let led = evidence.iter().find_map(|one| {
        let leader = one.leader?;
        (!does_not_lead(leader, one)).then_some((leader, one.member))
    });
    if let Some((leader, witness)) = led {
        return Err(RepairRefusal::Led { leader, witness });
    }
    // The longest log in Raft's order: no log without all committed entries exceeds one that has them.
    // A member without a log may have lost one: it is no evidence of what it acknowledged.
    let with_log = || evidence.iter().filter(|one| !one.sets().is_empty());
    let survivor = with_log().max_by_key(|one| {
        let votes = one.sets().iter().any(|set| set.contains(&one.member));
        let record = one.membership.get_node(&one.member);
        let is_database = record.is_some_and(|record| record.kind == MemberKind::Database);
        (
            one.log_end,
            is_database,
            votes,
            std::cmp::Reverse(one.member),
        )
    });
    let survivor = survivor.ok_or(RepairRefusal::NoEvidence)?;
    let answering: BTreeSet<MemberId> = with_log().map(|one| one.member).collect();
    let sound = with_log().filter(|one| !one.doubted_tail);
    let sound: BTreeSet<MemberId> = sound.map(|one| one.member).collect();
    let sets = survivor.sets().to_vec();
    // If all members answer, those in doubt get the missing entries from the others, and vote. Otherwise they may wait indefinitely
    // (`doubted_tail`).
    let electing = match members_of(&survivor.membership).is_subset(&answering) {
        true => &answering,
        false => &sound,
    };
    // The longest log wins if any log can win.
    let gone_on = with_log().filter(|one| one.elects_from > survivor.log_end);
    let out_of_reach: BTreeSet<MemberId> = gone_on.clone().map(|one| one.member).collect();
    let gone_on = gone_on.filter_map(|one| one.elects_from).max();
    let electing = electing - &out_of_reach;
    // An earlier repair has given up logs that end so far back.
    let given_up = |one: &MemberEvidence| {
        let end = survivor.log_end;
        end.is_some_and(|end| end.term >= leap_from(one.log_end))
    };
    let voters: Vec<_> = with_log()
        .filter(|one| sound.contains(&one.member) && !given_up(one))
        .collect();
    let others_elect = || voters.iter().any(|one| is_elected_by(one, &voters));
    if have_majorities(&sets, &electing) || others_elect() {
        return Err(RepairRefusal::NotLost);
    }
    let unseen = unseen(survivor, evidence, &sound);
    let loss = (unseen.is_some() || gone_on.is_some()).then(|| PossibleLoss {
        after: survivor.log_end,
        unseen: unseen.unwrap_or_default(),
    });
    let concerned = sets
        .iter()
        .chain(loss.iter().flat_map(|loss| &loss.unseen))
        .flatten();
    let latest = evidence.iter().map(|one| one.term.0).max().unwrap_or(0);
    let others = evidence.iter().filter(|one| one.member != survivor.member);
    let unused = others.map(|one| {
        let why = match one.log_end.cmp(&survivor.log_end) {
            _ if one.sets().is_empty() => WhyUnused::Empty,
            Ordering::Less => WhyUnused::Shorter,
            Ordering::Equal | Ordering::Greater => WhyUnused::SameEnd,
        };
        UnusedLog {
            member: one.member,
            why,
        }
    });
    Ok(RepairPlan {
        unused: unused.collect(),
        survivor: survivor.member,
        log_end: survivor.log_end,
        term: Term(latest.saturating_add(TERM_LEAP)),
        missing: concerned
            .copied()
            .filter(|id| !answering.contains(id))
            .collect(),
        in_doubt: answering.difference(&sound).copied().collect(),
        gone_on,
        to_restart: evidence
            .iter()
            .filter(|one| one.committed > survivor.log_end)
            .map(|one| one.member)
            .collect(),
        loss,
        lost: sets,
    })
}

/// Whether these voters elect the candidate, which counts votes by the membership of its own log. That may differ from the survivor's. A
/// membership that only its leader has is unknown to the others, which elect one of themselves without it.
fn is_elected_by(candidate: &MemberEvidence, voters: &[&MemberEvidence]) -> bool {
    let grants = |voter: &&MemberEvidence| {
        let needed = voter.log_end.max(voter.elects_from);
        (needed <= candidate.log_end).then_some(voter.member)
    };
    let granted: BTreeSet<MemberId> = voters.iter().filter_map(grants).collect();
    granted.contains(&candidate.member) && have_majorities(candidate.sets(), &granted)
}

/// Voter sets that may have committed entries that the survivor lacks. Empty: no such entry can exist.
fn unseen(
    survivor: &MemberEvidence,
    evidence: &[MemberEvidence],
    sound: &BTreeSet<MemberId>,
) -> Option<VoterSets> {
    let last = &survivor.membership;
    let unseen_after = |membership: &StoredMembership| {
        let sets = membership.membership().get_joint_config();
        unseen_quorum(sets, &members_of(membership), sound)
    };
    let found = unseen_after(last);
    // A commit that one member has recorded counts, even if the survivor has not learned of it.
    let is_settled = evidence.iter().any(|one| {
        let settled = one.settled.as_ref();
        settled.is_some_and(|settled| settled.log_id() == last.log_id())
    });
    if found.is_some() || is_settled {
        return found;
    }
    // The last membership may never have been in force elsewhere: another may have followed the one before it.
    match &survivor.settled {
        // No entry is committed before the first membership.
        Some(before) if before.membership().get_joint_config().is_empty() => None,
        Some(before) => unseen_after(before),
        None => Some(survivor.sets().to_vec()),
    }
}

fn members_of(membership: &StoredMembership) -> BTreeSet<MemberId> {
    membership.membership().nodes().map(|(id, _)| *id).collect()
}

/// Checks that the operator accepted the plan's loss.
///
/// # Errors
/// [`RepairRefusal`] if the possible loss was not accepted.
pub fn accept(plan: &RepairPlan, accepted: Option<OpId>) -> Result<(), RepairRefusal> {
    match (&plan.loss, accepted) {
        (None, _) => Ok(()),
        (Some(loss), Some(_)) if loss.after == accepted => Ok(()),
        (Some(loss), Some(_)) => Err(RepairRefusal::OtherLoss {
            threatens: loss.after,
            accepted,
        }),
        (Some(loss), None) => Err(RepairRefusal::Unproven {
            survivor: plan.survivor,
            missing: plan.missing.clone(),
            in_doubt: plan.in_doubt.clone(),
            gone_on: plan.gone_on,
            after: loss.after,
        }),
    }
}

impl Member {
    /// What this member can report when a quorum may be lost permanently.
    pub async fn evidence(&self) -> MemberEvidence {
        let (node, own) = (self.node(), self.id());
        let serves = node.leadership().serving_term().map(|_| own);
        let followed = node.role().leader.filter(|leader| *leader != own);
        let leader = match (serves, followed) {
            (None, Some(leader)) => has_quorum(node, leader).await.then_some(leader),
            _ => serves,
        };
        // Both are read before the log's end: a membership that is committed in between does not shorten the log.
        let doubted_tail = node.doubts_its_log();
        let elects_from = node.elects_from();
        // The engine confirms this: a membership is followed by another only after it is committed.
        let settled = node
            .engine()
            .with_raft_state(|state| (**state.membership_state.committed()).clone());
        // A stopped engine cannot answer; its log is evidence all the same.
        let settled = settled.await.ok();
        let (role, progress) = (node.role(), node.progress());
        MemberEvidence {
            settled,
            member: own,
            doubted_tail,
            elects_from,
            term: role.term,
            log_end: progress.last_log,
            committed: progress.applied,
            membership: (*role.membership).clone(),
            leader,
        }
    }

    /// Carries out the repair of a lost quorum, of which this member is the survivor: it continues alone, and its leader tasks
    /// restore the policy. `accepted` names the last entry after which a loss is accepted. `clock` is the time on this
    /// machine, from which the repair gets its term.
    ///
    /// # Errors
    /// [`RepairRefusal`]; nothing is changed then.
    pub async fn repair_quorum(
        &self,
        plan: &RepairPlan,
        accepted: Option<OpId>,
        clock: SystemTime,
        by: &str,
    ) -> Result<OpId, RepairRefusal> {
        accept(plan, accepted)?;
        if let Some(leader) = self.evidence().await.leader {
            let witness = self.id();
            return Err(RepairRefusal::Led { leader, witness });
        }
        let node = self.node();
        // It campaigns next, and does not know the leader yet if it was just started.
        node.promise_is_over().await;
        let view = node.ring_view();
        let asked = Instant::now();
        still_applies(&**node.calls(), &view, plan, node.timers().heartbeat).await?;
        let survivor = view.member(self.id());
        let survivor = survivor.map(|own| Named::of(own.id, &own.record));
        let survivor = survivor.ok_or(RepairRefusal::Changed(self.id()))?;
        let log_end = plan.log_end;
        let event = HistoryEvent::Repaired { survivor, log_end };
        let entry = self.admin().entry_now(by, event);
        carry_out(node, plan, asked, clock, entry).await
    }
}

/// The longest wait for a leader to answer whether it has a quorum. The operator's command waits longer for the evidence.
const LONGEST_ASKING: Duration = Duration::from_secs(1);

/// Whether a leader that sends heartbeats may have a quorum. A leader that lost it continues to send heartbeats to the members it reaches.
/// One that does not answer at all may have a quorum elsewhere.
async fn has_quorum(node: &RaftNode, leader: MemberId) -> bool {
    let view = node.ring_view();
    let Some(peer) = view.member(leader) else {
        return true;
    };
    let patience = node.timers().heartbeat.min(LONGEST_ASKING);
    let ask = |question| node.calls().ask(leader, &peer.record, question, patience);
    // Only a leader with a quorum answers the first question; the second is answered in any role.
    let serves = ask(Question::Committed);
    let answers = ask(Question::Greeting(Greeting::default()));
    let (serves, answers) = join(serves, answers).await;
    serves.is_ok() || answers.is_err()
}

/// Refuses a plan that is out of date because a member that it gives up answers again, or because another member was repaired. Reading a
/// plan takes time, and two machines that restart in that time would form a second ring. Each has `patience` to answer: one heartbeat,
/// which exceeds the slowest round trip.
async fn still_applies(
    calls: &dyn MemberCalls,
    view: &RingView,
    plan: &RepairPlan,
    patience: Duration,
) -> Result<(), RepairRefusal> {
    let others = view.members.iter().filter(|one| one.id != plan.survivor);
    let asked = others.map(|peer| async move {
        let question = Question::Greeting(Greeting::default());
        let answer = calls.ask(peer.id, &peer.record, question, patience).await;
        Some((peer.id, answer.ok()?))
    });
    let answers: BTreeMap<MemberId, Answer> = join_all(asked).await.into_iter().flatten().collect();
    let answering = answers.keys().copied();
    let back: BTreeSet<MemberId> = answering.filter(|id| plan.missing.contains(id)).collect();
    if !back.is_empty() {
        return Err(RepairRefusal::Back(back));
    }
    let is_repaired = |answer: &Answer| match answer {
        Answer::Greeting { greeting, .. } => greeting
            .report
            .is_some_and(|report| report.standing.term >= plan.term.0),
        _ => false,
    };
    match answers.iter().find(|(_, answer)| is_repaired(answer)) {
        Some((id, _)) => Err(RepairRefusal::Changed(*id)),
        None => Ok(()),
    }
}

/// Carries the plan out on its survivor, whose clock shows this time: it becomes the only voter and leads. The others' answers must be
/// younger than a lease: the process may have been stopped since, and the operator may have repaired another member.
async fn carry_out(
    node: &RaftNode,
    plan: &RepairPlan,
    answered: Instant,
    clock: SystemTime,
    entry: HistoryEntry,
) -> Result<OpId, RepairRefusal> {
    let own = node.id();
    if plan.survivor != own {
        return Err(RepairRefusal::OtherSurvivor(plan.survivor));
    }
    let (role, progress) = (node.role(), node.progress());
    if progress.last_log != plan.log_end || role.term >= plan.term {
        return Err(RepairRefusal::Changed(own));
    }
    let mut members = role.members();
    let term = plan.term_at(clock);
    history::append(&mut members, &[HistoryEntry { term, ..entry }]);
    let alone = vec![BTreeSet::from([own])];
    let membership = Membership::new(alone, members).map_err(|_| RepairRefusal::Changed(own))?;
    let age = answered.elapsed();
    if age > node.timers().heartbeat + node.timers().lease {
        return Err(RepairRefusal::Late(age));
    }
    tracing::warn!(?plan, %term, "repairing the quorum: this member continues alone");
    let forced = node.force_membership(membership, plan.log_end, term.0);
    forced.await.map_err(|error| match error {
        ForceError::Changed => RepairRefusal::Changed(own),
        ForceError::Stopped(fault) => fault.into(),
    })
}

impl MemberEvidence {
    fn sets(&self) -> &[BTreeSet<MemberId>] {
        self.membership.membership().get_joint_config()
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod plan_tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use consensus::{CallError, Knock, Report};
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use raft_types::{LogId, MemberRecord, Standing};

    use super::*;
    use crate::test_ring::Ring;

    fn set(ids: &[u64]) -> BTreeSet<MemberId> {
        ids.iter().copied().map(MemberId).collect()
    }

    /// Evidence of a member of a ring of nine, in which 1, 4 and 7 are database members.
    fn member(id: u64, log_end: (u64, u64), sets: &[&[u64]]) -> MemberEvidence {
        let members: BTreeMap<MemberId, MemberRecord> = (1..=9)
            .map(|id| {
                let kind = match id % 3 {
                    1 => MemberKind::Database,
                    _ => MemberKind::Witness,
                };
                let record = MemberRecord {
                    kind,
                    votes: true,
                    ..MemberRecord::default()
                };
                (MemberId(id), record)
            })
            .collect();
        let sets = sets.iter().map(|ids| set(ids)).collect();
        let membership = Membership::new(sets, members).unwrap();
        let log_id = LogId::from(OpId::new(1, 0));
        let log_end = OpId::new(log_end.0, log_end.1);
        let membership = StoredMembership::new(Some(log_id), membership);
        MemberEvidence {
            member: MemberId(id),
            term: Term(log_end.term),
            log_end: Some(log_end),
            committed: Some(OpId::new(log_end.term, log_end.index - 3)),
            settled: Some(membership.clone()),
            membership,
            leader: None,
            doubted_tail: false,
            elects_from: None,
        }
    }

    /// The same, with the membership in force not yet committed; `sets` are the last that are certainly committed.
    fn on_its_way(mut one: MemberEvidence, sets: &[&[u64]]) -> MemberEvidence {
        one.settled = member(one.member.0, (2, 90), sets).settled;
        let membership = one.membership.membership().clone();
        let log_id = LogId::from(OpId::new(2, 80));
        one.membership = StoredMembership::new(Some(log_id), membership);
        one
    }

    fn unseen_of(evidence: &[MemberEvidence]) -> Option<VoterSets> {
        let plan = plan_repair(evidence).unwrap();
        plan.loss.map(|loss| loss.unseen)
    }

    const A: &[&[u64]] = &[&[1, 2, 3]];
    const A_AND_B: &[&[u64]] = &[&[1, 2, 3], &[4, 5, 6]];

    #[test]
    fn the_longest_log_survives_and_the_possible_loss_is_named() {
        // 1 and 2 are permanently lost.
        let evidence = [
            member(3, (2, 100), A),
            member(4, (2, 98), A),
            member(5, (2, 99), A),
        ];
        let plan = plan_repair(&evidence).unwrap();
        assert_eq!(plan.survivor, MemberId(3));
        assert_eq!(plan.term, Term(2 + TERM_LEAP));
        assert_eq!(plan.missing, set(&[1, 2]));
        assert_eq!(
            plan.loss,
            Some(PossibleLoss {
                after: Some(OpId::new(2, 100)),
                unseen: vec![set(&[1, 2, 3])],
            })
        );
        let refusal = accept(&plan, None).unwrap_err().to_string();
        assert!(refusal.contains("member 1, 2 may have more"), "{refusal}");
        assert!(refusal.contains("`--accept-loss 2.100`"), "{refusal}");
        assert_eq!(accept(&plan, Some(OpId::new(2, 100))), Ok(()));
        let other = accept(&plan, Some(OpId::new(2, 98))).unwrap_err();
        assert!(
            other
                .to_string()
                .contains("entries after 2.100 may be lost, not those after 2.98")
        );
    }

    #[test]
    fn others_elect_one_of_themselves_without_a_membership_that_they_do_not_have() {
        // 1 led and moved the quorum to 4, which does not answer; no other member has the move.
        let moved: &[&[u64]] = &[&[1, 2, 3], &[4]];
        let leader = on_its_way(member(1, (4, 131), moved), A);
        let others = [member(2, (4, 125), A), member(3, (4, 124), A)];
        let all = [leader.clone(), others[0].clone(), others[1].clone()];
        assert_eq!(plan_repair(&all), Err(RepairRefusal::NotLost));
        // No member votes for 2.
        let mut told = all.clone();
        told[2].elects_from = Some(OpId::new(4, 130));
        assert_eq!(plan_repair(&told).unwrap().survivor, MemberId(1));
        // Also not if 2 itself has the membership: 3 alone is no majority.
        let heard = [leader.clone(), on_its_way(member(2, (4, 130), moved), A)];
        assert_eq!(plan_repair(&heard).unwrap().survivor, MemberId(1));
        // After a repair, those entries are the ones it gave up.
        let repaired = [
            on_its_way(member(1, (4 + TERM_LEAP, 131), moved), A),
            others[0].clone(),
            others[1].clone(),
        ];
        assert_eq!(plan_repair(&repaired).unwrap().survivor, MemberId(1));
    }

    #[test]
    fn a_learner_with_the_longest_log_survives() {
        let evidence = [
            member(3, (2, 90), A),
            member(4, (2, 100), A),
            member(5, (2, 100), A),
        ];
        assert_eq!(plan_repair(&evidence).unwrap().survivor, MemberId(4));
        // Among logs of equal length, a database member's precedes a voter's, regardless of their numbers.
        let database = [member(6, (2, 100), A), member(7, (2, 100), A)];
        assert_eq!(plan_repair(&database).unwrap().survivor, MemberId(7));
        let voters: &[&[u64]] = &[&[6, 8, 9]];
        let voter = [member(2, (2, 100), voters), member(6, (2, 100), voters)];
        assert_eq!(plan_repair(&voter).unwrap().survivor, MemberId(6));
        let later = [member(3, (3, 10), A), member(4, (2, 100), A)];
        let plan = plan_repair(&later).unwrap();
        assert_eq!(plan.survivor, MemberId(3));
        assert_eq!(plan.to_restart, set(&[]));
        let mut ahead = member(4, (2, 100), A);
        ahead.committed = Some(OpId::new(4, 5));
        let plan = plan_repair(&[member(3, (3, 10), A), ahead.clone()]).unwrap();
        assert_eq!(plan.to_restart, set(&[4]));
        // The last entry of the survivor's log is not given up.
        ahead.committed = Some(OpId::new(3, 10));
        let plan = plan_repair(&[member(3, (3, 10), A), ahead]).unwrap();
        assert_eq!(plan.to_restart, set(&[]));
    }

    #[test]
    fn one_set_of_a_joint_quorum_may_have_committed_alone() {
        // A promotion to region b failed after {4 5 6}; 3 to 6 have last seen {4 5 6} {1 2 3}. Then {1 2 3} was committed on 1 and 2, which
        // acknowledged writes for hours and died.
        let evidence = [
            member(3, (2, 90), A_AND_B),
            member(4, (2, 100), A_AND_B),
            member(5, (2, 100), A_AND_B),
            member(6, (2, 100), A_AND_B),
        ];
        assert_eq!(unseen_of(&evidence), Some(vec![set(&[1, 2, 3])]));
        let plan = plan_repair(&evidence).unwrap();
        assert_eq!(plan.missing, set(&[1, 2]));
        assert!(accept(&plan, None).is_err());
    }

    #[test]
    fn nothing_is_lost_if_every_possible_membership_needs_an_answering_member() {
        // Three of the four are needed, so one that answers is among them; all of {4 5 6} answer.
        let sets: &[&[u64]] = &[&[1, 2, 3, 7], &[4, 5, 6]];
        let evidence = [3, 4, 5, 6, 7].map(|id| member(id, (2, 100), sets));
        let plan = plan_repair(&evidence).unwrap();
        assert_eq!(plan.loss, None);
        assert_eq!(accept(&plan, None), Ok(()));
        // Alone, the four may have removed a member.
        let alone = evidence.map(|one| member(one.member.0, (2, 100), &[&[1, 2, 3, 7]]));
        assert_eq!(unseen_of(&alone), Some(vec![set(&[1, 2, 7])]));
    }

    #[test]
    fn a_membership_on_its_way_may_not_have_been_the_one_that_followed() {
        // {4 5} {1 2 3} was not yet committed after {4 5} when 5 died. 5 may have led next and removed 4 instead.
        let joint: &[&[u64]] = &[&[4, 5], &[1, 2, 3]];
        let sent = [1, 2, 3, 4].map(|id| on_its_way(member(id, (2, 100), joint), &[&[4, 5]]));
        assert_eq!(unseen_of(&sent), Some(vec![set(&[5])]));
        // One member has recorded the commit. Neither set can commit without the answering members.
        let mut knows = sent.to_vec();
        knows[2].settled = Some(knows[2].membership.clone());
        assert_eq!(unseen_of(&knows), None);
        // A member that does not report what is committed proves nothing.
        let silent = sent.clone().map(|one| MemberEvidence {
            settled: None,
            ..one
        });
        assert!(unseen_of(&silent).is_some());
        // No entry can be lost before the first membership.
        let first = sent.map(|one| MemberEvidence {
            settled: Some(StoredMembership::default()),
            ..one
        });
        assert_eq!(unseen_of(&first), None);
    }

    #[test]
    fn a_member_without_a_log_is_no_evidence() {
        let sets: &[&[u64]] = &[&[1, 2, 3, 7], &[4, 5, 6]];
        let mut evidence = [3, 4, 5, 6, 7].map(|id| member(id, (2, 100), sets));
        assert_eq!(unseen_of(&evidence), None);
        // 7 was wiped and is queried under its old number.
        evidence[4].membership = StoredMembership::default();
        evidence[4].log_end = None;
        assert_eq!(unseen_of(&evidence), Some(vec![set(&[1, 2, 3, 7])]));
    }

    #[test]
    fn a_member_whose_logs_end_is_in_doubt_proves_nothing() {
        let sets: &[&[u64]] = &[&[1, 2, 3, 7], &[4, 5, 6]];
        let mut evidence = [3, 4, 5, 6, 7].map(|id| member(id, (2, 100), sets));
        assert_eq!(unseen_of(&evidence), None);
        // 1, 2 and 7 may have committed more; 7 has lost it.
        evidence[4].doubted_tail = true;
        assert_eq!(unseen_of(&evidence), Some(vec![set(&[1, 2, 3, 7])]));
        let plan = plan_repair(&evidence).unwrap();
        assert_eq!(
            (plan.missing.clone(), plan.in_doubt.clone()),
            (set(&[1, 2]), set(&[7]))
        );
        let refusal = accept(&plan, None).unwrap_err().to_string();
        assert!(
            refusal.contains("member 1, 2 may have more, and does not answer; the end of the log of member 7 was damaged"),
            "{refusal}"
        );
        // It may have the longest log; entries that others may have had are equally in doubt.
        evidence[4].log_end = Some(OpId::new(2, 101));
        let plan = plan_repair(&evidence).unwrap();
        assert_eq!(plan.survivor, MemberId(7));
        assert!(plan.loss.is_some());
    }

    #[test]
    fn a_ring_that_a_doubt_keeps_from_electing_has_lost_its_quorum() {
        let doubtful = |id, end| MemberEvidence {
            doubted_tail: true,
            ..member(id, end, A)
        };
        // The others of the nine do not answer, so 2 waits for them, and 3 for 2.
        let waiting = [doubtful(2, (2, 90)), member(3, (2, 100), A)];
        let plan = plan_repair(&waiting).unwrap();
        assert_eq!(plan.loss.unwrap().unseen, vec![set(&[1, 2, 3])]);
        // Two members without doubt elect one of themselves.
        let two = [
            member(1, (2, 80), A),
            doubtful(2, (2, 90)),
            member(3, (2, 100), A),
        ];
        assert_eq!(plan_repair(&two), Err(RepairRefusal::NotLost));
        // If all answer, they exchange the ends of their logs.
        let all: Vec<_> = (1..=9).map(|id| doubtful(id, (2, 90 + id))).collect();
        assert_eq!(plan_repair(&all), Err(RepairRefusal::NotLost));
    }

    /// Regression: the survivor of a repair lost power between the repair's term and its entry, or was permanently lost after it. Members
    /// that had seen that term no longer voted, and the operator was advised to wait for the election.
    #[test]
    fn a_ring_that_waits_for_entries_of_no_member_can_be_repaired() {
        let told = |id, end, needed| MemberEvidence {
            elects_from: Some(needed),
            ..member(id, end, A)
        };
        let leapt = OpId::new(2 + TERM_LEAP, 0);
        let waiting = [
            member(1, (2, 100), A),
            told(2, (2, 90), leapt),
            told(3, (2, 95), leapt),
        ];
        let plan = plan_repair(&waiting).unwrap();
        assert_eq!(plan.survivor, MemberId(1));
        assert_eq!(plan.gone_on, Some(leapt));
        assert_eq!(plan.missing, set(&[]));
        let refusal = accept(&plan, None).unwrap_err().to_string();
        let gone_on = format!("everything that was acknowledged: the ring has gone on to {leapt}");
        assert!(refusal.contains(&gone_on), "{refusal}");
        assert_eq!(accept(&plan, Some(OpId::new(2, 100))), Ok(()));
        // Two votes for the third are enough, as is a log that has the awaited entries.
        let one_waits = [
            member(1, (2, 100), A),
            told(2, (2, 90), leapt),
            member(3, (2, 95), A),
        ];
        assert_eq!(plan_repair(&one_waits), Err(RepairRefusal::NotLost));
        let there = [
            member(1, (2, 100), A),
            told(2, (2, 90), OpId::new(2, 100)),
            told(3, (2, 95), OpId::new(2, 99)),
        ];
        assert_eq!(plan_repair(&there), Err(RepairRefusal::NotLost));
        // The same holds for members whose own logs may lack their ends, if all answer.
        let in_doubt = |id, end| MemberEvidence {
            doubted_tail: true,
            ..told(id, end, OpId::new(2, 100))
        };
        let mut there = vec![
            member(1, (2, 100), A),
            in_doubt(2, (2, 90)),
            in_doubt(3, (2, 95)),
        ];
        there.extend((4..=9).map(|id| member(id, (2, 90), A)));
        assert_eq!(plan_repair(&there), Err(RepairRefusal::NotLost));
    }

    #[test]
    fn repairs_that_do_not_know_of_each_other_have_different_terms() {
        let at = |micros| UNIX_EPOCH + Duration::from_micros(micros);
        let term = |least, clock| {
            let mut plan = plan_repair(&[member(3, (2, 100), A)]).unwrap();
            plan.term = Term(least);
            plan.term_at(clock).0
        };
        let now = 1_795_290_000_000_000;
        // For two members that have seen the same terms, the second repair's term is later.
        assert_eq!(term(1002, at(now)), now);
        assert_eq!(term(1002, at(now + 700)), now + 700);
        // A clock that starts at boot distinguishes them as well.
        assert_eq!(term(1002, at(300_000_000)), 300_000_000);
        // A clock earlier than the observed terms: the term is later than those, and different each time.
        let (once, again) = (term(now + 1000, at(now - 7)), term(now + 1000, at(now - 6)));
        assert!(now + 1000 < once && once < again, "{once}, {again}");
        assert!(term(now, at(now)) > now);
        // No clock, or an implausible one.
        assert_eq!(term(1002, UNIX_EPOCH - Duration::from_secs(1)), 1002);
        assert_eq!(term(1002, at(LATEST_CLOCK)), 1002);
        assert_eq!(term(u64::MAX, at(now)), u64::MAX, "and no overflow");
    }

    #[test]
    fn a_present_quorum_is_not_repaired() {
        assert_eq!(plan_repair(&[]), Err(RepairRefusal::NoEvidence));
        let enough = [member(2, (2, 90), A), member(3, (2, 100), A)];
        assert_eq!(plan_repair(&enough), Err(RepairRefusal::NotLost));
        let mut led = member(3, (2, 100), A);
        led.leader = Some(MemberId(1));
        let (leader, witness) = (MemberId(1), MemberId(3));
        assert_eq!(
            plan_repair(std::slice::from_ref(&led)),
            Err(RepairRefusal::Led { leader, witness })
        );
        // It answers for itself and has no quorum.
        let mut alone = [led, member(1, (2, 100), A)];
        assert!(!matches!(
            plan_repair(&alone),
            Err(RepairRefusal::Led { .. })
        ));
        // Unless it has been elected since it answered.
        alone[0].term = Term(9);
        assert!(matches!(
            plan_repair(&alone),
            Err(RepairRefusal::Led { .. })
        ));
    }

    /// Members that answer, by the term of their vote.
    struct Answering(BTreeMap<u64, u64>);

    impl MemberCalls for Answering {
        fn ask<'a>(
            &'a self,
            to: MemberId,
            _: &'a MemberRecord,
            _: Question,
            _: Duration,
        ) -> BoxFuture<'a, Result<Answer, CallError>> {
            let silent = || CallError("no answer".to_owned());
            let answer = |term: &u64| Answer::Greeting {
                program: None,
                greeting: Greeting {
                    report: Some(Report {
                        standing: Standing {
                            term: *term,
                            end: None,
                        },
                        doubted: None,
                        put_back: None,
                    }),
                    ..Greeting::default()
                },
            };
            std::future::ready(self.0.get(&to.0).map(answer).ok_or_else(silent)).boxed()
        }

        fn knock<'a>(
            &'a self,
            _: MemberId,
            _: &'a MemberRecord,
            _: Duration,
        ) -> BoxFuture<'a, Knock> {
            std::future::ready(Knock::Silent).boxed()
        }
    }

    /// Regression: an operator repaired another member while this one's process was stopped, and it carried its order out afterwards.
    #[tokio::test]
    async fn a_plan_is_refused_once_another_member_was_repaired() {
        let view = Ring::new("a: 1d 2w 3w | b: 4d 5w 6w").view();
        let plan = plan_repair(&[member(3, (2, 100), A)]).unwrap();
        let applies = async |answering: &[(u64, u64)]| {
            let calls = Answering(answering.iter().copied().collect());
            still_applies(&calls, &view, &plan, Duration::ZERO).await
        };
        assert_eq!(applies(&[]).await, Ok(()));
        let before = [(4, 2), (5, plan.term.0 - 1)];
        assert_eq!(applies(&before).await, Ok(()));
        let after = [(4, 2), (5, plan.term.0)];
        let changed = RepairRefusal::Changed(MemberId(5));
        assert_eq!(applies(&after).await, Err(changed));
        let back = RepairRefusal::Back([MemberId(1)].into());
        assert_eq!(applies(&[(1, plan.term.0)]).await, Err(back));
    }
}
