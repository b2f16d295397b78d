//! What was wrong with a member at the last calls, and when that is worth a line in the log.

use std::time::{Duration, Instant};

/// A member that is gone fails each call in one of several ways; while it stays gone, they are told so often at most.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// What was wrong with a member at the last call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTrouble {
    /// The code of the refusal, when the member refused.
    pub refusal: Option<String>,
    /// In words.
    pub message: String,
    /// For how long it has been so.
    pub since: Duration,
}

/// Since the last call that was answered.
#[derive(Debug)]
pub(super) struct Trouble {
    refusal: Option<String>,
    message: String,
    since: Instant,
    told: Instant,
}

impl Trouble {
    /// Notes one more failed call behind those before it; whether it is worth a line: the first one, one that is refused for
    /// another reason, and now and then one that fails in other words.
    pub(super) fn note(
        before: &mut Option<Self>,
        refusal: Option<&str>,
        message: &str,
        now: Instant,
    ) -> bool {
        let other = |known: &Self| {
            known.refusal.as_deref() != refusal
                || known.message != message
                    && now.saturating_duration_since(known.told) >= TOLD_EVERY
        };
        let is_news = before.as_ref().is_none_or(other);
        let known = before.take();
        *before = Some(Self {
            refusal: refusal.map(str::to_owned),
            message: message.to_owned(),
            since: known.as_ref().map_or(now, |known| known.since),
            told: known.filter(|_| !is_news).map_or(now, |known| known.told),
        });
        is_news
    }

    pub(super) fn view(&self) -> PeerTrouble {
        PeerTrouble {
            refusal: self.refusal.clone(),
            message: self.message.clone(),
            since: self.since.elapsed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_gone_is_told_of_once_and_then_now_and_then() {
        let begin = Instant::now();
        let mut trouble = None;
        let mut note = |milliseconds, refusal, message| {
            let now = begin + Duration::from_millis(milliseconds);
            Trouble::note(&mut trouble, refusal, message, now)
        };
        assert!(note(0, None, "connection refused"));
        assert!(!note(100, None, "no answer within 500ms"));
        assert!(!note(200, None, "connection refused"));
        assert!(note(300, Some("another_ring"), "it is of another ring"));
        assert!(!note(400, Some("another_ring"), "it is of another ring"));
        assert!(note(500, None, "connection refused"));
        assert!(!note(10_499, None, "no answer within 500ms"));
        assert!(note(10_500, None, "connection refused"));
        assert!(!note(30_000, None, "connection refused"));
        assert!(note(30_001, None, "no answer within 500ms"));
        assert_eq!(trouble.unwrap().since, begin);
    }
}
