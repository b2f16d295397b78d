//! Tables of chosen routes. An input is written as lines:
//!
//! ```text
//! edges w1<db w2<w1           the mode; without such a line it is by region
//! hops 2                      the most proxies in a row
//! kept db                     the current proxy of its region
//! apart db w1                 a pair that failed
//! db far database 1000        a member: name, region, kind, entries that it holds (`-`: no answer), reason not to rely on it
//! ```
//!
//! The leader is `me`, in the region `home`. A route is written as `w1: db`, beginning with the proxy next to the leader, or as `w1:
//! direct, since ...`.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use raft_types::{MemberId, MemberKind, Region};

use crate::policy::ProxyMode;
use crate::routes::{Candidate, Route, Scene};

struct Table {
    mode: ProxyMode,
    max_hops: usize,
    home: Region,
    members: BTreeMap<MemberId, Candidate>,
    kept: BTreeMap<Region, MemberId>,
    apart: BTreeSet<(MemberId, MemberId)>,
}

impl Table {
    fn read(text: &str) -> Self {
        let mut table = Self {
            mode: ProxyMode::Region,
            max_hops: 16,
            home: Region("home".to_owned()),
            members: BTreeMap::new(),
            kept: BTreeMap::new(),
            apart: BTreeSet::new(),
        };
        let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
        // The lines of members are read first, because the other lines use their names.
        for line in lines() {
            if let [
                name,
                region,
                kind @ ("database" | "witness"),
                held,
                unfit @ ..,
            ] = line.split_whitespace().collect::<Vec<_>>().as_slice()
            {
                let id = MemberId(table.members.len() as u64 + 2);
                let member = Candidate {
                    name: (*name).to_owned(),
                    region: Region((*region).to_owned()),
                    kind: match *kind {
                        "database" => MemberKind::Database,
                        _ => MemberKind::Witness,
                    },
                    held: held.parse().ok(),
                    unfit: (!unfit.is_empty()).then(|| unfit.join(" ")),
                };
                table.members.insert(id, member);
            }
        }
        for line in lines() {
            table.read_setting(&line.split_whitespace().collect::<Vec<_>>());
        }
        table
    }

    fn read_setting(&mut self, words: &[&str]) {
        match words {
            ["off"] => self.mode = ProxyMode::Off,
            ["edges", edges @ ..] => {
                let edges = edges.iter().map(|edge| edge.split_once('<').unwrap());
                let edges = edges.map(|(to, from)| (to.to_owned(), from.to_owned()));
                self.mode = ProxyMode::Edges(edges.collect());
            }
            ["hops", hops] => self.max_hops = hops.parse().unwrap(),
            ["kept", name] => {
                let id = self.id(name);
                self.kept.insert(self.members[&id].region.clone(), id);
            }
            ["apart", from, to] => {
                self.apart.insert((self.id(from), self.id(to)));
            }
            [_, _, "database" | "witness", ..] => {}
            other => panic!("no line of a scene: {other:?}"),
        }
    }

    fn id(&self, name: &str) -> MemberId {
        let mut members = self.members.iter();
        let found = members.find(|(_, member)| member.name == name);
        *found
            .unwrap_or_else(|| panic!("no member is named {name}"))
            .0
    }

    fn routes(&self) -> Vec<String> {
        let scene = Scene {
            own: MemberId(1),
            own_region: &self.home,
            own_name: "me",
            mode: &self.mode,
            max_hops: self.max_hops,
            members: &self.members,
            apart: &self.apart,
        };
        let name = |id: &MemberId| self.members[id].name.as_str();
        let routes = self.members.keys().map(|id| {
            let route = match scene.route(*id, &self.kept) {
                Route::Direct(because) => format!("direct, since {because}"),
                Route::Through(proxies) => proxies.iter().map(name).collect::<Vec<_>>().join(" "),
            };
            format!("{}: {route}", name(id))
        });
        routes.collect()
    }
}

#[track_caller]
fn expect(scene: &str, routes: &[&str]) {
    assert_eq!(Table::read(scene).routes(), routes, "{scene}");
}

