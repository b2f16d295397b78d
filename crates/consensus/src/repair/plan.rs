//! The repair of a quorum that is lost for good: from what the members that can still be reached say of themselves, the
//! decision which of them goes on, and what may be lost by it. Pure; an operator reads the plan and orders it carried out.
//! It is never done by itself.
//!
//! # When nothing is lost
//!
//! What was acknowledged was committed by a leader in its own term, under the last membership of that leader's log. Two
//! facts together prove that the longest log of those that answer, the survivor's, has all of it:
//!
//! 1. *Where every quorum has somebody who answers, nothing is missed.* A member that acknowledged an entry to the leader
//!    that committed it keeps it, and all later leaders have it. So a log that ends at or behind the end of that member's
//!    has it too.
//! 2. *A membership is followed by another one only after it is committed* (`membership_step`). The survivor's log names the last
//!    membership that is certainly committed, and perhaps one behind it. Behind either, an entry that nobody who answers has
//!    seen can have been committed under that membership itself, or under one that followed it. To follow it, a membership has to be
//!    committed under its own voter sets. If neither the last one nor any that the step rules allow directly behind it
//!    ([`unseen_quorum`]) could be committed without those that answer, the row ends there: there is no second step
//!    without a first.
//!
//! Who answers is here who answers with a whole log. A member that cut off bytes which it may have acknowledged
//! (`doubted_tail`) does not keep what 1. says that it keeps: its answer proves nothing, as if it were missing. Its log may
//! be the longest all the same, for it is a part of a leader's log like any other.
//!
//! So the proof is asked for the two memberships that the survivor's log ends with, or for the last alone when somebody knows it
//! to be committed. It does not ask which step a leader would have wanted: whatever an operator or the leader tasks may have ordered,
//! the rules for steps hold.
//!
//! # A ring that has gone on, and whose end nobody has
//!
//! A member that was told how far the ring has gone on votes for no log that ends before (`vote_gate`). Where nobody who answers has a
//! log that goes that far, it elects nobody, and this may be so for good: the survivor of an earlier repair died, or lost its power
//! between the term of its repair and the entry, behind which others had heard of the term. To the plan such a member does not elect;
//! and what the ring has gone on to may be lost.

#[cfg(test)]
mod proof_tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::{join, join_all};
use raft_types::{MemberId, MemberKind, MemberRecord, Membership, OpId, StoredMembership};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::calls::{Greeting, MemberCalls, Question};
use crate::engine;
use crate::engine::{Engine, Fault};
use crate::history;
use crate::history::HistoryEntry;
use crate::lease::leadership::Term;
use crate::member::core::MemberCore;
use crate::quorum::{VoterSets, majority_of, unseen_quorum};
use crate::repair::forced_membership::{ForceError, force_membership};
use crate::ring_view::RingView;

/// What one member says of itself when a quorum may have to be repaired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberEvidence {
    /// The member that answers.
    pub member: MemberId,
    /// The latest term it has seen.
    pub term: Term,
    /// The end of its log.
    pub log_end: Option<OpId>,
    /// Up to where it knows its log to be committed.
    pub committed: Option<OpId>,
    /// The membership that is in force in its log.
    pub membership: StoredMembership,
    /// The last membership in its log that is certainly committed: that in force, or the one before it. None where it
    /// could not say.
    #[serde(default)]
    pub settled: Option<StoredMembership>,
    /// The leader that it follows: one that has a quorum, or that it cannot ask for that. See `has_quorum`.
    pub leader: Option<MemberId>,
    /// The end of its log may lack what it acknowledged: it may have had more.
    #[serde(default)]
    pub doubted_tail: bool,
    /// It was told that the ring has gone on to this entry, which its log lacks: it elects nobody whose log does not go that far.
    #[serde(default)]
    pub elects_from: Option<OpId>,
}

