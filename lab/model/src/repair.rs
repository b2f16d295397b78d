//! The repair of a permanently lost quorum: the product's own code plans it from the members' answers, and imposes a membership. Members
//! that rejoin after a repair, or that lost the end of their log, also evaluate the other members' answers with the product's code.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use consensus::rules::{common_entry, enough};
use consensus::{Agreement, LogEnd, Recollection, Term as ProductTerm};
use raft_types::{
    DoubtedTail, LogId, MemberId, MemberRecord, Membership as StoredVoters, StoredMembership,
};
use ring_admin::rules::{ahead, judge};
use ring_admin::{MemberEvidence, Rejoin, RepairPlan, plan_repair};

use crate::naming::{end_at, last_before, last_of, name, named, named_sets, op_id, recollection};
use crate::ring::{
    Content, Count, Doubt, Entry, Id, Member, Members, Membership, NO_MEMBER, Planned, Ring, Role,
    Term, common,
};
use crate::rules::Rules;
use crate::scope::Broken;

/// Clock advance between two repairs, in microseconds. It exceeds the advance of the least term of a repair.
const CLOCK: u64 = 1 << 25;

/// The clock after `before` plans.
fn clock(before: u8) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(CLOCK * (u64::from(before) + 1))
}

/// Returns the operator's plan from the answers of the members `answering`. `None`: no repair is needed.
pub(crate) fn plan(
    rules: Rules,
    ring: &Ring,
    records: &BTreeMap<MemberId, MemberRecord>,
    answering: Members,
) -> Option<Planned> {
    let answers = || answering.ids().map(|id| (id, &ring.members[id]));
    let longest = answers()
        .map(|(_, member)| member)
        .max_by_key(|m| m.end())?;
    // In the usual case a leader can be elected. This check is much cheaper than a plan.
    let sound = answers().filter(|(_, member)| {
        member.doubt.is_none() && member.told.is_none_or(|told| told <= longest.end())
    });
    if rules.is_elected(longest, sound.map(|(id, _)| id).collect()) {
        return None;
    }
    let evidence: Vec<MemberEvidence> = answers()
        .filter_map(|(id, member)| evidence(id, member, records))
        .collect();
    let mut plan: RepairPlan = plan_repair(&evidence).ok()?;
    let answered = named(answering);
    if rules.lacks(Broken::BelieveAnySet) && plan.lost.iter().any(|set| set.is_subset(&answered)) {
        plan.loss = None;
    }
    let clock = match rules.lacks(Broken::RepairWithoutAClock) {
        true => UNIX_EPOCH,
        false => clock(ring.spent.plans),
    };
    let term = Term::try_from(plan.term_at(clock).0).unwrap_or(Term::MAX);
    let survivor = plan.survivor.0 as Id;
    Some(Planned::of(&plan, ring.members[survivor].end(), term))
}

/// Returns a member's answer about its own state.
fn evidence(
    id: Id,
    member: &Member,
    records: &BTreeMap<MemberId, MemberRecord>,
) -> Option<MemberEvidence> {
    let stored = |(at, membership): (usize, &Membership)| {
        let members = membership.members.ids().map(name);
        let members: BTreeMap<MemberId, MemberRecord> = members
            .filter_map(|id| Some((id, records.get(&id)?.clone())))
            .collect();
        let voters = StoredVoters::new(named_sets(&membership.sets), members).ok()?;
        let log_id = op_id(&member.log, at).map(LogId::from);
        Some(StoredMembership::new(log_id, voters))
    };
    let mut memberships = member.memberships();
    let last = memberships.next()?;
    let settled = match last.0 < member.commit as usize {
        true => Some(last),
        false => memberships.next(),
    };
    Some(MemberEvidence {
        member: name(id),
        term: ProductTerm(u64::from(member.term)),
        log_end: last_of(&member.log, member.log.len()),
        committed: last_of(&member.log, member.commit as usize),
        membership: stored(last)?,
        settled: Some(settled.map_or_else(|| Some(StoredMembership::default()), stored)?),
        leader: None,
        doubted_tail: member.doubt.is_some(),
        elects_from: member.told.and_then(last_before),
    })
}

/// Returns whether the survivor is unchanged since the plan was made.
pub(crate) fn is_current(ring: &Ring, planned: &Planned) -> bool {
    let survivor = &ring.members[planned.survivor];
    survivor.is_up() && survivor.end() == planned.end && survivor.term < planned.term
}

