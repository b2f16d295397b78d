//! Completes commits that wait for an ACK, and stops further commits from waiting.
//!
//! ```text
//!  one session:      SET GLOBAL rpl_semi_sync_source_enabled = OFF   waits for commits that wait (9.7.4)
//!  another session:  a dump that acknowledges all that comes         lets them through
//! ```
//!
//! If no replica acknowledges, for example after a restart of a primary whose replicas stopped acknowledging, the first session and the
//! commits would wait indefinitely without the second session.

use std::convert::Infallible;
use std::error::Error;

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::framing::TransactionFramer;
use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Connection, DumpOptions, LinkError, ReplicationStream};
use raft_types::MAX_TRANSACTION_BYTES;

use crate::settings::{Depth, Requirements, await_acks, checksum_named, observe, switch_off};

/// Stops commits from waiting for ACKs, and acknowledges those that wait.
///
/// # Errors
/// When the server cannot be queried or set, or not in time.
pub(crate) async fn let_commits_through(
    connect: &ConnectOptions,
    requirements: &Requirements,
) -> Result<(), LinkError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    let observed = observe(&mut connection, Depth::Watch).await?;
    let names = observed.semi_sync();
    let Some(names) = names.filter(|names| observed.is_on(&names.enabled())) else {
        connection.close().await;
        return Ok(());
    };
    // One dump acknowledges, so one ACK must suffice.
    await_acks(&mut connection, names, 1).await?;
    let mut replica = Connection::open_with_own_settings(connect).await?;
    let id = replica.id();
    let gtids = replica.query("SELECT @@GLOBAL.gtid_executed").await?;
    let gtids = gtids.value().and_then(|gtids| gtids.parse().ok());
    // Waiting transactions are not in `gtid_executed` yet, so the dump sends them.
    let have: GtidSet = gtids.unwrap_or_default();
    let checksum = checksum_named(observed.variable("binlog_checksum"));
    let acknowledging = async {
        match acknowledge(replica, requirements, have, checksum).await {
            Ok(never) => match never {},
            // Other replicas may acknowledge, or no commit may wait.
            Err(why) => tracing::warn!("commits that wait cannot be acknowledged: {why}"),
        }
        std::future::pending::<Infallible>().await
    };
    let switched = tokio::select! {
        biased;
        switched = switch_off(&mut connection, &observed) => switched,
        never = acknowledging => match never {},
    };
    // The server detects late that the replica of a dump is gone, and would list that replica as acknowledging.
    if let Err(error) = Connection::kill(connect, id).await {
        tracing::warn!("the dump that acknowledged could not be ended: {error}");
    }
    if switched.is_err() {
        // The statement would otherwise continue after the commits, and take effect when the ring already manages the server.
        if let Err(error) = Connection::kill(connect, connection.id()).await {
            tracing::warn!("a statement that hangs could not be ended: {error}");
        }
    }
    connection.close().await;
    switched
}

/// Acknowledges every waiting commit until the connection breaks; returns why it did.
async fn acknowledge(
    connection: Connection,
    requirements: &Requirements,
    have: GtidSet,
    checksum: ChecksumAlgorithm,
) -> Result<Infallible, Box<dyn Error + Send + Sync>> {
    let options = DumpOptions {
        // Registering would wait for a statement about accounts that itself waits for an ACK.
        register: false,
        ..DumpOptions::new(
            requirements.replica_server_id,
            requirements.replica_uuid,
            have,
        )
    };
    let mut dump = ReplicationStream::start(connection, &options).await?;
    let framer = TransactionFramer::new(checksum, MAX_TRANSACTION_BYTES);
    let mut framer = framer.without_payloads();
    loop {
        let event = dump.next().await?;
        framer.push(&event.event)?;
        if event.ack_wanted {
            dump.ack(framer.position()).await?;
        }
    }
}
