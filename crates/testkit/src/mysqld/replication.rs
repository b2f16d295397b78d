//! Stock replication between two servers, for comparisons and some tests.

use std::fs;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::mysqld::{MysqlClient, Mysqld};
use crate::wait::eventually;

/// The account of replicas.
pub const REPLICATION_USER: &str = "replication";
/// The password of this account.
pub const REPLICATION_PASSWORD: &str = "replication-password";

/// The timeout of a semi-sync source that waits indefinitely rather than falling back to asynchronous replication.
const ENDLESS_TIMEOUT_MS: u64 = 4_294_967_295;
const CONNECT_LIMIT: Duration = Duration::from_secs(60);

impl MysqlClient {
    /// Creates the account of replicas and ring members. Call it before this server's data is copied for other servers.
    ///
    /// # Errors
    /// If a statement fails; with the server's message.
    pub fn create_replication_user(&self) -> Result<()> {
        self.sql(&format!(
            "CREATE USER '{REPLICATION_USER}'@'%' IDENTIFIED BY '{REPLICATION_PASSWORD}'; \
             GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{REPLICATION_USER}'@'%'"
        ))?;
        Ok(())
    }

    /// Makes this server a lossless semi-sync source (AFTER_SYNC) that waits indefinitely for `replicas` acknowledgements.
    ///
    /// # Errors
    /// If a statement fails; with the server's message.
    pub fn enable_semi_sync_source(&self, replicas: u32) -> Result<()> {
        self.install_plugin("rpl_semi_sync_source", "semisync_source.so")?;
        self.sql(&format!(
            "SET GLOBAL rpl_semi_sync_source_timeout = {ENDLESS_TIMEOUT_MS}; \
             SET GLOBAL rpl_semi_sync_source_wait_point = 'AFTER_SYNC'; \
             SET GLOBAL rpl_semi_sync_source_wait_for_replica_count = {replicas}; \
             SET GLOBAL rpl_semi_sync_source_wait_no_replica = ON; \
             SET GLOBAL rpl_semi_sync_source_enabled = ON"
        ))?;
        Ok(())
    }

    /// Loads a plugin unless it is loaded.
    ///
    /// # Errors
    /// If a statement fails; with the server's message.
    pub fn install_plugin(&self, name: &str, library: &str) -> Result<()> {
        let known = self.value(&format!(
            "SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = '{name}'"
        ))?;
        if known == "0" {
            self.sql(&format!(
                "SET sql_log_bin = 0; INSTALL PLUGIN {name} SONAME '{library}'"
            ))?;
        }
        Ok(())
    }

    /// Waits until a status counter has this value.
    ///
    /// # Errors
    /// If the counter does not have the value within `limit`.
    pub fn wait_for_status(&self, name: &str, value: &str, limit: Duration) -> Result<()> {
        eventually(&format!("status {name} is {value}"), limit, || {
            let now = self.status(name)?;
            ensure!(now == value, "it is {now}");
            Ok(())
        })
    }
}

impl Mysqld {
    /// Makes this server a GTID replica of `source`, and waits until it is connected. `semi_sync`: as a semi-sync replica.
    ///
    /// # Errors
    /// If the replica does not connect; the message contains its status.
    pub fn replicate_from(&self, source: &Mysqld, semi_sync: bool) -> Result<()> {
        let client = self.client();
        if semi_sync {
            client.install_plugin("rpl_semi_sync_replica", "semisync_replica.so")?;
            client.sql("SET GLOBAL rpl_semi_sync_replica_enabled = ON")?;
        }
        client.sql(&format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{}', SOURCE_PORT = {}, SOURCE_USER = '{REPLICATION_USER}', \
             SOURCE_PASSWORD = '{REPLICATION_PASSWORD}', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, \
             SOURCE_CONNECT_RETRY = 1; START REPLICA",
            source.address().ip(),
            source.address().port(),
        ))?;
        let query = "SELECT service_state, last_error_message FROM performance_schema.replication_connection_status";
        eventually("the replica is connected", CONNECT_LIMIT, || {
            let rows = client.sql(query)?.0;
            ensure!(rows.iter().any(|row| row[0] == "ON"), "{rows:?}");
            Ok(())
        })
    }
}

// A power cut of a mysqld: the server is killed, and InnoDB's unsynced redo log is lost.

/// Size of a block of the redo log.
const BLOCK: u64 = 512;
/// Blocks at the start of a redo log file that contain no log records. Byte 8 of the first one begins the file's start LSN.
const HEADER_BLOCKS: u64 = 4;

impl Mysqld {
    /// Kills the server, and removes redo log that it wrote without syncing, since a power cut may lose it. Data files are unchanged,
    /// since InnoDB syncs the redo log before the pages that it describes.
    ///
    /// # Errors
    /// If the server does not report its synced LSN, or the log cannot be changed.
    pub fn cut_power(&mut self) -> Result<()> {
        let forced: u64 = self
            .client()
            .status("Innodb_redo_log_flushed_to_disk_lsn")?
            .parse()?;
        self.kill()?;
        let redo = self.data_dir().join("#innodb_redo");
        for entry in fs::read_dir(&redo).with_context(|| format!("reading {}", redo.display()))? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().ends_with("_tmp") {
                forget_beyond(&entry.path(), forced)?;
            }
        }
        Ok(())
    }
}

/// Zeroes the blocks of a redo log file that contain only log from `forced` on.
fn forget_beyond(path: &Path, forced: u64) -> Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    let mut header = [0; 16];
    file.read_exact(&mut header)?;
    let start = u64::from_be_bytes(header[8..].try_into()?);
    ensure!(start % BLOCK == 0, "{} begins oddly", path.display());
    let kept = forced.saturating_sub(start).div_ceil(BLOCK);
    let zeroes = vec![0; 64 * BLOCK as usize];
    let mut at = (HEADER_BLOCKS + kept) * BLOCK;
    while at < length {
        let count = (length - at).min(zeroes.len() as u64) as usize;
        file.write_all_at(&zeroes[..count], at)?;
        at += count as u64;
    }
    file.sync_all()?;
    Ok(())
}
