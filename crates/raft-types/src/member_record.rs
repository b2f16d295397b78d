//! A member's record in the replicated membership, and a pause of automatic failover.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use derive_more::Display;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use thiserror::Error;

use crate::ids::{Incarnation, Region, newtype};

/// True if a member has its own mysqld.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Display, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[display(rename_all = "lowercase")]
pub enum MemberKind {
    /// Log only: stores, acknowledges, votes and relays. It leads only until it has transferred the leadership.
    #[default]
    Witness,
    /// A witness with a mysqld that it controls.
    Database,
}

/// The description of one member in the log's membership entries.
///
/// Two records are equal if they belong to the same member ([`MemberRecord::is_same_member`]). The engine compares records only for that
/// purpose, and refuses a membership with another member under the same number. All other properties of a member may change;
/// [`MemberRecord::has_same_settings`] compares them as well.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MemberRecord {
    /// The operator's name for the member, unique in the ring.
    pub name: String,
    /// The region in which the member runs.
    pub region: Region,
    /// True if the member has a mysqld, or only the log.
    pub kind: MemberKind,
    /// True if the member may count in a quorum; false if it only receives the log.
    pub votes: bool,
    /// A witness transfers the leadership to the suitable member with the highest priority. It chooses a member with priority 0 only if
    /// there is no other.
    #[serde(default = "MemberRecord::default_priority")]
    pub priority: u32,
    /// `host:port` at which the other members call this member.
    pub address: String,
    /// Identity of the member's data directory.
    pub incarnation: Incarnation,
    /// Set if failover is paused and this member stays the primary: no other member's mysqld is promoted automatically. At most one record
    /// of a ring has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<Box<Pause>>,
    /// Fields that are copied into every later membership. A later version of this program adds some for the member; others are the same
    /// for all members of the ring.
    #[serde(flatten)]
    pub extras: Extras,
}

impl MemberRecord {
    /// The priority of a member for which the operator set none.
    pub const DEFAULT_PRIORITY: u32 = 100;

    /// Returns true if both records have the same data directory and kind.
    pub fn is_same_member(&self, other: &Self) -> bool {
        self.incarnation == other.incarnation && self.kind == other.kind
    }

    /// Returns true if both records belong to the same member, with the same settings. Pause and extras do not count.
    pub fn has_same_settings(&self, other: &Self) -> bool {
        let settings = |of: &Self| (of.name.clone(), of.region.clone(), of.votes, of.priority);
        self.is_same_member(other)
            && settings(self) == settings(other)
            && self.address == other.address
    }

    const fn default_priority() -> u32 {
        Self::DEFAULT_PRIORITY
    }
}

impl PartialEq for MemberRecord {
    fn eq(&self, other: &Self) -> bool {
        self.is_same_member(other)
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
            pause: None,
            extras: Extras::default(),
        }
    }
}

// Additional fields of a record. They are kept when the record is read and written again.

/// Additional fields of a record, by name. They are fields that only a later version supports, and fields of this version that describe the
/// ring instead of the member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras(Option<Arc<Fields>>);

/// A pointer, because the engine's errors contain records; shared, because each check of the ring copies the records.
type Fields = (BTreeMap<String, Value>,);

impl Extras {
    /// Returns the value of a field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.as_ref()?.0.get(name)
    }

    /// Sets the value of a field.
    pub fn set(&mut self, name: &str, value: Value) {
        let fields = self.0.get_or_insert_with(Arc::default);
        Arc::make_mut(fields).0.insert(name.to_owned(), value);
    }

    /// Removes a field. If the fields are shared, only the remaining ones are copied.
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

// A pause of automatic failover, stored in the replicated membership. During a pause, only the member with the pause in its record is
// promoted automatically.

newtype! {
    /// A time: seconds since the beginning of 1970, UTC, by the clock of the member that wrote it.
    UnixSeconds(u64)
}

