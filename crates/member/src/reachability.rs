//! Checks that the other members can reach this member and accept its certificate, and for how long they accept it.
//!
//! Debian maps a host's own name to 127.0.1.1 in `/etc/hosts`. A listener on that name can be reached only from the same host. A reload
//! refuses a certificate that the others would reject. At a start, the rejection is only logged as an error, because a member without
//! connections still serves its own host.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use transport::{TlsError, TlsMaterial, ValidFor};

use crate::settings::Settings;

/// Why the other members cannot reach the listen address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeardHereAlone {
    /// The problem, in one clause.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

impl Settings {
    /// Returns the member's address, if the member listens at this address and not at another one in `member.listen`.
    #[must_use]
    pub fn listens_at_its_address(&self) -> Option<&str> {
        (self.listen == self.own.address).then_some(self.listen.as_str())
    }

    /// Checks whether this member can be reached only from this host. `first` is the first IP address to which its own address resolves,
    /// and at which it listens.
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

/// Returns the host of `host:port`, without the brackets of an IPv6 address.
pub(crate) fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

/// Returns true if the name itself means this host.
fn is_this_host(host: &str) -> bool {
    let loopback = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    loopback || host.eq_ignore_ascii_case("localhost")
}

// The member's certificate.

/// Expiry is reported from this time before it, the same time as in the alert.
const REPORTED_BEFORE: Duration = DAY.saturating_mul(14);
const DAY: Duration = Duration::from_secs(86_400);

impl Settings {
    /// Reads the files for TLS between members, and checks them as a reload does.
    ///
    /// # Errors
    /// The file that cannot be used, or why no other member would accept the certificate.
    pub fn check_certificate(&self) -> Result<(), TlsError> {
        let Some(tls) = &self.tls else { return Ok(()) };
        self.check_shown(&tls.load()?).map(drop)
    }

    /// Checks a loaded certificate.
    pub(crate) fn check_shown(&self, tls: &TlsMaterial) -> Result<ValidFor, TlsError> {
        tls.check(host(&self.own.address), SystemTime::now())
    }
}

/// Logs if other members reject the certificate, or if it expires soon: immediately, after a renewal, and daily. Never returns.
pub(crate) async fn watch_certificate(tls: TlsMaterial, settings: Arc<Settings>) {
    loop {
        let renewed = tls.renewed();
        let checked = settings.check_shown(&tls);
        match &checked {
            Err(error) => tracing::error!("{error}"),
            Ok(valid) => {
                if let Some(words) = ends_soon(valid) {
                    tracing::warn!("{words}");
                }
            }
        }
        let left = checked.map_or(DAY, |valid| valid.left);
        // The next check is at the expiry at the latest.
        let next = DAY.min(left + Duration::from_secs(1));
        let _ = tokio::time::timeout(next, renewed).await;
    }
}

fn ends_soon(valid: &ValidFor) -> Option<String> {
    let file = valid.certificate.display();
    let left = match valid.left.as_secs() / DAY.as_secs() {
        _ if valid.left >= REPORTED_BEFORE => return None,
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    Some(format!(
        "the TLS certificate `{file}` expires in {left}, and the other members do not talk to this one then; put a new one there, and have \
         the member take it with `witness reload`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host() {
        assert_eq!(host("db-2:7400"), "db-2");
        assert_eq!(host("[::1]:7400"), "::1");
    }

    #[test]
    fn a_listener_on_loopback_is_unreachable() {
        let told = |own: &str, other: &str, first: &str| {
            heard_here_alone(own, [own, other].into_iter(), first.parse().unwrap())
        };
        let said = told("db-1:7400", "db-2:7400", "127.0.1.1").unwrap();
        assert!(said.what.contains("`db-1`") && said.what.contains("127.0.1.1"));
        assert!(said.advice.contains("\"0.0.0.0:7400\""), "{said:?}");
        assert!(told("db-1:7400", "10.0.0.2:7400", "::1").is_some());
        // Three cases: the address is in a network; all members are on this host; the name itself means this host.
        assert_eq!(told("db-1:7400", "db-2:7400", "10.0.0.1"), None);
        assert_eq!(told("db-1:7400", "db-1:7401", "127.0.1.1"), None);
        assert_eq!(told("db-1:7400", "127.0.0.1:7401", "127.0.1.1"), None);
        assert_eq!(told("localhost:7400", "db-2:7400", "127.0.0.1"), None);
        assert_eq!(told("[::1]:7400", "db-2:7400", "::1"), None);
    }
}

#[cfg(test)]
mod certificate_tests {
    use super::*;

    #[test]
    fn expiry_is_reported_two_weeks_before() {
        let warning = |hours| {
            ends_soon(&ValidFor {
                certificate: "db-1.crt".into(),
                left: Duration::from_secs(3_600) * hours,
            })
        };
        assert_eq!(warning(14 * 24), None);
        for (hours, left) in [
            (14 * 24 - 1, "in 13 days,"),
            (30, "in 1 day,"),
            (1, "in less than a day,"),
        ] {
            let words = warning(hours).unwrap();
            assert!(words.contains("`db-1.crt` expires"), "{words}");
            assert!(words.contains(left), "{words}");
        }
    }
}
