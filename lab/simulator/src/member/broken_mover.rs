//! The mover of [`Mutation::NarrowWithoutTheBarrier`]: it does what the product's own never does.
//!
//! [`Mutation::NarrowWithoutTheBarrier`]: crate::mutation::Mutation::NarrowWithoutTheBarrier

use std::collections::BTreeSet;
use std::time::Duration;

use consensus::Member;
use raft_types::MemberId;

/// How often it looks, and how long it waits for the engine.
const LOOK: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_millis(400);

/// Whenever this member leads with two quorums in force, takes the one that it belongs to, through the engine's call that
/// has no barrier.
pub(super) async fn run(member: Member) {
    loop {
        tokio::time::sleep(LOOK).await;
        if member.leadership_now().leading_term().is_none() {
            continue;
        }
        let sets = member.status().ring_view.voter_sets;
        let own: Option<&BTreeSet<MemberId>> = sets.iter().find(|set| set.contains(&member.id()));
        if let (true, Some(own)) = (sets.len() > 1, own.or(sets.first())) {
            let change = member.engine().change_membership(own.clone(), true);
            // What comes of it stands in the log.
            let _ = tokio::time::timeout(PATIENCE, change).await;
        }
    }
}
