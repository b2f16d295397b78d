//! Lists the possible steps in each state of a ring within a scope, for the model checker `stateright`.

use std::collections::BTreeMap;
use std::ops::Range;

use consensus::quorum::{VoterSets, next_step};
use raft_types::{MemberId, MemberRecord};
use stateright::{Model, Property};

use crate::naming::{name, named_sets, region, unnamed_sets};
use crate::properties;
use crate::repair;
use crate::ring::{
    Content, Entry, Id, Leader, Member, Members, Membership, Ring, Role, Spent, count,
};
use crate::rules::Rules;
use crate::scope::{Broken, Scope};
use crate::step::Step;

/// The model of a ring within a scope, as the model checker explores it.
#[derive(Clone, Debug)]
pub struct RingModel {
    scope: Scope,
    rules: Rules,
    records: BTreeMap<MemberId, MemberRecord>,
}

impl RingModel {
    /// Returns the model of a ring within `scope`.
    pub fn of(scope: Scope) -> Self {
        let regions = scope.regions.iter().enumerate();
        let all = regions.flat_map(|(at, members)| (0..*members).map(move |_| region(at)));
        let record = |region| MemberRecord {
            region,
            votes: true,
            ..MemberRecord::default()
        };
        let records = all.enumerate();
        Self {
            records: records
                .map(|(id, region)| (name(id), record(region)))
                .collect(),
            rules: Rules {
                broken: scope.broken,
            },
            scope,
        }
    }

    fn ids(&self) -> Range<Id> {
        0..self.records.len()
    }

    /// Returns the members of the bootstrap.
    pub(crate) fn first_members(&self) -> Members {
        (0..self.records.len() - self.scope.spares).collect()
    }

    /// Returns the voter sets that the rules require for `members` while the leader is in region `home`.
    fn wanted(&self, members: Members, home: usize) -> Option<VoterSets> {
        let members = self
            .records
            .iter()
            .filter(|(id, _)| members.has(id.0 as Id));
        let members = members.map(|(id, record)| (*id, record.clone())).collect();
        self.scope.rules.voter_sets(&members, &region(home)).ok()
    }

    /// Returns the voter sets of the next quorum step, as the product's planner computes them.
    fn next_sets(&self, leader: Id, member: &Member, home: usize) -> Option<Vec<Members>> {
        let now = named_sets(member.voters());
        let wanted = self.wanted(member.ring(), home)?;
        let with_leader = now.iter().position(|set| set.contains(&name(leader)));
        let next = match self.rules.lacks(Broken::NoJointStep) {
            true => (now != wanted).then_some(wanted)?,
            false => next_step(&now, &wanted, with_leader.unwrap_or(0))?,
        };
        Some(unnamed_sets(&next))
    }

    /// Returns whether clients may rely on a leader: a quorum has answered it within the lease, and it may serve.
    pub(crate) fn serves(&self, id: Id, member: &Member) -> bool {
        let Some(leader) = member.leads() else {
            return false;
        };
        let fresh = self
            .ids()
            .filter(|other| *other == id || leader.contact[*other] < self.scope.lease);
        self.scope.lease > 0
            && self.rules.is_quorum(member.voters(), fresh.collect())
            && self.rules.may_serve(id, member)
    }

    fn campaigns(&self, ring: &Ring, id: Id) -> bool {
        let member = &ring.members[id];
        // In openraft, a sole voter may elect itself even while it has promised a leader not to vote.
        let alone = matches!(member.voters(), [only] if only.len() == 1 && only.has(id));
        let repairs = ring.repairs.iter().filter(|repair| **repair <= member.term);
        let last = match repairs.max() {
            Some(repair) => repair + self.scope.terms_after_a_repair - 1,
            None => self.scope.terms,
        };
        member.term < last && self.rules.may_campaign(member) && (member.promised == 0 || alone)
    }

    fn votes(&self, ring: &Ring, by: Id, candidate: Id) -> bool {
        let (voter, asks) = (&ring.members[by], &ring.members[candidate]);
        let Role::Candidate { votes } = &asks.role else {
            return false;
        };
        by != candidate
            && !votes.has(by)
            && asks.ring().has(by)
            && voter.promised == 0
            && self.rules.may_vote(voter, candidate, asks.term, asks.end())
    }

    /// Returns whether member `to` receives and accepts a leader's calls.
    fn hears(&self, ring: &Ring, leader: Id, to: Id) -> bool {
        let (from, other) = (&ring.members[leader], &ring.members[to]);
        from.ring().has(to) && self.rules.may_follow(other, from.term)
    }

