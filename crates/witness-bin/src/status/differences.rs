//! What does not fit together: members whose configurations differ in what has to be the same, and
//! configurations that differ from what the ring's log says. Pure.

use std::collections::BTreeMap;

use super::asked::{Asked, latest};
use super::view::{MemberView, RosterView};
use crate::config::MemberEntry;

/// Each as a sentence that says what to do.
pub(super) fn differences(asked: &[Asked]) -> Vec<String> {
    let views = || asked.iter().filter_map(|asked| asked.answer.as_ref().ok());
    let mut told = Vec::new();
    told.extend(different(
        "commits wait for (`[quorum]`)",
        views().map(|view| (view, view.rules.policy.to_string())),
    ));
    told.extend(different(
        "regions they prefer (`quorum.region_preference`)",
        views().map(|view| {
            let regions = view.rules.region_preference.iter();
            let regions: Vec<_> = regions.map(|region| region.0.as_str()).collect();
            (view, format!("[{}]", regions.join(", ")))
        }),
    ));
    let Some(ring) = latest(asked) else {
        return told;
    };
    for asked in asked {
        let entry = &asked.entry;
        let seat = ring.roster.iter().find(|seat| seat.id == entry.id);
        told.extend(match (asked.configured, seat) {
            (true, None) => Some(format!(
                "`{}` is in this configuration and not in the ring; take it in with `witness members add`, or remove \
                 it from [[members]]",
                entry.name
            )),
            (true, Some(seat)) => differs(entry, seat),
            (false, Some(_)) => Some(format!(
                "`{}` (member {}, {}) is in the ring and not in this configuration; add it to [[members]] in every \
                 member's file",
                entry.name, entry.id, entry.address
            )),
            (false, None) => None,
        });
    }
    told
}

fn different<'a>(
    what: &str,
    said: impl Iterator<Item = (&'a MemberView, String)>,
) -> Option<String> {
    let mut by_answer: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (view, answer) in said {
        let names = by_answer.entry(answer).or_default();
        names.push(format!("`{}`", view.member.name));
    }
    if by_answer.len() < 2 {
        return None;
    }
    let sides: Vec<_> = by_answer
        .into_iter()
        .map(|(answer, names)| format!("{answer} on {}", names.join(", ")))
        .collect();
    Some(format!(
        "the members differ in what {what}: {}; write the same into every member's file and restart those that differ",
        sides.join("; ")
    ))
}

/// The log's word counts; the configuration only helps to find the members.
fn differs(entry: &MemberEntry, seat: &RosterView) -> Option<String> {
    let record = &seat.record;
    let (ring, here) = [
        ("name", record.name.clone(), entry.name.clone()),
        (
            "region",
            record.region.to_string(),
            entry.region.to_string(),
        ),
        ("kind", record.kind.to_string(), entry.kind.to_string()),
        ("votes", record.votes.to_string(), entry.votes.to_string()),
        (
            "priority",
            record.priority.to_string(),
            entry.priority.to_string(),
        ),
        ("address", record.address.clone(), entry.address.clone()),
    ]
    .into_iter()
    .filter(|(_, ring, here)| ring != here)
    .map(|(key, ring, here)| (format!("{key} = {ring}"), format!("{key} = {here}")))
    .unzip::<_, _, Vec<_>, Vec<_>>();
    (!ring.is_empty()).then(|| {
        format!(
            "`{}` has {} in the ring and {} in this configuration; the ring's word counts: write it into [[members]], or \
             remove the member and add it again with another number",
            entry.name,
            ring.join(", "),
            here.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use consensus::quorum::QuorumPolicy;
    use raft_types::{MemberId, MemberKind, Region};

    use super::super::sample::{database_leader, witness_follower};
    use super::*;

    fn entry(id: u64, name: &str, kind: MemberKind) -> MemberEntry {
        MemberEntry {
            id: MemberId(id),
            name: name.into(),
            region: Region("north".into()),
            kind,
            votes: true,
            priority: 100,
            address: format!("10.0.0.{id}:7400"),
        }
    }

    fn ring() -> Vec<Asked> {
        let asked = |entry, answer| Asked {
            entry,
            configured: true,
            answer,
        };
        vec![
            asked(
                entry(1, "db-1", MemberKind::Database),
                Ok(database_leader()),
            ),
            asked(
                entry(2, "witness-1", MemberKind::Witness),
                Ok(witness_follower()),
            ),
            asked(
                entry(3, "witness-2", MemberKind::Witness),
                Err("gone".into()),
            ),
        ]
    }

    #[test]
    fn every_difference_says_what_to_do() {
        assert!(differences(&ring()).is_empty());
        type Change = fn(&mut Vec<Asked>);
        let table: [(Change, &str); 5] = [
            (
                |ring| ring[0].answer.as_mut().unwrap().rules.policy = QuorumPolicy::Majority,
                "the members differ in what commits wait for (`[quorum]`): majority on `db-1`; single-region-dynamic on \
                 `witness-1`; write the same into every member's file and restart those that differ",
            ),
            (
                |ring| {
                    let rules = &mut ring[1].answer.as_mut().unwrap().rules;
                    rules.region_preference = vec![Region("south".into())];
                },
                "the members differ in what regions they prefer (`quorum.region_preference`): [] on `db-1`; [south] on \
                 `witness-1`; write the same into every member's file and restart those that differ",
            ),
            (
                |ring| {
                    ring.push(Asked {
                        entry: entry(4, "db-2", MemberKind::Database),
                        configured: true,
                        answer: Err("gone".into()),
                    })
                },
                "`db-2` is in this configuration and not in the ring; take it in with `witness members add`, or remove it \
                 from [[members]]",
            ),
            (
                |ring| ring[2].configured = false,
                "`witness-2` (member 3, 10.0.0.3:7400) is in the ring and not in this configuration; add it to [[members]] \
                 in every member's file",
            ),
            (
                |ring| {
                    ring[2].entry.region = Region("south".into());
                    ring[2].entry.priority = 7;
                },
                "`witness-2` has region = north, priority = 100 in the ring and region = south, priority = 7 in this \
                 configuration; the ring's word counts: write it into [[members]], or remove the member and add it again \
                 with another number",
            ),
        ];
        for (change, expected) in table {
            let mut ring = ring();
            change(&mut ring);
            assert_eq!(differences(&ring), [expected]);
        }
    }
}
