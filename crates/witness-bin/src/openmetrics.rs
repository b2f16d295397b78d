//! Metrics in OpenMetrics' text form, written from values at each scrape.

use std::fmt::Error;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// What Prometheus asks for and reads.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Metrics that were renamed in version 0.1, which are written under both names until 0.2: the name of today, the former one.
const FORMER: [(&str, &str); 4] = [
    ("disk_full", "disk_refuses"),
    ("proxied_payload", "spared_payload"),
    ("rolled_back_for_earlier", "step_backs"),
    ("scrub_pass", "scrub_turn"),
];

/// The names under which a metric is written, each with its help.
fn names<'a>(name: &'a str, help: &'a str) -> impl Iterator<Item = (&'a str, String)> {
    let former = FORMER.iter().filter(move |(now, _)| *now == name);
    let former =
        former.map(move |(now, former)| (*former, format!("Former name of {now}: {help}")));
    std::iter::once((name, help.to_owned())).chain(former)
}

/// The answer to a scrape.
pub(crate) fn page(registry: &Registry) -> Response {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Where the metrics of one scrape are written. Names are without the registry's prefix and without the suffixes of unit and
/// type.
pub(crate) struct MetricWriter<'a, 'e>(&'a mut DescriptorEncoder<'e>);

impl<'a, 'e> MetricWriter<'a, 'e> {
    pub(crate) fn new(encoder: &'a mut DescriptorEncoder<'e>) -> Self {
        Self(encoder)
    }

    pub(crate) fn gauge(
        &mut self,
        name: &str,
        unit: Option<&Unit>,
        help: &str,
        value: f64,
    ) -> Result<(), Error> {
        for (name, help) in names(name, help) {
            self.0
                .encode_descriptor(name, &help, unit, MetricType::Gauge)?
                .encode_gauge(&value)?;
        }
        Ok(())
    }

    /// Writes a gauge that is 1 for `true` and 0 for `false`.
    pub(crate) fn yes(&mut self, name: &str, help: &str, value: bool) -> Result<(), Error> {
        self.gauge(name, None, help, f64::from(u8::from(value)))
    }

    pub(crate) fn counter(
        &mut self,
        name: &str,
        unit: Option<&Unit>,
        help: &str,
        value: u64,
    ) -> Result<(), Error> {
        for (name, help) in names(name, help) {
            self.0
                .encode_descriptor(name, &help, unit, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    /// Says what something is, in labels.
    pub(crate) fn info(
        &mut self,
        name: &str,
        help: &str,
        labels: &impl EncodeLabelSet,
    ) -> Result<(), Error> {
        self.0
            .encode_descriptor(name, help, None, MetricType::Info)?
            .encode_info(labels)
    }

    /// A gauge with labels; left out where there is no value.
    pub(crate) fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        unit: Option<&Unit>,
        help: &str,
        values: impl IntoIterator<Item = (L, f64)>,
    ) -> Result<(), Error> {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let mut metric = self
            .0
            .encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (labels, value) in values {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// A counter with labels; left out where there is no value.
    pub(crate) fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        unit: Option<&Unit>,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        let values: Vec<_> = values.into_iter().collect();
        if values.is_empty() {
            return Ok(());
        }
        for (name, help) in names(name, help) {
            let mut metric = self
                .0
                .encode_descriptor(name, &help, unit, MetricType::Counter)?;
            for (labels, value) in &values {
                metric
                    .encode_family(labels)?
                    .encode_counter::<NoLabelSet, _, u64>(value, None)?;
            }
        }
        Ok(())
    }
}
