//! A pause of automatic failover, as the replicated membership says it: while one stands, nobody but the member whose
//! record carries it becomes the primary by itself.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A time of day: seconds since the beginning of 1970, UTC, by the clock of the member that wrote it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixSeconds(pub u64);

impl UnixSeconds {
    /// Later by `span`, which is cut to whole seconds.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.as_secs()))
    }

    /// How long before `now` it was; nothing when it is ahead.
    pub fn age(self, now: Self) -> Duration {
        Duration::from_secs(now.0.saturating_sub(self.0))
    }
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a pause says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Since when.
    pub since: UnixSeconds,
    /// Until when, by the clock of whoever leads then; without: until somebody resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixSeconds>,
    /// Who ordered it.
    pub by: String,
    /// Why, in the operator's words; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Pause {
    /// The most bytes that [`Pause::by`] and [`Pause::reason`] have: every membership entry carries them.
    pub const MOST_TEXT_BYTES: usize = 512;

    /// Whether its time is over.
    pub fn is_over(&self, now: UnixSeconds) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// The pause in a member's record. It rides along there and says nothing of the member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PauseMark(pub Option<Box<Pause>>);

impl PauseMark {
    /// Whether failover is not paused for this member.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member_record::MemberRecord;

    fn paused() -> MemberRecord {
        let pause = Pause {
            since: UnixSeconds(1_000),
            until: Some(UnixSeconds(4_600)),
            by: "anna".to_owned(),
            reason: "disks".to_owned(),
        };
        MemberRecord {
            pause: PauseMark(Some(Box::new(pause))),
            ..MemberRecord::default()
        }
    }

    #[test]
    fn a_record_is_the_same_members_paused_or_not() {
        assert_eq!(paused(), MemberRecord::default());
        let moved = MemberRecord {
            address: "other:7400".to_owned(),
            ..paused()
        };
        assert_eq!(paused(), moved);
        assert!(paused().says_the_same(&MemberRecord::default()));
        assert!(!paused().says_the_same(&moved));
        let other = MemberRecord {
            kind: crate::member_record::MemberKind::Database,
            ..paused()
        };
        assert_ne!(paused(), other);
    }

    #[test]
    fn it_comes_back_from_a_log_and_older_logs_have_none() {
        let json = serde_json::to_string(&paused()).unwrap();
        assert!(
            json.contains(r#""pause":{"since":1000,"until":4600,"by":"anna","reason":"disks"}"#)
        );
        let back: MemberRecord = serde_json::from_str(&json).unwrap();
        assert_eq!(back.pause.0, paused().pause.0);
        let plain = serde_json::to_string(&MemberRecord::default()).unwrap();
        assert!(!plain.contains("pause"), "{plain}");
        let read: MemberRecord = serde_json::from_str(&plain).unwrap();
        assert!(read.pause.is_none());
    }
}
