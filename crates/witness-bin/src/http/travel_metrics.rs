//! Metrics of how entries travel: what was sent, spared and sent on, by member.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use raft_types::MemberId;

use crate::status::{MemberView, RelayedView, SentView, TravelView};

/// A counter of each member that is sent to: its name, its unit, its help, its value.
type Sent = (
    &'static str,
    Option<Unit>,
    &'static str,
    fn(&SentView) -> u64,
);

const SENT: [Sent; 4] = [
    (
        "sent_entries",
        None,
        "Entries that were sent to the member from here",
        |sent| sent.direct_entries_total,
    ),
    (
        "sent_payload",
        Some(Unit::Bytes),
        "Bytes of their payloads",
        |sent| sent.direct_bytes_total,
    ),
    (
        "proxied_entries",
        None,
        "Entries of which only the op ids were sent, to the proxy of the member",
        |sent| sent.proxied_entries_total,
    ),
    (
        "spared_payload",
        Some(Unit::Bytes),
        "Bytes of their payloads, which did not travel from here",
        |sent| sent.spared_bytes_total,
    ),
];

/// A counter of the member as a proxy: its name, its unit, its help, its value.
type Relayed = (
    &'static str,
    Option<Unit>,
    &'static str,
    fn(&RelayedView) -> u64,
);

const RELAYED: [Relayed; 5] = [
    (
        "proxy_streams",
        None,
        "Streams that leaders opened to this member as a proxy",
        |relayed| relayed.streams_total,
    ),
    (
        "proxy_entries",
        None,
        "Entries that this member sent on as a proxy",
        |relayed| relayed.entries_total,
    ),
    (
        "proxy_payload",
        Some(Unit::Bytes),
        "Bytes of their payloads",
        |relayed| relayed.bytes_total,
    ),
    (
        "proxy_missing",
        None,
        "Streams that ended because an entry was not in this member's log in time",
        |relayed| relayed.missing_total,
    ),
    (
        "proxy_cannot_call",
        None,
        "Streams that ended because the next member could not be called",
        |relayed| relayed.cannot_call_total,
    ),
];

/// Writes them; nothing before the member takes part.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, view: &MemberView) -> Result<(), Error> {
    let Some(travel) = &view.travel else {
        return Ok(());
    };
    sent(encoder, view, travel)?;
    for (name, unit, help, value) in RELAYED {
        encoder
            .encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value(&travel.relayed), None)?;
    }
    for (name, help, value) in [
        (
            "compressed",
            "Bytes of payloads that were compressed for another region",
            travel.compressed_bytes_total,
        ),
        (
            "compressed_to",
            "Bytes that they were compressed to",
            travel.compressed_to_bytes_total,
        ),
    ] {
        encoder
            .encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

fn sent(
    encoder: &mut DescriptorEncoder<'_>,
    view: &MemberView,
    travel: &TravelView,
) -> Result<(), Error> {
    let name_of = |id: MemberId| {
        let member = view.roster.iter().find(|member| member.id == id);
        member.map_or_else(|| id.to_string(), |member| member.record.name.clone())
    };
    if !travel.sent.is_empty() {
        for (name, unit, help, value) in SENT {
            let mut metric =
                encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
            for sent in &travel.sent {
                let labels = [("to", name_of(sent.member))];
                metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&value(sent), None)?;
            }
        }
    }
    if !travel.links.is_empty() {
        let help = "Bytes of messages that were sent to a member, as they travelled, by kind";
        let bytes = Some(&Unit::Bytes);
        let mut metric = encoder.encode_descriptor("link", help, bytes, MetricType::Counter)?;
        for link in &travel.links {
            for (kind, sent) in [
                ("entries", link.entries_bytes_total),
                ("op_ids", link.op_ids_bytes_total),
                ("heartbeats", link.heartbeats_bytes_total),
            ] {
                let labels = [("to", name_of(link.member)), ("kind", kind.to_owned())];
                metric
                    .encode_family(&labels)?
                    .encode_counter::<NoLabelSet, _, u64>(&sent, None)?;
            }
        }
    }
    if !travel.fallbacks.is_empty() {
        let help = "How often a proxy was left for a while, by reason";
        let mut metric =
            encoder.encode_descriptor("proxy_fallbacks", help, None, MetricType::Counter)?;
        for fallback in &travel.fallbacks {
            let labels = [
                ("proxy", name_of(fallback.proxy)),
                ("reason", fallback.reason.clone()),
            ];
            metric
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, u64>(&fallback.times_total, None)?;
        }
    }
    Ok(())
}
