//! What the replicated membership says of each member, and of a pause of automatic failover.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::ids::{Incarnation, Region};

/// Whether a member has a mysqld beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberKind {
    /// Log only: stores, acknowledges, votes, relays, and leads only to hand over.
    #[default]
    Witness,
    /// The same beside a mysqld that it steers.
    Database,
}

impl fmt::Display for MemberKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Witness => "witness",
            Self::Database => "database",
        })
    }
}

/// One member as the membership entries of the log describe it.
///
/// Two records are equal when they are of the same member: of one data directory, and of one kind. The engine compares
/// records for that alone, and refuses a membership in which another member stands behind a number. Everything else
/// about a member may change while it stays the same one; [`MemberRecord::says_the_same`] compares that as well.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MemberRecord {
    /// The operator's name for it, unique in the ring.
    pub name: String,
    /// The region in which it runs.
    pub region: Region,
    /// Whether it has a mysqld or the log alone.
    pub kind: MemberKind,
    /// Whether it may ever count in a quorum; false for one that only receives the log.
    pub votes: bool,
    /// Which of several fit members a witness gives the leadership to: the highest. 0: to this one only when there is
    /// no other.
    #[serde(default = "MemberRecord::default_priority")]
    pub priority: u32,
    /// `host:port` at which the other members reach it.
    pub address: String,
    /// The data directory that stands behind it.
    pub incarnation: Incarnation,
    /// Failover is paused, and this member is the primary meanwhile: no other one's mysqld becomes it by itself. One
    /// record of a ring has it at most.
    #[serde(default, skip_serializing_if = "PauseMark::is_none")]
    pub pause: PauseMark,
    /// What is carried on into every membership that is made from this one: what a later version of this program says of
    /// the member, and what the ring's members all carry.
    #[serde(flatten)]
    pub extras: Extras,
}

impl MemberRecord {
    /// The priority of a member for which the operator chose none.
    pub const DEFAULT_PRIORITY: u32 = 100;

    /// Whether both say the same of the same member, what they carry along left aside.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let said = |of: &Self| {
            let region = of.region.clone();
            (
                of.name.clone(),
                region,
                of.votes,
                of.priority,
                of.address.clone(),
            )
        };
        self == other && said(self) == said(other)
    }

    const fn default_priority() -> u32 {
        Self::DEFAULT_PRIORITY
    }
}

impl PartialEq for MemberRecord {
    fn eq(&self, other: &Self) -> bool {
        self.incarnation == other.incarnation && self.kind == other.kind
    }
}

impl Eq for MemberRecord {}

impl Default for MemberRecord {
    fn default() -> Self {
        Self {
            name: String::new(),
            region: Region::default(),
            kind: MemberKind::default(),
            votes: false,
            priority: Self::DEFAULT_PRIORITY,
            address: String::new(),
            incarnation: Incarnation::default(),
            pause: PauseMark::default(),
            extras: Extras::default(),
        }
    }
}

// What a record carries besides what it says of its member: read, kept, and written again.

/// What a record carries along for all of the ring: fields that only a later version knows, and those of this version
/// that say nothing of the member itself, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras(Option<Arc<Fields>>);

/// Behind a pointer, because a record travels inside of the engine's errors; and shared, because records are copied at every look at the ring.
type Fields = (BTreeMap<String, Value>,);

impl Extras {
    /// What stands under a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.as_ref()?.0.get(name)
    }

    /// Puts something under a name, in place of what was there.
    pub fn set(&mut self, name: &str, value: Value) {
        let fields = self.0.get_or_insert_with(Arc::default);
        Arc::make_mut(fields).0.insert(name.to_owned(), value);
    }

    /// Takes away what stands under a name. Where others share the fields, it is the rest alone that is copied.
    pub fn remove(&mut self, name: &str) {
        let Some(fields) = self.0.take_if(|fields| fields.0.contains_key(name)) else {
            return;
        };
        let rest = fields.0.iter().filter(|(other, _)| *other != name);
        let rest: BTreeMap<_, _> = rest
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        self.0 = (!rest.is_empty()).then(|| Arc::new((rest,)));
    }
}

impl Serialize for Extras {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(fields) => fields.0.serialize(to),
            None => BTreeMap::<String, Value>::new().serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Extras {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let fields = BTreeMap::deserialize(from)?;
        Ok(Self((!fields.is_empty()).then(|| Arc::new((fields,)))))
    }
}

// A pause of automatic failover, as the replicated membership says it: while one stands, nobody but the member whose
// record carries it becomes the primary by itself.

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
    /// When it was ordered, by the leader's clock.
    pub since: UnixSeconds,
    /// Until when, by the clock of whoever leads then; without: until somebody resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixSeconds>,
    /// The operator who ordered it.
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
    use crate::member_record::MemberRecord;

    #[test]
    fn what_a_later_version_says_of_a_member_is_written_again() {
        let mut json = serde_json::to_value(MemberRecord::default()).unwrap();
        let fields = json.as_object_mut().unwrap();
        let rack = serde_json::json!({"row": 7, "lamps": [1.5]});
        fields.insert("rack".to_owned(), rack);
        let read: MemberRecord = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), json);
        assert_eq!(read, MemberRecord::default(), "it is the same member");
    }
}

#[cfg(test)]
mod pause_tests {
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
