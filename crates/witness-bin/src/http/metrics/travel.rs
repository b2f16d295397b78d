//! Metrics of how entries travel: what was sent, spared and sent on, by member.

use std::fmt::Error;

use member::status::{MemberView, RelayedView, SentView, TravelView};
use prometheus_client::registry::Unit;
use raft_types::MemberId;

use crate::openmetrics::Sheet;

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
        "proxied_payload",
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
pub(super) fn write(sheet: &mut Sheet<'_, '_>, view: &MemberView) -> Result<(), Error> {
    let Some(travel) = &view.replication_routes else {
        return Ok(());
    };
    sent(sheet, view, travel)?;
    for (name, unit, help, value) in RELAYED {
        sheet.counter(name, unit.as_ref(), help, value(&travel.relayed))?;
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
        sheet.counter(name, Some(&Unit::Bytes), help, value)?;
    }
    Ok(())
}

fn sent(sheet: &mut Sheet<'_, '_>, view: &MemberView, travel: &TravelView) -> Result<(), Error> {
    let name_of = |id: MemberId| {
        let member = view.members.iter().find(|member| member.id == id);
        member.map_or_else(|| id.to_string(), |member| member.record.name.clone())
    };
    for (name, unit, help, value) in SENT {
        let of_each = travel.sent.iter();
        let of_each = of_each.map(|sent| ([("to", name_of(sent.member))], value(sent)));
        sheet.counters(name, unit.as_ref(), help, of_each)?;
    }
    let links = travel.links.iter().flat_map(|link| {
        let by_kind = [
            ("entries", link.entries_bytes_total),
            ("op_ids", link.op_ids_bytes_total),
            ("heartbeats", link.heartbeats_bytes_total),
        ];
        by_kind.map(|(kind, sent)| {
            let labels = [("to", name_of(link.member)), ("kind", kind.to_owned())];
            (labels, sent)
        })
    });
    sheet.counters(
        "link",
        Some(&Unit::Bytes),
        "Bytes of messages that were sent to a member, as they travelled, by kind",
        links,
    )?;
    let fallbacks = travel.fallbacks.iter().map(|fallback| {
        let labels = [
            ("proxy", name_of(fallback.proxy)),
            ("reason", fallback.reason.clone()),
        ];
        (labels, fallback.times_total)
    });
    sheet.counters(
        "proxy_fallbacks",
        None,
        "How often a proxy was left for a while, by reason",
        fallbacks,
    )
}
