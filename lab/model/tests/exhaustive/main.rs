//! Explores every state of small rings, once with all rules and once without each rule.

use std::collections::BTreeSet;

use clap::ValueEnum;
use model::{Broken, RingModel, Scope};
use stateright::{Checker, HasDiscoveries, Model};

/// Explores the whole scope. Each state must have the safety properties, and each reachability property must be reached.
fn holds(scope: Scope) {
    let words = format!("{scope:?}");
    let done = RingModel::of(scope).checker().threads(2).spawn_bfs().join();
    println!("{words}: {} states", done.unique_state_count());
    done.assert_properties();
}

#[test]
fn one_region_with_restarted_members() {
    holds(Scope {
        terms: 4,
        restarts: 1,
        ..Scope::of(&[3])
    });
}

#[test]
fn the_quorum_moves_between_regions() {
    for regions in [&[1, 1][..], &[2, 1], &[2, 2]] {
        holds(Scope {
            moves: 2,
            entries: 5,
            ..Scope::of(regions)
        });
    }
}

#[test]
fn the_leader_dies_in_the_middle_of_a_move() {
    holds(Scope {
        begins_joint: true,
        moves: 2,
        writes: 0,
        ..Scope::of(&[3, 1])
    });
}

#[test]
fn a_serving_member_is_up_to_date_through_transfers_and_restarts() {
    for (transfers, restarts) in [(1, 0), (0, 1)] {
        holds(Scope {
            lease: 1,
            transfers,
            restarts,
            entries: 3,
            ..Scope::of(&[3])
        });
    }
}

#[test]
fn a_serving_member_is_up_to_date_while_the_quorum_moves() {
    holds(Scope {
        lease: 1,
        moves: 2,
        entries: 5,
        ..Scope::of(&[2, 1])
    });
}

#[test]
fn members_come_and_go_and_lose_their_disks() {
    holds(Scope {
        spares: 1,
        changes: 2,
        moves: 1,
        wipes: 1,
        entries: 6,
        ..Scope::of(&[3])
    });
}

#[test]
fn a_log_that_lost_its_end_elects_no_leader_without_it() {
    // All scopes except the first contain a member without a vote. Such a member also campaigns.
    for (regions, writes, lease, entries) in [
        (&[3][..], 1, 0, 4),
        (&[2, 1], 1, 0, 4),
        (&[3, 1], 0, 0, 4),
        (&[2, 1], 0, 1, 3),
    ] {
        holds(Scope {
            rots: 1,
            writes,
            lease,
            entries,
            ..Scope::of(regions)
        });
    }
}

#[test]
fn a_leader_loses_the_end_of_its_log_while_a_member_gets_its_vote() {
    holds(gets_its_vote());
}

/// A ring to which a leader adds a third member, which then becomes a voter.
fn gets_its_vote() -> Scope {
    Scope {
        spares: 1,
        changes: 1,
        moves: 1,
        rots: 1,
        entries: 5,
        ..Scope::of(&[3])
    }
}

/// A ring that loses its quorum once.
fn lost(regions: &[usize]) -> Scope {
    Scope {
        plans: 1,
        terms: 2,
        terms_after_a_repair: 2,
        entries: 5,
        ..Scope::of(regions)
    }
}

#[test]
fn a_lost_quorum_is_repaired_and_abandoned_members_return() {
    holds(Scope {
        terms_after_a_repair: 3,
        ..lost(&[3])
    });
}

#[test]
fn a_quorum_is_lost_in_the_middle_of_a_move() {
    holds(Scope {
        begins_joint: true,
        moves: 1,
        ..lost(&[2, 1])
    });
}

#[test]
fn a_second_repair_knows_nothing_of_the_first() {
    holds(Scope {
        plans: 2,
        terms: 1,
        entries: 4,
        ..lost(&[1, 2])
    });
}

