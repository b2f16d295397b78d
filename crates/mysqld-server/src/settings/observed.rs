//! Observations of a server: names and values as the server reports them. Accessors hide the two generations of names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use binlog_format::checksum::ChecksumAlgorithm;
use mysql_link::ServerVersion;
use uuid::Uuid;

use crate::binlog_place::BinlogPlace;
use crate::settings::grants::Grants;

/// Extent of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Settings that may change at run time: every second.
    Watch,
    /// Everything: when attaching.
    Preflight,
}

/// A client with a running semi-sync dump on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SemiSyncReplica {
    /// The server's connection id.
    pub connection_id: u64,
    /// The client's server UUID, if announced.
    pub uuid: Option<Uuid>,
}

const LOWER_CASE_TABLE_NAMES: &str = "lower_case_table_names";

/// The status variable for whether InnoDB writes its redo log (8.0.21 and later).
pub(crate) const REDO_LOG: &str = "innodb_redo_log_enabled";

/// Settings that must be equal on all servers of a ring, because a DDL statement is replicated as text only.
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

/// Settings and state of a mysqld, from one observation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// The version that the server announced.
    pub version: ServerVersion,
    /// Global variables by lower-case name.
    pub variables: BTreeMap<String, String>,
    /// Global status counters by lower-case name.
    pub status: BTreeMap<String, String>,
    /// Attached semi-sync replicas; `None` if they could not be queried.
    pub semi_sync_replicas: Option<Vec<SemiSyncReplica>>,
    /// The privileges of the member's account; `None` unless queried.
    pub grants: Option<Grants>,
    /// Other accounts and roles that may run `SHUTDOWN` and `RESTART`; `None` unless queried.
    pub may_shut_down: Option<Vec<String>>,
    /// `binlog-do-db` and `binlog-ignore-db`; empty when there are none, `None` unless queried.
    pub binlog_filters: Option<Vec<String>>,
    /// After how many days the password of the member's account expires; `None` if it does not expire or cannot be queried.
    pub account_expires: Option<u64>,
    /// The index of the server's binlog, if it differs from the index that the member reads.
    pub binlog_elsewhere: Option<PathBuf>,
    /// Persisted values that contradict the member's start settings, by variable; `None` unless queried.
    pub persisted: Option<BTreeMap<String, String>>,
}

impl Observed {
    /// Compares the location of the server's binlog with the location that the member reads.
    pub fn compare_place(&mut self, expected: Option<&BinlogPlace>) {
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

    /// The numeric value of a global variable.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.variable(name)?.parse().ok()
    }

    /// Value of a global status counter by its name; `None` where the server has no such counter.
    pub fn status(&self, name: &str) -> Option<&str> {
        self.status.get(&name.to_lowercase()).map(String::as_str)
    }

    /// True if a variable is ON.
    pub fn is_on(&self, name: &str) -> bool {
        self.variable(name).is_some_and(says_on)
    }

    /// The names of the loaded semi-sync plugin; `None` if none is loaded.
    pub fn semi_sync(&self) -> Option<SemiSyncNames> {
        [SemiSyncNames::Source, SemiSyncNames::Master]
            .into_iter()
            .find(|names| self.variables.contains_key(&names.enabled()))
    }

    /// Returns the settings that, together with its text, determine the effect of a DDL statement and are not in the log. Keys are
    /// lower-case names.
    pub fn ddl_settings(&self) -> BTreeMap<String, String> {
        let seen = DDL_SETTINGS.iter().filter_map(|name| {
            // `SHOW VARIABLES` shows a switch as a word, and `SELECT` shows it as a number.
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

    /// True if no account may write, not even administrators. Also true while another session's `SET` of the variable still waits for its
    /// locks.
    pub fn is_super_read_only(&self) -> bool {
        self.is_on("super_read_only")
    }

    /// Whether ordinary clients may write.
    pub fn is_writable(&self) -> bool {
        !self.is_super_read_only() && !self.is_on("read_only")
    }

    /// How many sessions wait for an ACK at the moment.
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

/// Parses a value of `binlog_checksum`.
pub fn checksum_named(variable: Option<&str>) -> ChecksumAlgorithm {
    match variable {
        Some("NONE") => ChecksumAlgorithm::None,
        _ => ChecksumAlgorithm::Crc32,
    }
}

/// True for the values that mysqld reports for a variable that is on.
pub fn says_on(value: &str) -> bool {
    value.eq_ignore_ascii_case("ON") || value == "1"
}

// The two generations of semi-sync names: source and replica from 8.0.26 on, master and slave before (and later, if the old plugin is still
// loaded).

/// The names of one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SemiSyncNames {
    /// `rpl_semi_sync_source_…`, from 8.0.26 on.
    Source,
    /// `rpl_semi_sync_master_…`, before 8.0.26.
    Master,
}

impl SemiSyncNames {
    /// The generation to install on a server without a loaded plugin.
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

    /// The statement that installs the source's plugin.
    pub(super) fn install(self) -> String {
        let (plugin, library) = (self.plugin(), self.library());
        format!("INSTALL PLUGIN {plugin} SONAME '{library}'")
    }

    /// Name of the variable that enables semi-sync at the source.
    pub fn enabled(self) -> String {
        self.variable("enabled")
    }

    /// Name of the variable for how long a commit waits before semi-sync turns itself off, in milliseconds.
    pub fn timeout(self) -> String {
        self.variable("timeout")
    }

    /// Name of the variable for how many ACKs each commit waits for.
    pub fn replica_count(self) -> String {
        match self {
            Self::Source => self.variable("wait_for_replica_count"),
            Self::Master => self.variable("wait_for_slave_count"),
        }
    }

    /// Name of the variable for whether commits wait without replicas.
    pub fn wait_no_replica(self) -> String {
        match self {
            Self::Source => self.variable("wait_no_replica"),
            Self::Master => self.variable("wait_no_slave"),
        }
    }

    /// Name of the variable for the point of the commit at which semi-sync waits.
    pub fn wait_point(self) -> String {
        self.variable("wait_point")
    }

    /// Name of the status counter for whether semi-sync currently waits at all.
    pub fn status(self) -> String {
        self.variable("status")
    }

    /// Name of the status counter of attached semi-sync replicas.
    pub fn clients(self) -> String {
        self.variable("clients")
    }

    /// Name of the status counter of sessions that wait for an ACK.
    pub fn wait_sessions(self) -> String {
        self.variable("wait_sessions")
    }

    fn variable(self, suffix: &str) -> String {
        format!("{}_{suffix}", self.plugin())
    }
}
