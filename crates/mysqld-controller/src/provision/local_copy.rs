//! A copy of a server's data beside it, for a base backup: `CLONE LOCAL DATA DIRECTORY`. The server goes on meanwhile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Connection, literal};
use tokio::time::Instant;
use uuid::Uuid;

use crate::closed_server::AdministratorsWrite;
use crate::provision::donor::{has_plugin, install_plugin, number, value};
use crate::provision::error::ProvisionError;
use crate::provision::keyring::is_encrypted;
use crate::provision::other_engines::other_engines;
use crate::provision::recipient::reach;

/// The longest that a copy may take.
const LONGEST_COPY: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long mysqld may take to end a copy that was killed.
const END: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);

/// What is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalSource {
    /// Version of the server.
    pub version: String,
    /// Its `server_uuid`.
    pub server_uuid: Uuid,
    /// Bytes that a copy takes, about: tablespaces, and redo of the time in which it is made.
    pub bytes: u64,
    /// Whether anything is encrypted, which is read with the server's keyring alone.
    pub keyring_needed: bool,
    /// Tables whose engine is not InnoDB, a few of them: a copy has them empty. Only those are seen that the account may read.
    pub other_engines: Vec<String>,
}

/// Looks what there is to be copied.
///
/// # Errors
/// [`ProvisionError`].
pub async fn local_source(connect: &ConnectOptions) -> Result<LocalSource, ProvisionError> {
    let mut connection = reach(connect).await?;
    let version = value(&mut connection, "SELECT VERSION()", "the version").await?;
    let what = "server_uuid";
    let server_uuid = value(&mut connection, "SELECT @@GLOBAL.server_uuid", what).await?;
    let server_uuid = server_uuid.parse();
    let server_uuid = server_uuid.map_err(|_| ProvisionError::Answer { what })?;
    // The system tablespace, which is not among the others, and the redo log are counted as one: both may be as large as that.
    let tablespaces = number(
        &mut connection,
        "SELECT CAST(IFNULL(SUM(file_size), 0) AS UNSIGNED) FROM information_schema.innodb_tablespaces",
        "the size of the data",
    )
    .await?;
    let redo = number(
        &mut connection,
        "SELECT CAST(IFNULL(MAX(variable_value), 0) AS UNSIGNED) FROM performance_schema.global_variables \
         WHERE variable_name = 'innodb_redo_log_capacity'",
        "the size of the redo log",
    )
    .await?;
    let keyring_needed = is_encrypted(&mut connection)
        .await
        .map_err(ProvisionError::at("whether data are encrypted"))?;
    let other_engines = other_engines(&mut connection)
        .await
        .map_err(ProvisionError::at("which engines tables have"))?;
    connection.close().await;
    Ok(LocalSource {
        version,
        server_uuid,
        bytes: tablespaces.saturating_add(redo.saturating_mul(2)),
        keyring_needed,
        other_engines,
    })
}

/// All that the server has executed and a copy that ends now can have: what is in `gtid_executed`, and what an applier has committed
/// and not entered there yet.
///
/// # Errors
/// [`ProvisionError`].
pub async fn executed_and_applied(connect: &ConnectOptions) -> Result<GtidSet, ProvisionError> {
    let mut connection = reach(connect).await?;
    let what = "what an applier has committed";
    // An account without rights on the table does not see it: mysqld's own threads apply there.
    let there = number(
        &mut connection,
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'witness_applier' AND table_name = 'checkpoint'",
        what,
    )
    .await?;
    // In this order: what is in the row and not in the variable yet may be in the variable and not in the row a moment later. The lock
    // waits for a commit that is under way.
    let row =
        "SELECT IFNULL(MAX(gtids), '') FROM witness_applier.checkpoint WHERE id = 1 FOR SHARE";
    let applied = match there {
        0 => String::new(),
        _ => value(&mut connection, row, what).await?,
    };
    let applied: GtidSet = applied
        .parse()
        .map_err(|_| ProvisionError::Answer { what })?;
    let executed = executed(&mut connection).await?;
    connection.close().await;
    Ok(applied.union(&executed))
}

/// What the server has executed for certain, which every copy that is begun later has.
///
/// # Errors
/// [`ProvisionError`].
pub async fn executed_at_least(connect: &ConnectOptions) -> Result<GtidSet, ProvisionError> {
    let mut connection = reach(connect).await?;
    let executed = executed(&mut connection).await?;
    connection.close().await;
    Ok(executed)
}

