//! The planner over the table in `testdata/quorum_plans.txt`.

use std::collections::BTreeSet;

use raft_types::{MemberId, Region};

use super::plan::{QuorumPlan, plan};
use super::policy::{QuorumPolicy, RingRules, VoterSets};
use crate::ring_view::tests::{LEASE, Ring};

struct Case {
    rules: RingRules,
    ring: Ring,
    home: Region,
}

fn policy(text: &str) -> QuorumPolicy {
    let regions = text
        .strip_prefix("regions(")
        .and_then(|text| text.strip_suffix(')'));
    match (text, regions) {
        ("majority", _) => QuorumPolicy::Majority,
        (_, None) if text.contains(" of regions(") => {
            let (required, of) = text.split_once(" of ").unwrap();
            let QuorumPolicy::Regions(regions) = policy(of) else {
                panic!("no policy `{text}`");
            };
            let required = required.parse().unwrap();
            QuorumPolicy::SomeRegions { required, regions }
        }
        ("single-region-dynamic", _) => QuorumPolicy::SingleRegionDynamic,
        (_, Some(regions)) => {
            let names = regions.split(", ").map(|name| Region(name.to_owned()));
            QuorumPolicy::Regions(names.collect())
        }
        _ => panic!("no policy `{text}`"),
    }
}

/// A policy and, behind `expecting`, how many voters regions should have.
fn rules(text: &str) -> RingRules {
    let (policy_text, expected) = text.split_once(" expecting ").unwrap_or((text, ""));
    let expected = expected.split_whitespace().map(|one| {
        let (region, voters) = one.split_once('=').unwrap();
        (Region(region.to_owned()), voters.parse().unwrap())
    });
    RingRules {
        expected_voters: expected.collect(),
        ..policy(policy_text).into()
    }
}

fn sets(text: &str) -> VoterSets {
    let ids = |set: &str| {
        set.split_whitespace()
            .map(|id| MemberId(id.parse().unwrap()))
            .collect()
    };
    let sets = text.split('{').skip(1);
    sets.map(|set| ids(set.split('}').next().unwrap()))
        .collect()
}

fn shown(sets: &[BTreeSet<MemberId>]) -> String {
    let set = |set: &BTreeSet<MemberId>| {
        let ids: Vec<String> = set.iter().map(MemberId::to_string).collect();
        format!("{{{}}}", ids.join(" "))
    };
    sets.iter().map(set).collect::<Vec<_>>().join(" ")
}

fn case(line: &str) -> Case {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [rules_text, members, in_force, home, troubles] = columns[..] else {
        panic!("five columns in `{line}`");
    };
    let (sets_text, leader) = in_force.rsplit_once('}').unwrap();
    let in_force = sets(&format!("{sets_text}}}"));
    let numbers: Vec<Vec<u64>> = in_force
        .iter()
        .map(|set| set.iter().map(|id| id.0).collect())
        .collect();
    let numbers: Vec<&[u64]> = numbers.iter().map(Vec::as_slice).collect();
    let mut ring = Ring::new(&members.replace(';', "|"))
        .led_by(leader.trim().parse().unwrap())
        .with_sets(&numbers);
    for trouble in troubles.split_whitespace() {
        ring = match (trouble.strip_suffix('?'), trouble.split_once('<')) {
            (Some(id), _) => ring.silent(&[id.parse().unwrap()]),
            (None, Some((id, behind))) => ring.with(id.parse().unwrap(), |standing| {
                standing.behind = Some(behind.parse().unwrap());
            }),
            (None, None) => panic!("no trouble `{trouble}`"),
        };
    }
    Case {
        rules: rules(rules_text),
        ring,
        home: Region(home.to_owned()),
    }
}

#[test]
fn every_row_is_planned_as_it_says() {
    let mut wrong = Vec::new();
    let table = include_str!("../../testdata/quorum_plans.txt");
    let rows = table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in rows {
        let (given, expected) = line.split_once("=>").unwrap();
        let Case { rules, ring, home } = case(given);
        let planned = match plan(&rules, &ring.view(), &home, LEASE) {
            QuorumPlan::Settled => "settled".to_owned(),
            QuorumPlan::Step { next } => shown(&next),
            QuorumPlan::Blocked { why } => format!("blocked: {why}"),
        };
        if planned != expected.trim() {
            wrong.push(format!("{line}\n  is planned as: {planned}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