const PROXY: &str = "since it is the proxy of its region";

#[test]
fn a_region_gets_its_entries_through_its_database_member() {
    expect(
        "near home witness 1000
         db   far  database 1000
         w1   far  witness 1000
         w2   far  witness 1000
         lone other database 1000",
        &[
            "near: direct, since it is in the leader's region",
            &format!("db: direct, {PROXY}"),
            "w1: db",
            "w2: db",
            "lone: direct, since it is alone in its region",
        ],
    );
}

#[test]
fn the_proxy_is_a_database_member_with_nearly_the_longest_log() {
    // The logs are close enough, so the database member is chosen. The witnesses have longer logs and smaller numbers.
    expect(
        "w1 far witness 2000
         w2 far witness 1500
         db far database 1000",
        &["w1: db", "w2: db", &format!("db: direct, {PROXY}")],
    );
    // The database member lags too far, so the witness is chosen.
    expect(
        "w1 far witness 2001
         w2 far witness 1000
         db far database 1000",
        &[&format!("w1: direct, {PROXY}"), "w2: w1", "db: w1"],
    );
    // Among witnesses, the one with the longest log is chosen, even with the larger number.
    expect(
        "w1 far witness 10
         w2 far witness 5000",
        &["w1: w2", &format!("w2: direct, {PROXY}")],
    );
}

#[test]
fn the_proxy_stays_while_it_is_suitable() {
    let far = |held: u64| {
        format!(
            "kept w
             v  far witness 3000
             w  far witness {held}
             x  far witness 3000"
        )
    };
    let stays = ["v: w", &format!("w: direct, {PROXY}"), "x: w"];
    expect(&far(2000), &stays);
    // The proxy lags further than a newly chosen proxy may, but not far enough to be replaced.
    let table = Table::read(&far(1000));
    assert_eq!(
        table.routes(),
        [
            "v: direct, since member 3 cannot forward to it: it is 2000 entries behind it",
            &format!("w: direct, {PROXY}"),
            "x: direct, since member 3 cannot forward to it: it is 2000 entries behind it",
        ]
    );
    expect(&far(999), &[&format!("v: direct, {PROXY}"), "w: v", "x: v"]);
    expect(
        "kept w
         v  far witness 3000
         w  far witness 3000 it is gone
         x  far witness 3000",
        &[&format!("v: direct, {PROXY}"), "w: v", "x: v"],
    );
}

#[test]
fn a_database_member_with_as_many_entries_replaces_a_witness() {
    let far = |held: u64| {
        format!(
            "kept w
             db far database {held}
             w  far witness 3000
             x  far witness 3000"
        )
    };
    expect(
        &far(2000),
        &[&format!("db: direct, {PROXY}"), "w: db", "x: db"],
    );
    expect(
        &far(1999),
        &["db: w", &format!("w: direct, {PROXY}"), "x: w"],
    );
}

#[test]
fn members_without_an_answer_and_failed_ones_do_not_forward() {
    expect(
        "db far database -
         w  far witness 7
         x  far witness -",
        &["db: w", &format!("w: direct, {PROXY}"), "x: w"],
    );
    expect(
        "db far database -
         w  far witness -",
        &[
            "db: direct, since member 3 cannot forward to it: it has not answered this leader yet",
            "w: direct, since member 2 cannot forward to it: it has not answered this leader yet",
        ],
    );
    expect(
        "db far database 9 it was silent
         w  far witness -",
        &[
            "db: direct, since member 3 cannot forward to it: it has not answered this leader yet",
            "w: direct, since member 2 cannot forward to it: it was silent",
        ],
    );
}

#[test]
fn a_failed_link_is_avoided_and_its_proxy_is_not() {
    expect(
        "apart db w1
         db far database 9
         w1 far witness 9
         w2 far witness 9",
        &[
            &format!("db: direct, {PROXY}"),
            "w1: direct, since member 2 cannot forward to it: it failed to, a moment ago",
            "w2: db",
        ],
    );
}

