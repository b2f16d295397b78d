//! Advice about a primary, from queries that the watcher makes rarely.
//!
//! One query finds transactions that a primary commits without its binlog (`sql_log_bin = 0`), and that the ring therefore never receives.
//! mysqld counts the statements that set the variable, and reading the count takes a millisecond. Sessions are listed only if the count has
//! grown.

use std::collections::BTreeSet;
use std::time::Duration;

use mysql_link::{Connection, LinkError};
use mysqld_server::sessions::OF_MEMBERS;
use mysqld_server::settings::{
    Requirements, SemiSyncNames, WHY, contradicting, persist_start, reset, reset_statement,
};
use tokio::time::Instant;
use tracing::{info, warn};

/// The pause between two queries.
const ASK_EVERY: Duration = Duration::from_secs(5);
const STATEMENTS: &str = "SELECT IFNULL(SUM(count_star), 0) FROM performance_schema.events_statements_summary_by_digest \
     WHERE digest_text LIKE 'SET%sql_log_bin%'";
/// Slow: mysqld materialises all variables of each session for this query.
const SESSIONS: &str = "SELECT CONCAT(t.processlist_user, '@', t.processlist_host, ' (connection ', t.processlist_id, ')') \
     FROM performance_schema.threads t JOIN performance_schema.variables_by_thread v USING (thread_id) \
     WHERE v.variable_name = 'sql_log_bin' AND v.variable_value = 'OFF' AND t.processlist_id <> CONNECTION_ID() \
     AND t.processlist_id NOT IN";
/// At most this many sessions are named.
const NAMED: usize = 3;

/// Observations of one primary.
#[derive(Debug, Default)]
pub(super) struct UnloggedWatch {
    asked: Option<Instant>,
    /// The start of mysqld, and its count of such statements at the first and at the last query.
    counted: Option<(u64, u64, u64)>,
    sessions: Vec<String>,
}

impl UnloggedWatch {
    /// Queries the server, if [`ASK_EVERY`] has passed.
    ///
    /// # Errors
    /// When the connection fails.
    pub(super) async fn look(
        &mut self,
        connection: &mut Connection,
        start: u64,
        now: Instant,
    ) -> Result<(), LinkError> {
        if self.asked.is_some_and(|asked| now < asked + ASK_EVERY) {
            return Ok(());
        }
        self.asked = Some(now);
        let count = ask(connection, STATEMENTS).await?;
        let Some(count) = count.first().and_then(|count| count.parse().ok()) else {
            return Ok(());
        };
        if self.count(start, count) {
            let sessions = format!("{SESSIONS} {OF_MEMBERS}");
            self.sessions = ask(connection, &sessions).await?;
        }
        Ok(())
    }

    /// Records the count. Returns whether such statements ran since the previous query.
    fn count(&mut self, start: u64, count: u64) -> bool {
        match &mut self.counted {
            Some((of, _, last)) if *of == start && count >= *last => {
                let more = count > *last;
                *last = count;
                more
            }
            // The first count of a start, or counters that were truncated.
            counted => {
                *counted = Some((start, count, count));
                self.sessions.clear();
                false
            }
        }
    }

    /// Warning for `witness status`.
    pub(super) fn warning(&self) -> Option<String> {
        let (_, first, last) = self.counted.filter(|(_, first, last)| last > first)?;
        let by = match &self.sessions[..self.sessions.len().min(NAMED)] {
            [] => String::new(),
            named => format!(", now by {}", named.join(", ")),
        };
        Some(format!(
            "statements that set sql_log_bin ran at this primary ({}{by}): transactions that are committed with sql_log_bin = 0 are not in \
             the ring; compare the data of the members, and revoke SYSTEM_VARIABLES_ADMIN, SESSION_VARIABLES_ADMIN and SUPER where they \
             are not needed",
            last - first
        ))
    }
}

/// Returns the first column of an answer; empty if the account lacks the privilege.
async fn ask(connection: &mut Connection, query: &str) -> Result<Vec<String>, LinkError> {
    match connection.query(query).await {
        Err(LinkError::Server(_)) => Ok(Vec::new()),
        answer => Ok(answer?.values().map(str::to_owned).collect()),
    }
}

// Removes persisted values that would override the member's settings at the next start, as soon as they are found on a running server. The
// settings of the running server stay unchanged.

/// State of the checks for such values.
#[derive(Debug, Default)]
pub(super) struct PersistedWatch {
    /// Values that were logged and are not removed.
    told: BTreeSet<String>,
    /// Why a setting for the next start could not be persisted.
    pub(super) not_persisted: Option<String>,
}

impl PersistedWatch {
    /// Checks, and removes the values that may be removed.
    ///
    /// # Errors
    /// When the connection fails.
    pub(super) async fn look(
        &mut self,
        connection: &mut Connection,
        requirements: &Requirements,
        semi_sync: Option<SemiSyncNames>,
    ) -> Result<(), LinkError> {
        let persists = requirements.starts_elsewhere && requirements.manage_settings;
        if let Some(names) = semi_sync.filter(|_| persists) {
            self.not_persisted = match persist_start(connection, names).await {
                Ok(done) => {
                    if done {
                        info!(
                            "mysqld is persisted to begin its next start closed for writes, with commits that wait for the ring"
                        );
                    }
                    None
                }
                Err(LinkError::Server(error)) => Some(format!(
                    "the next start of mysqld may be open for writes that do not wait for the ring: super_read_only and semi-sync cannot \
                     be persisted ({error}); put them into mysqld's option file, as for mode external"
                )),
                Err(error) => return Err(error),
            };
        }
        let found = contradicting(connection).await?.unwrap_or_default();
        self.told.retain(|name| found.contains_key(name));
        for (name, value) in found {
            if self.told.contains(&name) {
                continue;
            }
            let stays = match requirements.manage_settings {
                true => match reset(connection, &name).await {
                    Ok(()) => {
                        warn!(
                            "{name} was persisted as {value}, and no longer is (RESET PERSIST): {WHY}"
                        );
                        continue;
                    }
                    Err(LinkError::Server(error)) => error.to_string(),
                    Err(error) => return Err(error),
                },
                false => "mysql.manage_settings is off".to_owned(),
            };
            warn!(
                "{name} is persisted as {value}, and stays so ({stays}): {WHY}; run: {}",
                reset_statement(&name)
            );
            self.told.insert(name);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_count_from_the_first_question_of_each_start() {
        let mut watch = UnloggedWatch::default();
        assert!(!watch.count(1, 7) && watch.warning().is_none());
        assert!(watch.count(1, 9) && !watch.count(1, 9));
        watch.sessions.push("u@h (connection 5)".to_owned());
        let warning = watch.warning().unwrap();
        assert!(
            warning.contains("(2, now by u@h") && warning.contains("connection 5"),
            "{warning}"
        );
        // The counters were truncated, and another start.
        assert!(!watch.count(1, 3) && watch.warning().is_none());
        assert!(watch.count(1, 4) && !watch.count(2, 90) && watch.warning().is_none());
    }
}
