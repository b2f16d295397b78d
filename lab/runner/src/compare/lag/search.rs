//! Which rate is tried next. Pure.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use testkit::statistics::Percentiles;

/// A follower keeps up while so much lag is not exceeded by 99 readings of a hundred.
const KEEPS_UP: Duration = Duration::from_secs(1);
/// The search ends when the highest rate that is kept is known to this factor.
const CLOSE: f64 = 1.1;

/// Transactions per second; without a number, all that the primary takes.
pub(super) type Rate = Option<f64>;

/// A rate that was held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Point {
    /// Transactions a second that were asked for; none: all that the primary can take.
    pub(super) asked: Option<f64>,
    /// Transactions a second that the primary has committed, the fifty of the probe among them.
    pub(super) per_second: f64,
    pub(super) lag_ms: Percentiles,
    /// What the follower needed for the rest when the load had ended.
    pub(super) caught_up_after_s: f64,
}

impl Point {
    /// Whether the follower kept up.
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

    /// The rate to be held next, until it is known well enough: everything first, and then halfway between what was kept and what
    /// was not.
    pub(super) fn next(&mut self) -> Option<Rate> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let not_kept = self.points.iter().filter(|point| !point.is_kept());
        let Some(too_high) = not_kept.map(|point| point.per_second).reduce(f64::min) else {
            // Everything was kept, or nothing was tried yet.
            return self.points.is_empty().then_some(None);
        };
        let kept = self.highest_kept().unwrap_or(0.0);
        (too_high > kept * CLOSE).then_some(Some((kept + too_high) / 2.0))
    }

    /// The highest rate that was kept so far.
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

    /// A follower that keeps up with so many a second, of a primary that takes 4000.
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
