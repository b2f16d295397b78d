//! The mover of [`Mutation::NarrowWithoutTheBarrier`]: does what the product's never does.
//!
//! [`Mutation::NarrowWithoutTheBarrier`]: crate::mutation::Mutation::NarrowWithoutTheBarrier

use std::collections::BTreeSet;
use std::time::Duration;

use consensus::Member;
use raft_types::MemberId;

/// Interval of its checks, and its timeout for the engine.
const LOOK: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_millis(400);

/// Whenever this member leads with two quorums in force, narrows to its own, through the engine's call without a barrier.
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
            // The outcome is in the log.
            let _ = tokio::time::timeout(PATIENCE, change).await;
        }
    }
}
