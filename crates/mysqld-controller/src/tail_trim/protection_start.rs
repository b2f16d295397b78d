//! The first file of a server that ran before its member: what was committed before the ring had it did not wait for the ring, so
//! that a file which holds such transactions is never cut. Before the primary is opened for the first time, a new file is begun
//! in which all wait, and that is written down as a start would be.

use std::path::Path;

use mysql_link::{ConnectOptions, Connection};
use tracing::info;

use super::guard::TailTrimOptions;
use super::history::{StartRecord, is_ours};
use crate::binlog_place::BinlogPlace;

/// See the module.
#[derive(Debug, Clone)]
pub struct ProtectionStart {
    options: TailTrimOptions,
}

impl ProtectionStart {
    /// For the server whose starts the guard with these options guards.
    pub fn new(options: TailTrimOptions) -> Self {
        Self { options }
    }

    /// Makes sure that the file that is written to holds nothing but transactions that wait for the ring, on a server that is
    /// closed for writes and whose commits are sure to wait from here on. Where it is so already, nothing is done.
    ///
    /// It is right although somebody may begin further files meanwhile: what is on record is the file that was the last one before
    /// ours, and nothing is committed from the closing on until the opening behind this.
    ///
    /// # Errors
    /// In words; nothing is lost by it but that the first crash may not be trimmed.
    pub async fn ensure(&self, connect: &ConnectOptions) -> Result<(), String> {
        let Some(place) = self.options.place().await? else {
            return Ok(());
        };
        let Some(record) = on_disk(place.clone(), self.options.clone(), begin).await? else {
            return Ok(());
        };
        let told = |error: mysql_link::LinkError| error.to_string();
        let mut connection = Connection::open(connect).await.map_err(told)?;
        connection
            .execute("FLUSH BINARY LOGS")
            .await
            .map_err(told)?;
        connection.close().await;
        let file = record.last_file.clone();
        let store = move |_: &BinlogPlace, member_dir: &Path| record.store(member_dir);
        on_disk(place, self.options.clone(), store).await?;
        info!(behind = ?file, "a crash of mysqld can be trimmed from here on");
        Ok(())
    }
}

/// What is to be on record behind the rotation; nothing where the file is one to be cut already.
fn begin(place: &BinlogPlace, member_dir: &Path) -> std::io::Result<Option<StartRecord>> {
    let mut files = place.files()?;
    if is_ours(StartRecord::load(member_dir)?.as_ref(), place, &files)? {
        return Ok(None);
    }
    Ok(files.pop().map(|last| StartRecord {
        index: place.index().to_owned(),
        last_file: Some(last),
        encrypted: None,
    }))
}

async fn on_disk<T: Send + 'static>(
    place: BinlogPlace,
    options: TailTrimOptions,
    work: impl FnOnce(&BinlogPlace, &Path) -> std::io::Result<T> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(move || work(&place, &options.member_dir));
    let done = done.await.map_err(|error| error.to_string())?;
    done.map_err(|error| error.to_string())
}
