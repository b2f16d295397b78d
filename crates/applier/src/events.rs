//! Event Scheduler events (`CREATE EVENT`) on a server that has only applied a log.
//!
//! A server that runs a one-time event with `ON COMPLETION PRESERVE` disables it afterwards, and the binlog does not contain this
//! change. On other servers with this log the event is still enabled, and runs a second time as soon as a scheduler is on. Code that
//! makes such a server the new primary, or restores one from a backup, therefore disables past events. This also disables a past
//! event that never ran anywhere, since it looks the same. The choice is deliberate: an event that runs twice does more harm than a
//! skipped one, which is logged.

use mysql_link::{Connection, LinkError, Row};
use tracing::warn;

/// Name and definer of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedEvent {
    /// The event's schema.
    pub schema: String,
    /// The event's name in that schema.
    pub name: String,
    /// `user@host`, as the server lists it.
    definer: String,
}

impl NamedEvent {
    /// Returns the ALTER EVENT statement that changes only the status; `to` is `ENABLE` or `DISABLE`. The statement names the
    /// definer, because without it the session's account would become the definer.
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

/// Condition for past one-time events with `ON COMPLETION PRESERVE` that this server has never run.
pub const OVER: &str = "event_type = 'ONE TIME' AND on_completion = 'PRESERVE' AND last_executed IS NULL \
     AND COALESCE(CONVERT_TZ(execute_at, time_zone, '+00:00') <= UTC_TIMESTAMP(), FALSE)";

/// Lists past events that a scheduler would run as soon as it is on. Returns none if the account may not list events, and logs that.
///
/// # Errors
/// If the connection fails.
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

/// Disables the events and logs each one; `disabled` is the log message, which explains the consequence. If the server refuses to
/// disable an event, that is logged too.
///
/// # Errors
/// If the connection fails. A repeated call continues with the events that are still enabled.
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

/// Lists events that match a condition over `information_schema.events`.
///
/// # Errors
/// If the connection fails, or the account lacks the privilege.
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