/// Returns a small scope and a property that fails there without the rule `broken`. `None`: no property fails without the rule.
fn shows(broken: Broken) -> Option<(Scope, &'static str)> {
    let changed = "a committed entry never changes";
    let lacks = "a leader has all committed entries";
    let stale = "nothing stale is served";
    let twice = "one leader per term";
    let differ = "logs match";
    let region = Scope {
        entries: 3,
        ..Scope::of(&[3])
    };
    let moving = Scope {
        writes: 0,
        moves: 2,
        ..Scope::of(&[3, 1])
    };
    let leased = Scope {
        lease: 1,
        ..region.clone()
    };
    let small = |regions: &[usize]| Scope {
        writes: 0,
        ..Scope::of(regions)
    };
    let shown = match broken {
        Broken::CommitOnAMinority | Broken::VoteWithoutTheLogCheck => (region, lacks),
        Broken::CountALearner => (small(&[3, 1]), changed),
        Broken::CommitAnEarlierTerm => {
            let scope = Scope {
                terms: 5,
                writes: 0,
                ..region
            };
            (scope, lacks)
        }
        Broken::AcknowledgeBeforeTheDisk => {
            let scope = Scope {
                restarts: 1,
                ..region
            };
            (scope, changed)
        }
        Broken::SkipTheMetadataSync => {
            let scope = Scope {
                restarts: 1,
                ..region
            };
            (scope, twice)
        }
        Broken::TrustACutTail => (Scope { rots: 1, ..region }, changed),
        Broken::LeaveOutWhoHasNoVote => {
            let scope = Scope {
                rots: 1,
                ..small(&[3, 1])
            };
            (scope, lacks)
        }
        Broken::LeaveOutWhoLooksOn => (gets_its_vote(), lacks),
        Broken::TrustAWipedDisk => (Scope { wipes: 1, ..region }, lacks),
        Broken::ProxyIgnoresTheTerm => (region, differ),
        Broken::RewordMemberships => {
            let scope = Scope {
                moves: 1,
                ..small(&[2, 1])
            };
            (scope, differ)
        }
        Broken::NarrowWithoutTheBarrier => {
            let scope = Scope {
                begins_joint: true,
                terms: 4,
                ..moving
            };
            (scope, lacks)
        }
        Broken::NoJointStep => (Scope { moves: 1, ..moving }, twice),
        Broken::StepBeforeTheLastIsCommitted => (moving, twice),
        Broken::ForgetTheLease => {
            let scope = Scope {
                restarts: 1,
                ..leased
            };
            (scope, stale)
        }
        Broken::RefuseForTheLiving | Broken::ContactIsAsOldAsTheAnswer => (leased, stale),
        Broken::ServeBesideALoneVoter => {
            let scope = Scope {
                lease: 1,
                moves: 2,
                entries: 5,
                ..Scope::of(&[2, 1])
            };
            (scope, stale)
        }
        Broken::ServeThroughATransfer => {
            let scope = Scope {
                transfers: 1,
                ..leased
            };
            (scope, stale)
        }
        Broken::ServeBeforeTheOwnEntry => {
            let scope = Scope {
                writes: 0,
                ..leased
            };
            (scope, stale)
        }
        Broken::BelieveAnySet => {
            let scope = Scope {
                begins_joint: true,
                moves: 1,
                ..lost(&[1, 1])
            };
            (scope, "what is committed and not accepted as lost stays")
        }
        Broken::RepairWithoutAClock => {
            let scope = Scope {
                plans: 2,
                terms: 1,
                writes: 0,
                ..lost(&[1, 2])
            };
            (scope, differ)
        }
        Broken::ElectBehindTheRing => {
            let scope = Scope {
                writes: 0,
                terms: 3,
                entries: 4,
                ..lost(&[3])
            };
            (scope, changed)
        }
        Broken::ForgetAtTheCut => {
            let scope = Scope {
                terms: 2,
                terms_after_a_repair: 3,
                writes: 0,
                ..lost(&[3])
            };
            (scope, changed)
        }
        Broken::FollowBehindTheRing => {
            let scope = Scope {
                begins_joint: true,
                moves: 1,
                ..lost(&[2, 1])
            };
            (scope, changed)
        }
        Broken::TrustTheCommitMark => return None,
    };
    Some(shown)
}

/// To a rejoining member, the log of a repair counts as committed. Each rejoining member of the model first asks a member that has such a
/// log, and truncates its own log before it follows. So no differing entries are left to compare. In the product, a member may have reached
/// no other member; then the comparison is needed.
#[test]
fn a_member_that_asks_has_truncated_the_compared_entries() {
    holds(Scope {
        broken: Some(Broken::TrustTheCommitMark),
        terms_after_a_repair: 3,
        ..lost(&[3])
    });
}

#[test]
fn each_rule_is_needed() {
    for broken in Broken::value_variants() {
        let Some((scope, property)) = shows(*broken) else {
            continue;
        };
        let scope = Scope {
            broken: Some(*broken),
            ..scope
        };
        let checker = RingModel::of(scope).checker().threads(2);
        let found = HasDiscoveries::AnyOf(BTreeSet::from([property]));
        let done = checker.finish_when(found).spawn_bfs().join();
        let path = done.discovery(property);
        let path = path.unwrap_or_else(|| panic!("{broken:?} is not needed for: {property}"));
        println!(
            "without {broken:?}, in {} states: {property}: {:?}",
            done.unique_state_count(),
            path.into_actions()
        );
    }
}
