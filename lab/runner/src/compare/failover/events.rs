//! Reads the acknowledged commits of the writers, and computes the gaps between them. The writers append a line for each commit to a file.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;
use testkit::statistics::longest_gap;

/// A time in microseconds since 1970, by the machine's clock, which all processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(pub(super) u64);

impl Moment {
    pub(super) fn now() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    /// The milliseconds from `earlier` to this moment; 0 if `earlier` is later.
    pub(super) fn ms_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e3
    }

    pub(super) fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms * 1000))
    }
}

/// One acknowledged commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Acknowledged {
    pub(super) at: Moment,
    /// The index of the member that acknowledged the commit.
    pub(super) by: usize,
}

/// The files with the acknowledged commits of all writers.
pub(super) struct Accounts {
    files: Vec<Account>,
    seen: Vec<Acknowledged>,
}

struct Account {
    member: usize,
    path: PathBuf,
    read: u64,
}

impl Accounts {
    /// Creates the list from the members' indexes and files.
    pub(super) fn new(paths: impl IntoIterator<Item = (usize, PathBuf)>) -> Self {
        let files = paths.into_iter().map(|(member, path)| Account {
            member,
            path,
            read: 0,
        });
        Self {
            files: files.collect(),
            seen: Vec::new(),
        }
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().map(|account| &account.path)
    }

    /// Reads new lines. Returns all commits since the moment of the last [`Self::forget`].
    pub(super) fn look(&mut self) -> Result<&[Acknowledged]> {
        for account in &mut self.files {
            let text = account.new_lines()?;
            for line in text.lines() {
                let at = line.split(' ').next().and_then(|first| first.parse().ok());
                let at = at.with_context(|| format!("not a line of an account: {line}"))?;
                self.seen.push(Acknowledged {
                    at: Moment(at),
                    by: account.member,
                });
            }
        }
        Ok(&self.seen)
    }

    /// Forgets the commits before `moment`.
    pub(super) fn forget(&mut self, moment: Moment) {
        self.seen.retain(|acknowledged| acknowledged.at >= moment);
    }
}

impl Account {
    fn new_lines(&mut self) -> Result<String> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(String::new()),
            Err(error) => return Err(error.into()),
        };
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // An incomplete last line is read again by the next call.
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        self.read += text.len() as u64;
        Ok(text)
    }
}

/// The longest time without an acknowledged commit, in milliseconds. Only gaps that end after `from` count.
pub(super) fn longest_gap_ms(acknowledged: &[Acknowledged], from: Moment) -> Option<f64> {
    let micros = acknowledged.iter().map(|one| one.at.0);
    let last_before = micros.clone().filter(|at| *at <= from.0).max();
    let after = micros.filter(|at| *at > from.0);
    Some(longest_gap(after.chain(last_before))? as f64 / 1e3)
}

// The phases of a failover, from the members' log lines: elections, quorum moves, and when a mysqld became ready and open.

/// A log line that marks a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at: Moment,
    /// The index of the member that wrote the line.
    pub(super) by: usize,
    pub(super) what: What,
}

/// The kind of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The member was elected, or began to serve.
    Leads,
    /// A quorum move was committed.
    QuorumMoved,
    /// The member's mysqld has the whole log.
    Ready,
    /// Clients may write to the member's mysqld.
    Open,
}

/// Returns the events of a member's output since `since`.
pub(super) fn events(by: usize, output: &str, since: Moment) -> Vec<Event> {
    // The newest lines are at the end, so that the search starts there.
    let lines = output.lines().rev().filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let at = moment_of(line["timestamp"].as_str()?)?;
        Some((at, what_of(&line)))
    });
    let mut events: Vec<Event> = lines
        .take_while(|(at, _)| *at >= since)
        .filter_map(|(at, what)| {
            Some(Event {
                at,
                by,
                what: what?,
            })
        })
        .collect();
    events.reverse();
    events
}

