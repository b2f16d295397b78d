//! The operator's choice: whether payloads go through proxies, and by which routes.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

/// How a leader chooses the route to a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProxyMode {
    /// Every member gets its entries from the leader itself.
    Off,
    /// In each region but the leader's own, one member gets the entries from the leader, and the others get them through it.
    #[default]
    Region,
    /// Members by their names, each with the one that forwards to it. An unnamed member gets its entries from the leader.
    Edges(BTreeMap<String, String>),
}

/// How payloads are proxied. Must be the same on every member of a ring, or a new leader chooses other routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyOptions {
    /// How the route is chosen.
    pub mode: ProxyMode,
    /// How long a proxy waits for entries in flight to it.
    pub wait: Duration,
    /// The most proxies between a leader and a member.
    pub max_hops: usize,
}

impl ProxyOptions {
    /// How long a session may be silent while an answer is due, before another route is taken: a live proxy sends
    /// something earlier.
    pub fn silence(&self) -> Duration {
        self.wait + self.wait / 5
    }

    /// How often a proxy sends a sign of life while an answer is due.
    pub(crate) fn sign_of_life(&self) -> Duration {
        self.wait * 2 / 5
    }

    /// How often time-dependent conditions are checked.
    pub(crate) fn check_period(&self) -> Duration {
        self.silence() / 8
    }

    /// How long a member may leave its proxy's forwarded requests unanswered.
    pub(crate) fn patience(&self) -> Duration {
        self.wait * 6
    }
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self {
            mode: ProxyMode::default(),
            wait: Duration::from_millis(500),
            max_hops: 16,
        }
    }
}

/// Edges that form no valid routes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EdgesError {
    /// A member that forwards to itself, directly or over others.
    #[error("`{0}` would get its entries from itself: {1}; remove one of these edges")]
    Circle(String, String),
    /// More proxies in a row than are allowed.
    #[error("`{member}` is {hops} proxies away from a leader, and {limit} are allowed")]
    TooLong {
        /// Name of the member that is too far away.
        member: String,
        /// The number of proxies between it and a leader.
        hops: usize,
        /// `regions.proxy_max_hops` of the configuration.
        limit: usize,
    },
}

/// Checks edges, each from a member to the one that forwards to it.
///
/// # Errors
/// The first invalid edge.
pub fn check_edges(edges: &BTreeMap<String, String>, max_hops: usize) -> Result<(), EdgesError> {
    for member in edges.keys() {
        let mut route = vec![member.as_str()];
        while let Some(from) = route.last().and_then(|last| edges.get(*last)) {
            if route.contains(&from.as_str()) {
                route.push(from);
                return Err(EdgesError::Circle(from.clone(), route.join(" from ")));
            }
            route.push(from);
        }
        let hops = route.len() - 1;
        if hops > max_hops {
            return Err(EdgesError::TooLong {
                member: member.clone(),
                hops,
                limit: max_hops,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(text: &str) -> BTreeMap<String, String> {
        let pairs = text.split_whitespace().map(|edge| edge.split_once('<'));
        pairs
            .map(|pair| pair.map(|(to, from)| (to.to_owned(), from.to_owned())))
            .collect::<Option<_>>()
            .unwrap()
    }

    #[test]
    fn edges_without_a_circle_are_valid() {
        assert_eq!(check_edges(&edges("b<a c<b d<a"), 2), Ok(()));
        assert_eq!(check_edges(&BTreeMap::new(), 0), Ok(()));
        let circle = check_edges(&edges("b<a a<c c<b"), 9).unwrap_err();
        assert!(
            circle.to_string().contains("a from c from b from a"),
            "{circle}"
        );
        assert!(check_edges(&edges("a<a"), 9).is_err());
        let long = check_edges(&edges("b<a c<b d<c"), 2).unwrap_err();
        assert_eq!(
            long.to_string(),
            "`d` is 3 proxies away from a leader, and 2 are allowed"
        );
    }

    #[test]
    fn another_route_is_chosen_within_a_second() {
        let options = ProxyOptions::default();
        assert_eq!(options.silence(), Duration::from_millis(600));
        assert!(options.sign_of_life() * 2 < options.silence());
        assert!(options.silence() > options.wait);
    }
}
