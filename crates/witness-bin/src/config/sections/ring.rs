//! The sections about the ring and its members: `[ring]`, `[member]`, `[[members]]`, `[raft]`, `[quorum]` and `[regions]`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consensus::quorum::{QuorumPolicy, RingRules, even_voters};
use member::settings::{MemberEntry, RaftSettings, RegionsSettings};
use proxy::{ProxyMode, ProxyOptions, check_edges};
use raft_types::{MemberId, MemberKind, Region};
use transport::{Compression, FarOptions};

use crate::config::key::section;
use crate::config::problem::{Problems, did_you_mean, listed};
use crate::config::value::{GIB, Kind};

section! {
    /// The keys outside of any section.
    Top, "", "The file as a whole";

    /// Directory of this member: its identity, its log and its metadata. Made when it does not exist; one process at a time.
    data_dir: String = Kind::Directory, None, "\"/var/lib/witness\"";
}

section! {
    /// Section `[ring]`.
    Ring, "ring.", "The ring that this member belongs to";

    /// Name of the ring (one replicaset), for people and for the `ring` label of metrics.
    name: String = Kind::Name, None, "\"orders\"";
}

section! {
    /// Section `[member]`.
    OwnMember, "member.", "Which member this process is";

    /// Which entry of `[[members]]` this process is. A number that a lost data directory had is never used again.
    id: u64 = Kind::Integer(1, u64::MAX), None, "1";
    /// Address on which the member accepts calls of the other members. Empty: its own `address` in `[[members]]`.
    listen: String = Kind::HostPort, Some("\"\""), "\"0.0.0.0:7400\"";
}

section! {
    /// One entry of `[[members]]`.
    MemberKeys, "members.", "Every member of the ring, the same list in every member's file";

    /// The member's number, unique in the ring and never used again.
    id: u64 = Kind::Integer(1, u64::MAX), None, "";
    /// Its name, unique in the ring, for people and for the `member` label of metrics.
    name: String = Kind::Name, None, "";
    /// The place in which it runs; members of one region share a data quorum.
    region: String = Kind::Name, None, "";
    /// `database`: a member with a mysqld. `witness`: a member with the log alone.
    kind: String = Kind::Choice(&["database", "witness"]), None, "";
    /// Whether it may count in a quorum; one that does not only receives the log.
    votes: bool = Kind::Bool, Some("true"), "";
    /// The member with the highest priority leads, among those that could. `0`: only if no other can. Read when the member is added; later
    /// `witness members update`.
    priority: u32 = Kind::Integer(0, 1_000_000), Some("100"), "";
    /// Where the other members reach it.
    address: String = Kind::HostPort, None, "";
    /// With `regions.proxy = "edges"`: the name of the member that sends this one's entries on to it. Empty: it gets them from the leader.
    proxy_from: String = Kind::Text, Some("\"\""), "";
}

impl MemberKeys {
    pub(crate) fn entry(&self) -> MemberEntry {
        MemberEntry {
            id: MemberId(*self.id),
            name: self.name.clone(),
            region: Region(self.region.clone()),
            kind: match self.is_database() {
                true => MemberKind::Database,
                false => MemberKind::Witness,
            },
            votes: *self.votes,
            priority: *self.priority,
            address: self.address.clone(),
        }
    }

    pub(crate) fn is_database(&self) -> bool {
        *self.kind == "database"
    }
}

impl OwnMember {
    /// The entry of this process's member.
    pub(crate) fn own<'a>(&self, members: &'a [MemberKeys]) -> Option<&'a MemberKeys> {
        let id = self.id.usable()?;
        members.iter().find(|member| member.id.usable() == Some(id))
    }

    /// Checks that `[[members]]` has this member's entry.
    pub(crate) fn validate(&self, members: &[MemberKeys], problems: &mut Problems) {
        let Some(id) = self.id.usable() else { return };
        let ids: Vec<_> = members.iter().map(|member| member.id.usable()).collect();
        // An entry with an unreadable id may be the entry of this member. That id has already been reported.
        if ids.is_empty() || ids.contains(&Some(id)) || ids.contains(&None) {
            return;
        }
        let known: Vec<_> = ids.iter().flatten().map(ToString::to_string).collect();
        self.id.error(
            problems,
            format!("member {id} is not listed in [[members]]"),
            format!(
                "add its entry, or write one of the ids that are listed: {}",
                known.join(", ")
            ),
        );
    }
}

