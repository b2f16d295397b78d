//! The called members: each with its two connections and its last failure. All calls to one member share its connections.
//!
//! A member is called at its address in the ring's log. If that fails for a while and this member's configuration has another one, the two
//! are tried in turns until one answers, which then stays. Only a leader can write a new address into the log, so that members that have
//! all moved could not elect one otherwise. A host that now belongs to another member does not count: an envelope names its recipient.

use std::collections::BTreeMap;
use std::iter;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use consensus::Knock;
use raft_types::{MemberId, MemberRecord, Region, lock};
use ring_admin::{Envelope, IdentityBook, Party};
use sockets::Names;
use spilling_bytes::SpillFolder;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::client::connector::{
    AddressError, Connector, Streams, host_and_port, knock, knocked, lazy, message_of,
};
use crate::client::far::{FURTHER_STRIPES, Far, FarLine, FarOptions};
use crate::client::proxy_line::ProxyLine;
use crate::compression::Packer;
use crate::config::TransportConfig;
use crate::envelope;
use crate::schema::raft_client::RaftClient;
use crate::tls::TlsMaterial;

/// How a member calls the others.
#[derive(Clone, Default)]
pub struct NetworkOptions {
    /// `None`: without TLS.
    pub tls: Option<TlsMaterial>,
    /// Deadlines.
    pub config: TransportConfig,
    /// This member's region, and options for others; `None`: all members are in one region.
    pub far: Option<(Region, FarOptions)>,
    /// Folder of large compressed payloads.
    pub spill: SpillFolder,
    /// Instead of the system's sockets.
    pub streams: Option<Arc<dyn Streams>>,
    /// Instead of the system's resolver: for tests.
    pub names: Option<Names>,
    /// The members' addresses in this member's configuration, which are tried if the address in the ring's log does not answer.
    pub configured: BTreeMap<MemberId, String>,
}

/// Bytes sent to one member over all its connections, counting gRPC messages without framing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkBytes {
    /// Entries with their payloads, as transmitted.
    pub entries: u64,
    /// Entries as op ids, for members that get their payloads through this one.
    pub op_ids: u64,
    /// Heartbeats, which carry no entries.
    pub heartbeats: u64,
}

/// Counts the bytes to one member.
pub(crate) type LinkCounter = Arc<Mutex<LinkBytes>>;

/// All members that this one calls.
pub(crate) struct Peers {
    book: Arc<IdentityBook>,
    options: NetworkOptions,
    names: Names,
    pub(super) far: Option<Far>,
    pub(super) known: Mutex<BTreeMap<MemberId, Arc<Peer>>>,
    pub(super) counters: Mutex<BTreeMap<MemberId, LinkCounter>>,
}

impl Peers {
    pub(crate) fn new(book: Arc<IdentityBook>, options: NetworkOptions) -> Self {
        let far = options.far.clone();
        let names = options.names.clone();
        Self {
            book,
            names: names.unwrap_or_else(Names::of_the_system),
            far: far.map(|(own, far)| Far::new(own, far, options.spill.clone())),
            options,
            known: Mutex::default(),
            counters: Mutex::default(),
        }
    }

    /// The member by its record; a changed record replaces its connections.
    pub(crate) fn peer(&self, id: MemberId, record: &MemberRecord) -> Arc<Peer> {
        let mut known = lock(&self.known);
        if let Some(peer) = known.get(&id)
            && peer.is(record)
        {
            let peer = peer.clone();
            return self.where_it_answers(&mut known, peer);
        }
        // A member found at another address is still there, whatever address the ring's log now has.
        let configured = self.configured_elsewhere(id, record);
        let before = known.get(&id).filter(|before| before.is_found_elsewhere());
        let found = configured.filter(|at| before.is_some_and(|before| before.address == **at));
        let address = found.unwrap_or(&record.address);
        let peer = Arc::new(self.connect(id, record, address, Arc::default()));
        known.insert(id, peer.clone());
        peer
    }

