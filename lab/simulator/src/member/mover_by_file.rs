//! The mover of [`Mutation::BelieveTheFile`]: acts as members did when their file had the policy.
//!
//! [`Mutation::BelieveTheFile`]: crate::mutation::Mutation::BelieveTheFile

use std::collections::BTreeMap;
use std::time::Duration;

use consensus::Member;
use consensus::quorum::RingRules;
use raft_types::{MemberId, MemberRecord};

/// Interval of its checks, and its timeout for the engine.
const LOOK: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_millis(400);

/// Whenever this member serves, sets the voters that its file requires.
pub(super) async fn run(member: Member, file: RingRules) {
    loop {
        tokio::time::sleep(LOOK).await;
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
            let change = member.engine().change_membership(wanted.clone(), true);
            // The outcome is in the log.
            let _ = tokio::time::timeout(PATIENCE, change).await;
        }
    }
}
