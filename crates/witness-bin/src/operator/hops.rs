//! The path of log entries to the members, hop by hop, along the routes that a leader chose. Pure.

use std::collections::BTreeMap;
use std::iter::successors;

use member::status::MemberView;
use raft_types::MemberId;
use serde::Serialize;

/// One member sends entries to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// The leader, or a proxy.
    pub from: MemberId,
    /// The receiving member.
    pub to: MemberId,
}

/// The last hop to each member: earlier hops are the last hops to other members.
///
/// The leader chooses a route when it sends. Routes chosen at different moments may form a circle of members. Entries do not
/// travel in circles, so these members are shown with a hop from the leader.
pub fn hops(leader: &MemberView) -> Vec<Hop> {
    let routes = leader.replication_routes.iter();
    let routes = routes.flat_map(|routes| &routes.routes);
    let proxies: BTreeMap<_, _> = routes
        .map(|route| (route.member, route.through.last().copied()))
        .collect();
    let proxy = |member: &MemberId| proxies.get(member).copied().flatten();
    let stands_behind_itself = |member: MemberId| {
        let ahead = successors(proxy(&member), proxy);
        ahead.take(proxies.len()).any(|ahead| ahead == member)
    };
    let hop = |(to, from): (&MemberId, &Option<MemberId>)| Hop {
        from: from
            .filter(|_| !stands_behind_itself(*to))
            .unwrap_or(leader.member.id),
        to: *to,
    };
    proxies.iter().map(hop).collect()
}

#[cfg(test)]
mod tests {
    use member::status::sample::database_leader;
    use proxy::RouteView;

    use super::*;

    #[test]
    fn a_circle_is_opened_and_what_hangs_on_it_stays() {
        let mut leader = database_leader();
        let routes: [(u64, &[u64]); 7] = [
            (2, &[]),
            (3, &[2]),
            (4, &[2, 3]),
            (5, &[6]),
            (6, &[7]),
            (7, &[5]),
            (8, &[7]),
        ];
        leader.replication_routes.as_mut().unwrap().routes = routes
            .map(|(member, through)| RouteView {
                member: MemberId(member),
                through: through.iter().copied().map(MemberId).collect(),
                because: None,
            })
            .into();
        let hops = hops(&leader);
        let hops = hops.iter().map(|hop| (hop.from.0, hop.to.0));
        assert_eq!(
            hops.collect::<Vec<_>>(),
            [(1, 2), (2, 3), (3, 4), (1, 5), (1, 6), (1, 7), (7, 8)]
        );
    }
}
