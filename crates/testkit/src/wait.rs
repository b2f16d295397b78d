//! Waiting for something that comes about by itself: one deadline, one pause between two looks, one sentence when it does not.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Between two looks that cost little.
const POLL: Duration = Duration::from_millis(20);

/// How long somebody waits, and how often he looks.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    limit: Duration,
    poll: Duration,
}

impl Patience {
    /// With another pause between two looks than 20 ms.
    #[must_use]
    pub fn every(poll: Duration, limit: Duration) -> Self {
        Self { limit, poll }
    }
}

impl From<Duration> for Patience {
    fn from(limit: Duration) -> Self {
        Self { limit, poll: POLL }
    }
}

/// What one look came to: whether it is so, what there is, or why it is not so yet.
pub trait Look {
    /// What was waited for.
    type Found;

    /// What was found, or what is to be said if it is never found.
    ///
    /// # Errors
    /// When there is nothing yet.
    fn found(self) -> Result<Self::Found, String>;
}

impl Look for bool {
    type Found = ();

    fn found(self) -> Result<(), String> {
        self.then_some(()).found()
    }
}

impl<T> Look for Option<T> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, E: Display> Look for Result<T, E> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.map_err(|error| format!(": {error:#}"))
    }
}

/// Looks until there is what is waited for: `what` says it as a sentence.
///
/// # Errors
/// When the limit passes, with why the last look found nothing.
pub fn eventually<L: Look>(
    what: &str,
    patience: impl Into<Patience>,
    mut look: impl FnMut() -> L,
) -> Result<L::Found> {
    try_eventually(what, patience, || Ok(look()))
}

/// The same with a look whose own error ends the waiting at once.
///
/// # Errors
/// That error; or when the limit passes.
pub fn try_eventually<L: Look>(
    what: &str,
    patience: impl Into<Patience>,
    mut look: impl FnMut() -> Result<L>,
) -> Result<L::Found> {
    let (Patience { limit, poll }, began) = (patience.into(), Instant::now());
    loop {
        match look()?.found() {
            Ok(found) => return Ok(found),
            Err(why) if began.elapsed() >= limit => bail!("not within {limit:?}: {what}{why}"),
            Err(_) => thread::sleep(poll),
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    const SOON: Duration = Duration::from_millis(30);

    #[test]
    fn what_comes_about_is_found_and_what_does_not_is_told() {
        let mut looks = 0;
        let third = || {
            looks += 1;
            (looks == 3).then_some("here")
        };
        let often = Patience::every(Duration::ZERO, Duration::from_secs(60));
        assert_eq!(eventually("the third", often, third).unwrap(), "here");
        assert_eq!(looks, 3);
        eventually("at once", Duration::ZERO, || true).unwrap();

        let told = |waited: Result<()>| waited.unwrap_err().to_string();
        let never = eventually("it rains", SOON, || false);
        assert_eq!(told(never), "not within 30ms: it rains");
        let because = || Err::<(), _>(anyhow!("high pressure").context("no clouds"));
        assert_eq!(
            told(eventually("it rains", SOON, because)),
            "not within 30ms: it rains: no clouds: high pressure"
        );
        let ended = try_eventually("it rains", Duration::from_secs(60), || {
            Err::<bool, _>(anyhow!("the sky fell"))
        });
        assert_eq!(told(ended), "the sky fell");
    }
}
