//! What those who watch all the time found wrong: the first ones in full, the rest as a number.

use std::sync::{Arc, Mutex, PoisonError};

/// How many are kept in full.
const KEPT: usize = 20;

#[derive(Debug, Default)]
struct Found {
    first: Vec<String>,
    more: usize,
}

/// Shared by all who watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings(Arc<Mutex<Found>>);

impl Findings {
    pub(crate) fn add(&self, what: String) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match found.first.len() < KEPT {
            true => found.first.push(what),
            false => found.more += 1,
        }
    }

    /// All in words; nothing if there is none.
    pub(crate) fn words(&self) -> Option<String> {
        let found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let more = match found.more {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        (!found.first.is_empty()).then(|| format!("{}{more}", found.first.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_findings_are_a_number() {
        let findings = Findings::default();
        assert_eq!(findings.words(), None);
        for number in 0..KEPT + 2 {
            findings.add(format!("f{number}"));
        }
        assert!(findings.words().unwrap().ends_with("f19; and 2 more"));
    }
}
