//! Metrics of those who read a member's binlog server.

use std::fmt::Error;

use member::status::{ConsumerView, MemberView};
use prometheus_client::registry::Unit;

use crate::openmetrics::Sheet;

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
pub(super) fn write(sheet: &mut Sheet<'_, '_>, view: &MemberView) -> Result<(), Error> {
    let Some(consumers) = &view.consumers else {
        return Ok(());
    };
    sheet.gauge(
        "consumers",
        None,
        "Consumers that are attached to the binlog server",
        consumers.len() as f64,
    )?;
    for (name, help, value) in BYTES {
        let of_each = consumers.iter().map(|consumer| {
            let labels = [
                ("consumer", consumer.name.as_str()),
                ("address", consumer.address.as_str()),
            ];
            (labels, value(consumer) as f64)
        });
        sheet.gauges(name, Some(&Unit::Bytes), help, of_each)?;
    }
    Ok(())
}
