//! Numbers of members that the ring has let go. None of them is given again: what is known of a member goes by its number in places
//! that this crate does not own, the engine's among them, and a message of the one that left may still be under way. They stand in the
//! record of every member, so that each leader knows them, also one whose log begins behind the removal, and
//! whoever goes takes none along.

use std::collections::{BTreeMap, BTreeSet};

use raft_types::{MemberId, MemberRecord};
use serde_json::Value;

/// Under which name the records carry them.
const NAME: &str = "retired";

/// All numbers that any of these records names.
pub(crate) fn of<'a>(records: impl IntoIterator<Item = &'a MemberRecord>) -> BTreeSet<MemberId> {
    let lists = records
        .into_iter()
        .filter_map(|record| record.extras.get(NAME)?.as_array());
    lists
        .flatten()
        .filter_map(Value::as_u64)
        .map(MemberId)
        .collect()
}

/// Takes a member out and its number out of use.
pub(crate) fn retire(members: &mut BTreeMap<MemberId, MemberRecord>, id: MemberId) {
    let mut retired = of(members.values());
    retired.insert(id);
    members.remove(&id);
    let words: Vec<Value> = retired.iter().map(|id| Value::from(id.0)).collect();
    for record in members.values_mut() {
        record.extras.set(NAME, Value::Array(words.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(of: &[u64]) -> BTreeSet<MemberId> {
        of.iter().copied().map(MemberId).collect()
    }

    #[test]
    fn no_number_is_forgotten_whoever_goes() {
        let record = |id: u64| (MemberId(id), MemberRecord::default());
        let mut members: BTreeMap<MemberId, MemberRecord> = [1, 2, 5].map(record).into();
        assert_eq!(of(members.values()), ids(&[]));
        retire(&mut members, MemberId(5));
        // Who joins does not carry them yet, and all others go.
        members.extend([record(7)]);
        retire(&mut members, MemberId(2));
        retire(&mut members, MemberId(1));
        assert_eq!(members.keys().copied().collect::<BTreeSet<_>>(), ids(&[7]));
        assert_eq!(of(members.values()), ids(&[1, 2, 5]));
        let json = serde_json::to_string(&members).unwrap();
        let read: BTreeMap<MemberId, MemberRecord> = serde_json::from_str(&json).unwrap();
        assert_eq!(of(read.values()), ids(&[1, 2, 5]));
    }
}
