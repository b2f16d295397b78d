//! What an entry carries, as the engine handles it. The engine's own type holds a membership as values alone, so that
//! every member would write it in its own words; this one keeps the bytes in which it was proposed.

use std::fmt;

use bytes::Bytes;
use openraft::entry::RaftPayload;
use serde::{Deserialize, Serialize};

use crate::entry::AppEntry;
use crate::ids::MemberId;
use crate::member_record::MemberRecord;
use crate::type_config::Membership;

/// What an entry of the log carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum EntryPayload {
    /// Nothing: what a new leader commits first.
    Blank,
    /// A transaction or a rotation.
    Normal(AppEntry),
    /// Another definition of the ring.
    Membership(MembershipPayload),
}

/// A membership and the bytes that stand for it in every log. They are made once, by the member that proposes it; all
/// others keep them as they came, so that members of two versions have the same log, and what only the newer one
/// understands is not lost on the way through the older.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MembershipPayload {
    membership: Membership,
    json: Bytes,
}

impl MembershipPayload {
    /// Takes a membership in at its origin and makes its bytes. Everywhere else they are read.
    ///
    /// # Panics
    /// Never: it is written to memory, and all of its keys are numbers or text.
    pub fn seal(membership: Membership) -> Self {
        let json = serde_json::to_vec(&membership)
            .expect("numbers, text and maps with such keys can be written as JSON");
        Self {
            membership,
            json: json.into(),
        }
    }

    /// Takes the bytes of a membership in that came from a peer or from the disk.
    ///
    /// # Errors
    /// When they are not those of a membership.
    pub fn read(json: Bytes) -> serde_json::Result<Self> {
        let membership = serde_json::from_slice(&json)?;
        Ok(Self { membership, json })
    }

    /// What the bytes say, as far as this version understands them.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// The bytes, as they were proposed.
    pub fn json(&self) -> &Bytes {
        &self.json
    }
}

/// Two are the same entry's when their bytes are the same.
impl PartialEq for MembershipPayload {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl Eq for MembershipPayload {}

impl fmt::Debug for MembershipPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.membership.fmt(f)
    }
}

impl TryFrom<String> for MembershipPayload {
    type Error = serde_json::Error;

    fn try_from(json: String) -> serde_json::Result<Self> {
        Self::read(json.into())
    }
}

impl From<MembershipPayload> for String {
    fn from(payload: MembershipPayload) -> Self {
        Self::from_utf8_lossy(&payload.json).into_owned()
    }
}

impl EntryPayload {
    /// The membership, where it is one.
    pub fn as_membership(&self) -> Option<&Membership> {
        match self {
            Self::Membership(payload) => Some(&payload.membership),
            Self::Blank | Self::Normal(_) => None,
        }
    }
}

impl fmt::Display for EntryPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("blank"),
            Self::Normal(entry) => write!(f, "normal:{entry}"),
            Self::Membership(payload) => write!(f, "membership:{}", payload.membership),
        }
    }
}

impl RaftPayload for EntryPayload {
    type D = AppEntry;
    type NodeId = MemberId;
    type Node = MemberRecord;

    fn blank() -> Self {
        Self::Blank
    }

    fn with_normal(self, entry: AppEntry) -> Self {
        Self::Normal(entry)
    }

    /// The engine calls this where a membership is proposed, and nowhere else.
    fn with_membership(self, membership: Membership) -> Self {
        Self::Membership(MembershipPayload::seal(membership))
    }

    fn get_membership(&self) -> Option<Membership> {
        self.as_membership().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_keeps_its_bytes() {
        let json = r#"{ "nodes": {}, "later": [1.50], "configs": [] }"#;
        let read = MembershipPayload::read(json.into()).unwrap();
        assert_eq!(read.json(), json);
        assert_eq!(read.membership(), &Membership::default());
        let carried = serde_json::to_string(&EntryPayload::Membership(read.clone())).unwrap();
        let back: EntryPayload = serde_json::from_str(&carried).unwrap();
        assert_eq!(back, EntryPayload::Membership(read.clone()));
        assert_ne!(read, MembershipPayload::seal(Membership::default()));
        assert!(MembershipPayload::read("[]".into()).is_err());
    }

    #[test]
    fn the_engine_gets_what_it_gave() {
        let membership = Membership::new_with_defaults(vec![[MemberId(1)].into()], []);
        let payload = EntryPayload::membership(membership.clone());
        assert_eq!(payload.get_membership(), Some(membership));
        assert_eq!(EntryPayload::blank().get_membership(), None);
    }
}
