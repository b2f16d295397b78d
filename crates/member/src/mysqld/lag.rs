//! Lag of a following mysqld. Pure.

use std::time::Duration;

/// Milliseconds that a mysqld lags behind the ring's commits. It is the longer of two times: the lag behind this member's log
/// (`applied_ms`), and the time for which this member has lacked entries (`lacks`). Without contact to the ring, a complete log does not
/// prove zero lag. A known lag behind the log is a lower bound.
pub(crate) fn lag_ms(applied_ms: Option<u64>, lacks: Option<Duration>) -> Option<u64> {
    let applied = applied_ms?;
    match lacks {
        Some(lacks) => Some(applied.max(u64::try_from(lacks.as_millis()).unwrap_or(u64::MAX))),
        None => Some(applied).filter(|applied| *applied > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_applied_all_of_a_log_that_lacks_entries_is_behind() {
        let lacks = |ms| Some(Duration::from_millis(ms));
        let table = [
            (Some(0), lacks(0), Some(0)),
            (Some(0), lacks(31_000), Some(31_000)),
            (Some(700), lacks(40), Some(700)),
            (Some(700), None, Some(700)),
            (Some(0), None, None),
            (None, lacks(31_000), None),
            (None, None, None),
        ];
        for (applied, lacks, expected) in table {
            assert_eq!(lag_ms(applied, lacks), expected, "{applied:?} {lacks:?}");
        }
    }
}
