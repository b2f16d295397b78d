//! Plans the repair of a quorum that is permanently lost. From the evidence of the reachable members, the plan selects the survivor and
//! states the possible loss. The planner is pure. An operator reads the plan and orders the repair; a repair is never automatic.
//!
//! # When nothing is lost
//!
//! Every acknowledged entry was committed by a leader in its own term, under the last membership of that leader's log. Two facts prove that
//! the longest log among the answering members, the survivor's, holds all acknowledged entries:
//!
//! 1. *If every quorum contains an answering member, no acknowledged entry is missed.* A member keeps every entry that it acknowledged to
//!    the leader that committed the entry. All later leaders have the entry. So a log that ends at or after the end of that member's log
//!    has the entry, too.
//! 2. *A membership is followed by another only after it is committed* (`membership_step`). The survivor's log has the last membership that
//!    is certainly committed, and perhaps one after it. An entry that no answering member has was committed under that membership or a
//!    later one. Each membership must be committed under its own voter sets before another follows. If neither the last membership nor its
//!    permitted direct successors ([`unseen_quorum`]) can commit without the answering members, there is no second successor.
//!
//! Only a member with a complete log counts as answering. A member that truncated bytes that it may have acknowledged (`doubted_tail`) may
//! have lost the entries of fact 1. So its answer proves nothing, as if the member were missing. Its log may still be the longest, because
//! it is a part of a leader's log.
//!
//! The proof covers the last two memberships of the survivor's log, or only the last one if a member has recorded it as committed. The
//! proof does not depend on the step that a leader intended: the step rules hold for operators and for leader tasks.
//!
//! # A ring that continued past every available log
//!
//! If a member has recorded how far the ring continued, it does not vote for a log that ends earlier (`vote_gate`). If no answering member
//! has a long enough log, that member votes for none, possibly forever. This happens if the survivor of an earlier repair failed between
//! the repair's term and its entry, after other members had received that term. The plan treats such members as members that do not vote.
//! The entries after the available logs may be lost.

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
    /// The member's term.
    pub term: Term,
    /// The end of the member's log.
    pub log_end: Option<OpId>,
    /// The last entry that the member has recorded as committed.
    pub committed: Option<OpId>,
    /// The membership in force in the member's log.
    pub membership: StoredMembership,
    /// The last membership in the member's log that is certainly committed: the one in force, or the one before it. `None` if unknown.
    #[serde(default)]
    pub settled: Option<StoredMembership>,
    /// The leader that the member follows, if that leader has a quorum or does not answer the member. See `has_quorum`.
    pub leader: Option<MemberId>,
    /// True if the member's log may lack acknowledged entries at its end.
    #[serde(default)]
    pub doubted_tail: bool,
    /// The last entry that the ring is known to have reached, if the member's log lacks it. The member votes for no log that ends earlier.
    #[serde(default)]
    pub elects_from: Option<OpId>,
}

/// The possible loss of a repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PossibleLoss {
    /// Entries after this one may have been acknowledged, and would be lost.
    pub after: Option<OpId>,
    /// Voter sets that could have committed entries without the answering members: sets in force, or possible successors. Empty if only
    /// [`RepairPlan::gone_on`] indicates a loss.
    pub unseen: VoterSets,
}

/// A plan to repair a quorum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairPlan {
    /// The member from which the ring continues. It is briefly the only voter; then its leader tasks restore the policy.
    pub survivor: MemberId,
    /// The end of the survivor's log, after which the repair is written. If the end has changed, the repair is refused.
    pub log_end: Option<OpId>,
    /// The lowest term of the repair, later than any observed term. The survivor's clock determines the actual term
    /// ([`RepairPlan::term_at`]).
    pub term: Term,
    /// The voter sets that are lost.
    pub lost: VoterSets,
    /// Voters that did not answer. They may be started again only where they can reach the survivor.
    pub missing: BTreeSet<MemberId>,
    /// Answering members whose damaged logs may have lost acknowledged entries: they count as missing.
    #[serde(default)]
    pub in_doubt: BTreeSet<MemberId>,
    /// The entry that the ring reached according to an answering member, if no answering member's log reaches it.
    #[serde(default)]
    pub gone_on: Option<OpId>,
    /// Answering members that recorded entries as committed which the survivor lacks. They must be restarted, to truncate their logs.
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
    /// The log has no membership: the data directory is new, or was emptied.
    Empty,
    /// The log ends before the survivor's log.
    Shorter,
    /// The log ends at the same entry as the survivor's log.
    SameEnd,
}

