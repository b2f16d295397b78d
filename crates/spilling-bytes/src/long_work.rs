//! Long computation over many bytes inside a task, without blocking the process's other tasks.
//!
//! A checksum over an event of hundreds of megabytes takes a large part of a second on a busy machine. A computing task blocks its worker
//! thread, and may block more. When a socket or a timer wakes a tokio worker, this worker has been polling all sockets and timers. It hands
//! polling over to another worker only if more than one task became ready. So if the one ready task is long, no worker polls any socket or
//! timer until it ends, even if other workers are idle. The member then sends and answers no heartbeats, and the other members elect
//! another leader.

use std::panic;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{block_in_place, spawn_blocking};

/// Minimum number of bytes for a handover to another thread. Fewer bytes take only a few milliseconds, and a handover costs a thread.
pub const LARGE: usize = 4 << 20;

/// Runs `work`, which reads or writes about `bytes` bytes, and returns its result. If `bytes` is at least [`LARGE`], another thread first
/// takes over this thread's tasks, sockets and timers. Other work in the same task still waits.
///
/// Nothing is moved or copied. The work runs within this call and is finished on return, so it cannot be overtaken or cancelled. Without
/// other threads, it is a plain function call: outside a runtime, and in a single-threaded one, as in simulations.
pub fn run<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes >= LARGE && has_other_threads() {
        block_in_place(work)
    } else {
        work()
    }
}

/// Runs `work`, which waits for a disk, on a separate thread that runs no tasks, and returns its result. The work starts when the future is
/// first polled, and completes even if the future is dropped. A panic of the work is passed on to the caller.
///
/// In a single-threaded runtime, as in simulations, it is a plain function call, so that the result does not depend on the timing of other
/// threads.
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