/// Makes the survivor adopt a membership in which it is the only voter, as if a leader of the repair's term had sent the membership.
pub(crate) fn carry_out(ring: &mut Ring, planned: &Planned) {
    let survivor = &mut ring.members[planned.survivor];
    let kept = survivor.log.len();
    let imposed = Membership {
        sets: vec![Members::default().with(planned.survivor)],
        members: survivor.ring(),
        wording: 0,
    };
    survivor.log.push(Entry {
        term: planned.term,
        content: Content::Membership(imposed),
    });
    Rules::follow(survivor, planned.term, NO_MEMBER);
    survivor.has_grown();
    survivor.promised = 0;
    let known = |term: &Term| survivor.log.iter().any(|entry| entry.term == *term);
    // If the survivor lacks the result of an earlier repair, this repair abandons that result.
    let knows_all = ring.repairs.iter().all(known);
    let shared = common(&survivor.log[..kept], &ring.committed);
    if shared < ring.committed.len() {
        ring.lost |= !planned.loss && knows_all;
        ring.committed.truncate(shared);
    }
    ring.repairs.push(planned.term);
}

/// Returns whether the member's log has the latest repair, so that the member can report it to others.
pub(crate) fn knows_the_latest(ring: &Ring, member: &Member) -> bool {
    let latest = ring.repairs.last();
    latest.is_some_and(|latest| member.log.iter().any(|entry| entry.term == *latest))
}

/// Returns the answer of the member `own` to a rejoining member's summary of its log, `theirs`.
fn agreement(theirs: &Recollection, own: &Member) -> Agreement {
    Agreement {
        common: common_entry(&theirs.runs, |index| op_id(&own.log, index as usize)),
        last: last_of(&own.log, own.log.len()),
        committed: last_of(&own.log, own.commit as usize),
        purged: None,
        remembered: None,
    }
}

/// Starts a member that asks `other` before it takes part.
pub(crate) fn come_back(rules: Rules, member: &mut Member, other: &Member) {
    let own = recollection(member);
    let answer = agreement(&own, other);
    member.role = Role::Follower;
    member.told = None;
    let mut told = true;
    if let Rejoin::CutBack { to, .. } = judge(&own, [answer.clone()]) {
        member.log.truncate(to.map_or(0, |to| end_at(to).1));
        member.commit = member.commit.min(member.log.len() as Count);
        told = !rules.lacks(Broken::ForgetAtTheCut);
    }
    let needed = ahead(&recollection(member), [&answer]);
    member.told = needed.map(end_at).filter(|_| told);
}

/// Returns the doubt of a member that starts without the last entry of its log.
pub(crate) fn in_doubt(term: Term) -> Doubt {
    let doubt = DoubtedTail::of_term(u64::from(term));
    let from = doubt.settled_from();
    Doubt {
        term,
        needed: (from.term as Term, 0),
    }
}

/// Returns the members that a member in doubt about the end of its log asks for the ends of their logs.
pub(crate) fn all_to_ask(rules: Rules, ring: &Ring, id: Id) -> Members {
    let member = &ring.members[id];
    let others = member.ring().without(id);
    let votes = |other: &Id| member.voters().iter().any(|set| set.has(*other));
    let voters: Members = others.ids().filter(votes).collect();
    let mut look_on = others.ids().filter(|other| !votes(other));
    let looks_on = |other: Id| ring.members[other].leads().is_none();
    let is_sound = |other: Id| ring.members[other].doubt.is_none();
    let is_needed = !rules.is_quorum(member.voters(), Members::default().with(id));
    let left_out = rules.lacks(Broken::LeaveOutWhoHasNoVote)
        || rules.lacks(Broken::LeaveOutWhoLooksOn)
            && look_on.all(looks_on)
            && voters.ids().all(is_sound)
            && is_needed;
    if left_out { voters } else { others }
}

/// Gives a member in doubt the ends of the logs of `others`. `everybody`: `others` counts as all other members of the ring.
pub(crate) fn ask_for_ends(ring: &mut Ring, id: Id, others: Members, everybody: bool) {
    let Some(doubt) = ring.members[id].doubt else {
        return;
    };
    let end = |other: Id| {
        let member = &ring.members[other];
        let leads = member.leads().map(|_| ProductTerm(member.term.into()));
        let last = last_of(&member.log, member.log.len());
        (
            name(other),
            LogEnd {
                last,
                leads,
                membership: None,
            },
        )
    };
    let answers: BTreeMap<MemberId, LogEnd> = others.ids().map(end).collect();
    let members: BTreeSet<MemberId> = match everybody {
        true => named(others.with(id)),
        false => named(ring.members[id].ring()),
    };
    let tail = DoubtedTail::of_term(u64::from(doubt.term));
    let member = &mut ring.members[id];
    if let Some(end) = enough(&tail, name(id), &members, None, &answers) {
        let needed = doubt.needed.min(end_at(end));
        member.doubt = Some(Doubt { needed, ..doubt });
        member.has_grown();
    }
}
