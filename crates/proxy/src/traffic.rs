//! What goes over the network for the entries of the log, counted by member and by route: payload bytes that were sent, and those
//! that a proxy spared; and how often a proxy was left, with the reason.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use raft_types::MemberId;

use crate::health::Failure;

/// Counters since the process began.
#[derive(Debug, Default)]
pub struct Traffic(Mutex<Counted>);

/// What was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    /// For each member that entries were sent to.
    pub members: BTreeMap<MemberId, Sent>,
    /// How often a proxy was left, by proxy and reason.
    pub fallbacks: BTreeMap<(MemberId, &'static str), u64>,
    /// What this member sent on for others.
    pub relayed: Relayed,
}

/// What was sent to one member, in bytes of the entries' payloads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// From here.
    pub direct_entries: u64,
    /// Their payloads.
    pub direct_bytes: u64,
    /// As op ids, over a proxy.
    pub proxied_entries: u64,
    /// The payloads that did not leave from here.
    pub spared_bytes: u64,
}

/// What a proxy did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Relayed {
    /// Sessions that were asked for.
    pub sessions: u64,
    /// Entries that were put back and sent on.
    pub entries: u64,
    /// Their payloads.
    pub bytes: u64,
    /// Sessions that ended because an entry was not here.
    pub missing: u64,
    /// Sessions that ended because the next member could not be called.
    pub cannot_call: u64,
    /// Sessions that were refused.
    pub refused: u64,
}

impl Traffic {
    /// All of it.
    pub fn counted(&self) -> Counted {
        self.lock().clone()
    }

    pub(crate) fn direct(&self, member: MemberId, entries: usize, bytes: usize) {
        let mut counted = self.lock();
        let sent = counted.members.entry(member).or_default();
        sent.direct_entries += entries as u64;
        sent.direct_bytes += bytes as u64;
    }

    pub(crate) fn proxied(&self, member: MemberId, entries: usize, bytes: usize) {
        let mut counted = self.lock();
        let sent = counted.members.entry(member).or_default();
        sent.proxied_entries += entries as u64;
        sent.spared_bytes += bytes as u64;
    }

    pub(crate) fn fell_back(&self, proxy: MemberId, failure: &Failure) {
        let mut counted = self.lock();
        *counted
            .fallbacks
            .entry((proxy, failure.label()))
            .or_default() += 1;
    }

    pub(crate) fn relayed(&self, change: impl FnOnce(&mut Relayed)) {
        change(&mut self.lock().relayed);
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        // Every change is a sum.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
