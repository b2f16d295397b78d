//! The takeover of a primary (`witness enable-raft`): decides when it is complete, and when the primary is released. Pure.
//!
//! ```text
//!             take over: noted as the primary, then acted on
//!  unmanaged ────────────────────────────────────────────────► taking over ────► managed
//!             ◄────────────────────────────────────────────────           the ring has all that it has: the note is removed
//!             leadership lost, or mysqld gone: given back, open
//! ```
//!
//! Until the takeover is complete, commits did not wait for the ring, and clients received success. So a primary's binlog is not trimmed
//! before the ring has all its transactions. Until then, the note in the data directory is kept, a restarted member does not act on its
//! mysqld, and no guard that would trim starts a mysqld. No other mysqld can be the primary in that time, because followers are managed
//! later.

use std::time::Duration;

/// A mysqld that does not answer for this long is released.
const SILENT: Duration = Duration::from_secs(2);

/// Progress of a takeover.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// True if the member leads in the term in which the takeover began.
    pub leads: bool,
    /// Whether commits wait for the ring, and it has committed all of mysqld's binlog.
    pub ring_has_all: bool,
    /// How long mysqld has not answered.
    pub silent_for: Duration,
}

/// Next step of the takeover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The takeover is not complete.
    Wait,
    /// The takeover is complete: transactions not committed by the ring may be trimmed from now on.
    Taken,
    /// mysqld continues without the ring, for this reason.
    GiveBack(&'static str),
}

/// Decides the next step.
pub fn next(progress: Progress) -> Next {
    if progress.ring_has_all {
        return Next::Taken;
    }
    if !progress.leads {
        return Next::GiveBack("this member no longer leads");
    }
    if progress.silent_for >= SILENT {
        return Next::GiveBack("mysqld does not answer");
    }
    Next::Wait
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
}
