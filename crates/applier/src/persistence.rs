//! Repeated requests to a server that may be away for a while, with growing pauses.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long to retry, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Persistence {
    /// No attempt begins later than this.
    pub within: Duration,
    /// The first pause; each is twice the previous one.
    pub first_pause: Duration,
    /// The pause does not grow beyond this.
    pub longest_pause: Duration,
}

impl Persistence {
    /// Retries until there is an answer, or an error that `may_pass` rejects. `trouble` is the log message in the
    /// meantime.
    ///
    /// # Errors
    /// The last one.
    pub async fn ask<T, E, A>(
        self,
        trouble: &str,
        may_pass: impl Fn(&E) -> bool,
        mut ask: impl FnMut() -> A,
    ) -> Result<T, E>
    where
        E: Display,
        A: Future<Output = Result<T, E>>,
    {
        let until = Instant::now() + self.within;
        let mut pause = self.first_pause;
        loop {
            let error = match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if !may_pass(&error) || Instant::now() + pause > until {
                return Err(error);
            }
            tracing::warn!(%error, ?pause, "{trouble}; trying again");
            sleep(pause).await;
            pause = (pause * 2).min(self.longest_pause);
        }
    }
}
