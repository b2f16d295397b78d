//! A state of the ring.

use std::fmt;

use ring_admin::RepairPlan;

/// A member's index. Members are numbered through the scope's regions.
pub type Id = usize;
/// A Raft term.
pub type Term = u32;
/// A number of entries, counted from the beginning of a log.
pub type Count = u32;
/// The end of a log, as elections compare it: the last entry's term, and the number of entries.
pub type End = (Term, usize);

/// The author of a membership that no leader proposed: the bootstrap or a repair. No member has this id.
pub(crate) const NO_MEMBER: Id = Id::MAX;

/// A set of members, with one bit for each.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Members(u32);

impl Members {
    const MOST: usize = 32;

    pub(crate) fn with(self, id: Id) -> Self {
        Self(self.0 | 1 << id)
    }

    pub(crate) fn without(self, id: Id) -> Self {
        Self(self.0 & !(1 << id))
    }

    pub(crate) fn has(self, id: Id) -> bool {
        id < Self::MOST && self.0 & 1 << id != 0
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn ids(self) -> impl Iterator<Item = Id> {
        (0..Self::MOST).filter(move |id| self.has(*id))
    }

    /// All subsets of this set.
    pub(crate) fn parts(self) -> impl Iterator<Item = Self> {
        (1..=self.0)
            .map(Self)
            .filter(move |part| part.and(self) == *part)
    }
}

impl FromIterator<Id> for Members {
    fn from_iter<T: IntoIterator<Item = Id>>(ids: T) -> Self {
        ids.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.ids()).finish()
    }
}

/// An entry's content.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// A leader's first entry.
    Blank,
    /// A client's write, with the digest of its bytes; 0 in the exploration.
    Write(u64),
    /// The members and voter sets in force from this entry on.
    Membership(Membership),
}

/// The members and the voters of a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Membership {
    /// The voter sets; a majority of each is needed.
    pub sets: Vec<Members>,
    /// All members, including those without a vote.
    pub members: Members,
    /// The digest of the membership's bytes. Members with different code may encode one membership differently.
    pub wording: u64,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The term of the leader that appended the entry.
    pub term: Term,
    /// The entry's content.
    pub content: Content,
}

impl Entry {
    /// Returns the membership, if the entry is a membership.
    pub(crate) fn membership(&self) -> Option<&Membership> {
        match &self.content {
            Content::Membership(membership) => Some(membership),
            _ => None,
        }
    }
}

/// A member's role.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The member follows a leader or waits for one.
    Follower,
    /// The member requests votes.
    Candidate {
        /// The members that voted for this candidate.
        votes: Members,
    },
    /// The member leads.
    Leader(Leader),
    /// The member does not run. After its start it asks the other members before it takes part.
    Down,
    /// The member's disk is lost. The member never takes part again under this id.
    Lost,
}

/// A leader's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    /// The last entry that each member has acknowledged.
    pub(crate) matched: Vec<Count>,
    /// For each member, the time since the leader sent the last heartbeat that the member answered; at most the lease. Without any answer,
    /// the lease.
    pub(crate) contact: Vec<u8>,
    /// For each member, the time since the leader sent the last heartbeat that has arrived and is not answered yet.
    pub(crate) unanswered: Vec<Option<u8>>,
    /// The leader is transferring the leadership, and no longer serves in this term.
    pub(crate) leaving: bool,
    /// Set after the leader's lease has expired: the members that have answered since. Until they are a quorum, the leader accepts no
    /// entries.
    pub(crate) overdue: Option<Members>,
}

impl Leader {
    /// The state of a newly elected member.
    pub(crate) fn elected(members: usize, lease: u8) -> Self {
        Self {
            matched: vec![0; members],
            contact: vec![lease; members],
            unanswered: vec![None; members],
            leaving: false,
            overdue: None,
        }
    }
}

/// The state of a member whose log lost its last entry, which the member may have acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Doubt {
    /// The term of the stored vote when the entry was lost.
    pub(crate) term: Term,
    /// A log that reaches this end has all entries that may be lost.
    pub(crate) needed: End,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Its current term.
    pub term: Term,
    /// Its vote in that term.
    pub vote: Option<Id>,
    /// Its log since the bootstrap.
    pub log: Vec<Entry>,
    /// Its commit index.
    pub commit: Count,
    /// Its role.
    pub role: Role,
    /// The remaining time for which the member has promised a leader to vote for no candidate.
    pub promised: u8,
    /// The end of a committed log, reported by another member, that the member's own log does not reach.
    pub told: Option<End>,
    /// The doubt about the end of the member's log, if any.
    pub doubt: Option<Doubt>,
}

