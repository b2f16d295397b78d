//! Contradictions: members whose configurations differ in a key that must be the same, servers whose settings differ, configurations
//! that differ from the ring's log, and different versions of the program during an upgrade.

use std::collections::BTreeMap;

use consensus::quorum::RingRules;
use member::settings::MemberEntry;
use member::status::{LoggedMember, MemberView, TimersView};
use raft_types::{FormatRange, FormatVersion};

use crate::operator::{MemberReport, latest};
use crate::text::quoted;

/// Returns a sentence with advice for each contradiction between the members that were queried.
pub(crate) fn differences(asked: &[MemberReport]) -> Vec<String> {
    let views = || asked.iter().filter_map(|asked| asked.view.as_ref());
    let mut found: Vec<String> = versions_differ(views()).into_iter().collect();
    let Some(ring) = latest(asked) else {
        return found;
    };
    found.extend(views().flat_map(|view| file_differs(view, ring)));
    found.extend(views().filter_map(|view| lost_its_data(view, ring)));
    found.extend(servers_differ(views()));
    found.extend(timers_differ(views()));
    for asked in asked {
        let entry = &asked.entry;
        let logged = ring.members.iter().find(|logged| logged.id == entry.id);
        found.extend(match (asked.configured, logged) {
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
    found
}

/// A member of the ring with an empty data directory.
fn lost_its_data(view: &MemberView, ring: &MemberView) -> Option<String> {
    let own = &view.member;
    let logged = ring.members.iter().find(|logged| logged.id == own.id)?;
    // A member that is being added has an empty data directory, too, but the log already contains its incarnation.
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
    let sentences = differ.map(|(setting, values)| {
        let each = values.iter();
        let each = each.map(|(value, members)| format!("{value} at the mysqld of {}", quoted(members)));
        format!(
            "`{setting}` is {}: it decides what statements about tables or accounts do, and is in no log, so that a server which \
             follows would stop or differ; give it one value everywhere",
            each.collect::<Vec<_>>().join(", and ")
        )
    });
    sentences.collect()
}

/// Members with different timers, as in an incomplete rolling change.
fn timers_differ<'a>(views: impl Iterator<Item = &'a MemberView>) -> Option<String> {
    let mut members: BTreeMap<TimersView, Vec<&str>> = BTreeMap::new();
    for view in views {
        if let Some(timers) = view.timers {
            members.entry(timers).or_default().push(&view.member.name);
        }
    }
    let each = members.iter().map(|(timers, members)| {
        let (heartbeat, lease) = (timers.heartbeat_ms, timers.lease_ms);
        format!("{heartbeat}ms and {lease}ms on {}", quoted(members))
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

/// Returns a sentence for each quorum rule for which a member's file contradicts the ring's log.
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
    let rules = [
        ("quorum.policy", policies),
        ("quorum.region_preference", preferences),
    ];
    let differ = rules.into_iter().filter(|(_, (file, ring))| file != ring);
    let sentences = differ.map(|(what, (file, ring))| {
        format!(
            "`{}`: `{what}` is {file} in its file and {ring} in the ring; the ring's value is used. Update the file, or run \
             `witness quorum set`",
            view.member.name
        )
    });
    sentences.collect()
}

/// Compares a member's entry in this configuration with the ring's log. The log takes precedence; the configuration only helps to find the
/// members.
fn differs(entry: &MemberEntry, logged: &LoggedMember) -> Option<String> {
    let fields = |of: &MemberEntry| {
        [
            format!("name = {}", of.name),
            format!("region = {}", of.region),
            format!("kind = {}", of.kind),
            format!("votes = {}", of.votes),
            format!("priority = {}", of.priority),
            format!("address = {}", of.address),
        ]
    };
    let pairs = fields(&logged.into()).into_iter().zip(fields(entry));
    let differ = pairs.filter(|(ring, here)| ring != here);
    let (ring, here): (Vec<_>, Vec<_>) = differ.unzip();
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

// Versions of the program, and the formats that they support.

/// A warning while members run different versions, with the state of the ring's format.
fn versions_differ<'a>(views: impl Iterator<Item = &'a MemberView>) -> Option<String> {
    let views: Vec<_> = views.collect();
    let groups = groups(&views);
    (groups.len() > 1).then(|| {
        format!(
            "members run different versions ({}): finish the upgrade. {}",
            listed(&groups),
            ring_format(&views)
        )
    })
}

/// The versions of the members that answer, in one sentence; `None` when no member answers.
pub(crate) fn versions<'a>(views: impl Iterator<Item = &'a MemberView>) -> Option<String> {
    let views: Vec<_> = views.collect();
    let groups = groups(&views);
    (!groups.is_empty()).then(|| format!("Versions: {}. {}", listed(&groups), ring_format(&views)))
}

/// The members' names, grouped by version and formats.
type Groups<'a> = BTreeMap<(&'a str, String), Vec<&'a str>>;

fn groups<'a>(views: &[&'a MemberView]) -> Groups<'a> {
    let mut groups = Groups::new();
    for view in views {
        let program = (view.version.as_str(), speaks(view).to_string());
        groups.entry(program).or_default().push(&view.member.name);
    }
    groups
}

