//! Starts mysqld: calls the guard, runs the command, and checks how mysqld booted.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use spilling_bytes::long_work;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::durable_file;
use crate::settings::{PersistedValues, WHY, contradicts};
use crate::supervisor::decision::{Found, Wanted};
use crate::supervisor::external::booted_open;
use crate::supervisor::launch::SupervisorError;
use crate::supervisor::options::SupervisorState;
use crate::supervisor::supervisor_task::{Server, Supervisor, child_id};

/// The pause between a check that found no process and a second check that confirms it.
const SECOND_LOOK: Duration = Duration::from_millis(50);
/// How long a child process is queried whether it booted open. Its command line should have prevented that.
const CHILD_LIMIT: Duration = Duration::from_secs(60);

impl Supervisor {
    pub(super) async fn start(&mut self) {
        // A starting program shows no arguments for a moment. So check twice before starting, to avoid a second server on the data
        // directory.
        tokio::time::sleep(SECOND_LOOK).await;
        if self.found() != Found::Nothing {
            return;
        }
        self.not_before = None;
        if !self.may_start().await || self.found() != Found::Nothing {
            return;
        }
        match self.try_start().await {
            Ok(server) => {
                info!(pid = server.id.0, "mysqld is started");
                self.status.send_modify(|status| {
                    status.starts += 1;
                    status.warning.clone_from(&self.unguarded);
                });
                self.guarded = Some(self.identity(server.id));
                self.look_how_it_booted();
                self.check_start();
                self.runs(server.id, false);
                self.server = Some(server);
            }
            Err(cause) => self.fail(format!("mysqld cannot be started: {cause}")),
        }
    }

    /// Calls the guard. If it refuses, a later attempt follows, because its condition may be met at any moment.
    async fn may_start(&mut self) -> bool {
        let Some(guard) = self.guard.clone() else {
            return true;
        };
        if !matches!(self.status.borrow().state, SupervisorState::Held { .. }) {
            let cause = guard.what().to_owned();
            self.go(SupervisorState::Held { cause });
        }
        let unwanted = self.unwanted();
        let answer = tokio::select! {
            answer = guard.before_start() => answer,
            () = unwanted => return false,
        };
        let Err(cause) = answer else {
            return true;
        };
        let cause = cause.to_string();
        self.not_before = Some(Instant::now() + self.options.retry.0);
        if self.go(SupervisorState::Held {
            cause: cause.clone(),
        }) {
            warn!("mysqld is not started: {cause}");
        }
        false
    }

    /// Completes when mysqld should no longer run.
    pub(super) fn unwanted(&self) -> impl Future<Output = ()> + use<> {
        let mut wanted = self.wanted.clone();
        async move {
            if wanted
                .wait_for(|wanted| *wanted != Wanted::Running)
                .await
                .is_err()
            {
                // The handle was dropped, so the goal cannot change.
                std::future::pending().await
            }
        }
    }

    /// Checks for values that were persisted while the member did not run. They override every command line, and mysqld would boot open for
    /// writes or commit without the ring.
    async fn without_contradictions(&self) -> Result<(), SupervisorError> {
        let data_dir = self.options.server.data_dir.clone();
        let may = self.options.may_take_out_persisted;
        let look = long_work::on_disk(move || contradicting(&data_dir, may));
        let found = look.await.map_err(SupervisorError::PersistedFile)?;
        let words = found.iter();
        let words = words.map(|(name, value)| format!("{name} = {value}"));
        let words = words.collect::<Vec<_>>().join(", ");
        match may {
            _ if found.is_empty() => {}
            true => warn!("{words}: taken out of mysqld-auto.cnf, where it was persisted; {WHY}"),
            false => return Err(SupervisorError::Persisted(words)),
        }
        Ok(())
    }

