//! Looks up the addresses of host names with the system's resolver, for connections that are opened repeatedly.
//!
//! At every lookup, glibc waits five seconds for a name server before it asks the next one. If the first name server is down, a lookup
//! takes longer than the deadline of a connection between two members. So the lookup is not part of that deadline. All callers share one
//! lookup per name. It continues when its callers give up, and its result is kept. While the name servers are slow or do not answer, the
//! last addresses are used.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;

/// The longest wait for a name's first addresses, for a caller that cannot continue without them. If two name servers are down, glibc gives
/// up after the same time.
pub const LOOKUP_LIMIT: Duration = Duration::from_secs(20);
/// A result up to this age is used without a new lookup, because a member opens several connections at the same moment.
const AS_GOOD_AS_NEW: Duration = Duration::from_secs(1);
/// The longest wait for a new answer if an older one exists. A working name server answers within this time. So if a member's address
/// changes, its new address is used.
const MOMENT: Duration = Duration::from_millis(100);

/// Why a name has no addresses.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the name `{host}` cannot be looked up: {reason}")]
pub struct LookupError {
    host: String,
    reason: String,
}

impl From<LookupError> for io::Error {
    fn from(error: LookupError) -> Self {
        Self::other(error)
    }
}

type Addresses = Arc<[SocketAddr]>;
type Outcome = Result<Addresses, LookupError>;
type Resolver = dyn Fn(&str) -> io::Result<Addresses> + Send + Sync;

/// Looks up names, and keeps the results. Clones share the results.
#[derive(Clone)]
pub struct Names(Arc<Shared>);

struct Shared {
    resolver: Box<Resolver>,
    /// One entry per name, for example the names of a ring's members.
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Default)]
struct Known {
    found: Option<(Instant, Addresses)>,
    /// The last lookup. The channel is closed when the lookup has ended, and still contains the outcome.
    last: Option<watch::Receiver<Option<Outcome>>>,
}

/// The addresses of a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The addresses, in order of preference.
    pub addresses: Vec<SocketAddr>,
    /// Set if the addresses are from an earlier lookup: the error of the last lookup.
    pub outdated: Option<LookupError>,
}

impl Names {
    /// Returns the names of the system's resolver. All users in a process share the results.
    pub fn of_the_system() -> Self {
        static SHARED: LazyLock<Names> =
            LazyLock::new(|| Names::of(|host| Ok((host, 0).to_socket_addrs()?.collect())));
        SHARED.clone()
    }

    /// Returns the names of this resolver, which may block. Used in tests.
    pub fn by(resolver: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Self::of(move |host| {
            let ips = resolver(host)?.into_iter();
            Ok(ips.map(|ip| SocketAddr::new(ip, 0)).collect())
        })
    }

