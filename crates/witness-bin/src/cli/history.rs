//! `witness history`: what happened to the ring, as its log tells it.

use consensus::HistoryEntry;
use member::protocol::{CommandResult, OperatorCommand};
use serde::Serialize;

use crate::cli::session::{Patience, RingArgs, Session, another_answer, block_on};
use crate::operator::history::{sentence, time_of_day};
use crate::terminal::{Exit, Failure, Format, Table, print_json, print_text};

/// Arguments of `witness history`.
#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
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
    /// When, as text.
    time: String,
    /// What happened, in words.
    what: String,
}

/// Runs `witness history`.
///
/// # Errors
/// Exit 3 when nobody answers.
pub(crate) fn run(args: &HistoryArgs, format: Format) -> Result<(), Failure> {
    let session = Session::open(&args.ring)?;
    let entries = block_on(async {
        let (report, directory) = session.ring().await?;
        // Any member's log tells it; the leader's has the most.
        let mut answering = report.members.iter().filter(|member| member.view.is_some());
        let leader = report.leader.and_then(|leader| directory.get(leader));
        let place = leader.or_else(|| answering.find_map(|member| directory.get(member.id)));
        let place = place.ok_or_else(|| {
            let what = "no member answers whose address is known";
            Failure::new(Exit::NoQuorum, what, "check with `witness status`")
        })?;
        let (command, until) = (OperatorCommand::History, args.patience.until());
        let asked = session
            .operator
            .at(place, &directory, &command, until, |_| {});
        match asked.await? {
            CommandResult::History(entries) => Ok(entries),
            other => Err(another_answer(&other)),
        }
    })?;
    match format {
        Format::Json => {
            let row = |(at, entry)| Row {
                entry,
                time: time_of_day(entry.at_ms),
                what: sentence(&entries, at),
            };
            let rows: Vec<_> = entries.iter().enumerate().map(row).collect();
            print_json(&rows)
        }
        Format::Table => print_text(&page(&entries)),
    }
}

fn page(entries: &[HistoryEntry]) -> String {
    if entries.is_empty() {
        return "nothing has happened to the ring since its log tells it\n".to_owned();
    }
    let mut table = Table::new(&["Time", "Term", "By", "What"]);
    for (at, entry) in entries.iter().enumerate() {
        let by = match entry.by.as_str() {
            "" => "-",
            by => by,
        };
        table.row(vec![
            time_of_day(entry.at_ms),
            entry.term.to_string(),
            by.to_owned(),
            sentence(entries, at),
        ]);
    }
    table.lines().join("\n") + "\n"
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
        assert!(page(&[]).starts_with("nothing has happened"));
    }
}
