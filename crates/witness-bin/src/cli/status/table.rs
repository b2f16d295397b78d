//! `witness status` for people: one line a member, and what is wrong below.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use member::status::{MemberView, MysqlView, QuorumView, ScrubView};

use crate::cli::status::routes_tree;
use crate::operator::{MemberReport, RingReport};
use crate::terminal::Table;

/// The page, its lines ended.
pub(super) fn page(report: &RingReport, colours: bool) -> String {
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
    out.push('\n');
    out.push_str(&quorum_lines(report, colours));
    for line in report
        .leader_view()
        .map(routes_tree::lines)
        .unwrap_or_default()
    {
        let _ = writeln!(out, "{line}");
    }
    if let Some(pause) = &report.pause {
        let primary = report
            .members
            .iter()
            .find(|member| member.id == pause.primary);
        let name = primary.map_or_else(|| pause.primary.to_string(), |member| member.name.clone());
        let _ = writeln!(out, "{}", pause.sentence(&name));
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
    for warning in &report.warnings {
        let _ = writeln!(out, "Warning: {warning}");
    }
    out
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
                view.mysql.as_ref().map_or_else(missing, cell),
                span(view.uptime_seconds),
            ]);
        }
    }
    cells
}

fn role(view: &MemberView, report: &RingReport) -> String {
    if view.fault.is_some() {
        return "stopped".into();
    }
    let leads_in_vain = view.leader == Some(view.member.id) && report.leader != view.leader;
    if leads_in_vain {
        "leader (not serving)".into()
    } else {
        view.role.to_string()
    }
}