/// Checks the list of members, and reports every broken rule.
pub(crate) fn check_unique(members: &[MemberKeys], problems: &mut Problems) {
    for key in ["members.id", "members.name", "members.address"] {
        let mut seen = BTreeMap::new();
        for member in members {
            let (value, at) = match key {
                "members.id" => (member.id.usable().map(u64::to_string), &member.id.at),
                "members.name" => (member.name.usable().cloned(), &member.name.at),
                _ => (member.address.usable().cloned(), &member.address.at),
            };
            let Some(value) = value else { continue };
            match seen.get(&value) {
                Some(first) => problems.error(
                    at,
                    key,
                    format!("`{key}` {value} is taken already, at {first}"),
                    "give every member its own",
                ),
                None => {
                    seen.insert(value, at);
                }
            }
        }
    }
    for member in members {
        let Some(address) = member.address.usable() else {
            continue;
        };
        if address.is_empty() || address.ends_with(":0") {
            member.address.error(
                problems,
                format!("`members.address` \"{address}\" cannot be reached by the other members"),
                "write the host and the port at which this member is reached",
            );
        }
        let unspecified = ["0.0.0.0:", "[::]:", "*:"];
        if unspecified.iter().any(|prefix| address.starts_with(prefix)) {
            member.address.error(
                problems,
                format!("`members.address` \"{address}\" names no host"),
                "write the host that the other members connect to; where to listen is `member.listen`",
            );
        }
    }
}

/// Checks that at least one member votes, and that one has a mysqld.
pub(crate) fn check_votes(members: &[MemberKeys], problems: &mut Problems) {
    let votes = members.iter().map(|member| member.votes.usable());
    let Some(votes) = votes.collect::<Option<Vec<_>>>() else {
        return;
    };
    let Some(first) = members.first() else { return };
    match votes.iter().filter(|votes| ***votes).count() {
        0 => problems.error(
            &first.id.set,
            "members.votes",
            "no member votes",
            "let at least one vote, better three",
        ),
        2 => problems.warning(
            &first.id.set,
            "members.votes",
            "two members vote, so the loss of either stops every commit",
            "add a third voting member; a witness is enough",
        ),
        _ => {}
    }
    let mut kinds = members.iter().map(|member| member.kind.usable());
    if kinds.all(|kind| kind.is_some_and(|kind| kind != "database")) {
        problems.warning(
            &first.id.set,
            "members.kind",
            "no member is of kind `database`, so nothing will ever be written",
            "give the member next to the mysqld the kind `database`",
        );
    }
}

section! {
    /// Section `[raft]`.
    Raft, "raft.", "Timers; the same on every member";

    /// Interval of the leader's heartbeat, and its deadline. It must be longer than the slowest round trip to a voting member.
    heartbeat: Duration = Kind::Duration(10, 10_000), Some("\"500ms\""), "";
    /// Without a heartbeat for this long the leader counts as gone and an election may start; and this is how long the leader serves after
    /// its last acknowledged heartbeat. `0ms`: 1.5 heartbeats, at least 60 ms more than one.
    lease: Duration = Kind::Duration(0, 200_000), Some("\"0ms\""), "\"800ms\"";
    /// Memory for entries that are proposed and not yet committed. When it is full, the next transaction waits.
    proposals_bytes: u32 = Kind::Bytes(1 << 20, GIB), Some("\"64MiB\""), "";
}

impl Raft {
    /// Checks the lease against the heartbeat. A heartbeat may be sent a fifth of its interval late and may be slow, so a too short
    /// lease would replace healthy leaders. A much longer lease would leave the ring without a leader for too long.
    pub(crate) fn validate(&self, problems: &mut Problems) {
        let (Some(heartbeat), Some(lease)) = (self.heartbeat.usable(), self.lease.given()) else {
            return;
        };
        let (shortest, longest) = (*heartbeat * 3 / 2, *heartbeat * 20);
        if (shortest..=longest).contains(lease) {
            return;
        }
        self.lease.error(
            problems,
            format!(
                "a `raft.lease` of {} ms does not go with a `raft.heartbeat` of {} ms",
                lease.as_millis(),
                heartbeat.as_millis()
            ),
            format!(
                "choose one from {} ms to {} ms, or remove the line for 1.5 times the heartbeat (60 ms more than it at least)",
                shortest.as_millis(),
                longest.as_millis()
            ),
        );
    }

