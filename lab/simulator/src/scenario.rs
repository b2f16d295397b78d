//! Runs that do what they are told to, instead of what the seed draws or before all else.

use clap::ValueEnum;

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Leaders and proxies die one after the other; payloads go through proxies again each time.
    Failovers,
    /// The disks of all members fill together, a leader dies meanwhile, then there is room again.
    FullDisks,
    /// Files of a leader's log are damaged while it runs and others lack what is in them; whoever notices mends them.
    ColdDamage,
    /// Servers stand beside the database members: they are killed, stopped and lose their power, and so are members; clients write
    /// and read at the servers.
    Mysqlds,
    /// The same, and operators stop members and servers in good order, and pause failover.
    MysqldOperations,
    /// Servers beside the database members, and operators have some of them get a copy of another one's data, while members, servers
    /// and links fail.
    Provisioning,
    /// Servers in plain replication become a ring and go back, by the operator's commands, while members, servers, links and the
    /// commands themselves fail.
    Conversions,
    /// An operator sets policies while leaders change, and each member's file says another one; the seed draws the rest.
    Policies,
    /// The leader's disk is slower than others wait for a leader, and transactions are large.
    SlowDisk,
    /// A quorum is lost for good, an operator repairs it, and those that were lost come back; the seed draws the rest.
    LostQuorum,
    /// A leader is left with members that have no vote, and loses its power.
    Learners,
    /// Members call each other over the real transport, gRPC on simulated connections; the seed draws what goes wrong.
    Transport,
    /// Members are restarted with newer and older versions of their program, over the real transport.
    Upgrades,
    /// A region is cut off while the others purge their logs; then it catches up.
    Purges,
    /// Members die for good, and an operator lets others go; whatever the ring allows, it commits behind it.
    Removals,
}

impl Scenario {
    /// Whether servers stand beside the database members.
    pub(crate) fn has_servers(self) -> bool {
        matches!(
            self,
            Self::Conversions | Self::Mysqlds | Self::MysqldOperations | Self::Provisioning
        )
    }
}
