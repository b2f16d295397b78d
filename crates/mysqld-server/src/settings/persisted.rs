//! Persisted values (`SET PERSIST`, `mysqld-auto.cnf`) override mysqld's command line and option files. Some would boot mysqld open for
//! writes, or complete commits without the ring. This module finds such values (pure). [`reset`] removes them from a running server, and
//! the supervisor removes them from a server before its start.

use std::collections::BTreeMap;

use mysql_link::{Connection, LinkError};

use crate::settings::finding::{
    LARGEST_CACHE, TIMEOUT_MS, UNREACHABLE_ACKS, is_effectively_infinite,
    keeps_replicas_from_releasing, quoted,
};
use crate::settings::observed::{SemiSyncNames, says_on};

/// Persisted values by the lower-case name of their variable.
pub(crate) type PersistedValues = BTreeMap<String, String>;

/// True if this persisted value contradicts the member's command line.
pub(crate) fn contradicts(name: &str, value: &str) -> bool {
    let is = |wanted: &str| value.eq_ignore_ascii_case(wanted);
    let number = value.parse::<u64>().ok();
    let semi_sync = ["rpl_semi_sync_source_", "rpl_semi_sync_master_"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix));
    match semi_sync.unwrap_or(name) {
        "enabled" | "wait_no_replica" | "wait_no_slave" if semi_sync.is_some() => !says_on(value),
        "timeout" if semi_sync.is_some() => !number.is_some_and(is_effectively_infinite),
        "wait_for_replica_count" | "wait_for_slave_count" if semi_sync.is_some() => {
            !keeps_replicas_from_releasing(value)
        }
        "wait_point" if semi_sync.is_some() => !is("AFTER_SYNC"),
        "read_only"
        | "super_read_only"
        | "skip_replica_start"
        | "skip_slave_start"
        | "gtid_mode"
        | "enforce_gtid_consistency" => !says_on(value),
        "sync_binlog" | "innodb_flush_log_at_trx_commit" => number != Some(1),
        "binlog_error_action" => !is("ABORT_SERVER") && number != Some(1),
        "max_binlog_cache_size" | "max_binlog_stmt_cache_size" => {
            number.is_none_or(|bytes| bytes > LARGEST_CACHE)
        }
        _ => false,
    }
}

/// Returns the statement that removes a persisted value from a running server and leaves the current value.
pub fn reset_statement(name: &str) -> String {
    format!("RESET PERSIST IF EXISTS {name}")
}

/// Why a contradicting value must be removed.
pub const WHY: &str = "mysqld takes a persisted value before its command line and its option files, so that its next start \
     would be open for writes, or let commits complete without the ring";

/// Returns the contradicting values of a running server; `None` if the account may not read them.
///
/// # Errors
/// When the connection fails.
pub async fn contradicting(
    connection: &mut Connection,
) -> Result<Option<PersistedValues>, LinkError> {
    let mut values = persisted(connection).await?;
    if let Some(values) = &mut values {
        values.retain(|name, value| contradicts(name, value));
    }
    Ok(values)
}

/// The values that are persisted in a server that the member does not start. With them, the next start is closed for writes, and commits
/// wait.
fn begins_with(names: SemiSyncNames) -> [(String, String); 7] {
    [
        ("read_only".to_owned(), "ON".to_owned()),
        ("super_read_only".to_owned(), "ON".to_owned()),
        (names.enabled(), "ON".to_owned()),
        (names.timeout(), TIMEOUT_MS.to_string()),
        (names.replica_count(), UNREACHABLE_ACKS.to_string()),
        (names.wait_no_replica(), "ON".to_owned()),
        (names.wait_point(), "AFTER_SYNC".to_owned()),
    ]
}

/// Persists the settings for a server's next start, unless they are already persisted. Returns whether any was persisted.
///
/// # Errors
/// When the server refuses to persist a value, or the connection fails.
pub async fn persist_start(
    connection: &mut Connection,
    names: SemiSyncNames,
) -> Result<bool, LinkError> {
    let Some(known) = persisted(connection).await? else {
        return Ok(false);
    };
    let mut done = false;
    for (name, value) in begins_with(names) {
        if !known.contains_key(&name) {
            let persist = format!("SET PERSIST_ONLY {name} = {}", quoted(&value));
            connection.execute(&persist).await?;
            done = true;
        }
    }
    Ok(done)
}

