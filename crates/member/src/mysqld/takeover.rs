//! Takeover of a primary (`witness enable-raft`): when it is complete, and when the primary is given back.
//!
//! ```text
//!             take over: noted as the primary, then acted on
//!  unmanaged ────────────────────────────────────────────────► taking over ────► managed
//!             ◄────────────────────────────────────────────────           the ring has all that it has: the note is removed
//!             leadership lost, or mysqld gone: given back, open
//! ```
//!
//! Until the takeover, commits did not wait for the ring, and clients received success. So a primary's binlog is not trimmed before the
//! ring has all of it. The note in the data directory stays, a restarted member leaves its mysqld alone, and no mysqld starts with a
//! guard that would trim. No other mysqld can be the primary in the meantime: followers are managed later.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use mysql_link::ConnectOptions;
use mysqld_server::supervisor::{GuardError, StartGuard};

use crate::data_directory::UnmanagedNote;

/// Interval between checks of a takeover, without a change of leadership.
pub(super) const LOOK: Duration = Duration::from_millis(100);
/// Interval between attempts to remove the note.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// A mysqld that does not answer for this long is given back.
const SILENT: Duration = Duration::from_secs(2);

/// Progress of a takeover.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    /// Whether the member leads in the takeover's term.
    pub(super) leads: bool,
    /// Whether commits wait for the ring, and it has committed all of mysqld's binlog.
    pub(super) ring_has_all: bool,
    /// How long mysqld has not answered.
    pub(super) silent_for: Duration,
}

/// Next step of the takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Wait,
    /// Complete: transactions not committed by the ring may be trimmed from now on.
    Taken,
    /// mysqld continues without the ring, for this reason.
    GiveBack(&'static str),
}

pub(super) fn next(progress: Progress) -> Next {
    if progress.ring_has_all {
        return Next::Taken;
    }
    if !progress.leads {
        return Next::GiveBack("this member does not lead any more");
    }
    if progress.silent_for >= SILENT {
        return Next::GiveBack("mysqld does not answer");
    }
    Next::Wait
}

/// Starts no mysqld before its takeover is complete; then consults the guard after it.
pub(super) struct TakenOverFirst<G> {
    note: UnmanagedNote,
    behind: Arc<G>,
}

impl<G: StartGuard> TakenOverFirst<G> {
    pub(super) fn new(data_dir: &Path, behind: G) -> Self {
        Self {
            note: UnmanagedNote::of(data_dir),
            behind: Arc::new(behind),
        }
    }
}

impl<G: StartGuard> StartGuard for TakenOverFirst<G> {
    fn what(&self) -> &str {
        self.behind.what()
    }

    fn before_start(&self) -> BoxFuture<'_, Result<(), GuardError>> {
        async {
            match self.note.is_set() {
                Ok(false) => self.behind.before_start().await,
                Ok(true) => Err("its takeover is not complete".into()),
                Err(error) => Err(format!("the note `hands-off` cannot be read: {error}").into()),
            }
        }
        .boxed()
    }

    fn after_start<'a>(
        &'a self,
        account: &'a ConnectOptions,
    ) -> BoxFuture<'a, Result<(), GuardError>> {
        self.behind.after_start(account)
    }

    fn may_start_itself(&self) -> bool {
        !matches!(self.note.is_set(), Ok(false)) || self.behind.may_start_itself()
    }

    fn before_stop(&self) -> BoxFuture<'_, ()> {
        self.behind.before_stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primary_is_taken_over_once_the_ring_has_all_and_given_back_before_that() {
        let begun = Progress {
            leads: true,
            ..Progress::default()
        };
        let complete = Progress {
            ring_has_all: true,
            ..begun
        };
        assert_eq!(next(begun), Next::Wait, "the ring lacks something");
        assert_eq!(next(complete), Next::Taken);
        for gone in [
            Progress {
                leads: false,
                ..begun
            },
            Progress {
                silent_for: Duration::from_secs(2),
                ..begun
            },
        ] {
            assert!(matches!(next(gone), Next::GiveBack(_)), "{gone:?}");
        }
        let lost_later = Progress {
            leads: false,
            ..complete
        };
        assert_eq!(next(lost_later), Next::Taken, "what is committed stays so");
    }

    struct Free;

    impl StartGuard for Free {
        fn what(&self) -> &str {
            "nothing"
        }

        fn before_start(&self) -> BoxFuture<'_, Result<(), GuardError>> {
            std::future::ready(Ok(())).boxed()
        }
    }

    #[tokio::test]
    async fn nothing_is_cut_before_a_start_while_a_takeover_is_not_complete() {
        let directory = tempfile::tempdir().unwrap();
        let guard = TakenOverFirst::new(directory.path(), Free);
        let note = UnmanagedNote::of(directory.path());
        note.set_at_the_primary().unwrap();
        let refused = guard.before_start().await.unwrap_err().to_string();
        assert!(refused.contains("not complete"), "{refused}");
        note.clear().unwrap();
        guard.before_start().await.unwrap();
    }
}