impl UnixSeconds {
    /// Returns the time that is `span`, rounded down to whole seconds, after this one.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.as_secs()))
    }

    /// Returns how long before `now` this time was; zero if it is in the future.
    pub fn age(self, now: Self) -> Duration {
        Duration::from_secs(now.0.saturating_sub(self.0))
    }
}

/// The details of a pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// When the pause was ordered, by the leader's clock.
    pub since: UnixSeconds,
    /// The end of the pause, by the clock of the leader that recorded it; `None` until an operator resumes failover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixSeconds>,
    /// The operator who ordered the pause.
    pub by: String,
    /// The operator's reason; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Pause {
    /// The size limit of [`Pause::by`] and [`Pause::reason`] in bytes. Every membership entry contains these texts.
    pub const MOST_TEXT_BYTES: usize = 512;

    /// Returns true if the pause has ended.
    pub fn is_over(&self, now: UnixSeconds) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

// The format of a member's address in its record, in configurations and on command lines.

/// Why a text is not `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AddressMistake {
    /// The port is missing.
    #[error("`{0}` has no port")]
    NoPort(String),
    /// The host is missing. An IPv6 address must be in brackets, or its end would be parsed as a port.
    #[error("`{0}` has no host")]
    NoHost(String),
    /// The text after the last colon is not a port.
    #[error("`{0}` is not a port")]
    NotAPort(String),
}

/// Parses the host and the port of an address, which is written as `HOST:PORT`, an IPv6 host in brackets.
///
/// # Errors
/// [`AddressMistake`]. Port 0 is invalid.
pub fn host_and_port(address: &str) -> Result<(&str, u16), AddressMistake> {
    let Some((host, port)) = address.rsplit_once(':') else {
        return Err(AddressMistake::NoPort(address.to_owned()));
    };
    let in_brackets = host.starts_with('[') && host.ends_with(']');
    if host.is_empty() || (host.contains(':') && !in_brackets) {
        return Err(AddressMistake::NoHost(address.to_owned()));
    }
    match port.parse() {
        Ok(port) => Ok((host, port)),
        Err(_) => Err(AddressMistake::NotAPort(port.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use crate::member_record::MemberRecord;

    #[test]
    fn fields_of_a_later_version_are_preserved() {
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
            pause: Some(Box::new(pause)),
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
        assert!(paused().has_same_settings(&MemberRecord::default()));
        assert!(!paused().has_same_settings(&moved));
        let other = MemberRecord {
            kind: crate::member_record::MemberKind::Database,
            ..paused()
        };
        assert_ne!(paused(), other);
    }

    #[test]
    fn a_pause_is_restored_from_the_log() {
        let json = serde_json::to_string(&paused()).unwrap();
        assert!(
            json.contains(r#""pause":{"since":1000,"until":4600,"by":"anna","reason":"disks"}"#)
        );
        let back: MemberRecord = serde_json::from_str(&json).unwrap();
        assert_eq!(back.pause, paused().pause);
        let plain = serde_json::to_string(&MemberRecord::default()).unwrap();
        assert!(!plain.contains("pause"), "{plain}");
        let read: MemberRecord = serde_json::from_str(&plain).unwrap();
        assert!(read.pause.is_none());
    }
}

#[cfg(test)]
mod address_tests {
    use super::*;

    #[test]
    fn an_ipv6_address_needs_brackets() {
        let read = |text| host_and_port(text).map_err(|mistake| mistake.to_string());
        assert_eq!(read("db-1:7400"), Ok(("db-1", 7400)));
        assert_eq!(read("[::1]:7400"), Ok(("[::1]", 7400)));
        for (wrong, why) in [
            ("db-1", "`db-1` has no port"),
            (":7400", "`:7400` has no host"),
            ("2001:db8::12:7432", "`2001:db8::12:7432` has no host"),
            ("[::1:7400", "`[::1:7400` has no host"),
            ("[2001:db8::12]", "`[2001:db8::12]` has no host"),
            ("db-1:65536", "`65536` is not a port"),
            ("db-1:", "`` is not a port"),
        ] {
            assert_eq!(read(wrong), Err(why.to_owned()));
        }
    }
}