    /// The member by the newest record used in any call.
    pub(crate) fn newest(&self, id: MemberId) -> Option<Arc<Peer>> {
        let mut known = lock(&self.known);
        let peer = known.get(&id).cloned()?;
        Some(self.where_it_answers(&mut known, peer))
    }

    /// The same member at its other address, if it has one and this one has failed for a while; over new connections if it refuses these
    /// connections' certificate.
    fn where_it_answers(
        &self,
        known: &mut BTreeMap<MemberId, Arc<Peer>>,
        peer: Arc<Peer>,
    ) -> Arc<Peer> {
        let (id, now) = (peer.id(), Instant::now());
        let other = match self.configured_elsewhere(id, &peer.record) {
            Some(configured) if peer.address == peer.record.address => Some(configured),
            Some(_) => Some(&peer.record.address),
            // Its name may have resolved to another member, and to this one now. The connection would stay.
            None if self.options.streams.is_none() && peer.is_taken_for_another() => {
                Some(&peer.address)
            }
            None => None,
        };
        let connect = |address| self.connect(id, &peer.record, address, peer.trouble.clone());
        let next = match other.filter(|_| peer.is_given_up(now)) {
            Some(other) => connect(other),
            // These would be used indefinitely; reloaded certificates apply only to new ones.
            None if peer.is_refused_for_its_certificate(now) => {
                let next = connect(&peer.address);
                *lock(&next.fails_since) = *lock(&peer.fails_since);
                next
            }
            None => return peer,
        };
        let next = Arc::new(next);
        known.insert(id, next.clone());
        next
    }

    /// The configured address, if it differs from the one in the ring's log.
    fn configured_elsewhere(&self, id: MemberId, record: &MemberRecord) -> Option<&String> {
        let configured = self.options.configured.get(&id)?;
        (*configured != record.address).then_some(configured)
    }

    /// Connections are opened by their first call.
    fn connect(
        &self,
        id: MemberId,
        record: &MemberRecord,
        address: &str,
        trouble: Arc<Mutex<Option<PeerTrouble>>>,
    ) -> Peer {
        let far = self.far.as_ref().filter(|far| far.own != record.region);
        let line = far.map(|far| far.line.clone());
        let connector = |line: Option<FarLine>| Connector {
            config: self.options.config,
            tls: self.options.tls.clone(),
            line,
            streams: self.options.streams.clone(),
            names: self.names.clone(),
        };
        let connect = |connector| lazy(address, connector).map(RaftClient::new);
        let mut for_entries = connector(line.clone());
        if let Some(line) = &mut for_entries.line {
            line.carries_entries = true;
        }
        Peer {
            own: self.book.clone(),
            config: self.options.config,
            to: Party {
                member: id,
                incarnation: record.incarnation,
            },
            record: record.clone(),
            address: address.to_owned(),
            bulk: connect(for_entries.clone()),
            for_entries,
            urgent: connect(connector(line)),
            knows_stripes: AtomicBool::new(true),
            packer: far.and_then(|far| far.packer.clone()),
            sent: lock(&self.counters).entry(id).or_default().clone(),
            proxy_line: ProxyLine::default(),
            fails_since: Mutex::default(),
            since: Instant::now(),
            is_not_allowed: AtomicBool::new(false),
            trouble,
        }
    }

    /// Probes whether any process listens at a member's possible addresses. Each has to refuse, like the addresses of a name.
    pub(crate) async fn knock(&self, id: MemberId, record: &MemberRecord) -> Knock {
        let mut refused = Knock::Silent;
        let configured = self.configured_elsewhere(id, record);
        for address in iter::once(&record.address).chain(configured) {
            let answer = match &self.options.streams {
                Some(streams) => knocked(streams.connect(address, None).await.err()),
                None => Some(knock(address, &self.names).await),
            };
            match answer.unwrap_or(Knock::Silent) {
                Knock::Refused => refused = Knock::Refused,
                answer => return answer,
            }
        }
        refused
    }
}

