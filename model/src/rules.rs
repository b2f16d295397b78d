//! What may happen in a ring, and what it does.

use std::collections::{BTreeMap, BTreeSet};

use consensus::quorum::{VoterSets, majority_of, next_step};
use raft_types::{MemberId, MemberRecord, Region};
use stateright::{Model, Property};

use crate::ring::{Content, Entry, Id, Leader, Member, Members, Ring, Role, Spent, Term};
use crate::scope::{Broken, Scope};

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// A member asks for votes in a new term.
    Campaign(Id),
    /// A voter gives its vote, and the candidate hears of it.
    Vote {
        /// Who votes.
        by: Id,
        /// For whom.
        candidate: Id,
    },
    /// A candidate with enough votes leads.
    Lead(Id),
    /// A leader appends a client's transaction.
    Write(Id),
    /// A follower cuts what is not the leader's, takes the next entry, and the leader hears of it.
    Append {
        /// Whose entry it is.
        leader: Id,
        /// Who takes it.
        to: Id,
    },
    /// A member refuses a leader's call because it knows of a later term, and the leader follows.
    Refuse {
        /// Who led.
        leader: Id,
        /// Who refuses.
        by: Id,
    },
    /// A leader finds that more of its log is committed.
    Commit(Id),
    /// A leader takes the next step of the quorum towards a region.
    Move {
        /// Who leads.
        leader: Id,
        /// The region, by its place.
        home: usize,
    },
    /// A leader begins to give the leadership away.
    Leave(Id),
    /// A member hears from such a leader that it need not keep its promise.
    Release {
        /// Who leaves.
        leader: Id,
        /// Who is released.
        member: Id,
    },
    /// A heartbeat arrives.
    Heartbeat {
        /// Whose it is.
        leader: Id,
        /// Where it arrives.
        to: Id,
    },
    /// The answer to the last heartbeat arrives.
    Answer {
        /// Where it arrives.
        leader: Id,
        /// Whose it is.
        from: Id,
    },
    /// Time passes.
    Tick,
    /// A member is killed and started again. What it had not synced is lost: nothing, unless a rule is broken.
    Restart {
        /// Who.
        member: Id,
        /// Whether its last entry is lost.
        loses: bool,
    },
}

/// A ring within a scope.
#[derive(Clone, Debug)]
pub struct RingModel {
    scope: Scope,
    records: BTreeMap<MemberId, MemberRecord>,
}

