//! Metrics in OpenMetrics' text form, written from values at each scrape.

use std::fmt::{self, Error};

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use procfs::process::{LimitValue, Process};
use procfs::{ProcResult, WithCurrentSystemInfo};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Metric, Registry, Unit};

/// Adds metrics to a registry, one on each line: name and metric. The doc comment above a metric is its help text.
macro_rules! register {
    ($registry:expr; $($(#[doc = $help:literal])+ $name:literal = $metric:expr;)*) => {
        $($crate::openmetrics::add(&mut $registry, $name, concat!($($help),+).trim_ascii_start(), $metric);)*
    };
}

pub(crate) use register;

/// Adds a metric. If its name ends in `_seconds` or `_bytes`, that suffix becomes its unit.
pub(crate) fn add(registry: &mut Registry, name: &str, help: &str, metric: impl Metric) {
    match name.rsplit_once('_') {
        Some((name, "seconds")) => registry.register_with_unit(name, help, Unit::Seconds, metric),
        Some((name, "bytes")) => registry.register_with_unit(name, help, Unit::Bytes, metric),
        _ => registry.register(name, help, metric),
    }
}

/// The content type that Prometheus requests and reads.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes the response to a scrape: the metrics of the registry and of this process.
pub(crate) fn page(registry: &Registry) -> Response {
    let mut text = String::new();
    let written = encode_registry(&mut text, registry)
        .and_then(|()| encode_registry(&mut text, &of_this_process().unwrap_or_default()))
        .and_then(|()| encode_eof(&mut text));
    match written {
        Ok(()) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Returns the process metrics that Prometheus' own client libraries export, under the same names and without our labels.
///
/// # Errors
/// When `/proc` cannot be read.
fn of_this_process() -> ProcResult<Registry> {
    let process = Process::myself()?;
    let stat = process.stat()?;
    let ticks = procfs::ticks_per_second() as f64;
    let booted = procfs::boot_time_secs()? as f64;
    let mut registry = Registry::with_prefix("process");
    register! { registry;
        /// Processor time that was used, in user and system mode
        "cpu_seconds" = ConstCounter::new((stat.utime + stat.stime) as f64 / ticks);
        /// When the process started, since 1970
        "start_time_seconds" = ConstGauge::new(booted + stat.starttime as f64 / ticks);
        /// Memory that it has
        "resident_memory_bytes" = ConstGauge::new(stat.rss_bytes().get() as f64);
        /// Addresses that it uses
        "virtual_memory_bytes" = ConstGauge::new(stat.vsize as f64);
        /// File descriptors that are open
        "open_fds" = ConstGauge::new(process.fd_count()? as f64);
    }
    if let LimitValue::Value(most) = process.limits()?.max_open_files.soft_limit {
        register! { registry;
            /// File descriptors that may be open
            "max_fds" = ConstGauge::new(most as f64);
        }
    }
    Ok(registry)
}

/// The value of a gauge; `None` omits it.
pub(crate) trait Figure {
    fn figure(self) -> Option<f64>;
}

macro_rules! figures {
    ($($number:ty: $value:ident => $figure:expr;)*) => {
        $(impl Figure for $number {
            fn figure(self) -> Option<f64> {
                let $value = self;
                Some($figure)
            }
        })*
    };
}

figures! {
    f64: value => value;
    u64: value => value as f64;
    i64: value => value as f64;
    usize: value => value as f64;
    // 1 for `true` and 0 for `false`.
    bool: value => f64::from(u8::from(value));
}

impl<F: Figure> Figure for Option<F> {
    fn figure(self) -> Option<f64> {
        self.and_then(F::figure)
    }
}

/// Writes the metrics of one scrape. The names given to its methods omit the registry's prefix and `_total`. If a name ends in `_seconds`
/// or `_bytes`, that suffix becomes the unit.
pub(crate) struct MetricWriter<'e>(DescriptorEncoder<'e>);

/// Writes metrics, one on each line: kind, name and value. The doc comment above a metric is its help text.
macro_rules! metrics {
    ($writer:expr; $($(#[doc = $help:literal])+ $kind:ident $name:literal = $value:expr;)*) => {{
        $($writer.$kind($name, concat!($($help),+).trim_ascii_start(), $value)?;)*
        Ok(())
    }};
}

pub(crate) use metrics;

impl<'e> MetricWriter<'e> {
    pub(crate) fn new(encoder: DescriptorEncoder<'e>) -> Self {
        Self(encoder)
    }

    fn metric<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, Error> {
        static SECONDS: Unit = Unit::Seconds;
        static BYTES: Unit = Unit::Bytes;
        let (name, unit) = match name.rsplit_once('_') {
            Some((name, "seconds")) => (name, Some(&SECONDS)),
            Some((name, "bytes")) => (name, Some(&BYTES)),
            _ => (name, None),
        };
        self.0.encode_descriptor(name, help, unit, kind)
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: impl Figure) -> fmt::Result {
        let Some(value) = value.figure() else {
            return Ok(());
        };
        self.metric(name, help, MetricType::Gauge)?
            .encode_gauge(&value)
    }

    pub(crate) fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        count(self.metric(name, help, MetricType::Counter)?, value)
    }

    /// Writes an information metric, with the values as labels.
    pub(crate) fn info(
        &mut self,
        name: &str,
        help: &str,
        labels: &impl EncodeLabelSet,
    ) -> fmt::Result {
        self.metric(name, help, MetricType::Info)?
            .encode_info(labels)
    }

    /// Writes a gauge with labels; writes nothing if there are no values.
    pub(crate) fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let write = |mut metric: MetricEncoder<'_>, value: f64| metric.encode_gauge(&value);
        self.family(name, help, MetricType::Gauge, values, write)
    }

    /// Writes a counter with labels; writes nothing if there are no values.
    pub(crate) fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Counter, values, count)
    }

    fn family<L: EncodeLabelSet, V>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        values: impl IntoIterator<Item = (L, V)>,
        write: impl Fn(MetricEncoder<'_>, V) -> fmt::Result,
    ) -> fmt::Result {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let mut metric = self.metric(name, help, kind)?;
        for (labels, value) in values {
            write(metric.encode_family(&labels)?, value)?;
        }
        Ok(())
    }
}

fn count(mut metric: MetricEncoder<'_>, value: u64) -> fmt::Result {
    metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
}