impl MemberEvidence {
    /// The evidence of a running member that follows this leader.
    pub(crate) async fn of(core: &MemberCore, leader: Option<MemberId>) -> Self {
        let raft = &core.raft;
        let doubted_tail = core.campaigning.gate.needed().is_some();
        let elects_from = core.campaigning.gate.committed();
        // The engine's own word for it: a membership has another behind it only when it is committed.
        let settled = raft.with_raft_state(|state| (**state.membership_state.committed()).clone());
        // An engine that has stopped says nothing of it; its log is evidence all the same.
        let settled = settled.await.ok();
        let role = engine::role(raft);
        let progress = engine::progress(raft);
        Self {
            settled,
            member: core.id,
            // Both asked before the log's end: what is settled in between leaves the log as long as it has to be.
            doubted_tail,
            elects_from,
            term: role.term,
            log_end: progress.last_log,
            committed: progress.applied,
            membership: (*role.membership).clone(),
            leader,
        }
    }
}

/// What may be lost by a repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PossibleLoss {
    /// Entries after this one may have been acknowledged, and would be lost.
    pub after: Option<OpId>,
    /// Voter sets that are in force, or may have followed, and of which nobody who answers had to be asked; none where only
    /// [`RepairPlan::gone_on`] says that something is missing.
    pub unseen: VoterSets,
}

/// How a quorum can be repaired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairPlan {
    /// The member that goes on; for a moment it is the only voter, then its leader tasks restore the policy.
    pub survivor: MemberId,
    /// The end of its log, after which the repair is written. If it is another by then, nothing is done.
    pub log_end: Option<OpId>,
    /// The least term of the repair, later than any that was seen. Which one it is, the survivor's clock decides
    /// ([`RepairPlan::term_at`]).
    pub term: Term,
    /// The voter sets that are lost.
    pub lost: VoterSets,
    /// Voters that did not answer. They must not come back without being able to reach the survivor.
    pub missing: BTreeSet<MemberId>,
    /// Members that answered and may have acknowledged what their damaged logs have lost: they count as if they had not.
    #[serde(default)]
    pub in_doubt: BTreeSet<MemberId>,
    /// Up to where the ring has gone on, as a member was told that answers, where no log of those that answer goes that far.
    #[serde(default)]
    pub gone_on: Option<OpId>,
    /// Members that answered and took entries as committed that the survivor does not have: restart them, they cut
    /// their logs back.
    pub to_restart: BTreeSet<MemberId>,
    /// Members that answered, with a log that the repair does not use.
    #[serde(default)]
    pub unused: Vec<UnusedLog>,
    /// What may be lost; `None`: nothing that was acknowledged.
    pub loss: Option<PossibleLoss>,
}

/// A log that a repair does not use, although its member answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusedLog {
    /// The member with this log.
    pub member: MemberId,
    /// Why another log is used.
    pub why: WhyUnused,
}

/// Why a repair does not use a log.
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

