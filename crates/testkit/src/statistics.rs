//! Percentiles, medians over rounds, and longest gaps. All measurements use these definitions. Pure.
//!
//! A percentile is an observed value (nearest rank). Values over several rounds are a [`Spread`]. For an even number of rounds, its
//! median is the mean of the two middle values, since the lower of the two would bias the result.

use std::ops::Sub;
use std::time::Duration;

use serde::Serialize;

/// Returns a percentile of n sorted values: the value at position n·p/100, rounded up, at least the first. So p per cent of the values
/// are at most this large. `None` if there is no value.
#[must_use]
pub fn nearest_rank<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// Single observations: their mean and percentiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// The mean of all observations.
    pub mean: f64,
    /// Half of the observations are at most this large.
    pub p50: f64,
    /// 95 % of the observations are at most this large.
    pub p95: f64,
    /// 99 % of the observations are at most this large. With fewer than a hundred observations, the largest.
    pub p99: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Number of observations.
    pub samples: usize,
}

impl Percentiles {
    /// Computes the percentiles of `values`; `None` if there is no value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
            p50: nearest_rank(&sorted, 50)?,
            p95: nearest_rank(&sorted, 95)?,
            p99: nearest_rank(&sorted, 99)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
            samples: sorted.len(),
        })
    }

    /// As [`Self::of`], for times, in milliseconds.
    pub fn of_ms(times: impl IntoIterator<Item = Duration>) -> Option<Self> {
        Self::of(times.into_iter().map(|time| time.as_secs_f64() * 1e3))
    }
}

/// The median of a few rounds, with its range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value; for an even number of rounds, the mean of the two middle values.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// Number of rounds.
    pub samples: usize,
}

impl Spread {
    /// Computes the spread of `values`; `None` if there is no value, or one of them is not a number.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        if sorted.iter().any(|value| value.is_nan()) {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        Some(Self {
            median,
            min,
            max,
            samples: sorted.len(),
        })
    }
}

/// Returns the longest time between two consecutive times; `None` if there are fewer than two.
pub fn longest_gap<T>(moments: impl IntoIterator<Item = T>) -> Option<T::Output>
where
    T: Copy + Ord + Sub<Output: Ord>,
{
    let mut sorted: Vec<T> = moments.into_iter().collect();
    sorted.sort();
    sorted.windows(2).map(|two| two[1] - two[0]).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        // The number of values, then p50, p95 and p99.
        for (count, p50, p95, p99) in [
            (1, 1, 1, 1),
            (2, 1, 2, 2),
            (16, 8, 16, 16),
            (20, 10, 19, 20),
            (50, 25, 48, 50),
            (100, 50, 95, 99),
            (250, 125, 238, 248),
        ] {
            let of = Percentiles::of((1..=count).rev().map(f64::from)).unwrap();
            let expected = [p50, p95, p99, 1, count].map(f64::from);
            assert_eq!([of.p50, of.p95, of.p99, of.min, of.max], expected);
            assert_eq!(of.samples, count as usize);
            assert_eq!(of.mean, f64::from(count + 1) / 2.0);
        }
        assert_eq!(Percentiles::of([]), None);
        assert_eq!(nearest_rank(&[7, 8], 0), Some(7));
        assert_eq!(nearest_rank(&[7, 8], 100), Some(8));
        let times = [Duration::from_micros(1500)];
        assert_eq!(Percentiles::of_ms(times).unwrap().p50, 1.5);
    }

    #[test]
    fn a_spread_is_the_median_and_the_range() {
        let spread = |values: &[f64]| {
            Spread::of(values).map(|spread| (spread.median, spread.min, spread.max, spread.samples))
        };
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0, 3)));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.0, 4.0, 4)));
        assert_eq!(spread(&[7.0]), Some((7.0, 7.0, 7.0, 1)));
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn the_longest_gap_is_between_neighbours_in_time() {
        assert_eq!(longest_gap([90, 0, 100, 110, 150]), Some(90));
        assert_eq!(longest_gap([5, 5]), Some(0));
        assert_eq!(longest_gap([5]), None);
        assert_eq!(longest_gap::<u64>([]), None);
    }
}
