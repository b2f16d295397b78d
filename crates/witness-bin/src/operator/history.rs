//! The ring's history as sentences for `witness history`, and as Patroni's rows for `GET /history`. Pure.

use std::time::{Duration, UNIX_EPOCH};

use consensus::{HistoryEntry, HistoryEvent, Named};
use raft_types::{MemberKind, UnixSeconds};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::operator::sentences::span;

/// A moment as `2026-11-23T02:31:45Z`, UTC.
pub(crate) fn time_of_day(at_ms: u64) -> String {
    let at = UNIX_EPOCH.checked_add(Duration::from_millis(at_ms));
    let at = at.unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_seconds(at).to_string()
}

/// Parses an RFC 3339 time from an operator, such as `2026-11-24T03:00:00Z` or `2026-11-24T04:00:00+01:00`.
///
/// # Errors
/// The reason why it is invalid.
pub(crate) fn moment(text: &str) -> Result<UnixSeconds, String> {
    let read = OffsetDateTime::parse(text, &Rfc3339);
    let seconds = read
        .ok()
        .and_then(|at| u64::try_from(at.unix_timestamp()).ok());
    seconds.map(UnixSeconds).ok_or_else(|| {
        format!("`{text}` is no time; write it as 2026-11-24T03:00:00Z, or with an offset as 2026-11-24T04:00:00+01:00")
    })
}

/// Parses the bound of an HTTP query, a duration with a unit such as `2s`.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    // In Patroni, a zero needs no unit.
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    let duration = humantime::parse_duration(text).ok().filter(|_| has_unit)?;
    duration.as_millis().try_into().ok()
}

