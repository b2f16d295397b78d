//! Opens the member's log as configured: the files below `log/`, the hard state in `meta/`.

use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use binlog_store::{
    BinlogStore, DiskFileSystem, ProgressCallback, SledMeta, StoreObserver, StoreOptions,
};
use consensus::LogOrigin;
use raft_types::RingId;

use crate::error::MemberError;
use crate::settings::{Durability, Settings};

/// Opens the log of a ring. Reads and verifies as much of it as is configured.
///
/// # Errors
/// When it cannot be opened, or must not be: see [`binlog_store::OpenError`].
pub(crate) async fn open_log(
    config: Arc<Settings>,
    ring: RingId,
    origin: &LogOrigin,
    flushes: Option<Arc<dyn StoreObserver>>,
) -> Result<BinlogStore, MemberError> {
    let origin = origin_gtids(&config, origin)?;
    let opening = move || open(&config, ring, origin, flushes);
    let opened = tokio::task::spawn_blocking(opening).await;
    opened.unwrap_or_else(|error| {
        Err(MemberError::Ended {
            what: "opening the log",
            why: error.to_string(),
        })
    })
}

/// The transactions that a ring's log begins behind.
///
/// # Errors
/// When they are no GTID set.
pub(crate) fn origin_gtids(config: &Settings, origin: &LogOrigin) -> Result<GtidSet, MemberError> {
    origin.gtids().parse().map_err(|error| MemberError::Origin {
        path: config.data_dir.join("identity"),
        reason: format!("{error}"),
    })
}

fn open(
    config: &Settings,
    ring: RingId,
    origin: GtidSet,
    flushes: Option<Arc<dyn StoreObserver>>,
) -> Result<BinlogStore, MemberError> {
    let meta_dir = config.data_dir.join("meta");
    let meta = SledMeta::open(&meta_dir).map_err(|source| MemberError::Meta {
        path: meta_dir,
        source,
    })?;
    let files = Arc::new(DiskFileSystem);
    let options = StoreOptions {
        origin,
        ..options(config, ring, flushes)
    };
    let (store, report) = BinlogStore::open(options, files, Arc::new(meta))?;
    if report.cut.is_some() || report.doubted || !report.removed_files.is_empty() {
        tracing::warn!("the log was recovered: {report}");
    } else {
        tracing::info!("the log is open: {report}");
    }
    Ok(store)
}

fn options(
    config: &Settings,
    ring: RingId,
    flushes: Option<Arc<dyn StoreObserver>>,
) -> StoreOptions {
    let log = &config.log;
    StoreOptions {
        durability: match log.durability {
            Durability::Fsync => binlog_store::Durability::Fsync,
            Durability::Os => binlog_store::Durability::Os,
        },
        verify_at_start: log.verify,
        cache_bytes: log.cache_bytes,
        queue_bytes: log.queue_bytes,
        disk_limit_bytes: log.disk_limit_bytes,
        disk_reserve_bytes: log.disk_reserve_bytes,
        observer: flushes,
        progress: Some(progress()),
        ..StoreOptions::new(&config.data_dir, ring)
    }
}

/// Says every tenth part of a long verification in the log.
fn progress() -> ProgressCallback {
    let said = std::sync::atomic::AtomicU64::new(0);
    Arc::new(move |progress| {
        let tenth = (progress.done_bytes * 10)
            .checked_div(progress.total_bytes)
            .unwrap_or(10);
        if tenth > said.swap(tenth, std::sync::atomic::Ordering::Relaxed) {
            let (done, total) = (progress.done_bytes, progress.total_bytes);
            tracing::info!(done, total, "verifying the log, in bytes");
        }
    })
}
