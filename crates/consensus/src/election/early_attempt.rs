//! One member's attempt at an early election ([`super::early_election`]), and the promises that exclude one.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// The progress of this member's own attempt, and the member to which it yields. Of two members that ask each other concurrently, the
/// one with the earlier turn proceeds and the other yields; otherwise they would split the votes.
#[derive(Debug, Default)]
pub(crate) struct EarlyAttempt(Mutex<Progress>);

#[derive(Debug, Default)]
struct Progress {
    stage: Stage,
    /// Until when another member goes first, to which this member has promised its vote.
    gives_way_until: Option<Instant>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    None,
    Asks,
    Campaigns,
}

impl EarlyAttempt {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        // Each change is one or two assignments, which belong together and cannot panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to ask once no other member goes first.
    pub(crate) async fn begin(&self) -> Attempt<'_> {
        loop {
            let until = {
                let mut progress = self.lock();
                match progress
                    .gives_way_until
                    .filter(|until| *until > Instant::now())
                {
                    Some(until) => until,
                    None => {
                        *progress = Progress {
                            stage: Stage::Asks,
                            gives_way_until: None,
                        };
                        return Attempt(self);
                    }
                }
            };
            tokio::time::sleep_until(until).await;
        }
    }

    /// Promises the vote to another member until `until`; refused where this one is ahead and asks itself, or campaigns already.
    pub(crate) fn promise(&self, is_ahead: bool, until: Instant) -> bool {
        let mut progress = self.lock();
        let may = match progress.stage {
            Stage::None => true,
            Stage::Asks => !is_ahead,
            Stage::Campaigns => false,
        };
        if may {
            progress.gives_way_until = Some(until);
        }
        may
    }
}

/// An attempt, until it is dropped.
pub(crate) struct Attempt<'a>(&'a EarlyAttempt);

impl Attempt<'_> {
    /// Whether the vote was promised to no member since. Then it can no longer be promised.
    pub(crate) fn goes_on(&self) -> bool {
        let mut progress = self.0.lock();
        let goes_on = progress.gives_way_until.is_none();
        if goes_on {
            progress.stage = Stage::Campaigns;
        }
        goes_on
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.0.lock().stage = Stage::None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_two_that_ask_each_other_one_goes_on() {
        let (first, second) = (EarlyAttempt::default(), EarlyAttempt::default());
        let until = Instant::now() + Duration::from_millis(100);
        let (own, others) = (first.begin().await, second.begin().await);
        assert!(!first.promise(true, until), "it is ahead");
        assert!(second.promise(false, until), "it is not");
        assert!(own.goes_on() && !others.goes_on());
        assert!(!first.promise(false, until), "it campaigns");
        drop((own, others));
        // The yielding member waits.
        let again = second.begin().await;
        assert!(Instant::now() >= until && again.goes_on());
        // A member that does not ask promises its vote, whatever its position.
        assert!(first.promise(true, Instant::now() + Duration::from_millis(10)));
    }
}
