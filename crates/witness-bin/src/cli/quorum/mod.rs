//! `witness quorum`: voters, reachable voters and blockers of commits in each region; changes of the rules, and the repair of a permanently
//! lost quorum.

mod fix;
mod set;

use std::time::Duration;

use consensus::quorum::{RegionQuorum, region_quorums};
use consensus::{RingMember, RingView};
use member::status::MemberView;
use raft_types::MemberId;
use serde_json::{Value, json};

use crate::cli::session::QueryArgs;
use crate::operator::{Directory, RingReport};
use crate::terminal::{Attempt, Exit, Format, Table, cell, print, yes_no};
use crate::text::{capitalized, ring};

/// Actions on the quorum.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum QuorumCommand {
    /// Show for each region who votes, who answers, and who holds commits back
    Show(QueryArgs),
    /// Change what commits wait for, while the ring runs
    Set(set::SetArgs),
    /// Repair a quorum that is permanently lost; shows the evidence and the plan, and changes nothing without --apply
    Fix(fix::FixArgs),
}

/// Runs `witness quorum …`.
///
/// # Errors
/// Those of each subcommand.
pub(crate) fn run(command: &QuorumCommand, format: Format) -> Attempt {
    match command {
        QuorumCommand::Show(query) => show(query, format),
        QuorumCommand::Set(args) => set::run(args, format),
        QuorumCommand::Fix(args) => fix::run(args, format),
    }
}

/// Runs `witness quorum show`.
///
/// # Errors
/// Exit 3 when no member answers, or none leads with a quorum.
fn show(query: &QueryArgs, format: Format) -> Attempt {
    let (report, directory) = query.answers()?;
    let (json, page) = shown(&report, &directory);
    print(format, &json, || page)?;
    Exit::NoQuorum.unless(report.quorum.ok)
}

/// The document, and the page.
fn shown(report: &RingReport, directory: &Directory) -> (Value, String) {
    let views = report.views().filter(|view| !view.members.is_empty());
    let latest = views.max_by_key(|view| view.log_end);
    let leader = report.leader_view();
    // As seen by the leader; without a leader, from the answers of all members.
    let seen = leader.or(latest);
    let regions = match (leader, latest) {
        (Some(leader), _) => leader.regions.clone(),
        (None, Some(latest)) => from_outside(report, latest),
        (None, None) => Vec::new(),
    };
    let policy = seen.map_or_else(String::new, |view| view.rules.policy.to_string());
    let explanation = leader.and_then(|view| view.explanation.as_ref());
    // The requirements of a commit, and the leader's intended change of the quorum.
    let commit = explanation.map(|why| directory.with_names(&why.commit));
    let wanted = explanation.and_then(|why| why.quorum.as_ref());
    let wanted = wanted.map(|wanted| directory.with_names(wanted));
    let json = json!({
        "ring": report.ring,
        "leader": report.leader,
        "policy": policy,
        "voter_sets": seen.map_or(&[][..], |view| &view.voter_sets),
        "regions": regions,
        "commit": commit,
        "wanted": wanted,
        "cause": report.quorum.cause,
        "fix": report.quorum.fix,
        "warnings": report.warnings,
    });
    let mut table =
        Table::titled("Region Voters Healthy Required Decides Majority_has Any_has Held_back_by");
    for region in &regions {
        table.row(vec![
            region.region.to_string(),
            region.voters.len().to_string(),
            region.healthy.len().to_string(),
            region.required.to_string(),
            yes_no(region.in_force),
            cell(region.held_by_majority),
            cell(region.held_by_any),
            cell(region.held_back_by.map(|id| directory.name(id))),
        ]);
    }
    let mut lines = Vec::new();
    if let Some(leader) = report.leader {
        let leader = directory.name(leader);
        let ring = &report.ring;
        lines.push(format!(
            "{leader} leads ring `{ring}`; the policy is {policy}"
        ));
    } else {
        let said = ring::quorum(report);
        lines.push(format!("{}{}", said.begins, said.rest));
        let fix = report.quorum.fix.as_ref();
        lines.extend(fix.map(|fix| format!("To fix it: {fix}")));
    }
    lines.extend(
        [commit, wanted]
            .iter()
            .flatten()
            .map(|text| capitalized(text)),
    );
    let warnings = report.warnings.iter();
    lines.extend(warnings.map(|warning| format!("Warning: {warning}")));
    (json, format!("{table}\n{}\n", lines.join("\n")))
}

