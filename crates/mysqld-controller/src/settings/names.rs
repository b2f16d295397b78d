//! The two generations of semi-sync names: source and replica from 8.0.26 on, master and slave before
//! (and later too, where the old plugin is still the one that is loaded).

use mysql_link::ServerVersion;

/// The names of one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SemiSyncNames {
    /// `rpl_semi_sync_source_…`
    Source,
    /// `rpl_semi_sync_master_…`
    Master,
}

impl SemiSyncNames {
    /// The generation to install on a server that has none loaded.
    pub fn of_version(version: ServerVersion) -> Self {
        if version >= ServerVersion::SOURCE_REPLICA_NAMES {
            Self::Source
        } else {
            Self::Master
        }
    }

    /// The plugin's name.
    pub fn plugin(self) -> &'static str {
        match self {
            Self::Source => "rpl_semi_sync_source",
            Self::Master => "rpl_semi_sync_master",
        }
    }

    /// The plugin's library.
    pub fn library(self) -> &'static str {
        match self {
            Self::Source => "semisync_source.so",
            Self::Master => "semisync_master.so",
        }
    }

    /// Whether it is enabled.
    pub fn enabled(self) -> String {
        self.variable("enabled")
    }

    /// Milliseconds after which it stops waiting.
    pub fn timeout(self) -> String {
        self.variable("timeout")
    }

    /// How many ACKs it waits for.
    pub fn replica_count(self) -> String {
        match self {
            Self::Source => self.variable("wait_for_replica_count"),
            Self::Master => self.variable("wait_for_slave_count"),
        }
    }

    /// Whether it waits without replicas.
    pub fn wait_no_replica(self) -> String {
        match self {
            Self::Source => self.variable("wait_no_replica"),
            Self::Master => self.variable("wait_no_slave"),
        }
    }

    /// Where in the commit it waits.
    pub fn wait_point(self) -> String {
        self.variable("wait_point")
    }

    /// The status counter that says whether it waits at all at the moment.
    pub fn status(self) -> String {
        self.variable("status")
    }

    /// The status counter of attached semi-sync replicas.
    pub fn clients(self) -> String {
        self.variable("clients")
    }

    /// The status counter of sessions that wait for an ACK.
    pub fn wait_sessions(self) -> String {
        self.variable("wait_sessions")
    }

    fn variable(self, suffix: &str) -> String {
        format!("{}_{suffix}", self.plugin())
    }
}
