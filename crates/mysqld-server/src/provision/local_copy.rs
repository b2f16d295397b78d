//! A copy of a server's data on its own machine, for a base backup: `CLONE LOCAL DATA DIRECTORY`. The server keeps running.

use std::path::{Path, PathBuf};
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Connection, literal};
use tokio::time::Instant;
use uuid::Uuid;

use crate::closed_server::AdministratorsWrite;
use crate::provision::donor::{
    has_plugin, install_plugin, is_encrypted, parsed, reach, tablespace_bytes, value,
};
use crate::provision::other_engines::other_engines;
use crate::provision::{At, ProvisionError};

/// The longest that a copy may take.
const LONGEST_COPY: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long mysqld may take to end a killed copy.
const END: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);

/// The server to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSource {
    /// Version of the server.
    pub version: String,
    /// The `server_uuid` of the server.
    pub server_uuid: Uuid,
    /// Approximate size of a copy in bytes: tablespaces, and the redo log written during the copy.
    pub bytes: u64,
    /// True if any data are encrypted, so that reading a copy needs the server's keyring.
    pub keyring_needed: bool,
    /// Some tables of other engines than InnoDB, whose rows a copy lacks. Only tables that the account may read are visible.
    pub other_engines: Vec<String>,
}

/// Describes the server to copy.
///
/// # Errors
/// [`ProvisionError`].
pub async fn local_source(connect: &ConnectOptions) -> Result<LocalSource, ProvisionError> {
    let mut connection = reach(connect).await?;
    let version = value(&mut connection, "SELECT VERSION()", "the version").await?;
    let uuid = "SELECT @@GLOBAL.server_uuid";
    let server_uuid = parsed(&mut connection, uuid, "server_uuid").await?;
    // The list of tablespaces lacks the system tablespace. That tablespace and the redo log are each estimated as `redo` bytes.
    let tablespaces = tablespace_bytes(&mut connection).await?;
    let redo: u64 = parsed(
        &mut connection,
        "SELECT CAST(IFNULL(MAX(variable_value), 0) AS UNSIGNED) FROM performance_schema.global_variables \
         WHERE variable_name = 'innodb_redo_log_capacity'",
        "the size of the redo log",
    )
    .await?;
    let encrypted = is_encrypted(&mut connection).await;
    let keyring_needed = encrypted.at("whether data are encrypted")?;
    let others = other_engines(&mut connection).await;
    let other_engines = others.at("which engines tables have")?;
    connection.close().await;
    Ok(LocalSource {
        version,
        server_uuid,
        bytes: tablespaces.saturating_add(redo.saturating_mul(2)),
        keyring_needed,
        other_engines,
    })
}

/// Returns the largest set of transactions that a copy which ends now can contain: `gtid_executed`, and transactions that an applier has
/// committed and not yet added to that variable.
///
/// # Errors
/// [`ProvisionError`].
pub async fn executed_and_applied(connect: &ConnectOptions) -> Result<GtidSet, ProvisionError> {
    let mut connection = reach(connect).await?;
    let what = "what an applier has committed";
    // An account without privileges on the checkpoint table does not see it. In that case mysqld's own threads apply the log.
    let there: u64 = parsed(
        &mut connection,
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'witness_applier' AND table_name = 'checkpoint'",
        what,
    )
    .await?;
    // The row is read before the variable, because a GTID may move from the row to the variable at any moment. The lock waits for a commit
    // in progress.
    let row =
        "SELECT IFNULL(MAX(gtids), '') FROM witness_applier.checkpoint WHERE id = 1 FOR SHARE";
    let applied = match there {
        0 => GtidSet::new(),
        _ => parsed(&mut connection, row, what).await?,
    };
    let executed = gtid_executed(&mut connection).await?;
    connection.close().await;
    Ok(applied.union(&executed))
}

/// Returns the GTIDs that a server has executed. Every later copy contains them.
///
/// # Errors
/// [`ProvisionError`].
pub async fn executed(connect: &ConnectOptions) -> Result<GtidSet, ProvisionError> {
    let mut connection = reach(connect).await?;
    let executed = gtid_executed(&mut connection).await?;
    connection.close().await;
    Ok(executed)
}

