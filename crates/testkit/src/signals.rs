//! Signals to processes started by a test or by its members.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};

use crate::wait::eventually;

const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Sends a signal, and after SIGSTOP waits until every thread has stopped.
///
/// # Errors
/// If the signal is not permitted, or the process has ended or does not stop.
pub(crate) fn send(process: Pid, signal: Signal) -> Result<()> {
    kill_process(process, signal)?;
    if signal == Signal::STOP {
        let threads = format!("/proc/{}/task", process.as_raw_nonzero());
        eventually("a process stops", STOP_LIMIT, || stand_still(&threads))?;
    }
    Ok(())
}

fn stand_still(threads: &str) -> bool {
    let threads = fs::read_dir(threads).into_iter().flatten().flatten();
    threads.into_iter().all(|thread| is_stopped(&thread.path()))
}

/// True if a thread has stopped. Also true for an ended thread, and for a thread that waits for a disk, which
/// stops before it returns to user space.
fn is_stopped(thread: &Path) -> bool {
    let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
    // The name in brackets may contain any characters.
    let state = stat.rsplit_once(") ").map_or("X", |(_, state)| state);
    state.starts_with(['T', 't', 'D', 'Z', 'X'])
}
