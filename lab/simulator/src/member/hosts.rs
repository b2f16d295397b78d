//! Processes on hosts other than members and servers, which survive members: the servers' own replica threads, and an operator's command.
//! They share one runtime with the world's clock.

use std::io;

use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::member::clock::{self, Clock, ClockRate};
use crate::tick::Tick;

/// See the module documentation.
pub(crate) struct Hosts {
    runtime: Runtime,
    clock: Clock,
}

impl Hosts {
    /// No tasks run yet.
    ///
    /// # Errors
    /// When no runtime can be created.
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

    /// Runs until a moment of the world.
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
