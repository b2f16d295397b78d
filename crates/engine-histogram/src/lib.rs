//! The histograms in which the engine counts its own batch sizes and budgets. This crate replaces the published one of the same name,
//! which allocates tables of 27 MB in every process with an engine, for unused scales. This workspace does not read these
//! histograms, and the engine without its `runtime-stats` only records; so they are coarse and small.
//!
//! The public API is the part that the engine uses. A later engine that needs more does not compile. Then check
//! whether the published crate has become smaller.

use std::fmt;
use std::marker::PhantomData;

/// One bucket for zero, and one for each power of two.
const BUCKETS: usize = 1 + u64::BITS as usize;

/// Counts of recorded values by size, a power of two. The type parameter is that of the published crate, which can mark several
/// time windows with values of such a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    /// Bucket 0 counts zeros, bucket n the values from 2^(n-1) to below 2^n.
    counts: Box<[u64; BUCKETS]>,
    marks: PhantomData<T>,
}

impl<T> Histogram<T> {
    /// An empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            marks: PhantomData,
        }
    }

    /// Counts one value.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Counts a value `times` times.
    pub fn record_n(&mut self, value: u64, times: u64) {
        if let Some(count) = self.counts.get_mut(bucket_of(value)) {
            *count = count.saturating_add(times);
        }
    }

    /// The percentiles, each as the lower bound of its bucket.
    #[must_use]
    pub fn percentile_stats(&self) -> PercentileStats {
        let samples = self.counts.iter().sum();
        let per_mille = |wanted: u64| {
            let rank = (u128::from(samples) * u128::from(wanted)).div_ceil(1000);
            let mut seen = 0;
            let reached = self.counts.iter().position(|count| {
                seen += u128::from(*count);
                seen >= rank && seen > 0
            });
            reached.map_or(0, least_of)
        };
        PercentileStats {
            samples,
            p0_1: per_mille(1),
            p1: per_mille(10),
            p5: per_mille(50),
            p10: per_mille(100),
            p50: per_mille(500),
            p90: per_mille(900),
            p99: per_mille(990),
            p99_9: per_mille(999),
        }
    }
}

impl<T> Default for Histogram<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The number of significant bits.
fn bucket_of(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()) as usize
}

fn least_of(bucket: usize) -> u64 {
    match bucket.checked_sub(1) {
        None => 0,
        Some(power) => 1 << power,
    }
}

/// Some percentiles of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PercentileStats {
    /// How many values were recorded.
    pub samples: u64,
    /// One in a thousand is at most this large.
    pub p0_1: u64,
    /// One in a hundred.
    pub p1: u64,
    /// Five in a hundred.
    pub p5: u64,
    /// One in ten.
    pub p10: u64,
    /// Half of them.
    pub p50: u64,
    /// Nine in ten.
    pub p90: u64,
    /// 99 in a hundred.
    pub p99: u64,
    /// 999 in a thousand.
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            samples,
            p50,
            p90,
            p99,
            ..
        } = self;
        write!(f, "{samples} samples: p50 {p50}, p90 {p90}, p99 {p99}")
    }
}

/// Several histograms.
#[derive(Debug, Clone, Default)]
pub struct AsciiChart {
    lines: Vec<(String, PercentileStats)>,
}

impl AsciiChart {
    /// No histograms.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a histogram under this name.
    #[must_use]
    pub fn add<T>(mut self, name: impl Into<String>, histogram: Histogram<T>) -> Self {
        self.lines.push((name.into(), histogram.percentile_stats()));
        self
    }
}

impl fmt::Display for AsciiChart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = self.lines.iter();
        lines.try_for_each(|(name, stats)| writeln!(f, "{name}: {stats}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_least_value_of_its_bucket() {
        let mut histogram = Histogram::<()>::new();
        assert_eq!(histogram.percentile_stats().p99, 0);
        for value in [0, 1, 5, 6, 7, 7, 7, 7, 7, u64::MAX] {
            histogram.record(value);
        }
        let stats = histogram.percentile_stats();
        assert_eq!(stats.samples, 10);
        assert_eq!((stats.p0_1, stats.p10, stats.p50), (0, 0, 4));
        assert_eq!((stats.p90, stats.p99), (4, 1 << 63));
        let chart = AsciiChart::new().add("sizes", histogram);
        assert_eq!(
            chart.to_string(),
            "sizes: 10 samples: p50 4, p90 4, p99 9223372036854775808\n"
        );
    }

    #[test]
    fn every_value_has_a_bucket() {
        for (value, bucket) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (u64::MAX, 64)] {
            assert_eq!(bucket_of(value), bucket);
            assert!(least_of(bucket) <= value && bucket < BUCKETS);
        }
    }

    #[test]
    fn a_histogram_takes_half_a_kilobyte() {
        assert!(size_of::<[u64; BUCKETS]>() < 1024);
    }
}