    pub(crate) fn settings(&self) -> RaftSettings {
        let heartbeat = *self.heartbeat;
        let lease = self.lease.given().copied();
        RaftSettings {
            heartbeat,
            lease: lease.unwrap_or_else(|| RaftSettings::usual_lease(heartbeat)),
            proposals_bytes: *self.proposals_bytes,
        }
    }
}

section! {
    /// Section `[quorum]`.
    Quorum, "quorum.", "Which members a commit waits for, and in which regions a leader is preferred, when a ring is made. Later the ring's log is authoritative: `witness quorum set` changes it, and `witness status` warns where a file differs";

    /// Which members a commit waits for. `single-region-dynamic`: a majority of the leader's region. `majority`: a majority of all voting
    /// members. `regions`: a majority in each of `quorum.regions`, or in some of them. Used when the ring is made; change it later with
    /// `witness quorum set`.
    policy: String = Kind::Choice(&["single-region-dynamic", "majority", "regions"]), Some("\"single-region-dynamic\""), "";
    /// The regions of which a commit needs a majority in each, for the policy `regions`.
    regions: Vec<String> = Kind::List, Some("[]"), "[\"north\", \"south\"]";
    /// For the policy `regions`: in how many of `quorum.regions` a commit needs a majority; the leader's region is one of them. `0`: in all
    /// of them.
    required_regions: usize = Kind::Integer(0, 64), Some("0"), "";
    /// Regions by preference for a leader when no member of the last leader's region can lead. Those that are not listed come last, by
    /// name.
    region_preference: Vec<String> = Kind::List, Some("[]"), "[\"north\", \"south\"]";
}

impl Quorum {
    /// Checks the section against the members, and reports every broken rule.
    pub(crate) fn validate(&self, members: &[MemberKeys], problems: &mut Problems) {
        let (Some(policy), Some(voters)) = (self.policy.usable(), voters_by_region(members)) else {
            return;
        };
        self.listed_once(problems);
        match (policy.as_str(), self.regions.usable()) {
            ("regions", Some(regions)) if regions.is_empty() => problems.error(
                &self.policy.at,
                self.regions.path(),
                "`quorum.policy` is `regions`, but `quorum.regions` names none",
                "list the regions of which every commit needs a majority, or choose another policy",
            ),
            ("regions", Some(regions)) => {
                for region in regions {
                    self.required(region, &voters, problems);
                }
            }
            (_, Some(regions)) if !regions.is_empty() => self.regions.warning(
                problems,
                format!("`quorum.regions` is not used with the policy `{policy}`"),
                "set `quorum.policy` to \"regions\", or remove the line",
            ),
            _ => {}
        }
        for region in self.region_preference.iter() {
            if !voters.contains_key(region) {
                self.region_preference.warning(
                    problems,
                    format!(
                        "`quorum.region_preference` names `{region}`, and no member runs there"
                    ),
                    known_region(region, &voters),
                );
            }
        }
        if policy == "single-region-dynamic" {
            thin_regions(members, &voters, problems);
        }
        self.even_voters(policy, &voters, problems);
    }

    /// Warns of voter sets with an even number of voters: with one voter less, such a set would tolerate as many failures. For two voters,
    /// another check already warns.
    fn even_voters(&self, policy: &str, voters: &BTreeMap<String, usize>, problems: &mut Problems) {
        let sets: Vec<(String, usize)> = match policy {
            "majority" => vec![("the ring".to_owned(), voters.values().sum())],
            _ => {
                let decides =
                    |region: &String| policy != "regions" || self.regions.contains(region);
                let voters = voters.iter().filter(|(region, _)| decides(region));
                let named = voters.map(|(region, count)| (format!("region `{region}`"), *count));
                named.collect()
            }
        };
        for (place, count) in sets.into_iter().filter(|(_, count)| *count > 2) {
            let Some(costs) = even_voters(count) else {
                continue;
            };
            problems.warning(
                &self.policy.at,
                "members.votes",
                format!("{place} has an even number of voting members: {costs}"),
                "add a witness there, or set `votes = false` for one of them",
            );
        }
    }

