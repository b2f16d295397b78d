//! Histograms in which openraft would count its batch sizes and budgets. This crate replaces the published crate of the same name,
//! which allocates tables of 27 MB in every process with openraft. This workspace does not read these histograms, and openraft without
//! its feature `runtime-stats` only records values. Therefore these histograms record nothing.
//!
//! The public API is the part that openraft uses. If a later version of openraft needs more, it does not compile. The published crate
//! may be smaller by then.

use std::fmt;
use std::marker::PhantomData;

/// A histogram that records no values. The type parameter is that of the published crate, which can label several time windows with
/// such values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram<T = ()>(PhantomData<T>);

impl<T> Histogram<T> {
    /// Creates an empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self(PhantomData)
    }

    /// Ignores a value.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Ignores a value that occurred `times` times.
    pub fn record_n(&mut self, _value: u64, _times: u64) {}

    /// Returns zero for every percentile.
    #[must_use]
    pub fn percentile_stats(&self) -> PercentileStats {
        PercentileStats::default()
    }
}

/// Some percentiles of a histogram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PercentileStats {
    /// The number of recorded values.
    pub samples: u64,
    /// 0.1 % of the values are at most this large.
    pub p0_1: u64,
    /// 1 % of the values are at most this large.
    pub p1: u64,
    /// 5 % of the values are at most this large.
    pub p5: u64,
    /// 10 % of the values are at most this large.
    pub p10: u64,
    /// Half of the values are at most this large.
    pub p50: u64,
    /// 90 % of the values are at most this large.
    pub p90: u64,
    /// 99 % of the values are at most this large.
    pub p99: u64,
    /// 99.9 % of the values are at most this large.
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not recorded")
    }
}

/// A chart that shows no histograms.
#[derive(Debug, Clone, Default)]
pub struct AsciiChart;

impl AsciiChart {
    /// Creates an empty chart.
    #[must_use]
    pub fn new() -> Self {
        Self
    }

    /// Ignores a histogram.
    #[must_use]
    pub fn add<T>(self, _name: impl Into<String>, _histogram: Histogram<T>) -> Self {
        self
    }
}

impl fmt::Display for AsciiChart {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}