    async fn try_start(&mut self) -> Result<Server, SupervisorError> {
        self.without_contradictions().await?;
        // A start command may return before its mysqld is visible; that mysqld has passed the guard.
        self.guarded = None;
        if let Some(external) = &self.options.external {
            external.start().await?;
            let Found::Unknown(id) = self.options.find() else {
                return Err(SupervisorError::NotFound);
            };
            return Ok(Server::new(id, None));
        }
        let version = match self.version {
            Some(version) => version,
            None => self.options.server.ask_version().await?,
        };
        self.version = Some(version);
        self.log_before = self.options.server.error_log_len();
        let child = self
            .options
            .server
            .spawn(&self.options.server.words(version))?;
        let id = child_id(&child).ok_or(SupervisorError::EndedAtOnce)?;
        Ok(Server::new(id, Some(child)))
    }

    /// Lets the guard check the started server, and kills the server if the guard requires a restart.
    pub(super) fn check_start(&self) {
        let Some(guard) = self.guard.clone() else {
            return;
        };
        let options = self.options.clone();
        tokio::spawn(async move {
            if let Err(why) = guard.after_start(&options.account).await {
                error!("{why}");
                if let Err(cause) = options.kill().await {
                    warn!("mysqld cannot be killed: {cause}");
                }
            }
        });
    }

    /// Checks whether the server booted open for writes. A child's command line prevents that, except for a value persisted in between. The
    /// configuration of an external server may allow it.
    fn look_how_it_booted(&self) {
        let external = self.options.external.as_ref();
        let limit = external.map_or(CHILD_LIMIT, |external| external.start_limit());
        let account = self.options.account.clone();
        let status = self.status.clone();
        let starts = status.borrow().starts;
        tokio::spawn(async move {
            let open = tokio::time::timeout(limit, booted_open(&account)).await;
            if let Ok(Some(open)) = open
                && status.borrow().starts == starts
            {
                let words = open.words();
                error!("{words}");
                status.send_modify(|status| status.warning = Some(words));
            }
        });
    }
}

// Before a start, removes values that contradict the member's command line from `mysqld-auto.cnf`, because mysqld prefers that file. All
// other values stay, and so do the file's owner and permissions.

const FILE: &str = "mysqld-auto.cnf";
/// mysqld writes this file first, and prefers it if both files exist.
const BACKUP: &str = "mysqld-auto.cnf.backup";

/// Returns persisted values in a data directory that contradict the member's command line. With `take_out`, removes them durably. No mysqld
/// may use the directory.
///
/// # Errors
/// When a file cannot be read or replaced.
pub(super) fn contradicting(data_dir: &Path, take_out: bool) -> io::Result<PersistedValues> {
    let mut all = PersistedValues::new();
    for name in [FILE, BACKUP] {
        let path = data_dir.join(name);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            text => text?,
        };
        let mut document: Value = match serde_json::from_slice(&text) {
            Ok(document) => document,
            // If the backup is invalid, mysqld reads the other file.
            Err(_) if name == BACKUP => continue,
            Err(error) => return Err(io::Error::other(format!("{}: {error}", path.display()))),
        };
        let mut found = PersistedValues::new();
        remove_contradictions(&mut document, &mut found);
        if !found.is_empty() && take_out {
            replace(&path, &serde_json::to_vec(&document)?)?;
        }
        all.append(&mut found);
    }
    Ok(all)
}

/// Removes contradicting values. The file has sections of variables, which differ between versions. A variable is an object with a `Value`.
fn remove_contradictions(document: &mut Value, found: &mut PersistedValues) {
    let Value::Object(fields) = document else {
        return;
    };
    fields.retain(|name, field| {
        let name = name.to_lowercase();
        let value = field.get("Value").and_then(Value::as_str);
        match value.filter(|value| contradicts(&name, value)) {
            Some(value) => {
                found.insert(name, value.to_owned());
                false
            }
            None => true,
        }
    });
    for field in fields.values_mut() {
        remove_contradictions(field, found);
    }
}

