//! Decides which refused calls are logged. A member with a wrong certificate calls many times a second.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum interval between log lines for equal refusals of one caller.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Recently logged refusals, with their times.
#[derive(Debug, Default)]
pub(super) struct Refused(Mutex<BTreeMap<(Option<IpAddr>, String), Instant>>);

impl Refused {
    /// Whether this refusal was not logged recently.
    pub(super) fn is_news(&self, host: Option<IpAddr>, words: &str, now: Instant) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, then| now.saturating_duration_since(*then) < TOLD_EVERY);
        let refusal = (host, words.to_owned());
        let is_news = !told.contains_key(&refusal);
        if is_news {
            told.insert(refusal, now);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_caller_that_is_refused_again_and_again_is_told_of_now_and_then() {
        let begin = Instant::now();
        let refused = Refused::default();
        let host = |last| Some(IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
        let is_news = |milliseconds, host, words| {
            refused.is_news(host, words, begin + Duration::from_millis(milliseconds))
        };
        assert!(is_news(0, host(1), "a reader's"));
        assert!(!is_news(50, host(1), "a reader's"));
        assert!(is_news(50, host(2), "a reader's"), "another caller");
        assert!(is_news(100, host(1), "an operator's"), "other words");
        assert!(!is_news(9_999, host(1), "a reader's"));
        assert!(is_news(10_000, host(1), "a reader's"));
        assert!(!is_news(19_999, host(1), "a reader's"));
    }
}
