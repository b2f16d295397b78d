//! The events (`CREATE EVENT`) of a server that has only applied a log, which exist there as they were created.
//!
//! A one-time event that is kept after its run (`ON COMPLETION PRESERVE`) is disabled by the server that has run it, and the log does
//! not show it. At other servers with this log it is still enabled, and runs a second time as soon as a scheduler is on. So code that
//! hands over such a server, as the new primary or as a restored one, disables events of the past. An event that has run
//! nowhere is indistinguishable: running one twice is worse than skipping one and logging it.

use mysql_link::{Connection, LinkError, Row};
use tracing::warn;

/// An event by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedEvent {
    /// Its schema.
    pub schema: String,
    /// Its name there.
    pub name: String,
    /// `user@host`, as the server lists it.
    definer: String,
}

impl NamedEvent {
    /// `to` is `ENABLE` or `DISABLE`. Only the status changes; without a definer the statement would make the session's account
    /// the definer.
    #[must_use]
    pub fn altered(&self, to: &str) -> String {
        let account = self.definer.rsplit_once('@');
        let (user, host) = account.unwrap_or((&self.definer, "%"));
        let names = [user, host, &*self.schema, &*self.name];
        let [user, host, schema, name] = names.map(quoted);
        format!("ALTER DEFINER = {user}@{host} EVENT {schema}.{name} {to}")
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Kept one-time events of the past that this server has never run.
pub const OVER: &str = "event_type = 'ONE TIME' AND on_completion = 'PRESERVE' AND last_executed IS NULL \
     AND COALESCE(CONVERT_TZ(execute_at, time_zone, '+00:00') <= UTC_TIMESTAMP(), FALSE)";

/// Lists those that a scheduler would run as soon as it is on; none where the account lacks the privilege.
///
/// # Errors
/// When the connection fails.
pub async fn events_that_are_over(
    connection: &mut Connection,
) -> Result<Vec<NamedEvent>, LinkError> {
    match listed(connection, &format!("status = 'ENABLED' AND {OVER}")).await {
        Err(LinkError::Server(error)) => {
            warn!("whether events would run a second time is not known: {error}");
            Ok(Vec::new())
        }
        events => events,
    }
}

/// Disables them and logs each: `disabled` explains the consequence here. A failure to disable one is logged
/// too.
///
/// # Errors
/// When the connection fails; a repetition continues after the completed part.
pub async fn disable_what_is_over(
    connection: &mut Connection,
    events: &[NamedEvent],
    disabled: &str,
) -> Result<(), LinkError> {
    for event in events {
        match connection.execute(event.altered("DISABLE")).await {
            Ok(_) => warn!(schema = %event.schema, event = %event.name, "{disabled}"),
            Err(LinkError::Server(error)) => {
                warn!(
                    schema = %event.schema, event = %event.name,
                    "an event that was to run once, at a time that is over, cannot be disabled, and may run a second time: {error}"
                );
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Events that match a condition over `information_schema.events`.
///
/// # Errors
/// When the connection fails, or the account lacks the privilege.
pub async fn listed(
    connection: &mut Connection,
    condition: &str,
) -> Result<Vec<NamedEvent>, LinkError> {
    let query = format!(
        "SELECT event_schema, event_name, definer FROM information_schema.events WHERE {condition}"
    );
    let listed = connection.query(query).await?;
    let text = |row: &Row, place| row.text_at(place).unwrap_or_default().to_owned();
    let event = |row: &Row| NamedEvent {
        schema: text(row, 0),
        name: text(row, 1),
        definer: text(row, 2),
    };
    Ok(listed.rows.iter().map(event).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_altered_event_keeps_its_definer() {
        let event = NamedEvent {
            schema: "e".to_owned(),
            name: "we`ird".to_owned(),
            definer: "a@b@10.0.%".to_owned(),
        };
        let expected = "ALTER DEFINER = `a@b`@`10.0.%` EVENT `e`.`we``ird` ENABLE";
        assert_eq!(event.altered("ENABLE"), expected);
    }
}
