//! The system variables: their names, how they are shown, and the sources of their values.

use std::collections::BTreeMap;

use crate::answers::{SqlError, code};
use crate::statement::Value;

/// How a value is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// ON and OFF in SHOW, 1 and 0 in SELECT.
    Switch,
    Number,
    /// A word or a text.
    Text,
}

use Kind::{Number, Switch, Text};

/// All variables, with their defaults.
const DEFINITIONS: [(&str, Kind, &str); 37] = [
    ("binlog_checksum", Text, "CRC32"),
    ("binlog_encryption", Switch, "OFF"),
    ("binlog_error_action", Text, "ABORT_SERVER"),
    ("binlog_format", Text, "ROW"),
    ("binlog_row_image", Text, "FULL"),
    ("enforce_gtid_consistency", Text, "ON"),
    ("event_scheduler", Text, "ON"),
    ("gtid_mode", Text, "ON"),
    ("innodb_flush_log_at_trx_commit", Number, "1"),
    ("innodb_lock_wait_timeout", Number, "50"),
    ("lock_wait_timeout", Number, "31536000"),
    ("log_bin", Switch, "ON"),
    ("log_replica_updates", Switch, "ON"),
    ("max_allowed_packet", Number, "67108864"),
    ("max_binlog_cache_size", Number, "18446744073709547520"),
    ("max_binlog_stmt_cache_size", Number, "18446744073709547520"),
    ("max_connections", Number, "151"),
    ("max_user_connections", Number, "0"),
    ("offline_mode", Switch, "OFF"),
    ("port", Number, "3306"),
    ("read_only", Switch, "OFF"),
    ("server_id", Number, "1"),
    ("server_uuid", Text, ""),
    ("super_read_only", Switch, "OFF"),
    ("sync_binlog", Number, "1"),
    ("version", Text, ""),
    ("version_comment", Text, "MySQL Community Server - GPL"),
    ("datadir", Text, ""),
    ("log_bin_index", Text, ""),
    // Exists only while the clone plugin is loaded.
    ("clone_max_data_bandwidth", Number, "0"),
    ("clone_valid_donor_list", Text, ""),
    // Exists only while the replica's semi-sync plugin is loaded.
    ("rpl_semi_sync_replica_enabled", Switch, "OFF"),
    // From here on, variables that exist only while the source's semi-sync plugin is loaded.
    ("rpl_semi_sync_source_enabled", Switch, "OFF"),
    ("rpl_semi_sync_source_timeout", Number, "10000"),
    (REPLICA_COUNT, Number, "1"),
    ("rpl_semi_sync_source_wait_no_replica", Switch, "ON"),
    ("rpl_semi_sync_source_wait_point", Text, "AFTER_SYNC"),
];

/// Variables that can be set only on the command line.
const AT_START: [&str; 8] = [
    "log_bin",
    "log_replica_updates",
    "port",
    "server_uuid",
    "version",
    "version_comment",
    "datadir",
    "log_bin_index",
];

/// The variable with the number of ACKs that a commit needs.
pub(crate) const REPLICA_COUNT: &str = "rpl_semi_sync_source_wait_for_replica_count";
/// Name prefix of the source's semi-sync variables.
const SEMI_SYNC: &str = "rpl_semi_sync_source_";

/// Name prefix of the replica's semi-sync variables.
const SEMI_SYNC_REPLICA: &str = "rpl_semi_sync_replica_";

/// Name prefix of the clone plugin's variables.
const CLONE: &str = "clone_";

/// Command line arguments that are not variables, and have no effect in the model.
const WITHOUT_MEANING: &str = "no-defaults log-bin log-error socket pid-file user bind-address mysqlx secure-file-priv skip-networking \
     skip-replica-start replicate-same-server-id plugin-load-add plugin-dir lc-messages-dir character-sets-dir basedir tmpdir innodb-redo-log-capacity transaction-isolation";

#[derive(Debug, Clone)]
struct Variable {
    kind: Kind,
    value: String,
    /// The client that set the value, if one did.
    assigned_by: Option<String>,
}

/// The variables of a running server.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    all: BTreeMap<&'static str, Variable>,
    // True for each loaded plugin.
    pub(crate) semi_sync_source: bool,
    pub(crate) semi_sync_replica: bool,
    pub(crate) clone: bool,
}

/// A parsed command line.
#[derive(Debug, Default)]
pub(crate) struct CommandLine {
    values: Vec<(String, String)>,
    semi_sync: bool,
    semi_sync_replica: bool,
    /// True if the replica threads do not start with the server.
    pub(crate) skip_replica_start: bool,
    /// True if persisted values are used.
    pub(crate) loads_persisted: bool,
    /// The arguments that the model does not know.
    pub(crate) unknown: Vec<String>,
}

