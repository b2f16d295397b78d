//! `witness status` for people: one line a member, and what is wrong below.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use member::status::{MemberView, QuorumView};

use super::scrub_line::scrub_line;
use super::span::span;
use super::{mysqld_cell, travel_tree};
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
        .map(travel_tree::lines)
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
                view.mysql.as_ref().map_or_else(missing, mysqld_cell::cell),
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
        notes.extend(mysqld_cell::wait(mysql));
        let offline = mysql.offline.as_ref();
        notes.extend(offline.map(|why| format!("its mysqld lets no ordinary account in: {why}")));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Asked;
    use member::settings::MemberEntry;
    use member::status::sample::{database_leader, witness_follower};

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
            "To fix it: run `witness run` on `witness-1` (10.0.0.2:7400); if they are gone for good, look at `witness quorum fix`\n",
            "witness-1: no answer: connection refused\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