#[test]
fn a_member_far_ahead_of_the_proxy_gets_entries_directly() {
    // The member with the longer log cannot be the proxy, because it no longer answers.
    let scene = |held: u64| {
        format!(
            "db far database 1000
             w  far witness {held} it does not answer"
        )
    };
    expect(&scene(2000), &[&format!("db: direct, {PROXY}"), "w: db"]);
    expect(
        &scene(2001),
        &[
            &format!("db: direct, {PROXY}"),
            "w: direct, since member 2 cannot forward to it: it is 1001 entries behind it",
        ],
    );
}

#[test]
fn nothing_is_proxied_when_it_is_off() {
    expect(
        "off
         db far database 9
         w  far witness 9",
        &[
            "db: direct, since proxying is off",
            "w: direct, since proxying is off",
        ],
    );
}

#[test]
fn edges_are_followed_from_the_leader_to_the_member() {
    expect(
        "edges b<a c<b d<c
         a home witness 9
         b far database 9
         c far witness 9
         d home witness 9",
        &[
            "a: direct, since no edge leads to it",
            "b: a",
            "c: a b",
            "d: a b c",
        ],
    );
}

#[test]
fn the_chain_begins_after_the_leader() {
    expect(
        "edges me<a b<me c<b d<c
         a home witness 9
         b far database 9
         c far witness 9
         d far witness 9",
        &[
            "a: direct, since no edge leads to it",
            "b: direct, since no edge leads to it",
            "c: b",
            "d: b c",
        ],
    );
}

#[test]
fn an_unsuitable_hop_is_skipped() {
    let chain = |a: &str, b: &str, apart: &str| {
        format!(
            "edges b<a c<b
             {apart}
             a far database 9 {a}
             b far witness 9 {b}
             c far witness 9"
        )
    };
    let first = "a: direct, since no edge leads to it";
    expect(&chain("", "", ""), &[first, "b: a", "c: a b"]);
    expect(&chain("", "it is gone", ""), &[first, "b: a", "c: a"]);
    expect(
        &chain("it is gone", "", ""),
        &[
            first,
            "b: direct, since member 2 cannot forward to it: it is gone",
            "c: b",
        ],
    );
    expect(
        &chain("it is gone", "it is slow", ""),
        &[
            first,
            "b: direct, since member 2 cannot forward to it: it is gone",
            "c: direct, since member 3 cannot forward to it: it is slow",
        ],
    );
    expect(&chain("", "", "apart b c"), &[first, "b: a", "c: a"]);
    expect(
        &chain("", "", "apart a b"),
        &[
            first,
            "b: direct, since member 2 cannot forward to it: it failed to, a moment ago",
            "c: b",
        ],
    );
}

#[test]
fn members_after_an_unknown_name_get_entries_from_the_leader() {
    expect(
        "edges b<stranger c<b
         b far database 9
         c far witness 9",
        &["b: direct, since no edge leads to it", "c: b"],
    );
}

#[test]
fn no_route_is_longer_than_the_limit() {
    let chain = |hops: usize| {
        format!(
            "hops {hops}
             edges b<a c<b d<c
             a far database 9
             b far witness 9
             c far witness 9
             d far witness 9"
        )
    };
    let first = "a: direct, since no edge leads to it";
    expect(&chain(2), &[first, "b: a", "c: a b", "d: b c"]);
    expect(&chain(1), &[first, "b: a", "c: b", "d: c"]);
    let off = ["a", "b", "c", "d"].map(|name| format!("{name}: direct, since proxying is off"));
    assert_eq!(Table::read(&chain(0)).routes(), off);
}

// Property of every input: a route ends at its target.

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

/// Returns all members except the leader, which is member 1.
fn members() -> impl Strategy<Value = BTreeMap<MemberId, Candidate>> {
    (2..=MOST).prop_flat_map(|last| {
        let members: Vec<_> = (2..=last).map(candidate).collect();
        members.prop_map(|members| (2..).map(MemberId).zip(members).collect())
    })
}

/// Returns modes with names of members, and some names outside the ring. The edges may contain circles, because a leader with an invalid
/// configuration must not follow them forever.
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
    fn routes_are_short_and_without_repeated_or_unsuitable_members(
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