impl Member {
    /// A member with this log, all entries of which are committed.
    pub(crate) fn with_log(log: Vec<Entry>) -> Self {
        Self {
            term: log.last().map_or(0, |last| last.term),
            vote: None,
            commit: count(&log),
            log,
            role: Role::Follower,
            promised: 0,
            told: None,
            doubt: None,
        }
    }

    /// Returns the memberships in the log, newest first, with their indexes: the membership in force, then the previous ones.
    pub(crate) fn memberships(&self) -> impl Iterator<Item = (usize, &Membership)> {
        let entries = self.log.iter().enumerate().rev();
        entries.filter_map(|(at, entry)| Some((at, entry.membership()?)))
    }

    /// The membership in force by its log.
    pub(crate) fn membership(&self) -> Option<&Membership> {
        self.memberships().next().map(|(_, membership)| membership)
    }

    /// The voter sets in force by its log.
    pub(crate) fn voters(&self) -> &[Members] {
        self.membership().map_or(&[], |membership| &membership.sets)
    }

    /// The members of the ring by its log.
    pub(crate) fn ring(&self) -> Members {
        self.membership()
            .map(|membership| membership.members)
            .unwrap_or_default()
    }

    /// Returns the leader's state, if the member leads.
    pub(crate) fn leads(&self) -> Option<&Leader> {
        match &self.role {
            Role::Leader(leader) => Some(leader),
            _ => None,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        !matches!(self.role, Role::Down | Role::Lost)
    }

    /// Returns the end of the log, as elections compare it.
    pub(crate) fn end(&self) -> End {
        (
            self.log.last().map_or(0, |entry| entry.term),
            self.log.len(),
        )
    }

    /// Ends the doubt, and forgets the reported end, if the log now has the entries that it lacked.
    pub(crate) fn has_grown(&mut self) {
        let end = self.end();
        self.told = self.told.filter(|told| end < *told);
        self.doubt = self.doubt.filter(|doubt| end < doubt.needed);
    }
}

/// The number of entries.
pub(crate) fn count(log: &[Entry]) -> Count {
    Count::try_from(log.len()).unwrap_or(Count::MAX)
}

/// The length of the common prefix of two logs, compared by term and index as members do.
pub(crate) fn common(one: &[Entry], other: &[Entry]) -> usize {
    let pairs = one.iter().zip(other);
    pairs
        .take_while(|(one, other)| one.term == other.term)
        .count()
}

/// An operator's order to repair a lost quorum.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Planned {
    /// The surviving member.
    pub(crate) survivor: Id,
    /// The end of its log.
    pub(crate) end: End,
    /// The term of the repair.
    pub(crate) term: Term,
    /// True if the operator accepted that acknowledged entries after `end` may be lost.
    pub(crate) loss: bool,
}

impl Planned {
    /// Returns a plan to be carried out in this term.
    pub(crate) fn of(plan: &RepairPlan, end: End, term: Term) -> Self {
        Self {
            survivor: plan.survivor.0 as Id,
            end,
            term,
            loss: plan.loss.is_some(),
        }
    }
}

/// A state of the ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ring {
    /// The members.
    pub members: Vec<Member>,
    /// All entries that any leader ever committed, except those abandoned in a repair.
    pub committed: Vec<Entry>,
    /// True if a leader committed a different entry at an index that was already committed.
    pub contradicted: bool,
    /// True if a repair lost an entry that its plan promised to keep.
    pub lost: bool,
    /// The repair that the operator has ordered and the survivor has not carried out yet.
    pub planned: Option<Planned>,
    /// The terms of the completed repairs, in order.
    pub repairs: Vec<Term>,
    /// The number of writes, moves, transfers and other bounded steps so far.
    pub(crate) spent: Spent,
}

impl Ring {
    /// Records that a leader has committed these entries.
    pub(crate) fn take_for_committed(&mut self, taken: &[Entry]) {
        let known = taken.len().min(self.committed.len());
        if taken[..known] != self.committed[..known] {
            self.contradicted = true;
        }
        if taken.len() > known {
            self.committed.extend_from_slice(&taken[known..]);
        }
    }
}

/// Counters of the steps that a scope bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Spent {
    pub(crate) writes: u8,
    pub(crate) moves: u8,
    pub(crate) changes: u8,
    pub(crate) transfers: u8,
    pub(crate) restarts: u8,
    pub(crate) wipes: u8,
    pub(crate) rots: u8,
    pub(crate) plans: u8,
}
