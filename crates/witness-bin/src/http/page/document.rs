//! `GET /ring`: the ring at one moment, with all data that the page shows. Pure.

use std::collections::BTreeSet;

use consensus::quorum::majority_of;
use member::status::MemberView;
use raft_types::MemberId;
use serde_json::{Value, json};

use crate::operator::events::Events;
use crate::operator::{MemberReport, RingReport, hops};
use crate::text::event::Event;
use crate::text::member::{mysqld, notes, role};
use crate::text::ring::{self, explained};

/// See the module. Fields are only ever added. `own` is the member that answers; times are its own.
pub(super) fn ring_document(
    now_ms: u64,
    own: &MemberView,
    report: &RingReport,
    events: &Events,
) -> Value {
    let explained = explained(report);
    let verdict = ring::quorum(report);
    let leader = report.leader_view();
    // Without a leader: the voters in this member's log.
    let ring = leader.unwrap_or(own);
    let counted: BTreeSet<_> = ring.voter_sets.iter().flatten().copied().collect();
    // A commit needs a number of voters of each.
    let voter_sets = ring.voter_sets.iter();
    let voter_sets =
        voter_sets.map(|set| json!({ "members": set, "required": majority_of(set.len()) }));
    let members = report.members.iter();
    let members = members.map(|one| member(one, report, &counted));
    let seen = events.kept().rev().map(|Event { at_ms, change }| {
        json!({ "at_ms": at_ms, "level": change.level(), "text": change.to_string() })
    });
    json!({
        "ring": report.ring,
        "now_ms": now_ms,
        "seen_by": own.member.name,
        "version": own.version,
        "uptime_seconds": own.uptime_seconds,
        "leader": report.leader,
        "quorum": report.quorum,
        // The sentence about the quorum: its beginning, and the rest.
        "verdict": [verdict.begins, &verdict.rest],
        "verdict_level": verdict.level,
        "tolerates": report.tolerates,
        "policy": ring.rules.policy.to_string(),
        "commit": explained.commit,
        "elections": explained.elections,
        "voter_sets": voter_sets.collect::<Vec<_>>(),
        "warnings": warnings(report),
        "members": members.collect::<Vec<_>>(),
        // The path of log entries; empty without a leader.
        "hops": leader.map(hops).unwrap_or_default(),
        // Those that this member observed, the newest first.
        "events": seen.collect::<Vec<_>>(),
    })
}

/// Contradictions, the pause, and the notes on each member.
fn warnings(report: &RingReport) -> Vec<String> {
    let mut warnings = report.warnings.clone();
    warnings.extend(ring::pause(report));
    for member in &report.members {
        let notes = notes(member).into_iter();
        warnings.extend(notes.map(|note| format!("`{}`: {note}", member.name)));
    }
    warnings
}

/// What only a member itself knows is null while it does not answer.
fn member(of: &MemberReport, report: &RingReport, counted: &BTreeSet<MemberId>) -> Value {
    let view = of.view.as_ref();
    let mysql = view.and_then(|view| view.mysql.as_ref());
    json!({
        "id": of.id,
        "name": of.name,
        "region": of.region,
        "kind": of.kind,
        "address": of.address,
        // Whether it may vote, and whether commits count its answer now.
        "votes": of.votes,
        "in_quorum": counted.contains(&of.id),
        "vote": vote(of, report, counted),
        "leads": report.leader == Some(of.id),
        "answers": view.is_some(),
        "role": view.map(|view| role(view, report)),
        "mysqld": mysql.map(mysqld),
        "lag_entries": of.lag_entries,
        "lag_ms": mysql.and_then(|mysql| mysql.lag_ms),
        "term": view.map(|view| view.term),
        "log_end": view.and_then(|view| view.log_end),
        "committed": view.and_then(|view| view.committed),
        "log_file": view.map(|view| &view.log.file),
        "log_file_bytes": view.map(|view| view.log.file_bytes),
        "mysqld_version": mysql.and_then(|mysql| mysql.version.as_ref()),
        "version": view.map(|view| &view.version),
        "uptime_seconds": view.map(|view| view.uptime_seconds),
    })
}