    fn listed_once(&self, problems: &mut Problems) {
        for key in [&self.regions, &self.region_preference] {
            let mut seen = BTreeSet::new();
            for region in key.iter() {
                if !seen.insert(region) {
                    let message = format!("`{}` names `{region}` twice", key.path());
                    key.error(problems, message, "name every region once");
                }
            }
        }
    }

    fn required(&self, region: &str, voters: &BTreeMap<String, usize>, problems: &mut Problems) {
        match voters.get(region) {
            None => self.regions.error(
                problems,
                format!("`quorum.regions` names `{region}`, and no member runs there"),
                known_region(region, voters),
            ),
            Some(0) => self.regions.error(
                problems,
                format!("`quorum.regions` names `{region}`, and no member there votes"),
                "let members there vote, better three, or remove the region from the list",
            ),
            Some(_) => {}
        }
    }

    pub(crate) fn settings(&self) -> RingRules {
        RingRules {
            policy: match self.policy.as_str() {
                "majority" => QuorumPolicy::Majority,
                "regions" => {
                    let regions: BTreeSet<_> = self.regions.iter().cloned().map(Region).collect();
                    match *self.required_regions {
                        required if required > 0 && required < regions.len() => {
                            QuorumPolicy::SomeRegions { required, regions }
                        }
                        _ => QuorumPolicy::Regions(regions),
                    }
                }
                _ => QuorumPolicy::SingleRegionDynamic,
            },
            region_preference: self.region_preference.iter().cloned().map(Region).collect(),
            ..RingRules::default()
        }
    }
}

/// Returns the number of voting members of each region, including regions without voters; `None` if a member's region or `votes` cannot be
/// read.
fn voters_by_region(members: &[MemberKeys]) -> Option<BTreeMap<String, usize>> {
    let mut voters = BTreeMap::new();
    for member in members {
        let (votes, region) = (member.votes.usable()?, member.region.usable()?);
        *voters.entry(region.clone()).or_default() += usize::from(*votes);
    }
    Some(voters)
}

fn known_region(region: &str, voters: &BTreeMap<String, usize>) -> String {
    let known = || voters.keys().map(String::as_str);
    let other = || format!("the members' regions are {}", listed(known()));
    did_you_mean(region, known(), other)
}

/// Warns of regions that may lead and have one or two voters: such a region decides its commits alone, so it should tolerate the loss of
/// one member.
fn thin_regions(members: &[MemberKeys], voters: &BTreeMap<String, usize>, problems: &mut Problems) {
    if voters.values().sum::<usize>() <= 2 {
        // `check_votes` already warns of a ring with two voters.
        return;
    }
    for (region, count) in voters.iter().filter(|(_, count)| (1..3).contains(*count)) {
        let first = members.iter().find(|member| {
            *member.region == *region
                && member.is_database()
                && *member.votes
                && member.priority.usable() != Some(&0)
        });
        let Some(first) = first else { continue };
        let (words, whom) = match count {
            1 => ("one voting member", "its"),
            _ => ("two voting members", "either's"),
        };
        problems.warning(
            &first.id.set,
            "members.votes",
            format!("region `{region}` has {words}, so {whom} loss stops every commit while that region leads"),
            "let three vote there, a witness is enough; or give its database member the priority 0",
        );
    }
}

/// The value that selects the system's default congestion control for connections to other regions.
const SYSTEM_S_OWN: &str = "system";