async fn executed(connection: &mut Connection) -> Result<GtidSet, ProvisionError> {
    let what = "gtid_executed";
    let text = value(connection, "SELECT @@GLOBAL.gtid_executed", what).await?;
    text.parse().map_err(|_| ProvisionError::Answer { what })
}

/// Gives a server the plugin that makes copies, where it has none. Nothing of that is written to its binlog.
///
/// # Errors
/// [`ProvisionError`].
pub async fn ready_for_copies(connect: &ConnectOptions) -> Result<(), ProvisionError> {
    let mut connection = reach(connect).await?;
    let what = "the clone plugin cannot be installed";
    let has = has_plugin(&mut connection).await;
    if has.map_err(ProvisionError::at(what))? {
        return Ok(());
    }
    let open = AdministratorsWrite::begin(&mut connection).await;
    let open = open.map_err(ProvisionError::at(what))?;
    let installed = install_plugin(&mut connection).await;
    let closed = open.end(&mut connection).await;
    closed.map_err(ProvisionError::at("the server cannot be closed again"))?;
    installed.map_err(ProvisionError::at(what))?;
    connection.close().await;
    Ok(())
}

/// A copy that is about to be made.
#[derive(Debug)]
pub struct LocalCopy {
    connection: Connection,
}

impl LocalCopy {
    /// Connects; nothing is copied yet.
    ///
    /// # Errors
    /// [`ProvisionError`].
    pub async fn open(connect: &ConnectOptions) -> Result<Self, ProvisionError> {
        Ok(Self {
            connection: reach(connect).await?,
        })
    }

    /// The server's number of the connection that copies, for [`end_copy`].
    #[must_use]
    pub fn id(&self) -> u32 {
        self.connection.id()
    }

    /// Copies the data into a directory, which mysqld makes; nothing may be there. When this returns, the copy is whole and on the
    /// disk, and as of a moment while it was made. mysqld goes on with it when this is dropped.
    ///
    /// # Errors
    /// [`ProvisionError`]; mysqld removes what it has begun, as far as it can.
    pub async fn copy(mut self, into: &Path) -> Result<(), ProvisionError> {
        let into = into.to_string_lossy();
        let statement = format!("CLONE LOCAL DATA DIRECTORY = {}", literal(&into));
        let copied = (self.connection)
            .query_within(statement, LONGEST_COPY)
            .await;
        copied.map_err(ProvisionError::at("mysqld did not copy its data"))?;
        self.connection.close().await;
        Ok(())
    }
}

/// A copy that is being made at this moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyUnderWay {
    /// The server's number of the connection that copies.
    pub id: u32,
    /// Where the copy goes.
    pub into: PathBuf,
}

/// The copy that the server makes at this moment, if it does.
///
/// # Errors
/// [`ProvisionError`].
pub async fn copy_under_way(
    connect: &ConnectOptions,
) -> Result<Option<CopyUnderWay>, ProvisionError> {
    let what = "mysqld does not say whether a copy is under way";
    let mut connection = reach(connect).await?;
    if !has_plugin(&mut connection)
        .await
        .map_err(ProvisionError::at(what))?
    {
        return Ok(None);
    }
    // What the table says of one before a restart stays in it: only the session is believed.
    let answer = connection
        .query(
            "SELECT s.pid, s.destination FROM performance_schema.clone_status s WHERE s.state = 'In Progress' \
             AND EXISTS (SELECT 1 FROM performance_schema.threads t WHERE t.processlist_id = s.pid)",
        )
        .await
        .map_err(ProvisionError::at(what))?;
    let Some(row) = answer.first() else {
        return Ok(None);
    };
    let id = row.text_at(0).and_then(|id| id.parse().ok());
    let id = id.ok_or(ProvisionError::Answer { what })?;
    let into = row.text_at(1).unwrap_or_default().into();
    Ok(Some(CopyUnderWay { id, into }))
}

/// Ends a copy, and waits until nothing writes to it any more.
///
/// # Errors
/// [`ProvisionError`]; it may go on.
pub async fn end_copy(connect: &ConnectOptions, id: u32) -> Result<(), ProvisionError> {
    let what = "the copy cannot be ended";
    let killed = Connection::kill(connect, id).await;
    killed.map_err(ProvisionError::at(what))?;
    let deadline = Instant::now() + END;
    let mut connection = reach(connect).await?;
    let left =
        format!("SELECT COUNT(*) FROM performance_schema.threads WHERE processlist_id = {id}");
    while number(&mut connection, &left, what).await? > 0 {
        if Instant::now() >= deadline {
            return Err(ProvisionError::Answer { what });
        }
        tokio::time::sleep(LOOK).await;
    }
    connection.close().await;
    Ok(())
}
