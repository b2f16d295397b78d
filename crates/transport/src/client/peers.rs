//! The members that this member calls, each with its two connections and its last failure. All calls to a member share its connections.
//!
//! A member is called at its address in the ring's log. This member's configuration may have another address for it. If the first address
//! fails for [`GIVEN_UP_AFTER`], the two are tried in turn until one answers, which is used from then on. Only a leader can write a new
//! address into the log. So without this rule, a ring whose members have all moved could not elect a leader. A host that now belongs to
//! another member does not count as an answer, because each call names its recipient.

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

/// Options with which a member calls the others.
#[derive(Clone, Default)]
pub struct NetworkOptions {
    /// `None`: without TLS.
    pub tls: Option<TlsMaterial>,
    /// Deadlines.
    pub config: TransportConfig,
    /// This member's region, and the options for other regions; `None` if all members are in one region.
    pub far: Option<(Region, FarOptions)>,
    /// Folder of large compressed payloads.
    pub spill: SpillFolder,
    /// Replaces the system's sockets.
    pub streams: Option<Arc<dyn Streams>>,
    /// Replaces the system's resolver in tests.
    pub names: Option<Names>,
    /// The members' addresses in this member's configuration. They are tried if the address in the ring's log does not answer.
    pub configured: BTreeMap<MemberId, String>,
}

/// Bytes sent to one member over all its connections, counting gRPC messages without framing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkBytes {
    /// Entries with their payloads, as transmitted.
    pub entries: u64,
    /// Entries that are sent as op ids, for members that receive their payloads through the called member (a proxy).
    pub op_ids: u64,
    /// Heartbeats, which carry no entries.
    pub heartbeats: u64,
}

/// Counts the bytes to one member.
pub(crate) type LinkCounter = Arc<Mutex<LinkBytes>>;