    fn of(resolver: impl Fn(&str) -> io::Result<Addresses> + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            resolver: Box::new(resolver),
            known: Mutex::default(),
        }))
    }

    /// Returns the addresses of a host, which is a name or an IP address. If addresses are known, a new lookup replaces them if it ends
    /// within 100 ms; otherwise, it continues for the next caller. If no addresses are known, waits at most `limit`.
    ///
    /// # Errors
    /// No lookup has ever succeeded, and this one fails or takes longer than `limit`.
    pub async fn find(&self, host: &str, port: u16, limit: Duration) -> Result<Found, LookupError> {
        let found = self.found(host);
        let outcome = match &found {
            None => self.look_up_within(host, limit).await,
            Some(found) => {
                let ended = timeout(MOMENT, self.look_up(host)).await;
                ended.unwrap_or_else(|_| Ok(found.clone()))
            }
        };
        match (outcome, found) {
            (Ok(found), _) => Ok(Found {
                addresses: with_port(&found, port),
                outdated: None,
            }),
            // A failed lookup proves nothing about the host, because the name server may be down.
            (Err(error), Some(found)) => Ok(Found {
                addresses: with_port(&found, port),
                outdated: Some(error),
            }),
            (Err(error), None) => Err(error),
        }
    }

    /// Returns the addresses of a host from a lookup that ends now, or ended within the last second. Older results are not used.
    ///
    /// # Errors
    /// The lookup fails.
    pub async fn find_anew(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, LookupError> {
        let found = self.look_up(host).await?;
        Ok(with_port(&found, port))
    }

    /// Waits at most `limit` until addresses of a host are known. They may be old.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub async fn wait_for_first(&self, host: &str, limit: Duration) -> Result<(), LookupError> {
        if self.found(host).is_none() {
            self.look_up_within(host, limit).await?;
        }
        Ok(())
    }

    /// True if a lookup for a name's first addresses is in progress.
    pub fn is_awaited(&self, host: &str) -> bool {
        let known = self.known();
        let known = known.get(host);
        known.is_some_and(|known| known.found.is_none() && known.under_way().is_some())
    }

    fn found(&self, host: &str) -> Option<Addresses> {
        let known = self.known();
        let (_, addresses) = known.get(host)?.found.as_ref()?;
        Some(addresses.clone())
    }

    async fn look_up_within(&self, host: &str, limit: Duration) -> Outcome {
        let ended = timeout(limit, self.look_up(host)).await;
        ended.unwrap_or_else(|_| {
            Err(failed(
                host,
                format!("no name server answers within {limit:?}"),
            ))
        })
    }

    /// Waits for the lookup in progress, or begins one.
    async fn look_up(&self, host: &str) -> Outcome {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok([SocketAddr::new(ip, 0)].into());
        }
        let mut lookup = self.begin(host)?;
        let ended = lookup.wait_for(Option::is_some).await;
        let outcome = ended.ok().and_then(|outcome| outcome.clone());
        outcome.unwrap_or_else(|| Err(failed(host, "the lookup broke off".to_owned())))
    }

    /// Returns the lookup in progress, or begins one. If the last result counts as new, returns a lookup that has ended already.
    fn begin(&self, host: &str) -> Result<watch::Receiver<Option<Outcome>>, LookupError> {
        let mut all = self.known();
        let known = all.entry(host.to_owned()).or_default();
        if let Some((at, addresses)) = &known.found
            && at.elapsed() < AS_GOOD_AS_NEW
        {
            return Ok(watch::channel(Some(Ok(addresses.clone()))).1);
        }
        if let Some(lookup) = known.under_way() {
            return Ok(lookup.clone());
        }
        let (outcome, lookup) = watch::channel(None);
        let (names, name) = (self.clone(), host.to_owned());
        // The lookup has its own thread: with a thread of a pool, the end of a program or a runtime would wait for the lookup.
        let begun = thread::Builder::new()
            .name("name lookup".to_owned())
            .spawn(move || {
                let said = names.0.ask(&name);
                if let (Ok(found), Some(known)) = (&said, names.known().get_mut(&name)) {
                    known.found = Some((Instant::now(), found.clone()));
                }
                outcome.send_replace(Some(said));
            });
        begun.map_err(|error| failed(host, error.to_string()))?;
        known.last = Some(lookup.clone());
        Ok(lookup)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        // Every change leaves the map consistent, even if a holder panics.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn under_way(&self) -> Option<&watch::Receiver<Option<Outcome>>> {
        let last = self.last.as_ref();
        last.filter(|lookup| lookup.has_changed().is_ok() && lookup.borrow().is_none())
    }
}

impl Shared {
    fn ask(&self, host: &str) -> Outcome {
        (self.resolver)(host).map_err(|error| {
            let reason = error.to_string();
            let shorter = reason.strip_prefix("failed to lookup address information: ");
            failed(host, shorter.unwrap_or(&reason).to_owned())
        })
    }
}

fn failed(host: &str, reason: String) -> LookupError {
    let host = host.to_owned();
    LookupError { host, reason }
}

