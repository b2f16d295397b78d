//! The routes of log entries to the members, and the bytes saved by proxies and compression.

use proxy::{Counted, RouteView};
use raft_types::MemberId;
use serde::{Deserialize, Serialize};
use transport::GrpcNetworkFactory;

/// Routes, and counters since the process started. Bytes are bytes of payloads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicationRoutesView {
    /// The routes in use; only the leader has any.
    pub routes: Vec<RouteView>,
    /// Entries sent, by member.
    pub sent: Vec<SentView>,
    /// Network traffic to each member, after compression.
    #[serde(default)]
    pub links: Vec<LinkView>,
    /// How often the leader stopped using a proxy, and why.
    pub fallbacks: Vec<FallbackView>,
    /// Entries relayed by this member for others.
    pub relayed: RelayedView,
    /// Bytes of payloads compressed for another region.
    pub compressed_bytes_total: u64,
    /// Bytes of these payloads after compression.
    pub compressed_to_bytes_total: u64,
}

/// Entries sent to one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentView {
    /// The recipient of the entries.
    pub member: MemberId,
    /// Entries that this member sent directly.
    pub direct_entries_total: u64,
    /// Bytes of the payloads of these entries.
    pub direct_bytes_total: u64,
    /// Entries for which only the op ids were sent, to a proxy.
    pub proxied_entries_total: u64,
    /// Bytes of the payloads of those entries, which this member did not send.
    pub spared_bytes_total: u64,
}

/// Network traffic to one member, in message bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkView {
    /// The member at the other end of the connection.
    pub member: MemberId,
    /// Bytes of entries with their payloads.
    pub entries_bytes_total: u64,
    /// Bytes of op ids of entries for other members, to which this member forwards.
    pub op_ids_bytes_total: u64,
    /// Bytes of heartbeats.
    pub heartbeats_bytes_total: u64,
}

/// Why the leader stopped using a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackView {
    /// The proxy that the leader stopped using.
    pub proxy: MemberId,
    /// The reason in one word, the same as the label of the metric.
    pub reason: String,
    /// How often this occurred since the process started.
    pub times_total: u64,
}

/// A member's counters as a proxy for leaders.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedView {
    /// Streams that leaders opened to this member.
    pub streams_total: u64,
    /// Entries that were forwarded.
    pub entries_total: u64,
    /// Bytes of the payloads of these entries.
    pub bytes_total: u64,
    /// Streams that ended because this member lacked an entry.
    pub missing_total: u64,
    /// Streams that ended because the next member could not be called.
    pub cannot_call_total: u64,
    /// Streams that were refused when they were opened.
    pub refused_total: u64,
}

impl ReplicationRoutesView {
    /// Makes the view from the routes and counters.
    pub(crate) fn new(
        routes: Vec<RouteView>,
        counted: Counted,
        network: &GrpcNetworkFactory,
    ) -> Self {
        let compressed = network.compression();
        let links = network.link_bytes().into_iter();
        let links = links.map(|(member, bytes)| LinkView {
            member,
            entries_bytes_total: bytes.entries,
            op_ids_bytes_total: bytes.op_ids,
            heartbeats_bytes_total: bytes.heartbeats,
        });
        let sent = counted.members.into_iter().map(|(member, sent)| SentView {
            member,
            direct_entries_total: sent.direct_entries,
            direct_bytes_total: sent.direct_bytes,
            proxied_entries_total: sent.proxied_entries,
            spared_bytes_total: sent.spared_bytes,
        });
        let fallbacks = counted.fallbacks.into_iter();
        let fallbacks = fallbacks.map(|((proxy, reason), times_total)| FallbackView {
            proxy,
            reason: reason.to_owned(),
            times_total,
        });
        let relayed = counted.relayed;
        Self {
            routes,
            sent: sent.collect(),
            links: links.collect(),
            fallbacks: fallbacks.collect(),
            relayed: RelayedView {
                streams_total: relayed.sessions,
                entries_total: relayed.entries,
                bytes_total: relayed.bytes,
                missing_total: relayed.missing,
                cannot_call_total: relayed.cannot_call,
                refused_total: relayed.refused,
            },
            compressed_bytes_total: compressed.bytes_in,
            compressed_to_bytes_total: compressed.bytes_out,
        }
    }
}