async fn gtid_executed(connection: &mut Connection) -> Result<GtidSet, ProvisionError> {
    parsed(connection, "SELECT @@GLOBAL.gtid_executed", "gtid_executed").await
}

/// Installs the clone plugin if it is missing. The change is not written to the binlog.
///
/// # Errors
/// [`ProvisionError`].
pub async fn ready_for_copies(connect: &ConnectOptions) -> Result<(), ProvisionError> {
    let mut connection = reach(connect).await?;
    let what = "the clone plugin cannot be installed";
    if has_plugin(&mut connection).await.at(what)? {
        return Ok(());
    }
    let open = AdministratorsWrite::begin(&mut connection).await.at(what)?;
    let installed = install_plugin(&mut connection).await;
    let closed = open.end(&mut connection).await;
    closed.at("the server cannot be closed again")?;
    installed.at(what)?;
    connection.close().await;
    Ok(())
}

/// A copy that is about to be made.
#[derive(Debug)]
pub struct LocalCopy(Connection);

impl LocalCopy {
    /// Connects. Does not copy yet.
    ///
    /// # Errors
    /// [`ProvisionError`].
    pub async fn open(connect: &ConnectOptions) -> Result<Self, ProvisionError> {
        Ok(Self(reach(connect).await?))
    }

    /// The connection id of the copying session, for [`end_copy`].
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Copies the data into a directory, which must not exist and which mysqld creates. On return, the copy is complete and durable, as of
    /// a moment during the copy. If this future is dropped, mysqld continues the copy.
    ///
    /// # Errors
    /// [`ProvisionError`]; mysqld removes its partial copy as far as possible.
    pub async fn copy(mut self, into: &Path) -> Result<(), ProvisionError> {
        let into = into.to_string_lossy();
        let statement = format!("CLONE LOCAL DATA DIRECTORY = {}", literal(&into));
        let copied = self.0.query_within(statement, LONGEST_COPY);
        copied.await.at("mysqld did not copy its data")?;
        self.0.close().await;
        Ok(())
    }
}

/// A copy in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyUnderWay {
    /// The connection id of the copying session.
    pub id: u32,
    /// The target directory.
    pub into: PathBuf,
}

/// The server's copy in progress, if any.
///
/// # Errors
/// [`ProvisionError`].
pub async fn copy_under_way(
    connect: &ConnectOptions,
) -> Result<Option<CopyUnderWay>, ProvisionError> {
    let what = "mysqld does not say whether a copy is under way";
    let mut connection = reach(connect).await?;
    if !has_plugin(&mut connection).await.at(what)? {
        return Ok(None);
    }
    // After a restart the table still has its old entry, so only an entry with a living session counts.
    let copies = "SELECT s.pid, s.destination FROM performance_schema.clone_status s WHERE s.state = 'In Progress' \
         AND EXISTS (SELECT 1 FROM performance_schema.threads t WHERE t.processlist_id = s.pid)";
    let answer = connection.query(copies).await.at(what)?;
    let Some(row) = answer.first() else {
        return Ok(None);
    };
    let id = row.text_at(0).and_then(|id| id.parse().ok());
    let id = id.ok_or(ProvisionError::Answer { what })?;
    let into = row.text_at(1).unwrap_or_default().into();
    Ok(Some(CopyUnderWay { id, into }))
}

/// Ends a copy, and waits until no session writes to it.
///
/// # Errors
/// [`ProvisionError`]; the copy may continue.
pub async fn end_copy(connect: &ConnectOptions, id: u32) -> Result<(), ProvisionError> {
    let what = "the copy cannot be ended";
    Connection::kill(connect, id).await.at(what)?;
    let deadline = Instant::now() + END;
    let mut connection = reach(connect).await?;
    let left =
        format!("SELECT COUNT(*) FROM performance_schema.threads WHERE processlist_id = {id}");
    while parsed::<u64>(&mut connection, &left, what).await? > 0 {
        if Instant::now() >= deadline {
            return Err(ProvisionError::Answer { what });
        }
        tokio::time::sleep(LOOK).await;
    }
    connection.close().await;
    Ok(())
}
