//! Metrics of replication routes by member, and the leader's view of the others.

use std::fmt;

use member::status::{MemberView, ReplicationRoutesView, SentView};
use raft_types::MemberId;

use crate::openmetrics::{MetricWriter, metrics};

/// Writes the routes: entries sent, saved and relayed. Nothing before the member joins the ring.
pub(super) fn write_routes(writer: &mut MetricWriter<'_>, view: &MemberView) -> fmt::Result {
    let Some(routes) = &view.replication_routes else {
        return Ok(());
    };
    sent(writer, view, routes)?;
    let relayed = &routes.relayed;
    metrics! { writer;
        /// Streams that leaders opened to this member as a proxy
        counter "proxy_streams" = relayed.streams_total;
        /// Entries that this member sent on as a proxy
        counter "proxy_entries" = relayed.entries_total;
        /// Bytes of their payloads
        counter "proxy_payload_bytes" = relayed.bytes_total;
        /// Streams that ended because an entry was not in this member's log in time
        counter "proxy_missing" = relayed.missing_total;
        /// Streams that ended because the next member could not be called
        counter "proxy_cannot_call" = relayed.cannot_call_total;
        /// Bytes of payloads that were compressed for another region
        counter "compressed_bytes" = routes.compressed_bytes_total;
        /// Bytes that they were compressed to
        counter "compressed_to_bytes" = routes.compressed_to_bytes_total;
    }
}

fn sent(
    writer: &mut MetricWriter<'_>,
    view: &MemberView,
    routes: &ReplicationRoutesView,
) -> fmt::Result {
    let name_of = |id: MemberId| {
        let member = view.members.iter().find(|member| member.id == id);
        member.map_or_else(|| id.to_string(), |member| member.record.name.clone())
    };
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
    let fallbacks = routes.fallbacks.iter().map(|fallback| {
        let labels = [
            ("proxy", name_of(fallback.proxy)),
            ("reason", fallback.reason.clone()),
        ];
        (labels, fallback.times_total)
    });
    let to = |sent: &SentView| [("to", name_of(sent.member))];
    let sent = routes.sent.iter();
    metrics! { writer;
        /// Entries that were sent to the member from here
        counters "sent_entries" = sent.clone().map(|sent| (to(sent), sent.direct_entries_total));
        /// Bytes of their payloads
        counters "sent_payload_bytes" = sent.clone().map(|sent| (to(sent), sent.direct_bytes_total));
        /// Entries of which only the op ids were sent, to the proxy of the member
        counters "proxied_entries" = sent.clone().map(|sent| (to(sent), sent.proxied_entries_total));
        /// Bytes of their payloads, which did not travel from here
        counters "proxied_payload_bytes" = sent.map(|sent| (to(sent), sent.spared_bytes_total));
        /// Bytes of messages that were sent to a member, as they travelled, by kind
        counters "link_bytes" = links;
        /// How often a proxy was left for a while, by reason
        counters "proxy_fallbacks" = fallbacks;
    }
}

/// Writes the progress of each peer and each region; nothing on a member that does not lead.
pub(super) fn write_peers(writer: &mut MetricWriter<'_>, view: &MemberView) -> fmt::Result {
    let (peers, regions) = (view.peers.iter(), view.regions.iter());
    metrics! { writer;
        /// Entries that the peer is behind this leader
        gauges "peer_behind_entries" = peers.clone().filter_map(|peer| Some(([("peer", peer.name.as_str())], peer.behind_entries? as f64)));
        /// Since the peer's last answer to this leader
        gauges "peer_answered_seconds" = peers.filter_map(|peer| Some(([("peer", peer.name.as_str())], peer.answered_seconds?)));
        // `region` is the label of the member's own region on every metric.
        /// Index of the last entry that a majority of the region's voting members holds durably
        gauges "region_majority_index" =
            regions.clone().filter_map(|of| Some(([("of_region", of.region.0.as_str())], of.held_by_majority?.index as f64)));
        /// Index of the last entry that any member of the region holds durably
        gauges "region_any_index" = regions.filter_map(|of| Some(([("of_region", of.region.0.as_str())], of.held_by_any?.index as f64)));
    }
}