fn what_of(line: &Value) -> Option<What> {
    match line["message"].as_str()? {
        "the quorum has moved" => Some(What::QuorumMoved),
        "mysqld has all of the ring's log and may be the primary" => Some(What::Ready),
        "the primary is open for writes" => Some(What::Open),
        "leadership" => {
            let now = line["now"].as_str()?;
            let leads = ["LeaderNotServing", "Serving"];
            leads
                .iter()
                .any(|state| now.starts_with(state))
                .then_some(What::Leads)
        }
        _ => None,
    }
}

/// Parses the time of a log line, such as `2026-11-20T07:50:55.123456Z`.
fn moment_of(text: &str) -> Option<Moment> {
    let moment = humantime::parse_rfc3339(text).ok()?;
    let since = moment.duration_since(UNIX_EPOCH).ok()?;
    Some(Moment(u64::try_from(since.as_micros()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_is_between_any_two_writers_and_ends_after_the_beginning() {
        let at = |ms: u64, by| Acknowledged {
            at: Moment(ms * 1000),
            by,
        };
        // The commit of member 3 was acknowledged late, so that the list is not in the order of time.
        let seen = [
            at(0, 0),
            at(90, 0),
            at(100, 0),
            at(105, 0),
            at(150, 3),
            at(155, 3),
            at(110, 0),
        ];
        assert_eq!(longest_gap_ms(&seen, Moment(95_000)), Some(40.0));
        assert_eq!(longest_gap_ms(&seen, Moment(80_000)), Some(90.0));
        assert_eq!(longest_gap_ms(&seen[..1], Moment(0)), None);
    }

    #[test]
    fn lines_are_read_once_and_only_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("account");
        let mut accounts = Accounts::new([(4, path.clone())]);
        assert!(accounts.look().unwrap().is_empty());
        std::fs::write(&path, "5 1.1 a:1\n7 1.2 a:2\n9 1.").unwrap();
        assert_eq!(accounts.look().unwrap().len(), 2);
        std::fs::write(&path, "5 1.1 a:1\n7 1.2 a:2\n9 1.3 a:3\n").unwrap();
        let last = Acknowledged {
            at: Moment(9),
            by: 4,
        };
        assert_eq!(accounts.look().unwrap().last(), Some(&last));
        accounts.forget(Moment(7));
        assert_eq!(accounts.look().unwrap().len(), 2);
    }
}

#[cfg(test)]
mod log_lines_tests {
    use super::*;

    #[test]
    fn times_of_log_lines_are_read() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2000-03-01T00:00:00Z", 951_868_800),
            ("2024-12-31T23:59:59Z", 1_735_689_599),
            ("2026-11-20T07:50:55Z", 1_795_161_055),
        ] {
            assert_eq!(moment_of(text), Some(Moment(seconds * 1_000_000)), "{text}");
        }
        let fine = moment_of("1970-01-01T00:00:01.25Z");
        assert_eq!(fine, Some(Moment(1_250_000)));
        assert_eq!(moment_of("yesterday"), None);
    }

    #[test]
    fn only_elections_and_moves_of_the_quorum_are_events() {
        let line = |second: u32, rest: &str| {
            format!("{{\"timestamp\":\"1970-01-01T00:00:{second:02}.5Z\",{rest}}}\n")
        };
        let output = [
            line(1, r#""message":"leadership","now":"Serving { term: Term(1) }""#),
            line(2, r#""message":"leadership","now":"Follower { leader: None }""#),
            line(3, r#""message":"leadership","now":"LeaderNotServing { term: Term(2), why: OwnEntryNotCommitted }""#),
            "a line of another program\n".to_owned(),
            line(4, r#""message":"the quorum has moved","op_id":"2.7""#),
            line(5, r#""message":"mysqld has all of the ring's log and may be the primary","term":2"#),
            line(6, r#""message":"the primary is open for writes","term":2"#),
        ]
        .concat();
        let found = events(5, &output, Moment(2_000_000));
        let expected = [
            (3, What::Leads),
            (4, What::QuorumMoved),
            (5, What::Ready),
            (6, What::Open),
        ]
        .map(|(second, what)| Event {
            at: Moment(second * 1_000_000 + 500_000),
            by: 5,
            what,
        });
        assert_eq!(found, expected);
    }
}