    fn append_changes(&self, ring: &Ring, leader: Id, to: Id) -> bool {
        let (from, follower) = (&ring.members[leader], &ring.members[to]);
        let Some(leads) = from.leads() else {
            return false;
        };
        if !self.hears(ring, leader, to) {
            return false;
        }
        let (after, matched) = self.rules.appended((leader, from), (to, follower));
        after != *follower || leads.matched[to] != matched
    }

    /// Returns whether a member may detect that its leader's process has ended.
    fn sees_dead(&self, ring: &Ring, id: Id) -> bool {
        let member = &ring.members[id];
        let leader = member.vote.and_then(|leader| ring.members.get(leader));
        let lives =
            leader.is_some_and(|leader| leader.leads().is_some() && leader.term == member.term);
        let follows = member.is_up() && member.promised > 0 && member.vote != Some(id);
        follows && (!lives || self.rules.lacks(Broken::RefuseForTheLiving))
    }

    fn lead(&self, ring: &mut Ring, id: Id) {
        let members = self.records.len();
        let member = &mut ring.members[id];
        if member.log.len() < self.scope.entries {
            member.log.push(Entry {
                term: member.term,
                content: Content::Blank,
            });
        }
        member.promised = 0;
        member.role = Role::Leader(Leader::elected(members, self.scope.lease));
    }

    fn tick(&self, ring: &mut Ring) {
        let lease = self.scope.lease;
        for member in &mut ring.members {
            member.promised = member.promised.saturating_sub(1);
            if let Role::Leader(leader) = &mut member.role {
                let ages = leader.contact.iter_mut();
                ages.chain(leader.unanswered.iter_mut().flatten())
                    .for_each(|age| *age = (*age + 1).min(lease));
            }
        }
    }

    fn restart(&self, member: &mut Member, loses: bool) {
        member.role = Role::Follower;
        if self.rules.lacks(Broken::SkipTheMetadataSync) {
            member.vote = None;
        }
        if loses {
            member.log.pop();
            member.commit = member.commit.min(count(&member.log));
        }
        member.promised = match self.rules.lacks(Broken::ForgetTheLease) {
            true => 0,
            false => self.scope.lease,
        };
    }

    /// Returns how many entries a member loses if the last entry that is no membership is damaged. `None`: the member could not fetch the
    /// lost entries again.
    fn rotten(ring: &Ring, id: Id) -> Option<usize> {
        let log = &ring.members[id].log;
        let is_membership = |at: usize| Some(log.get(at)?.membership().is_some());
        let last = log.len().checked_sub(1)?;
        let lost = match is_membership(last)? {
            false => 1,
            // A membership that counts as written is never truncated. A leader uses its last membership even before the membership is
            // written.
            true => 2,
        };
        let first = log.len().checked_sub(lost)?;
        let unwritten = ring.members[id].leads().is_some() && ring.committed.len() <= last;
        // No rule can restore an entry of which no other member has a copy.
        let has_it = |other: &Member| other.log.get(first) == log.get(first);
        let copies = ring.members.iter().filter(|other| has_it(other)).count();
        let can = !is_membership(first)? && (lost == 1 || unwritten);
        (can && (copies > 1 || ring.committed.len() <= first)).then_some(lost)
    }

    fn rot(&self, member: &mut Member, entries: usize) {
        for _ in 1..entries {
            member.log.pop();
        }
        self.restart(member, true);
        member.doubt = Some(repair::in_doubt(member.term));
    }

    fn wipe(&self, member: &mut Member) {
        *member = Member::with_log(Vec::new());
        if !self.rules.lacks(Broken::TrustAWipedDisk) {
            member.role = Role::Lost;
        }
    }

    /// Returns the membership with which a leader removes the member `leaving`. `None`: the leader must not remove the member.
    fn removed(&self, leader: Id, member: &Member, leaving: Id) -> Option<Membership> {
        let now = member.membership()?;
        let sets = now.sets.iter().map(|set| set.without(leaving)).collect();
        let fits = leaving != leader
            && now.members.has(leaving)
            && !now
                .sets
                .iter()
                .any(|set| set.len() == 1 && set.has(leaving));
        fits.then(|| Membership {
            sets,
            members: now.members.without(leaving),
            ..now.clone()
        })
    }

    fn added(member: &Member, joins: Id) -> Option<Membership> {
        let now = member.membership()?;
        Some(Membership {
            members: now.members.with(joins),
            ..now.clone()
        })
    }

    fn propose(ring: &mut Ring, leader: Id, content: Content) {
        let member = &mut ring.members[leader];
        let term = member.term;
        member.log.push(Entry { term, content });
    }

