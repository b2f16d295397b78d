//! Events that came to the server through its own replica threads, which store them as `REPLICA_SIDE_DISABLED`: a primary runs
//! them, so that they are enabled once it is open, as an administrator does after a promotion by hand. The statements are
//! transactions of the primary like any other; replica threads elsewhere store them as disabled there.

use mysql_link::{ConnectOptions, Connection, LinkError};
use tracing::{info, warn};

/// An event by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReplicatedEvent {
    schema: String,
    name: String,
    /// `user@host`, as the server lists it.
    definer: String,
}

impl ReplicatedEvent {
    /// Everything but the status stays; without a definer the statement would make the member's account the definer.
    fn enabling(&self) -> String {
        let (user, host) = self
            .definer
            .rsplit_once('@')
            .unwrap_or((&self.definer, "%"));
        format!(
            "ALTER DEFINER = {}@{} EVENT {}.{} ENABLE",
            quoted(user),
            quoted(host),
            quoted(&self.schema),
            quoted(&self.name)
        )
    }
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Those that another server's thread brought: what was disabled for replicas here stays so.
const REPLICATED: &str = "SELECT event_schema, event_name, definer FROM information_schema.events \
     WHERE status IN ('REPLICA_SIDE_DISABLED', 'SLAVESIDE_DISABLED') AND originator <> @@GLOBAL.server_id";

/// Enables them, on a primary that is open. One that cannot be enabled does not keep the others from it.
///
/// # Errors
/// When the connection fails; done again, it goes on where it was.
pub(crate) async fn enable_replicated(connect: &ConnectOptions) -> Result<(), LinkError> {
    let mut connection = Connection::open(connect).await?;
    let listed = connection.query(REPLICATED).await?;
    let text = |row: &mysql_link::Row, place| row.text_at(place).unwrap_or_default().to_owned();
    let event = |row: &mysql_link::Row| ReplicatedEvent {
        schema: text(row, 0),
        name: text(row, 1),
        definer: text(row, 2),
    };
    let events: Vec<_> = listed.rows.iter().map(event).collect();
    for event in events {
        match connection.execute(event.enabling()).await {
            Ok(_) => {
                info!(schema = %event.schema, event = %event.name, "an event that came by replication runs here now")
            }
            Err(LinkError::Server(error)) => {
                warn!(schema = %event.schema, event = %event.name, "an event that came by replication cannot be enabled: {error}");
            }
            Err(error) => return Err(error),
        }
    }
    connection.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_its_definer_whatever_it_is_called() {
        let event = ReplicatedEvent {
            schema: "e".to_owned(),
            name: "we`ird".to_owned(),
            definer: "a@b@10.0.%".to_owned(),
        };
        let expected = "ALTER DEFINER = `a@b`@`10.0.%` EVENT `e`.`we``ird` ENABLE";
        assert_eq!(event.enabling(), expected);
    }
}
