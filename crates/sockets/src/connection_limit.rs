//! A limit on the concurrent connections of a listener, applied fairly between source addresses.
//!
//! If a full listener rejected new connections, one client could block it for all others: it opens connections and stays silent. This
//! listener accepts the new connection and closes another one: the oldest connection of the address with the most connections. So a client
//! that floods a port closes its own connections, and a client at another address gets a place immediately. A connection with an
//! authenticated client can keep its place permanently ([`Place::keep`]).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The interval between log messages about a full listener, so that a flood does not fill the log.
const SAID_EVERY: Duration = Duration::from_secs(10);
/// The pause after a listener failed, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The places of one listener. Clones share them.
#[derive(Debug, Clone)]
pub struct ConnectionLimit {
    port: &'static str,
    most: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    /// The number of the next connection; a smaller one is older.
    next: u64,
    /// Connections that may lose their places, with the tokens that notify them.
    open: BTreeMap<u64, (IpAddr, CancellationToken)>,
    /// The number of connections that keep their places.
    kept: usize,
    /// When the log last reported that all places are taken.
    said: Option<Instant>,
}

impl ConnectionLimit {
    /// Creates a limit of `most` connections, at least one. `port` is the name of the listener in the log.
    #[must_use]
    pub fn new(port: &'static str, most: usize) -> Self {
        Self {
            port,
            most: most.max(1),
            taken: Arc::default(),
        }
    }