impl RingModel {
    /// The ring of a scope.
    #[must_use]
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
            scope,
        }
    }

    fn ids(&self) -> std::ops::Range<Id> {
        0..self.records.len()
    }

    fn is_broken(&self, rule: Broken) -> bool {
        self.scope.broken == Some(rule)
    }

    /// The voter sets that the rules want where the leader is in a region.
    fn wanted(&self, home: usize) -> Option<VoterSets> {
        self.scope
            .rules
            .voter_sets(&self.records, &region(home))
            .ok()
    }

    /// What the product's planner would have as the next voter sets.
    fn next_sets(&self, leader: Id, member: &Member, home: usize) -> Option<Vec<Members>> {
        let now: VoterSets = member.voters().iter().copied().map(named).collect();
        let wanted = self.wanted(home)?;
        let with_leader = now.iter().position(|set| set.contains(&name(leader)));
        let next = match self.is_broken(Broken::NoJointStep) {
            true => (now != wanted).then_some(wanted)?,
            false => next_step(&now, &wanted, with_leader.unwrap_or(0))?,
        };
        Some(next.iter().map(unnamed).collect())
    }

    /// Whether it has a majority of each set.
    fn is_quorum(sets: &[Members], have: Members) -> bool {
        sets.iter()
            .all(|set| set.and(have).len() >= majority_of(set.len()))
    }

    /// How much of a leader's log a quorum has.
    fn agreed(&self, id: Id, member: &Member, leader: &Leader) -> u8 {
        let has = |index: u8| -> Members {
            let others = self.ids().filter(|other| *other != id);
            let others = others.filter(|other| leader.matched[*other] >= index);
            others.chain([id]).collect()
        };
        let own_term = |index: &u8| {
            self.is_broken(Broken::CommitAnEarlierTerm)
                || member.log[usize::from(*index) - 1].term == member.term
        };
        let end = u8::try_from(member.log.len()).unwrap_or(u8::MAX);
        let agreed = (member.commit + 1..=end)
            .rev()
            .filter(own_term)
            .find(|index| Self::is_quorum(member.voters(), has(*index)));
        agreed.unwrap_or(member.commit)
    }

    fn own_entry_is_committed(member: &Member) -> bool {
        let last = usize::from(member.commit).checked_sub(1);
        last.is_some_and(|last| member.log[last].term == member.term)
    }

    /// Whether the leader's last step of the quorum, and an entry of its own term, are committed.
    fn may_take_a_step(&self, member: &Member) -> bool {
        let is_step = |entry: &Entry| matches!(entry.content, Content::Voters(_));
        let last = member.log.iter().rposition(is_step);
        let last_is_committed = last.is_none_or(|last| last < usize::from(member.commit));
        (last_is_committed || self.is_broken(Broken::StepBeforeTheLastIsCommitted))
            && (Self::own_entry_is_committed(member)
                || self.is_broken(Broken::NarrowWithoutTheBarrier))
    }

    /// Whether clients may rely on a leader: what `lease::leadership::assess` says.
    fn serves(&self, id: Id, member: &Member) -> bool {
        let Some(leader) = member.leads() else {
            return false;
        };
        let fresh = self
            .ids()
            .filter(|other| *other == id || leader.contact[*other] < self.scope.lease);
        let leaving = leader.leaving && !self.is_broken(Broken::ServeThroughATransfer);
        let own_entry =
            Self::own_entry_is_committed(member) || self.is_broken(Broken::ServeBeforeTheOwnEntry);
        let another_alone =
            Self::another_alone(id, member) && !self.is_broken(Broken::ServeBesideALoneVoter);
        self.scope.lease > 0
            && Self::is_quorum(member.voters(), fresh.collect())
            && own_entry
            && !leaving
            && !another_alone
    }

    /// Whether another member is a quorum by itself, or was before a step that is not committed.
    fn another_alone(id: Id, member: &Member) -> bool {
        let mut steps = Vec::new();
        for (at, entry) in member.log.iter().enumerate() {
            if let Content::Voters(sets) = &entry.content {
                if at < usize::from(member.commit) {
                    steps.clear();
                }
                steps.push(sets.as_slice());
            }
        }
        steps
            .iter()
            .any(|sets| matches!(sets, [only] if only.len() == 1 && !only.has(id)))
    }

    fn campaigns(&self, ring: &Ring, id: Id) -> bool {
        let member = &ring.members[id];
        let sets = member.voters();
        // The engine lets a lone voter elect itself, whatever it has promised.
        let alone = matches!(sets, [only] if only.len() == 1 && only.has(id));
        member.term < self.scope.terms
            && member.leads().is_none()
            && sets.iter().any(|set| set.has(id))
            && (member.promised == 0 || alone)
    }

    fn votes(&self, ring: &Ring, by: Id, candidate: Id) -> bool {
        let (voter, asks) = (&ring.members[by], &ring.members[candidate]);
        let Role::Candidate { votes } = &asks.role else {
            return false;
        };
        let free = voter.term < asks.term
            || voter.term == asks.term && voter.vote.is_none_or(|to| to == candidate);
        let has_all = asks.end() >= voter.end() || self.is_broken(Broken::VoteWithoutTheLogCheck);
        by != candidate && !votes.has(by) && free && has_all && voter.promised == 0
    }

    /// Up to where two logs are the same.
    fn common(one: &[Entry], other: &[Entry]) -> usize {
        let pairs = one.iter().zip(other);
        pairs.take_while(|(one, other)| one == other).count()
    }

    /// What a follower becomes with the leader's next entry, and how much of its log is the leader's then.
    fn appended(leader: Id, from: &Member, follower: &Member) -> (Member, u8) {
        let mut after = follower.clone();
        let common = Self::common(&from.log, &follower.log);
        if let Some(next) = from.log.get(common) {
            after.log.truncate(common);
            after.log.push(next.clone());
        }
        let matched = from.log.len().min(common + 1);
        let matched = u8::try_from(matched).unwrap_or(u8::MAX);
        after.commit = after.commit.max(from.commit.min(matched));
        Self::follow(&mut after, from.term, leader);
        (after, matched)
    }

    /// Whether another member takes a leader's call.
    fn hears(ring: &Ring, leader: Id, to: Id) -> bool {
        ring.members[to].term <= ring.members[leader].term
    }

    fn append_changes(ring: &Ring, leader: Id, to: Id) -> bool {
        let (from, follower) = (&ring.members[leader], &ring.members[to]);
        let Some(leads) = from.leads() else {
            return false;
        };
        let (after, matched) = Self::appended(leader, from, follower);
        Self::hears(ring, leader, to) && (after != *follower || leads.matched[to] != matched)
    }

    /// It follows that leader from now on.
    fn follow(member: &mut Member, term: Term, leader: Id) {
        member.term = member.term.max(term);
        member.vote = Some(leader);
        member.role = Role::Follower;
    }

    fn lead(&self, ring: &mut Ring, id: Id) {
        let lease = self.scope.lease;
        let others = self.records.len();
        let member = &mut ring.members[id];
        if member.log.len() < self.scope.entries {
            member.log.push(Entry {
                term: member.term,
                content: Content::Blank,
            });
        }
        member.promised = 0;
        member.role = Role::Leader(Leader {
            matched: vec![0; others],
            contact: vec![lease; others],
            unanswered: vec![None; others],
            leaving: false,
        });
    }

    fn commit(ring: &mut Ring, id: Id, upto: u8) {
        let member = &mut ring.members[id];
        member.commit = upto;
        let taken = &member.log[..usize::from(upto)];
        let known = taken.len().min(ring.committed.len());
        if taken[..known] != ring.committed[..known] {
            ring.contradicted = true;
        }
        if taken.len() > ring.committed.len() {
            ring.committed = taken.to_vec();
        }
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
        if self.is_broken(Broken::SkipTheMetadataSync) {
            member.vote = None;
        }
        if loses {
            member.log.pop();
        }
        member.promised = match self.is_broken(Broken::ForgetTheLease) {
            true => 0,
            false => self.scope.lease,
        };
    }
}

