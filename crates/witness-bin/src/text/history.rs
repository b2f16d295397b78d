//! The ring's history as sentences for `witness history`, and as Patroni's rows for `GET /history`. Pure.

use consensus::{HistoryEntry, HistoryEvent, Named, Term};
use raft_types::MemberKind;
use serde::Serialize;

use crate::text::event::uncommitted;
use crate::text::times::{precise, second_of_day, time_of_day};

/// The event as a sentence without its full stop; names are in backticks. The operator is omitted.
pub(crate) fn sentence(entries: &[HistoryEntry], entry: &HistoryEntry) -> String {
    match &entry.event {
        HistoryEvent::Bootstrapped { members } => {
            format!("The ring was made, with {members} members")
        }
        HistoryEvent::Led { .. } => led(entries, entry),
        HistoryEvent::GaveAway { from, to, why } => {
            let why = clause(why);
            format!("`{}` gave the leadership to `{}`{why}", from.name, to.name)
        }
        HistoryEvent::Added { member } => format!("{} joined the ring", with_number(member)),
        HistoryEvent::Removed { member } => {
            format!("{} left the ring permanently", with_number(member))
        }
        HistoryEvent::Updated { member } => {
            format!("The record of {} was changed", with_number(member))
        }
        HistoryEvent::RulesSet { policy } => {
            format!("The rules of the quorum were changed; the policy is `{policy}`")
        }
        HistoryEvent::Paused {
            primary,
            until,
            reason,
        } => {
            let until = until.map(|until| format!(" until {}", second_of_day(until)));
            let (until, reason) = (until.unwrap_or_default(), clause(reason));
            format!(
                "Failover was paused, `{}` stays the primary{until}{reason}",
                primary.name
            )
        }
        HistoryEvent::Resumed => "The pause of failover ended".to_owned(),
        HistoryEvent::Scheduled { to, at } => format!(
            "A switchover to `{}` was scheduled for {}",
            to.name,
            second_of_day(*at)
        ),
        HistoryEvent::Unscheduled { why } if why.is_empty() => {
            "The scheduled switchover was taken back".to_owned()
        }
        HistoryEvent::Unscheduled { why } => {
            format!("The scheduled switchover was given up: {why}")
        }
        HistoryEvent::Repaired { survivor, log_end } => {
            let end = log_end.map_or_else(String::new, |end| format!(", from its log's end {end}"));
            format!(
                "A permanently lost quorum was repaired: `{}` continued alone{end}",
                survivor.name
            )
        }
        HistoryEvent::Trimmed {
            member,
            transactions,
        } => format!(
            "{} cut off the binlog of the mysqld of `{}`",
            uncommitted(*transactions),
            member.name
        ),
        HistoryEvent::Provisioned { member, donor } => format!(
            "The data of the mysqld of `{}` were replaced by a copy of those of `{}`",
            member.name, donor.name
        ),
        HistoryEvent::FormatRaised { to } => {
            format!("Every member speaks format {to}, which is the ring's from now on")
        }
        HistoryEvent::WritesStopped { member, why } => {
            format!("Clients could no longer write at `{}`: {why}", member.name)
        }
        HistoryEvent::WritesResumed { member } => {
            format!("Clients can write at `{}`", member.name)
        }
        HistoryEvent::QuorumLost { member, why } => {
            format!("The quorum was lost, as `{}` saw it: {why}", member.name)
        }
        HistoryEvent::QuorumBack { .. } => "The quorum is back".to_owned(),
        HistoryEvent::MemberLost { member } => {
            format!("`{}` did not answer the leader", member.name)
        }
        HistoryEvent::MemberBack { member } => {
            format!("`{}` answers the leader again", member.name)
        }
        HistoryEvent::Exposed {
            member,
            transactions,
        } => format!(
            "The mysqld of `{}` was started open for writes; transactions that committed without the ring: {transactions}",
            member.name
        ),
        HistoryEvent::ExposureAcknowledged { member } => format!(
            "Starts of the mysqld of `{}` that were open for writes were acknowledged",
            member.name
        ),
        HistoryEvent::Unknown => "Something that only a later version knows".to_owned(),
    }
}

/// Returns a reason after a colon; nothing for an empty reason.
fn clause(why: &str) -> String {
    match why {
        "" => String::new(),
        why => format!(": {why}"),
    }
}

/// Returns the sentence about a new leader, with the time since the last call of the previous leader.
fn led(entries: &[HistoryEntry], entry: &HistoryEntry) -> String {
    let HistoryEvent::Led {
        leader,
        kind,
        leaderless_ms,
        writable,
        ..
    } = &entry.event
    else {
        return String::new();
    };
    // If the history has an entry for the end of this interruption, that entry gives the duration.
    let resumed = |other: &HistoryEntry| {
        matches!(&other.event, HistoryEvent::WritesResumed { member } if member.id == leader.id)
            && other.term == entry.term
    };
    let silence = leaderless_ms.filter(|_| !entries.iter().any(resumed));
    let (what, closed) = match (kind, writable) {
        (MemberKind::Database, true) => ("clients could write", ""),
        (MemberKind::Database, false) => ("it served", "; its mysqld is not open for writes"),
        (MemberKind::Witness, _) => ("it served", ""),
    };
    let silence = silence.map_or_else(String::new, |silence| {
        let after = precise(silence);
        format!("; {what} {after} after the last call of the leader before it")
    });
    let reason = reason(entries, entry.term, leader);
    format!("`{}` leads: {reason}{silence}{closed}", leader.name)
}

