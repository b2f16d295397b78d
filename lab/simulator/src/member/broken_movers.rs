//! The tasks of mutations. They take steps that the product's tasks never take.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consensus::quorum::RingRules;
use raft_types::{MemberId, MemberRecord};
use ring_admin::Member;

/// Time limit for openraft.
const PATIENCE: Duration = Duration::from_millis(400);

/// The task of [`Mutation::NarrowWithoutTheBarrier`]. While this member leads with two voter sets in force, it narrows them to its own set.
/// It calls openraft directly, without waiting for an entry of its own term.
///
/// [`Mutation::NarrowWithoutTheBarrier`]: crate::mutation::Mutation::NarrowWithoutTheBarrier
pub(super) async fn narrow(member: Member) {
    loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        if member.leadership_now().leading_term().is_none() {
            continue;
        }
        let sets = member.status().ring_view.voter_sets;
        let own = sets.iter().find(|set| set.contains(&member.id()));
        if let (true, Some(own)) = (sets.len() > 1, own.or(sets.first())) {
            set_voters(&member, own.clone()).await;
        }
    }
}

/// The task of [`Mutation::BelieveTheFile`]. While this member serves, it sets the voters that its configuration file requires. Old
/// versions did this.
///
/// [`Mutation::BelieveTheFile`]: crate::mutation::Mutation::BelieveTheFile
pub(super) async fn believe(member: Member, file: RingRules) {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if member.leadership_now().serving_term().is_none() {
            continue;
        }
        let view = member.status().ring_view;
        let records = view.members.into_iter();
        let records: BTreeMap<MemberId, MemberRecord> = records
            .map(|standing| (standing.id, standing.record))
            .collect();
        let Some(home) = records.get(&member.id()).map(|own| own.region.clone()) else {
            continue;
        };
        if let Ok(wanted) = file.voter_sets(&records, &home)
            && wanted != view.voter_sets
            && let [wanted] = wanted.as_slice()
        {
            set_voters(&member, wanted.clone()).await;
        }
    }
}

async fn set_voters(member: &Member, voters: BTreeSet<MemberId>) {
    let change = member.engine().change_membership(voters, true);
    // The result is visible in the log.
    let _ = tokio::time::timeout(PATIENCE, change).await;
}
