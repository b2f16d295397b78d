//! Signals with which an operator or a service manager ends a long command.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::terminal::Exit;

/// SIGTERM and SIGINT.
pub(super) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The name of the next signal.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// On the first signal, passes its name to `tell`, then cancels the work. The second signal, from an operator who does not want to
    /// wait, ends the program: only for work that may end at any time.
    pub(super) async fn cancel(mut self, what: CancellationToken, tell: impl FnOnce(&str)) {
        tell(self.next().await);
        what.cancel();
        self.next().await;
        std::process::exit(i32::from(Exit::Error as u8));
    }
}
