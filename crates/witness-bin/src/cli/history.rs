//! `witness history`: prints the ring's history, which the members read from the ring's log and from their data directories.

use std::collections::{BTreeMap, BTreeSet};

use consensus::{HistoryEntry, HistoryEvent};
use member::protocol::{CommandResult, OperatorCommand};
use raft_types::MemberId;
use serde::Serialize;

use crate::cli::session::{OrderArgs, another_answer};
use crate::terminal::{Attempt, Exit, Format, Table, cell, print};
use crate::text::history::sentence;
use crate::text::times::{precise, time_of_day};

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
    /// The interruption that ended with this entry, with its duration.
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
        // All members are queried: each has the ring's log, but only its own observations.
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

/// Describes an event, and the interruption that ended with it.
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

// Interruptions in a ring's history: merges the members' histories, and matches the end of each interruption with its beginning. Pure.

/// Merges histories: each entry once, ordered by term and then by the members' clocks. If several members observed the same
/// loss, only its first recorded beginning and its first recorded end remain.
pub(crate) fn merged(histories: Vec<Vec<HistoryEntry>>) -> Vec<HistoryEntry> {
    let mut all: Vec<HistoryEntry> = Vec::new();
    for history in histories {
        let mut new: Vec<_> = history
            .into_iter()
            .filter(|entry| !all.contains(entry))
            .collect();
        all.append(&mut new);
    }
    all.sort_by_key(|entry| (entry.term, entry.at_ms));
    let mut lost = BTreeSet::new();
    let mut quorum_is_lost = false;
    all.retain(|entry| match &entry.event {
        HistoryEvent::QuorumLost { .. } => !std::mem::replace(&mut quorum_is_lost, true),
        HistoryEvent::QuorumBack { .. } => std::mem::replace(&mut quorum_is_lost, false),
        HistoryEvent::MemberLost { member } => lost.insert(member.id),
        HistoryEvent::MemberBack { member } => lost.remove(&member.id),
        _ => true,
    });
    all
}

/// An interruption that ended with an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Ended {
    /// Milliseconds since 1970.
    pub(crate) began_ms: u64,
    pub(crate) lasted_ms: u64,
    /// The cause of the interruption; empty if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) cause: String,
}

impl Ended {
    fn at(end_ms: u64, began_ms: u64, cause: String) -> Self {
        Self {
            began_ms,
            lasted_ms: end_ms.saturating_sub(began_ms),
            cause,
        }
    }

    /// Returns the duration as text; if it is shorter than a minute, with tenths of a second.
    pub(crate) fn time(&self) -> String {
        precise(self.lasted_ms)
    }
}

/// Returns, for each entry of a merged history, the interruption that ended with it. Writes are interrupted only if the mysqld of
/// the primary stops. If another member reports that its own mysqld takes no writes, that is not an interruption.
pub(crate) fn ended(entries: &[HistoryEntry]) -> Vec<Option<Ended>> {
    let mut primary: Option<MemberId> = None;
    let mut stopped: Option<(u64, String)> = None;
    let mut quorum_lost: Option<(u64, String)> = None;
    let mut members_lost = BTreeMap::new();
    let mut step = |entry: &HistoryEntry| match &entry.event {
        HistoryEvent::WritesStopped { member, why } => {
            if primary.is_none_or(|primary| primary == member.id) && stopped.is_none() {
                stopped = Some((entry.at_ms, why.clone()));
            }
            None
        }
        HistoryEvent::WritesResumed { member } => {
            let before = primary.replace(member.id);
            let (began, cause) = match (stopped.take(), before) {
                (Some(stopped), _) => stopped,
                // The previous primary has not recorded when writes stopped, so the new leader's measurement is used.
                (None, Some(before)) if before != member.id => {
                    let leaderless = leaderless_ms(entries, entry, member.id)?;
                    let began = entry.at_ms.saturating_sub(leaderless);
                    (began, "the primary before it was lost".to_owned())
                }
                (None, _) => return None,
            };
            Some(Ended::at(entry.at_ms, began, cause))
        }
        HistoryEvent::QuorumLost { why, .. } => {
            quorum_lost = Some((entry.at_ms, why.clone()));
            None
        }
        HistoryEvent::QuorumBack { .. } => {
            let (began, cause) = quorum_lost.take()?;
            Some(Ended::at(entry.at_ms, began, cause))
        }
        HistoryEvent::MemberLost { member } => {
            members_lost.insert(member.id, entry.at_ms);
            None
        }
        HistoryEvent::MemberBack { member } => {
            let began = members_lost.remove(&member.id)?;
            Some(Ended::at(entry.at_ms, began, String::new()))
        }
        _ => None,
    };
    entries.iter().map(&mut step).collect()
}

/// Returns the time from the previous leader's last heartbeat until clients could write, as the new leader recorded it.
fn leaderless_ms(entries: &[HistoryEntry], end: &HistoryEntry, member: MemberId) -> Option<u64> {
    entries.iter().find_map(|entry| match &entry.event {
        HistoryEvent::Led {
            leader,
            leaderless_ms,
            ..
        } if leader.id == member && entry.term == end.term => *leaderless_ms,
        _ => None,
    })
}

