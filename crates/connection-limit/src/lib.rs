//! At most so many connections at one time, shared out between the addresses that they come from.
//!
//! A listener that turns away whoever is one too many is closed to everybody by one caller who opens connections and says
//! nothing. Here the newcomer is let in, and another connection is closed for it: the oldest of the address that has the most.
//! Whoever floods a port pushes out its own connections, and a caller from elsewhere finds a place at once. A connection whose
//! caller has shown who it is can keep its place for good ([`Place::keep`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// How often it is said that a listener is full: a flood shall not fill the log as well.
const SAID_EVERY: Duration = Duration::from_secs(10);
/// After a listener failed, for want of file descriptors, say.
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
    /// Those that may lose their places, and how each hears of it.
    open: BTreeMap<u64, (IpAddr, CancellationToken)>,
    /// The same by where they come from.
    by_source: BTreeMap<IpAddr, BTreeSet<u64>>,
    /// How many keep theirs.
    kept: usize,
    /// When it was said last that all places are taken.
    said: Option<Instant>,
}

impl ConnectionLimit {
    /// For at most `most` connections, and one at least. `port` names the listener in the log.
    #[must_use]
    pub fn new(port: &'static str, most: usize) -> Self {
        Self {
            port,
            most: most.max(1),
            taken: Arc::default(),
        }
    }

    /// The next connection to `listener`, which sends without waiting for more to send (`TCP_NODELAY`). Where all places are taken,
    /// the oldest connection of the address that has most of them loses its place; those that keep theirs do not count. When the
    /// listener fails, that is logged, and tried again in a moment. May be dropped and called again.
    pub async fn accept(&self, listener: &TcpListener) -> (TcpStream, SocketAddr, Place) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    // An error: it is gone already, and whoever reads from it hears so.
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

    /// A place for a connection that was made in another way, as [`ConnectionLimit::accept`] gives one; `None`: there is none, since
    /// everybody keeps theirs.
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
        taken.by_source.entry(source).or_default().insert(id);
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
        // A panic in between could only leave a place taken.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Takes a place away from somebody, and says from which address.
    fn push_out(&mut self) -> Option<IpAddr> {
        let fullest = self.by_source.iter();
        let (from, ids) =
            fullest.max_by_key(|(_, ids)| (ids.len(), Reverse(ids.first().copied())))?;
        let (from, oldest) = (*from, *ids.first()?);
        self.remove(oldest)?.cancel();
        Some(from)
    }

    /// `None`: it has lost its place already.
    fn remove(&mut self, id: u64) -> Option<CancellationToken> {
        let (source, lost) = self.open.remove(&id)?;
        if let Some(ids) = self.by_source.get_mut(&source) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_source.remove(&source);
            }
        }
        Some(lost)
    }
}

/// A connection's place, until it is dropped.
#[derive(Debug)]
pub struct Place {
    limit: ConnectionLimit,
    id: u64,
    lost: CancellationToken,
    kept: AtomicBool,
}

impl Place {
    /// Is not lost to others any more. Costs next to nothing when it is called again.
    pub fn keep(&self) {
        if self.is_kept() {
            return;
        }
        let mut taken = self.limit.lock();
        // One that is lost already stays lost.
        if taken.remove(self.id).is_some() {
            taken.kept += 1;
            self.kept.store(true, Ordering::Release);
        }
    }

    /// Whether others cannot have it any more.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire)
    }

    /// Ends when the place is another's, and the connection has to be closed. May be dropped and asked for again.
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

/// Where an address belongs to: whoever has one of IPv6 usually has all of its network of 64 bits.
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
    fn who_floods_pushes_out_its_own() {
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
    fn a_place_is_free_again_when_its_connection_ends() {
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
        assert_eq!(taken.by_source.len(), 2);
    }

    #[test]
    fn what_is_kept_is_not_lost() {
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
    fn a_network_of_ipv6_is_one_caller() {
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