/// One member that is called.
pub(crate) struct Peer {
    own: Arc<IdentityBook>,
    pub(crate) config: TransportConfig,
    to: Party,
    /// As in the ring's log.
    record: MemberRecord,
    /// The address that is called, possibly another one.
    address: String,
    /// The connection for entries.
    pub(super) bulk: Result<RaftClient<Channel>, AddressError>,
    /// Heartbeats, votes, transfers: never delayed by entries.
    pub(super) urgent: Result<RaftClient<Channel>, AddressError>,
    /// How connections for entries are opened.
    for_entries: Connector,
    /// Whether its program supports streams over several connections, as far as known.
    knows_stripes: AtomicBool,
    /// Compresses payloads of entries for it.
    pub(super) packer: Option<Arc<Packer>>,
    sent: LinkCounter,
    /// What it relays for this member.
    pub(crate) proxy_line: ProxyLine,
    /// Since when calls at this address have failed.
    fails_since: Mutex<Option<Instant>>,
    /// Since when these connections are used.
    since: Instant,
    /// Whether it refused a call for the certificate of these connections.
    is_not_allowed: AtomicBool,
    /// The current failure, at any of its addresses.
    pub(super) trouble: Arc<Mutex<Option<PeerTrouble>>>,
}

impl Peer {
    fn is(&self, record: &MemberRecord) -> bool {
        self.record.address == record.address
            && self.record.incarnation == record.incarnation
            && self.record.region == record.region
    }

    pub(crate) fn id(&self) -> MemberId {
        self.to.member
    }

    pub(crate) fn own_id(&self) -> MemberId {
        self.own.identity().member
    }

    /// New further connections for one stream of entries, closed with the stream; `None` if one suffices. Kept connections would stay open
    /// for each leader as long as both processes run.
    pub(crate) fn stripes(&self) -> Option<Vec<RaftClient<Channel>>> {
        let may =
            self.for_entries.carries_entries_far() && self.knows_stripes.load(Ordering::Relaxed);
        may.then(|| {
            let one = || lazy(&self.address, self.for_entries.clone());
            let all = iter::repeat_with(one).take(FURTHER_STRIPES);
            all.flatten().map(RaftClient::new).collect()
        })
    }

    /// Records a failure to open a stream over several connections.
    pub(crate) fn note_stripes(&self, failure: &Status) {
        if failure.code() == Code::Unimplemented {
            // Until its record changes, as after an upgrade, or this process restarts.
            self.knows_stripes.store(false, Ordering::Relaxed);
        }
    }

    /// Counts sent bytes.
    pub(crate) fn count(&self, count: impl FnOnce(&mut LinkBytes)) {
        count(&mut lock(&self.sent));
    }

    /// A message with its envelope.
    pub(crate) fn sealed<T>(&self, message: T) -> Request<T> {
        let own = self.own.identity();
        let envelope = Envelope {
            // A member without a ring makes no calls; the receiver would refuse them.
            ring: own.ring.ring().unwrap_or_default(),
            from: Party {
                member: own.member,
                incarnation: own.incarnation,
            },
            to: self.to,
            format: self.own.calls_in(),
            speaks: self.own.speaks(),
        };
        let mut request = Request::new(message);
        envelope::seal(&envelope, request.metadata_mut());
        request
    }

    /// Records an answer.
    pub(crate) fn well(&self) {
        if lock(&self.trouble).take().is_some() {
            tracing::info!(member = %self.id(), address = %self.address, "the member answers again");
            self.is_there();
        }
    }

    /// Records that the member is at this address, even if the call failed.
    pub(crate) fn is_there(&self) {
        *lock(&self.fails_since) = None;
    }

    /// Whether it answers at the configured address instead of the ring's log's.
    fn is_found_elsewhere(&self) -> bool {
        self.address != self.record.address && lock(&self.fails_since).is_none()
    }

