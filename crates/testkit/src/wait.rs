//! Waiting for a condition: one deadline, growing poll intervals, one message on a timeout.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The first poll interval.
const FIRST_POLL: Duration = Duration::from_millis(10);
/// The longest poll interval. Many polls start a process, and a test that waits must leave the processor to what it waits for.
const LONGEST_POLL: Duration = Duration::from_millis(160);

/// The result of one check: whether the condition holds, the value found, or why there is no value
/// yet.
pub trait Look {
    /// The type of the value.
    type Found;

    /// Returns the value, or the message for a timeout.
    ///
    /// # Errors
    /// If there is no value yet.
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

/// Polls until the value is found. `what` describes the condition in a sentence.
///
/// # Errors
/// If the limit passes; with the reason of the last check.
pub fn eventually<L: Look>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> L,
) -> Result<L::Found> {
    try_eventually(what, limit, || Ok(look()))
}

/// As [`eventually`], but an error of the check itself ends the wait immediately.
///
/// # Errors
/// The check's own error; or if the limit passes.
pub fn try_eventually<L: Look>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<L>,
) -> Result<L::Found> {
    let mut poll = FIRST_POLL;
    let began = Instant::now();
    loop {
        match look()?.found() {
            Ok(found) => return Ok(found),
            Err(why) if began.elapsed() >= limit => bail!("not within {limit:?}: {what}{why}"),
            Err(_) => {
                thread::sleep(poll);
                poll = LONGEST_POLL.min(poll * 2);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    const SOON: Duration = Duration::from_millis(30);

    #[test]
    fn a_fulfilled_condition_is_found_and_another_reported() {
        let mut looks = 0;
        let third = || {
            looks += 1;
            (looks == 3).then_some("here")
        };
        assert_eq!(
            eventually("the third", Duration::from_secs(60), third).unwrap(),
            "here"
        );
        assert_eq!(looks, 3);
        eventually("immediately", Duration::ZERO, || true).unwrap();

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
