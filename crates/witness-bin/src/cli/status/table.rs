//! The table of `witness status`: one line a member, and problems below.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use member::status::ScrubView;

use crate::cli::status::routes_tree;
use crate::operator::{MemberReport, RingReport};
use crate::terminal::Table;
use crate::text::member::{mysqld, notes, role};
use crate::text::times::span;
use crate::text::{Level, ring};

/// The page, with line ends.
pub(super) fn page(report: &RingReport, colours: bool) -> String {
    let (members, quorum) = (members(report), quorum_lines(report, colours));
    let (notes, warnings) = (notes_lines(report), warnings(report, false));
    format!("{quorum}\n{members}\n{notes}{warnings}")
}

/// A line for each member.
pub(super) fn members(report: &RingReport) -> String {
    let mut out = String::new();
    let mut table = Table::new(&[
        "Id",
        "Name",
        "Region",
        "Kind",
        "Role",
        "Term",
        "Log_end",
        "Committed",
        "Lag",
        "Mysqld",
        "Uptime",
    ]);
    for member in &report.members {
        table.row(row(member, report));
    }
    for line in table.lines() {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// Replication routes, a pause, and notes on members.
pub(super) fn notes_lines(report: &RingReport) -> String {
    let mut out = String::new();
    for line in report
        .leader_view()
        .map(routes_tree::lines)
        .unwrap_or_default()
    {
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
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
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
    let missing = || "-".to_owned();
    let mut cells = vec![
        member.id.to_string(),
        member.name.clone(),
        member.region.to_string(),
        member.kind.to_string(),
    ];
    match &member.view {
        None => {
            cells.push("unreachable".into());
            cells.extend(std::iter::repeat_with(missing).take(6));
        }
        Some(view) => {
            let op_id =
                |op_id: Option<raft_types::OpId>| op_id.map_or_else(missing, |o| o.to_string());
            cells.extend([
                role(view, report),
                view.term.to_string(),
                op_id(view.log_end),
                op_id(view.committed),
                member
                    .lag_entries
                    .map_or_else(missing, |lag| lag.to_string()),
                view.mysql.as_ref().map_or_else(missing, mysqld),
                span(view.uptime_seconds),
            ]);
        }
    }
    cells
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{Asked, Silence};
    use member::settings::MemberEntry;
    use member::status::MemberView;
    use member::status::sample::database_leader;
    use member::status::sample::witness_follower;

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
    fn a_lost_quorum_says_since_when_why_and_what_to_do() {
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
}

#[cfg(test)]
mod scrub_line_tests {
    use super::*;

    #[test]
    fn the_last_pass_the_present_one_and_the_rate_are_told() {
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
}
