//! A state of the ring.

use std::fmt;

/// A member, by its place in the scope's regions.
pub type Id = usize;
/// The number of a leadership.
pub type Term = u8;

/// A set of members, a bit for each.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Members(u16);

impl Members {
    pub(crate) fn with(self, id: Id) -> Self {
        Self(self.0 | 1 << id)
    }

    pub(crate) fn has(self, id: Id) -> bool {
        self.0 & 1 << id != 0
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn ids(self) -> impl Iterator<Item = Id> {
        (0..16).filter(move |id| self.has(*id))
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
    /// A client's transaction.
    Write,
    /// The voter sets in force from here on; a majority of each is needed.
    Voters(Vec<Members>),
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The term of the leader that made it.
    pub term: Term,
    /// What it says.
    pub content: Content,
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
}

/// What a leader knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    /// Up to which entry each member has its log, as it was told.
    pub(crate) matched: Vec<u8>,
    /// How long ago the last heartbeat was sent that each member answered; the lease, where that is longer ago or never was.
    pub(crate) contact: Vec<u8>,
    /// How long ago a heartbeat was sent that has arrived, and whose answer has not.
    pub(crate) unanswered: Vec<Option<u8>>,
    /// It gives the leadership away, and serves no more in its term.
    pub(crate) leaving: bool,
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
    pub commit: u8,
    /// What it is.
    pub role: Role,
    /// For how long it still votes for nobody, because it has promised that to a leader.
    pub promised: u8,
}

impl Member {
    /// The voter sets in force by its log.
    pub(crate) fn voters(&self) -> &[Members] {
        let sets = self
            .log
            .iter()
            .rev()
            .find_map(|entry| match &entry.content {
                Content::Voters(sets) => Some(sets.as_slice()),
                _ => None,
            });
        sets.unwrap_or_default()
    }

    /// The leadership, where it leads.
    pub(crate) fn leads(&self) -> Option<&Leader> {
        match &self.role {
            Role::Leader(leader) => Some(leader),
            _ => None,
        }
    }

    /// What an election compares: the term of the last entry, and how many there are.
    pub(crate) fn end(&self) -> (Term, usize) {
        (
            self.log.last().map_or(0, |entry| entry.term),
            self.log.len(),
        )
    }
}

/// A state of the ring.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ring {
    /// The members.
    pub members: Vec<Member>,
    /// All that any leader ever took for committed.
    pub committed: Vec<Entry>,
    /// A leader took something else for committed at a place where there was a committed entry already.
    pub contradicted: bool,
    /// How many writes, moves, transfers and restarts there were.
    pub(crate) spent: Spent,
}

/// What a scope bounds by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Spent {
    pub(crate) writes: u8,
    pub(crate) moves: u8,
    pub(crate) transfers: u8,
    pub(crate) restarts: u8,
}
