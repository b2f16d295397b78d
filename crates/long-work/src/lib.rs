//! Work over many bytes at once, inside a task, without holding up the process's other tasks.
//!
//! A checksum over an event of hundreds of megabytes takes a good part of a second on a busy machine. While a task computes, its
//! worker thread does nothing else, and that may be more than one thread's loss: a worker of tokio that was woken by a socket or a
//! timer has just been the one that watches all of them. It hands that on only when more than one task became ready, so that
//! with one long task nobody looks at any socket or timer until it ends, however many workers are idle. No heartbeat is sent or
//! answered meanwhile, and the others elect somebody else.

use std::panic;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{block_in_place, spawn_blocking};

/// Fewer bytes are worked on where one is: they take a few milliseconds, and making way costs a thread.
pub const LARGE: usize = 4 << 20;

/// Does `work`, which reads or writes about `bytes` bytes, and returns what it returns. From [`LARGE`] on another thread takes
/// this one's tasks, sockets and timers over before; what else is in the same task waits all the same.
///
/// Nothing is moved or copied, the work runs in this call and is finished when it returns, so that it cannot be overtaken or
/// cancelled: for its caller it is as if it had been called without this. Where there are no other threads (outside a runtime,
/// or in one of a single thread, as in simulations) it is just called.
pub fn run<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes >= LARGE && has_other_threads() {
        block_in_place(work)
    } else {
        work()
    }
}

/// Does `work`, which waits for a disk, on a thread that no task needs, and returns what it returns. The work is begun when the
/// future is first polled and goes on to its end, also when the future is dropped. A panic of it is one of the caller.
///
/// In a runtime of a single thread, as in simulations, it is just called: when it ends there does not depend on other threads.
pub async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if !has_other_threads() {
        return work();
    }
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => panic::resume_unwind(error.into_panic()),
        // The runtime is being dropped, and whoever waits here with it.
        Err(_) => std::future::pending().await,
    }
}

fn has_other_threads() -> bool {
    Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}
