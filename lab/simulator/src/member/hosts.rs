//! What runs on hosts beside members and servers, and outlives members: the servers' own replica threads, and an operator's command.
//! All of it is in one runtime, whose clock is the world's.

use std::io;

use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::member::clock::{self, Clock, ClockRate};
use crate::tick::Tick;

/// See the module.
pub(crate) struct Hosts {
    runtime: Runtime,
    clock: Clock,
}

impl Hosts {
    /// Nothing runs there yet.
    ///
    /// # Errors
    /// When there can be no runtime.
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

    /// Begins something.
    pub(crate) fn begin(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.runtime.spawn(task).abort_handle()
    }
}
