//! A ring of members in one process, over loopback gRPC.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use consensus::log_probe::LogProbe;
use consensus::{
    AppliedFloor, MemberConfig, Outcome, Term, Timers, TransferError, TransferRefusal,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use proxy::{ProxyMode, ProxyOptions, ProxyService, Proxying, Relay, RouteTable};
use raft_types::{
    AppEntry, Incarnation, MemberId, MemberKind, MemberRecord, OpId, Region, RingId,
    TransactionPayload,
};
use ring_admin::{
    Identity, IdentityBook, IdentityFile, IdentityPages, LogOrigin, Member, RingState,
};
use sockets::Names;
use tokio::net::TcpListener;
use transport::{
    FarOptions, GrpcNetworkFactory, LocalMember, NetworkOptions, RunningServer, StatusSource,
    TlsMaterial, TransportConfig, serve,
};

use super::memory_log::MemoryDisk;
use super::wire::Wire;

/// Timers that are short enough for tests, and long enough for a busy machine.
pub(crate) const TIMERS: Timers = Timers {
    heartbeat: Duration::from_millis(100),
    lease: Duration::from_millis(600),
};

/// Longer than every wait in these rings.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An identity file that is never read again.
pub(crate) struct NoFile;

impl IdentityFile for NoFile {
    fn write(&self, _: &IdentityPages) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct NoStatus;

impl StatusSource for NoStatus {
    fn status(&self) -> BoxFuture<'_, Vec<u8>> {
        async { b"{\"words\":\"nothing to say\"}".to_vec() }.boxed()
    }
}

/// A member that models one process.
pub(crate) struct Node {
    pub(crate) book: Arc<IdentityBook>,
    pub(crate) disk: MemoryDisk,
    pub(crate) factory: GrpcNetworkFactory,
    pub(crate) member: Member,
    pub(crate) server: RunningServer,
    /// The member's view of the routes to the others.
    pub(crate) routes: RouteTable,
}

/// A ring whose members are numbered from 1.
pub(crate) struct GrpcRing {
    pub(crate) id: RingId,
    pub(crate) timers: Timers,
    pub(crate) tls: Option<TlsMaterial>,
    pub(crate) config: TransportConfig,
    pub(crate) proxying: ProxyOptions,
    /// Options for other regions; `None` for the defaults.
    pub(crate) far: Option<FarOptions>,
    /// Replaces the member's relay as the proxy service.
    pub(crate) sends_on: Option<Arc<dyn ProxyService>>,
    pub(crate) records: BTreeMap<MemberId, MemberRecord>,
    /// The addresses of the other members in the configuration of members that are started.
    pub(crate) configured: BTreeMap<MemberId, String>,
    /// The name resolver of members that are started; `None` for the system's.
    pub(crate) names: Option<fn() -> Names>,
    pub(crate) nodes: BTreeMap<MemberId, Node>,
}

impl GrpcRing {
    /// Starts a ring of members of these kinds. The first member bootstraps it.
    pub(crate) async fn of(kinds: &[MemberKind]) -> Self {
        Self::with(kinds, TIMERS, None).await
    }

    pub(crate) async fn with(
        kinds: &[MemberKind],
        timers: Timers,
        tls: Option<TlsMaterial>,
    ) -> Self {
        let (records, listeners) = places(kinds).await;
        let config = TransportConfig::for_timers(&timers);
        Self::made_of(records, listeners, timers, tls, config).await
    }

    /// Starts a ring with this transport configuration.
    pub(crate) async fn waiting(kinds: &[MemberKind], config: TransportConfig) -> Self {
        let (records, listeners) = places(kinds).await;
        Self::made_of(records, listeners, TIMERS, None, config).await
    }

    /// Starts a ring whose members connect through relays.
    pub(crate) async fn behind_wires(
        kinds: &[MemberKind],
        timers: Timers,
    ) -> (Self, BTreeMap<MemberId, Wire>) {
        Self::wired(kinds, timers, None).await
    }

    /// Starts a ring whose members connect through relays, with this proxy service.
    pub(crate) async fn sending_on_by(
        kinds: &[MemberKind],
        service: Arc<dyn ProxyService>,
    ) -> (Self, BTreeMap<MemberId, Wire>) {
        Self::wired(kinds, TIMERS, Some(service)).await
    }

    async fn wired(
        kinds: &[MemberKind],
        timers: Timers,
        sends_on: Option<Arc<dyn ProxyService>>,
    ) -> (Self, BTreeMap<MemberId, Wire>) {
        let (mut records, listeners) = places(kinds).await;
        let mut wires = BTreeMap::new();
        for (id, record) in &mut records {
            let (wire, address) = Wire::to(record.address.parse().unwrap()).await;
            record.address = address.to_string();
            wires.insert(*id, wire);
        }
        let config = TransportConfig::for_timers(&timers);
        let ring = Self {
            sends_on,
            ..Self::empty(records, timers, config)
        };
        (ring.running(listeners).await, wires)
    }

    /// Starts a ring with members in these regions. It sends entries to other regions through proxies there.
    pub(crate) async fn proxying(places_of: &[(&str, MemberKind)]) -> Self {
        let kinds: Vec<_> = places_of.iter().map(|(_, kind)| *kind).collect();
        let (mut records, listeners) = places(&kinds).await;
        for (record, (region, _)) in records.values_mut().zip(places_of) {
            record.region = Region((*region).to_owned());
        }
        let config = TransportConfig::for_timers(&TIMERS);
        let ring = Self {
            proxying: ProxyOptions::default(),
            ..Self::empty(records, TIMERS, config)
        };
        ring.running(listeners).await
    }

    /// Starts a ring of three database members. The third one is far away; `front` provides its address.
    pub(crate) async fn one_far_away<F>(front: impl FnOnce(SocketAddr) -> F) -> (Self, MemberId)
    where
        F: Future<Output = SocketAddr>,
    {
        let (mut records, listeners) = places(&[MemberKind::Database; 3]).await;
        let (far, record) = records
            .last_entry()
            .map(|last| (*last.key(), last.into_mut()))
            .unwrap();
        record.region = Region("elsewhere".to_owned());
        record.address = front(record.address.parse().unwrap()).await.to_string();
        let config = TransportConfig::for_timers(&TIMERS);
        let ring = Self {
            far: Some(FarOptions::default()),
            ..Self::empty(records, TIMERS, config)
        };
        let ring = ring.running(listeners).await;
        let first = ring.commit(transaction("first")).await;
        ring.committed_everywhere(first).await;
        let (leader, _) = ring.serving().await;
        assert_ne!(leader, far, "the bootstrapping member leads");
        (ring, far)
    }

    /// Starts a ring of members that call each other by these names, with this resolver.
    pub(crate) async fn named(
        kinds: &[MemberKind],
        name: impl Fn(MemberId) -> String,
        names: fn() -> Names,
    ) -> Self {
        let (mut records, listeners) = places(kinds).await;
        for (id, record) in &mut records {
            let at: SocketAddr = record.address.parse().unwrap();
            record.address = format!("{}:{}", name(*id), at.port());
        }
        let config = TransportConfig::for_timers(&TIMERS);
        let ring = Self {
            names: Some(names),
            ..Self::empty(records, TIMERS, config)
        };
        ring.running(listeners).await
    }

    async fn made_of(
        records: BTreeMap<MemberId, MemberRecord>,
        listeners: Vec<(MemberId, TcpListener)>,
        timers: Timers,
        tls: Option<TlsMaterial>,
        config: TransportConfig,
    ) -> Self {
        let ring = Self {
            tls,
            ..Self::empty(records, timers, config)
        };
        ring.running(listeners).await
    }

    /// Creates a ring without running members and without proxies.
    fn empty(
        records: BTreeMap<MemberId, MemberRecord>,
        timers: Timers,
        config: TransportConfig,
    ) -> Self {
        Self {
            id: RingId::random(),
            timers,
            tls: None,
            config,
            proxying: ProxyOptions {
                mode: ProxyMode::Off,
                ..ProxyOptions::default()
            },
            far: None,
            sends_on: None,
            records,
            configured: BTreeMap::new(),
            names: None,
            nodes: BTreeMap::new(),
        }
    }

    async fn running(self, listeners: Vec<(MemberId, TcpListener)>) -> Self {
        let mut ring = self;
        for (id, listener) in listeners {
            ring.start(id, listener, MemoryDisk::default()).await;
        }
        let first = &ring.nodes[&MemberId(1)].member;
        first.bootstrap(ring.records.clone()).await.unwrap();
        ring
    }

    pub(crate) fn member(&self, id: MemberId) -> &Member {
        &self.nodes[&id].member
    }

    /// Returns the identity that matches a member's record.
    pub(crate) fn book(&self, id: MemberId) -> Arc<IdentityBook> {
        let identity = Identity {
            member: id,
            incarnation: self.records[&id].incarnation,
            ring: RingState::Belongs { ring: self.id },
        };
        Arc::new(IdentityBook::new(
            identity,
            LogOrigin::default(),
            Box::new(NoFile),
        ))
    }

    /// Starts a member with its disk.
    pub(crate) async fn start(&mut self, id: MemberId, listener: TcpListener, disk: MemoryDisk) {
        let setup = NodeSetup {
            book: self.book(id),
            record: self.records[&id].clone(),
            timers: self.timers,
            config: self.config,
            proxying: self.proxying.clone(),
            far: self.far.clone(),
            sends_on: self.sends_on.clone(),
            tls: self.tls.clone(),
            configured: self.configured.clone(),
            names: self.names.map(|names| names()),
        };
        let node = setup.start(listener, disk).await;
        self.nodes.insert(id, node);
    }

    /// Stops a member. Its disk and its address are kept.
    pub(crate) async fn stop(&mut self, id: MemberId) -> MemoryDisk {
        let node = self.nodes.remove(&id).unwrap();
        node.server.shutdown().await;
        node.member.shutdown().await;
        node.disk
    }

    /// Restarts a stopped member at its address.
    pub(crate) async fn restart(&mut self, id: MemberId, disk: MemoryDisk) {
        let listener = TcpListener::bind(&self.records[&id].address).await.unwrap();
        self.start(id, listener, disk).await;
    }

    /// Waits until a member serves. Returns it and its term.
    pub(crate) async fn serving(&self) -> (MemberId, Term) {
        within("a serving leader", async {
            loop {
                let serving = self.nodes.iter().find_map(|(id, node)| {
                    Some((*id, node.member.leadership().borrow().serving_term()?))
                });
                if let Some(serving) = serving {
                    return serving;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
    }

    /// Transfers the leadership to another member, which may not have answered the leader yet.
    pub(crate) async fn transfer(&self, leader: MemberId, to: MemberId) {
        within("the transfer", async {
            while let Err(error) = self.member(leader).transfer_leader(to).await {
                let silent = matches!(
                    error,
                    TransferError::Refused(TransferRefusal::Silent { .. })
                );
                assert!(silent, "{error}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Proposes an entry to the serving member, and repeats it until it is committed.
    pub(crate) async fn commit(&self, entry: AppEntry) -> OpId {
        within("a commit", async {
            loop {
                let (leader, term) = self.serving().await;
                let proposed = self.member(leader).propose(entry.clone(), term).await;
                if let Outcome::Committed(op_id) = proposed.unwrap().outcome().await {
                    return op_id;
                }
            }
        })
        .await
    }

    /// Waits until every running member has recorded `op_id` as committed.
    pub(crate) async fn committed_everywhere(&self, op_id: OpId) {
        for node in self.nodes.values() {
            let mut committed = node.member.committed();
            let reached = committed.wait_for(|at| at.is_some_and(|at| at.index >= op_id.index));
            within("the commit mark", reached).await.unwrap();
        }
    }
}

/// The parts of a member that does not run yet.
pub(crate) struct NodeSetup {
    pub(crate) book: Arc<IdentityBook>,
    pub(crate) record: MemberRecord,
    pub(crate) timers: Timers,
    pub(crate) config: TransportConfig,
    pub(crate) proxying: ProxyOptions,
    pub(crate) far: Option<FarOptions>,
    pub(crate) sends_on: Option<Arc<dyn ProxyService>>,
    pub(crate) tls: Option<TlsMaterial>,
    pub(crate) configured: BTreeMap<MemberId, String>,
    pub(crate) names: Option<Names>,
}

impl NodeSetup {
    /// Starts the server, and then the member.
    pub(crate) async fn start(self, listener: TcpListener, disk: MemoryDisk) -> Node {
        let Self {
            book,
            record,
            timers,
            config,
            proxying,
            far,
            sends_on,
            tls,
            configured,
            names,
        } = self;
        let local = Arc::new(LocalMember::new(book.clone(), Arc::new(NoStatus)));
        let server = serve(listener, local.clone(), tls.as_ref(), &config).unwrap();
        let options = NetworkOptions {
            tls,
            config,
            far: far.map(|options| (record.region.clone(), options)),
            names,
            configured,
            ..NetworkOptions::default()
        };
        let factory = GrpcNetworkFactory::new(book.clone(), options);
        let identity = book.identity();
        let member_config = MemberConfig {
            timers,
            ..MemberConfig::new(identity.ring.ring().unwrap(), identity.member, record.kind)
        };
        let routes = RouteTable::new(identity.member, &record, proxying, timers.lease);
        let network = Proxying::new(factory.clone(), factory.clone(), routes.clone());
        let network = LogProbe::new(network, Arc::new(disk.clone()), &timers);
        let _ = local.log.set(Arc::new(disk.clone()));
        let member = Member::start(
            member_config,
            disk.open(),
            network,
            Arc::new(factory.clone()),
            AppliedFloor::default(),
            Arc::new(disk.clone()),
        );
        let member = member.await.unwrap();
        let inbound = member.inbound();
        routes.know_the_ring(Arc::new(move |id| inbound.record(id)));
        let relay = Relay::new(
            identity.member,
            Arc::new(disk.clone()),
            factory.clone(),
            factory.clone(),
            routes.clone(),
        );
        let _ = local.proxy.set(sends_on.unwrap_or_else(|| Arc::new(relay)));
        let _ = local.inbound.set(member.inbound());
        Node {
            book,
            disk,
            factory,
            member,
            server,
            routes,
        }
    }
}

/// Returns a record and a listener for each member.
async fn places(
    kinds: &[MemberKind],
) -> (
    BTreeMap<MemberId, MemberRecord>,
    Vec<(MemberId, TcpListener)>,
) {
    let mut listeners = Vec::new();
    let mut records = BTreeMap::new();
    for (id, &kind) in (1..).map(MemberId).zip(kinds) {
        let (listener, address) = listener().await;
        records.insert(id, record(id, kind, address));
        listeners.push((id, listener));
    }
    (records, listeners)
}

/// Returns a member with a fresh data directory and no ring.
pub(crate) fn fresh_member(id: MemberId) -> Arc<LocalMember> {
    let identity = Identity::fresh(id);
    let book = IdentityBook::new(identity, LogOrigin::default(), Box::new(NoFile));
    Arc::new(LocalMember::new(Arc::new(book), Arc::new(NoStatus)))
}

pub(crate) async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

pub(crate) fn record(id: MemberId, kind: MemberKind, address: SocketAddr) -> MemberRecord {
    MemberRecord {
        name: format!("member-{id}"),
        region: Region("home".to_owned()),
        kind,
        votes: true,
        priority: MemberRecord::DEFAULT_PRIORITY,
        address: address.to_string(),
        incarnation: Incarnation::random(),
        ..MemberRecord::default()
    }
}

/// Panics if the future does not end in time.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {PATIENCE:?}"),
    }
}

pub(crate) fn transaction(bytes: impl Into<Bytes>) -> AppEntry {
    AppEntry::Transaction(TransactionPayload::seal(bytes.into()))
}
