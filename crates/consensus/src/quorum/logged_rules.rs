//! The rules of a ring as its log has them. They stand in the record of every member, in the same words, so that whoever
//! goes takes nothing along, and the engine's membership needs no field for them. A log without them is of before they
//! were written there, and means what the leader's file says.

use std::collections::BTreeMap;

use raft_types::{MemberId, MemberRecord};
use serde_json::Value;

use super::policy::{QuorumPolicy, RingRules};

/// Under which name the records carry them.
const NAME: &str = "rules";

/// The rules that count: those of the log, or else those of this member's file.
pub(crate) fn in_force<'a>(
    records: impl IntoIterator<Item = &'a MemberRecord>,
    configured: &RingRules,
) -> RingRules {
    logged(records).map_or_else(|| configured.clone(), read)
}

/// Writes rules into all records. What a later version wrote beside them stays.
pub(crate) fn write(members: &mut BTreeMap<MemberId, MemberRecord>, rules: &RingRules) {
    let Ok(Value::Object(mut words)) = serde_json::to_value(rules) else {
        return;
    };
    if let Some(Value::Object(before)) = logged(members.values()) {
        let known = ["policy", "region_preference", "expected_voters"];
        let others = before
            .iter()
            .filter(|(name, _)| !known.contains(&name.as_str()));
        words.extend(others.map(|(name, value)| (name.clone(), value.clone())));
    }
    put(members, &Value::Object(words));
}

/// Sees to it that a membership that follows from another says the rules: those of the log, in its words, or those of the
/// leader's file where it has none yet.
pub(crate) fn carry_on(members: &mut BTreeMap<MemberId, MemberRecord>, configured: &RingRules) {
    match logged(members.values()).cloned() {
        Some(words) => put(members, &words),
        None => write(members, configured),
    }
}

fn put(members: &mut BTreeMap<MemberId, MemberRecord>, words: &Value) {
    for record in members.values_mut() {
        record.extras.set(NAME, words.clone());
    }
}

fn logged<'a>(records: impl IntoIterator<Item = &'a MemberRecord>) -> Option<&'a Value> {
    let mut records = records.into_iter();
    records.find_map(|record| record.extras.get(NAME))
}

/// Rules of a later version are not guessed at: nothing moves by a policy that is not understood.
fn read(words: &Value) -> RingRules {
    serde_json::from_value(words.clone())
        .unwrap_or_else(|_| QuorumPolicy::Unknown(words["policy"].to_string()).into())
}

#[cfg(test)]
mod tests {
    use raft_types::Region;
    use serde_json::json;

    use super::*;

    fn members() -> BTreeMap<MemberId, MemberRecord> {
        let of = |id| (MemberId(id), MemberRecord::default());
        [of(1), of(2)].into()
    }

    fn some() -> RingRules {
        RingRules {
            policy: QuorumPolicy::SomeRegions {
                required: 2,
                regions: ["a", "b", "c"].map(|name| Region(name.to_owned())).into(),
            },
            region_preference: vec![Region("b".to_owned())],
            expected_voters: [(Region("a".to_owned()), 3)].into(),
        }
    }

    #[test]
    fn the_log_counts_and_the_file_where_it_says_nothing() {
        let configured = RingRules::from(QuorumPolicy::Majority);
        let mut ring = members();
        assert_eq!(in_force(ring.values(), &configured), configured);
        carry_on(&mut ring, &configured);
        let other_file = RingRules::default();
        assert_eq!(in_force(ring.values(), &other_file), configured);
        write(&mut ring, &some());
        carry_on(&mut ring, &other_file);
        // Whoever goes takes nothing along, and who comes gets them with the next change.
        ring.remove(&MemberId(1));
        ring.insert(MemberId(0), MemberRecord::default());
        let json = serde_json::to_string(&ring).unwrap();
        let ring: BTreeMap<MemberId, MemberRecord> = serde_json::from_str(&json).unwrap();
        assert_eq!(in_force(ring.values(), &other_file), some());
    }

    #[test]
    fn rules_of_a_later_version_are_not_guessed_at_and_not_lost() {
        let mut ring = members();
        let later = json!({"policy": {"moon-phase": 3}, "region_preference": [], "tides": true});
        put(&mut ring, &later);
        let rules = in_force(ring.values(), &RingRules::default());
        assert_eq!(
            rules.policy,
            QuorumPolicy::Unknown("{\"moon-phase\":3}".to_owned())
        );
        let wanted = rules.voter_sets(&ring, &Region::default()).unwrap_err();
        assert!(
            wanted.to_string().contains("does not know the policy"),
            "{wanted}"
        );
        carry_on(&mut ring, &RingRules::default());
        assert_eq!(logged(ring.values()), Some(&later));
        write(&mut ring, &some());
        assert_eq!(logged(ring.values()).unwrap()["tides"], true);
        assert_eq!(in_force(ring.values(), &RingRules::default()), some());
    }
}
