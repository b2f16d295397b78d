//! The choice of a member's route. Pure: the leader's view of the members in, a route out.

use std::collections::{BTreeMap, BTreeSet};

use raft_types::{MemberId, MemberKind, Region};
use thiserror::Error;

use crate::policy::ProxyMode;

/// Logs that differ by up to so many entries count as equally long.
const CLOSE: u64 = 1000;

/// A member in the leader's view when it chooses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name, as used in edges.
    pub name: String,
    /// The region in which it runs.
    pub region: Region,
    /// A database member or a witness.
    pub kind: MemberKind,
    /// How many entries it has acknowledged to this leader; nothing before its first answer.
    pub held: Option<u64>,
    /// The reason not to rely on it.
    pub unfit: Option<String>,
}

/// All inputs of a choice.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The member that leads and chooses.
    pub own: MemberId,
    /// The leader's region, in which nothing is proxied by default.
    pub own_region: &'a Region,
    /// The leader's name, as used in edges.
    pub own_name: &'a str,
    /// How proxies are chosen: by region, by edges, or not at all.
    pub mode: &'a ProxyMode,
    /// The most proxies in a row.
    pub max_hops: usize,
    /// All members of the ring but the leader.
    pub members: &'a BTreeMap<MemberId, Candidate>,
    /// Pairs in which the first member does not reach the second.
    pub apart: &'a BTreeSet<(MemberId, MemberId)>,
}

/// The route to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// The leader sends the entries with their payloads.
    Direct(Because),
    /// Through these members, the one next to the leader first.
    Through(Vec<MemberId>),
}

impl Route {
    /// The proxies on the way, the one next to the leader first; empty for a direct route.
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
    /// Proxying is switched off.
    #[error("proxying is off")]
    Off,
    /// It is in the leader's region.
    #[error("it is in the leader's region")]
    Near,
    /// It is its region's proxy.
    #[error("it is the proxy of its region")]
    IsProxy,
    /// No other member is in its region.
    #[error("it is alone in its region")]
    Alone,
    /// No edge leads to it.
    #[error("no edge leads to it")]
    NoEdge,
    /// The member that could forward to it is unsuitable: its number and why.
    #[error("member {0} cannot forward to it: {1}")]
    Unfit(MemberId, String),
}

impl Scene<'_> {
    /// The route to a member. `current` are the current proxies of the regions: they stay as long as they are
    /// suitable.
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

    /// The member of a region that forwards to the others there. Of those with nearly the longest log,
    /// a database member, since it needs every entry soon. A chosen one stays while it is suitable and does not
    /// lag far, except a witness when a database member is available again.
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

    /// The reason not to forward to a member through a suitable proxy.
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
        // A member outside the ring ends the route: the members after it get their entries from the leader. So does one
        // that is on the route already: edges are checked when they are written, and then contain no circles.
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
