//! `witness members`: lists every member in the ring's log with its progress; adds, changes and removes members one at a time.

mod add;
mod change;

use member::settings::MemberEntry;
use serde_json::{Value, json};

use crate::cli::session::QueryArgs;
use crate::operator::RingReport;
use crate::terminal::{Attempt, Format, Table, print};

/// Actions on the members.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum MembersCommand {
    /// Show every member with its record in the ring's log
    List(QueryArgs),
    /// Add a member; it gets the log first, and its vote when it has caught up
    Add(add::AddArgs),
    /// Change a member's address, name, priority, region or vote while the ring runs
    Update(change::UpdateArgs),
    /// Remove a member
    Remove(change::RemoveArgs),
}

/// Runs `witness members …`.
///
/// # Errors
/// Those of each subcommand.
pub(crate) fn run(command: &MembersCommand, format: Format) -> Attempt {
    match command {
        MembersCommand::List(query) => list(query, format),
        MembersCommand::Add(args) => add::run(args, format),
        MembersCommand::Update(args) => change::update(args, format),
        MembersCommand::Remove(args) => change::remove(args, format),
    }
}

/// Runs `witness members list`.
///
/// # Errors
/// Exit 3 when no member answers.
fn list(query: &QueryArgs, format: Format) -> Attempt {
    let (report, _) = query.answers()?;
    let document = document(&report);
    print(format, &document, || page(&document, &report.warnings))
}

fn document(report: &RingReport) -> Value {
    let views = report.views().filter(|view| !view.members.is_empty());
    let roster = views.max_by_key(|view| view.log_end);
    let roster = roster.map_or(&[][..], |view| &view.members);
    let peers = report.leader_view().map_or(&[][..], |view| &view.peers);
    let rows = report.members.iter().map(|member| {
        // The ring's log takes precedence, if known.
        let logged = roster.iter().find(|logged| logged.id == member.id);
        let entry = logged.map_or_else(|| member.entry.clone(), MemberEntry::from);
        // Only a leader knows how far the others are.
        let peer = peers.iter().find(|peer| peer.id == member.id);
        let behind = peer.and_then(|peer| peer.behind_entries);
        let role = member.view.as_ref().map(|view| view.role.to_string());
        json!({
            "id": entry.id,
            "name": entry.name,
            "region": entry.region,
            "kind": entry.kind,
            "votes": entry.votes,
            "priority": logged.map(|logged| logged.record.priority),
            // Whether it counts in the quorum now; none if unknown.
            "in_quorum": logged.map(|logged| logged.voter),
            "role": role.as_deref().unwrap_or("unreachable"),
            "behind_entries": if Some(member.id) == report.leader { Some(0) } else { behind },
            "address": entry.address,
            "in_ring": member.in_ring,
            "configured": member.configured,
        })
    });
    json!({
        "ring": report.ring,
        "leader": report.leader,
        "members": rows.collect::<Vec<_>>(),
        "warnings": report.warnings,
    })
}

fn page(document: &Value, warnings: &[String]) -> String {
    let columns =
        "Id Name Region Kind Votes Priority Quorum:in_quorum Role Behind:behind_entries Address";
    let table = Table::of(columns, &document["members"]);
    let warnings = warnings.iter();
    let warnings: String = warnings.map(|text| format!("Warning: {text}\n")).collect();
    match warnings.is_empty() {
        true => table.to_string(),
        false => format!("{table}\n{warnings}"),
    }
}

#[cfg(test)]
mod tests {
    use raft_types::{MemberId, MemberKind, Region};

    use super::*;
    use crate::operator::Asked;
    use member::status::sample::database_leader;
    use member::status::sample::witness_follower;

    #[test]
    fn the_longest_log_has_precedence() {
        let entry = |id: u64, name: &str, region: &str| MemberEntry {
            id: MemberId(id),
            name: name.into(),
            region: Region(region.into()),
            kind: MemberKind::Witness,
            votes: true,
            priority: 100,
            address: format!("10.0.0.{id}:7400"),
        };
        let mut leader = database_leader();
        leader.members[1].record.votes = false;
        leader.members[1].voter = false;
        let asked = |entry, configured, answer| Asked {
            entry,
            configured,
            answer,
        };
        let report = RingReport::new(
            "orders",
            vec![
                asked(entry(1, "db-1", "north"), true, Ok(leader)),
                asked(entry(2, "witness-1", "north"), true, Ok(witness_follower())),
                asked(entry(3, "witness-2", "north"), false, Err("gone".into())),
                asked(entry(4, "db-2", "south"), true, Err("gone".into())),
            ],
        );
        let text = page(&document(&report), &report.warnings);
        let expected = "\
Id  Name       Region  Kind      Votes  Priority  Quorum  Role         Behind  Address
 1  db-1       north   database  yes         100  yes     leader            0  10.0.0.1:7400
 2  witness-1  north   witness   yes         100  yes     follower          2  10.0.0.2:7400
 3  witness-2  north   witness   yes         100  yes     unreachable       -  10.0.0.3:7400
 4  db-2       south   witness   yes           -  -       unreachable       -  10.0.0.4:7400

";
        let shown = text.split("Warning").next().unwrap_or_default();
        assert_eq!(
            shown, expected,
            "the longest log; of equal ones, the last asked"
        );
        assert_eq!(text.matches("Warning: ").count(), 3, "{text}");
    }
}
