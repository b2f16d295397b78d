//! The choice of proxies for a run.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use proxy::{ProxyMode, ProxyOptions};
use raft_types::MemberId;

use super::MemberShape;
use crate::dice::pick;

/// The maximum number of hops in the configured edges.
const LONGEST: usize = 3;

/// Chooses the proxy options. A third of the seeds has no proxies. The shorter waits are about as long as a round trip to another region,
/// so that leaders stop using proxies even without a fault.
pub(super) fn choose(members: &BTreeMap<MemberId, MemberShape>, dice: &mut Rng) -> ProxyOptions {
    let mode = match dice.u32(0..3) {
        0 => ProxyMode::Off,
        _ if can_be_by_region(members) && dice.u32(0..3) > 0 => ProxyMode::Region,
        _ => ProxyMode::Edges(edges(members, dice)),
    };
    ProxyOptions {
        mode,
        wait: Duration::from_millis(*pick(dice, &[50, 100, 200, 500])),
        max_hops: LONGEST,
    }
}

/// Returns whether a region other than the first has a member that can be a proxy for another one.
fn can_be_by_region(members: &BTreeMap<MemberId, MemberShape>) -> bool {
    let there = || members.values().filter(|member| !member.spare);
    let regions = || there().map(|member| &member.record.region);
    let first = regions().next();
    regions().any(|region| {
        Some(region) != first && regions().filter(|other| *other == region).count() > 1
    })
}

/// Returns edges between the members, in random order. Each member except the first receives from an earlier one. The first three are a
/// chain, so that the first has a route with two proxies as leader.
fn edges(members: &BTreeMap<MemberId, MemberShape>, dice: &mut Rng) -> BTreeMap<String, String> {
    let mut names: Vec<&String> = members.values().map(|member| &member.record.name).collect();
    dice.shuffle(&mut names);
    let mut placed: Vec<(&String, usize)> = Vec::new();
    let mut edges = BTreeMap::new();
    for name in names {
        let near: Vec<_> = placed.iter().filter(|(_, hops)| *hops < LONGEST).collect();
        let from = match placed.len() {
            0 => None,
            1 | 2 => placed.last(),
            _ => Some(*pick(dice, &near)),
        };
        let hops = from.map_or(0, |(_, hops)| hops + 1);
        if let Some((from, _)) = from {
            edges.insert(name.clone(), (*from).clone());
        }
        placed.push((name, hops));
    }
    edges
}

#[cfg(test)]
mod tests {
    use proxy::check_edges;

    use super::*;
    use crate::faults::Stress;
    use crate::shape::Shape;

    #[test]
    fn all_edges_are_usable_and_some_routes_have_two_proxies() {
        let (mut off, mut by_region, mut in_a_row) = (0, 0, 0);
        for seed in 0..300 {
            let mut dice = Rng::with_seed(seed);
            let shape = Shape::choose(Stress::Everything, &mut dice);
            match &shape.proxies.mode {
                ProxyMode::Off => off += 1,
                ProxyMode::Region => by_region += 1,
                ProxyMode::Edges(edges) => {
                    assert_eq!(check_edges(edges, LONGEST), Ok(()), "seed {seed}");
                    let from = |name: &String| edges.get(name);
                    let two = edges.values().filter(|name| from(name).is_some());
                    in_a_row += usize::from(two.count() > 0);
                }
            }
        }
        assert!((70..130).contains(&off), "{off} seeds without proxies");
        assert!(
            by_region > 20 && in_a_row > 50,
            "{by_region} by region, {in_a_row} with two in a row"
        );
    }
}
