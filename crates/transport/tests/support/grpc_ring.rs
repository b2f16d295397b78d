//! A ring of members in one process that talk gRPC over loopback.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use consensus::{
    AppliedFloor, Identity, IdentityBook, IdentityFile, Member, MemberConfig, Outcome, RingState,
    Term, Timers,
};
use futures::FutureExt;
use futures::future::BoxFuture;
use raft_types::{
    AppEntry, Incarnation, MemberId, MemberKind, MemberRecord, OpId, Region, RingId,
    TransactionPayload,
};
use tokio::net::TcpListener;
use transport::{
    GrpcNetworkFactory, LocalMember, RunningServer, StatusSource, TlsMaterial, TransportConfig,
    serve,
};

use super::memory_log::MemoryDisk;
use super::wire::Wire;

/// Short enough for tests, long enough for a busy machine.
pub(crate) const TIMERS: Timers = Timers {
    heartbeat: Duration::from_millis(100),
    lease: Duration::from_millis(600),
};

/// More than any of these rings needs for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An identity file that nobody reads again.
pub(crate) struct NoFile;

impl IdentityFile for NoFile {
    fn write(&self, _: &Identity) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) struct NoStatus;

impl StatusSource for NoStatus {
    fn status(&self) -> BoxFuture<'_, Vec<u8>> {
        async { b"{\"words\":\"nothing to say\"}".to_vec() }.boxed()
    }
}

/// One process, as it were.
pub(crate) struct Node {
    pub(crate) book: Arc<IdentityBook>,
    pub(crate) disk: MemoryDisk,
    pub(crate) factory: GrpcNetworkFactory,
    pub(crate) member: Member,
    pub(crate) server: RunningServer,
}

/// A ring; members are numbered from 1.
pub(crate) struct GrpcRing {
    pub(crate) id: RingId,
    pub(crate) timers: Timers,
    pub(crate) tls: Option<TlsMaterial>,
    pub(crate) records: BTreeMap<MemberId, MemberRecord>,
    pub(crate) nodes: BTreeMap<MemberId, Node>,
}

impl GrpcRing {
    /// A ring of these kinds, made by its first member.
    pub(crate) async fn of(kinds: &[MemberKind]) -> Self {
        Self::with(kinds, TIMERS, None).await
    }

    pub(crate) async fn with(
        kinds: &[MemberKind],
        timers: Timers,
        tls: Option<TlsMaterial>,
    ) -> Self {
        let mut listeners = Vec::new();
        let mut records = BTreeMap::new();
        for (id, &kind) in (1..).map(MemberId).zip(kinds) {
            let (listener, address) = listener().await;
            records.insert(id, record(id, kind, address));
            listeners.push((id, listener));
        }
        Self::made_of(records, listeners, timers, tls).await
    }

    /// A ring whose members reach each other through relays.
    pub(crate) async fn behind_wires(
        kinds: &[MemberKind],
        timers: Timers,
    ) -> (Self, BTreeMap<MemberId, Wire>) {
        let mut listeners = Vec::new();
        let mut records = BTreeMap::new();
        let mut wires = BTreeMap::new();
        for (id, &kind) in (1..).map(MemberId).zip(kinds) {
            let (listener, address) = listener().await;
            let (wire, address) = Wire::to(address).await;
            records.insert(id, record(id, kind, address));
            wires.insert(id, wire);
            listeners.push((id, listener));
        }
        let ring = Self::made_of(records, listeners, timers, None).await;
        (ring, wires)
    }

    async fn made_of(
        records: BTreeMap<MemberId, MemberRecord>,
        listeners: Vec<(MemberId, TcpListener)>,
        timers: Timers,
        tls: Option<TlsMaterial>,
    ) -> Self {
        let mut ring = Self {
            id: RingId::random(),
            timers,
            tls,
            records,
            nodes: BTreeMap::new(),
        };
        for (id, listener) in listeners {
            ring.start(id, listener, MemoryDisk::default()).await;
        }
        let founder = &ring.nodes[&MemberId(1)].member;
        founder.bootstrap(ring.records.clone()).await.unwrap();
        ring
    }

    pub(crate) fn member(&self, id: MemberId) -> &Member {
        &self.nodes[&id].member
    }

    pub(crate) fn config(&self) -> TransportConfig {
        TransportConfig::for_timers(&self.timers)
    }

    /// The identity that goes with a member's record.
    pub(crate) fn book(&self, id: MemberId) -> Arc<IdentityBook> {
        let identity = Identity {
            member: id,
            incarnation: self.records[&id].incarnation,
            ring: RingState::Belongs { ring: self.id },
        };
        Arc::new(IdentityBook::new(identity, Box::new(NoFile)))
    }

    /// Starts a member over its disk.
    pub(crate) async fn start(&mut self, id: MemberId, listener: TcpListener, disk: MemoryDisk) {
        let node = start_node(
            self.book(id),
            self.records[&id].kind,
            self.timers,
            self.tls.clone(),
            listener,
            disk,
        );
        self.nodes.insert(id, node.await);
    }

    /// Stops a member; its disk and its address stay.
    pub(crate) async fn stop(&mut self, id: MemberId) -> MemoryDisk {
        let node = self.nodes.remove(&id).unwrap();
        node.server.shutdown().await;
        node.member.shutdown().await;
        node.disk
    }

    /// Starts a stopped member again where it was.
    pub(crate) async fn restart(&mut self, id: MemberId, disk: MemoryDisk) {
        let listener = TcpListener::bind(&self.records[&id].address).await.unwrap();
        self.start(id, listener, disk).await;
    }

    /// Waits until one of the members serves, and says which and in which term.
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

    /// Proposes an entry to who serves, until it is committed.
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

    /// Waits until every running member knows that `op_id` is committed.
    pub(crate) async fn committed_everywhere(&self, op_id: OpId) {
        for node in self.nodes.values() {
            let mut committed = node.member.committed();
            let reached = committed.wait_for(|at| at.is_some_and(|at| at.index >= op_id.index));
            within("the commit mark", reached).await.unwrap();
        }
    }
}

/// Starts one member behind its server.
pub(crate) async fn start_node(
    book: Arc<IdentityBook>,
    kind: MemberKind,
    timers: Timers,
    tls: Option<TlsMaterial>,
    listener: TcpListener,
    disk: MemoryDisk,
) -> Node {
    let config = TransportConfig::for_timers(&timers);
    let local = Arc::new(LocalMember::new(book.clone(), Arc::new(NoStatus)));
    let server = serve(listener, local.clone(), tls.as_ref(), &config).unwrap();
    let factory = GrpcNetworkFactory::new(book.clone(), tls, config);
    let identity = book.identity();
    let member_config = MemberConfig {
        timers,
        ..MemberConfig::new(identity.ring.ring().unwrap(), identity.member, kind)
    };
    let member = Member::start(
        member_config,
        disk.open(),
        factory.clone(),
        Arc::new(factory.clone()),
        AppliedFloor::default(),
    );
    let member = member.await.unwrap();
    local.attach(member.inbound());
    Node {
        book,
        disk,
        factory,
        member,
        server,
    }
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
        address: address.to_string(),
        incarnation: Incarnation::random(),
    }
}

/// A future that must end in time.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {PATIENCE:?}"),
    }
}

pub(crate) fn transaction(bytes: impl Into<Bytes>) -> AppEntry {
    AppEntry::Transaction(TransactionPayload::seal(bytes.into()))
}
