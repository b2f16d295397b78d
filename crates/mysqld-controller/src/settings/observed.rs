//! What was seen on a server: names and values as the server gives them, read by purpose, in both generations of names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mysql_link::ServerVersion;
use uuid::Uuid;

use crate::binlog_place::BinlogPlace;
use crate::settings::grants::Grants;

/// How much to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What may change under way: every second.
    Watch,
    /// All of it: when attaching.
    Preflight,
}

/// Somebody whose semi-sync dump runs on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemiSyncReplica {
    /// The server's number of the connection.
    pub connection_id: u64,
    /// Its server UUID, if it said one.
    pub uuid: Option<Uuid>,
}

const LOWER_CASE_TABLE_NAMES: &str = "lower_case_table_names";

/// The status variable that says whether InnoDB writes its redo log (8.0.21 and later).
pub(crate) const REDO_LOG: &str = "innodb_redo_log_enabled";

/// Settings that have to be the same at all servers of a ring: a statement of one of them runs at the others in its words alone.
pub(crate) const DDL_SETTINGS: [&str; 10] = [
    "default_storage_engine",
    "explicit_defaults_for_timestamp",
    "innodb_default_row_format",
    "innodb_file_per_table",
    "innodb_native_foreign_keys",
    "innodb_strict_mode",
    "log_bin_trust_function_creators",
    LOWER_CASE_TABLE_NAMES,
    "old_alter_table",
    "partial_revokes",
];

/// Settings and state of a mysqld, as one look read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The version that the server announced.
    pub version: ServerVersion,
    /// Global variables by lower-case name.
    pub variables: BTreeMap<String, String>,
    /// Global status counters by lower-case name.
    pub status: BTreeMap<String, String>,
    /// Attached semi-sync replicas; `None` when that could not be looked up.
    pub semi_sync_replicas: Option<Vec<SemiSyncReplica>>,
    /// The privileges of our account; `None` unless looked at.
    pub grants: Option<Grants>,
    /// Other accounts and roles that may run `SHUTDOWN` and `RESTART`; `None` unless looked at.
    pub may_shut_down: Option<Vec<String>>,
    /// `binlog-do-db` and `binlog-ignore-db`; empty when there are none, `None` unless looked at.
    pub binlog_filters: Option<Vec<String>>,
    /// After how many days the password of our account expires; `None` where it does not, or nobody may look.
    pub account_expires: Option<u64>,
    /// The index of its binlog, where that is another one than the one in which the member looks.
    pub binlog_elsewhere: Option<PathBuf>,
    /// Persisted values that contradict what the member starts a server with, by variable; `None` unless looked at.
    pub persisted: Option<BTreeMap<String, String>>,
}

impl Observed {
    /// Compares where its binlog is with where the member looks for it.
    pub(crate) fn compare_place(&mut self, expected: Option<&BinlogPlace>) {
        let index = self
            .variable("log_bin_index")
            .unwrap_or_default()
            .to_owned();
        let expected = expected.filter(|_| !index.is_empty());
        let elsewhere = expected.and_then(|place| place.elsewhere(Path::new(&index)));
        self.binlog_elsewhere = elsewhere.map(|place| place.index().to_owned());
    }

    /// Value of a global variable by its lower-case name; `None` where the server has no such variable.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Value of a global status counter by its name; `None` where the server has no such counter.
    pub fn status(&self, name: &str) -> Option<&str> {
        self.status.get(&name.to_lowercase()).map(String::as_str)
    }

    /// Whether a variable says ON.
    pub fn is_on(&self, name: &str) -> bool {
        self.variable(name).is_some_and(says_on)
    }

    /// The names of the semi-sync plugin that is loaded, if one is.
    pub fn semi_sync(&self) -> Option<SemiSyncNames> {
        [SemiSyncNames::Source, SemiSyncNames::Master]
            .into_iter()
            .find(|names| self.variables.contains_key(&names.enabled()))
    }

    /// What decides, beside its words, what a statement about tables or accounts does, and is not in the log. By lower-case name.
    pub(crate) fn ddl_settings(&self) -> BTreeMap<String, String> {
        let seen = DDL_SETTINGS.iter().filter_map(|name| {
            // A listing of variables has words for a switch, and a query has numbers.
            let value = match (*name, self.variable(name)?) {
                (LOWER_CASE_TABLE_NAMES, number) => number,
                (_, "1") => "ON",
                (_, "0") => "OFF",
                (_, value) => value,
            };
            Some(((*name).to_owned(), value.to_lowercase()))
        });
        seen.collect()
    }

    /// Whether nobody may write, not even administrators. It reads so too while somebody's attempt to
    /// set it still waits for its locks.
    pub fn is_super_read_only(&self) -> bool {
        self.is_on("super_read_only")
    }

    /// Whether ordinary clients may write.
    pub fn is_writable(&self) -> bool {
        !self.is_super_read_only() && !self.is_on("read_only")
    }

    /// Sessions that wait for an ACK at the moment.
    pub fn waiting_sessions(&self) -> u64 {
        let count = self
            .semi_sync()
            .and_then(|names| self.status(&names.wait_sessions()));
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Seconds since the server started.
    pub fn uptime_seconds(&self) -> Option<u64> {
        self.status("uptime")
            .and_then(|seconds| seconds.parse().ok())
    }

    /// `@@server_uuid`; `None` where it was not read.
    pub fn server_uuid(&self) -> Option<Uuid> {
        self.variable("server_uuid")
            .and_then(|uuid| uuid.parse().ok())
    }
}

pub(crate) fn says_on(value: &str) -> bool {
    value.eq_ignore_ascii_case("ON") || value == "1"
}

// The two generations of semi-sync names: source and replica from 8.0.26 on, master and slave before
// (and later too, where the old plugin is still the one that is loaded).

/// The names of one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SemiSyncNames {
    /// `rpl_semi_sync_source_…`, from 8.0.26 on.
    Source,
    /// `rpl_semi_sync_master_…`, before 8.0.26.
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

    /// Name under which the source's plugin is installed.
    pub fn plugin(self) -> &'static str {
        match self {
            Self::Source => "rpl_semi_sync_source",
            Self::Master => "rpl_semi_sync_master",
        }
    }

    /// File of the source's plugin.
    pub fn library(self) -> &'static str {
        match self {
            Self::Source => "semisync_source.so",
            Self::Master => "semisync_master.so",
        }
    }

    /// Name of the variable that enables semi-sync at the source.
    pub fn enabled(self) -> String {
        self.variable("enabled")
    }

    /// Milliseconds after which it stops waiting.
    pub fn timeout(self) -> String {
        self.variable("timeout")
    }

    /// For how many ACKs each commit waits.
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
