//! A state of the ring.

use std::fmt;

use ring_admin::RepairPlan;

/// A member, by its index over the scope's regions.
pub type Id = usize;
/// A Raft term.
pub type Term = u32;
/// A number of entries, from the beginning of a log.
pub type Count = u32;
/// The key that elections compare: the last entry's term, and the number of entries.
pub type End = (Term, usize);

/// The author of a membership imposed without a leader's proposal; no member has this id.
pub(crate) const NO_MEMBER: Id = Id::MAX;

/// A set of members, a bit for each.
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
    /// A client's write: the digest of its bytes, where there are any.
    Write(u64),
    /// The members and voters from here on.
    Membership(Membership),
}

/// The members and the voters of a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Membership {
    /// The voter sets; a majority of each is needed.
    pub sets: Vec<Members>,
    /// All members, including those without a vote.
    pub members: Members,
    /// The digest of its bytes: one membership has several encodings.
    pub wording: u64,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The term of the leader that made it.
    pub term: Term,
    /// Its content.
    pub content: Content,
}

impl Entry {
    /// The membership, if it is one.
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
    /// It follows, or has no leader.
    Follower,
    /// It asks for votes.
    Candidate {
        /// The members that voted for it.
        votes: Members,
    },
    /// It leads.
    Leader(Leader),
    /// It does not run. Before it takes part again it asks the others.
    Down,
    /// Its disk is lost. It never takes part again under this id.
    Lost,
}

/// A leader's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    /// The last entry that each member has acknowledged.
    pub(crate) matched: Vec<Count>,
    /// Time since the last heartbeat that each member answered was sent; at most, and without an answer, the lease.
    pub(crate) contact: Vec<u8>,
    /// Time since a heartbeat was sent that has arrived and is not answered yet.
    pub(crate) unanswered: Vec<Option<u8>>,
    /// It is transferring the leadership, and no longer serves in its term.
    pub(crate) leaving: bool,
    /// Its lease had expired, and these have answered since: it accepts no entries before a quorum has.
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

/// A log lost its last entry, which may have been acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Doubt {
    /// The term of the vote stored at that time.
    pub(crate) term: Term,
    /// A log with at least this end has all entries that may be lost.
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
    /// Remaining time in which it votes for no candidate, as promised to a leader.
    pub promised: u8,
    /// A committed end reported by others that its own log does not reach.
    pub told: Option<End>,
    /// Its doubt about the end of its log, if any.
    pub doubt: Option<Doubt>,
}

impl Member {
    /// A member with this log, all of which is committed.
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

    /// The membership in force and the one before, with their indexes in its log.
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

    /// Its leader state, where it leads.
    pub(crate) fn leads(&self) -> Option<&Leader> {
        match &self.role {
            Role::Leader(leader) => Some(leader),
            _ => None,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        !matches!(self.role, Role::Down | Role::Lost)
    }

    /// The key that elections compare.
    pub(crate) fn end(&self) -> End {
        (
            self.log.last().map_or(0, |entry| entry.term),
            self.log.len(),
        )
    }

    /// Its log has grown: it may now have the entries that it lacked.
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
    /// The operator accepted the possible loss of acknowledged entries after that end.
    pub(crate) loss: bool,
}

impl Planned {
    /// A plan to be carried out in this term.
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
    /// A leader committed another entry at an index that was already committed.
    pub contradicted: bool,
    /// A repair lost an entry that its plan promised to keep.
    pub lost: bool,
    /// The ordered repair.
    pub planned: Option<Planned>,
    /// The terms of the completed repairs, in order.
    pub repairs: Vec<Term>,
    /// The number of writes, moves, transfers and other bounded steps so far.
    pub(crate) spent: Spent,
}

impl Ring {
    /// A leader commits these entries.
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
