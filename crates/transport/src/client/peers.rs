//! The called members: each with its two connections and its last failure. All calls to one member share its connections.
//!
//! A member is called at its address in the ring's log. If that fails for a while and this member's configuration has another one, the two
//! are tried in turns until one answers, which then stays. Only a leader can write a new address into the log, so that members that have
//! all moved could not elect one otherwise. A host that now belongs to another member does not count: an envelope names its recipient.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use std::{future, io, iter};

use consensus::Knock;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use raft_types::{MemberId, MemberRecord};
use ring_admin::{Envelope, IdentityBook, Party};
use sockets::{Found, LOOKUP_LIMIT, Names};
use thiserror::Error;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tower::service_fn;

use crate::client::far::{FURTHER_STRIPES, Far, FarLine};
use crate::client::knocking::{host_and_port, knock, knocked};
use crate::client::link_bytes::{LinkBytes, LinkCounters};
use crate::client::proxy_line::ProxyLine;
use crate::compression::{CompressionFigures, Packer};
use crate::config::{
    CONNECTION_WINDOW_BYTES, FRAME_BYTES, STREAM_WINDOW_BYTES, TlsMaterial, TransportConfig,
};
use crate::envelope;
use crate::schema::raft_client::RaftClient;
use crate::streams::{ByteStream, Streams};

/// All members that this one calls.
pub(crate) struct Peers {
    book: Arc<IdentityBook>,
    tls: Option<TlsMaterial>,
    config: TransportConfig,
    far: Option<Far>,
    /// Instead of the system's sockets.
    streams: Option<Arc<dyn Streams>>,
    /// Instead of the system's resolver. Set once.
    names: OnceLock<Names>,
    /// Members' addresses in this member's configuration. Set once.
    configured: OnceLock<BTreeMap<MemberId, String>>,
    known: Mutex<BTreeMap<MemberId, Arc<Peer>>>,
    counters: Mutex<BTreeMap<MemberId, Arc<LinkCounters>>>,
}

impl Peers {
    pub(crate) fn new(
        book: Arc<IdentityBook>,
        tls: Option<TlsMaterial>,
        config: TransportConfig,
        far: Option<Far>,
        streams: Option<Arc<dyn Streams>>,
    ) -> Self {
        Self {
            book,
            tls,
            config,
            far,
            streams,
            names: OnceLock::new(),
            configured: OnceLock::new(),
            known: Mutex::default(),
            counters: Mutex::default(),
        }
    }

    /// Sets the members' addresses in this member's configuration.
    pub(crate) fn also_at(&self, addresses: BTreeMap<MemberId, String>) {
        let _ = self.configured.set(addresses);
    }

    /// Sets the resolver.
    pub(crate) fn looks_up_by(&self, names: Names) {
        let _ = self.names.set(names);
    }

    fn names(&self) -> Names {
        let names = self.names.get_or_init(Names::of_the_system);
        names.clone()
    }