/// A current voter that does not answer is not part of the majority that commits.
fn vote(of: &MemberReport, report: &RingReport, counted: &BTreeSet<MemberId>) -> &'static str {
    let leader = report.leader_view();
    let mut sets = leader.iter().flat_map(|view| &view.voter_set_health);
    let silent = of.view.is_none() || sets.any(|set| set.silent.contains(&of.id));
    match (counted.contains(&of.id), of.votes) {
        (true, _) if silent => "voter, does not answer",
        (true, _) => "in the quorum",
        (false, true) => "not in the quorum",
        (false, false) => "no vote",
    }
}

#[cfg(test)]
mod tests {
    use member::status::sample::{database_leader, witness_follower};
    use proxy::RouteView;

    use super::*;
    use crate::operator::Asked;

    fn document(own: &MemberView, asked: Vec<Asked>) -> Value {
        let report = RingReport::new("orders", asked);
        ring_document(1_000, own, &report, &Events::default())
    }

    fn silent() -> Result<MemberView, String> {
        Err("connection refused".to_owned())
    }

    #[test]
    fn the_document_has_what_the_page_draws() {
        let mut leader = database_leader();
        let routes = leader.replication_routes.as_mut().unwrap();
        let route = |member, through: &[u64]| RouteView {
            member: MemberId(member),
            through: through.iter().copied().map(MemberId).collect(),
            because: None,
        };
        routes.routes = vec![route(2, &[]), route(3, &[2])];
        let members = vec![
            Asked::sample(1, "db-1", Ok(leader)),
            Asked::sample(2, "witness-1", Ok(witness_follower())),
            Asked::sample(3, "witness-2", silent()),
        ];
        let seen = document(&witness_follower(), members);
        assert_eq!(seen["leader"], 1);
        let rest = ", `db-1` leads ring `orders`; it tolerates 1 more failure, but not of `db-1`, the only database member";
        assert_eq!(seen["verdict"][1], rest);
        assert_eq!(
            (&seen["tolerates"], &seen["verdict_level"]),
            (&json!(1), &json!("good"))
        );
        assert_eq!(
            seen["voter_sets"],
            json!([{ "members": [1, 2, 3], "required": 2 }])
        );
        assert_eq!(
            seen["hops"],
            json!([{ "from": 1, "to": 2 }, { "from": 2, "to": 3 }])
        );
        assert_eq!(
            seen["warnings"],
            json!(["`witness-2`: no answer: connection refused. See the runbook lost-member"])
        );
        let brief = |at: usize| {
            let member = &seen["members"][at];
            let keys = ["name", "leads", "answers", "role", "mysqld", "vote"];
            keys.map(|key| member[key].clone())
        };
        let expected = json!([
            ["db-1", true, true, "leader", "primary", "in the quorum"],
            ["witness-1", false, true, "follower", null, "in the quorum"],
            [
                "witness-2",
                false,
                false,
                null,
                null,
                "voter, does not answer"
            ],
        ]);
        assert_eq!(json!([brief(0), brief(1), brief(2)]), expected);
    }

    #[test]
    fn without_a_leader_it_says_why_and_what_to_do_and_whom_it_knows() {
        let mut own = witness_follower();
        own.leader = None;
        let members = vec![
            Asked::sample(1, "db-1", silent()),
            Asked::sample(2, "witness-1", Ok(own.clone())),
            Asked::sample(3, "witness-2", silent()),
        ];
        let seen = document(&own, members);
        assert_eq!(seen["leader"], Value::Null);
        assert_eq!(seen["verdict"][0], "No quorum");
        assert_eq!(
            seen["verdict"][1],
            ": 1 of 3 voters answer and 2 are needed. Commits wait."
        );
        let fix = seen["quorum"]["fix"].as_str().unwrap();
        assert!(fix.contains("start witness on `db-1`"), "{fix}");
        assert_eq!(seen["voter_sets"][0]["members"], json!([1, 2, 3]));
        assert_eq!(seen["members"].as_array().map(Vec::len), Some(3));
    }
}
