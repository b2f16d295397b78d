//! The scenarios as a table: the setting of each, its steps in order, and its checks. [`World::run`] runs any of them.

use std::time::Duration;

use fastrand::Rng;
use member::conversion::Direction;

use crate::faults::{Fault, Stress};
use crate::scenario::Scenario;
use crate::shape::Shape;
use crate::workload::Workload;
use crate::world::{World, cold_damage, disks, failovers, mysqlds, policies};

/// A step of a scenario, or a check.
pub(super) type Act = fn(&mut World);

/// Chooses a fault of a kind that only one scenario has. `None`: no fault is possible now.
type OwnFault = fn(&mut World) -> Option<Fault>;

/// The steps and checks of a scenario.
pub(super) struct Script {
    /// The kind of faults. `None`: the seed draws it.
    pub(super) stress: Option<Stress>,
    /// Changes the ring and the workload of the seed.
    pub(super) setting: fn(&mut Shape, &mut Workload, &mut Rng),
    pub(super) begin: Act,
    pub(super) acts: &'static [Act],
    /// The checks after each step of the world.
    pub(super) checks: &'static [Act],
    /// The scenario's own faults. The number `n` means that one in `n` faults is one of them.
    pub(super) own_faults: Option<(u32, OwnFault)>,
    /// The checks after all faults are fixed and all members have caught up.
    pub(super) recovery: &'static [Act],
    /// Further steps after the recovery.
    pub(super) epilogue: &'static [Act],
}

/// A run without a scenario. The seed draws everything.
const MIXED: Script = Script {
    stress: None,
    setting: |_, _, _| {},
    begin: World::found,
    acts: &[|world| world.go_wrong(4_000..14_000)],
    checks: &[],
    own_faults: None,
    recovery: &[],
    epilogue: &[],
};

/// A run with several voters in each region, between which the quorum moves.
const MOVES: Script = Script {
    stress: Some(Stress::Moves),
    ..MIXED
};

/// A run in which the database members have servers.
const WITH_SERVERS: Script = Script {
    setting: |shape, _, _| mysqlds::with_servers(shape),
    recovery: &[World::servers_agree],
    ..MOVES
};