/// Returns the longest time without writes, and when it ended, in milliseconds since 1970.
pub(crate) fn longest_gap(entries: &[HistoryEntry]) -> Option<(u64, Ended)> {
    let writes = |entry: &HistoryEntry| matches!(entry.event, HistoryEvent::WritesResumed { .. });
    let gaps = entries.iter().zip(ended(entries));
    let gaps =
        gaps.filter_map(|(entry, ended)| Some((entry.at_ms, ended.filter(|_| writes(entry))?)));
    gaps.max_by_key(|(_, gap)| gap.lasted_ms)
}

#[cfg(test)]
mod tests {
    use consensus::{HistoryEvent, Named, Term};
    use raft_types::MemberKind;

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

    fn named(id: u64) -> Named {
        Named {
            id: MemberId(id),
            name: format!("m{id}"),
        }
    }

    fn entry(term: u64, at_ms: u64, event: HistoryEvent) -> HistoryEntry {
        HistoryEntry {
            at_ms,
            term: Term(term),
            by: String::new(),
            event,
        }
    }

    fn stopped(term: u64, at_ms: u64, id: u64, why: &str) -> HistoryEntry {
        let why = why.to_owned();
        let member = named(id);
        entry(term, at_ms, HistoryEvent::WritesStopped { member, why })
    }

    fn resumed(term: u64, at_ms: u64, id: u64) -> HistoryEntry {
        let member = named(id);
        entry(term, at_ms, HistoryEvent::WritesResumed { member })
    }

    fn led(term: u64, at_ms: u64, id: u64, leaderless_ms: u64) -> HistoryEntry {
        let event = HistoryEvent::Led {
            leader: named(id),
            kind: MemberKind::Database,
            log_end: None,
            leaderless_ms: Some(leaderless_ms),
            writable: true,
        };
        entry(term, at_ms, event)
    }

    fn gaps(entries: &[HistoryEntry]) -> Vec<(u64, String)> {
        let gaps = ended(entries).into_iter().flatten();
        gaps.map(|gap| (gap.lasted_ms, gap.cause)).collect()
    }

    /// The old primary hung for 30 s; its member sent heartbeats until it gave up the leadership.
    #[test]
    fn an_outage_begins_where_the_old_primary_noted_it_and_not_with_the_last_call() {
        let old = vec![resumed(2, 1_000, 1), stopped(2, 10_000, 1, "it hung")];
        let new = vec![led(3, 40_700, 2, 200), resumed(3, 40_700, 2)];
        let all = merged(vec![new, old]);
        assert_eq!(gaps(&all), [(30_700, "it hung".to_owned())]);
        assert_eq!(longest_gap(&all).unwrap().1.time(), "30.7 s");
    }

    #[test]
    fn an_outage_whose_begin_no_member_could_note_is_that_without_a_leader() {
        let all = [
            resumed(2, 1_000, 1),
            led(3, 9_000, 2, 1_500),
            resumed(3, 9_000, 2),
        ];
        assert_eq!(
            gaps(&all),
            [(1_500, "the primary before it was lost".to_owned())]
        );
    }

    #[test]
    fn a_ring_that_was_stopped_was_interrupted_for_all_that_time() {
        let all = [
            resumed(2, 1_000, 1),
            stopped(2, 60_000, 1, "the member's process ended"),
            led(3, 300_000, 2, 100),
            resumed(3, 300_100, 2),
            // Ignored: when this member reports it, another member is already the primary.
            stopped(4, 300_200, 1, "it lost the leadership"),
            stopped(4, 400_000, 2, "its mysqld does not take writes"),
            resumed(4, 400_300, 2),
        ];
        let expected = [
            (240_100, "the member's process ended".to_owned()),
            (300, "its mysqld does not take writes".to_owned()),
        ];
        assert_eq!(gaps(&all), expected);
        assert_eq!(longest_gap(&all).unwrap().0, 300_100);
    }

    #[test]
    fn what_several_members_saw_is_one_loss() {
        let lost = |at_ms, by| {
            let (member, why) = (named(by), "1 of 3 voters answer".to_owned());
            entry(2, at_ms, HistoryEvent::QuorumLost { member, why })
        };
        let back = |at_ms, by| entry(2, at_ms, HistoryEvent::QuorumBack { member: named(by) });
        let gone = |at_ms| entry(2, at_ms, HistoryEvent::MemberLost { member: named(3) });
        let here = |at_ms| entry(2, at_ms, HistoryEvent::MemberBack { member: named(3) });
        let one = vec![gone(900), lost(1_000, 1), back(45_000, 1), here(46_000)];
        let other = vec![lost(1_200, 2), back(45_100, 2), gone(2_000), here(47_000)];
        let all = merged(vec![one.clone(), other]);
        assert_eq!(all, one);
        let expected = [
            (44_000, "1 of 3 voters answer".to_owned()),
            (45_100, String::new()),
        ];
        assert_eq!(gaps(&all), expected);
    }
}
