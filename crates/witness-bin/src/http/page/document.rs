//! `GET /ring`: the ring at one moment, with all data that the page shows. Pure.

use std::collections::BTreeSet;

use consensus::quorum::majority_of;
use member::status::{MemberView, QuorumView};
use raft_types::{MemberId, MemberKind, OpId, Region};
use serde::Serialize;

use crate::operator::events::Events;
use crate::operator::{Hop, MemberReport, RingReport, hops};
use crate::text::Level;
use crate::text::event::Event;
use crate::text::member::{mysqld, notes, role};
use crate::text::ring::{self, explained};

/// See the module. Fields are only ever added.
#[derive(Debug, Serialize)]
pub(super) struct RingDocument {
    pub(super) ring: String,
    /// The time of the member that answers, in milliseconds since 1970.
    pub(super) now_ms: u64,
    /// The member that answers.
    pub(super) seen_by: String,
    pub(super) version: String,
    pub(super) uptime_seconds: f64,
    /// The leader that has a quorum.
    pub(super) leader: Option<MemberId>,
    pub(super) quorum: QuorumView,
    /// The sentence about the quorum: its beginning, and the rest.
    pub(super) verdict: (&'static str, String),
    /// A quorum that tolerates no more failures is not good.
    pub(super) verdict_level: Level,
    /// How many more voters may fail, in the worst case, before commits wait; nothing without a leader.
    pub(super) tolerates: Option<usize>,
    pub(super) policy: String,
    /// What a commit waits for, in sentences; empty without a leader.
    pub(super) commit: Vec<String>,
    /// The members that can be elected now, in sentences.
    pub(super) elections: Vec<String>,
    /// The current voter sets; a commit needs a number of voters of each.
    pub(super) voter_sets: Vec<VoterSet>,
    /// Warnings, in sentences.
    pub(super) warnings: Vec<String>,
    pub(super) members: Vec<RingMember>,
    /// The path of log entries, hop by hop; empty without a leader.
    pub(super) hops: Vec<Hop>,
    /// Events that this member observed, the newest first.
    pub(super) events: Vec<Event>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct VoterSet {
    pub(super) members: BTreeSet<MemberId>,
    pub(super) required: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct RingMember {
    pub(super) id: MemberId,
    pub(super) name: String,
    pub(super) region: Region,
    pub(super) kind: MemberKind,
    pub(super) address: String,
    /// Whether it may vote.
    pub(super) votes: bool,
    /// Whether commits count its answer now.
    pub(super) in_quorum: bool,
    /// Its part in the quorum, as text.
    pub(super) vote: &'static str,
    pub(super) leads: bool,
    /// Whether it answered the member that serves this page.
    pub(super) answers: bool,
    /// Its role in the ring; `None` while it does not answer.
    pub(super) role: Option<String>,
    /// The state of its mysqld; `None` for a witness.
    pub(super) mysqld: Option<String>,
    pub(super) lag_entries: Option<u64>,
    /// Its mysqld's lag behind the ring's commits.
    pub(super) lag_ms: Option<u64>,
    pub(super) term: Option<u64>,
    pub(super) log_end: Option<OpId>,
    pub(super) committed: Option<OpId>,
    pub(super) log_file: Option<String>,
    pub(super) log_file_bytes: Option<u64>,
    pub(super) mysqld_version: Option<String>,
    pub(super) version: Option<String>,
    pub(super) uptime_seconds: Option<f64>,
}

impl RingDocument {
    pub(super) fn new(now_ms: u64, own: &MemberView, report: &RingReport, events: &Events) -> Self {
        let explained = explained(report);
        let verdict = ring::quorum(report);
        let leader = report.leader_view();
        // Without a leader: the voters in this member's log.
        let ring = leader.unwrap_or(own);
        let counted: BTreeSet<_> = ring.voter_sets.iter().flatten().copied().collect();
        let voter_sets = ring.voter_sets.iter().map(|set| VoterSet {
            members: set.clone(),
            required: majority_of(set.len()),
        });
        let members = report.members.iter();
        Self {
            ring: report.ring.clone(),
            now_ms,
            seen_by: own.member.name.clone(),
            version: own.version.clone(),
            uptime_seconds: own.uptime_seconds,
            leader: report.leader,
            quorum: report.quorum.clone(),
            verdict: (verdict.begins, verdict.rest),
            verdict_level: verdict.level,
            tolerates: report.tolerates,
            policy: ring.rules.policy.to_string(),
            commit: explained.commit,
            elections: explained.elections,
            voter_sets: voter_sets.collect(),
            warnings: warnings(report),
            members: members.map(|one| member(one, report, &counted)).collect(),
            hops: leader.map(hops).unwrap_or_default(),
            events: events.kept().rev().cloned().collect(),
        }
    }
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

fn member(of: &MemberReport, report: &RingReport, counted: &BTreeSet<MemberId>) -> RingMember {
    let view = of.view.as_ref();
    let mysql = view.and_then(|view| view.mysql.as_ref());
    RingMember {
        id: of.id,
        name: of.name.clone(),
        region: of.region.clone(),
        kind: of.kind,
        address: of.address.clone(),
        votes: of.votes,
        in_quorum: counted.contains(&of.id),
        vote: vote(of, report, counted),
        leads: report.leader == Some(of.id),
        answers: view.is_some(),
        role: view.map(|view| role(view, report)),
        mysqld: mysql.map(mysqld),
        lag_entries: of.lag_entries,
        lag_ms: mysql.and_then(|mysql| mysql.lag_ms),
        term: view.map(|view| view.term),
        log_end: view.and_then(|view| view.log_end),
        committed: view.and_then(|view| view.committed),
        log_file: view.map(|view| view.log.file.clone()),
        log_file_bytes: view.map(|view| view.log.file_bytes),
        mysqld_version: mysql.and_then(|mysql| mysql.version.clone()),
        version: view.map(|view| view.version.clone()),
        uptime_seconds: view.map(|view| view.uptime_seconds),
    }
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
    use serde_json::{Value, json};

    use super::*;
    use crate::operator::Asked;

    fn document(own: &MemberView, asked: Vec<Asked>) -> Value {
        let report = RingReport::new("orders", asked);
        let document = RingDocument::new(1_000, own, &report, &Events::default());
        serde_json::to_value(document).unwrap()
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
