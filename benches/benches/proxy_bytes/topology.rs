//! The measured rings: a region with the primary and two witnesses, and further regions with a follower and two witnesses each.

use std::collections::BTreeMap;
use std::time::Duration;

use raft_types::{Incarnation, MemberId, MemberKind, MemberRecord, Region};

/// The number of voters in a region: a database member and two witnesses.
const VOTERS_OF_A_REGION: u64 = 3;

/// The primary, which bootstraps the ring and is its leader.
pub(crate) const LEADER: MemberId = MemberId(1);
/// A witness in the primary's region.
pub(crate) const NEIGHBOUR: MemberId = MemberId(2);

/// One-way delay between two regions.
pub(crate) const ACROSS: Duration = Duration::from_millis(30);
/// One-way delay within a region.
pub(crate) const INSIDE: Duration = Duration::from_micros(100);

/// The size of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The ring of the paper: five followers and two learners. The traffic over its links is comparable to the paper's.
    Paper,
    /// One follower. Delays are measured on this ring, because twenty members use the cores of one machine here, unlike in
    /// production.
    TwoRegions,
}

impl Layout {
    /// Returns the number of regions: one for the primary and one for each follower.
    fn regions(self) -> u64 {
        match self {
            Self::Paper => 6,
            Self::TwoRegions => 2,
        }
    }

    /// Returns the regions with a learner, counted from 1.
    fn learners_in(self) -> &'static [u64] {
        match self {
            Self::Paper => &[2, 3],
            Self::TwoRegions => &[],
        }
    }
}

/// The members and their regions.
pub(crate) struct Topology {
    layout: Layout,
    records: BTreeMap<MemberId, MemberRecord>,
}

impl Topology {
    pub(crate) fn new(layout: Layout) -> Self {
        let voters = (0..layout.regions() * VOTERS_OF_A_REGION).map(|number| {
            let kind = match number % VOTERS_OF_A_REGION {
                0 => MemberKind::Database,
                _ => MemberKind::Witness,
            };
            (number / VOTERS_OF_A_REGION + 1, kind, true)
        });
        let learners = layout.learners_in().iter();
        let learners = learners.map(|region| (*region, MemberKind::Database, false));
        let ids = (1..).map(MemberId);
        let members = ids.zip(voters.chain(learners));
        let records = members.map(|(id, (region, kind, votes))| {
            let record = MemberRecord {
                name: format!("member-{id}"),
                region: Region(format!("region-{region}")),
                kind,
                votes,
                incarnation: Incarnation::random(),
                ..MemberRecord::default()
            };
            (id, record)
        });
        Self {
            layout,
            records: records.collect(),
        }
    }

    pub(crate) fn records(&self) -> &BTreeMap<MemberId, MemberRecord> {
        &self.records
    }

    /// Returns the one-way delay from one member to another.
    pub(crate) fn one_way(&self, from: MemberId, to: MemberId) -> Duration {
        match self.records[&from].region == self.records[&to].region {
            true => INSIDE,
            false => ACROSS,
        }
    }

    /// Returns the members outside of the leader's region.
    pub(crate) fn remote(&self) -> impl Iterator<Item = (MemberId, &MemberRecord)> {
        let home = &self.records[&LEADER].region;
        let all = self.records.iter().map(|(id, record)| (*id, record));
        all.filter(move |(_, record)| record.region != *home)
    }

    /// Returns the members outside of the leader's region that can have a follower of their region as their proxy.
    pub(crate) fn behind_followers(&self) -> impl Iterator<Item = MemberId> {
        let rest = self
            .remote()
            .filter(|(_, record)| record.kind == MemberKind::Witness || !record.votes);
        rest.map(|(id, _)| id)
    }

    pub(crate) fn remote_witnesses(&self) -> impl Iterator<Item = MemberId> {
        let witnesses = self
            .remote()
            .filter(|(_, record)| record.kind == MemberKind::Witness);
        witnesses.map(|(id, _)| id)
    }

    /// Returns the number of regions, not counting the leader's region.
    pub(crate) fn remote_regions(&self) -> usize {
        self.layout.regions() as usize - 1
    }
}
