//! A leader, member 1 in the region `home`, and the other members with their relays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use consensus::log_probe::{Lane, MemberClient, MemberNetwork};
use proxy::{ProxyOptions, Proxying, Relay, RouteTable, Sent};
use raft_types::{MemberId, MemberKind, MemberRecord, Region, Vote};

use super::direct::Members;
use super::lines::Lines;
use super::log::Log;
use super::sending::{Replication, Sending};

/// The leader's term.
pub(crate) const TERM: u64 = 7;
pub(crate) const LEADER: MemberId = MemberId(1);

/// Long enough for members that answer only at the start, because there are no heartbeats here.
const HEARD_WITHIN: Duration = Duration::from_secs(3600);

pub(crate) fn vote() -> Vote {
    Vote::new_committed(TERM, LEADER)
}

pub(crate) type Client = Box<dyn MemberClient>;

/// A leader and the other members, with their relays.
pub(crate) struct Ring {
    pub(crate) members: Members,
    pub(crate) lines: Lines,
    pub(crate) route_table: RouteTable,
    pub(crate) options: ProxyOptions,
    records: BTreeMap<MemberId, MemberRecord>,
    boards: BTreeMap<MemberId, RouteTable>,
    network: Proxying<Lines>,
}

impl Ring {
    /// Returns a ring with a database member, 2, and this number of witnesses, from 3 on, in the region `far`.
    pub(crate) fn of_one_far_region(witnesses: u64) -> Self {
        Self::with(ProxyOptions::default(), witnesses)
    }

    /// Returns a ring whose members are named `m1` and so on.
    pub(crate) fn with(options: ProxyOptions, witnesses: u64) -> Self {
        let ids = (1..=2 + witnesses).map(MemberId);
        let records: BTreeMap<_, _> = ids.map(|id| (id, record(id))).collect();
        let members = Members::default();
        let lines = Lines::default();
        let mut boards = BTreeMap::new();
        for (id, own) in &records {
            let route_table = RouteTable::new(*id, own, options.clone(), HEARD_WITHIN);
            let known = records.clone();
            route_table.know_the_ring(Arc::new(move |id| known.get(&id).cloned()));
            let relay = Relay::new(
                *id,
                Arc::new(members.log(*id)),
                members.seen_from(*id),
                lines.clone(),
                route_table.clone(),
            );
            lines.lead_to(*id, Arc::new(relay));
            boards.insert(*id, route_table);
        }
        let route_table = boards[&LEADER].clone();
        let network = Proxying::new(
            members.seen_from(LEADER),
            lines.clone(),
            route_table.clone(),
        );
        Self {
            members,
            lines,
            route_table,
            options,
            records,
            boards,
            network,
        }
    }

    /// Returns a ring with this number of entries at its leader. Member 2 has them and answers, so it is the proxy of its region.
    pub(crate) async fn with_proxy(witnesses: u64, entries: u64) -> Self {
        let mut ring = Self::of_one_far_region(witnesses);
        ring.log(1).push(TERM, entries);
        ring.bring_up(2).await;
        ring
    }

    pub(crate) fn log(&self, id: u64) -> Log {
        self.members.log(MemberId(id))
    }

    pub(crate) fn client(&self, lane: Lane, id: u64) -> Client {
        let id = MemberId(id);
        self.network.client(lane, id, &self.records[&id])
    }

    /// Opens a stream of the engine to a member. The test controls the stream.
    pub(crate) async fn stream(&mut self, id: u64) -> Sending {
        Sending::over(self.client(Lane::Entries, id), self.log(1))
    }

    /// Sends a member all entries that are appended to the leader's log, as the engine does.
    pub(crate) async fn replicate(&mut self, id: u64) -> Replication {
        Replication::over(self.client(Lane::Entries, id), self.log(1))
    }

    /// Sends a member all entries that the leader has now.
    pub(crate) async fn bring_up(&mut self, id: u64) {
        let upto = self.log(1).next_index();
        let mut stream = self.stream(id).await;
        stream.send(0..upto);
        stream.answer().await.unwrap().unwrap();
        assert_eq!(self.log(id).next_index(), upto);
        self.members.received(MemberId(id));
    }

    /// Returns what the leader sent to a member.
    pub(crate) fn sent(&self, id: u64) -> Sent {
        let counted = self.route_table.traffic().counted();
        let sent = counted.members.get(&MemberId(id));
        sent.copied().unwrap_or_default()
    }

    /// Returns how often the leader stopped using a proxy, and why.
    pub(crate) fn fallbacks(&self) -> Vec<(u64, &'static str, u64)> {
        let counted = self.route_table.traffic().counted();
        let fallbacks = counted.fallbacks.into_iter();
        fallbacks
            .map(|((proxy, why), count)| (proxy.0, why, count))
            .collect()
    }

    /// Returns what a member has forwarded.
    pub(crate) fn relayed(&self, id: u64) -> proxy::Relayed {
        self.boards[&MemberId(id)].traffic().counted().relayed
    }

    /// Returns the proxies through which a member received its last entries.
    pub(crate) fn route(&self, id: u64) -> Vec<u64> {
        let routes = self.route_table.routes();
        let route = routes.iter().find(|route| route.member == MemberId(id));
        let through = route.map(|route| route.through.clone()).unwrap_or_default();
        through.into_iter().map(|proxy| proxy.0).collect()
    }
}

fn record(id: MemberId) -> MemberRecord {
    let region = if id == LEADER { "home" } else { "far" };
    MemberRecord {
        name: format!("m{id}"),
        region: Region(region.to_owned()),
        kind: match id.0 {
            1 | 2 => MemberKind::Database,
            _ => MemberKind::Witness,
        },
        ..MemberRecord::default()
    }
}
