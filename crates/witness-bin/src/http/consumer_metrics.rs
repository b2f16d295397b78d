//! Metrics of those who read a member's binlog server.

use std::fmt::Error;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::status::{ConsumerView, MemberView};

/// A gauge of each consumer: its name, its help, its value.
type Gauge = (&'static str, &'static str, fn(&ConsumerView) -> u64);

const BYTES: [Gauge; 2] = [
    (
        "consumer_behind",
        "Committed bytes of the log that were not read for the consumer of the binlog server",
        |consumer| consumer.behind_bytes,
    ),
    (
        "consumer_queued",
        "Bytes that wait to be taken by it",
        |consumer| consumer.queued_bytes,
    ),
];

/// Writes them; nothing for a member without a binlog server.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, view: &MemberView) -> Result<(), Error> {
    let Some(consumers) = &view.consumers else {
        return Ok(());
    };
    let help = "Consumers that are attached to the binlog server";
    encoder
        .encode_descriptor("consumers", help, None, MetricType::Gauge)?
        .encode_gauge(&(consumers.len() as f64))?;
    if consumers.is_empty() {
        return Ok(());
    }
    for (name, help, value) in BYTES {
        let bytes = Some(&Unit::Bytes);
        let mut metric = encoder.encode_descriptor(name, help, bytes, MetricType::Gauge)?;
        for consumer in consumers {
            let labels = [
                ("consumer", consumer.name.as_str()),
                ("address", consumer.address.as_str()),
            ];
            metric
                .encode_family(&labels)?
                .encode_gauge(&(value(consumer) as f64))?;
        }
    }
    Ok(())
}