    /// Whether another member refuses at its name, because the calls are not addressed to it.
    fn is_taken_for_another(&self) -> bool {
        let trouble = lock(&self.trouble);
        let refused = trouble.as_ref().is_some_and(|last| last.refusal.is_some());
        refused
            && host_and_port(&self.address).is_some_and(|(host, _)| host.parse::<IpAddr>().is_err())
    }

    /// Why no answer came in time.
    pub(crate) fn silence(&self, deadline: Duration) -> String {
        match host_and_port(&self.address) {
            Some((host, _)) if self.for_entries.names.is_awaited(host) => {
                format!("the name `{host}` is still looked up after {deadline:?}")
            }
            _ => format!("no answer within {deadline:?}"),
        }
    }

    /// True if this address has failed for so long that another one should be tried.
    fn is_given_up(&self, now: Instant) -> bool {
        let fails_since = *lock(&self.fails_since);
        fails_since.is_some_and(|since| now.saturating_duration_since(since) >= GIVEN_UP_AFTER)
    }

    /// Whether new connections should be tried, because it refuses the certificate of these.
    fn is_refused_for_its_certificate(&self, now: Instant) -> bool {
        self.is_not_allowed.load(Ordering::Relaxed)
            && now.saturating_duration_since(self.since) >= GIVEN_UP_AFTER
    }

    /// Records a failure, and logs it if it is new.
    pub(crate) fn troubled(&self, refusal: Option<&str>, message: &str) {
        let now = Instant::now();
        lock(&self.fails_since).get_or_insert(now);
        if PeerTrouble::note(&mut lock(&self.trouble), refusal, message, now) {
            tracing::warn!(member = %self.id(), address = %self.address, %message, "the member cannot be called");
        }
    }

    /// Records a failed call, and returns its error as text.
    pub(crate) fn failed(&self, status: &Status) -> String {
        let message = message_of(status);
        if status.code() == Code::PermissionDenied {
            self.is_not_allowed.store(true, Ordering::Relaxed);
        }
        self.troubled(envelope::refusal_code(status), &message);
        message
    }
}

/// How long one address fails before the other one is tried, if there is one. Longer than a member's restart: it almost always stays at its
/// address.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(2);

// A member's failures at recent calls, and when to log them.

/// Minimum interval between log lines: calls to a dead member fail with several different errors.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The failure of the last call to a member, until one is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTrouble {
    /// The refusal's code, if the member refused.
    pub refusal: Option<String>,
    /// The last call's error as text.
    pub message: String,
    logged: Instant,
}

impl PeerTrouble {
    /// Records a failed call. Returns whether to log it: the first one, one with a new refusal, and periodically one with another error.
    fn note(before: &mut Option<Self>, refusal: Option<&str>, message: &str, now: Instant) -> bool {
        let other = |known: &Self| {
            known.refusal.as_deref() != refusal
                || known.message != message
                    && now.saturating_duration_since(known.logged) >= LOG_INTERVAL
        };
        let known = before.take().filter(|known| !other(known));
        *before = Some(Self {
            refusal: refusal.map(str::to_owned),
            message: message.to_owned(),
            logged: known.as_ref().map_or(now, |known| known.logged),
        });
        known.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_failures_are_logged_at_intervals() {
        let begin = Instant::now();
        let mut trouble = None;
        let mut note = |milliseconds, refusal, message| {
            let now = begin + Duration::from_millis(milliseconds);
            PeerTrouble::note(&mut trouble, refusal, message, now)
        };
        assert!(note(0, None, "connection refused"));
        assert!(!note(100, None, "no answer within 500ms"));
        assert!(!note(200, None, "connection refused"));
        assert!(note(300, Some("another_ring"), "it is of another ring"));
        assert!(!note(400, Some("another_ring"), "it is of another ring"));
        assert!(note(500, None, "connection refused"));
        assert!(!note(10_499, None, "no answer within 500ms"));
        assert!(note(10_500, None, "connection refused"));
        assert!(!note(30_000, None, "connection refused"));
        assert!(note(30_001, None, "no answer within 500ms"));
    }
}
