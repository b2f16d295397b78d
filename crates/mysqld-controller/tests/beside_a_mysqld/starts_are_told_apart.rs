//! The watcher counts each start of a real mysqld once, however young the server is, and counts the next start separately.

use anyhow::{Result, ensure};
use mysqld_controller::watch::{Protection, WatchOptions, WatchReport, Watcher};
use raft_types::MemberId;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::primary::{LIMIT, Running, connect, ingest_options, launch, requirements};
use crate::ring_in_memory::{Leadership, MemoryRing};

/// Returns the numbers of the starts that the first observations of a new mysqld report. By the uptime in whole seconds alone, each second
/// might count as another start.
async fn starts_seen(reports: &mut watch::Receiver<WatchReport>) -> Result<Vec<u64>> {
    let began = Instant::now();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        let looked = |report: &WatchReport| {
            report.looked_at > began && !matches!(report.protection, Protection::Unknown { .. })
        };
        let report = tokio::time::timeout(LIMIT, reports.wait_for(looked)).await??;
        seen.extend(report.server.as_ref().map(|server| server.incarnation));
        drop(report);
        tokio::time::timeout(LIMIT, reports.changed()).await??;
    }
    seen.dedup();
    Ok(seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_of_mysqld_is_one_start_from_its_first_second_on() -> Result<()> {
    let mut server = launch(&[])?;
    let ring = MemoryRing::new();
    // Ingest does not attach, so each observation uses a new connection.
    ring.set_leadership(Leadership::Elsewhere(MemberId(7)));
    let ingest = Running::start(&ring, ingest_options(&server));
    let options = WatchOptions::new(connect(&server.socket()), requirements());
    let (watcher, mut reports) = Watcher::new(options, ingest.status.clone(), ingest.readiness());
    let stop = CancellationToken::new();
    let watching = tokio::spawn(watcher.run(stop.clone()));
    server.kill()?;
    server.spawn()?;
    let first = starts_seen(&mut reports).await?;
    ensure!(first.len() == 1, "{first:?}");
    server.kill()?;
    server.spawn()?;
    let second = starts_seen(&mut reports).await?;
    ensure!(second == [first[0] + 1], "{first:?}, then {second:?}");
    stop.cancel();
    watching.await?;
    ingest.stop().await
}
