//! The ring that is measured: a primary with two witnesses, five followers with two witnesses each, each in a region of its own,
//! and two learners.

use std::collections::BTreeMap;
use std::time::Duration;

use raft_types::{Incarnation, MemberId, MemberKind, MemberRecord, Region};

/// The primary and the five followers have one each.
const REGIONS: u64 = 6;
/// Those that vote: a database member and two witnesses.
const VOTERS_OF_A_REGION: u64 = 3;
/// Where the learners are, counted from 1.
const LEARNERS_IN: [u64; 2] = [2, 3];

/// The primary. It makes the ring, and leads it.
pub(crate) const LEADER: MemberId = MemberId(1);

/// One way, between two regions.
pub(crate) const ACROSS: Duration = Duration::from_millis(30);
/// One way, inside a region.
pub(crate) const INSIDE: Duration = Duration::from_micros(100);

/// Who is in the ring, and where.
pub(crate) struct Topology(BTreeMap<MemberId, MemberRecord>);

impl Topology {
    pub(crate) fn new() -> Self {
        let voters = (0..REGIONS * VOTERS_OF_A_REGION).map(|number| {
            let kind = match number % VOTERS_OF_A_REGION {
                0 => MemberKind::Database,
                _ => MemberKind::Witness,
            };
            (number / VOTERS_OF_A_REGION + 1, kind, true)
        });
        let learners = LEARNERS_IN.map(|region| (region, MemberKind::Database, false));
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
        Self(records.collect())
    }

    pub(crate) fn records(&self) -> &BTreeMap<MemberId, MemberRecord> {
        &self.0
    }

    /// How long bytes are on their way from one member to another.
    pub(crate) fn one_way(&self, from: MemberId, to: MemberId) -> Duration {
        match self.0[&from].region == self.0[&to].region {
            true => INSIDE,
            false => ACROSS,
        }
    }

    /// The members in other regions than the leader's.
    pub(crate) fn remote(&self) -> impl Iterator<Item = (MemberId, &MemberRecord)> {
        let home = &self.0[&LEADER].region;
        let all = self.0.iter().map(|(id, record)| (*id, record));
        all.filter(move |(_, record)| record.region != *home)
    }

    /// Those of them that have a follower in their region, which can send on to them.
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

    /// Other regions than the leader's.
    pub(crate) fn remote_regions(&self) -> usize {
        REGIONS as usize - 1
    }
}
