//! `witness history`: the ring's history from its log and its members' data directories.

use consensus::HistoryEntry;
use member::protocol::{CommandResult, OperatorCommand};
use serde::Serialize;

use crate::cli::session::{Patience, RingArgs, Session, another_answer, block_on};
use crate::operator::interruptions::{Ended, ended, longest_gap, merged};
use crate::terminal::{Exit, Failure, Format, Table, print_json, print_text};
use crate::text::history::sentence;
use crate::text::times::time_of_day;

/// Arguments of `witness history`.
#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    /// End the warnings about starts of mysqld that were open for writes
    #[arg(long)]
    acknowledge: bool,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    ring: RingArgs,
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
pub(crate) fn run(args: &HistoryArgs, format: Format) -> Result<(), Failure> {
    let session = Session::open(&args.ring)?;
    let entries = block_on(async {
        let (report, directory) = session.ring().await?;
        // Each member has the ring's log, and its own observations.
        let answering = report.members.iter().filter(|member| member.view.is_some());
        let places = answering
            .clone()
            .filter_map(|member| directory.get(member.id));
        let (command, until) = (OperatorCommand::History, args.patience.until());
        let exposed = answering.clone().filter(|member| {
            let mysql = member.view.as_ref().and_then(|view| view.mysql.as_ref());
            mysql.is_some_and(|mysql| mysql.exposed.is_some())
        });
        let exposed = exposed.filter_map(|member| directory.get(member.id));
        for place in exposed.filter(|_| args.acknowledge) {
            let acknowledge = OperatorCommand::AcknowledgeExposure;
            let operator = &session.operator;
            operator
                .at(place, &directory, &acknowledge, until, |_| {})
                .await?;
        }
        let asked = places.map(async |place| {
            let asked = session
                .operator
                .at(place, &directory, &command, until, |_| {});
            match asked.await? {
                CommandResult::History(entries) => Ok(entries),
                other => Err(another_answer(&other)),
            }
        });
        let mut histories = Vec::new();
        let mut failure = Failure::new(
            Exit::NoQuorum,
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
    let ended = ended(&entries);
    match format {
        Format::Json => {
            let rows = entries.iter().enumerate().zip(ended);
            let row = |((at, entry), ended): ((usize, _), Option<Ended>)| Row {
                entry,
                time: time_of_day(entry.at_ms),
                what: what(&entries, at, ended.as_ref()),
                ended,
            };
            let rows: Vec<_> = rows.map(row).collect();
            print_json(&rows)
        }
        Format::Table => print_text(&page(&entries, &ended)),
    }
}

/// The event, and the interruption that it ended.
fn what(entries: &[HistoryEntry], at: usize, ended: Option<&Ended>) -> String {
    let sentence = sentence(entries, at);
    let Some(ended) = ended else {
        return sentence;
    };
    let cause = match ended.cause.as_str() {
        "" => String::new(),
        cause => format!(": {cause}"),
    };
    format!("{sentence}, after {}{cause}", ended.time())
}

fn page(entries: &[HistoryEntry], ended: &[Option<Ended>]) -> String {
    if entries.is_empty() {
        return "no events recorded\n".to_owned();
    }
    let mut table = Table::new(&["Time", "Term", "By", "What"]);
    for ((at, entry), ended) in entries.iter().enumerate().zip(ended) {
        let by = match entry.by.as_str() {
            "" => "-",
            by => by,
        };
        table.row(vec![
            time_of_day(entry.at_ms),
            entry.term.to_string(),
            by.to_owned(),
            what(entries, at, ended.as_ref()),
        ]);
    }
    let gap = longest_gap(entries).map(|(until, gap)| {
        let time = gap.time();
        format!(
            "\nThe longest time in which clients could not write: {time}, until {}\n",
            time_of_day(until)
        )
    });
    table.lines().join("\n") + "\n" + &gap.unwrap_or_default()
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
            page(&entries, &ended(&entries)),
            "\
Time                  Term  By         What
1970-01-01T00:00:00Z     1  -          The ring was made, with 3 members
1970-01-01T00:01:00Z     1  anna@desk  The pause of failover ended
"
        );
        assert_eq!(page(&[], &[]), "no events recorded\n");
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
        let page = page(&outage, &ended(&outage));
        let end = "Clients can write at `db-1`, after 30.7 s: its mysqld does not take writes\n\nThe longest time in which clients could not write: 30.7 s, until 1970-01-01T00:01:30Z\n";
        assert!(page.ends_with(end), "{page}");
    }
}
