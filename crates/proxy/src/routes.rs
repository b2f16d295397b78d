//! The choice of a member's route. A pure function: the input is the leader's view of the members, the result is a route.

use std::collections::{BTreeMap, BTreeSet};

use raft_types::{MemberId, MemberKind, Region};
use thiserror::Error;

use crate::policy::ProxyMode;

/// Logs that differ by up to this number of entries count as equally long.
const CLOSE: u64 = 1000;

/// A member, as the leader sees it when it chooses a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The member's name, as used in edges.
    pub name: String,
    /// The region in which the member runs.
    pub region: Region,
    /// Database member or witness.
    pub kind: MemberKind,
    /// How many entries the member has acknowledged to this leader; `None` before its first answer.
    pub held: Option<u64>,
    /// Why the member is not used as a proxy; `None` if it may be used.
    pub unfit: Option<String>,
}

/// The input of a choice.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The leader, which chooses.
    pub own: MemberId,
    /// The leader's region. By default, its members receive their entries directly.
    pub own_region: &'a Region,
    /// The leader's name, as used in edges.
    pub own_name: &'a str,
    /// How proxies are chosen: by region, by edges, or not at all.
    pub mode: &'a ProxyMode,
    /// The maximum number of proxies in a row.
    pub max_hops: usize,
    /// All members of the ring except the leader.
    pub members: &'a BTreeMap<MemberId, Candidate>,
    /// Pairs in which the first member does not reach the second.
    pub apart: &'a BTreeSet<(MemberId, MemberId)>,
}

/// The route to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// The leader sends the entries with their payloads.
    Direct(Because),
    /// The entries go through these members, beginning with the one next to the leader.
    Through(Vec<MemberId>),
}

impl Route {
    /// Returns the proxies of the route, beginning with the one next to the leader; empty for a direct route.
    pub fn proxies(&self) -> &[MemberId] {
        match self {
            Self::Direct(_) => &[],
            Self::Through(proxies) => proxies,
        }
    }
}

/// Why a member gets its entries from the leader itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Because {
    /// Proxies are switched off.
    #[error("proxying is off")]
    Off,
    /// The member is in the leader's region.
    #[error("it is in the leader's region")]
    Near,
    /// The member is its region's proxy.
    #[error("it is the proxy of its region")]
    IsProxy,
    /// There is no other member in its region.
    #[error("it is alone in its region")]
    Alone,
    /// No edge leads to the member.
    #[error("no edge leads to it")]
    NoEdge,
    /// The member that could forward is unsuitable. Contains that member's number and the reason.
    #[error("member {0} cannot forward to it: {1}")]
    Unfit(MemberId, String),
}

