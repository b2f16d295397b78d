//! What the members' own log lines tell of a failover: who was elected when, when the quorum had moved, and when a
//! mysqld was ready and open.

use serde_json::Value;

use super::acknowledgements::Moment;

/// A line that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at: Moment,
    /// The index of the member that wrote it.
    pub(super) by: usize,
    pub(super) what: What,
}

/// What it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The member was elected, or serves.
    Leads,
    /// A change of the voter sets is committed.
    QuorumMoved,
    /// The mysqld beside it has the whole log.
    Ready,
    /// Clients may write to the mysqld beside it.
    Open,
}

/// The events of a member's output, from `since` on.
pub(super) fn events(by: usize, output: &str, since: Moment) -> Vec<Event> {
    // The newest lines are the last ones.
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

/// A time as log lines have it, `2026-11-20T07:50:55.123456Z`.
fn moment_of(text: &str) -> Option<Moment> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.split('-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut clock = clock.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let micros: u64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    let seconds = ((days(year, month, day)? * 24 + hour) * 60 + minute) * 60 + second;
    Some(Moment(seconds * 1_000_000 + micros))
}

/// Days from 1970 to a date of the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    const BEFORE_MONTH: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let before = BEFORE_MONTH.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    let leap_year = leaps(year) > leaps(year - 1);
    let leap_day = u64::from(leap_year && month > 2);
    let years = year.checked_sub(1970)?;
    Some(years * 365 + leaps(year - 1) - leaps(1969) + before + leap_day + day.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
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
