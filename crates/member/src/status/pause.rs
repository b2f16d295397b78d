//! The displayed pause of failover. Pure.

use consensus::RingPause;
use raft_types::{MemberId, UnixSeconds};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::macros::format_description;

/// A pause of failover in the ring's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseView {
    /// The member with the primary, also after the pause.
    pub primary: MemberId,
    /// Start, in seconds since 1970, UTC.
    pub since: UnixSeconds,
    /// End; none: until an operator resumes.
    pub until: Option<UnixSeconds>,
    /// The operator who ordered it.
    pub by: String,
    /// The operator's reason; may be empty.
    pub reason: String,
    /// Age of the pause.
    pub age_seconds: u64,
}

/// An open-ended pause older than this was probably forgotten: it causes a warning.
const FORGOTTEN_AFTER_SECONDS: u64 = 3_600;

impl PauseView {
    /// A pause at this moment.
    pub fn new(paused: RingPause, now: UnixSeconds) -> Self {
        let RingPause { primary, pause } = paused;
        Self {
            primary,
            age_seconds: pause.since.age(now).as_secs(),
            since: pause.since,
            until: pause.until,
            by: pause.by,
            reason: pause.reason,
        }
    }

    /// The pause as a sentence, with the member's name.
    pub fn sentence(&self, primary: &str) -> String {
        let until = match self.until {
            Some(until) => format!("until {}", time_text(until)),
            None => "until `witness resume`".to_owned(),
        };
        let reason = match self.reason.is_empty() {
            true => String::new(),
            false => format!(": {}", self.reason),
        };
        format!(
            "Maintenance mode since {} {until}, set by {}{reason}. No automatic failover: the primary stays on `{primary}`.",
            time_text(self.since),
            self.by
        )
    }

    /// The warning about a long pause.
    pub fn warning(&self) -> Option<String> {
        let forgotten = self.until.is_none() && self.age_seconds >= FORGOTTEN_AFTER_SECONDS;
        forgotten.then(|| {
            format!(
                "failover has been paused for {} hours, and the pause has no end: if the primary fails, nobody takes over; run `witness resume` when the work is done",
                self.age_seconds / FORGOTTEN_AFTER_SECONDS
            )
        })
    }
}

/// A time in readable form, in UTC.
fn time_text(seconds: UnixSeconds) -> String {
    let time = i64::try_from(seconds.0).ok();
    let time = time.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    let form = format_description!("[year]-[month]-[day] [hour]:[minute]:[second] UTC");
    let text = time.and_then(|time| time.format(&form).ok());
    text.unwrap_or_else(|| format!("second {seconds}"))
}

#[cfg(test)]
mod tests {
    use raft_types::Pause;

    use super::*;

    fn view(until: Option<u64>, reason: &str, now: u64) -> PauseView {
        let pause = Pause {
            since: UnixSeconds(1_000_000_000),
            until: until.map(UnixSeconds),
            by: "anna".to_owned(),
            reason: reason.to_owned(),
        };
        let primary = MemberId(1);
        PauseView::new(RingPause { primary, pause }, UnixSeconds(now))
    }

    #[test]
    fn it_says_since_when_until_when_by_whom_and_why() {
        let ends = view(Some(1_000_003_600), "new disks", 1_000_000_060);
        assert_eq!(
            ends.sentence("db-1"),
            "Maintenance mode since 2001-09-09 01:46:40 UTC until 2001-09-09 02:46:40 UTC, set by anna: new disks. No automatic \
             failover: the primary stays on `db-1`."
        );
        assert_eq!(ends.age_seconds, 60);
        let open = view(None, "", 1_000_000_060).sentence("db-1");
        assert!(
            open.contains("until `witness resume`, set by anna. "),
            "{open}"
        );
    }

    #[test]
    fn a_forgotten_one_is_warned_of() {
        assert_eq!(view(None, "", 1_000_003_599).warning(), None);
        let forgotten = view(None, "", 1_000_007_200).warning().unwrap();
        assert!(forgotten.contains("for 2 hours"), "{forgotten}");
        assert_eq!(view(Some(2_000_000_000), "", 1_100_000_000).warning(), None);
        assert_eq!(
            time_text(UnixSeconds(u64::MAX)),
            format!("second {}", u64::MAX)
        );
    }
}
