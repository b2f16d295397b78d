//! Long computation over many bytes inside a task, without blocking the process's other tasks.
//!
//! A checksum over an event of hundreds of megabytes takes a large part of a second on a busy machine. A computing task blocks its
//! worker thread, and may block more than that: a tokio worker that was woken by a socket or a timer has just been the one that
//! polls all of them. It hands polling over only when more than one task became ready. So with one long task, no worker polls any
//! socket or timer until it ends, however many workers are idle. The member sends and answers no heartbeats, and the other members
//! elect another leader.

use std::panic;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{block_in_place, spawn_blocking};

/// Fewer bytes are processed on the current worker: they take a few milliseconds, and a handover costs a thread.
pub const LARGE: usize = 4 << 20;

/// Runs `work`, which reads or writes about `bytes` bytes, and returns its result. From [`LARGE`] on, another thread first takes
/// over this one's tasks, sockets and timers; other work in the same task still waits.
///
/// Nothing is moved or copied. The work runs within this call and is finished on return, so it cannot be overtaken or cancelled:
/// for its caller, this is a plain call. Without other threads (outside a runtime, or in a single-threaded one, as in
/// simulations) it is one.
pub fn run<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes >= LARGE && has_other_threads() {
        block_in_place(work)
    } else {
        work()
    }
}

/// Runs `work`, which waits for a disk, on a thread that no task needs, and returns its result. The work starts when the
/// future is first polled, and completes even if the future is dropped. Its panic is passed on to the caller.
///
/// In a single-threaded runtime, as in simulations, it is a plain call: the time of its end does not depend on other threads.
pub async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if !has_other_threads() {
        return work();
    }
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => panic::resume_unwind(error.into_panic()),
        // The runtime is being dropped, together with this caller.
        Err(_) => std::future::pending().await,
    }
}

fn has_other_threads() -> bool {
    Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}