/// Why a repair is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepairRefusal {
    /// No member with a log answers.
    #[error("no member with a log answers; start at least one, or check the addresses")]
    NoEvidence,
    /// A leader has a quorum, or does not say that it has none.
    #[error(
        "member {leader} leads, as member {witness} reports: it has a quorum, or does not answer member {witness}; there is nothing to repair"
    )]
    Led {
        /// The member that leads.
        leader: MemberId,
        /// The member that reports it.
        witness: MemberId,
    },
    /// A majority of every voter set answers, by the longest log or by that of a member whom they would elect: an election is enough.
    #[error(
        "the quorum is not lost: a majority of every voter set answers; wait for the election, and look at `witness status --explain`"
    )]
    NotLost,
    /// The longest log cannot be proven.
    #[error(
        "it cannot be proven that member {survivor} has everything that was acknowledged: {}. Bring back one that is missing, even if only for its log; or accept that entries after {} may be lost, with `--accept-loss {}`",
        may_have_more(.missing, .in_doubt, .gone_on), end(.after), end(.after)
    )]
    Unproven {
        /// Who has the longest log of those that answer.
        survivor: MemberId,
        /// Members that do not answer and may hold more.
        missing: BTreeSet<MemberId>,
        /// Who answers, and may have acknowledged what its damaged log has lost.
        #[serde(default)]
        in_doubt: BTreeSet<MemberId>,
        /// Up to where the ring has gone on, as one who answers was told, where nobody who answers has it.
        #[serde(default)]
        gone_on: Option<OpId>,
        /// The last entry of the survivor's log: what follows it may be lost.
        after: Option<OpId>,
    },
    /// The operator accepted another loss than the one that threatens.
    #[error("entries after {} may be lost, not those after {}; look at the plan again", end(.threatens), end(.accepted))]
    OtherLoss {
        /// The entry after which acknowledged transactions may be lost.
        threatens: Option<OpId>,
        /// The entry that the operator named.
        accepted: Option<OpId>,
    },
    /// The member was asked to carry out a plan for another.
    #[error("the plan is for member {0}")]
    OtherSurvivor(MemberId),
    /// The member has moved on since the plan was made.
    #[error(
        "the log or the vote of member {0} has changed since the plan was made; make a new one"
    )]
    Changed(MemberId),
    /// Who did not answer when the plan was made answers now.
    #[error(
        "member {} did not answer when the plan was made, and answers now: it may have what the plan gives up, or elect a leader \
         of its own; make the plan again, or stop it for good first",
        list(.0)
    )]
    Back(BTreeSet<MemberId>),
    /// The consensus engine has stopped, so the repair was not carried out.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

fn end(op_id: &Option<OpId>) -> String {
    op_id.map_or_else(|| "none".to_owned(), |op_id| op_id.to_string())
}

fn list(members: &BTreeSet<MemberId>) -> String {
    let names: Vec<String> = members.iter().map(MemberId::to_string).collect();
    names.join(", ")
}

fn may_have_more(
    missing: &BTreeSet<MemberId>,
    in_doubt: &BTreeSet<MemberId>,
    gone_on: &Option<OpId>,
) -> String {
    let missing = (!missing.is_empty()).then(|| {
        format!(
            "member {} may have more, and does not answer",
            list(missing)
        )
    });
    let in_doubt = (!in_doubt.is_empty()).then(|| {
        format!(
            "the end of the log of member {} was damaged, and may have been acknowledged",
            list(in_doubt)
        )
    });
    let gone_on = gone_on.map(|end| {
        format!("the ring has gone on to {end}, as one of them was told, and none of them has that")
    });
    let all: Vec<String> = missing.into_iter().chain(in_doubt).chain(gone_on).collect();
    all.join("; ")
}

/// How far the term of a repair lies beyond the latest that was seen: members that did not answer may have seen later ones. Elections
/// come to no such term: with one every 100 ms, that would take 19 days without an entry.
pub(crate) const TERM_LEAP: u64 = 1 << 24;

/// The least term that only a repair can come to in a ring in which a log ends like this.
pub(crate) fn leap_from(log_end: Option<OpId>) -> u64 {
    log_end.map_or(0, |last| last.term) + TERM_LEAP
}

/// Times behind this one (the year 2255, in microseconds) are not believed: terms stay numbers that every reader of JSON can tell apart.
const LATEST_CLOCK: u64 = 1 << 53;
/// What of a clock that is behind the terms is still used: 2^40 microseconds, twelve days.
const PART_OF_CLOCK: u64 = 1 << 40;