/// The reason for refusing a repair.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RepairRefusal {
    /// No member with a log answers.
    #[error("no member with a log answers; start at least one, or check the addresses")]
    NoEvidence,
    /// A leader has a quorum, or does not answer whether it has one.
    #[error(
        "member {leader} leads, as member {witness} reports: it has a quorum, or does not answer member {witness}; there is nothing to repair"
    )]
    Led {
        /// The member that leads.
        leader: MemberId,
        /// The member that reports it.
        witness: MemberId,
    },
    /// The quorum is not lost: the answering members can elect a leader, so an election is enough.
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
        /// The last entry of the survivor's log. Later entries may be lost.
        after: Option<OpId>,
    },
    /// The operator accepted another loss than the plan states.
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
    /// A member that did not answer when the plan was made now answers.
    #[error(
        "member {} did not answer when the plan was made, and answers now: it may have what the plan gives up, or elect a leader \
         of its own; make the plan again, or stop it for good first",
        list(.0)
    )]
    Back(BTreeSet<MemberId>),
    /// The survivor's process was suspended between the other members' answers and its own repair. Another member may have been repaired in
    /// that time.
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

/// Clock times after this one (in microseconds, the year 2255) are ignored, so that every JSON parser represents terms exactly.
const LATEST_CLOCK: u64 = 1 << 53;
/// If a clock is earlier than the terms, its time modulo this value is added to the lowest term: 2^40 microseconds, twelve days.
const PART_OF_CLOCK: u64 = 1 << 40;

