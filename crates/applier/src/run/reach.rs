//! Asking a database that may be away for a while.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::backend::BackendError;
use crate::run::error::ApplyError;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Asks until there is an answer, for at most `within`, with pauses that grow.
pub(super) async fn reach<T, F, A>(within: Duration, mut ask: F) -> Result<T, ApplyError>
where
    F: FnMut() -> A,
    A: Future<Output = Result<T, BackendError>>,
{
    let until = Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let late = Instant::now() + pause > until;
        if late || matches!(error, BackendError::Refused(_)) {
            return Err(ApplyError::of_backend(error, within));
        }
        tracing::warn!(%error, ?pause, "the database is away; trying again");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
