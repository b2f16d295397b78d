//! State of an unmanaged server for clients of plain replication: whether it is the primary, and whether it replicates. A cheap query, run
//! every second.

use mysql_link::{ConnectOptions, Connection, LinkError, Row};

/// One observation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlainServer {
    /// Whether ordinary clients may write, and it replicates from no other server.
    pub writable: bool,
    /// Whether `offline_mode` blocks ordinary accounts.
    pub offline: bool,
    /// Whether it replicates through a channel whose threads all run.
    pub replicates: bool,
    /// Its lag behind its source in seconds, as it reports it.
    pub lag_seconds: Option<u64>,
    /// Why its channel does not run; empty where it reports no error.
    pub error: String,
}

/// Queries a server. Changes nothing.
///
/// # Errors
/// When it cannot be reached.
pub async fn look_at_plain(connect: &ConnectOptions) -> Result<PlainServer, LinkError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    let settings = connection
        .query("SELECT @@GLOBAL.read_only OR @@GLOBAL.super_read_only, @@GLOBAL.offline_mode")
        .await?;
    let channels = connection.query("SHOW REPLICA STATUS").await?;
    connection.close().await;
    let is_on = |place| settings.first().and_then(|row| row.text_at(place)) == Some("1");
    let seen = channels.rows.iter().map(channel);
    Ok(judged(is_on(0), is_on(1), seen.collect()))
}

/// One channel: whether it runs, its lag, and its last error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Channel {
    runs: bool,
    lag_seconds: Option<u64>,
    error: String,
}

fn channel(row: &Row) -> Channel {
    let text = |column| row.text(column).unwrap_or_default();
    let mut errors = ["Last_IO_Error", "Last_SQL_Error"].map(text).into_iter();
    Channel {
        runs: text("Replica_IO_Running") == "Yes" && text("Replica_SQL_Running") == "Yes",
        lag_seconds: text("Seconds_Behind_Source").parse().ok(),
        error: errors
            .find(|error| !error.is_empty())
            .unwrap_or_default()
            .to_owned(),
    }
}

fn judged(read_only: bool, offline: bool, channels: Vec<Channel>) -> PlainServer {
    let running = channels.iter().find(|channel| channel.runs);
    PlainServer {
        writable: !read_only && channels.is_empty(),
        offline,
        replicates: running.is_some(),
        lag_seconds: running.and_then(|channel| channel.lag_seconds),
        error: match running {
            Some(_) => String::new(),
            None => channels.into_iter().map(|channel| channel.error).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_replicates_is_no_primary_also_when_it_is_open() {
        let runs = |lag| Channel {
            runs: true,
            lag_seconds: Some(lag),
            error: String::new(),
        };
        let broken = Channel {
            error: "duplicate key".to_owned(),
            ..Channel::default()
        };
        for (read_only, channels, writable, replicates, error) in [
            (false, vec![], true, false, ""),
            (true, vec![], false, false, ""),
            (false, vec![runs(0)], false, true, ""),
            (true, vec![runs(3)], false, true, ""),
            (true, vec![broken], false, false, "duplicate key"),
        ] {
            let seen = judged(read_only, false, channels.clone());
            let found = (seen.writable, seen.replicates, seen.error.as_str());
            assert_eq!(found, (writable, replicates, error), "{channels:?}");
        }
        assert_eq!(judged(true, false, vec![runs(3)]).lag_seconds, Some(3));
    }
}
