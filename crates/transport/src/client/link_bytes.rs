//! Bytes of messages sent to each member, by kind.

use std::sync::atomic::{AtomicU64, Ordering};

use prost::Message;

/// Bytes sent to one member, counting gRPC messages without framing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkBytes {
    /// Entries with their payloads, as transmitted.
    pub entries: u64,
    /// Entries as op ids, for members that get their payloads through this one.
    pub op_ids: u64,
    /// Heartbeats, which carry no entries.
    pub heartbeats: u64,
}

/// Counters for one member, over all its connections.
#[derive(Debug, Default)]
pub(crate) struct LinkCounters {
    entries: AtomicU64,
    op_ids: AtomicU64,
    heartbeats: AtomicU64,
}

impl LinkCounters {
    pub(crate) fn entries(&self, message: &impl Message) {
        add(&self.entries, message);
    }

    pub(crate) fn op_ids(&self, message: &impl Message) {
        add(&self.op_ids, message);
    }

    pub(crate) fn heartbeat(&self, message: &impl Message) {
        add(&self.heartbeats, message);
    }

    pub(crate) fn counted(&self) -> LinkBytes {
        LinkBytes {
            entries: self.entries.load(Ordering::Relaxed),
            op_ids: self.op_ids.load(Ordering::Relaxed),
            heartbeats: self.heartbeats.load(Ordering::Relaxed),
        }
    }
}

fn add(counter: &AtomicU64, message: &impl Message) {
    counter.fetch_add(message.encoded_len() as u64, Ordering::Relaxed);
}
