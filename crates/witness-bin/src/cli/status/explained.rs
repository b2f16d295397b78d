//! `witness status --explain`: the requirements of a commit, and why each member can or cannot be elected now. Without a leader, this is
//! derived from the answers of all members. Then the running versions.

use crate::operator::RingReport;
use crate::text::differences::versions;
use crate::text::ring::explained;

/// The lines below the table.
pub(super) fn lines(report: &RingReport) -> String {
    let told = explained(report);
    let views = report.members.iter().filter_map(|one| one.view.as_ref());
    let versions = versions(views);
    let lines = told.commit.iter().chain(&told.elections).chain(&versions);
    let lines = lines.map(|line| format!("{line}\n"));
    format!("\n{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use consensus::Explanation;
    use consensus::Prospects;
    use raft_types::MemberId;

    use super::*;
    use crate::operator::Asked;
    use member::status::MemberView;
    use member::status::sample::database_leader;
    use member::status::sample::witness_follower;

    fn report(leader: MemberView) -> RingReport {
        let members = [
            Asked::sample(1, "db-1", Ok(leader)),
            Asked::sample(2, "witness-1", Ok(witness_follower())),
        ];
        RingReport::new("orders", members.into())
    }

    #[test]
    fn the_leader_explains() {
        let mut leader = database_leader();
        let prospects = |member: u64, could_win, because: &str| Prospects {
            member: MemberId(member),
            could_win,
            because: because.into(),
        };
        leader.explanation = Some(Explanation {
            commit: "a commit waits for member 2".into(),
            quorum: Some("policy majority requires other voters: moving to {1, 2}".into()),
            members: vec![
                prospects(1, true, "it leads"),
                prospects(2, false, "member 1 has a longer log"),
            ],
        });
        let expected = "
A commit waits for member 2 `witness-1`
Policy majority requires other voters: moving to {1, 2}
`db-1` can be elected: it leads
`witness-1` cannot be elected: member 1 `db-1` has a longer log
Versions: 0.1.0, formats 1: `db-1`, `witness-1`. The ring's format is 1
";
        assert_eq!(lines(&report(leader)), expected);
    }

    #[test]
    fn without_a_leader_the_logs_tell() {
        let mut deposed = database_leader();
        deposed.serving = false;
        deposed.leader = None;
        let text = lines(&report(deposed));
        for line in [
            "`db-1`: its log ends at 3.42 in term 3; it reports no leader\n",
            "`witness-1`: its log ends at 3.42 in term 3; it reports `db-1` as the leader\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