fn with_number(member: &Named) -> String {
    format!("`{}` (member {})", member.name, member.id)
}

/// Returns why `leader` became the leader of `term`.
fn reason(entries: &[HistoryEntry], term: Term, leader: &Named) -> String {
    let given = entries.iter().find_map(|other| match &other.event {
        HistoryEvent::GaveAway { from, to, why } if to.id == leader.id && other.term == term => {
            Some((from, why, &other.by))
        }
        _ => None,
    });
    if let Some((from, why, by)) = given {
        return match (why.as_str(), by.as_str()) {
            ("", "") => format!("`{}` gave the leadership away", from.name),
            ("", by) => format!("switchover from `{}`, ordered by {by}", from.name),
            (why, _) => format!("`{}` gave the leadership away: {why}", from.name),
        };
    }
    let by_a_witness = entries.iter().find_map(|other| match &other.event {
        HistoryEvent::Led {
            leader,
            kind: MemberKind::Witness,
            ..
        } if other.term.0 + 1 == term.0 => Some(leader),
        _ => None,
    });
    match by_a_witness {
        Some(witness) => format!("the witness `{}` gave the leadership away", witness.name),
        None => "elected".to_owned(),
    }
}

/// One leadership, in the form of a timeline in Patroni's `/history`: an array in JSON. Its elements are the term, the index of the last
/// entry in the leader's log, the reason, the time and the leader's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Leadership(u64, Option<u64>, String, String, String);

/// All leaderships, the oldest first.
pub(crate) fn leaderships(entries: &[HistoryEntry]) -> Vec<Leadership> {
    let rows = entries.iter().filter_map(|entry| match &entry.event {
        HistoryEvent::Led {
            leader, log_end, ..
        } => Some(Leadership(
            entry.term.0,
            log_end.map(|end| end.index),
            reason(entries, entry.term, leader),
            time_of_day(entry.at_ms),
            leader.name.clone(),
        )),
        _ => None,
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use consensus::Term;
    use raft_types::{MemberId, OpId};

    use super::*;

    fn named(id: u64) -> Named {
        Named {
            id: MemberId(id),
            name: format!("m{id}"),
        }
    }

    fn led(
        seconds: u64,
        term: u64,
        id: u64,
        kind: MemberKind,
        leaderless_ms: Option<u64>,
    ) -> HistoryEntry {
        entry(
            seconds,
            term,
            "",
            HistoryEvent::Led {
                leader: named(id),
                kind,
                log_end: Some(OpId::new(term, 100 + seconds)),
                leaderless_ms,
                writable: kind == MemberKind::Database,
            },
        )
    }

    fn entry(seconds: u64, term: u64, by: &str, event: HistoryEvent) -> HistoryEntry {
        HistoryEntry {
            at_ms: seconds * 1000,
            term: Term(term),
            by: by.to_owned(),
            event,
        }
    }

    fn ring() -> Vec<HistoryEntry> {
        use MemberKind::{Database, Witness};
        let gave = |from, to, why: &str| HistoryEvent::GaveAway {
            from: named(from),
            to: named(to),
            why: why.to_owned(),
        };
        vec![
            entry(0, 1, "", HistoryEvent::Bootstrapped { members: 3 }),
            led(1, 2, 1, Database, None),
            led(60, 3, 3, Witness, Some(1_200)),
            led(61, 4, 2, Database, Some(40)),
            led(90, 5, 1, Database, Some(30)),
            entry(91, 5, "anna@desk", gave(2, 1, "")),
            led(120, 6, 2, Database, Some(25)),
            entry(121, 6, "", gave(1, 2, "it stopped")),
            led(180, 8, 1, Database, Some(1_500)),
        ]
    }

    #[test]
    fn leaderships_are_rows_of_patroni() {
        let rows = leaderships(&ring());
        let brief: Vec<_> = rows
            .iter()
            .map(|Leadership(term, index, why, _, name)| {
                (*term, index.unwrap(), why.as_str(), name.as_str())
            })
            .collect();
        assert_eq!(
            brief,
            [
                (2, 101, "elected", "m1"),
                (3, 160, "elected", "m3"),
                (4, 161, "the witness `m3` gave the leadership away", "m2"),
                (5, 190, "switchover from `m2`, ordered by anna@desk", "m1"),
                (6, 220, "`m1` gave the leadership away: it stopped", "m2"),
                (8, 280, "elected", "m1"),
            ]
        );
        assert_eq!(
            serde_json::to_string(&rows[0]).unwrap(),
            r#"[2,101,"elected","1970-01-01T00:00:01Z","m1"]"#
        );
    }
}
