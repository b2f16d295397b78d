//! [`Scenario::Learners`]: a leader is left with members that have no vote. It is cut off from the other voters of its quorum, and
//! reaches everybody else; the others elect one of their own, and the first one loses its power. What it acknowledged in
//! between would be lost, so that it must acknowledge nothing: whoever has no vote in force counts for nothing in a commit.
//!
//! [`Scenario::Learners`]: crate::scenario::Scenario::Learners

use std::collections::BTreeSet;
use std::time::Duration;

use raft_types::MemberId;
use testkit::disk::Survival;

use super::World;
use crate::faults::{Crash, Fault};
use crate::mutation::Mutation;
use crate::network::StandIn;
use crate::shape::Shape;

/// How often a leader is left with them.
const SIEGES: u32 = 3;

/// Everybody could lead, so that those that are cut off elect one of their own, and entries go the straight way.
pub(super) fn without_proxies(shape: &mut Shape) {
    shape.proxies.mode = proxy::ProxyMode::Off;
    shape.with_databases_only();
}

impl World {
    pub(super) fn learners(&mut self) {
        for _ in 0..SIEGES {
            let calm = Duration::from_millis(self.dice.u64(1_000..3_000));
            self.steps(calm);
            self.leave_with_learners();
        }
    }

    /// The leader has nobody but learners for a while, then its power goes.
    fn leave_with_learners(&mut self) {
        let Some((leader, view)) = self.leading_view() else {
            return;
        };
        // While the quorum moves, another set may decide.
        let [set] = view.voter_sets.as_slice() else {
            return;
        };
        if !set.contains(&leader) || set.len() < 3 {
            return;
        }
        let learners = self.slots.iter().filter(|(id, slot)| {
            view.member(**id).is_some() && !set.contains(id) && slot.is_running()
        });
        let learners: Vec<MemberId> = learners.map(|(id, _)| *id).collect();
        if learners.is_empty() {
            return;
        }
        let learner = learners[self.dice.usize(0..learners.len())];
        let others: BTreeSet<MemberId> = set.iter().copied().filter(|id| *id != leader).collect();
        let lease = self.shape.timers.lease;
        let alone = lease * 3 + Duration::from_millis(self.dice.u64(0..2_000));
        self.play(Fault::Cut {
            from: vec![leader],
            to: others.iter().copied().collect(),
            both: true,
            time: alone,
        });
        if self.mutation == Some(Mutation::CountALearner) {
            let stand_in = StandIn {
                leader,
                voters: others,
                learner,
            };
            self.post.links(|links| links.stand_in(Some(stand_in)));
        }
        self.steps(alone);
        self.post.links(|links| links.stand_in(None));
        let down = Duration::from_millis(self.dice.u64(500..3_000));
        self.play(Fault::Crash {
            member: leader,
            crash: Crash::PowerCut(Survival::Everything),
            after_calls: 0,
            down,
        });
    }
}
