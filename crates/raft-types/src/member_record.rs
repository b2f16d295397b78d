//! A member's record in the replicated membership, and a pause of automatic failover.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::ids::{Incarnation, Region};

/// True if a member has its own mysqld.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberKind {
    /// Log only: stores, acknowledges, votes, relays, and leads only to transfer the leadership.
    #[default]
    Witness,
    /// The same with a mysqld that it controls.
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

/// The description of one member in the log's membership entries.
///
/// Two records are equal when they are of the same member: of one data directory, and of one kind. The engine compares
/// records only for that, and refuses a membership with another member under the same number. All other
/// properties of a member may change; [`MemberRecord::says_the_same`] compares them as well.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MemberRecord {
    /// The operator's name for it, unique in the ring.
    pub name: String,
    /// The region in which it runs.
    pub region: Region,
    /// True if it has a mysqld or only the log.
    pub kind: MemberKind,
    /// Whether it may ever count in a quorum; false for one that only receives the log.
    pub votes: bool,
    /// A witness transfers the leadership to the suitable member with the highest priority. 0: to this one only when there is
    /// no other.
    #[serde(default = "MemberRecord::default_priority")]
    pub priority: u32,
    /// `host:port` at which the other members reach it.
    pub address: String,
    /// Identity of its data directory.
    pub incarnation: Incarnation,
    /// Failover is paused, and this member stays the primary: no other member's mysqld becomes it by itself. At most one
    /// record of a ring has it.
    #[serde(default, skip_serializing_if = "PauseMark::is_none")]
    pub pause: PauseMark,
    /// Fields that are copied into every later membership: those that a later version of this program adds for
    /// the member, and those that all members of the ring have.
    #[serde(flatten)]
    pub extras: Extras,
}

impl MemberRecord {
    /// The priority of a member for which the operator set none.
    pub const DEFAULT_PRIORITY: u32 = 100;

    /// Whether both describe the same member equally, apart from their extras.
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

// Additional fields of a record: read, kept, and written again.

/// Additional fields of a record, by name: fields that only a later version knows, and fields of this version
/// that describe the ring and not the member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras(Option<Arc<Fields>>);

/// A pointer, because a record travels inside the engine's errors; shared, because records are copied at every check of the ring.
type Fields = (BTreeMap<String, Value>,);

impl Extras {
    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.as_ref()?.0.get(name)
    }

    /// Sets the value of a name.
    pub fn set(&mut self, name: &str, value: Value) {
        let fields = self.0.get_or_insert_with(Arc::default);
        Arc::make_mut(fields).0.insert(name.to_owned(), value);
    }

    /// Removes a name. If the fields are shared, only the remaining ones are copied.
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

// A pause of automatic failover in the replicated membership: while one is in force, only the member whose
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

    /// How long before `now` it was; zero when it is in the future.
    pub fn age(self, now: Self) -> Duration {
        Duration::from_secs(now.0.saturating_sub(self.0))
    }
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The details of a pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// When it was ordered, by the leader's clock.
    pub since: UnixSeconds,
    /// Its end, by the clock of the leader at that time; without: until an operator resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixSeconds>,
    /// The operator who ordered it.
    pub by: String,
    /// The operator's reason; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Pause {
    /// The size limit of [`Pause::by`] and [`Pause::reason`] in bytes: every membership entry carries them.
    pub const MOST_TEXT_BYTES: usize = 512;

    /// True if its time is over.
    pub fn is_over(&self, now: UnixSeconds) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// The pause in a member's record. It does not describe the member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PauseMark(pub Option<Box<Pause>>);

impl PauseMark {
    /// True if failover is not paused for this member.
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
