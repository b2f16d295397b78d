//! The table of `witness status`: one line a member, and problems below; with `--explain` the requirements of a commit, and why each member
//! can or cannot be elected now. Without a leader, this is derived from the answers of all members.

use std::collections::BTreeMap;
use std::fmt::Write;

use member::status::{LoggedMember, MemberView, ScrubView};
use raft_types::MemberId;

use crate::operator::{MemberReport, RingReport, hops};
use crate::terminal::{Table, cell};
use crate::text::differences::versions;
use crate::text::member::{mysqld, notes, role};
use crate::text::times::{now, span};
use crate::text::{Level, ring};

/// The page, with line ends.
pub(super) fn page(report: &RingReport, colours: bool) -> String {
    let (members, quorum) = (members(report), quorum_lines(report, colours));
    let (notes, warnings) = (notes_lines(report), warnings(report, false));
    format!("{quorum}\n{members}\n{notes}{warnings}")
}

/// A line for each member.
pub(crate) fn members(report: &RingReport) -> String {
    let mut table =
        Table::titled("Id Name Region Kind Role Term Log_end Committed Lag Mysqld Uptime");
    for member in &report.members {
        table.row(row(member, report));
    }
    table.to_string()
}

/// Replication routes, a pause, and notes on members.
pub(super) fn notes_lines(report: &RingReport) -> String {
    let mut out = String::new();
    for line in report.leader_view().map(routes).unwrap_or_default() {
        let _ = writeln!(out, "{line}");
    }
    if let Some(pause) = ring::pause(report) {
        let _ = writeln!(out, "{pause}");
    }
    for member in &report.members {
        for note in notes(member) {
            let _ = writeln!(out, "{}: {note}", member.name);
        }
    }
    let now = now();
    for member in &report.members {
        let scrub = member.view.as_ref().map(|view| &view.log.scrub);
        if let Some(line) = scrub.and_then(|scrub| scrub_line(scrub, now)) {
            let _ = writeln!(out, "{}: {line}", member.name);
        }
    }
    out
}

/// Contradictions.
pub(super) fn warnings(report: &RingReport, colours: bool) -> String {
    let warning = paint(colours, "33", "Warning:");
    let lines = report.warnings.iter();
    lines.map(|line| format!("{warning} {line}\n")).collect()
}

/// A text in the color of that code.
pub(super) fn paint(colours: bool, code: &str, text: &str) -> String {
    match colours {
        true => format!("\x1b[{code}m{text}\x1b[0m"),
        false => text.to_owned(),
    }
}

fn row(member: &MemberReport, report: &RingReport) -> Vec<String> {
    let view = member.view.as_ref();
    let mysql = view.and_then(|view| view.mysql.as_ref());
    vec![
        member.id.to_string(),
        member.name.clone(),
        member.region.to_string(),
        member.kind.to_string(),
        view.map_or_else(|| "unreachable".to_owned(), |view| role(view, report)),
        cell(view.map(|view| view.term)),
        cell(view.and_then(|view| view.log_end)),
        cell(view.and_then(|view| view.committed)),
        cell(member.lag_entries),
        cell(mysql.map(mysqld)),
        cell(view.map(|view| span(view.uptime_seconds))),
    ]
}

pub(super) fn quorum_lines(report: &RingReport, colours: bool) -> String {
    let said = ring::quorum(report);
    let code = match said.level {
        Level::Good => "32",
        Level::Note => "33",
        Level::Bad => "31",
    };
    let mut out = format!("{}{}\n", paint(colours, code, said.begins), said.rest);
    if let Some(fix) = said.fix {
        let _ = writeln!(out, "To fix it: {fix}");
    }
    out
}

// The scrub progress of a member's log, in one line.

/// The line; none while there is nothing to report: no closed file, or files that will soon be read back, as in a new ring.
pub(super) fn scrub_line(scrub: &ScrubView, now: u64) -> Option<String> {
    let is_due = scrub.completed_at.is_none() && scrub.turn_bytes == 0;
    let is_on = scrub.bytes_per_second.is_some();
    if scrub.closed_bytes == 0 || is_due && is_on && scrub.damaged_total == 0 {
        return None;
    }
    let size = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let last = scrub.completed_at.map(|at| {
        let ago = span(now.saturating_sub(at) as f64);
        format!("all of its closed files were last read back {ago} ago")
    });
    let mut parts: Vec<String> = last.into_iter().collect();
    match scrub.bytes_per_second {
        Some(rate) if scrub.turn_bytes > 0 => parts.push(format!(
            "{} of {} read back in this pass, {} a second at most",
            size(scrub.turn_bytes),
            size(scrub.closed_bytes),
            size(rate)
        )),
        Some(_) => {}
        None => parts.push(format!(
            "off (`log.scrub_rate` is 0); {} of {} not verified since they were written",
            size(scrub.unverified_bytes),
            size(scrub.closed_bytes)
        )),
    }
    if scrub.damaged_total > 0 {
        parts.push(format!(
            "{} found damaged and {} replaced since its start",
            scrub.damaged_total, scrub.repaired_total
        ));
    }
    Some(format!("scrub: {}", parts.join("; ")))
}

