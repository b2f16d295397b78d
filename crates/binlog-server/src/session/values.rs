//! Computes the values of `SELECT` and `SHOW VARIABLES`. Pure.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::gtid::GtidSet;
use uuid::Uuid;

use crate::answers::{ErrorAnswer, Value, code};
use crate::committed_files::CommittedFiles;
use crate::options::ServerIdentity;
use crate::statement::{Expression, Filter, Named};

/// The sources of the values.
pub(super) struct Surroundings<'a> {
    pub(super) log: &'a dyn CommittedFiles,
    pub(super) identity: &'a ServerIdentity,
    pub(super) variables: &'a UserVariables,
    pub(super) user: &'a str,
    pub(super) address: SocketAddr,
    pub(super) port: u16,
    pub(super) connection: u32,
}

/// Constant variables. Drivers query many of these when they connect.
const CONSTANTS: &[(&str, Value)] = &[
    ("auto_increment_increment", Value::Number(1)),
    ("auto_increment_offset", Value::Number(1)),
    ("autocommit", Value::Switch(true)),
    ("binlog_checksum", Value::constant("CRC32")),
    ("binlog_format", Value::constant("ROW")),
    ("character_set_client", Value::constant("utf8mb4")),
    ("character_set_connection", Value::constant("utf8mb4")),
    ("character_set_results", Value::constant("utf8mb4")),
    ("character_set_server", Value::constant("utf8mb4")),
    (
        "collation_connection",
        Value::constant("utf8mb4_0900_ai_ci"),
    ),
    ("collation_server", Value::constant("utf8mb4_0900_ai_ci")),
    ("enforce_gtid_consistency", Value::constant("ON")),
    ("gtid_mode", Value::constant("ON")),
    ("gtid_owned", Value::constant("")),
    ("init_connect", Value::constant("")),
    ("interactive_timeout", Value::Number(28_800)),
    ("license", Value::constant("")),
    ("log_bin", Value::Switch(true)),
    ("log_replica_updates", Value::Switch(true)),
    ("log_slave_updates", Value::Switch(true)),
    ("lower_case_table_names", Value::Number(0)),
    ("max_allowed_packet", Value::Number(1 << 30)),
    ("net_buffer_length", Value::Number(16_384)),
    ("net_read_timeout", Value::Number(30)),
    ("net_write_timeout", Value::Number(60)),
    ("offline_mode", Value::Switch(false)),
    ("performance_schema", Value::Switch(false)),
    ("read_only", Value::Switch(true)),
    ("sql_mode", Value::constant("")),
    ("super_read_only", Value::Switch(true)),
    ("system_time_zone", Value::constant("UTC")),
    ("time_zone", Value::constant("+00:00")),
    ("transaction_isolation", Value::constant("REPEATABLE-READ")),
    ("transaction_read_only", Value::Switch(true)),
    ("tx_isolation", Value::constant("REPEATABLE-READ")),
    ("tx_read_only", Value::Switch(true)),
    (
        "version_compile_machine",
        Value::constant(std::env::consts::ARCH),
    ),
    ("version_compile_os", Value::constant(std::env::consts::OS)),
    ("wait_timeout", Value::Number(28_800)),
];