impl CommandLine {
    /// Parses the arguments. Later arguments override earlier ones.
    pub(crate) fn of(words: &[String]) -> Self {
        let mut line = Self {
            loads_persisted: true,
            ..Self::default()
        };
        for word in words {
            let Some(option) = word.strip_prefix("--") else {
                continue;
            };
            let (name, value) = option.split_once('=').unwrap_or((option, "ON"));
            let dashed = name.replace('_', "-");
            let dashed = dashed.strip_prefix("loose-").unwrap_or(&dashed);
            match dashed {
                "no-defaults" => line.loads_persisted = false,
                "skip-replica-start" => line.skip_replica_start = value != "OFF",
                "plugin-load-add" | "plugin-load" => {
                    line.semi_sync |= value.contains("semisync_source");
                    line.semi_sync_replica |= value.contains("semisync_replica");
                }
                _ => {}
            }
            let variable = dashed.replace('-', "_");
            // The argument's value is a path, but the variable is ON or OFF.
            let value = match dashed {
                "log-bin" => "ON",
                _ => value,
            };
            if DEFINITIONS.iter().any(|(name, ..)| *name == variable) {
                line.values.push((variable, value.to_owned()));
            } else if !WITHOUT_MEANING.split(' ').any(|name| name == dashed) {
                line.unknown.push(word.clone());
            }
        }
        line
    }
}

impl Variables {
    /// Returns the values at a start: the defaults, overridden by the command line, overridden by persisted values.
    pub(crate) fn at_start(line: &CommandLine, persisted: &BTreeMap<String, String>) -> Self {
        let mut this = Self {
            all: BTreeMap::new(),
            semi_sync_source: line.semi_sync,
            semi_sync_replica: line.semi_sync_replica,
            clone: false,
        };
        for (name, kind, value) in DEFINITIONS {
            let variable = Variable {
                kind,
                value: value.to_owned(),
                assigned_by: None,
            };
            this.all.insert(name, variable);
        }
        for (name, value) in &line.values {
            this.put(name, value, None);
        }
        if line.loads_persisted {
            for (name, value) in persisted {
                this.put(name, value, None);
            }
        }
        this
    }

    /// Sets a value without a check.
    pub(crate) fn put(&mut self, name: &str, value: &str, client: Option<&str>) {
        if let Some(variable) = self.all.get_mut(name) {
            variable.value = match (variable.kind, value) {
                (Switch, "1" | "ON" | "on" | "TRUE") => "ON".to_owned(),
                (Switch, _) => "OFF".to_owned(),
                (Text, "on" | "1") => "ON".to_owned(),
                (Text, "off" | "0") => "OFF".to_owned(),
                (_, value) => value.to_owned(),
            };
            variable.assigned_by = client.map(str::to_owned);
        }
    }

    fn known(&self, name: &str) -> Result<&Variable, SqlError> {
        self.find(name).ok_or_else(|| {
            let message = format!("Unknown system variable '{name}'");
            SqlError::new(code::UNKNOWN_VARIABLE, message)
        })
    }

    fn find(&self, name: &str) -> Option<&Variable> {
        self.all.get(name).filter(|_| self.is_there(name))
    }

    fn is_there(&self, name: &str) -> bool {
        (self.semi_sync_source || !name.starts_with(SEMI_SYNC))
            && (self.semi_sync_replica || !name.starts_with(SEMI_SYNC_REPLICA))
            && (self.clone || !name.starts_with(CLONE))
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.find(name)
            .is_some_and(|variable| variable.value == "ON")
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        let number = self
            .find(name)
            .and_then(|variable| variable.value.parse().ok());
        number.unwrap_or(0)
    }

    pub(crate) fn assigned_by(&self, name: &str) -> Option<&str> {
        self.find(name)?.assigned_by.as_deref()
    }

    /// Returns a value as SELECT shows it.
    pub(crate) fn selected(&self, name: &str) -> Result<String, SqlError> {
        let variable = self.known(name)?;
        Ok(match (variable.kind, &variable.value[..]) {
            (Switch, "ON") => "1".to_owned(),
            (Switch, _) => "0".to_owned(),
            (_, value) => value.to_owned(),
        })
    }

    /// Returns the values as SHOW VARIABLES shows them.
    pub(crate) fn shown(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let names = self.all.keys().filter(|name| self.is_there(name));
        names.filter_map(|name| Some((*name, &self.all.get(name)?.value[..])))
    }

    /// Returns the value that a SET statement would assign.
    ///
    /// # Errors
    /// The name is unknown, the variable is read-only, or the value is invalid.
    pub(crate) fn checked(&self, name: &str, value: &Value) -> Result<String, SqlError> {
        let variable = self.known(name)?;
        if AT_START.contains(&name) {
            let message = format!("Variable '{name}' is a read only variable");
            return Err(SqlError::new(1238, message));
        }
        let text = match value {
            Value::Number(number) => number.to_string(),
            Value::Text(text) | Value::Word(text) => text.clone(),
            Value::Global(other) | Value::Session(other) => self.selected(other)?,
            _ => String::new(),
        };
        let fits = match variable.kind {
            Number => text.parse::<u64>().is_ok(),
            Switch => ["ON", "OFF", "1", "0", "TRUE", "FALSE"]
                .iter()
                .any(|word| text.eq_ignore_ascii_case(word)),
            Text => !text.is_empty(),
        };
        if !fits {
            let message = format!("Variable '{name}' can't be set to the value of '{text}'");
            return Err(SqlError::new(code::WRONG_VALUE, message));
        }
        Ok(match variable.kind {
            Switch => text.to_ascii_uppercase(),
            _ => text,
        })
    }
}
