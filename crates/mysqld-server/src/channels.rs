//! Replication channels. Channels other than the member's: through them a server outside the ring writes to the ring's primary. They exist on one
//! mysqld only. `super_read_only` does not stop replica threads: on a former primary, they write transactions that the ring lacks. So the
//! member stops them there, and an operator starts them at the new primary.

use std::fmt;
use std::time::Duration;

use mysql_link::{Connection, LinkError, Row, literal};
use thiserror::Error;

/// The member's channel, through which mysqld's own replica threads follow the ring.
pub const OWN_CHANNEL: &str = "witness";

/// How long mysqld may be briefly unreachable, until its next start.
const AWAY: Duration = Duration::from_secs(60);

/// An operator's channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignChannel {
    /// Empty for the server's default channel.
    pub name: String,
    /// HOST:PORT of its source.
    source: String,
    /// Whether one of its threads runs, or retries.
    runs: bool,
}

impl fmt::Display for ForeignChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "the default replication channel from {}", self.source),
            name => write!(f, "the replication channel `{name}` from {}", self.source),
        }
    }
}

impl ForeignChannel {
    fn clause(&self) -> String {
        format!("FOR CHANNEL {}", literal(&self.name))
    }

    fn stop(&self) -> String {
        format!("STOP REPLICA {}", self.clause())
    }

    /// Advice to the operator. Pure.
    pub fn advice(&self, follows: bool) -> String {
        let clause = self.clause();
        match (follows, self.runs) {
            (false, true) => format!(
                "{self} writes into this primary, and no other server of the ring has it: when the primary changes, it is stopped here. \
                 Start it at the new primary then (CHANGE REPLICATION SOURCE … {clause}; START REPLICA {clause})"
            ),
            (false, false) => format!(
                "{self} is stopped at this primary: run START REPLICA {clause} to continue it, or RESET REPLICA ALL {clause} to remove it"
            ),
            (true, true) => format!(
                "{self} runs here, and this server is not the primary: what it writes is errant. Run STOP REPLICA {clause}"
            ),
            (true, false) => format!(
                "{self} is stopped here, because this server is not the primary and what it wrote would be errant. Start it at the primary \
                 (CHANGE REPLICATION SOURCE … {clause}; START REPLICA {clause}), and run RESET REPLICA ALL {clause} here"
            ),
        }
    }
}

const CHANNELS: &str = "SELECT other_channel.CHANNEL_NAME, CONCAT(other_channel.HOST, ':', other_channel.PORT), \
     receiver.SERVICE_STATE <> 'OFF' OR applier.SERVICE_STATE <> 'OFF' \
     FROM performance_schema.replication_connection_configuration AS other_channel \
     JOIN performance_schema.replication_connection_status AS receiver USING (CHANNEL_NAME) \
     JOIN performance_schema.replication_applier_status AS applier USING (CHANNEL_NAME) ORDER BY 1";

/// The channels other than the member's. None where the account lacks the privilege.
///
/// # Errors
/// When the connection fails.
pub async fn foreign_channels(
    connection: &mut Connection,
) -> Result<Vec<ForeignChannel>, LinkError> {
    let channel = |row: &Row| {
        Some(ForeignChannel {
            name: row.text_at(0)?.to_owned(),
            source: row.text_at(1)?.to_owned(),
            runs: row.text_at(2)? == "1",
        })
    };
    match connection.query(CHANNELS).await {
        Ok(answer) => Ok((answer.rows.iter().filter_map(channel))
            .filter(|channel| channel.name != OWN_CHANNEL)
            .collect()),
        Err(LinkError::Server(error)) => {
            tracing::debug!(%error, "replication channels cannot be listed");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

/// Why foreign channels may still run.
#[derive(Debug, Error)]
pub enum StopChannelsError {
    /// The server cannot be queried.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// This one cannot be stopped.
    #[error("{} cannot be stopped ({}), and would write what the ring lacks: run {}", .0, .1, .0.stop())]
    Runs(ForeignChannel, LinkError),
}

/// Stops the running ones, and returns them. A channel finishes its present transaction first.
///
/// # Errors
/// When one cannot be stopped, or not in time.
pub async fn stop_foreign_channels(
    connection: &mut Connection,
) -> Result<Vec<ForeignChannel>, StopChannelsError> {
    let all = foreign_channels(connection).await?;
    let running: Vec<_> = all.into_iter().filter(|channel| channel.runs).collect();
    for channel in &running {
        if let Err(error) = connection.execute(channel.stop()).await {
            return Err(StopChannelsError::Runs(channel.clone(), error));
        }
        tracing::warn!("{channel} was stopped, because this server is closed for writes");
    }
    Ok(running)
}

/// Restarts them.
///
/// # Errors
/// At the first one that does not start.
pub async fn start_channels(
    connection: &mut Connection,
    channels: &[ForeignChannel],
) -> Result<(), LinkError> {
    for channel in channels {
        let start = format!("START REPLICA {}", channel.clause());
        connection.execute(start).await?;
        tracing::info!("{channel} was started again, because this server stays the primary");
    }
    Ok(())
}

/// Ends the threads and removes the channel, whichever process started them. The threads finish the current transaction first.
///
/// # Errors
/// When the server refuses.
pub async fn drop_channel(connection: &mut Connection) -> Result<(), LinkError> {
    let there = format!(
        "SELECT COUNT(*) FROM performance_schema.replication_connection_configuration WHERE channel_name = '{OWN_CHANNEL}'"
    );
    let there = connection.query(there).await?;
    if there.first().and_then(|row| row.text_at(0)) == Some("0") {
        return Ok(());
    }
    let stop = format!("STOP REPLICA FOR CHANNEL '{OWN_CHANNEL}'");
    connection.query_within(stop, AWAY).await?;
    connection
        .execute(format!("RESET REPLICA ALL FOR CHANNEL '{OWN_CHANNEL}'"))
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_the_channel_its_source_and_what_to_run_where() {
        let channel = |name: &str, runs| ForeignChannel {
            name: name.to_owned(),
            source: "10.0.0.9:3306".to_owned(),
            runs,
        };
        let table = [
            (false, true, "Start it at the new primary"),
            (false, false, "run START REPLICA FOR CHANNEL 'legacy'"),
            (true, true, "Run STOP REPLICA FOR CHANNEL 'legacy'"),
            (true, false, "RESET REPLICA ALL FOR CHANNEL 'legacy' here"),
        ];
        for (follows, runs, expected) in table {
            let advice = channel("legacy", runs).advice(follows);
            let named = "the replication channel `legacy` from 10.0.0.9:3306";
            assert!(
                advice.starts_with(named) && advice.contains(expected),
                "{advice}"
            );
        }
        let default = channel("", false).advice(false);
        assert!(
            default.contains("the default replication channel"),
            "{default}"
        );
        assert!(
            default.contains("START REPLICA FOR CHANNEL ''"),
            "{default}"
        );
    }
}
