//! Runs with a fixed sequence of events, instead of the seed's choices or before them.

use clap::ValueEnum;

/// A run's scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Leaders and proxies fail in turn; payloads are proxied again each time.
    Failovers,
    /// The disks of all members fill together, a leader fails in the meantime, then there is room again.
    FullDisks,
    /// A running leader's log files are damaged while others lack their entries; the detecting member repairs them.
    ColdDamage,
    /// Database members have servers: servers and members are killed, stopped and lose power; clients write and read at the servers.
    Mysqlds,
    /// In addition, operators gracefully stop members and servers, and pause failover.
    MysqldOperations,
    /// Database members have servers, and operators copy one server's data to others, while members, servers and links fail.
    Provisioning,
    /// Servers in plain replication become a ring and back, by the operator's commands, while members, servers, links and the commands
    /// themselves fail.
    Conversions,
    /// An operator sets policies while leaders change, and the members' files differ; the seed draws the rest.
    Policies,
    /// The leader's disk is slower than the others' election timeout, with large transactions.
    SlowDisk,
    /// A quorum is lost permanently, an operator repairs it, and the lost members return; the seed draws the rest.
    LostQuorum,
    /// A leader keeps only members without a vote, and loses power.
    Learners,
    /// Members use the real transport, gRPC on simulated connections; the seed draws the faults.
    Transport,
    /// Members restart with newer and older program versions, over the real transport.
    Upgrades,
    /// A region is cut off while the others purge their logs; then it catches up.
    Purges,
    /// Members fail permanently, and an operator removes others; after each permitted removal, the ring commits.
    Removals,
}

impl Scenario {
    /// Returns whether the database members have servers.
    pub(crate) fn has_servers(self) -> bool {
        matches!(
            self,
            Self::Conversions | Self::Mysqlds | Self::MysqldOperations | Self::Provisioning
        )
    }
}
