//! Persisted values that would make the next start another one than the member's: taken out as soon as they are seen, as long as a
//! server runs that can be told to. What runs is not changed by that.

use std::collections::BTreeSet;

use mysql_link::{Connection, LinkError};
use tracing::warn;

use crate::settings::{Requirements, WHY, contradicting, reset, reset_statement};

/// Looks for them.
#[derive(Debug, Default)]
pub(super) struct PersistedWatch {
    /// Those that stay, of which was told.
    told: BTreeSet<String>,
}

impl PersistedWatch {
    /// Looks, and takes out what may be taken out.
    ///
    /// # Errors
    /// When the connection fails.
    pub(super) async fn look(
        &mut self,
        connection: &mut Connection,
        requirements: &Requirements,
    ) -> Result<(), LinkError> {
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
}
