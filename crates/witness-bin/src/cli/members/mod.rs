//! `witness members`: lists every member in the ring's log with its progress; adds, changes and removes members one at a time.

mod add;
mod change;

use member::status::PeerView;
use raft_types::{MemberId, MemberKind};
use serde::Serialize;

use crate::cli::session::QueryArgs;
use crate::operator::RingReport;
use crate::terminal::{Failure, Format, Table, cell, print, yes_no};

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
pub(crate) fn run(command: &MembersCommand, format: Format) -> Result<(), Failure> {
    match command {
        MembersCommand::List(query) => list(query, format),
        MembersCommand::Add(args) => add::run(args, format),
        MembersCommand::Update(args) => change::update(args, format),
        MembersCommand::Remove(args) => change::remove(args, format),
    }
}

/// Output of `witness members list --output json`.
#[derive(Debug, Serialize)]
struct Document {
    ring: String,
    leader: Option<MemberId>,
    members: Vec<Row>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    id: MemberId,
    name: String,
    region: String,
    kind: MemberKind,
    votes: bool,
    priority: Option<u32>,
    /// Whether it counts in the quorum now; none if unknown.
    in_quorum: Option<bool>,
    role: String,
    /// Entries that it lacks; only a leader knows.
    behind_entries: Option<u64>,
    address: String,
    in_ring: Option<bool>,
    configured: bool,
}

/// Runs `witness members list`.
///
/// # Errors
/// Exit 3 when no member answers.
fn list(query: &QueryArgs, format: Format) -> Result<(), Failure> {
    let (report, _) = query.answers()?;
    let document = document(report);
    print(format, &document, || page(&document))
}

fn document(report: RingReport) -> Document {
    let members = report.members.iter();
    let views = members.filter_map(|member| member.view.as_ref());
    let roster = views
        .filter(|view| !view.members.is_empty())
        .max_by_key(|view| view.log_end)
        .map(|view| view.members.clone())
        .unwrap_or_default();
    let leader = report.leader_view();
    let peer =
        |id: MemberId| -> Option<&PeerView> { leader?.peers.iter().find(|peer| peer.id == id) };
    let rows = report.members.iter().map(|member| {
        // The ring's log takes precedence, if known.
        let logged = roster.iter().find(|logged| logged.id == member.id);
        let record = logged.map(|logged| &logged.record);
        Row {
            id: member.id,
            name: record.map_or(&member.name, |record| &record.name).clone(),
            region: record
                .map_or(&member.region, |record| &record.region)
                .to_string(),
            kind: record.map_or(member.kind, |record| record.kind),
            votes: record.map_or(member.votes, |record| record.votes),
            priority: record.map(|record| record.priority),
            in_quorum: logged.map(|logged| logged.voter),
            role: match &member.view {
                Some(view) => view.role.to_string(),
                None => "unreachable".to_owned(),
            },
            behind_entries: match Some(member.id) == report.leader {
                true => Some(0),
                false => peer(member.id).and_then(|peer| peer.behind_entries),
            },
            address: record
                .map_or(&member.address, |record| &record.address)
                .clone(),
            in_ring: member.in_ring,
            configured: member.configured,
        }
    });
    Document {
        members: rows.collect(),
        ring: report.ring,
        leader: report.leader,
        warnings: report.warnings,
    }
}

fn page(document: &Document) -> String {
    let mut table = Table::titled("Id Name Region Kind Votes Priority Quorum Role Behind Address");
    for row in &document.members {
        table.row(vec![
            row.id.to_string(),
            row.name.clone(),
            row.region.clone(),
            row.kind.to_string(),
            yes_no(row.votes),
            cell(row.priority),
            cell(row.in_quorum.map(yes_no)),
            row.role.clone(),
            cell(row.behind_entries),
            row.address.clone(),
        ]);
    }
    let warnings = document.warnings.iter();
    let warnings: String = warnings.map(|text| format!("Warning: {text}\n")).collect();
    match warnings.is_empty() {
        true => table.to_string(),
        false => format!("{table}\n{warnings}"),
    }
}

#[cfg(test)]
mod tests {
    use raft_types::Region;

    use super::*;
    use crate::operator::Asked;
    use member::settings::MemberEntry;
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
        let text = page(&document(report));
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
