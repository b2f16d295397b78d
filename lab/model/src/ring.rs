//! A state of the ring.

use std::fmt;

use consensus::RepairPlan;

/// A member, by its place in the scope's regions.
pub type Id = usize;
/// The number of a leadership.
pub type Term = u32;
/// How many entries, from the beginning of a log.
pub type Count = u32;
/// What an election compares: the term of the last entry, and how many there are.
pub type End = (Term, usize);

/// In whose name a membership is imposed that no leader proposed; no member has this number.
pub(crate) const NOBODY: Id = Id::MAX;

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

    /// All sets of members of this one.
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

/// What an entry of the log says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// A leader's first entry.
    Blank,
    /// What clients wrote: the digest of its bytes, where there are any.
    Write(u64),
    /// Who is in the ring from here on, and who votes.
    Membership(Membership),
}

/// Who is in the ring, and who votes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Membership {
    /// The voter sets; a majority of each is needed.
    pub sets: Vec<Members>,
    /// All members, those without a vote among them.
    pub members: Members,
    /// The digest of its bytes: the same membership can be written in several ways.
    pub wording: u64,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The term of the leader that made it.
    pub term: Term,
    /// What it says.
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

/// What a member is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It follows, or waits.
    Follower,
    /// It asks for votes.
    Candidate {
        /// Who has given it theirs.
        votes: Members,
    },
    /// It was elected.
    Leader(Leader),
    /// It does not run. Before it takes part again it asks the others.
    Down,
    /// Its disk is lost. Under its number it never takes part again.
    Lost,
}

/// What a leader knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    /// Up to which entry each member has its log, as it was told.
    pub(crate) matched: Vec<Count>,
    /// How long ago the last heartbeat was sent that each member answered; the lease, where that is longer ago or never was.
    pub(crate) contact: Vec<u8>,
    /// How long ago a heartbeat was sent that has arrived, and whose answer has not.
    pub(crate) unanswered: Vec<Option<u8>>,
    /// It gives the leadership away, and serves no more in its term.
    pub(crate) leaving: bool,
    /// Its lease was over, and these have answered since: it takes no entries before a quorum has.
    pub(crate) overdue: Option<Members>,
}

impl Leader {
    /// Of a member that was just elected.
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
    /// The term of the vote that was stored then.
    pub(crate) term: Term,
    /// From this end on a log has all that may be lost.
    pub(crate) needed: End,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// The latest term that it has heard of.
    pub term: Term,
    /// Whom it gave its vote in that term.
    pub vote: Option<Id>,
    /// Its log, from the founding on.
    pub log: Vec<Entry>,
    /// How much of its log is committed, for all that it knows.
    pub commit: Count,
    /// What it is.
    pub role: Role,
    /// For how long it still votes for nobody, because it has promised that to a leader.
    pub promised: u8,
    /// Others have committed this, and its own log does not go that far.
    pub told: Option<End>,
    /// Whether the end of its log is in doubt.
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

    /// Where the membership in force stands in its log, and the one before.
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

    /// Who is in the ring by its log.
    pub(crate) fn ring(&self) -> Members {
        self.membership()
            .map(|membership| membership.members)
            .unwrap_or_default()
    }

    /// The leadership, where it leads.
    pub(crate) fn leads(&self) -> Option<&Leader> {
        match &self.role {
            Role::Leader(leader) => Some(leader),
            _ => None,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        !matches!(self.role, Role::Down | Role::Lost)
    }

    /// What an election compares.
    pub(crate) fn end(&self) -> End {
        (
            self.log.last().map_or(0, |entry| entry.term),
            self.log.len(),
        )
    }

    /// Its log has grown: what it had to have it may have now.
    pub(crate) fn has_grown(&mut self) {
        let end = self.end();
        self.told = self.told.filter(|told| end < *told);
        self.doubt = self.doubt.filter(|doubt| end < doubt.needed);
    }
}

/// How many entries there are.
pub(crate) fn count(log: &[Entry]) -> Count {
    Count::try_from(log.len()).unwrap_or(Count::MAX)
}

/// Up to where two logs are the same, as members tell: by term and place.
pub(crate) fn common(one: &[Entry], other: &[Entry]) -> usize {
    let pairs = one.iter().zip(other);
    pairs
        .take_while(|(one, other)| one.term == other.term)
        .count()
}

/// A repair of a lost quorum that an operator has ordered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Planned {
    /// The member that goes on.
    pub(crate) survivor: Id,
    /// The end of its log.
    pub(crate) end: End,
    /// The term of the repair.
    pub(crate) term: Term,
    /// The operator was told that what was acknowledged behind that end may be lost, and accepted it.
    pub(crate) loss: bool,
}

impl Planned {
    /// A plan that is carried out in this term.
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
    /// All that any leader ever took for committed, but for what was given up in a repair.
    pub committed: Vec<Entry>,
    /// A leader took something else for committed at a place where there was a committed entry already.
    pub contradicted: bool,
    /// A repair lost what its plan had said not to be lost.
    pub lost: bool,
    /// The repair that is ordered.
    pub planned: Option<Planned>,
    /// The terms of the repairs that were carried out, in their order.
    pub repairs: Vec<Term>,
    /// How many writes, moves, transfers and the like there were.
    pub(crate) spent: Spent,
}

impl Ring {
    /// A leader takes this for committed.
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

/// What a scope bounds by its number.
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
