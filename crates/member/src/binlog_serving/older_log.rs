//! The archived part of the ring's log before this member's own log, for clients that were away longer than this member keeps its files.

use std::io;
use std::path::Path;
use std::time::Duration;

use archive::encryption::Identities;
use archive::serving::{ArchivedFile, CacheOptions, ServedArchive, ServingError, ServingFigures};
use archive::storage::{Storage, StorageSettings};
use binlog_format::gtid::GtidSet;
use binlog_server::{FileNumber, KeptFile, LogFile, ReadError};
use binlog_store::{LogBegin, LogHandle};
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::ring_handle::RingHandle;
use crate::settings::{ArchiveSettings, Settings};
use crate::status::ArchiveView;

/// Path in the data directory.
const DIRECTORY: &str = "archived-files";
/// Multiple of the disk reserve kept free by fetched files, so that they never cause refused transactions.
const RESERVES: u64 = 4;
/// Interval between checks whether the log's beginning has moved.
const LOOK: Duration = Duration::from_secs(1);
/// How long a check of the archive is valid.
const LOOK_ANEW: Duration = Duration::from_secs(600);
/// The interval while the archive is unreachable.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

pub(crate) struct OlderLog {
    archive: ServedArchive,
    log: LogHandle,
}

impl OlderLog {
    /// None without an archive, or if none of it is to be served.
    pub(crate) fn of(settings: &Settings, ring: &RingHandle) -> Option<Self> {
        let archive = settings.archive.clone()?;
        let most_bytes = archive.serve_bytes?;
        let reserve = settings.log.disk_reserve_bytes;
        let cache = CacheOptions::new(
            settings.data_dir.join(DIRECTORY),
            most_bytes,
            reserve.saturating_mul(RESERVES),
            free_bytes,
        );
        let id = ring.member.status().ring;
        Some(Self {
            archive: ServedArchive::new(id, Box::new(move || opened(&archive)), cache),
            log: ring.log.clone(),
        })
    }

    /// Keeps the archive's state up to date, and removes unused fetched files from the disk. Runs while polled.
    pub(crate) async fn follow(&self) {
        let mut next = Instant::now();
        let mut begin = None;
        loop {
            let now = self.log.begin();
            if now != begin || Instant::now() >= next {
                let looked = match &now {
                    // The failure is in the status and the member's log.
                    Some(now) => self.archive.look(now, LOOK).await.is_ok(),
                    None => true,
                };
                begin = now;
                next = Instant::now() + if looked { LOOK_ANEW } else { LOOK_AGAIN };
            }
            self.archive.tidy();
            sleep(LOOK).await;
        }
    }

    fn begin(&self) -> Result<LogBegin, ReadError> {
        self.log.begin().ok_or(ReadError::Gone)
    }

    /// The GTIDs before the first servable file; none where the archive adds nothing to the log.
    pub(crate) fn purged(&self) -> Option<GtidSet> {
        self.archive.gtids_before(&self.log.begin()?)
    }

    pub(crate) fn files(&self) -> Vec<LogFile> {
        let begin = self.log.begin();
        let files = begin.map_or_else(Vec::new, |begin| self.archive.older_files(&begin));
        files.iter().map(listed).collect()
    }

    pub(crate) async fn look_for_files(&self) -> Result<Vec<LogFile>, ReadError> {
        let files = self.archive.look_for_files(&self.begin()?).await;
        Ok(files.map_err(told)?.iter().map(listed).collect())
    }

    pub(crate) async fn begin_for(&self, have: &GtidSet) -> Result<Option<FileNumber>, ReadError> {
        let file = self.archive.begin_for(&self.begin()?, have).await;
        Ok(file.map_err(told)?.map(|file| FileNumber(file.get())))
    }

    pub(crate) async fn fetch(&self, file: FileNumber) -> Result<KeptFile, ReadError> {
        let number = binlog_store::FileNumber::new(file.0).ok_or(ReadError::Gone)?;
        let held = self.archive.fetch(&self.begin()?, number).await;
        Ok(Box::new(held.map_err(told)?))
    }

    /// None for a file that the archive does not have.
    pub(crate) async fn read(
        &self,
        file: FileNumber,
        offset: u64,
        at_most: usize,
    ) -> Option<io::Result<Bytes>> {
        let number = binlog_store::FileNumber::new(file.0)?;
        self.archive.read(number, offset, at_most).await
    }

    /// Adds the serving counters to a view of the archive.
    pub(crate) fn tell(&self, view: &mut ArchiveView) {
        let ServingFigures {
            files_total,
            bytes_total,
            failures_total,
            error,
            disk_bytes,
            first,
        } = self.archive.figures(self.log.begin().as_ref());
        view.served_files_total = files_total;
        view.served_bytes_total = bytes_total;
        view.serve_failures_total = failures_total;
        view.serve_error = error;
        view.serve_disk_bytes = disk_bytes;
        view.serves_from = first.map(|file| file.name());
    }
}

fn listed(file: &ArchivedFile) -> LogFile {
    LogFile {
        number: FileNumber(file.number.get()),
        name: file.number.name(),
        bytes: file.bytes,
    }
}

/// The error for a client.
fn told(error: ServingError) -> ReadError {
    match error {
        ServingError::Gone(_) => ReadError::Gone,
        error if error.may_pass() => {
            ReadError::Unavailable(format!("{error}; it is tried again when you come again"))
        }
        error => ReadError::Unusable(error.to_string()),
    }
}

/// Both files are read each time: credentials and keys may be renewed.
fn opened(settings: &ArchiveSettings) -> Result<(Storage, Identities), ServingError> {
    let (url, file) = (settings.url.clone(), settings.options_file.as_deref());
    let reached = StorageSettings::with_options_of(url, file, settings.call_limit)?;
    let identities = match &settings.identity_file {
        Some(file) => Identities::of_private_file(file).map_err(ServingError::IdentityFile)?,
        None => Identities::default(),
    };
    Ok((Storage::open(&reached)?, identities))
}

fn free_bytes(directory: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(directory)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use archive::storage::StorageError;

    use super::*;

    #[test]
    fn who_comes_again_after_what_passes_is_told_so_and_nobody_else() {
        let number = binlog_store::FileNumber::FIRST;
        let silent = StorageError::Silent {
            what: "read log/x".to_owned(),
            limit: Duration::from_secs(1),
        };
        let passes = told(ServingError::Storage(silent));
        assert!(
            matches!(&passes, ReadError::Unavailable(words) if words.contains("did not answer"))
        );
        let stays = told(ServingError::Encrypted {
            file: number,
            why: "no key".to_owned(),
        });
        assert!(matches!(&stays, ReadError::Unusable(words) if words.contains("binlog.000001")));
        assert_eq!(told(ServingError::Gone(number)), ReadError::Gone);
    }
}
