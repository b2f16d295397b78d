//! Whether the other members can reach a member's listen address. Debian maps a host's own name to 127.0.1.1 in `/etc/hosts`, so a listener
//! on that name is reachable on this host alone.

use std::net::IpAddr;

use crate::settings::Settings;

/// Other members cannot reach the listen address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeardHereAlone {
    /// The problem, in one clause.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

impl Settings {
    /// The member's address, if it listens there and not on `member.listen`.
    #[must_use]
    pub fn listens_at_its_address(&self) -> Option<&str> {
        (self.listen == self.own.address).then_some(self.listen.as_str())
    }

    /// Whether this member is reachable on this host only, where its own address resolves to `first`: there it listens.
    #[must_use]
    pub fn heard_here_alone(&self, first: IpAddr) -> Option<HeardHereAlone> {
        let own = self.listens_at_its_address()?;
        let members = self.members.iter().map(|member| member.address.as_str());
        heard_here_alone(own, members, first)
    }
}

fn heard_here_alone<'a>(
    own: &str,
    mut members: impl Iterator<Item = &'a str>,
    first: IpAddr,
) -> Option<HeardHereAlone> {
    let (name, port) = own.rsplit_once(':')?;
    let elsewhere = members.any(|member| {
        let host = host(member);
        host != name && !is_this_host(host)
    });
    (first.is_loopback() && !is_this_host(host(own)) && elsewhere).then(|| HeardHereAlone {
        what: format!(
            "`{name}`, the host of this member's address, means {first} on this host: it listens there, where no other member reaches it"
        ),
        advice: format!("set `member.listen` to \"0.0.0.0:{port}\", or to another address of this host"),
    })
}

pub(crate) fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

/// Whether the host's name itself means this host.
fn is_this_host(host: &str) -> bool {
    let loopback = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    loopback || host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_means_loopback_here_is_heard_by_nobody_else() {
        let told = |own: &str, other: &str, first: &str| {
            heard_here_alone(own, [own, other].into_iter(), first.parse().unwrap())
        };
        let said = told("db-1:7400", "db-2:7400", "127.0.1.1").unwrap();
        assert!(said.what.contains("`db-1`") && said.what.contains("127.0.1.1"));
        assert!(said.advice.contains("\"0.0.0.0:7400\""), "{said:?}");
        assert!(told("db-1:7400", "10.0.0.2:7400", "::1").is_some());
        // A network address; all members on this host; a name that means this host.
        assert_eq!(told("db-1:7400", "db-2:7400", "10.0.0.1"), None);
        assert_eq!(told("db-1:7400", "db-1:7401", "127.0.1.1"), None);
        assert_eq!(told("db-1:7400", "127.0.0.1:7401", "127.0.1.1"), None);
        assert_eq!(told("localhost:7400", "db-2:7400", "127.0.0.1"), None);
        assert_eq!(told("[::1]:7400", "db-2:7400", "::1"), None);
    }
}
