//! What the ring asks of a primary that is not the same for every ring.

use raft_types::MAX_TRANSACTION_BYTES;
use uuid::Uuid;

/// A transaction's canonical payload is what its cache held plus a GTID event; with that and MySQL's
/// rounding of the setting to 4 KiB, this much is left free below the ring's limit.
const CACHE_HEADROOM: u64 = 1 << 20;

/// What is asked of the mysqld beside this member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirements {
    /// The largest transaction that the ring takes, in bytes of its canonical payload.
    pub max_transaction_bytes: u64,
    /// The server id under which the member attaches.
    pub replica_server_id: u32,
    /// The server UUID under which the member attaches.
    pub replica_uuid: Uuid,
    /// Whether the member sets what can be set. If not, it only reports.
    pub manage_settings: bool,
    /// Whether a server is taken with whose version or product not everything was proven.
    pub accept_unproven: bool,
    /// Whether a missing semi-sync plugin may be installed, which needs `super_read_only` off for a moment.
    pub may_install_plugin: bool,
}

impl Requirements {
    /// The defaults for a replica of this identity: settings are managed, a missing plugin is installed, and the server is one
    /// with which everything was proven.
    pub fn new(replica_server_id: u32, replica_uuid: Uuid) -> Self {
        Self {
            max_transaction_bytes: MAX_TRANSACTION_BYTES,
            replica_server_id,
            replica_uuid,
            manage_settings: true,
            accept_unproven: false,
            may_install_plugin: true,
        }
    }

    /// The largest `max_binlog_cache_size`, in bytes: a transaction that fits into it fits into the ring.
    pub fn max_cache_bytes(&self) -> u64 {
        let free = CACHE_HEADROOM.min(self.max_transaction_bytes / 2);
        let largest = self.max_transaction_bytes.saturating_sub(free);
        largest - largest % 4096
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_cache_fits_into_the_ring() {
        let mut requirements = Requirements::new(1, Uuid::nil());
        assert_eq!(
            requirements.max_cache_bytes(),
            MAX_TRANSACTION_BYTES - CACHE_HEADROOM
        );
        requirements.max_transaction_bytes = 10_000;
        assert_eq!(requirements.max_cache_bytes(), 4096);
    }
}
