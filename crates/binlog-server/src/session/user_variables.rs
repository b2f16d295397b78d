//! What a client has set with `SET @name`: a replica says in these who it is and how events shall come.

use std::collections::BTreeMap;
use std::time::Duration;

use binlog_format::checksum::ChecksumAlgorithm;
use uuid::Uuid;

use crate::answers::{ErrorAnswer, Value, code};

/// More variables, or longer ones, than any replica sets.
const MAX_VARIABLES: usize = 64;
const MAX_BYTES: usize = 1024;

/// A session's variables.
#[derive(Debug, Clone, Default)]
pub(crate) struct UserVariables(BTreeMap<String, Value>);

impl UserVariables {
    /// The value of a variable; NULL where it was not set.
    pub(crate) fn get(&self, name: &str) -> Value {
        self.0.get(name).cloned().unwrap_or(Value::Null)
    }

    /// Sets one.
    pub(crate) fn set(&mut self, name: String, value: Value) -> Result<(), ErrorAnswer> {
        let bytes = name.len() + value.text().map_or(0, |text| text.len());
        if bytes > MAX_BYTES || (self.0.len() >= MAX_VARIABLES && !self.0.contains_key(&name)) {
            let message = "too many or too long user variables for a server of binlogs";
            return Err(ErrorAnswer::new(code::WRONG_VALUE, message));
        }
        self.0.insert(name, value);
        Ok(())
    }

    /// The newer name counts where both are set, as in MySQL.
    fn either(&self, names: [&str; 2]) -> Option<String> {
        let value = names.iter().find_map(|name| self.0.get(*name))?;
        value.text()
    }

    /// The client's server UUID.
    pub(crate) fn replica_uuid(&self) -> Option<Uuid> {
        let uuid = self.either(["replica_uuid", "slave_uuid"])?;
        Uuid::parse_str(&uuid).ok()
    }

    /// How often the client wants a sign of life; `None` for never.
    pub(crate) fn heartbeat(&self) -> Option<Duration> {
        let period = self.either(["source_heartbeat_period", "master_heartbeat_period"])?;
        let nanoseconds = period.parse().ok()?;
        (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
    }

    /// What the client said of checksums: it expects made-up events with this one until the first format description
    /// comes. `None` when it does not know of checksums.
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
    fn a_replicas_wishes_are_read_under_both_names() {
        let mut variables = UserVariables::default();
        assert_eq!((variables.heartbeat(), variables.checksum()), (None, None));
        for (name, value) in [
            ("master_heartbeat_period", Value::Number(5_000_000_000)),
            ("master_binlog_checksum", Value::from("none")),
            (
                "slave_uuid",
                Value::from("3e11fa47-71ca-11e1-9e33-c80aa9429562"),
            ),
        ] {
            variables.set(name.to_owned(), value).unwrap();
        }
        assert_eq!(variables.heartbeat(), Some(Duration::from_secs(5)));
        assert_eq!(variables.checksum(), Some(ChecksumAlgorithm::None));
        assert!(variables.replica_uuid().is_some());
        let newer = ("source_binlog_checksum".to_owned(), Value::from("CRC32"));
        variables.set(newer.0, newer.1).unwrap();
        assert_eq!(variables.checksum(), Some(ChecksumAlgorithm::Crc32));
    }

    #[test]
    fn memory_is_bounded() {
        let mut variables = UserVariables::default();
        assert!(variables.set("x".into(), "y".repeat(2000).into()).is_err());
        for at in 0..MAX_VARIABLES {
            variables.set(format!("x{at}"), Value::Null).unwrap();
        }
        assert!(variables.set("one more".into(), Value::Null).is_err());
        assert!(variables.set("x3".into(), Value::Number(1)).is_ok());
    }
}
