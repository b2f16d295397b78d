//! By which routes the entries of the log travel to the members, and what proxies and compression spare.

use proxy::{Counted, RouteView};
use raft_types::MemberId;
use serde::{Deserialize, Serialize};
use transport::GrpcNetworkFactory;

/// See the module. Numbers count since the process started; bytes are those of payloads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicationRoutesView {
    /// The routes in use; only the leader has any.
    pub routes: Vec<RouteView>,
    /// What was sent, by member.
    pub sent: Vec<SentView>,
    /// What went over the network to each member, as it travelled.
    #[serde(default)]
    pub links: Vec<LinkView>,
    /// How often a proxy was left, and why.
    pub fallbacks: Vec<FallbackView>,
    /// What this member sent on for others.
    pub relayed: RelayedView,
    /// Bytes of payloads that were compressed for another region.
    pub compressed_bytes_total: u64,
    /// What they were compressed to.
    pub compressed_to_bytes_total: u64,
}

/// What was sent to one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentView {
    /// The member that the entries are for.
    pub member: MemberId,
    /// Entries that were sent from here.
    pub direct_entries_total: u64,
    /// Bytes of the payloads of those entries.
    pub direct_bytes_total: u64,
    /// Entries of which a proxy was sent the op ids.
    pub proxied_entries_total: u64,
    /// Their payloads, which did not leave from here for this member.
    pub spared_bytes_total: u64,
}

/// What went over the network to one member, in bytes of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkView {
    /// The member at the other end of the connection.
    pub member: MemberId,
    /// Bytes of entries with their payloads.
    pub entries_bytes_total: u64,
    /// Op ids of entries for members behind it.
    pub op_ids_bytes_total: u64,
    /// Bytes of heartbeats.
    pub heartbeats_bytes_total: u64,
}

/// Why a proxy was left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackView {
    /// The proxy that the leader stopped using.
    pub proxy: MemberId,
    /// The reason in one word, as in the metric's label.
    pub reason: String,
    /// How often that happened since the process started.
    pub times_total: u64,
}

/// What a member did as a proxy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayedView {
    /// Streams that leaders opened here.
    pub streams_total: u64,
    /// Entries that were sent on.
    pub entries_total: u64,
    /// Bytes of the payloads of those entries.
    pub bytes_total: u64,
    /// Streams that ended because an entry was not here.
    pub missing_total: u64,
    /// Streams that ended because the next member could not be called.
    pub cannot_call_total: u64,
    /// Streams that were refused when they were opened.
    pub refused_total: u64,
}

impl ReplicationRoutesView {
    /// Of what the parts counted.
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
