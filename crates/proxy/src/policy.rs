//! The operator's choice: whether payloads go through proxies, and by which routes.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

/// How a leader chooses the route to a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProxyMode {
    /// Every member gets its entries from the leader itself.
    Off,
    /// In each region except the leader's own, one member receives the entries from the leader. The others in the region receive them
    /// through this member.
    #[default]
    Region,
    /// The key is a member's name, the value is the name of the member that forwards to it. A member without an entry receives its entries
    /// from the leader.
    Edges(BTreeMap<String, String>),
}

/// How payloads are sent over proxies. Must be the same on every member of a ring; otherwise a new leader chooses other routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyOptions {
    /// How the route is chosen.
    pub mode: ProxyMode,
    /// How long a proxy waits for entries that are on their way to it.
    pub wait: Duration,
    /// The maximum number of proxies between a leader and a member.
    pub max_hops: usize,
}

impl ProxyOptions {
    /// Returns how long a session may be silent while an answer is due. After that, another route is chosen. A working proxy sends a sign
    /// of life earlier.
    pub fn silence(&self) -> Duration {
        self.wait + self.wait / 5
    }

    /// Returns how often a proxy sends a sign of life while an answer is due.
    pub(crate) fn sign_of_life(&self) -> Duration {
        self.wait * 2 / 5
    }

    /// Returns how often conditions that depend on the time are checked.
    pub(crate) fn check_period(&self) -> Duration {
        self.silence() / 8
    }

    /// Returns how long a member may leave requests unanswered that a proxy has forwarded.
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

/// Why edges form no valid routes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EdgesError {
    /// A member would forward to itself, directly or through other members.
    #[error("`{0}` would get its entries from itself: {1}; remove one of these edges")]
    Circle(String, String),
    /// There are more proxies in a row than allowed.
    #[error("`{member}` is {hops} proxies away from a leader, and {limit} are allowed")]
    TooLong {
        /// Name of the member with too many proxies before it.
        member: String,
        /// The number of proxies between the member and a leader.
        hops: usize,
        /// The limit, `regions.proxy_max_hops` in the configuration.
        limit: usize,
    },
}

/// Checks edges. Each edge is from a member to the member that forwards to it.
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
