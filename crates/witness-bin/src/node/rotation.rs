//! Keeps the log's files at their configured size: the member that serves as the leader ends the
//! current file once it is large enough. Nobody waits for it.

use std::time::Duration;

use super::ring_handle::{RingHandle, Rotated};

/// How often the size is looked at. A file may grow beyond its bound by what comes in meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// Rotates whenever it is due, for as long as it is polled.
pub(crate) async fn keep_files_within(ring: RingHandle, max_file_bytes: u64) {
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let serving = ring.member.leadership().borrow().serving_term().is_some();
        if !serving || ring.log.current_file().size < max_file_bytes {
            continue;
        }
        match ring.rotate().await {
            Ok(Rotated { entry, file }) => {
                tracing::info!(%entry, file = file.name(), "rotated the log");
            }
            Err(error) => {
                tracing::warn!(%error, "the log was not rotated; trying again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}
