//! Contradictions: members whose configurations differ in a key that must be the same, servers whose settings differ, and
//! configurations that differ from the ring's log. Pure.

use std::collections::BTreeMap;

use consensus::quorum::RingRules;
use member::settings::MemberEntry;
use member::status::{LoggedMember, MemberView, TimersView};

use crate::operator::asker::{Asked, latest};
use crate::operator::versions;

/// Each as a sentence with advice.
pub(super) fn differences(asked: &[Asked]) -> Vec<String> {
    let views = || asked.iter().filter_map(|asked| asked.answer.as_ref().ok());
    let mut told: Vec<String> = versions::warning(views()).into_iter().collect();
    let Some(ring) = latest(asked) else {
        return told;
    };
    told.extend(views().flat_map(|view| file_differs(view, ring)));
    told.extend(views().filter_map(|view| lost_its_data(view, ring)));
    told.extend(servers_differ(views()));
    told.extend(timers_differ(views()));
    for asked in asked {
        let entry = &asked.entry;
        let logged = ring.members.iter().find(|logged| logged.id == entry.id);
        told.extend(match (asked.configured, logged) {
            (true, None) => Some(format!(
                "`{}` is in this configuration and not in the ring; add it with `witness members add`, or remove \
                 it from [[members]]",
                entry.name
            )),
            (true, Some(logged)) => differs(entry, logged),
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

/// A member of the ring with an empty data directory.
fn lost_its_data(view: &MemberView, ring: &MemberView) -> Option<String> {
    let own = &view.member;
    let logged = ring.members.iter().find(|logged| logged.id == own.id)?;
    // A member that is being added joins with the data directory in the log.
    let another = logged.record.incarnation != own.incarnation;
    (view.ring.id.is_none() && another).then(|| {
        format!(
            "`{}` is in the ring, and its data directory is empty: it takes no part, and counts as down. Is its volume mounted? See the \
             runbook lost-member",
            own.name
        )
    })
}

/// Settings that differ between servers.
fn servers_differ<'a>(views: impl Iterator<Item = &'a MemberView>) -> Vec<String> {
    let mut values: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for view in views {
        for (setting, value) in view.mysql.iter().flat_map(|mysql| &mysql.ddl_settings) {
            let servers = values.entry(setting).or_default();
            servers.entry(value).or_default().push(&view.member.name);
        }
    }
    let differ = values.iter().filter(|(_, values)| values.len() > 1);
    differ
        .map(|(setting, values)| {
            let each = values.iter().map(|(value, members)| {
                let members: Vec<_> = members.iter().map(|name| format!("`{name}`")).collect();
                format!("{value} at the mysqld of {}", members.join(", "))
            });
            let each: Vec<_> = each.collect();
            format!(
                "`{setting}` is {}: it decides what statements about tables or accounts do, and is in no log, so that a server which \
                 follows would stop or differ; give it one value everywhere",
                each.join(", and ")
            )
        })
        .collect()
}

/// Members with different timers, as in an incomplete rolling change.
fn timers_differ<'a>(views: impl Iterator<Item = &'a MemberView>) -> Option<String> {
    let mut members: BTreeMap<TimersView, Vec<String>> = BTreeMap::new();
    for view in views {
        let name = format!("`{}`", view.member.name);
        let timers = view.timers.into_iter();
        timers.for_each(|timers| members.entry(timers).or_default().push(name.clone()));
    }
    let each = members.iter().map(|(timers, members)| {
        let TimersView {
            heartbeat_ms,
            lease_ms,
        } = timers;
        format!(
            "{heartbeat_ms}ms and {lease_ms}ms on {}",
            members.join(", ")
        )
    });
    let each: Vec<String> = each.collect();
    (each.len() > 1).then(|| {
        format!(
            "`raft.heartbeat` and `raft.lease` differ: {}. The leader uses the shorter lease of its own and each voter's; give all members \
             the same values and restart them in turn",
            each.join(", ")
        )
    })
}

/// Where a member's file contradicts the ring's log about the quorum.
fn file_differs(view: &MemberView, ring: &MemberView) -> Vec<String> {
    let Some(file) = view.configured_rules.as_ref() else {
        return Vec::new();
    };
    let regions = |rules: &RingRules| {
        let regions = rules.region_preference.iter();
        let regions: Vec<_> = regions.map(|region| region.0.as_str()).collect();
        format!("[{}]", regions.join(", "))
    };
    let policies = (file.policy.to_string(), ring.rules.policy.to_string());
    let preferences = (regions(file), regions(&ring.rules));
    [
        ("quorum.policy", policies),
        ("quorum.region_preference", preferences),
    ]
    .into_iter()
    .filter(|(_, (file, ring))| file != ring)
    .map(|(what, (file, ring))| {
        format!(
            "`{}`: `{what}` is {file} in its file and {ring} in the ring; the ring's value is used. Update the file, or run \
             `witness quorum set`",
            view.member.name
        )
    })
    .collect()
}

/// The log takes precedence; the configuration only helps to find the members.
fn differs(entry: &MemberEntry, logged: &LoggedMember) -> Option<String> {
    let record = &logged.record;
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
            "`{}` has {} in the ring and {} in this configuration; the ring's values are used. Update [[members]], or run \
             `witness members update`",
            entry.name,
            ring.join(", "),
            here.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use consensus::quorum::QuorumPolicy;
    use raft_types::Incarnation;
    use raft_types::MemberId;
    use raft_types::MemberKind;
    use raft_types::Region;

    use super::*;
    use member::status::sample::database_leader;
    use member::status::sample::witness_follower;

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
        let table: [(Change, &str); 8] = [
            (
                |ring| {
                    let view = ring[1].answer.as_mut().unwrap();
                    view.timers.as_mut().unwrap().lease_ms = 5000;
                },
                "`raft.heartbeat` and `raft.lease` differ: 500ms and 750ms on `db-1`, 500ms and 5000ms on `witness-1`. The leader uses the shorter lease of its own and each voter's; give all members the same values and restart them in turn",
            ),
            (
                |ring| {
                    for (asked, value) in ring.iter_mut().zip(["off", "on"]) {
                        let mysql = asked.answer.as_mut().unwrap().mysql.get_or_insert_default();
                        let settings =
                            [("lower_case_table_names", "0"), ("old_alter_table", value)];
                        mysql.ddl_settings = settings.map(|(a, b)| (a.into(), b.into())).into();
                    }
                },
                "`old_alter_table` is off at the mysqld of `db-1`, and on at the mysqld of `witness-1`: it decides what statements \
                 about tables or accounts do, and is in no log, so that a server which follows would stop or differ; give it one \
                 value everywhere",
            ),
            (
                |ring| {
                    let view = ring[1].answer.as_mut().unwrap();
                    view.ring.id = None;
                    view.member.incarnation = Incarnation::random();
                },
                "`witness-1` is in the ring, and its data directory is empty: it takes no part, and counts as down. Is its volume \
                 mounted? See the runbook lost-member",
            ),
            (
                |ring| {
                    let view = ring[0].answer.as_mut().unwrap();
                    view.configured_rules = Some(QuorumPolicy::Majority.into());
                },
                "`db-1`: `quorum.policy` is majority in its file and single-region-dynamic in the ring; the ring's value is \
                 used. Update the file, or run `witness quorum set`",
            ),
            (
                |ring| {
                    let rules = RingRules {
                        region_preference: vec![Region("south".into())],
                        ..RingRules::default()
                    };
                    ring[1].answer.as_mut().unwrap().configured_rules = Some(rules);
                },
                "`witness-1`: `quorum.region_preference` is [south] in its file and [] in the ring; the ring's value is used. \
                 Update the file, or run `witness quorum set`",
            ),
            (
                |ring| {
                    ring.push(Asked {
                        entry: entry(4, "db-2", MemberKind::Database),
                        configured: true,
                        answer: Err("gone".into()),
                    })
                },
                "`db-2` is in this configuration and not in the ring; add it with `witness members add`, or remove it \
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
                 configuration; the ring's values are used. Update [[members]], or run `witness members update`",
            ),
        ];
        for (change, expected) in table {
            let mut ring = ring();
            change(&mut ring);
            assert_eq!(differences(&ring), [expected]);
        }
    }
}
