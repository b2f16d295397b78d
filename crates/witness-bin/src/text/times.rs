//! Times and durations as people read and write them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use raft_types::UnixSeconds;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The end of the year 9999, the last one of RFC 3339.
const LAST_MS: u64 = 253_402_300_799_999;

/// This moment, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default().as_millis();
    since.try_into().unwrap_or(u64::MAX)
}

/// This moment, in seconds since 1970.
pub(crate) fn now() -> u64 {
    now_ms() / 1000
}

/// A moment as `2026-11-23T02:31:45Z`, UTC.
pub(crate) fn time_of_day(at_ms: u64) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(at_ms.min(LAST_MS));
    humantime::format_rfc3339_seconds(at).to_string()
}

/// A moment from the log, in seconds, as `2026-11-23T02:31:45Z`.
pub(crate) fn second_of_day(at: UnixSeconds) -> String {
    time_of_day(at.0.saturating_mul(1000))
}

/// A duration in its two largest units.
pub(crate) fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{whole}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", whole % 60),
        (0, _, _) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

/// A measured duration; if it is shorter than a minute, with tenths of a second.
pub(crate) fn precise(milliseconds: u64) -> String {
    let seconds = milliseconds as f64 / 1e3;
    match milliseconds {
        0..60_000 => format!("{seconds:.1} s"),
        _ => span(seconds),
    }
}

/// The error for a text that is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no time; write it as 2026-11-24T03:00:00Z, or with an offset as 2026-11-24T04:00:00+01:00"
)]
pub(crate) struct NoTime(String);

/// Parses an RFC 3339 time from an operator, such as `2026-11-24T03:00:00Z` or `2026-11-24T04:00:00+01:00`.
///
/// # Errors
/// When the text is not such a time, or the time is before 1970.
pub(crate) fn moment(text: &str) -> Result<UnixSeconds, NoTime> {
    let read = OffsetDateTime::parse(text, &Rfc3339);
    let seconds = read.ok().map(OffsetDateTime::unix_timestamp);
    let seconds = seconds.and_then(|seconds| seconds.try_into().ok());
    seconds
        .map(UnixSeconds)
        .ok_or_else(|| NoTime(text.to_owned()))
}

/// Parses a limit in an HTTP query: a duration with a unit, such as `2s`.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    // humantime accepts a zero without a unit. In Patroni that means bytes, so it is rejected here.
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    let duration = humantime::parse_duration(text).ok().filter(|_| has_unit)?;
    duration.as_millis().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        let cases = [
            (0.9, "0s"),
            (59.0, "59s"),
            (61.0, "1m01s"),
            (3_720.0, "1h02m"),
            (90_000.0, "1d01h"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(span(seconds), expected);
        }
        assert_eq!(precise(30_740), "30.7 s");
        assert_eq!(time_of_day(u64::MAX), "9999-12-31T23:59:59Z");
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