impl RepairPlan {
    /// Returns the term of a repair that is executed when the survivor's clock shows this time: the time in microseconds.
    ///
    /// A second repair may be made independently of the first, while the first survivor is down. Entries are identified only by term and
    /// index. If both repairs had the same term, the ring would have two histories that no member can distinguish. With the time as the
    /// term,
    ///
    /// * the terms differ, except if two clocks show the same microsecond, and
    /// * the second term is later than the first, and later than all terms that followed the first, because there is at most one election
    ///   per microsecond. So a member that returns from the first repair detects that the ring continued without it.
    ///
    /// **A wrong clock** breaks only the second property. If the second survivor's clock is behind the first survivor's clock by more than
    /// the time between the repairs, the first history has the later term. If a clock is earlier than the observed terms (it was set back,
    /// or an earlier repair's clock was ahead), the lowest term is used. A part of the clock's time is added, so that the terms differ.
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
/// [`RepairRefusal`] if no repair is needed, or no member can execute it.
pub fn plan_repair(evidence: &[MemberEvidence]) -> Result<RepairPlan, RepairRefusal> {
    // If a member answers and does not report itself as the leader, it has no quorum in any term up to its own, whatever others report.
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
    // The survivor has the longest log in Raft's order: a log that lacks a committed entry is never longer than one that has all of them.
    // A member without a log may have lost its log, so it gives no evidence of the entries that it acknowledged.
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
    // If all members answer, members in doubt receive the missing entries from the others, and then vote. Otherwise they may wait forever
    // for members that do not answer (`doubted_tail`).
    let electing = match members_of(&survivor.membership).is_subset(&answering) {
        true => &answering,
        false => &sound,
    };
    // If any log can win an election, the longest log can. Members that require an even longer log do not vote for it.
    let gone_on = with_log().filter(|one| one.elects_from > survivor.log_end);
    let out_of_reach: BTreeSet<MemberId> = gone_on.clone().map(|one| one.member).collect();
    let gone_on = gone_on.filter_map(|one| one.elects_from).max();
    let electing = electing - &out_of_reach;
    // An earlier repair has given up logs that end a leap of terms before the survivor's log.
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

/// True if these voters would elect the candidate. The candidate counts votes by the membership in its own log, which may differ from the
/// membership in the survivor's log: if only the last leader has a new membership, the other members can elect a leader without it.
fn is_elected_by(candidate: &MemberEvidence, voters: &[&MemberEvidence]) -> bool {
    let grants = |voter: &&MemberEvidence| {
        let needed = voter.log_end.max(voter.elects_from);
        (needed <= candidate.log_end).then_some(voter.member)
    };
    let granted: BTreeSet<MemberId> = voters.iter().filter_map(grants).collect();
    granted.contains(&candidate.member) && have_majorities(candidate.sets(), &granted)
}

/// Returns voter sets that may have committed entries which the survivor lacks; `None` if there can be no such entry.
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
    // The last membership is committed if any member has recorded that, even if the survivor has not.
    let is_settled = evidence.iter().any(|one| {
        let settled = one.settled.as_ref();
        settled.is_some_and(|settled| settled.log_id() == last.log_id())
    });
    if found.is_some() || is_settled {
        return found;
    }
    // The last membership may not be committed. Then another membership may have followed the membership before it on other members.
    match &survivor.settled {
        // There is no earlier membership: no entry can be committed before the first one.
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
    /// Returns this member's evidence for the repair of a quorum.
    pub async fn evidence(&self) -> MemberEvidence {
        let (node, own) = (self.node(), self.id());
        let serves = node.leadership().serving_term().map(|_| own);
        let followed = node.role().leader.filter(|leader| *leader != own);
        let leader = match (serves, followed) {
            (None, Some(leader)) => has_quorum(node, leader).await.then_some(leader),
            _ => serves,
        };
        // These values are read before the log's end: a membership that is committed in between does not shorten the log.
        let doubted_tail = node.doubts_its_log();
        let elects_from = node.elects_from();
        // The last membership that is certainly committed. The engine appends a membership only after the one before it is committed.
        let settled = node
            .engine()
            .with_raft_state(|state| (**state.membership_state.committed()).clone());
        // A stopped engine cannot answer. The log is evidence without it.
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

    /// Executes the repair of a lost quorum with this member as the survivor: it continues as the only voter, and its leader
    /// tasks then restore the policy. The operator accepts the loss of entries after `accepted`. `clock` is the time on this
    /// machine, which determines the term of the repair.
    ///
    /// # Errors
    /// [`RepairRefusal`]. In that case nothing is changed.
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
        // A member that was just started may not have received a leader's message yet, so it campaigns only after its promise has ended.
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

/// The longest wait for a leader to answer whether it has a quorum. It must be shorter than the command's wait for the evidence.
const LONGEST_ASKING: Duration = Duration::from_secs(1);

/// True if a leader that sends heartbeats may have a quorum. A leader that lost its quorum still sends heartbeats to the members that it
/// reaches. A leader that does not answer at all may have a quorum of other members.
async fn has_quorum(node: &RaftNode, leader: MemberId) -> bool {
    let view = node.ring_view();
    let Some(peer) = view.member(leader) else {
        return true;
    };
    let patience = node.timers().heartbeat.min(LONGEST_ASKING);
    let ask = |question| node.calls().ask(leader, &peer.record, question, patience);
    // Only a leader with a quorum answers `Committed`. A member in any role answers the greeting.
    let serves = ask(Question::Committed);
    let answers = ask(Question::Greeting(Greeting::default()));
    let (serves, answers) = join(serves, answers).await;
    serves.is_ok() || answers.is_err()
}

/// Refuses a plan that is out of date: a missing member answers again, or another member was repaired. An operator takes time to read a
/// plan, and members that restart in that time could form a second ring. Each member has `patience` to answer: one heartbeat, which is
/// longer than the slowest round trip.
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

/// Executes the plan on its survivor, which becomes the only voter and leads. `clock` is the time on the survivor's clock. The answers of
/// the other members, requested at `answered`, must not be older than a heartbeat and a lease. If they are, this process was suspended, and
/// the operator may have repaired another member in that time.
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

    /// Returns the evidence of a member in a ring of nine, with the database members 1, 4 and 7.
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

    /// Changes a member's evidence: the membership in force is not committed yet, and `sets` are the last certainly committed voter sets.
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
        // Member 1 led and moved the quorum to member 4, which does not answer. No other member has that membership.
        let moved: &[&[u64]] = &[&[1, 2, 3], &[4]];
        let leader = on_its_way(member(1, (4, 131), moved), A);
        let others = [member(2, (4, 125), A), member(3, (4, 124), A)];
        let all = [leader.clone(), others[0].clone(), others[1].clone()];
        assert_eq!(plan_repair(&all), Err(RepairRefusal::NotLost));
        // Member 3 requires a longer log than that of member 2, so no member votes for 2.
        let mut told = all.clone();
        told[2].elects_from = Some(OpId::new(4, 130));
        assert_eq!(plan_repair(&told).unwrap().survivor, MemberId(1));
        // If member 2 has the new membership, it also cannot win.
        let heard = [leader.clone(), on_its_way(member(2, (4, 130), moved), A)];
        assert_eq!(plan_repair(&heard).unwrap().survivor, MemberId(1));
        // If member 1's log has the term of a repair, that repair has given up the entries of the others.
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
        // Among logs of equal length, the log of a database member is preferred to that of a voter, regardless of their numbers.
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
        // A promotion to region b failed after {4 5 6}. The last membership that members 3 to 6 have is {4 5 6} {1 2 3}. Then {1 2 3} was
        // committed on 1 and 2, which acknowledged writes for hours before they failed.
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
        // A commit needs three of the set of four, so at least one of them answers. All of {4 5 6} answer.
        let sets: &[&[u64]] = &[&[1, 2, 3, 7], &[4, 5, 6]];
        let evidence = [3, 4, 5, 6, 7].map(|id| member(id, (2, 100), sets));
        let plan = plan_repair(&evidence).unwrap();
        assert_eq!(plan.loss, None);
        assert_eq!(accept(&plan, None), Ok(()));
        // If the set of four is the only one, these voters may have removed a member.
        let alone = evidence.map(|one| member(one.member.0, (2, 100), &[&[1, 2, 3, 7]]));
        assert_eq!(unseen_of(&alone), Some(vec![set(&[1, 2, 7])]));
    }

    #[test]
    fn a_membership_on_its_way_may_not_have_been_the_one_that_followed() {
        // {4 5} {1 2 3} followed {4 5}, and was not committed yet when member 5 failed. Instead, 5 may have led next and removed 4.
        let joint: &[&[u64]] = &[&[4, 5], &[1, 2, 3]];
        let sent = [1, 2, 3, 4].map(|id| on_its_way(member(id, (2, 100), joint), &[&[4, 5]]));
        assert_eq!(unseen_of(&sent), Some(vec![set(&[5])]));
        // One member has recorded the commit. Neither set can commit without the answering members.
        let mut knows = sent.to_vec();
        knows[2].settled = Some(knows[2].membership.clone());
        assert_eq!(unseen_of(&knows), None);
        // If no member reports a committed membership, nothing is proven.
        let silent = sent.clone().map(|one| MemberEvidence {
            settled: None,
            ..one
        });
        assert!(unseen_of(&silent).is_some());
        // There is no membership before this one, so no entry can be lost.
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
        // Member 7's data directory was emptied, and the member answers under its old number.
        evidence[4].membership = StoredMembership::default();
        evidence[4].log_end = None;
        assert_eq!(unseen_of(&evidence), Some(vec![set(&[1, 2, 3, 7])]));
    }

    #[test]
    fn a_member_whose_logs_end_is_in_doubt_proves_nothing() {
        let sets: &[&[u64]] = &[&[1, 2, 3, 7], &[4, 5, 6]];
        let mut evidence = [3, 4, 5, 6, 7].map(|id| member(id, (2, 100), sets));
        assert_eq!(unseen_of(&evidence), None);
        // Members 1, 2 and 7 may have committed more entries, which 7 has lost.
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
        // Member 7 may have the longest log. Later entries of other members are still in doubt.
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
        // The other seven members do not answer, so member 2 waits for them, and 3 waits for 2.
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

    /// Regression test: the survivor of a repair lost power between the repair's term and its entry, or was permanently lost after the
    /// entry. Members that had received that term no longer voted, but the operator was advised to wait for the election.
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
        // The quorum is not lost if two members can elect the third, or if one log has the awaited entries.
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
        // The quorum is not lost either if the other members' logs may lack their ends, but all members answer.
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
        // If two members have the same term, the term of the second repair is later.
        assert_eq!(term(1002, at(now)), now);
        assert_eq!(term(1002, at(now + 700)), now + 700);
        // A clock that starts at boot also gives different terms.
        assert_eq!(term(1002, at(300_000_000)), 300_000_000);
        // If a clock is earlier than the observed terms, the result is later than these terms, and different each time.
        let (once, again) = (term(now + 1000, at(now - 7)), term(now + 1000, at(now - 6)));
        assert!(now + 1000 < once && once < again, "{once}, {again}");
        assert!(term(now, at(now)) > now);
        // An implausible time is ignored.
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
        // The reported leader itself answers that it has no quorum.
        let mut alone = [led, member(1, (2, 100), A)];
        assert!(!matches!(
            plan_repair(&alone),
            Err(RepairRefusal::Led { .. })
        ));
        // If the reporter has a later term, the leader may have been elected after its own answer.
        alone[0].term = Term(9);
        assert!(matches!(
            plan_repair(&alone),
            Err(RepairRefusal::Led { .. })
        ));
    }

    /// The members that answer, each with the term of its vote.
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
                        restored: None,
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

    /// Regression test: an operator repaired another member while this member's process was suspended. After that, this member executed its
    /// own order.
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