/// Computes the value of a variable.
type Live = fn(&Surroundings<'_>) -> Value;

/// The variables that are computed.
const LIVE: &[(&str, Live)] = &[
    ("gtid_executed", |here| Value::text(here.log.gtids())),
    ("gtid_purged", |here| Value::text(here.log.purged())),
    ("hostname", |here| Value::text(&here.identity.name)),
    ("port", |here| Value::Number(here.port.into())),
    ("server_id", |here| {
        Value::Number(here.identity.server_id.into())
    }),
    ("server_uuid", |here| Value::text(here.identity.server_uuid)),
    ("version", |here| Value::text(here.log.server_version())),
    ("version_comment", |_| {
        let version = env!("CARGO_PKG_VERSION");
        Value::text(format!(
            "witness {version}: the binlog of a ring, no tables"
        ))
    }),
];

impl Surroundings<'_> {
    /// The value of a system variable; `None` if the name is unknown.
    fn system(&self, name: &str) -> Option<Value> {
        if let Some((_, value)) = CONSTANTS.iter().find(|(own, _)| *own == name) {
            return Some(value.clone());
        }
        let (_, value) = LIVE.iter().find(|(own, _)| *own == name)?;
        Some(value(self))
    }

    /// The names and values of the variables that match a filter, ordered by name.
    pub(super) fn shown(&self, filter: &Filter) -> Vec<Vec<Value>> {
        let constants = CONSTANTS.iter().map(|(name, _)| *name);
        let mut names: Vec<&'static str> = constants
            .chain(LIVE.iter().map(|(name, _)| *name))
            .filter(|name| match filter {
                Filter::All => true,
                Filter::AnyOf(names) => names.iter().any(|named| match named {
                    Named::Is(own) => own == name,
                    Named::Like(pattern) => is_like(name, pattern),
                }),
            })
            .collect();
        names.sort_unstable();
        let row = |name: &'static str| {
            let value = self.system(name)?.shown();
            Some(vec![Value::constant(name), Value::text(value)])
        };
        names.into_iter().filter_map(row).collect()
    }

    /// The value of an expression.
    pub(super) fn value(&self, expression: &Expression) -> Result<Value, ErrorAnswer> {
        Ok(match expression {
            Expression::System(name) => self.system(name).ok_or_else(|| {
                let message = format!("Unknown system variable '{name}'");
                ErrorAnswer::new(code::UNKNOWN_VARIABLE, message)
            })?,
            Expression::User(name) => self.variables.get(name),
            Expression::Number(number) => match number.parse() {
                Ok(number) => Value::Number(number),
                Err(_) => Value::text(number),
            },
            Expression::Text(text) | Expression::Word(text) => Value::text(text),
            Expression::Null => Value::Null,
            Expression::Call(name, arguments) => self.call(name, arguments)?,
        })
    }

    fn call(&self, name: &str, arguments: &[Expression]) -> Result<Value, ErrorAnswer> {
        Ok(match (name, arguments) {
            ("unix_timestamp", []) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                Value::Number(now.unwrap_or_default().as_secs())
            }
            ("version", []) => Value::text(self.log.server_version()),
            ("connection_id", []) => Value::Number(u64::from(self.connection)),
            ("database" | "schema", []) => Value::Null,
            ("user" | "session_user" | "system_user", []) => {
                Value::text(format!("{}@{}", self.user, self.address.ip()))
            }
            ("current_user", []) => Value::text(format!("{}@%", self.user)),
            ("gtid_subset", [one, other]) => {
                let (one, other) = (self.gtids(one)?, self.gtids(other)?);
                Value::Switch(other.contains_set(&one))
            }
            ("gtid_subtract", [one, other]) => {
                let (one, other) = (self.gtids(one)?, self.gtids(other)?);
                Value::text(one.difference(&other))
            }
            _ => {
                let message = format!("{name}() is not known to a server of binlogs");
                return Err(ErrorAnswer::new(code::NOT_SUPPORTED, message));
            }
        })
    }

    fn gtids(&self, expression: &Expression) -> Result<GtidSet, ErrorAnswer> {
        let text = self.value(expression)?.selected().unwrap_or_default();
        text.parse().map_err(|error| {
            let message = format!("Malformed GTID set specification: {error}");
            ErrorAnswer::new(code::WRONG_VALUE, message)
        })
    }
}

/// Whether a name matches a LIKE pattern, both in lower case. The time is proportional to the product of both lengths at most.
fn is_like(name: &str, pattern: &str) -> bool {
    let (name, pattern) = (name.as_bytes(), pattern.as_bytes());
    let (mut at, mut in_pattern) = (0, 0);
    // Positions in pattern and name at which to continue if the text after the last `%` does not match.
    let mut again: Option<(usize, usize)> = None;
    while let Some(byte) = name.get(at) {
        match (pattern.get(in_pattern), pattern.get(in_pattern + 1)) {
            (Some(b'%'), _) => {
                in_pattern += 1;
                again = Some((at, in_pattern));
                continue;
            }
            (Some(b'\\'), Some(escaped)) if escaped == byte => {
                at += 1;
                in_pattern += 2;
                continue;
            }
            (Some(b'_'), _) => {
                at += 1;
                in_pattern += 1;
                continue;
            }
            (Some(own), _) if own == byte => {
                at += 1;
                in_pattern += 1;
                continue;
            }
            _ => {}
        }
        let Some((from, rest)) = again else {
            return false;
        };
        again = Some((from + 1, rest));
        (at, in_pattern) = (from + 1, rest);
    }
    pattern[in_pattern.min(pattern.len())..]
        .iter()
        .all(|byte| *byte == b'%')
}

// User variables of a client (`SET @name`). A replica sends its identity and its dump options in them.

/// Limits on the number and size of variables; no replica exceeds them.
const MAX_VARIABLES: usize = 64;
const MAX_BYTES: usize = 1024;

/// User variables of one session, such as `@replica_uuid`; bounded in number and size.
#[derive(Debug, Clone, Default)]
pub(crate) struct UserVariables(BTreeMap<String, Value>);