/// All members that this member calls.
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

    /// Returns the peer for a member's record. If the record has changed, the peer gets new connections.
    pub(crate) fn peer(&self, id: MemberId, record: &MemberRecord) -> Arc<Peer> {
        let mut known = lock(&self.known);
        if let Some(peer) = known.get(&id)
            && peer.is(record)
        {
            let peer = peer.clone();
            return self.where_it_answers(&mut known, peer);
        }
        // A member that answered at its configured address is still there, regardless of the new address in the ring's log.
        let configured = self.configured_elsewhere(id, record);
        let before = known.get(&id).filter(|before| before.is_found_elsewhere());
        let found = configured.filter(|at| before.is_some_and(|before| before.address == **at));
        let address = found.unwrap_or(&record.address);
        let peer = Arc::new(self.connect(id, record, address, Arc::default()));
        known.insert(id, peer.clone());
        peer
    }

    /// Returns the peer for the newest record that was used in any call.
    pub(crate) fn newest(&self, id: MemberId) -> Option<Arc<Peer>> {
        let mut known = lock(&self.known);
        let peer = known.get(&id).cloned()?;
        Some(self.where_it_answers(&mut known, peer))
    }

    /// Returns the peer to use. If its address has failed for [`GIVEN_UP_AFTER`] and it has another address, the peer is changed to that
    /// address. If it refuses the certificate of its connections, it gets new connections.
    fn where_it_answers(
        &self,
        known: &mut BTreeMap<MemberId, Arc<Peer>>,
        peer: Arc<Peer>,
    ) -> Arc<Peer> {
        let (id, now) = (peer.id(), Instant::now());
        let other = match self.configured_elsewhere(id, &peer.record) {
            Some(configured) if peer.address == peer.record.address => Some(configured),
            Some(_) => Some(&peer.record.address),
            // Its name may have resolved to another member before, and to the right member now. The old connection would stay open.
            None if self.options.streams.is_none() && peer.is_taken_for_another() => {
                Some(&peer.address)
            }
            None => None,
        };
        let connect = |address| self.connect(id, &peer.record, address, peer.trouble.clone());
        let next = match other.filter(|_| peer.is_given_up(now)) {
            Some(other) => connect(other),
            // The old connections would be used forever; reloaded certificates apply only to new connections.
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

    /// Returns the configured address, if it differs from the address in the ring's log.
    fn configured_elsewhere(&self, id: MemberId, record: &MemberRecord) -> Option<&String> {
        let configured = self.options.configured.get(&id)?;
        (*configured != record.address).then_some(configured)
    }

    /// Creates the peer. Its first calls open the connections.
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

    /// Checks whether a process listens at one of a member's possible addresses. All addresses must refuse, as with several addresses of a
    /// name.
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

/// A member that is called, at one address.
pub(crate) struct Peer {
    own: Arc<IdentityBook>,
    pub(crate) config: TransportConfig,
    to: Party,
    /// The member's record in the ring's log.
    record: MemberRecord,
    /// The address that is called; it may differ from the address in the record.
    address: String,
    /// The connection for entries.
    pub(super) bulk: Result<RaftClient<Channel>, AddressError>,
    /// The connection for heartbeats, votes and transfers, which entries never delay.
    pub(super) urgent: Result<RaftClient<Channel>, AddressError>,
    /// How connections for entries are opened.
    for_entries: Connector,
    /// False if the member's program is known not to support streams over several connections.
    knows_stripes: AtomicBool,
    /// Compresses the payloads of entries for the member.
    pub(super) packer: Option<Arc<Packer>>,
    sent: LinkCounter,
    /// The sessions in which the member relays entries for this member.
    pub(crate) proxy_line: ProxyLine,
    /// Since when calls at this address have failed.
    fails_since: Mutex<Option<Instant>>,
    /// Since when these connections are used.
    since: Instant,
    /// True if the member refused a call because of the certificate of these connections.
    is_not_allowed: AtomicBool,
    /// The current failure, at any of the member's addresses.
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

    /// Returns new additional connections for one stream of entries, which are closed with the stream. `None` if one connection is enough.
    /// If they were kept, each later leader's connections would stay open as long as both processes run.
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
            // This stays false until the member's record changes, for example by an upgrade, or this process restarts.
            self.knows_stripes.store(false, Ordering::Relaxed);
        }
    }

    /// Counts sent bytes.
    pub(crate) fn count(&self, count: impl FnOnce(&mut LinkBytes)) {
        count(&mut lock(&self.sent));
    }

    /// Returns a message with its envelope.
    pub(crate) fn sealed<T>(&self, message: T) -> Request<T> {
        let own = self.own.identity();
        let envelope = Envelope {
            // A member without a ring makes no calls; a receiver would refuse them.
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

    /// Records that the member has answered.
    pub(crate) fn well(&self) {
        if lock(&self.trouble).take().is_some() {
            tracing::info!(member = %self.id(), address = %self.address, "the member answers again");
            self.is_there();
        }
    }

    /// Records that the member is at this address, even if its call failed.
    pub(crate) fn is_there(&self) {
        *lock(&self.fails_since) = None;
    }

    /// Returns true if the member answers at its configured address, instead of the address in the ring's log.
    fn is_found_elsewhere(&self) -> bool {
        self.address != self.record.address && lock(&self.fails_since).is_none()
    }

    /// Returns true if another member answers at this member's name, and refuses because it is not the recipient.
    fn is_taken_for_another(&self) -> bool {
        let trouble = lock(&self.trouble);
        let refused = trouble.as_ref().is_some_and(|last| last.refusal.is_some());
        refused
            && host_and_port(&self.address).is_some_and(|(host, _)| host.parse::<IpAddr>().is_err())
    }

    /// Returns why no answer arrived in time.
    pub(crate) fn silence(&self, deadline: Duration) -> String {
        match host_and_port(&self.address) {
            Some((host, _)) if self.for_entries.names.is_awaited(host) => {
                format!("the name `{host}` is still looked up after {deadline:?}")
            }
            _ => format!("no answer within {deadline:?}"),
        }
    }

    /// Returns true if this address has failed for so long that the other address should be tried.
    fn is_given_up(&self, now: Instant) -> bool {
        let fails_since = *lock(&self.fails_since);
        fails_since.is_some_and(|since| now.saturating_duration_since(since) >= GIVEN_UP_AFTER)
    }

    /// Returns true if new connections should be tried, because the member refuses the certificate of the present ones.
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

/// How long one address must fail before the other one is tried. It is longer than a member's restart, because a member nearly always stays
/// at its address.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(2);

// A member's current failure, and when to log it.

/// Minimum interval between log lines, because calls to a dead member fail with several different errors in turn.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The failure of the last call to a member. It is kept until a call is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTrouble {
    /// The refusal's code, if the member refused.
    pub refusal: Option<String>,
    /// The last call's error as text.
    pub message: String,
    logged: Instant,
}

impl PeerTrouble {
    /// Records a failed call. Returns true if the call should be logged: the first failure, a new refusal, and another error after
    /// [`LOG_INTERVAL`].
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
