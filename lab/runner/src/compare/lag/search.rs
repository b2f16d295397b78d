//! Searches for the highest rate with which a follower keeps up. Pure.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use testkit::statistics::Percentiles;

/// A follower keeps up if 99 of 100 readings show a smaller lag than this.
const KEEPS_UP: Duration = Duration::from_secs(1);
/// The search ends when the highest rate is known up to this factor.
const CLOSE: f64 = 1.1;

/// Transactions per second. `None`: as many as the primary accepts.
pub(super) type Rate = Option<f64>;

/// The result at one rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Point {
    /// The requested transactions per second. `None`: as many as the primary accepts.
    pub(super) asked: Option<f64>,
    /// Transactions per second that the primary committed, including the fifty of the probe.
    pub(super) per_second: f64,
    pub(super) lag_ms: Percentiles,
    /// The time that the follower needed to catch up after the load had ended.
    pub(super) caught_up_after_s: f64,
}

impl Point {
    /// Returns whether the follower kept up.
    pub(super) fn is_kept(&self) -> bool {
        self.lag_ms.p99 < KEEPS_UP.as_secs_f64() * 1e3
    }
}

/// The search for the highest rate that a follower keeps up with.
#[derive(Debug)]
pub(super) struct Search {
    left: u32,
    pub(super) points: Vec<Point>,
}

impl Search {
    pub(super) fn new(rates: u32) -> Self {
        Self {
            left: rates,
            points: Vec::new(),
        }
    }

    /// Returns the next rate to try: first without a limit, then halfway between the highest rate with which the follower kept up and the
    /// lowest other rate. `None`: the search has ended.
    pub(super) fn next(&mut self) -> Option<Rate> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let not_kept = self.points.iter().filter(|point| !point.is_kept());
        let Some(too_high) = not_kept.map(|point| point.per_second).reduce(f64::min) else {
            // The follower kept up with all rates, or no rate was tried yet.
            return self.points.is_empty().then_some(None);
        };
        let kept = self.highest_kept().unwrap_or(0.0);
        (too_high > kept * CLOSE).then_some(Some((kept + too_high) / 2.0))
    }

    /// The highest rate with which the follower kept up so far.
    pub(super) fn highest_kept(&self) -> Option<f64> {
        highest_kept(&self.points)
    }
}

/// The highest rate among these with which a follower kept up.
pub(super) fn highest_kept(points: &[Point]) -> Option<f64> {
    let kept = points.iter().filter(|point| point.is_kept());
    kept.map(|point| point.per_second).reduce(f64::max)
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} transactions/s, lag p50 {:.0} ms, p99 {:.0} ms, caught up after {:.1} s",
            self.per_second, self.lag_ms.p50, self.lag_ms.p99, self.caught_up_after_s
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches for the rate of a follower that keeps up with `keeps` transactions per second. The primary accepts 4000.
    fn highest(keeps: f64, rates: u32) -> (Option<f64>, usize) {
        let mut search = Search::new(rates);
        while let Some(asked) = search.next() {
            let per_second = asked.unwrap_or(4000.0);
            let lag = if per_second <= keeps { 30.0 } else { 9000.0 };
            search.points.push(Point {
                asked,
                per_second,
                lag_ms: Percentiles::of([lag]).unwrap(),
                caught_up_after_s: 0.0,
            });
        }
        (search.highest_kept(), search.points.len())
    }

    #[test]
    fn one_rate_is_enough_where_everything_is_kept() {
        assert_eq!(highest(5000.0, 6), (Some(4000.0), 1));
    }

    #[test]
    fn the_highest_rate_is_found_to_a_tenth() {
        let (found, tried) = highest(2300.0, 10);
        let found = found.unwrap();
        assert!(found <= 2300.0 && found * CLOSE * CLOSE > 2300.0, "{found}");
        assert!(tried < 8, "{tried}");
    }

    #[test]
    fn a_follower_that_never_keeps_up_has_no_rate() {
        assert_eq!(highest(0.0, 4), (None, 4));
    }
}