section! {
    /// Section `[regions]`.
    Regions, "regions.", "How entries travel between regions; the same on every member";

    /// How entries reach other regions. `region`: one member of each region receives them and forwards them to the others there. `edges`:
    /// as the members' `proxy_from` says. `off`: the leader sends them to every member. Same on every member.
    proxy: String = Kind::Choice(&["region", "edges", "off"]), Some("\"region\""), "";
    /// How long a proxy waits for an entry, or for the next part of a large one, that has not arrived yet before it reports it missing.
    /// Longer than the slowest round trip between regions. The leader stops using a silent proxy after 1.2 times this.
    proxy_wait: Duration = Kind::Duration(50, 10_000), Some("\"500ms\""), "";
    /// The most proxies between a leader and a member.
    proxy_max_hops: usize = Kind::Integer(1, 64), Some("16"), "";
    /// Level of zstd for the payloads of entries that are sent to another region. 0: they are not compressed.
    compression_level: i32 = Kind::Integer(0, 19), Some("3"), "";
    /// Smaller payloads are sent as they are.
    compression_min_bytes: usize = Kind::Bytes(64, GIB), Some("\"1KiB\""), "";
    /// TCP congestion control of the connections to members of other regions, by its name in Linux. `bbr` is fast where packets get lost.
    /// Where the system does not give it (net.ipv4.tcp_allowed_congestion_control), the member logs it once and uses the system's own.
    /// `system`: the system's own.
    congestion_control: String = Kind::Text, Some("\"bbr\""), "";
}

impl Regions {
    /// Checks the section and the members' `proxy_from`, and reports every broken rule.
    pub(crate) fn validate(&self, members: &[MemberKeys], problems: &mut Problems) {
        let names = members.iter().map(|member| member.name.usable());
        let (Some(mode), Some(names)) = (self.proxy.usable(), names.collect::<Option<Vec<_>>>())
        else {
            return;
        };
        let by_edges = mode == "edges";
        for member in members {
            let Some(from) = member.proxy_from.given() else {
                continue;
            };
            if !by_edges {
                member.proxy_from.warning(
                    problems,
                    format!("`proxy_from` is not used while `regions.proxy` is `{mode}`"),
                    "set `regions.proxy` to \"edges\", or remove the line",
                );
            } else if !names.contains(&from) {
                let known = || names.iter().map(|name| name.as_str());
                let other = || format!("the members are {}", listed(known()));
                let advice = did_you_mean(from, known(), other);
                let found = format!("`proxy_from` names `{from}`, and no member has that name");
                member.proxy_from.error(problems, found, advice);
            }
        }
        let (Some(edges), Some(limit)) = (
            edges(members).filter(|_| by_edges),
            self.proxy_max_hops.usable(),
        ) else {
            return;
        };
        if edges.is_empty() {
            self.proxy.warning(
                problems,
                "`regions.proxy` is `edges`, and no member has a `proxy_from`: nothing is proxied",
                "add `proxy_from` to `[[members]]` entries, or choose `region` or `off`",
            );
        }
        if let Err(error) = check_edges(&edges, *limit) {
            problems.error(
                &self.proxy.at,
                "members.proxy_from",
                error.to_string(),
                "edges lead from every member towards one that gets its entries from the leader",
            );
        }
    }

    pub(crate) fn settings(&self, members: &[MemberKeys]) -> RegionsSettings {
        let congestion_control = self.congestion_control.clone();
        RegionsSettings {
            proxy: ProxyOptions {
                mode: match self.proxy.as_str() {
                    "off" => ProxyMode::Off,
                    "edges" => ProxyMode::Edges(edges(members).unwrap_or_default()),
                    _ => ProxyMode::Region,
                },
                wait: *self.proxy_wait,
                max_hops: *self.proxy_max_hops,
            },
            far: FarOptions {
                compression: self.compression_level.given().map(|level| Compression {
                    level: *level,
                    min_bytes: *self.compression_min_bytes,
                }),
                congestion_control: Some(congestion_control).filter(|name| name != SYSTEM_S_OWN),
            },
        }
    }
}

/// Returns the edges of `proxy_from`: for each member that has one, the member that relays to it. `None` if a value cannot be read.
fn edges(members: &[MemberKeys]) -> Option<BTreeMap<String, String>> {
    let mut edges = BTreeMap::new();
    for member in members {
        let from = member.proxy_from.usable()?;
        if !from.is_empty() {
            edges.insert(member.name.usable()?.clone(), from.clone());
        }
    }
    Some(edges)
}
