//! Asking a database that may be away for a while.

use std::future::Future;
use std::time::Duration;

use crate::backend::BackendError;
use crate::persistence::Persistence;
use crate::run::error::ApplyError;

/// Asks until there is an answer, for at most `within`.
pub(super) async fn reach<T, F, A>(within: Duration, ask: F) -> Result<T, ApplyError>
where
    F: FnMut() -> A,
    A: Future<Output = Result<T, BackendError>>,
{
    let persistence = Persistence {
        within,
        first_pause: Duration::from_millis(50),
        longest_pause: Duration::from_secs(2),
    };
    let may_pass = |error: &BackendError| !matches!(error, BackendError::Refused(_));
    let answer = persistence.ask("the database is away", may_pass, ask).await;
    answer.map_err(|error| ApplyError::of_backend(error, within))
}