/// The lines below the table, with the running versions.
pub(super) fn explained(report: &RingReport) -> String {
    let explained = ring::explained(report);
    let versions = versions(report.views());
    let lines = explained.commit.iter().chain(&explained.elections);
    let lines = lines.chain(&versions).map(|line| format!("{line}\n"));
    format!("\n{}", lines.collect::<String>())
}

/// The tree of replication routes, the leader first; none when all members receive entries from the leader.
fn routes(leader: &MemberView) -> Vec<String> {
    let mut routes = (leader.replication_routes.iter()).flat_map(|routes| &routes.routes);
    if routes.all(|route| route.through.is_empty()) {
        return Vec::new();
    }
    let (own, hops) = (leader.member.id, hops(leader));
    let mut below: BTreeMap<MemberId, Vec<&LoggedMember>> = BTreeMap::new();
    for member in leader.members.iter().filter(|member| member.id != own) {
        let hop = hops.iter().find(|hop| hop.to == member.id);
        below
            .entry(hop.map_or(own, |hop| hop.from))
            .or_default()
            .push(member);
    }
    // Relaying members come after the others: the tree is read from top to bottom.
    let mut lines = vec![format!("Entries travel from `{}`", leader.member.name)];
    draw(own, "", &below, &mut lines);
    lines
}

fn draw(
    from: MemberId,
    indent: &str,
    below: &BTreeMap<MemberId, Vec<&LoggedMember>>,
    lines: &mut Vec<String>,
) {
    let members = below.get(&from).map(Vec::as_slice).unwrap_or_default();
    for (at, member) in members.iter().enumerate() {
        let (branch, deeper) = match at + 1 == members.len() {
            true => ("└─ ", "   "),
            false => ("├─ ", "│  "),
        };
        let record = &member.record;
        lines.push(format!(
            "{indent}{branch}{} ({})",
            record.name, record.region
        ));
        draw(member.id, &format!("{indent}{deeper}"), below, lines);
    }
}

#[cfg(test)]
mod tests {
    use member::settings::MemberEntry;
    use member::status::ReplicationRoutesView;
    use member::status::sample::{database_leader, witness_follower};
    use proxy::RouteView;
    use raft_types::{MemberRecord, Region};
    use ring_admin::{Explanation, Prospects};

    use super::*;
    use crate::operator::{Asked, Silence};

    fn entry(view: &MemberView) -> MemberEntry {
        MemberEntry {
            id: view.member.id,
            name: view.member.name.clone(),
            region: view.member.region.clone(),
            kind: view.member.kind,
            votes: true,
            priority: 100,
            address: view.member.address.clone(),
        }
    }

    fn asked(entry: MemberEntry, answer: Result<MemberView, String>) -> Asked {
        Asked {
            entry,
            configured: true,
            answer: answer.map_err(Silence::from),
        }
    }

    #[test]
    fn a_healthy_ring_is_a_table_and_one_line() {
        let views = [database_leader(), witness_follower()];
        let answers = views.map(|mut view| {
            view.members.truncate(2);
            asked(entry(&view), Ok(view))
        });
        let report = RingReport::new("orders", answers.into());
        let expected = "\
The quorum answers, `db-1` leads ring `orders`; it tolerates 1 more failure, but not of `db-1`, the only database member

Id  Name       Region  Kind      Role      Term  Log_end  Committed  Lag  Mysqld   Uptime
 1  db-1       north   database  leader       3     3.42       3.42    0  primary     12s
 2  witness-1  north   witness   follower     3     3.42       3.42    0  -           12s

";
        assert_eq!(page(&report, false), expected);
    }