    /// Adds the possible steps of a candidate or a leader.
    fn steps_of_one(&self, ring: &Ring, id: Id, steps: &mut Vec<Step>) {
        let member = &ring.members[id];
        let others = || self.ids().filter(move |other| *other != id);
        match &member.role {
            Role::Follower | Role::Down | Role::Lost => {}
            Role::Candidate { votes } => {
                let voters = others().filter(|by| self.votes(ring, *by, id));
                steps.extend(voters.map(|by| Step::Vote { by, candidate: id }));
                if self.rules.is_elected(member, *votes) {
                    steps.push(Step::Lead(id));
                }
            }
            Role::Leader(leader) => {
                let lagging = others().filter(|to| self.append_changes(ring, id, *to));
                for to in lagging {
                    steps.push(Step::Append { leader: id, to });
                    if self.rules.lacks(Broken::ProxyIgnoresTheTerm) {
                        let proxies = others().filter(|proxy| *proxy != to);
                        steps.extend(proxies.map(|proxy| Step::Relay {
                            leader: id,
                            proxy,
                            to,
                        }));
                    }
                }
                let later = others()
                    .filter(|by| ring.members[*by].is_up() && ring.members[*by].term > member.term);
                steps.extend(later.map(|by| Step::Refuse { leader: id, by }));
                if self.rules.agreed(id, member, leader) > member.commit {
                    steps.push(Step::Commit(id));
                }
                if !leader.leaving && leader.overdue.is_none() {
                    self.proposals(ring, id, steps);
                    if ring.spent.transfers < self.scope.transfers {
                        steps.push(Step::Leave(id));
                    }
                }
                if self.scope.lease > 0 {
                    self.heartbeats(ring, (id, leader), steps);
                }
            }
        }
    }

    /// Adds a leader's possible proposals.
    fn proposals(&self, ring: &Ring, leader: Id, steps: &mut Vec<Step>) {
        let (scope, spent) = (&self.scope, &ring.spent);
        let member = &ring.members[leader];
        if member.log.len() >= scope.entries {
            return;
        }
        if spent.writes < scope.writes {
            steps.push(Step::Write(leader));
        }
        let may_change = spent.moves < scope.moves || spent.changes < scope.changes;
        if !may_change || !self.rules.may_change_the_membership(member) {
            return;
        }
        if spent.moves < scope.moves {
            let homes = 0..scope.regions.len();
            let other = homes.filter(|to| self.next_sets(leader, member, *to).is_some());
            steps.extend(other.map(|home| Step::Move { leader, home }));
        }
        if spent.changes < scope.changes {
            let present = member.ring();
            let spares = self.ids().filter(|id| !self.first_members().has(*id));
            let new = spares.filter(|id| !present.has(*id) && ring.members[*id].log.is_empty());
            steps.extend(new.map(|member| Step::Add { leader, member }));
            let leaving = self
                .ids()
                .filter(|id| self.removed(leader, member, *id).is_some());
            steps.extend(leaving.map(|member| Step::Remove { leader, member }));
        }
    }

    fn heartbeats(&self, ring: &Ring, (id, leader): (Id, &Leader), steps: &mut Vec<Step>) {
        for to in self.ids().filter(|other| *other != id) {
            if self.hears(ring, id, to) && !leader.leaving {
                steps.push(Step::Heartbeat { leader: id, to });
            }
            if leader.unanswered[to].is_some() {
                steps.push(Step::Answer {
                    leader: id,
                    from: to,
                });
            }
            let other = &ring.members[to];
            let follows = other.term == ring.members[id].term;
            if leader.leaving && follows && other.promised > 0 {
                steps.push(Step::Release {
                    leader: id,
                    member: to,
                });
            }
        }
    }

