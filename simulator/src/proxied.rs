//! What went over proxies in a run, so that one sees that a seed has used them.

use std::collections::BTreeMap;

use proxy::Counted;

/// Sums over all processes of a run.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub(crate) struct Proxied {
    /// Sessions that proxies were asked for, those between two proxies among them.
    sessions: u64,
    refused: u64,
    /// Entries that proxies have put back.
    relayed_entries: u64,
    /// Entries that leaders have sent themselves.
    direct_entries: u64,
    /// Entries that leaders have sent as op ids.
    proxied_entries: u64,
    /// Why leaders have left proxies, and how often.
    fallbacks: BTreeMap<&'static str, u64>,
}

impl Proxied {
    /// Adds what one process has counted.
    pub(crate) fn add(&mut self, counted: &Counted) {
        self.sessions += counted.relayed.sessions;
        self.refused += counted.relayed.refused;
        self.relayed_entries += counted.relayed.entries;
        for sent in counted.members.values() {
            self.direct_entries += sent.direct_entries;
            self.proxied_entries += sent.proxied_entries;
        }
        for ((_, why), times) in &counted.fallbacks {
            *self.fallbacks.entry(why).or_default() += times;
        }
    }
}