    #[test]
    fn a_lost_quorum_is_shown_with_its_start_cause_and_fix() {
        let mut alone = database_leader();
        alone.serving = false;
        alone.quorum.lost_for_seconds = Some(75.0);
        let witness = witness_follower();
        alone.voter_sets.clear();
        let answers = vec![
            asked(entry(&alone), Ok(alone)),
            asked(entry(&witness), Err("connection refused".to_owned())),
        ];
        let text = page(&RingReport::new("orders", answers), false);
        for line in [
            " 1  db-1       north   database  leader (not serving)",
            "unreachable              -",
            "No quorum for 1m15s: 1 of 2 voters answer and 2 are needed. Commits wait.\n",
            "To fix it: start witness on `witness-1` (10.0.0.2:7400) (`systemctl start witness`, or `witness run`); if they are permanently lost, see `witness quorum fix`\n",
            "witness-1: no answer: connection refused. See the runbook lost-member\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_scrub_line_has_the_last_pass_the_current_one_and_the_rate() {
        const MIB: u64 = 1 << 20;
        let scrub = ScrubView {
            closed_bytes: 40 * MIB,
            bytes_per_second: Some(8 * MIB),
            ..ScrubView::default()
        };
        let table = [
            (ScrubView::default(), None),
            (
                ScrubView {
                    unverified_bytes: 40 * MIB,
                    ..scrub
                },
                None,
            ),
            (
                ScrubView {
                    unverified_bytes: 30 * MIB,
                    turn_bytes: 10 * MIB,
                    ..scrub
                },
                Some(
                    "scrub: 10.0 MiB of 40.0 MiB read back in this pass, 8.0 MiB a second at most",
                ),
            ),
            (
                ScrubView {
                    completed_at: Some(1_000),
                    ..scrub
                },
                Some("scrub: all of its closed files were last read back 1h01m ago"),
            ),
            (
                ScrubView {
                    completed_at: Some(1_000),
                    turn_bytes: 10 * MIB,
                    damaged_total: 2,
                    repaired_total: 1,
                    ..scrub
                },
                Some(
                    "scrub: all of its closed files were last read back 1h01m ago; 10.0 MiB of 40.0 MiB read back in this pass, 8.0 MiB a \
                     second at most; 2 found damaged and 1 replaced since its start",
                ),
            ),
            (
                ScrubView {
                    bytes_per_second: None,
                    unverified_bytes: 30 * MIB,
                    ..scrub
                },
                Some(
                    "scrub: off (`log.scrub_rate` is 0); 30.0 MiB of 40.0 MiB not verified since they were written",
                ),
            ),
        ];
        for (scrub, expected) in table {
            assert_eq!(scrub_line(&scrub, 4_660).as_deref(), expected);
        }
    }

    fn explained_by(leader: MemberView) -> RingReport {
        let members = [
            Asked::sample(1, "db-1", Ok(leader)),
            Asked::sample(2, "witness-1", Ok(witness_follower())),
        ];
        RingReport::new("orders", members.into())
    }

    #[test]
    fn the_leaders_explanation_is_shown() {
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
        assert_eq!(explained(&explained_by(leader)), expected);
    }

    #[test]
    fn without_a_leader_the_logs_are_compared() {
        let mut deposed = database_leader();
        deposed.serving = false;
        deposed.leader = None;
        let text = explained(&explained_by(deposed));
        for line in [
            "`db-1`: its log ends at 3.42 in term 3; it reports no leader\n",
            "`witness-1`: its log ends at 3.42 in term 3; it reports `db-1` as the leader\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    fn leader(routes: &[(u64, &[u64])]) -> MemberView {
        let mut view = database_leader();
        let names = ["a-db", "a-w", "b-db", "b-w1", "b-w2", "c-w"];
        view.members = names
            .iter()
            .zip(1..)
            .map(|(name, id)| LoggedMember {
                id: MemberId(id),
                voter: true,
                record: MemberRecord {
                    name: (*name).to_owned(),
                    region: Region(name[..1].to_owned()),
                    ..MemberRecord::default()
                },
            })
            .collect();
        view.member.name = "a-db".to_owned();
        view.replication_routes = Some(ReplicationRoutesView {
            routes: routes
                .iter()
                .map(|(member, through)| RouteView {
                    member: MemberId(*member),
                    through: through.iter().copied().map(MemberId).collect(),
                    because: None,
                })
                .collect(),
            ..ReplicationRoutesView::default()
        });
        view
    }

    #[test]
    fn members_are_drawn_below_their_proxies() {
        let view = leader(&[(4, &[3]), (5, &[3]), (6, &[3, 5])]);
        let expected = "\
Entries travel from `a-db`
├─ a-w (a)
└─ b-db (b)
   ├─ b-w1 (b)
   └─ b-w2 (b)
      └─ c-w (c)";
        assert_eq!(routes(&view).join("\n"), expected);
    }

    #[test]
    fn a_circle_of_routes_hides_no_member() {
        assert!(routes(&leader(&[(4, &[])])).is_empty());
        let circle = leader(&[(2, &[3]), (3, &[2]), (4, &[3])]);
        assert_eq!(routes(&circle).len(), circle.members.len());
    }
}
