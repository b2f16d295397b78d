//! `witness history`: the ring's history from its log and its members' data directories.

use consensus::HistoryEntry;
use member::protocol::{CommandResult, OperatorCommand};
use serde::Serialize;

use crate::cli::session::{OrderArgs, another_answer};
use crate::operator::interruptions::{Ended, ended, longest_gap, merged};
use crate::terminal::{Attempt, Exit, Format, Table, cell, print};
use crate::text::history::sentence;
use crate::text::times::time_of_day;

/// Arguments of `witness history`.
#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    /// End the warnings about starts of mysqld that were open for writes
    #[arg(long)]
    acknowledge: bool,
    #[command(flatten)]
    order: OrderArgs,
}

/// One entry of `witness history --output json`.
#[derive(Debug, Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    entry: &'a HistoryEntry,
    /// The time as text.
    time: String,
    /// The interruption that ended, and its duration.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<Ended>,
    /// The event as text.
    what: String,
}

/// Runs `witness history`.
///
/// # Errors
/// Exit 3 when no member answers.
pub(crate) fn run(args: &HistoryArgs, format: Format) -> Attempt {
    let entries = args.order.session(format, async |ring| {
        // Each member has the ring's log, and its own observations.
        let members = ring.report.members.iter();
        let answering = members.filter_map(|member| {
            let view = member.view.as_ref()?;
            Some((ring.directory.get(member.id)?, view.mysql.as_ref()))
        });
        let answering: Vec<_> = answering.collect();
        for (place, mysql) in &answering {
            if args.acknowledge && mysql.is_some_and(|mysql| mysql.exposed.is_some()) {
                ring.at(place, OperatorCommand::AcknowledgeExposure).await?;
            }
        }
        let asked = answering.iter().map(async |(place, _)| {
            match ring.at(place, OperatorCommand::History).await? {
                CommandResult::History(entries) => Ok(entries),
                other => Err(another_answer(&other)),
            }
        });
        let mut histories = Vec::new();
        let mut failure = Exit::NoQuorum.because(
            "no member with a known address answers",
            "check with `witness status`",
        );
        for answer in futures::future::join_all(asked).await {
            match answer {
                Ok(history) => histories.push(history),
                Err(failed) => failure = failed,
            }
        }
        match histories.is_empty() {
            true => Err(failure),
            false => Ok(merged(histories)),
        }
    })?;
    print(format, &rows(&entries), || page(&entries))
}

fn rows(entries: &[HistoryEntry]) -> Vec<Row<'_>> {
    let rows = entries.iter().zip(ended(entries));
    let rows = rows.map(|(entry, ended)| Row {
        entry,
        time: time_of_day(entry.at_ms),
        what: what(entries, entry, ended.as_ref()),
        ended,
    });
    rows.collect()
}

/// The event, and the interruption that it ended.
fn what(entries: &[HistoryEntry], entry: &HistoryEntry, ended: Option<&Ended>) -> String {
    let sentence = sentence(entries, entry);
    match ended {
        None => sentence,
        Some(ended) if ended.cause.is_empty() => format!("{sentence}, after {}", ended.time()),
        Some(ended) => format!("{sentence}, after {}: {}", ended.time(), ended.cause),
    }
}

fn page(entries: &[HistoryEntry]) -> String {
    if entries.is_empty() {
        return "no events recorded\n".to_owned();
    }
    let mut table = Table::titled("Time Term By What");
    for row in rows(entries) {
        let by = Some(&row.entry.by).filter(|by| !by.is_empty());
        table.row(vec![
            row.time,
            row.entry.term.to_string(),
            cell(by),
            row.what,
        ]);
    }
    let gap = longest_gap(entries).map(|(until, gap)| {
        let (time, until) = (gap.time(), time_of_day(until));
        format!("\nThe longest time in which clients could not write: {time}, until {until}\n")
    });
    format!("{table}{}", gap.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use consensus::{HistoryEvent, Term};

    use super::*;

    #[test]
    fn each_entry_is_a_line() {
        let entry = |at_ms, by: &str, event| HistoryEntry {
            at_ms,
            term: Term(1),
            by: by.to_owned(),
            event,
        };
        let entries = [
            entry(0, "", HistoryEvent::Bootstrapped { members: 3 }),
            entry(60_000, "anna@desk", HistoryEvent::Resumed),
        ];
        assert_eq!(
            page(&entries),
            "\
Time                  Term  By         What
1970-01-01T00:00:00Z     1  -          The ring was made, with 3 members
1970-01-01T00:01:00Z     1  anna@desk  The pause of failover ended
"
        );
        assert_eq!(page(&[]), "no events recorded\n");
        let member = || consensus::Named {
            id: raft_types::MemberId(1),
            name: "db-1".to_owned(),
        };
        let why = "its mysqld does not take writes".to_owned();
        let outage = [
            entry(0, "", HistoryEvent::WritesResumed { member: member() }),
            entry(
                60_000,
                "",
                HistoryEvent::WritesStopped {
                    member: member(),
                    why,
                },
            ),
            entry(90_700, "", HistoryEvent::WritesResumed { member: member() }),
        ];
        let page = page(&outage);
        let end = "Clients can write at `db-1`, after 30.7 s: its mysqld does not take writes\n\nThe longest time in which clients could not write: 30.7 s, until 1970-01-01T00:01:30Z\n";
        assert!(page.ends_with(end), "{page}");
    }
}
