//! Removes persisted values that would override the member's settings at the next start, as soon as they are seen on a running server.
//! The running server's settings stay unchanged.

use std::collections::BTreeSet;

use mysql_link::{Connection, LinkError};
use tracing::{info, warn};

use mysqld_server::settings::{
    Requirements, SemiSyncNames, WHY, contradicting, persist_start, reset, reset_statement,
};

/// Checks for such values.
#[derive(Debug, Default)]
pub(super) struct PersistedWatch {
    /// Logged values that stay.
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
            self.persist_start(connection, names).await?;
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
                            "{name} was persisted as {value}, and is not any more (RESET PERSIST): {WHY}"
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

    async fn persist_start(
        &mut self,
        connection: &mut Connection,
        names: SemiSyncNames,
    ) -> Result<(), LinkError> {
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
        Ok(())
    }
}