impl RepairPlan {
    /// The term of the repair, when it is carried out at this time by the survivor's clock: that time in microseconds.
    ///
    /// Two repairs may not know of each other, when the second is made while the survivor of the first is down. Entries are
    /// told apart by term and index alone, so with one term for both the ring would have two histories that no member can tell
    /// apart. With the time as the term,
    ///
    /// * they differ, but for two clocks that show the same microsecond, and
    /// * the second one is later than the first and than all terms of those whom it led, which hold one election in a
    ///   microsecond at the very most: whoever comes back from the first sees that the ring went on without it.
    ///
    /// **A clock that is wrong** costs the second of these alone: where the second survivor's is behind the first one's by more
    /// than the time between them, the first history is the later one when both meet, as with any two repairs before.
    /// Where a clock is behind the terms that were seen (it was set back, or an earlier repair's was ahead), the least term is
    /// taken with a part of the clock on top, which still differs.
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
/// [`RepairRefusal`] when there is nothing to repair, or nobody to do it with.
pub fn plan_repair(evidence: &[MemberEvidence]) -> Result<RepairPlan, RepairRefusal> {
    // One that answers, and does not say that it leads, has no quorum in the terms up to its own, whatever others have heard of it.
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
    // The longest log: by Raft's own order, which no log with everything committed can lose.
    let with_log = evidence.iter().filter(|one| !one.sets().is_empty());
    let survivor = with_log.max_by_key(|one| {
        let votes = one.sets().iter().any(|set| set.contains(&one.member));
        let is_database = one.kind() == Some(MemberKind::Database);
        (
            one.log_end,
            is_database,
            votes,
            std::cmp::Reverse(one.member),
        )
    });
    let survivor = survivor.ok_or(RepairRefusal::NoEvidence)?;
    // A member without a log may have had one once: it is no evidence of what it acknowledged.
    let with_log = || evidence.iter().filter(|one| !one.sets().is_empty());
    let answering: BTreeSet<MemberId> = with_log().map(|one| one.member).collect();
    let sound = with_log().filter(|one| !one.doubted_tail);
    let sound: BTreeSet<MemberId> = sound.map(|one| one.member).collect();
    let sets = survivor.sets().to_vec();
    // Where all answer, those in doubt learn from the others what they need, and vote. Where one does not, they may wait for
    // it for good (`doubted_tail`).
    let electing = match survivor.members().is_subset(&answering) {
        true => &answering,
        false => &sound,
    };
    // The longest log is the one that is elected if any is.
    let gone_on = with_log().filter(|one| one.elects_from > survivor.log_end);
    let out_of_reach: BTreeSet<MemberId> = gone_on.clone().map(|one| one.member).collect();
    let gone_on = gone_on.filter_map(|one| one.elects_from).max();
    let electing = electing - &out_of_reach;
    let has_majority =
        |set: &BTreeSet<MemberId>| set.intersection(&electing).count() >= majority_of(set.len());
    // An earlier repair has given up what lies so far behind.
    let given_up = |one: &MemberEvidence| {
        let end = survivor.log_end;
        end.is_some_and(|end| end.term >= leap_from(one.log_end))
    };
    let voters: Vec<_> = with_log()
        .filter(|one| sound.contains(&one.member) && !given_up(one))
        .collect();
    let others_elect = || voters.iter().any(|one| is_elected_by(one, &voters));
    if sets.iter().all(has_majority) || others_elect() {
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

/// Whether these elect the candidate, which counts its votes by the membership of its own log. That need not be the survivor's: a
/// membership that nobody but its leader has is none to the others, who elect one of themselves without it.
fn is_elected_by(candidate: &MemberEvidence, voters: &[&MemberEvidence]) -> bool {
    let grants = |voter: &&MemberEvidence| {
        let needed = voter.log_end.max(voter.elects_from);
        (needed <= candidate.log_end).then_some(voter.member)
    };
    let granted: BTreeSet<MemberId> = voters.iter().filter_map(grants).collect();
    let elects =
        |set: &BTreeSet<MemberId>| set.intersection(&granted).count() >= majority_of(set.len());
    granted.contains(&candidate.member) && candidate.sets().iter().all(elects)
}

/// Voter sets under which something may have been committed that the survivor does not have; none: there cannot be any.
fn unseen(
    survivor: &MemberEvidence,
    evidence: &[MemberEvidence],
    sound: &BTreeSet<MemberId>,
) -> Option<VoterSets> {
    let last = &survivor.membership;
    let behind = |membership: &StoredMembership| {
        let sets = membership.membership().get_joint_config();
        unseen_quorum(sets, &members_of(membership), sound)
    };
    let found = behind(last);
    // What one member knows to be committed is, also where the survivor has not heard of it yet.
    let is_settled = evidence.iter().any(|one| {
        let settled = one.settled.as_ref();
        settled.is_some_and(|settled| settled.log_id() == last.log_id())
    });
    if found.is_some() || is_settled {
        return found;
    }
    // The last one may never have been in force elsewhere: another may have followed the one before it.
    match &survivor.settled {
        // Before the first membership of all nothing is committed.
        Some(before) if before.membership().get_joint_config().is_empty() => None,
        Some(before) => behind(before),
        None => Some(survivor.sets().to_vec()),
    }
}

fn members_of(membership: &StoredMembership) -> BTreeSet<MemberId> {
    membership.membership().nodes().map(|(id, _)| *id).collect()
}

/// Whether the plan may be carried out, when the operator has accepted this loss.
///
/// # Errors
/// [`RepairRefusal`] when a loss threatens that was not accepted.
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

/// The longest wait for a leader that is asked whether it has a quorum. The operator's command waits longer for the evidence.
const LONGEST_ASKING: Duration = Duration::from_secs(1);

/// Whether a leader that sends heartbeats may have a quorum: a leader that lost it continues to send them to the members that it reaches.
/// One that does not answer at all may have a quorum elsewhere.
pub(crate) async fn has_quorum(
    calls: &dyn MemberCalls,
    view: &RingView,
    leader: MemberId,
    heartbeat: Duration,
) -> bool {
    let Some(peer) = view.member(leader) else {
        return true;
    };
    let patience = heartbeat.min(LONGEST_ASKING);
    let ask = |question| calls.ask(leader, &peer.record, question, patience);
    // Only a leader with a quorum answers the first one; the second one is answered in any role.
    let serves = ask(Question::Committed);
    let answers = ask(Question::Greeting(Greeting::default()));
    let (serves, answers) = join(serves, answers).await;
    serves.is_ok() || answers.is_err()
}

/// Refuses a plan that is out of date: somebody whom it gives up is there again. The operator needs time to read a plan, and two
/// machines that start again in that time would be a second ring. Each has `patience` to answer: a heartbeat, which is longer than the
/// slowest way there and back.
pub(crate) async fn still_missing(
    calls: &dyn MemberCalls,
    view: &RingView,
    plan: &RepairPlan,
    patience: Duration,
) -> Result<(), RepairRefusal> {
    let given_up = plan.missing.iter().filter_map(|id| view.member(*id));
    let asked = given_up.map(|peer| async move {
        let call = calls.ask(
            peer.id,
            &peer.record,
            Question::Greeting(Greeting::default()),
            patience,
        );
        call.await.is_ok().then_some(peer.id)
    });
    let back: BTreeSet<MemberId> = join_all(asked).await.into_iter().flatten().collect();
    match back.is_empty() {
        true => Ok(()),
        false => Err(RepairRefusal::Back(back)),
    }
}

/// Carries the plan out on its survivor, whose clock shows this: it becomes the only voter and leads.
pub(crate) async fn carry_out(
    raft: &Engine,
    own: MemberId,
    plan: &RepairPlan,
    clock: SystemTime,
    entry: HistoryEntry,
) -> Result<OpId, RepairRefusal> {
    if plan.survivor != own {
        return Err(RepairRefusal::OtherSurvivor(plan.survivor));
    }
    let role = engine::role(raft);
    let progress = engine::progress(raft);
    if progress.last_log != plan.log_end || role.term >= plan.term {
        return Err(RepairRefusal::Changed(own));
    }
    let base = role.membership.membership();
    let mut members: BTreeMap<MemberId, MemberRecord> = base
        .nodes()
        .map(|(id, record)| (*id, record.clone()))
        .collect();
    let term = plan.term_at(clock);
    history::append(&mut members, &[HistoryEntry { term, ..entry }]);
    let alone = vec![BTreeSet::from([own])];
    let membership = Membership::new(alone, members).map_err(|_| RepairRefusal::Changed(own))?;
    tracing::warn!(?plan, %term, "repairing the quorum: this member continues alone");
    force_membership(raft, membership, plan.log_end, term.0)
        .await
        .map_err(|error| match error {
            ForceError::Changed => RepairRefusal::Changed(own),
            ForceError::Stopped(fault) => fault.into(),
        })
}

impl MemberEvidence {
    fn sets(&self) -> &[BTreeSet<MemberId>] {
        self.membership.membership().get_joint_config()
    }

    fn members(&self) -> BTreeSet<MemberId> {
        members_of(&self.membership)
    }

    fn kind(&self) -> Option<MemberKind> {
        let record = self.membership.membership().get_node(&self.member)?;
        Some(record.kind)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use raft_types::LogId;

    use super::*;

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

    /// The same, with the membership in force on its way: before it, `sets` are the last that are certainly committed.
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
    fn the_longest_log_goes_on_and_what_may_be_lost_is_named() {
        // 1 and 2 are gone for good.
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
        // 1 led, and moved the quorum to 4, which does not answer; nobody else has heard of it.
        let moved: &[&[u64]] = &[&[1, 2, 3], &[4]];
        let leader = on_its_way(member(1, (4, 131), moved), A);
        let others = [member(2, (4, 125), A), member(3, (4, 124), A)];
        let all = [leader.clone(), others[0].clone(), others[1].clone()];
        assert_eq!(plan_repair(&all), Err(RepairRefusal::NotLost));
        // Nobody votes for 2 any more.
        let mut told = all.clone();
        told[2].elects_from = Some(OpId::new(4, 130));
        assert_eq!(plan_repair(&told).unwrap().survivor, MemberId(1));
        // Nor where 2 itself has the membership, and 3 is no majority alone.
        let heard = [leader.clone(), on_its_way(member(2, (4, 130), moved), A)];
        assert_eq!(plan_repair(&heard).unwrap().survivor, MemberId(1));
        // Behind a repair they are what was given up.
        let repaired = [
            on_its_way(member(1, (4 + TERM_LEAP, 131), moved), A),
            others[0].clone(),
            others[1].clone(),
        ];
        assert_eq!(plan_repair(&repaired).unwrap().survivor, MemberId(1));
    }

    #[test]
    fn a_learner_with_the_longer_log_goes_on() {
        let evidence = [
            member(3, (2, 90), A),
            member(4, (2, 100), A),
            member(5, (2, 100), A),
        ];
        assert_eq!(plan_repair(&evidence).unwrap().survivor, MemberId(4));
        // Of logs that are as long, a database member's, then a voter's, whatever their numbers.
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
    fn one_set_of_a_joint_quorum_may_have_gone_on_alone() {
        // A promotion to region b failed behind {4 5 6}; {4 5 6} {1 2 3} is the last that 3 to 6 have seen. Then {1 2 3} was
        // committed on 1 and 2, which acknowledged for hours, and died.
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
    fn where_every_membership_that_may_have_followed_needs_one_who_answers_nothing_is_lost() {
        // Of the four, three are needed, so that one who answers is among them; and of {4 5 6}, all answer.
        let sets: &[&[u64]] = &[&[1, 2, 3, 7], &[4, 5, 6]];
        let evidence = [3, 4, 5, 6, 7].map(|id| member(id, (2, 100), sets));
        let plan = plan_repair(&evidence).unwrap();
        assert_eq!(plan.loss, None);
        assert_eq!(accept(&plan, None), Ok(()));
        // Alone, the four may have let one of theirs go.
        let alone = evidence.map(|one| member(one.member.0, (2, 100), &[&[1, 2, 3, 7]]));
        assert_eq!(unseen_of(&alone), Some(vec![set(&[1, 2, 7])]));
    }

    #[test]
    fn a_membership_on_its_way_may_not_have_been_the_one_that_followed() {
        // {4 5} {1 2 3} was on its way behind {4 5} when 5 died. It may have been 5 that led next, and let 4 go instead.
        let joint: &[&[u64]] = &[&[4, 5], &[1, 2, 3]];
        let sent = [1, 2, 3, 4].map(|id| on_its_way(member(id, (2, 100), joint), &[&[4, 5]]));
        assert_eq!(unseen_of(&sent), Some(vec![set(&[5])]));
        // One member knows that it came about. Neither set of it can go on without those that answer.
        let mut knows = sent.to_vec();
        knows[2].settled = Some(knows[2].membership.clone());
        assert_eq!(unseen_of(&knows), None);
        // A member that could not say what is committed proves nothing.
        let silent = sent.clone().map(|one| MemberEvidence {
            settled: None,
            ..one
        });
        assert!(unseen_of(&silent).is_some());
        // Before the first membership there is nothing to lose.
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
        // 7 was wiped, and is asked under its old number.
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
        // It may have the longest log; what others may have had besides is no less in doubt.
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
        // The others of the nine are away, so that 2 waits for them, and 3 for 2.
        let waiting = [doubtful(2, (2, 90)), member(3, (2, 100), A)];
        let plan = plan_repair(&waiting).unwrap();
        assert_eq!(plan.loss.unwrap().unseen, vec![set(&[1, 2, 3])]);
        // Two without a doubt elect one of theirs.
        let two = [
            member(1, (2, 80), A),
            doubtful(2, (2, 90)),
            member(3, (2, 100), A),
        ];
        assert_eq!(plan_repair(&two), Err(RepairRefusal::NotLost));
        // Where all are there, they tell each other how far their logs go.
        let all: Vec<_> = (1..=9).map(|id| doubtful(id, (2, 90 + id))).collect();
        assert_eq!(plan_repair(&all), Err(RepairRefusal::NotLost));
    }

    /// Pins a bug: the survivor of a repair lost its power between the repair's term and its entry, or for good behind it. Whoever had
    /// heard of that term voted for nobody any more, and the operator was told to wait for the election.
    #[test]
    fn a_ring_that_waits_for_what_nobody_has_can_be_repaired() {
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
        // Two that vote for the third are enough, and so is a log that has what they wait for.
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
        // As it is for those whose own logs may lack their ends, where all answer.
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
        // Of two members that have seen the same; the second one is later.
        assert_eq!(term(1002, at(now)), now);
        assert_eq!(term(1002, at(now + 700)), now + 700);
        // A clock that began with the machine tells them apart as well.
        assert_eq!(term(1002, at(300_000_000)), 300_000_000);
        // One that is behind what was seen: later than that, and another each time.
        let (once, again) = (term(now + 1000, at(now - 7)), term(now + 1000, at(now - 6)));
        assert!(now + 1000 < once && once < again, "{once}, {again}");
        assert!(term(now, at(now)) > now);
        // No clock, or none to believe.
        assert_eq!(term(1002, UNIX_EPOCH - Duration::from_secs(1)), 1002);
        assert_eq!(term(1002, at(LATEST_CLOCK)), 1002);
        assert_eq!(term(u64::MAX, at(now)), u64::MAX, "and no overflow");
    }

    #[test]
    fn what_is_not_lost_is_not_repaired() {
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
        // It answers itself, and has no quorum.
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
}
