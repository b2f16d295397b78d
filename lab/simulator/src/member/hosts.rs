//! Runs processes of hosts that are neither members nor servers: the servers' native replica threads, and operators' commands. These
//! processes survive members. They share one runtime, with the world's clock.

use std::io;

use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::member::clock::{self, Clock, ClockRate};
use crate::tick::Tick;

/// The runtime of these processes.
pub(crate) struct Hosts {
    runtime: Runtime,
    clock: Clock,
}

impl Hosts {
    /// Creates the runtime, without tasks.
    ///
    /// # Errors
    /// The runtime cannot be created.
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()?;
        let origin = runtime.block_on(async { Instant::now() });
        Ok(Self {
            runtime,
            clock: Clock::new(ClockRate(1000), Tick(0), origin),
        })
    }

    /// Runs the tasks until `now`.
    pub(crate) fn run_until(&self, now: Tick) {
        let until = self.clock.at(now);
        clock::during(self.clock, || {
            self.runtime
                .block_on(async { tokio::time::sleep_until(until).await });
        });
    }

    /// Starts a task.
    pub(crate) fn begin(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.runtime.spawn(task).abort_handle()
    }
}