/// The event as a sentence without its full stop; names are in backticks. The operator who ordered it is omitted.
pub(crate) fn sentence(entries: &[HistoryEntry], at: usize) -> String {
    let Some(entry) = entries.get(at) else {
        return String::new();
    };
    match &entry.event {
        HistoryEvent::Bootstrapped { members } => {
            format!("The ring was made, with {members} members")
        }
        HistoryEvent::Led {
            leader,
            kind,
            leaderless_ms,
            writable,
            ..
        } => {
            // An entry for the end of the interruption contains its duration.
            let resumed = |other: &HistoryEntry| match &other.event {
                HistoryEvent::WritesResumed { member } => {
                    member.id == leader.id && other.term == entry.term
                }
                _ => false,
            };
            let silence = leaderless_ms.filter(|_| !entries.iter().any(resumed));
            let silence = silence.map_or_else(String::new, |silence| {
                let what = match (kind, writable) {
                    (MemberKind::Database, true) => "clients could write",
                    _ => "it served",
                };
                let after = match silence {
                    0..60_000 => format!("{:.1} s", silence as f64 / 1e3),
                    _ => span(silence as f64 / 1e3),
                };
                format!("; {what} {after} after the last call of the leader before it")
            });
            let closed = match (kind, writable) {
                (MemberKind::Database, false) => "; its mysqld is not open for writes",
                _ => "",
            };
            format!(
                "`{}` leads: {}{silence}{closed}",
                leader.name,
                reason(entries, at)
            )
        }
        HistoryEvent::GaveAway { from, to, why } => {
            let why = match why.as_str() {
                "" => String::new(),
                why => format!(": {why}"),
            };
            format!("`{}` gave the leadership to `{}`{why}", from.name, to.name)
        }
        HistoryEvent::Added { member } => format!("{} joined the ring", with_number(member)),
        HistoryEvent::Removed { member } => {
            format!("{} left the ring for good", with_number(member))
        }
        HistoryEvent::Updated { member } => {
            format!("What the log says of {} was changed", with_number(member))
        }
        HistoryEvent::RulesSet { policy } => {
            format!("The rules of the quorum were changed; the policy is `{policy}`")
        }
        HistoryEvent::Paused {
            primary,
            until,
            reason,
        } => {
            let until = until.map_or_else(String::new, |UnixSeconds(until)| {
                format!(" until {}", time_of_day(until.saturating_mul(1000)))
            });
            let reason = match reason.as_str() {
                "" => String::new(),
                reason => format!(": {reason}"),
            };
            format!(
                "Failover was paused, `{}` stays the primary{until}{reason}",
                primary.name
            )
        }
        HistoryEvent::Resumed => "The pause of failover ended".to_owned(),
        HistoryEvent::Scheduled { to, at } => format!(
            "A switchover to `{}` was scheduled for {}",
            to.name,
            time_of_day(at.0.saturating_mul(1000))
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
                "A quorum that was lost for good was repaired: `{}` went on alone{end}",
                survivor.name
            )
        }
        HistoryEvent::Trimmed {
            member,
            transactions,
        } => format!(
            "{transactions} {} that the ring had not committed {} cut off the binlog of the mysqld beside `{}`",
            if *transactions == 1 {
                "transaction"
            } else {
                "transactions"
            },
            if *transactions == 1 { "was" } else { "were" },
            member.name
        ),
        HistoryEvent::Provisioned { member, donor } => format!(
            "The data of the mysqld beside `{}` were replaced by a copy of those beside `{}`",
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

fn with_number(member: &Named) -> String {
    format!("`{}` (member {})", member.name, member.id)
}

/// Why the leadership moved to the leader whose term begins with this entry.
fn reason(entries: &[HistoryEntry], at: usize) -> String {
    let Some(HistoryEntry {
        term,
        event: HistoryEvent::Led { leader, .. },
        ..
    }) = entries.get(at)
    else {
        return String::new();
    };
    let given = entries.iter().find_map(|other| match &other.event {
        HistoryEvent::GaveAway { from, to, why } if to.id == leader.id && other.term == *term => {
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

/// One leadership as Patroni's `/history` shows a timeline: the term, the index of the last entry in the leader's log, why, when, and
/// the leader's name. An array in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Leadership(u64, Option<u64>, String, String, String);

/// All leaderships, the oldest first.
pub(crate) fn leaderships(entries: &[HistoryEntry]) -> Vec<Leadership> {
    let rows = entries
        .iter()
        .enumerate()
        .filter_map(|(at, entry)| match &entry.event {
            HistoryEvent::Led {
                leader, log_end, ..
            } => Some(Leadership(
                entry.term.0,
                log_end.map(|end| end.index),
                reason(entries, at),
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
    fn who_led_when_and_why_as_patroni_shows_it() {
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

    #[test]
    fn everything_has_a_sentence() {
        let mut entries = ring();
        entries.extend([
            entry(200, 8, "anna", HistoryEvent::Removed { member: named(3) }),
            entry(
                201,
                8,
                "",
                HistoryEvent::Trimmed {
                    member: named(2),
                    transactions: 1,
                },
            ),
            entry(
                202,
                8,
                "anna",
                HistoryEvent::Paused {
                    primary: named(1),
                    until: Some(UnixSeconds(3_600)),
                    reason: "disks".to_owned(),
                },
            ),
        ]);
        let said: Vec<_> = (0..entries.len())
            .map(|at| sentence(&entries, at))
            .collect();
        assert_eq!(said[0], "The ring was made, with 3 members");
        assert_eq!(
            said[2],
            "`m3` leads: elected; it served 1.2 s after the last call of the leader before it"
        );
        assert_eq!(
            said[8],
            "`m1` leads: elected; clients could write 1.5 s after the last call of the leader before it"
        );
        assert_eq!(said[9], "`m3` (member 3) left the ring for good");
        assert_eq!(
            said[10],
            "1 transaction that the ring had not committed was cut off the binlog of the mysqld beside `m2`"
        );
        assert_eq!(
            said[11],
            "Failover was paused, `m1` stays the primary until 1970-01-01T01:00:00Z: disks"
        );
    }

    #[test]
    fn a_bound_has_a_unit() {
        let read = ["250ms", "2s", "1m"].map(milliseconds);
        assert_eq!(read, [Some(250), Some(2_000), Some(60_000)]);
        assert_eq!(milliseconds("1h"), Some(3_600_000));
        for bad in [
            "",
            "0",
            "1048576",
            "s",
            "-1",
            "ms5",
            "99999999999999999999",
            "18446744073709551615m",
        ] {
            assert_eq!(milliseconds(bad), None, "{bad}");
        }
    }
}