/// Without a leader: the members that just answered, and the end of each log.
fn from_outside(report: &RingReport, latest: &MemberView) -> Vec<RegionQuorum> {
    let view_of = |id: MemberId| report.member(id)?.view.as_ref();
    let members = latest.members.iter().map(|logged| RingMember {
        id: logged.id,
        record: logged.record.clone(),
        voter: logged.voter,
        matched: view_of(logged.id).and_then(|view| view.log_end),
        lag: None,
        answered: view_of(logged.id).map(|_| Duration::ZERO),
        needs_purged_entries: false,
    });
    let view = RingView {
        own: latest.member.id,
        leads: false,
        is_interim: false,
        lease: Duration::from_secs(1),
        leader: None,
        last_log: latest.log_end,
        voter_sets: latest.voter_sets.clone(),
        members: members.collect(),
    };
    region_quorums(&view)
}

#[cfg(test)]
mod tests {
    use raft_types::{OpId, Region};
    use ring_admin::Explanation;

    use super::*;
    use crate::operator::Asked;
    use member::status::sample::{database_leader, witness_follower};

    fn report(leader: Result<MemberView, String>) -> RingReport {
        RingReport::new(
            "orders",
            vec![
                Asked::sample(1, "db-1", leader),
                Asked::sample(2, "witness-1", Ok(witness_follower())),
                Asked::sample(3, "witness-2", Err("gone".into())),
            ],
        )
    }

    #[test]
    fn the_leader_names_the_member_that_holds_commits_back() {
        let mut leader = database_leader();
        leader.regions = vec![RegionQuorum {
            region: Region("north".into()),
            voters: [1, 2, 3].map(MemberId).into(),
            healthy: [1, 2].map(MemberId).into(),
            required: 2,
            in_force: true,
            held_by_majority: Some(OpId::new(3, 40)),
            held_by_any: Some(OpId::new(3, 41)),
            held_back_by: Some(MemberId(2)),
        }];
        leader.explanation = Some(Explanation {
            commit: "a commit waits for 2 of the 3 voters of region north (members 1, 2, 3)".into(),
            quorum: None,
            members: Vec::new(),
        });
        let report = report(Ok(leader));
        let directory = Directory::of(&report);
        let expected = "\
Region  Voters  Healthy  Required  Decides  Majority_has  Any_has  Held_back_by
north        3        2         2  yes              3.40     3.41  `witness-1`

`db-1` leads ring `orders`; the policy is single-region-dynamic
A commit waits for 2 of the 3 voters of region north (members 1 `db-1`, 2 `witness-1`, 3 `witness-2`)
";
        assert_eq!(shown(&report, &directory).1, expected);
    }

    #[test]
    fn without_a_leader_the_answers_of_all_members_are_used() {
        let report = report(Err("gone".into()));
        let directory = Directory::of(&report);
        let expected = "\
Region  Voters  Healthy  Required  Decides  Majority_has  Any_has  Held_back_by
north        3        1         2  yes                 -     3.42  `witness-2`

No quorum: 1 of 3 voters answer and 2 are needed. Commits wait.
To fix it: start witness on `db-1` (10.0.0.1:7400) or `witness-2` (10.0.0.3:7400) (`systemctl start witness`, or `witness run`); if they are permanently lost, see `witness quorum fix`
";
        assert_eq!(shown(&report, &directory).1, expected);
    }
}