fn with_port(addresses: &[SocketAddr], port: u16) -> Vec<SocketAddr> {
    let with_port = |address: &SocketAddr| {
        let mut address = *address;
        address.set_port(port);
        address
    };
    addresses.iter().map(with_port).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn found(last: u8) -> Found {
        Found {
            addresses: vec![SocketAddr::from(([127, 0, 0, last], 7400))],
            outdated: None,
        }
    }

    /// Names whose lookups wait for a message of the test. `Some` is the last number of the address; `None` is a failure.
    fn told() -> (Names, mpsc::Sender<Option<u8>>, Arc<AtomicUsize>) {
        let (tell, told) = mpsc::channel::<Option<u8>>();
        let told = Mutex::new(told);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let names = Names::by(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            match told.lock().unwrap().recv() {
                Ok(Some(last)) => Ok(vec![[127, 0, 0, last].into()]),
                _ => Err(io::Error::other("no such name")),
            }
        });
        (names, tell, asked)
    }

    /// Makes the results too old to count as new.
    fn grows_old(names: &Names) {
        let earlier = Instant::now().checked_sub(AS_GOOD_AS_NEW).unwrap();
        for known in names.known().values_mut() {
            known.found = known.found.take().map(|(_, found)| (earlier, found));
        }
    }

    #[tokio::test]
    async fn a_lookup_outlives_its_callers_and_is_shared() {
        let (names, tell, asked) = told();
        let short = Duration::from_millis(10);
        let (one, other) = tokio::join!(names.find("a", 7400, short), names.find("a", 7400, short));
        let error = one.unwrap_err().to_string();
        assert_eq!(
            error,
            "the name `a` cannot be looked up: no name server answers within 10ms"
        );
        other.unwrap_err();
        assert!(names.is_awaited("a"));
        tell.send(Some(1)).unwrap();
        assert_eq!(names.find("a", 7400, LIMIT).await.unwrap(), found(1));
        assert!(!names.is_awaited("a"));
        // The result is still new.
        assert_eq!(names.find("a", 7400, LIMIT).await.unwrap(), found(1));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn known_addresses_are_used_during_a_lookup() {
        let (names, tell, _) = told();
        tell.send(Some(1)).unwrap();
        assert_eq!(names.find("a", 7400, LIMIT).await.unwrap(), found(1));
        grows_old(&names);
        assert_eq!(names.find("a", 7400, LIMIT).await.unwrap(), found(1));
        assert!(!names.is_awaited("a"), "there are addresses to call");
        tell.send(Some(2)).unwrap();
        let again = names.find_anew("a", 7400).await.unwrap();
        assert_eq!(again, found(2).addresses);
        assert_eq!(names.find("a", 7400, LIMIT).await.unwrap(), found(2));
        grows_old(&names);
        // A new lookup comes first, because the name server works.
        tell.send(Some(3)).unwrap();
        assert_eq!(names.find("a", 7400, LIMIT).await.unwrap(), found(3));
    }

    #[tokio::test]
    async fn failed_lookup_keeps_known_addresses() {
        let (names, tell, _) = told();
        tell.send(None).unwrap();
        let error = names.find("a", 7400, LIMIT).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the name `a` cannot be looked up: no such name"
        );
        tell.send(Some(1)).unwrap();
        assert_eq!(names.find("a", 7400, LIMIT).await.unwrap(), found(1));
        grows_old(&names);
        tell.send(None).unwrap();
        let kept = Found {
            outdated: Some(error),
            ..found(1)
        };
        assert_eq!(names.find("a", 7400, LIMIT).await.unwrap(), kept);
        tell.send(None).unwrap();
        names.find_anew("a", 7400).await.unwrap_err();
        names.wait_for_first("a", LIMIT).await.unwrap();
    }

    #[tokio::test]
    async fn addresses_are_not_looked_up() {
        let (names, _, asked) = told();
        assert_eq!(
            names.find("127.0.0.9", 7400, LIMIT).await.unwrap(),
            found(9)
        );
        let v6 = names.find_anew("::1", 1).await.unwrap();
        assert_eq!(v6, ["[::1]:1".parse().unwrap()]);
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn system_resolver_is_used() {
        let names = Names::of_the_system();
        let localhost = names.find("localhost", 1, LIMIT).await.unwrap();
        let is_near = |address: &SocketAddr| address.ip().is_loopback() && address.port() == 1;
        assert!(localhost.addresses.iter().all(is_near), "{localhost:?}");
        let error = names.find("no.such.name.invalid", 1, LIMIT).await;
        let error = error.unwrap_err().to_string();
        let begins = "the name `no.such.name.invalid` cannot be looked up: ";
        assert!(error.starts_with(begins), "{error}");
    }
}