impl UserVariables {
    /// The value of a variable; NULL if it was not set.
    pub(crate) fn get(&self, name: &str) -> Value {
        self.0.get(name).cloned().unwrap_or(Value::Null)
    }

    /// Sets a variable. Refused if there are too many variables, or they are too long.
    pub(crate) fn set(&mut self, name: String, value: Value) -> Result<(), ErrorAnswer> {
        let bytes = name.len() + value.selected().map_or(0, |text| text.len());
        if bytes > MAX_BYTES || (self.0.len() >= MAX_VARIABLES && !self.0.contains_key(&name)) {
            let message = "too many or too long user variables for a server of binlogs";
            return Err(ErrorAnswer::new(code::WRONG_VALUE, message));
        }
        self.0.insert(name, value);
        Ok(())
    }

    /// The value of either variable. If both are set, the newer name has precedence, as in MySQL.
    fn either(&self, names: [&str; 2]) -> Option<String> {
        let value = names.iter().find_map(|name| self.0.get(*name))?;
        value.selected()
    }

    /// The server UUID that a replica has set as a user variable.
    pub(crate) fn replica_uuid(&self) -> Option<Uuid> {
        let uuid = self.either(["replica_uuid", "slave_uuid"])?;
        Uuid::parse_str(&uuid).ok()
    }

    /// The requested heartbeat interval; `None` for no heartbeats.
    pub(crate) fn heartbeat(&self) -> Option<Duration> {
        let period = self.either(["source_heartbeat_period", "master_heartbeat_period"])?;
        let nanoseconds = period.parse().ok()?;
        (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
    }

    /// The checksum algorithm that the client expects in generated events before the first format description. `None` if the client does
    /// not support checksums.
    pub(crate) fn checksum(&self) -> Option<ChecksumAlgorithm> {
        let name = self.either(["source_binlog_checksum", "master_binlog_checksum"])?;
        match &name.to_ascii_uppercase()[..] {
            "CRC32" => Some(ChecksumAlgorithm::Crc32),
            "NONE" => Some(ChecksumAlgorithm::None),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_like() {
        for (name, pattern, fits) in [
            ("gtid_mode", "gtid_mode", true),
            ("gtid_mode", "gtid\\_mode", true),
            ("gtid_mode", "gtid%", true),
            ("gtid_mode", "%mode", true),
            ("gtid_mode", "%i%o%", true),
            ("gtid_mode", "gtid_mod", false),
            ("gtid_mode", "_tid_mod_", true),
            ("gtid_mode", "", false),
            ("gtid_mode", "%", true),
            ("gtid_mode", "%x%", false),
            ("aaab", "%a%ab", true),
        ] {
            assert_eq!(is_like(name, pattern), fits, "{name} {pattern}");
        }
    }

    #[test]
    fn every_variable_is_defined_once() {
        let mut names: Vec<&str> = CONSTANTS.iter().map(|(name, _)| *name).collect();
        names.extend(LIVE.iter().map(|(name, _)| *name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}

#[cfg(test)]
mod user_variables_tests {
    use super::*;

    #[test]
    fn replica_options_are_read_under_both_names() {
        let mut variables = UserVariables::default();
        assert_eq!((variables.heartbeat(), variables.checksum()), (None, None));
        for (name, value) in [
            ("master_heartbeat_period", Value::Number(5_000_000_000)),
            ("master_binlog_checksum", Value::constant("none")),
            (
                "slave_uuid",
                Value::constant("3e11fa47-71ca-11e1-9e33-c80aa9429562"),
            ),
        ] {
            variables.set(name.to_owned(), value).unwrap();
        }
        assert_eq!(variables.heartbeat(), Some(Duration::from_secs(5)));
        assert_eq!(variables.checksum(), Some(ChecksumAlgorithm::None));
        assert!(variables.replica_uuid().is_some());
        let newer = (
            "source_binlog_checksum".to_owned(),
            Value::constant("CRC32"),
        );
        variables.set(newer.0, newer.1).unwrap();
        assert_eq!(variables.checksum(), Some(ChecksumAlgorithm::Crc32));
    }

    #[test]
    fn memory_is_bounded() {
        let mut variables = UserVariables::default();
        assert!(
            variables
                .set("x".into(), Value::text("y".repeat(2000)))
                .is_err()
        );
        for at in 0..MAX_VARIABLES {
            variables.set(format!("x{at}"), Value::Null).unwrap();
        }
        assert!(variables.set("one more".into(), Value::Null).is_err());
        assert!(variables.set("x3".into(), Value::Number(1)).is_ok());
    }
}
