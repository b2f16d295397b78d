//! How long a leader bears a session that says nothing, or one that says that it lives and brings no answer. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::health::Failure;
use crate::policy::ProxyOptions;

/// See the module.
#[derive(Debug)]
pub(crate) struct Patience {
    silence: Duration,
    patience: Duration,
    /// Since when it has been silent while an answer is due.
    silent: Instant,
    /// Since when no answer has come while one is due.
    unanswered: Instant,
    due: bool,
}

impl Patience {
    pub(crate) fn new(options: &ProxyOptions, now: Instant) -> Self {
        Self {
            silence: options.silence(),
            patience: options.patience(),
            silent: now,
            unanswered: now,
            due: false,
        }
    }

    /// A request went out.
    pub(crate) fn sent(&mut self, now: Instant) {
        if !self.due {
            (self.silent, self.unanswered, self.due) = (now, now, true);
        }
    }

    /// The proxy lives.
    pub(crate) fn sign_of_life(&mut self, now: Instant) {
        self.silent = now;
    }

    /// The member answered; whether more is due.
    pub(crate) fn answered(&mut self, now: Instant, more: bool) {
        (self.silent, self.unanswered, self.due) = (now, now, more);
    }

    /// What is to be held against the proxy.
    pub(crate) fn over(&self, now: Instant) -> Option<Failure> {
        let since = |then: Instant| now.saturating_duration_since(then);
        if !self.due {
            None
        } else if since(self.silent) >= self.silence {
            Some(Failure::Silent)
        } else if since(self.unanswered) >= self.patience {
            Some(Failure::Stuck)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_owes_an_answer_can_be_too_late() {
        let options = ProxyOptions::default();
        let mut now = Instant::now();
        let mut patience = Patience::new(&options, now);
        now += Duration::from_secs(100);
        assert_eq!(patience.over(now), None);
        patience.sent(now);
        now += options.silence() - Duration::from_millis(1);
        assert_eq!(patience.over(now), None);
        patience.sent(now);
        now += Duration::from_millis(1);
        assert_eq!(
            patience.over(now),
            Some(Failure::Silent),
            "a later request is no sign of life"
        );
        patience.answered(now, false);
        now += Duration::from_secs(100);
        assert_eq!(patience.over(now), None);
    }

    #[test]
    fn signs_of_life_are_not_enough_for_ever() {
        let options = ProxyOptions::default();
        let mut now = Instant::now();
        let mut patience = Patience::new(&options, now);
        patience.sent(now);
        let begun = now;
        while patience.over(now).is_none() {
            now += options.sign_of_life();
            patience.sign_of_life(now);
        }
        assert_eq!(patience.over(now), Some(Failure::Stuck));
        assert!(now - begun >= options.patience());
    }
}