    /// The member by its record; a changed record replaces its connections.
    pub(crate) fn peer(&self, id: MemberId, record: &MemberRecord) -> Arc<Peer> {
        let mut known = self.lock();
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
        let mut known = self.lock();
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
            None if self.streams.is_none() && peer.is_taken_for_another() => Some(&peer.address),
            None => None,
        };
        let connect = |address| self.connect(id, &peer.record, address, peer.troubles.clone());
        let next = match other.filter(|_| peer.is_given_up(now)) {
            Some(other) => connect(other),
            // These would be used indefinitely; reloaded certificates apply only to new ones.
            None if peer.is_refused_for_its_certificate(now) => {
                let next = connect(&peer.address);
                *next.fails_since() = *peer.fails_since();
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
        let configured = self.configured.get()?.get(&id)?;
        (*configured != record.address).then_some(configured)
    }

    /// Connections are opened by their first call.
    fn connect(
        &self,
        id: MemberId,
        record: &MemberRecord,
        address: &str,
        troubles: Arc<Troubles>,
    ) -> Peer {
        let far = self.far.as_ref();
        let line = far.and_then(|far| far.line(record));
        let connector = |line: Option<FarLine>| Connector {
            tls: self.tls.clone(),
            line,
            streams: self.streams.clone(),
            names: self.names(),
        };
        let connect = |connector| lazy(address, connector, &self.config).map(RaftClient::new);
        let for_entries = connector(line.as_ref().map(FarLine::for_entries));
        Peer {
            own: self.book.clone(),
            config: self.config,
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
            packer: far.and_then(|far| far.packer(record)),
            counters: self.counters().entry(id).or_default().clone(),
            proxy_line: ProxyLine::default(),
            fails_since: Mutex::default(),
            since: Instant::now(),
            is_not_allowed: AtomicBool::new(false),
            troubles,
        }
    }

    /// Probes whether any process listens at a member's possible addresses. Each has to refuse, like the addresses of a name.
    pub(crate) async fn knock(&self, id: MemberId, record: &MemberRecord) -> Knock {
        let mut knocked = Knock::Silent;
        let configured = self.configured_elsewhere(id, record);
        for address in iter::once(&record.address).chain(configured) {
            match self.knock_at(address).await {
                Knock::Refused => knocked = Knock::Refused,
                answer => return answer,
            }
        }
        knocked
    }

    async fn knock_at(&self, address: &str) -> Knock {
        match &self.streams {
            Some(streams) => {
                knocked(streams.connect(address, None).await.err()).unwrap_or(Knock::Silent)
            }
            None => knock(address, &self.names()).await,
        }
    }

    /// Bytes sent to each member so far.
    pub(crate) fn link_bytes(&self) -> BTreeMap<MemberId, LinkBytes> {
        let counters = self.counters();
        let counted = counters.iter().map(|(id, link)| (*id, link.counted()));
        counted.collect()
    }

    fn counters(&self) -> MutexGuard<'_, BTreeMap<MemberId, Arc<LinkCounters>>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Savings by compression so far.
    pub(crate) fn compression(&self) -> CompressionFigures {
        let far = self.far.as_ref();
        far.map(Far::compression).unwrap_or_default()
    }

    /// Current failures, by member.
    pub(crate) fn troubles(&self) -> BTreeMap<MemberId, PeerTrouble> {
        let known = self.lock();
        let troubled = known
            .iter()
            .filter_map(|(id, peer)| Some((*id, peer.troubles.view()?)));
        troubled.collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MemberId, Arc<Peer>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
    bulk: Result<RaftClient<Channel>, AddressError>,
    /// Heartbeats, votes, transfers: never delayed by entries.
    urgent: Result<RaftClient<Channel>, AddressError>,
    /// How connections for entries are opened.
    for_entries: Connector,
    /// Whether its program supports streams over several connections, as far as known.
    knows_stripes: AtomicBool,
    packer: Option<Arc<Packer>>,
    /// Bytes sent to it.
    pub(crate) counters: Arc<LinkCounters>,
    /// What it relays for this member.
    pub(crate) proxy_line: ProxyLine,
    /// Since when calls at this address have failed.
    fails_since: Mutex<Option<Instant>>,
    /// Since when these connections are used.
    since: Instant,
    /// Whether it refused a call for the certificate of these connections.
    is_not_allowed: AtomicBool,
    /// For all its addresses.
    troubles: Arc<Troubles>,
}

impl Peer {
    fn is(&self, record: &MemberRecord) -> bool {
        self.record.address == record.address
            && self.record.incarnation == record.incarnation
            && self.record.region == record.region
    }

    /// Compresses payloads of entries for it.
    pub(crate) fn packer(&self) -> Option<Arc<Packer>> {
        self.packer.clone()
    }

    pub(crate) fn id(&self) -> MemberId {
        self.to.member
    }

    pub(crate) fn own_id(&self) -> MemberId {
        self.own.identity().member
    }

    pub(crate) fn bulk(&self) -> Result<RaftClient<Channel>, AddressError> {
        self.bulk.clone()
    }

    /// New further connections for one stream of entries, closed with the stream; `None` if one suffices. Kept connections would stay open
    /// for each leader as long as both processes run.
    pub(crate) fn stripes(&self) -> Option<Vec<RaftClient<Channel>>> {
        let may =
            self.for_entries.carries_entries_far() && self.knows_stripes.load(Ordering::Relaxed);
        may.then(|| {
            let one = || lazy(&self.address, self.for_entries.clone(), &self.config);
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

    pub(crate) fn urgent(&self) -> Result<RaftClient<Channel>, AddressError> {
        self.urgent.clone()
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
        if self.troubles.any.swap(false, Ordering::Relaxed) {
            tracing::info!(member = %self.id(), address = %self.address, "the member answers again");
            *self.troubles.lock() = None;
            self.is_there();
        }
    }

    /// Records that the member is at this address, even if the call failed.
    pub(crate) fn is_there(&self) {
        *self.fails_since() = None;
    }

    /// Whether it answers at the configured address instead of the ring's log's.
    fn is_found_elsewhere(&self) -> bool {
        self.address != self.record.address && self.fails_since().is_none()
    }

    /// Whether another member refuses at its name, because the calls are not addressed to it.
    fn is_taken_for_another(&self) -> bool {
        let troubles = self.troubles.lock();
        let refused = troubles.as_ref().is_some_and(|last| last.refusal.is_some());
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

    /// Whether this address has failed for so long that another one should be tried.
    fn is_given_up(&self, now: Instant) -> bool {
        let fails_since = *self.fails_since();
        fails_since.is_some_and(|since| now.saturating_duration_since(since) >= GIVEN_UP_AFTER)
    }

    /// Whether new connections should be tried, because it refuses the certificate of these.
    fn is_refused_for_its_certificate(&self, now: Instant) -> bool {
        self.is_not_allowed.load(Ordering::Relaxed)
            && now.saturating_duration_since(self.since) >= GIVEN_UP_AFTER
    }

    fn fails_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.fails_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failure, and logs it if it is new.
    pub(crate) fn troubled(&self, refusal: Option<&str>, message: &str) {
        let now = Instant::now();
        self.fails_since().get_or_insert(now);
        if Trouble::note(&mut self.troubles.lock(), refusal, message, now) {
            tracing::warn!(member = %self.id(), address = %self.address, %message, "the member cannot be called");
        }
        self.troubles.any.store(true, Ordering::Relaxed);
    }

    /// Records a failed call, and returns its error as text.
    pub(crate) fn failed(&self, status: &Status) -> String {
        let message = words(status);
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

/// The current failure of a member.
#[derive(Debug, Default)]
struct Troubles {
    any: AtomicBool,
    last: Mutex<Option<Trouble>>,
}

impl Troubles {
    fn view(&self) -> Option<PeerTrouble> {
        self.lock().as_ref().map(Trouble::view)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Trouble>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// A member's failures at recent calls, and when to log them.

/// Minimum interval between log lines: calls to a dead member fail with several different errors.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The failure of the last call to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTrouble {
    /// The refusal's code, if the member refused.
    pub refusal: Option<String>,
    /// The last call's error as text.
    pub message: String,
    /// How long the failure lasts.
    pub since: Duration,
}

/// Since the last answered call.
#[derive(Debug)]
pub(super) struct Trouble {
    refusal: Option<String>,
    message: String,
    since: Instant,
    told: Instant,
}

impl Trouble {
    /// Records a failed call. Returns whether to log it: the first one, one with a new refusal, and periodically one with another error.
    pub(super) fn note(
        before: &mut Option<Self>,
        refusal: Option<&str>,
        message: &str,
        now: Instant,
    ) -> bool {
        let other = |known: &Self| {
            known.refusal.as_deref() != refusal
                || known.message != message
                    && now.saturating_duration_since(known.told) >= TOLD_EVERY
        };
        let is_news = before.as_ref().is_none_or(other);
        let known = before.take();
        *before = Some(Self {
            refusal: refusal.map(str::to_owned),
            message: message.to_owned(),
            since: known.as_ref().map_or(now, |known| known.since),
            told: known.filter(|_| !is_news).map_or(now, |known| known.told),
        });
        is_news
    }

    pub(super) fn view(&self) -> PeerTrouble {
        PeerTrouble {
            refusal: self.refusal.clone(),
            message: self.message.clone(),
            since: self.since.elapsed(),
        }
    }
}

// Connections by address, and their errors.

/// An unusable address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{address}` is not an address that can be called ({reason}); write it as HOST:PORT")]
pub struct AddressError {
    address: String,
    reason: String,
}

/// A connection that is opened by its first call, and again after a failure. Must be called within its runtime.
///
/// Its deadline begins after the name lookup, which may take longer: calls that fail in the meantime wait for the same lookup.
pub(crate) fn lazy(
    address: &str,
    connector: Connector,
    config: &TransportConfig,
) -> Result<Channel, AddressError> {
    let refused = |reason: &dyn Error| AddressError {
        address: address.to_owned(),
        reason: chain(reason),
    };
    // Also with TLS: for the endpoint, `https` would mean its own TLS, with fixed certificates.
    let mut endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| refused(&error))?
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES);
    if !connector.carries_entries_far() {
        endpoint = endpoint
            .http2_keep_alive_interval(config.keepalive)
            .keep_alive_timeout(config.keepalive_deadline);
    }
    let config = *config;
    Ok(
        endpoint.connect_with_connector_lazy(service_fn(move |address: Uri| {
            let connecting = connector.clone().connect(address, config);
            async move { connecting.await.map(TokioIo::new) }
        })),
    )
}

/// How a connection is opened.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) tls: Option<TlsMaterial>,
    /// Options for another region.
    pub(crate) line: Option<FarLine>,
    /// Instead of the system's sockets.
    pub(crate) streams: Option<Arc<dyn Streams>>,
    pub(crate) names: Names,
}

impl Connector {
    /// Whether it carries entries to another region.
    fn carries_entries_far(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.carries_entries)
    }

    async fn connect(self, address: Uri, config: TransportConfig) -> Result<ByteStream, BoxError> {
        let found = match &self.streams {
            Some(_) => Found::default(),
            None => self.find(&address).await?,
        };
        let opening = self.open(&address, found.addresses, &config);
        let opened = tokio::time::timeout(config.connect_deadline, opening).await;
        opened
            .unwrap_or_else(|_| Err(late(&config)))
            .map_err(|error| {
                let Some(lookup) = found.outdated else {
                    return error;
                };
                let said = said_of_the_connection(&*error).unwrap_or_else(|| chain(&*error));
                io::Error::other(format!("{said} at its last known address; {lookup}")).into()
            })
    }

    async fn find(&self, address: &Uri) -> io::Result<Found> {
        let host = address.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = address.port_u16().unwrap_or_default();
        Ok(self.names.find(host, port, LOOKUP_LIMIT).await?)
    }

    async fn open(
        &self,
        address: &Uri,
        found: Vec<SocketAddr>,
        config: &TransportConfig,
    ) -> Result<ByteStream, BoxError> {
        let stream: ByteStream = match &self.streams {
            Some(streams) => {
                let authority = address
                    .authority()
                    .map_or("", |authority| authority.as_str());
                let given_up_after = self.carries_entries_far().then_some(config.far_deadline);
                streams.connect(authority, given_up_after).await?
            }
            None => {
                let found =
                    move |_: Name| future::ready(Ok::<_, Infallible>(found.clone().into_iter()));
                let mut tcp = HttpConnector::new_with_resolver(service_fn(found));
                tcp.set_nodelay(true);
                tcp.set_connect_timeout(Some(config.connect_deadline));
                let stream = tcp.call(address.clone()).await?.into_inner();
                if let Some(line) = &self.line {
                    line.tell(&stream, config.far_deadline)?;
                }
                Box::new(stream)
            }
        };
        Ok(match &self.tls {
            None => stream,
            Some(tls) => {
                let host = address.host().unwrap_or_default();
                Box::new(tls.connect(host, stream).await?)
            }
        })
    }
}

fn late(config: &TransportConfig) -> BoxError {
    let late = format!("no connection within {:?}", config.connect_deadline);
    io::Error::new(io::ErrorKind::TimedOut, late).into()
}

type BoxError = Box<dyn Error + Send + Sync>;

/// A status as text: the system's error of the connection if there is one, otherwise all causes.
pub(crate) fn words(status: &Status) -> String {
    if let Some(said) = status.source().and_then(said_of_the_connection) {
        return said;
    }
    match status.source() {
        Some(source) => format!("{}: {}", status.message(), chain(source)),
        None if status.message().is_empty() => status.code().description().to_owned(),
        None => status.message().to_owned(),
    }
}

/// Whether the other end does not support the protocol: its answer is invalid, or it closed the connection during the call. The result
/// depends on whether the caller is still writing at that time.
pub(crate) fn is_another_protocol(status: &Status) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    let closed = |error: &io::Error| matches!(error.kind(), BrokenPipe | ConnectionReset);
    status
        .source()
        .is_some_and(|source| connection_error(source).is_none_or(closed))
}

/// The innermost connection error: the kind of a system error ("connection refused"), otherwise the text (an unknown name, a certificate).
fn said_of_the_connection(error: &(dyn Error + 'static)) -> Option<String> {
    connection_error(error).map(|error| match error.raw_os_error() {
        Some(_) => error.kind().to_string(),
        None => error.to_string(),
    })
}

fn connection_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    let causes = iter::successors(Some(error), |error| (*error).source());
    causes
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .last()
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicUsize;
    use std::thread::sleep;

    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_connection_may_take_as_long_as_it_may_behind_a_lookup_that_takes_longer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let lookups = Arc::new(AtomicUsize::new(0));
        let count = lookups.clone();
        let names = Names::by(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(600));
            Ok(vec![Ipv4Addr::LOCALHOST.into()])
        });
        let connector = Connector {
            tls: None,
            line: None,
            streams: None,
            names,
        };
        let config = TransportConfig {
            connect_deadline: Duration::from_millis(200),
            ..TransportConfig::default()
        };
        let address: Uri = format!("http://member.test:{port}").parse().unwrap();
        let connect = || connector.clone().connect(address.clone(), config);
        connect().await.map(|_| ()).unwrap();
        connect().await.map(|_| ()).unwrap();
        assert_eq!(lookups.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_the_system_says_of_a_connection_is_said_once() {
        #[derive(Debug, Error)]
        #[error("tcp connect error")]
        struct Connect(#[source] io::Error);
        const ECONNREFUSED: i32 = 111;
        let refused = io::Error::from_raw_os_error(ECONNREFUSED);
        let mut status = Status::unavailable("transport error");
        status.set_source(Arc::new(Connect(refused)));
        assert_eq!(words(&status), "connection refused");
        let mut status = Status::unavailable("broken");
        status.set_source(Arc::new(io::Error::other("bad certificate")));
        assert_eq!(words(&status), "bad certificate");
    }

    #[test]
    fn a_member_that_is_gone_is_told_of_once_and_then_now_and_then() {
        let begin = Instant::now();
        let mut trouble = None;
        let mut note = |milliseconds, refusal, message| {
            let now = begin + Duration::from_millis(milliseconds);
            Trouble::note(&mut trouble, refusal, message, now)
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
        assert_eq!(trouble.unwrap().since, begin);
    }
}