fn listed(groups: &Groups) -> String {
    let group = |((version, formats), names): (&(&str, String), &Vec<&str>)| {
        format!("{version}, formats {formats}: {}", quoted(names))
    };
    groups.iter().map(group).collect::<Vec<_>>().join("; ")
}

/// Returns the formats that a member supports. A version that does not report them supports only the first format.
fn speaks(view: &MemberView) -> FormatRange {
    let first = FormatRange::only(FormatVersion::FIRST);
    (view.formats.as_ref()).map_or(first, |formats| formats.speaks)
}

fn ring_format(views: &[&MemberView]) -> String {
    let reported = views.iter().filter_map(|view| view.formats.as_ref()?.ring);
    let ring = reported.max().unwrap_or(FormatVersion::FIRST);
    let newest = views.iter().map(|view| speaks(view).newest()).max();
    match newest.is_some_and(|newest| newest > ring) {
        true => format!(
            "The ring's format is {ring}, and rises when all members support {}",
            ring.next()
        ),
        false => format!("The ring's format is {ring}"),
    }
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

    fn ring() -> Vec<MemberReport> {
        let asked = |entry, answer| MemberReport::new(entry, true, answer);
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
        type Change = fn(&mut Vec<MemberReport>);
        let table: [(Change, &str); 8] = [
            (
                |ring| {
                    let view = ring[1].view.as_mut().unwrap();
                    view.timers.as_mut().unwrap().lease_ms = 5000;
                },
                "`raft.heartbeat` and `raft.lease` differ: 500ms and 750ms on `db-1`, 500ms and 5000ms on `witness-1`. \
                 The leader uses the shorter lease of its own and each voter's; give all members the same values and restart them in turn",
            ),
            (
                |ring| {
                    for (asked, value) in ring.iter_mut().zip(["off", "on"]) {
                        let mysql = asked.view.as_mut().unwrap().mysql.get_or_insert_default();
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
                    let view = ring[1].view.as_mut().unwrap();
                    view.ring.id = None;
                    view.member.incarnation = Incarnation::random();
                },
                "`witness-1` is in the ring, and its data directory is empty: it takes no part, and counts as down. Is its volume \
                 mounted? See the runbook lost-member",
            ),
            (
                |ring| {
                    let view = ring[0].view.as_mut().unwrap();
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
                    ring[1].view.as_mut().unwrap().configured_rules = Some(rules);
                },
                "`witness-1`: `quorum.region_preference` is [south] in its file and [] in the ring; the ring's value is used. \
                 Update the file, or run `witness quorum set`",
            ),
            (
                |ring| {
                    let entry = entry(4, "db-2", MemberKind::Database);
                    ring.push(MemberReport::new(entry, true, Err("gone".into())));
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

#[cfg(test)]
mod version_tests {
    use member::status::FormatsView;
    use member::status::sample::{database_leader, witness_follower};

    use super::*;

    fn of(mut view: MemberView, version: &str, speaks: &str, ring: u32) -> MemberView {
        version.clone_into(&mut view.version);
        view.formats = Some(FormatsView {
            speaks: speaks.parse().unwrap(),
            ring: Some(FormatVersion(ring)),
            refused: None,
            others: Vec::new(),
        });
        view
    }

    #[test]
    fn an_upgrade_is_reported_until_its_end() {
        let mut old = database_leader();
        old.formats = None;
        let new = |version, ring| of(witness_follower(), version, "1-2", ring);
        let under_way = [old, new("0.2.0", 1)];
        assert_eq!(
            versions_differ(under_way.iter()).unwrap(),
            "members run different versions (0.1.0, formats 1: `db-1`; 0.2.0, formats 1-2: `witness-1`): finish the upgrade. \
             The ring's format is 1, and rises when all members support 2"
        );
        let done = [of(database_leader(), "0.2.0", "1-2", 2), new("0.2.0", 2)];
        assert_eq!(versions_differ(done.iter()), None);
        assert_eq!(
            versions(done.iter()).unwrap(),
            "Versions: 0.2.0, formats 1-2: `db-1`, `witness-1`. The ring's format is 2"
        );
        assert_eq!(versions([].iter()), None);
    }
}