/// Returns the statements that persist the settings for a server's next start, without those already persisted.
///
/// # Errors
/// The connection fails.
pub(crate) async fn not_persisted(
    connection: &mut Connection,
    names: SemiSyncNames,
) -> Result<Vec<String>, LinkError> {
    let known = persisted(connection).await?.unwrap_or_default();
    let values = begins_with(names).into_iter();
    let lacking = values.filter(|(name, value)| known.get(name) != Some(value));
    let statement =
        |(name, value): (String, String)| format!("SET PERSIST_ONLY {name} = {}", quoted(&value));
    Ok(lacking.map(statement).collect())
}

/// Removes the values of [`persist_start`] from a server that leaves the ring.
///
/// # Errors
/// When the server refuses to remove a value, or the connection fails.
pub(crate) async fn reset_start(
    connection: &mut Connection,
    names: SemiSyncNames,
) -> Result<(), LinkError> {
    let known = persisted(connection).await?.unwrap_or_default();
    for (name, value) in begins_with(names) {
        if known.get(&name) == Some(&value) {
            reset(connection, &name).await?;
        }
    }
    Ok(())
}

async fn persisted(connection: &mut Connection) -> Result<Option<PersistedValues>, LinkError> {
    let all = "SELECT variable_name, variable_value FROM performance_schema.persisted_variables";
    let answer = match connection.query(all).await {
        Err(LinkError::Server(_)) => return Ok(None),
        answer => answer?,
    };
    let pair = |row: &mysql_link::Row| {
        let value = row.text_at(1).unwrap_or_default();
        Some((row.text_at(0)?.to_lowercase(), value.to_owned()))
    };
    Ok(Some(answer.rows.iter().filter_map(pair).collect()))
}

/// Removes one persisted value.
///
/// # Errors
/// When the server refuses to remove the value, or the connection fails.
pub async fn reset(connection: &mut Connection, name: &str) -> Result<(), LinkError> {
    connection.execute(&reset_statement(name)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contradicts_the_command_line_of_a_member() {
        let table = [
            ("super_read_only", "OFF", true),
            ("super_read_only", "ON", false),
            ("read_only", "0", true),
            ("read_only", "1", false),
            ("rpl_semi_sync_source_enabled", "OFF", true),
            ("rpl_semi_sync_master_enabled", "off", true),
            ("rpl_semi_sync_source_enabled", "ON", false),
            ("rpl_semi_sync_source_timeout", "10000", true),
            ("rpl_semi_sync_source_timeout", "1000000000000000000", false),
            ("rpl_semi_sync_source_wait_for_replica_count", "1", true),
            ("rpl_semi_sync_master_wait_for_slave_count", "1000", false),
            ("rpl_semi_sync_source_wait_no_replica", "OFF", true),
            ("rpl_semi_sync_master_wait_no_slave", "ON", false),
            ("rpl_semi_sync_source_wait_point", "AFTER_COMMIT", true),
            ("rpl_semi_sync_source_wait_point", "AFTER_SYNC", false),
            ("rpl_semi_sync_source_trace_level", "16", false),
            ("rpl_semi_sync_replica_enabled", "OFF", false),
            ("sync_binlog", "0", true),
            ("innodb_flush_log_at_trx_commit", "2", true),
            ("innodb_flush_log_at_trx_commit", "1", false),
            ("binlog_error_action", "IGNORE_ERROR", true),
            ("binlog_error_action", "ABORT_SERVER", false),
            ("gtid_mode", "ON_PERMISSIVE", true),
            ("gtid_mode", "ON", false),
            ("enforce_gtid_consistency", "WARN", true),
            ("skip_replica_start", "OFF", true),
            ("max_binlog_cache_size", "18446744073709547520", true),
            ("max_binlog_cache_size", "8192", false),
            // Handled elsewhere: the operator's configuration of events is recorded first.
            ("event_scheduler", "ON", false),
            ("max_connections", "7", false),
            ("enabled", "OFF", false),
            ("timeout", "1", false),
        ];
        for (name, value, expected) in table {
            assert_eq!(contradicts(name, value), expected, "{name} = {value}");
        }
    }
}
