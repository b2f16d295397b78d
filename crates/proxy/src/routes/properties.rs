//! What holds for every scene: a route leads somewhere.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use raft_types::{MemberId, MemberKind, Region};

use super::{Candidate, Scene};
use crate::policy::ProxyMode;

const MOST: u64 = 8;

fn name(id: u64) -> String {
    format!("member-{id}")
}

fn region() -> impl Strategy<Value = Region> {
    (0..3).prop_map(|number| Region(format!("region-{number}")))
}

fn candidate(id: u64) -> impl Strategy<Value = Candidate> {
    let kind = prop_oneof![Just(MemberKind::Database), Just(MemberKind::Witness)];
    let held = proptest::option::weighted(0.9, 0..5000_u64);
    let unfit = proptest::option::weighted(0.2, Just("it is unfit".to_owned()));
    (region(), kind, held, unfit).prop_map(move |(region, kind, held, unfit)| Candidate {
        name: name(id),
        region,
        kind,
        held,
        unfit,
    })
}

/// All members but the leader, which is member 1.
fn members() -> impl Strategy<Value = BTreeMap<MemberId, Candidate>> {
    (2..=MOST).prop_flat_map(|last| {
        let members: Vec<_> = (2..=last).map(candidate).collect();
        members.prop_map(|members| (2..).map(MemberId).zip(members).collect())
    })
}

/// Names of members, and of some that are in no ring. Circles are among the edges: a leader that was given nonsense must not
/// follow it.
fn mode() -> impl Strategy<Value = ProxyMode> {
    let edges = proptest::collection::btree_map(1..MOST + 3, 1..MOST + 3, 0..10);
    let edges = edges.prop_map(|edges| edges.into_iter().map(|(to, from)| (name(to), name(from))));
    prop_oneof![
        Just(ProxyMode::Region),
        edges.prop_map(|edges| ProxyMode::Edges(edges.collect())),
    ]
}

fn kept() -> impl Strategy<Value = BTreeMap<Region, MemberId>> {
    proptest::collection::btree_map(region(), (1..MOST + 2).prop_map(MemberId), 0..3)
}

fn apart() -> impl Strategy<Value = BTreeSet<(MemberId, MemberId)>> {
    let member = || (1..MOST + 1).prop_map(MemberId);
    proptest::collection::btree_set((member(), member()), 0..6)
}

proptest! {
    #[test]
    fn a_way_is_short_and_names_nobody_twice_and_nobody_who_is_unfit(
        members in members(),
        mode in mode(),
        own_region in region(),
        max_hops in 0..5_usize,
        kept in kept(),
        apart in apart(),
    ) {
        let own = MemberId(1);
        let own_name = name(1);
        let scene = Scene {
            own,
            own_region: &own_region,
            own_name: &own_name,
            mode: &mode,
            max_hops,
            members: &members,
            apart: &apart,
        };
        for target in members.keys() {
            let route = scene.route(*target, &kept);
            let proxies = route.proxies();
            prop_assert!(proxies.len() <= max_hops, "{route:?}");
            prop_assert!(!proxies.contains(&own) && !proxies.contains(target), "{route:?}");
            let different: BTreeSet<_> = proxies.iter().collect();
            prop_assert_eq!(different.len(), proxies.len(), "{:?}", &route);
            for proxy in proxies {
                let proxy = &members[proxy];
                prop_assert!(proxy.unfit.is_none() && proxy.held.is_some(), "{route:?}");
            }
            let links = proxies.iter().zip(proxies.iter().skip(1).chain([target]));
            for (from, to) in links {
                prop_assert!(!apart.contains(&(*from, *to)), "{route:?}");
            }
        }
    }
}
