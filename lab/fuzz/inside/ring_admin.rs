//! Fuzzing entry points for members' records from the log. The product does not call them.

use std::collections::BTreeMap;

use consensus::quorum::RingRules;
use consensus::quorum::policy::{carry_on, in_force};
use raft_types::{MemberId, MemberRecord, Membership};

use crate::{formats, history};

/// Reads the ring's data from a membership's records, copies the data to the next membership, and reads the copy.
pub fn carried(membership: &Membership) {
    let nodes = membership.nodes();
    let mut members: BTreeMap<MemberId, MemberRecord> =
        nodes.map(|(id, record)| (*id, record.clone())).collect();
    let rules = in_force(members.values(), &RingRules::default());
    let regions: Vec<_> = members.values().map(|of| of.region.clone()).collect();
    for region in &regions {
        if let Ok(sets) = rules.voter_sets(&members, region) {
            let mut voters = sets.iter().flatten();
            assert!(voters.all(|voter| members.contains_key(voter)));
        }
    }
    let (format, told) = (
        formats::of(members.values()),
        history::read(members.values()),
    );
    carry_on(&mut members, &RingRules::default());
    formats::carry_on(&mut members);
    history::append(&mut members, &[]);
    assert_eq!(formats::of(members.values()), format);
    assert_eq!(in_force(members.values(), &RingRules::default()), rules);
    assert!(history::read(members.values()).len() <= told.len());
}