impl Script {
    pub(super) fn of(scenario: Option<Scenario>) -> Self {
        let Some(scenario) = scenario else {
            return MIXED;
        };
        match scenario {
            Scenario::Transport => MIXED,
            Scenario::LostQuorum => Self {
                stress: Some(Stress::Lost),
                ..MIXED
            },
            Scenario::Upgrades => Self {
                own_faults: Some((2, World::another_version)),
                checks: &[World::no_member_has_an_unsupported_format],
                epilogue: &[World::everybody_is_upgraded],
                ..MIXED
            },
            Scenario::Policies => Self {
                own_faults: Some((3, World::another_policy)),
                epilogue: &[World::the_quorum_follows_the_log],
                ..MOVES
            },
            Scenario::Failovers => Self {
                setting: |shape, _, _| failovers::with_proxies(shape),
                acts: &[World::failovers],
                ..MOVES
            },
            Scenario::Learners => Self {
                setting: |shape, _, _| failovers::without_proxies(shape),
                acts: &[World::leave_with_learners as Act; 3],
                ..MOVES
            },
            Scenario::Removals => Self {
                setting: |shape, _, dice| policies::with_a_majority(shape, dice),
                acts: &[
                    World::a_member_serves,
                    World::some_fail_and_one_is_removed,
                    World::some_fail_and_one_is_removed,
                    World::some_fail_and_one_is_removed,
                    World::some_fail_and_one_is_removed,
                ],
                ..MOVES
            },
            Scenario::ColdDamage => Self {
                setting: cold_damage::with_cold_files,
                acts: &[
                    World::damage_entries_that_a_member_lacks,
                    World::damage_entries_that_a_member_lacks,
                    World::damage_entries_that_a_member_lacks,
                    World::scrubs_find_the_rest,
                ],
                ..MOVES
            },
            Scenario::FullDisks => Self {
                setting: |shape, workload, _| disks::with_reserves(shape, workload),
                acts: &[
                    World::a_member_serves,
                    World::disks_fill,
                    World::the_leader_fails,
                    World::disks_stay_full_for_a_while,
                ],
                ..MOVES
            },
            Scenario::Purges => Self {
                setting: |shape, workload, _| disks::with_short_files(shape, workload),
                acts: &[
                    World::report_the_regions,
                    World::purge_without_a_region,
                    World::purge_without_a_region,
                ],
                ..MOVES
            },
            Scenario::SlowDisk => Self {
                setting: |_, workload, _| disks::with_large_transactions(workload),
                acts: &[World::slow_leader, World::slow_voters],
                ..MOVES
            },
            Scenario::MysqldOperations => Self {
                acts: &[
                    World::clients_begin,
                    World::until_calm,
                    World::an_operation,
                    World::everything_goes_wrong,
                ],
                own_faults: Some((3, World::operation)),
                checks: &[World::check_operations],
                ..WITH_SERVERS
            },
            Scenario::Provisioning => Self {
                acts: &[
                    World::clients_begin,
                    World::until_calm,
                    World::planned_copy,
                    World::everything_goes_wrong,
                ],
                own_faults: Some((2, World::fault_of_a_copy)),
                checks: &[World::check_copies],
                recovery: &[World::copies_end, World::servers_agree],
                ..WITH_SERVERS
            },
            Scenario::Conversions => Self {
                begin: World::begin_plainly,
                acts: &[
                    World::until_replicas_follow,
                    World::clients_begin,
                    |world| world.convert(Direction::EnableRaft),
                    World::until_servers_follow,
                    |world| world.go_wrong(2_000..12_000),
                    World::restore_links,
                    |world| world.convert(Direction::DisableRaft),
                    World::enable_raft_again_perhaps,
                ],
                checks: &[World::check_conversions],
                recovery: &[
                    World::servers_agree,
                    World::the_remaining_state_is_as_documented,
                ],
                ..WITH_SERVERS
            },
            Scenario::Mysqlds => Self {
                acts: &[World::clients_begin, World::everything_goes_wrong],
                ..WITH_SERVERS
            },
        }
    }
}

impl World {
    /// Runs the steps in order, until the run has failed.
    pub(super) fn play_acts(&mut self, acts: &[Act]) {
        for act in acts {
            if self.goes_on() {
                act(self);
            }
        }
    }

    /// Injects faults for a longer time, because faults of servers take longer to show.
    fn everything_goes_wrong(&mut self) {
        self.go_wrong(10_000..40_000);
    }

    fn a_member_serves(&mut self) {
        self.wait_for_leader(None);
    }

    // The waits that all scenarios use.

    /// Runs steps until a condition holds. Returns false if it does not hold within this time. If the run fails, returns true.
    pub(super) fn happens_within(
        &mut self,
        allowed: Duration,
        mut holds: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let start = self.now;
        while self.goes_on() && !holds(self) {
            if self.now - start > allowed {
                return false;
            }
            self.step();
        }
        true
    }

    /// Runs steps until a condition holds. If it does not hold in time, the run fails with this message.
    pub(super) fn wait_until(
        &mut self,
        otherwise: &str,
        allowed: Duration,
        holds: impl FnMut(&mut Self) -> bool,
    ) {
        if !self.happens_within(allowed, holds) {
            self.stuck(&format!("{otherwise}, within {allowed:?}"));
        }
    }

    /// Returns whether a client's transaction is committed within this time.
    pub(super) fn commits_within(&mut self, allowed: Duration) -> bool {
        let before = self.record.counts().acknowledged;
        self.happens_within(allowed, |world| {
            world.record.counts().acknowledged != before
        })
    }
}