    /// Accepts the next connection to `listener`, and sets `TCP_NODELAY`. If all places are taken, the oldest connection of the address
    /// with the most connections loses its place; kept places do not count. If the listener fails, the error is logged, and accepting is
    /// tried again after a pause. Cancel-safe.
    pub async fn accept(&self, listener: &TcpListener) -> (TcpStream, SocketAddr, Place) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    // If this fails, the connection is already closed, and its reader receives the error.
                    let _ = stream.set_nodelay(true);
                    if let Some(place) = self.take(address.ip()) {
                        return (stream, address, place);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to {}", self.port);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Takes a place for a connection that was accepted in another way. The rules are the same as in [`ConnectionLimit::accept`]. Returns
    /// `None` if every place is kept.
    pub fn take(&self, address: IpAddr) -> Option<Place> {
        let source = source(address);
        let lost = CancellationToken::new();
        let mut taken = self.lock();
        if taken.kept >= self.most {
            self.say(
                &mut taken,
                address,
                "a new one from this address was refused",
            );
            return None;
        }
        let id = taken.next;
        taken.next += 1;
        taken.open.insert(id, (source, lost.clone()));
        if taken.open.len() + taken.kept > self.most
            && let Some(from) = taken.push_out()
        {
            self.say(
                &mut taken,
                from,
                "the oldest one from this address, which has the most, was closed for a new one",
            );
        }
        Some(Place {
            limit: self.clone(),
            id,
            lost,
            kept: AtomicBool::new(false),
        })
    }

    fn say(&self, taken: &mut Taken, from: IpAddr, what: &str) {
        if taken.said.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
            taken.said = Some(Instant::now());
            let (port, most) = (self.port, self.most);
            tracing::warn!(%from, "{port} has {most} connections, its limit: {what}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // A panic of an earlier holder could only leave a place occupied.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Takes the place of the oldest connection of the source with the most connections, and returns that source.
    fn push_out(&mut self) -> Option<IpAddr> {
        // For each source, the number of its connections, and the oldest one.
        let mut sources: BTreeMap<IpAddr, (usize, Reverse<u64>)> = BTreeMap::new();
        for (id, (source, _)) in &self.open {
            sources.entry(*source).or_insert((0, Reverse(*id))).0 += 1;
        }
        let (from, (_, Reverse(oldest))) = sources.into_iter().max_by_key(|(_, has)| *has)?;
        self.remove(oldest)?.cancel();
        Some(from)
    }

    /// Removes a connection; returns `None` if it has lost its place already.
    fn remove(&mut self, id: u64) -> Option<CancellationToken> {
        let (_, lost) = self.open.remove(&id)?;
        Some(lost)
    }
}

/// The place of a connection. It is freed when it is dropped.
#[derive(Debug)]
pub struct Place {
    limit: ConnectionLimit,
    id: u64,
    lost: CancellationToken,
    kept: AtomicBool,
}

impl Place {
    /// Keeps the place, so that other connections can no longer take it. Repeated calls cost almost nothing.
    pub fn keep(&self) {
        if self.is_kept() {
            return;
        }
        let mut taken = self.limit.lock();
        // A connection that has lost its place does not get it back.
        if taken.remove(self.id).is_some() {
            taken.kept += 1;
            self.kept.store(true, Ordering::Release);
        }
    }

    /// Returns true if other connections can no longer take the place.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire)
    }

    /// Waits until another connection has taken the place, so that this connection must be closed. Cancel-safe.
    pub fn lost(&self) -> WaitForCancellationFutureOwned {
        self.lost.clone().cancelled_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.limit.lock();
        match *self.kept.get_mut() {
            true => taken.kept -= 1,
            false => drop(taken.remove(self.id)),
        }
    }
}

/// Returns the source of an address. For IPv6, this is the 64-bit network, because a client usually owns a whole one.
fn source(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = !(u64::MAX as u128);
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(most: usize) -> ConnectionLimit {
        ConnectionLimit::new("a port", most)
    }

    fn take(limit: &ConnectionLimit, address: &str) -> Place {
        let place = limit.take(address.parse().expect("an address"));
        place.expect("a place")
    }

    fn lost(places: &[Place]) -> Vec<bool> {
        places
            .iter()
            .map(|place| place.lost.is_cancelled())
            .collect()
    }

    #[test]
    fn flooding_address_loses_its_own_connections() {
        let limit = limit(3);
        let others = [take(&limit, "10.0.0.1"), take(&limit, "10.0.0.2")];
        let flood: Vec<_> = (0..9).map(|_| take(&limit, "10.0.0.9")).collect();
        assert_eq!(lost(&others), [false, false]);
        assert_eq!(
            lost(&flood),
            [true, true, true, true, true, true, true, true, false],
            "the newest has the place"
        );
        let later = take(&limit, "10.0.0.3");
        assert_eq!(
            lost(&others),
            [true, false],
            "of those that have as many, the oldest"
        );
        assert!(!later.lost.is_cancelled());
    }

    #[test]
    fn ended_connection_frees_its_place() {
        let limit = limit(2);
        let first = take(&limit, "10.0.0.1");
        drop(take(&limit, "10.0.0.2"));
        drop(take(&limit, "10.0.0.2"));
        let _second = take(&limit, "10.0.0.2");
        assert!(!first.lost.is_cancelled());
        let third = take(&limit, "10.0.0.3");
        assert!(first.lost.is_cancelled());
        drop(first);
        assert!(!third.lost.is_cancelled());
        let taken = limit.lock();
        assert_eq!((taken.open.len(), taken.kept), (2, 0));
        let sources = taken.open.values().map(|(source, _)| *source);
        let sources: std::collections::BTreeSet<IpAddr> = sources.collect();
        assert_eq!(sources.len(), 2);
    }

    #[test]
    fn kept_place_is_not_lost() {
        let limit = limit(2);
        let member = take(&limit, "10.0.0.1");
        member.keep();
        member.keep();
        let flood = [take(&limit, "10.0.0.9"), take(&limit, "10.0.0.8")];
        assert!(!member.lost.is_cancelled());
        assert_eq!(lost(&flood), [true, false]);
        flood[0].keep();
        assert_eq!(limit.lock().kept, 1, "what is lost stays lost");
        flood[1].keep();
        let address = "10.0.0.7".parse().expect("an address");
        assert!(limit.take(address).is_none());
        drop(member);
        assert!(limit.take(address).is_some());
        drop(flood);
        assert_eq!(limit.lock().kept, 0);
    }

    #[test]
    fn ipv6_network_is_one_source() {
        let same = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|address| address.parse().expect("an address"));
            source(one) == source(other)
        };
        assert!(same("fd00::1", "fd00::ffff:0:0:2"));
        assert!(!same("fd00:0:0:1::1", "fd00:0:0:2::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
    }
}