    /// Adds the possible restarts, the losses of disks, and the steps of rejoining members.
    fn losses(&self, ring: &Ring, id: Id, steps: &mut Vec<Step>) {
        let (scope, spent) = (&self.scope, &ring.spent);
        let member = &ring.members[id];
        if member.is_up() {
            // After a repair, a starting member asks other members before it takes part. The model covers this only for members that the
            // repair left out.
            if spent.restarts < scope.restarts && ring.repairs.is_empty() {
                let loses = self.rules.lacks(Broken::AcknowledgeBeforeTheDisk);
                let loses = loses && member.log.len() > 1;
                steps.push(Step::Restart { member: id, loses });
            }
            let in_ring = !member.log.is_empty();
            if spent.wipes < scope.wipes && in_ring {
                steps.push(Step::Wipe(id));
            }
            if spent.rots < scope.rots && Self::rotten(ring, id).is_some() {
                steps.push(Step::Rot(id));
            }
            if member.doubt.is_some() {
                let others = self.ids().filter(|other| *other != id);
                let leaders = others.filter(|other| ring.members[*other].leads().is_some());
                steps.extend(leaders.map(|leader| Step::AskLeader { member: id, leader }));
                let all = repair::all_to_ask(self.rules, ring, id);
                if all.ids().all(|other| ring.members[other].is_up()) {
                    steps.push(Step::AskAll(id));
                }
            }
        }
        if member.role == Role::Down && ring.planned.is_none() {
            let others = self.ids().filter(|other| *other != id);
            let asked = others.filter(|other| {
                let other = &ring.members[*other];
                other.is_up() && repair::knows_the_latest(ring, other)
            });
            steps.extend(asked.map(|asked| Step::ComeBack { member: id, asked }));
        }
    }

    /// Adds an operator's possible steps after the loss of a quorum.
    fn repairs(&self, ring: &Ring, steps: &mut Vec<Step>) {
        if let Some(planned) = &ring.planned {
            if repair::is_current(ring, planned) {
                steps.push(Step::CarryOut);
            }
        } else if ring.spent.plans < self.scope.plans {
            let up = self
                .ids()
                .filter(|id| ring.members[*id].is_up() && !ring.members[*id].log.is_empty());
            let up: Members = up.collect();
            steps.extend(up.parts().map(Step::Plan));
        }
    }
}

impl Model for RingModel {
    type State = Ring;
    type Action = Step;

    fn init_states(&self) -> Vec<Ring> {
        let homes = 0..=usize::from(self.scope.begins_joint);
        let first_members = self.first_members();
        let sets: VoterSets = homes
            .filter_map(|home| self.wanted(first_members, home))
            .flatten()
            .collect();
        let first_entry = Entry {
            term: 1,
            content: Content::Membership(Membership {
                sets: unnamed_sets(&sets),
                members: first_members,
                wording: 0,
            }),
        };
        let log = |id| match first_members.has(id) {
            true => vec![first_entry.clone()],
            false => Vec::new(),
        };
        vec![Ring {
            members: self.ids().map(|id| Member::with_log(log(id))).collect(),
            committed: vec![first_entry.clone()],
            contradicted: false,
            lost: false,
            planned: None,
            repairs: Vec::new(),
            spent: Spent::default(),
        }]
    }

