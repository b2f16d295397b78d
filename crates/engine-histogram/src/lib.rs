//! The histograms in which the engine would count its own batch sizes and budgets. This crate replaces the published one of the same
//! name, which allocates tables of 27 MB in every process with an engine. This workspace does not read these histograms, and the engine
//! without its `runtime-stats` only records; so they record nothing.
//!
//! The public API is the part that the engine uses. A later engine that needs more does not compile. The
//! published crate may be smaller by then.

use std::fmt;
use std::marker::PhantomData;

/// Counts no values. The type parameter is that of the published crate, which can mark several time windows with values of such a type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram<T = ()>(PhantomData<T>);

impl<T> Histogram<T> {
    /// An empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self(PhantomData)
    }

    /// Ignores a value.
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Ignores a value that was seen `times` times.
    pub fn record_n(&mut self, _value: u64, _times: u64) {}

    /// Zeros.
    #[must_use]
    pub fn percentile_stats(&self) -> PercentileStats {
        PercentileStats::default()
    }
}

/// Some percentiles of a histogram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
        f.write_str("not recorded")
    }
}

/// A chart of no histograms.
#[derive(Debug, Clone, Default)]
pub struct AsciiChart;

impl AsciiChart {
    /// An empty chart.
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
