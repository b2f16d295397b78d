//! How long this member has led without a break, as far as it was asked: a leader takes members that it
//! has never heard for absent only after it has waited for them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::lease::leadership::Term;

/// Since when this member leads in a term.
#[derive(Debug, Default)]
pub(crate) struct Tenure(Mutex<Option<(Term, Instant)>>);

impl Tenure {
    /// For how long it is known to lead in this term; the first time it is asked, not at all.
    pub(crate) fn led_for(&self, term: Term, now: Instant) -> Duration {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = since.filter(|(of, _)| *of == term);
        let (_, began) = *since.insert(known.unwrap_or((term, now)));
        now - began
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_term_begins_anew() {
        let tenure = Tenure::default();
        let minute = Duration::from_secs(60);
        let now = Instant::now();
        assert_eq!(tenure.led_for(Term(3), now), Duration::ZERO);
        assert_eq!(tenure.led_for(Term(3), now + minute), minute);
        assert_eq!(tenure.led_for(Term(4), now + minute), Duration::ZERO);
    }
}