fn quorum_lines(report: &RingReport, colours: bool) -> String {
    let paint = |code: &str, text: &str| {
        if colours {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    };
    let QuorumView {
        lost_for_seconds,
        cause,
        fix,
        ..
    } = &report.quorum;
    if report.quorum.ok {
        let leader = report
            .members
            .iter()
            .find(|member| Some(member.id) == report.leader);
        let name = leader.map_or("?", |leader| leader.name.as_str());
        return format!(
            "{}, `{name}` leads ring `{}`\n",
            paint("32", "The quorum answers"),
            report.ring
        );
    }
    let since = lost_for_seconds
        .map(|lost| format!(" for {}", span(lost)))
        .unwrap_or_default();
    let mut out = format!(
        "{}{since}: {}. Commits wait.\n",
        paint("31", "No quorum"),
        cause.as_deref().unwrap_or("the cause is not known")
    );
    if let Some(fix) = fix {
        let _ = writeln!(out, "To fix it: {fix}");
    }
    out
}

/// What an operator should know of one member, beside its line.
fn notes(member: &MemberReport) -> Vec<String> {
    let Some(view) = &member.view else {
        return member
            .error
            .iter()
            .map(|error| format!("no answer: {error}"))
            .collect();
    };
    let mut notes = Vec::new();
    if let Some(fault) = &view.fault {
        notes.push(format!("stopped working: {fault}"));
    }
    if let (true, Some(why)) = (view.leader == Some(view.member.id), &view.not_serving) {
        let how = if view.serving {
            "leads until a database member can take over"
        } else {
            "leads, but does not serve"
        };
        notes.push(format!("{how}: {why}"));
    }
    if let Some(why) = &view.stays_out_of_elections {
        notes.push(format!("takes part in no election: {why}"));
    }
    notes.extend(view.log.unreadable.iter().cloned());
    if view.log.disk_full {
        notes.push(
            "the disk of its log is full: nothing is written or acknowledged. Free space, or purge old log files; it \
             continues by itself"
                .to_owned(),
        );
    } else if view.log.disk_alarm && view.log.disk_left_bytes < NO_ROOM {
        notes.push(
            "its disk budget is used up: transactions wait or are refused. Purge old log files, raise log.disk_limit_bytes, \
             or add space"
                .to_owned(),
        );
    } else if view.log.disk_alarm {
        notes.push(format!(
            "its disk budget is nearly used up, {} bytes are free",
            view.log.disk_free_bytes
        ));
    }
    if let Some(mysql) = &view.mysql {
        notes.extend(mysql.trouble.clone());
        notes.extend(wait(mysql));
        let offline = mysql.offline.as_ref();
        notes.extend(offline.map(|why| format!("ordinary accounts cannot use its mysqld: {why}")));
        notes.extend(mysql.demotion.clone());
        if view.serving && !mysql.protected {
            notes.extend(
                mysql
                    .unprotected_because
                    .iter()
                    .map(|why| format!("not protected: {why}")),
            );
        }
    }
    notes
}

/// With less than this left, hardly a transaction fits.
const NO_ROOM: u64 = 64 << 10;

// What the mysqld beside a member is, in few words.

/// From which lag on it is said.
const LAG_MS: u64 = 1_000;
/// From how many transactions on it is said that they are lacking.
const LACKS: u64 = 100;

/// The cell of the table.
pub(super) fn cell(mysql: &MysqlView) -> String {
    let of_a_role = || {
        match mysql.role.split(':').next().unwrap_or_default() {
            _ if !mysql.applies => "closed",
            "primary" => "to be opened",
            "catching up" => &mysql.role,
            other => other,
        }
        .to_owned()
    };
    let lag = mysql.lag_ms.filter(|lag| *lag >= LAG_MS);
    match (mysql.state.as_str(), mysql.writable, mysql.following, lag) {
        ("running", true, ..) if mysql.protected => "primary".to_owned(),
        ("running", true, ..) => "primary, not protected".to_owned(),
        ("running", false, true, None) => match lacks(mysql) {
            Some(lacks) => format!("following, {lacks} transactions behind"),
            None => "following".to_owned(),
        },
        ("running", false, true, Some(lag)) => {
            format!("following, {} behind", span(lag as f64 / 1e3))
        }
        ("running", false, false, _) => of_a_role(),
        (state, ..) => state.to_owned(),
    }
}

/// Committed transactions that it has not executed, where that would keep clients waiting behind a promotion.
fn lacks(mysql: &MysqlView) -> Option<u64> {
    let behind = mysql.promotion.as_ref()?.behind?;
    Some(behind).filter(|behind| *behind >= LACKS)
}

/// What it waits for, where it does.
pub(super) fn wait(mysql: &MysqlView) -> Option<String> {
    let what = mysql.role.strip_prefix("waiting: ")?;
    Some(format!("its mysqld waits: {what}"))
}

// How the reading back of a member's log is getting on, in one line, also when all is well.

/// The line; none while there is no closed file.
pub(super) fn scrub_line(scrub: &ScrubView, now: u64) -> Option<String> {
    if scrub.closed_bytes == 0 {
        return None;
    }
    let size = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let last = scrub.completed_at.map(|at| {
        let ago = span(now.saturating_sub(at) as f64);
        format!("all of its closed files were last read back {ago} ago")
    });
    let mut parts =
        vec![last.unwrap_or_else(|| "its closed files were not all read back yet".to_owned())];
    match scrub.bytes_per_second {
        Some(rate) if scrub.turn_bytes > 0 => parts.push(format!(
            "{} of {} in this pass, {} a second at most",
            size(scrub.turn_bytes),
            size(scrub.closed_bytes),
            size(rate)
        )),
        Some(_) => {}
        None => parts.push("`log.scrub_rate` is 0, so none are".to_owned()),
    }
    if scrub.unverified_bytes > 0 {
        parts.push(format!(
            "{} not since they were written",
            size(scrub.unverified_bytes)
        ));
    }
    if scrub.damaged_total > 0 {
        parts.push(format!(
            "{} found damaged and {} replaced since its start",
            scrub.damaged_total, scrub.repaired_total
        ));
    }
    Some(format!("scrub: {}", parts.join("; ")))
}

// Spans of time for people.

/// A span of time in its two largest units.
pub(super) fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{whole}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", whole % 60),
        (0, _, _) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Asked;
    use member::settings::MemberEntry;
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
            answer,
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
Id  Name       Region  Kind      Role      Term  Log_end  Committed  Lag  Mysqld   Uptime
 1  db-1       north   database  leader       3     3.42       3.42    0  primary     12s
 2  witness-1  north   witness   follower     3     3.42       3.42    0  -           12s

The quorum answers, `db-1` leads ring `orders`
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
            "To fix it: run `witness run` on `witness-1` (10.0.0.2:7400); if they are permanently lost, see `witness quorum fix`\n",
            "witness-1: no answer: connection refused\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}

#[cfg(test)]
mod mysqld_cell_tests {
    use super::*;
    use member::status::sample::database_leader;

    #[test]
    fn a_mysqld_in_few_words() {
        let primary = database_leader().mysql.unwrap();
        let with_role = |role: &str| MysqlView {
            writable: false,
            protected: false,
            role: role.to_owned(),
            ..primary.clone()
        };
        let following = |lag_ms| MysqlView {
            following: true,
            lag_ms,
            ..with_role("following")
        };
        let lacking = |behind| MysqlView {
            promotion: Some(consensus::DatabaseState {
                behind: Some(behind),
                ..consensus::DatabaseState::default()
            }),
            ..following(None)
        };
        let starting = MysqlView {
            state: "starting".to_owned(),
            ..with_role("unknown")
        };
        let alone = MysqlView {
            applies: false,
            ..with_role("nothing is applied to it")
        };
        let open = MysqlView {
            protected: false,
            ..primary.clone()
        };
        for (mysql, expected) in [
            (primary.clone(), "primary"),
            (open, "primary, not protected"),
            (with_role("primary"), "to be opened"),
            (following(None), "following"),
            (following(Some(999)), "following"),
            (lacking(99), "following"),
            (lacking(1_663), "following, 1663 transactions behind"),
            (following(Some(75_000)), "following, 1m15s behind"),
            (starting, "starting"),
            (
                with_role("catching up: 3 transactions behind, then the primary"),
                "catching up: 3 transactions behind, then the primary",
            ),
            (with_role("waiting: nobody leads"), "waiting"),
            (with_role("stopped: it has errant transactions"), "stopped"),
            (alone, "closed"),
        ] {
            assert_eq!(cell(&mysql), expected, "{mysql:?}");
        }
        let waiting = with_role("waiting: nobody leads");
        assert_eq!(wait(&waiting).unwrap(), "its mysqld waits: nobody leads");
        assert_eq!(wait(&primary), None);
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
                Some(
                    "scrub: its closed files were not all read back yet; 40.0 MiB not since they were written",
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
                    "scrub: all of its closed files were last read back 1h01m ago; 10.0 MiB of 40.0 MiB in this pass, 8.0 MiB a \
                     second at most; 2 found damaged and 1 replaced since its start",
                ),
            ),
            (
                ScrubView {
                    bytes_per_second: None,
                    ..scrub
                },
                Some(
                    "scrub: its closed files were not all read back yet; `log.scrub_rate` is 0, so none are",
                ),
            ),
        ];
        for (scrub, expected) in table {
            assert_eq!(scrub_line(&scrub, 4_660).as_deref(), expected);
        }
    }
}

#[cfg(test)]
mod span_tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        let cases = [
            (0.9, "0s"),
            (59.0, "59s"),
            (61.0, "1m01s"),
            (3_720.0, "1h02m"),
            (90_000.0, "1d01h"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(span(seconds), expected);
        }
    }
}