impl Scene<'_> {
    /// Returns the route to a member. `current` are the current proxies of the regions; they stay while they are suitable.
    pub fn route(&self, target: MemberId, current: &BTreeMap<Region, MemberId>) -> Route {
        let Some(member) = self.members.get(&target) else {
            return Route::Direct(Because::Alone);
        };
        match self.mode {
            _ if self.max_hops == 0 => Route::Direct(Because::Off),
            ProxyMode::Off => Route::Direct(Because::Off),
            ProxyMode::Region => self.by_region(target, member, current),
            ProxyMode::Edges(edges) => self.by_edges(target, member, edges),
        }
    }

    fn by_region(
        &self,
        target: MemberId,
        member: &Candidate,
        current: &BTreeMap<Region, MemberId>,
    ) -> Route {
        if member.region == *self.own_region {
            return Route::Direct(Because::Near);
        }
        let kept = current.get(&member.region).copied();
        match self.proxy_of(&member.region, kept) {
            Some(proxy) if proxy == target => Route::Direct(Because::IsProxy),
            Some(proxy) => match self.hinders(proxy, target, member) {
                Some(why) => Route::Direct(Because::Unfit(proxy, why)),
                None => Route::Through(vec![proxy]),
            },
            None => Route::Direct(self.why_no_proxy(target, member)),
        }
    }

    /// Returns the member of a region that forwards to the others there. Members with nearly the longest log are considered. A database
    /// member is preferred, because it needs every entry soon. The proxy `kept` stays while it is suitable and does not lag too far. If it
    /// is a witness, it is replaced when a database member is available again.
    pub fn proxy_of(&self, region: &Region, kept: Option<MemberId>) -> Option<MemberId> {
        let members = || self.members.iter();
        let there = || members().filter(|(_, member)| member.region == *region);
        if there().count() < 2 {
            return None;
        }
        let fit = || {
            there().filter_map(|(id, member)| match member.unfit {
                None => Some((*id, member.kind, member.held?)),
                Some(_) => None,
            })
        };
        let farthest = fit().map(|(.., held)| held).max()?;
        let close = fit().filter(|(.., held)| held + CLOSE >= farthest);
        let best = close.min_by_key(|(id, kind, _)| (*kind != MemberKind::Database, *id));
        let (best, best_kind, _) = best?;
        let stays = fit().find(|(id, kind, held)| {
            let is_like = *kind == MemberKind::Database || best_kind == MemberKind::Witness;
            Some(*id) == kept && held + 2 * CLOSE >= farthest && is_like
        });
        Some(stays.map_or(best, |(id, ..)| id))
    }

    /// Returns why a suitable proxy cannot forward to a member; `None` if it can.
    fn hinders(&self, proxy: MemberId, target: MemberId, member: &Candidate) -> Option<String> {
        if self.apart.contains(&(proxy, target)) {
            return Some("it failed to, a moment ago".to_owned());
        }
        let held = self.members.get(&proxy).and_then(|proxy| proxy.held);
        let lag = match (held, member.held) {
            (Some(held), Some(wanted)) => wanted.saturating_sub(held),
            _ => 0,
        };
        (lag > CLOSE).then(|| format!("it is {lag} entries behind it"))
    }

    fn why_no_proxy(&self, target: MemberId, member: &Candidate) -> Because {
        let others = self.members.iter();
        let mut others =
            others.filter(|(id, other)| **id != target && other.region == member.region);
        match others.next() {
            None => Because::Alone,
            Some((id, other)) => Because::Unfit(*id, why_unfit(other)),
        }
    }

    fn by_edges(
        &self,
        target: MemberId,
        member: &Candidate,
        edges: &BTreeMap<String, String>,
    ) -> Route {
        let mut proxies = Vec::new();
        let mut next = (target, member);
        let mut name = member.name.as_str();
        let mut left_out = None;
        // A name outside the ring ends the route: the member after it receives its entries from the leader. A member that is on the route
        // already also ends it. That is only a safeguard: edges are checked when they are written, and contain no circles.
        for _ in 0..self.max_hops {
            let Some(from) = edges.get(name).filter(|from| *from != self.own_name) else {
                break;
            };
            let mut members = self.members.iter();
            let Some((&id, proxy)) = members.find(|(_, member)| member.name == *from) else {
                break;
            };
            if id == target || proxies.contains(&id) {
                break;
            }
            let hindered = match (&proxy.unfit, proxy.held) {
                (None, Some(_)) => self.hinders(id, next.0, next.1),
                _ => Some(why_unfit(proxy)),
            };
            match hindered {
                Some(why) => left_out = left_out.or(Some((id, why))),
                None => {
                    proxies.push(id);
                    next = (id, proxy);
                }
            }
            name = from;
        }
        proxies.reverse();
        match left_out {
            _ if !proxies.is_empty() => Route::Through(proxies),
            Some((proxy, why)) => Route::Direct(Because::Unfit(proxy, why)),
            None => Route::Direct(Because::NoEdge),
        }
    }
}

fn why_unfit(member: &Candidate) -> String {
    let unfit = member.unfit.clone();
    unfit.unwrap_or_else(|| "it has not answered this leader yet".to_owned())
}

#[cfg(test)]
mod tests;