impl Model for RingModel {
    type State = Ring;
    type Action = Step;

    fn init_states(&self) -> Vec<Ring> {
        let homes = 0..=usize::from(self.scope.begins_joint);
        let sets: VoterSets = homes
            .filter_map(|home| self.wanted(home))
            .flatten()
            .collect();
        let founding = Entry {
            term: 1,
            content: Content::Voters(sets.iter().map(unnamed).collect()),
        };
        let member = Member {
            term: 1,
            vote: None,
            log: vec![founding.clone()],
            commit: 1,
            role: Role::Follower,
            promised: 0,
        };
        vec![Ring {
            members: vec![member; self.records.len()],
            committed: vec![founding],
            contradicted: false,
            spent: Spent::default(),
        }]
    }

    fn actions(&self, ring: &Ring, steps: &mut Vec<Step>) {
        let scope = &self.scope;
        let loses = self.is_broken(Broken::AcknowledgeBeforeTheDisk);
        for id in self.ids() {
            let member = &ring.members[id];
            if self.campaigns(ring, id) {
                steps.push(Step::Campaign(id));
            }
            let others = || self.ids().filter(move |other| *other != id);
            match &member.role {
                Role::Follower => {}
                Role::Candidate { votes } => {
                    let voters = others().filter(|by| self.votes(ring, *by, id));
                    steps.extend(voters.map(|by| Step::Vote { by, candidate: id }));
                    if Self::is_quorum(member.voters(), *votes) {
                        steps.push(Step::Lead(id));
                    }
                }
                Role::Leader(leader) => {
                    let room = member.log.len() < scope.entries;
                    if room && ring.spent.writes < scope.writes && !leader.leaving {
                        steps.push(Step::Write(id));
                    }
                    let behind = others().filter(|to| Self::append_changes(ring, id, *to));
                    steps.extend(behind.map(|to| Step::Append { leader: id, to }));
                    let later = others().filter(|by| ring.members[*by].term > member.term);
                    steps.extend(later.map(|by| Step::Refuse { leader: id, by }));
                    if self.agreed(id, member, leader) > member.commit {
                        steps.push(Step::Commit(id));
                    }
                    if room
                        && ring.spent.moves < scope.moves
                        && !leader.leaving
                        && self.may_take_a_step(member)
                    {
                        let homes = 0..scope.regions.len();
                        let other = homes.filter(|to| self.next_sets(id, member, *to).is_some());
                        steps.extend(other.map(|home| Step::Move { leader: id, home }));
                    }
                    if ring.spent.transfers < scope.transfers && !leader.leaving {
                        steps.push(Step::Leave(id));
                    }
                    if scope.lease == 0 {
                        continue;
                    }
                    for to in others() {
                        if Self::hears(ring, id, to) && !leader.leaving {
                            steps.push(Step::Heartbeat { leader: id, to });
                        }
                        if leader.unanswered[to].is_some() {
                            steps.push(Step::Answer {
                                leader: id,
                                from: to,
                            });
                        }
                        let other = &ring.members[to];
                        if leader.leaving && other.term == member.term && other.promised > 0 {
                            steps.push(Step::Release {
                                leader: id,
                                member: to,
                            });
                        }
                    }
                }
            }
            if ring.spent.restarts < scope.restarts {
                steps.push(Step::Restart {
                    member: id,
                    loses: loses && member.log.len() > 1,
                });
            }
        }
        if scope.lease > 0 {
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
                let voter = &mut ring.members[by];
                voter.term = term;
                voter.vote = Some(candidate);
                voter.role = Role::Follower;
                if let Role::Candidate { votes } = &mut ring.members[candidate].role {
                    *votes = votes.with(by);
                }
            }
            Step::Lead(id) => self.lead(&mut ring, id),
            Step::Write(id) => {
                let member = &mut ring.members[id];
                member.log.push(Entry {
                    term: member.term,
                    content: Content::Write,
                });
                ring.spent.writes += 1;
                if self.is_broken(Broken::CommitOnAMinority) {
                    let end = u8::try_from(member.log.len()).unwrap_or(u8::MAX);
                    if let Role::Leader(leader) = &mut member.role {
                        leader.matched.fill(end);
                    }
                }
            }
            Step::Append { leader, to } => {
                let (from, follower) = (&before.members[leader], &before.members[to]);
                let (after, matched) = Self::appended(leader, from, follower);
                ring.members[to] = after;
                if let Role::Leader(leads) = &mut ring.members[leader].role {
                    leads.matched[to] = matched;
                }
            }
            Step::Refuse { leader, by } => {
                let (term, vote) = (before.members[by].term, before.members[by].vote);
                let member = &mut ring.members[leader];
                (member.term, member.vote) = (term, vote);
                member.role = Role::Follower;
            }
            Step::Commit(id) => {
                let member = &before.members[id];
                let upto = self.agreed(id, member, member.leads()?);
                Self::commit(&mut ring, id, upto);
            }
            Step::Move { leader, home } => {
                let member = &before.members[leader];
                let sets = self.next_sets(leader, member, home)?;
                ring.members[leader].log.push(Entry {
                    term: member.term,
                    content: Content::Voters(sets),
                });
                ring.spent.moves += 1;
            }
            Step::Leave(id) => {
                if let Role::Leader(leader) = &mut ring.members[id].role {
                    leader.leaving = true;
                }
                ring.spent.transfers += 1;
            }
            Step::Release { member, .. } => ring.members[member].promised = 0,
            Step::Heartbeat { leader, to } => {
                let term = before.members[leader].term;
                Self::follow(&mut ring.members[to], term, leader);
                ring.members[to].promised = self.scope.lease;
                if let Role::Leader(leads) = &mut ring.members[leader].role {
                    leads.unanswered[to] = Some(0);
                }
            }
            Step::Answer { leader, from } => {
                let late = self.is_broken(Broken::ContactIsAsOldAsTheAnswer);
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
        }
        (ring != *before).then_some(ring)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one leader per term", |_, ring: &Ring| {
                let mut terms = BTreeSet::new();
                let mut leaders = ring.members.iter().filter(|one| one.leads().is_some());
                leaders.all(|leader| terms.insert(leader.term))
            }),
            Property::always("a committed entry never changes", |_, ring: &Ring| {
                !ring.contradicted
            }),
            Property::always("who leads has all that is committed", |_, ring: &Ring| {
                // Whoever is behind the latest leader may lead by itself for a while; what it says is of no use to anybody.
                let leaders = ring.members.iter().filter(|one| one.leads().is_some());
                let latest = leaders.max_by_key(|leader| leader.term);
                let shared = |leader: &Member| Self::common(&leader.log, &ring.committed);
                let made = ring.committed.last().map_or(0, |entry| entry.term);
                latest.is_none_or(|leader| {
                    leader.term < made || shared(leader) == ring.committed.len()
                })
            }),
            Property::always("logs match", |_, ring: &Ring| {
                let logs = || ring.members.iter().map(|member| &member.log);
                logs().all(|one| {
                    logs().all(|other| {
                        let common = Self::common(one, other);
                        let mut behind = one.iter().zip(other).skip(common);
                        behind.all(|(one, other)| one.term != other.term)
                    })
                })
            }),
            Property::always("nothing stale is served", |model, ring: &Ring| {
                let mut serving = (model.ids())
                    .map(|id| (id, &ring.members[id]))
                    .filter(|(id, member)| model.serves(*id, member));
                serving.all(|(_, member)| usize::from(member.commit) >= ring.committed.len())
            }),
            Property::sometimes("a later leader commits", |_, ring: &Ring| {
                ring.committed.last().is_some_and(|entry| entry.term > 2)
            }),
            Property::sometimes("somebody serves", |model, ring: &Ring| {
                let mut members = model.ids().map(|id| (id, &ring.members[id]));
                model.scope.lease == 0 || members.any(|(id, member)| model.serves(id, member))
            }),
        ]
    }
}

fn region(place: usize) -> Region {
    Region(format!("region-{place}"))
}

fn name(id: Id) -> MemberId {
    MemberId(id as u64)
}

fn named(set: Members) -> BTreeSet<MemberId> {
    set.ids().map(name).collect()
}

fn unnamed(set: &BTreeSet<MemberId>) -> Members {
    set.iter().map(|id| id.0 as Id).collect()
}
