//! Metrics of replication routes by member: entries sent, saved and relayed.

use std::fmt::Error;

use consensus::quorum::RegionQuorum;
use member::status::{MemberView, PeerView, RelayedView, ReplicationRoutesView, SentView};
use raft_types::{MemberId, OpId};

use crate::openmetrics::MetricWriter;

/// A counter for each receiving member: its name, its help, its value.
type Sent = (&'static str, &'static str, fn(&SentView) -> u64);

const SENT: [Sent; 4] = [
    (
        "sent_entries",
        "Entries that were sent to the member from here",
        |sent| sent.direct_entries_total,
    ),
    ("sent_payload_bytes", "Bytes of their payloads", |sent| {
        sent.direct_bytes_total
    }),
    (
        "proxied_entries",
        "Entries of which only the op ids were sent, to the proxy of the member",
        |sent| sent.proxied_entries_total,
    ),
    (
        "proxied_payload_bytes",
        "Bytes of their payloads, which did not travel from here",
        |sent| sent.spared_bytes_total,
    ),
];

/// A counter of the member as a proxy: its name, its help, its value.
type Relayed = (&'static str, &'static str, fn(&RelayedView) -> u64);

const RELAYED: [Relayed; 5] = [
    (
        "proxy_streams",
        "Streams that leaders opened to this member as a proxy",
        |relayed| relayed.streams_total,
    ),
    (
        "proxy_entries",
        "Entries that this member sent on as a proxy",
        |relayed| relayed.entries_total,
    ),
    (
        "proxy_payload_bytes",
        "Bytes of their payloads",
        |relayed| relayed.bytes_total,
    ),
    (
        "proxy_missing",
        "Streams that ended because an entry was not in this member's log in time",
        |relayed| relayed.missing_total,
    ),
    (
        "proxy_cannot_call",
        "Streams that ended because the next member could not be called",
        |relayed| relayed.cannot_call_total,
    ),
];

/// Writes them; nothing before the member joins the ring.
pub(super) fn write_routes(
    writer: &mut MetricWriter<'_, '_>,
    view: &MemberView,
) -> Result<(), Error> {
    let Some(routes) = &view.replication_routes else {
        return Ok(());
    };
    sent(writer, view, routes)?;
    for (name, help, value) in RELAYED {
        writer.counter(name, help, value(&routes.relayed))?;
    }
    for (name, help, value) in [
        (
            "compressed_bytes",
            "Bytes of payloads that were compressed for another region",
            routes.compressed_bytes_total,
        ),
        (
            "compressed_to_bytes",
            "Bytes that they were compressed to",
            routes.compressed_to_bytes_total,
        ),
    ] {
        writer.counter(name, help, value)?;
    }
    Ok(())
}

fn sent(
    writer: &mut MetricWriter<'_, '_>,
    view: &MemberView,
    routes: &ReplicationRoutesView,
) -> Result<(), Error> {
    let name_of = |id: MemberId| {
        let member = view.members.iter().find(|member| member.id == id);
        member.map_or_else(|| id.to_string(), |member| member.record.name.clone())
    };
    for (name, help, value) in SENT {
        let of_each = routes.sent.iter();
        let of_each = of_each.map(|sent| ([("to", name_of(sent.member))], value(sent)));
        writer.counters(name, help, of_each)?;
    }
    let links = routes.links.iter().flat_map(|link| {
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
    writer.counters(
        "link_bytes",
        "Bytes of messages that were sent to a member, as they travelled, by kind",
        links,
    )?;
    let fallbacks = routes.fallbacks.iter().map(|fallback| {
        let labels = [
            ("proxy", name_of(fallback.proxy)),
            ("reason", fallback.reason.clone()),
        ];
        (labels, fallback.times_total)
    });
    writer.counters(
        "proxy_fallbacks",
        "How often a proxy was left for a while, by reason",
        fallbacks,
    )
}

// The leader's state of the others: the progress of each peer and each region.

/// Writes them; nothing on a member that does not lead.
pub(super) fn write_peers(
    writer: &mut MetricWriter<'_, '_>,
    view: &MemberView,
) -> Result<(), Error> {
    peers(writer, &view.peers)?;
    regions(writer, &view.regions)
}

fn peers(writer: &mut MetricWriter<'_, '_>, peers: &[PeerView]) -> Result<(), Error> {
    let lags = peers.iter().filter_map(|peer| {
        let lag = peer.behind_entries?;
        Some(([("peer", peer.name.as_str())], lag as f64))
    });
    writer.gauges(
        "peer_behind_entries",
        "Entries that the peer is behind this leader",
        lags,
    )?;
    let answered = peers
        .iter()
        .filter_map(|peer| Some(([("peer", peer.name.as_str())], peer.answered_seconds?)));
    writer.gauges(
        "peer_answered_seconds",
        "Since the peer's last answer to this leader",
        answered,
    )
}

/// The log's progress in each region.
fn regions(writer: &mut MetricWriter<'_, '_>, regions: &[RegionQuorum]) -> Result<(), Error> {
    type Held = fn(&RegionQuorum) -> Option<OpId>;
    let watermarks: [(&str, &str, Held); 2] = [
        (
            "region_majority_index",
            "Index of the last entry that a majority of the region's voting members holds durably",
            |region| region.held_by_majority,
        ),
        (
            "region_any_index",
            "Index of the last entry that any member of the region holds durably",
            |region| region.held_by_any,
        ),
    ];
    for (name, help, held) in watermarks {
        let known = regions.iter().filter_map(|region| {
            let held = held(region)?;
            // `region` is the label of the member's own region on every metric.
            Some(([("of_region", region.region.0.as_str())], held.index as f64))
        });
        writer.gauges(name, help, known)?;
    }
    Ok(())
}