    fn actions(&self, ring: &Ring, steps: &mut Vec<Step>) {
        for id in self.ids() {
            if self.campaigns(ring, id) {
                steps.push(Step::Campaign(id));
            }
            self.steps_of_one(ring, id, steps);
            self.losses(ring, id, steps);
            if self.scope.lease > 0 && self.sees_dead(ring, id) {
                steps.push(Step::SeeDead(id));
            }
        }
        self.repairs(ring, steps);
        if self.scope.lease > 0 {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, before: &Ring, step: Step) -> Option<Ring> {
        let mut ring = before.clone();
        match step {
            Step::Campaign(id) => {
                let member = &mut ring.members[id];
                member.term += 1;
                member.vote = Some(id);
                member.role = Role::Candidate {
                    votes: Members::default().with(id),
                };
            }
            Step::Vote { by, candidate } => {
                let term = ring.members[candidate].term;
                Rules::follow(&mut ring.members[by], term, candidate);
                if let Role::Candidate { votes } = &mut ring.members[candidate].role {
                    *votes = votes.with(by);
                }
            }
            Step::Lead(id) => self.lead(&mut ring, id),
            Step::Write(id) => {
                Self::propose(&mut ring, id, Content::Write(0));
                ring.spent.writes += 1;
                let member = &mut ring.members[id];
                let end = count(&member.log);
                if let (true, Role::Leader(leader)) = (
                    self.rules.lacks(Broken::CommitOnAMinority),
                    &mut member.role,
                ) {
                    leader.matched.fill(end);
                }
            }
            Step::Append { leader, to } => self.append(&mut ring, leader, to),
            Step::Relay { leader, proxy, to } => {
                let had = before.members[to].log.len();
                self.append(&mut ring, leader, to);
                let new = ring.members[to].log.len().checked_sub(1)?;
                let relayed = before.members[proxy].log.get(new).filter(|_| new >= had)?;
                ring.members[to].log[new].content = relayed.content.clone();
            }
            Step::Refuse { leader, by } => {
                let (term, vote) = (before.members[by].term, before.members[by].vote);
                let member = &mut ring.members[leader];
                (member.term, member.vote) = (term, vote);
                member.role = Role::Follower;
            }
            Step::Commit(id) => {
                let member = &before.members[id];
                let upto = self.rules.agreed(id, member, member.leads()?);
                ring.members[id].commit = upto;
                ring.take_for_committed(&before.members[id].log[..upto as usize]);
            }
            Step::Move { leader, home } => {
                let member = &before.members[leader];
                let sets = self.next_sets(leader, member, home)?;
                let membership = Membership {
                    sets,
                    ..member.membership()?.clone()
                };
                Self::propose(&mut ring, leader, Content::Membership(membership));
                ring.spent.moves += 1;
            }
            Step::Add { leader, member } => {
                let membership = Self::added(&before.members[leader], member)?;
                Self::propose(&mut ring, leader, Content::Membership(membership));
                ring.spent.changes += 1;
            }
            Step::Remove { leader, member } => {
                let membership = self.removed(leader, &before.members[leader], member)?;
                Self::propose(&mut ring, leader, Content::Membership(membership));
                ring.spent.changes += 1;
            }
            Step::Leave(id) => {
                if let Role::Leader(leader) = &mut ring.members[id].role {
                    leader.leaving = true;
                }
                ring.spent.transfers += 1;
            }
            Step::Release { member, .. } | Step::SeeDead(member) => {
                ring.members[member].promised = 0;
            }
            Step::Heartbeat { leader, to } => {
                let term = before.members[leader].term;
                Rules::follow(&mut ring.members[to], term, leader);
                ring.members[to].promised = self.scope.lease;
                if let Role::Leader(leads) = &mut ring.members[leader].role {
                    leads.unanswered[to] = Some(0);
                }
            }
            Step::Answer { leader, from } => {
                let late = self.rules.lacks(Broken::ContactIsAsOldAsTheAnswer);
                if let Role::Leader(leads) = &mut ring.members[leader].role {
                    let sent = leads.unanswered[from].take()?;
                    let age = if late { 0 } else { sent };
                    leads.contact[from] = leads.contact[from].min(age);
                }
            }
            Step::Tick => self.tick(&mut ring),
            Step::Restart { member, loses } => {
                self.restart(&mut ring.members[member], loses);
                ring.spent.restarts += 1;
            }
            Step::Wipe(id) => {
                self.wipe(&mut ring.members[id]);
                ring.spent.wipes += 1;
            }
            Step::Rot(id) => {
                let entries = Self::rotten(before, id)?;
                self.rot(&mut ring.members[id], entries);
                ring.spent.rots += 1;
            }
            Step::AskLeader { member, leader } => {
                let one = Members::default().with(leader);
                repair::ask_for_ends(&mut ring, member, one, false);
            }
            Step::AskAll(id) => {
                let all = repair::all_to_ask(self.rules, before, id);
                repair::ask_for_ends(&mut ring, id, all, true);
            }
            Step::Plan(answering) => {
                let planned = repair::plan(self.rules, before, &self.records, answering)?;
                let silent = self.ids().filter(|id| !answering.has(*id));
                for id in silent.filter(|id| before.members[*id].is_up()) {
                    ring.members[id].role = Role::Down;
                }
                // A plan is refused while a leader serves. A leader that does not serve appends nothing until a quorum has answered it.
                for id in answering.ids() {
                    if let Role::Leader(leader) = &mut ring.members[id].role {
                        leader.overdue = Some(Members::default());
                    }
                }
                ring.planned = Some(planned);
                ring.spent.plans += 1;
            }
            Step::CarryOut => {
                let planned = ring.planned.take()?;
                repair::carry_out(&mut ring, &planned);
            }
            Step::ComeBack { member, asked } => {
                let asked = &before.members[asked];
                repair::come_back(self.rules, &mut ring.members[member], asked);
            }
        }
        (ring != *before).then_some(ring)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(&self.scope)
    }
}

impl RingModel {
    fn append(&self, ring: &mut Ring, leader: Id, to: Id) {
        let (from, follower) = (&ring.members[leader], &ring.members[to]);
        let (after, matched) = self.rules.appended((leader, from), (to, follower));
        ring.members[to] = after;
        let from = &mut ring.members[leader];
        let sets = from.voters().to_vec();
        if let Role::Leader(leads) = &mut from.role {
            leads.matched[to] = matched;
            let answered = leads.overdue.map(|answered| answered.with(to));
            leads.overdue = answered.filter(|some| !self.rules.is_quorum(&sets, some.with(leader)));
        }
    }
}