/// Replaces a file as [`durable_file::replace`] does, with the owner and permissions of the old file.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let before = fs::metadata(path)?;
    durable_file::replace_prepared(path, content, |file| {
        let now = file.metadata()?;
        if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
            fchown(file, Some(before.uid()), Some(before.gid()))?;
        }
        file.set_permissions(before.permissions())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Written by 9.7.4.
    const WRITTEN: &str = r#"{"Version": 2, "mysql_static_variables": {"back_log": {"Value": "50", "Metadata": {"Host": "localhost", "User": "root", "Timestamp": 1795809540028183}}, "skip_slave_start": {"Value": "OFF", "Metadata": {"Host": "localhost", "User": "root", "Timestamp": 1795809540027896}}}, "mysql_dynamic_variables": {"read_only": {"Value": "OFF", "Metadata": {"Host": "localhost", "User": "root", "Timestamp": 1795809540027496}}, "super_read_only": {"Value": "OFF", "Metadata": {"Host": "localhost", "User": "root", "Timestamp": 1795809540027311}}, "rpl_semi_sync_source_enabled": {"Value": "OFF", "Metadata": {"Host": "localhost", "User": "root", "Timestamp": 1795809540027575}}}, "mysql_dynamic_parse_early_variables": {"max_connections": {"Value": "77", "Metadata": {"Host": "localhost", "User": "root", "Timestamp": 1795809540027825}}}}"#;

    fn names(values: &PersistedValues) -> Vec<&str> {
        values.keys().map(String::as_str).collect()
    }

    #[test]
    fn what_contradicts_is_taken_out_and_all_else_stays() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(FILE);
        assert!(contradicting(home.path(), true).unwrap().is_empty());
        fs::write(&path, WRITTEN).unwrap();
        fs::write(home.path().join(BACKUP), WRITTEN).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let expected = [
            "read_only",
            "rpl_semi_sync_source_enabled",
            "skip_slave_start",
            "super_read_only",
        ];
        let found = contradicting(home.path(), false).unwrap();
        assert_eq!(names(&found), expected);
        assert_eq!(fs::read_to_string(&path).unwrap(), WRITTEN);
        let found = contradicting(home.path(), true).unwrap();
        assert_eq!(names(&found), expected);
        for name in [FILE, BACKUP] {
            let left = fs::read_to_string(home.path().join(name)).unwrap();
            let left: Value = serde_json::from_str(&left).unwrap();
            assert_eq!(left["Version"], 2);
            let of = |section: &str, name: &str| left[section][name]["Value"].clone();
            assert_eq!(of("mysql_static_variables", "back_log"), "50");
            let early = "mysql_dynamic_parse_early_variables";
            assert_eq!(of(early, "max_connections"), "77");
            let at = &left[early]["max_connections"]["Metadata"]["Timestamp"];
            assert_eq!(at.as_u64(), Some(1_795_809_540_027_825));
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert!(contradicting(home.path(), true).unwrap().is_empty());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
    }

    /// The first 8.0 releases nest the static variables in the others.
    #[test]
    fn the_older_form_is_read_as_well() {
        let home = tempfile::tempdir().unwrap();
        let older = r#"{"Version": 1, "mysql_server": {"sync_binlog": {"Value": "0", "Metadata": {}},
            "mysql_server_static_options": {"gtid_mode": {"Value": "OFF", "Metadata": {}}}}}"#;
        fs::write(home.path().join(FILE), older).unwrap();
        let found = contradicting(home.path(), true).unwrap();
        assert_eq!(names(&found), ["gtid_mode", "sync_binlog"]);
    }

    #[test]
    fn half_a_backup_is_nothing_and_half_a_file_is_told_of() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join(BACKUP), "{\"Versi").unwrap();
        assert!(contradicting(home.path(), true).unwrap().is_empty());
        fs::write(home.path().join(FILE), "{\"Versi").unwrap();
        let error = contradicting(home.path(), true).unwrap_err().to_string();
        assert!(error.contains(FILE), "{error}");
    }
}
