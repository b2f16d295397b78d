//! Rings for the decision tables in the tests of this crate and of `ring-admin`, which includes this file.

use std::time::Duration;

use raft_types::{MemberId, MemberKind, MemberRecord, OpId, Region};

use crate::{RingMember, RingView};

pub(crate) const LEASE: Duration = Duration::from_millis(800);

/// A ring in which every member answers and has all entries, unless a test changes that.
#[derive(Clone)]
pub(crate) struct Ring(RingView);

impl Ring {
    /// Parses a text such as `a: 1d 2w 3w | b: 4d 5w 6n`: regions with their members. `d` is a database member, `w` a witness, `n` a
    /// witness without a vote.
    pub(crate) fn new(text: &str) -> Self {
        let mut members = Vec::new();
        for region in text.split('|') {
            let (name, list) = region.split_once(':').unwrap();
            for member in list.split_whitespace() {
                let (id, kind) = member.split_at(member.len() - 1);
                let region = Region(name.trim().to_owned());
                members.push(peer(id.parse().unwrap(), region, kind));
            }
        }
        members.sort_by_key(|peer| peer.id);
        Self(RingView {
            own: members[0].id,
            leads: true,
            is_interim: false,
            lease: LEASE,
            leader: Some(members[0].id),
            last_log: Some(OpId::new(2, 9)),
            voter_sets: Vec::new(),
            members,
        })
    }

    pub(crate) fn led_by(mut self, id: u64) -> Self {
        self.0.own = MemberId(id);
        self.0.leader = Some(MemberId(id));
        self
    }

    pub(crate) fn with_sets(mut self, sets: &[&[u64]]) -> Self {
        let set = |ids: &&[u64]| ids.iter().copied().map(MemberId).collect();
        self.0.voter_sets = sets.iter().map(set).collect();
        for peer in &mut self.0.members {
            peer.voter = self.0.voter_sets.iter().any(|set| set.contains(&peer.id));
        }
        self
    }

    pub(crate) fn silent(mut self, ids: &[u64]) -> Self {
        for id in ids {
            self = self.with(*id, |peer| peer.answered = Some(LEASE));
        }
        self
    }

    pub(crate) fn with(&self, id: u64, change: impl FnOnce(&mut RingMember)) -> Self {
        let mut ring = self.clone();
        let mut members = ring.0.members.iter_mut();
        change(members.find(|peer| peer.id.0 == id).unwrap());
        ring
    }

    pub(crate) fn view(&self) -> RingView {
        self.0.clone()
    }
}

fn peer(id: u64, region: Region, kind: &str) -> RingMember {
    RingMember {
        id: MemberId(id),
        record: MemberRecord {
            name: format!("member-{id}"),
            region,
            kind: match kind {
                "d" => MemberKind::Database,
                _ => MemberKind::Witness,
            },
            votes: kind != "n",
            ..MemberRecord::default()
        },
        voter: false,
        matched: Some(OpId::new(2, 9)),
        lag: Some(0),
        answered: Some(Duration::from_millis(100)),
        needs_purged_entries: false,
    }
}
