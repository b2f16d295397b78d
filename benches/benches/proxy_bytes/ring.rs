//! The ring in this process: real members over gRPC with logs in memory, and a link for each pair of members.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use consensus::log_probe::{self, LogProbe, MemberClient, MemberNetwork};
use consensus::quorum::{QuorumPolicy, RingRules};
use consensus::{
    Answer, AppliedFloor, CallError, Greeting, Knock, MemberCalls, MemberConfig, Question, Term,
    Timers,
};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use futures::stream::BoxStream;
use proxy::{LineBroken, ProxyAnswers, ProxyCalls, ProxyRequest, Proxying, Relay, RouteTable};
use raft_types::{MemberId, MemberRecord, OwnLog, RingId};
use ring_admin::{
    Identity, IdentityBook, IdentityFile, IdentityPages, LogOrigin, Member, RingState,
};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use transport::{
    GrpcNetworkFactory, LocalMember, NetworkOptions, RunningServer, StatusSource, TransportConfig,
    serve,
};

use crate::delay_timer::DelayTimer;
use crate::links::{Counts, Forwarder, Heading, Journey, Lane, LinkId, Links};
use crate::load::Commit;
use crate::memory_log::MemoryDisk;
use crate::topology::{LEADER, Layout, NEIGHBOUR, Topology};
use crate::variant::Variant;

const READY_LIMIT: Duration = Duration::from_secs(30);
/// Poll interval for states that send no notifications.
const LOOK: Duration = Duration::from_millis(20);

/// The members of one layout in one process, and the links that count their bytes.
pub(crate) struct Ring {
    pub(crate) topology: Topology,
    nodes: BTreeMap<MemberId, Node>,
    links: Links,
    _forwarders: Vec<Forwarder>,
}

/// The parts of one member's process.
struct Node {
    member: Member,
    disk: MemoryDisk,
    routes: RouteTable,
    network: Addressed,
    server: RunningServer,
}

impl Ring {
    pub(crate) async fn make(
        layout: Layout,
        variant: Variant,
        delay_timer: &DelayTimer,
    ) -> Result<Self> {
        let topology = Topology::new(layout);
        let mut listeners = BTreeMap::new();
        let mut records = topology.records().clone();
        for (id, record) in &mut records {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            record.address = listener.local_addr()?.to_string();
            listeners.insert(*id, listener);
        }
        let (mut links, mut forwarders) = (Links::default(), Vec::new());
        let mut nodes = BTreeMap::new();
        let ring = RingId::random();
        for (id, listener) in listeners {
            let mut doors = Doors::new();
            for (to, record) in records.iter().filter(|(to, _)| **to != id) {
                let target: SocketAddr = record.address.parse()?;
                for lane in [Lane::Own, Lane::Proxied] {
                    let mut counter = |heading| {
                        links.counter(LinkId {
                            from: id,
                            to: *to,
                            lane,
                            heading,
                        })
                    };
                    let journey = Journey {
                        delay_timer: delay_timer.clone(),
                        one_way: topology.one_way(id, *to),
                        there: counter(Heading::There),
                        back: counter(Heading::Back),
                    };
                    let forwarder = Forwarder::start(target, journey).await?;
                    doors.insert((*to, lane), forwarder.address());
                    forwarders.push(forwarder);
                }
            }
            let node = start(ring, id, &records[&id], listener, doors, variant).await?;
            nodes.insert(id, node);
        }
        let ring = Self {
            topology,
            nodes,
            links,
            _forwarders: forwarders,
        };
        ring.leader().bootstrap(records).await?;
        Ok(ring)
    }

    pub(crate) fn leader(&self) -> &Member {
        &self.nodes[&LEADER].member
    }

    /// Waits until the primary accepts commits; returns its term.
    pub(crate) async fn serving(&self) -> Result<Term> {
        let mut leadership = self.leader().leadership();
        let serves = leadership.wait_for(|now| now.serving_term().is_some());
        let serves = tokio::time::timeout(READY_LIMIT, serves);
        let now = serves
            .await
            .context("the bootstrapping member does not lead")??;
        now.serving_term()
            .context("the bootstrapping member lost the leadership")
    }

    /// Waits until each region has its proxy, and the region's other members receive their entries through the proxy. Returns these
    /// other members.
    pub(crate) async fn through_proxies(&self) -> Result<BTreeSet<MemberId>> {
        let expected = self.topology.behind_followers().count();
        let all = async {
            loop {
                let routes = self.routes().routes().into_iter();
                let through = routes.filter(|way| !way.through.is_empty());
                let members: BTreeSet<_> = through.map(|way| way.member).collect();
                if members.len() == expected {
                    return members;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let chosen = tokio::time::timeout(READY_LIMIT, all).await;
        chosen.with_context(|| format!("no proxies: {:?}", self.routes().routes()))
    }

    /// Measures an empty call and its answer, between two members of the leader's region.
    pub(crate) async fn call_inside(&self) -> Result<Duration> {
        let record = &self.topology.records()[&NEIGHBOUR];
        let begun = Instant::now();
        let network = &self.nodes[&LEADER].network;
        let said = network
            .ask(
                NEIGHBOUR,
                record,
                Question::Greeting(Greeting::default()),
                READY_LIMIT,
            )
            .await?;
        let took = begun.elapsed();
        ensure!(matches!(said, Answer::Greeting { .. }), "{said:?}");
        Ok(took)
    }

    /// Returns how often the leader has fallen back from a proxy to a direct route.
    pub(crate) fn fallbacks(&self) -> u64 {
        self.routes().traffic().counted().fallbacks.values().sum()
    }

    /// Returns the traffic over all links so far.
    pub(crate) fn counts(&self) -> Counts {
        self.links.now()
    }

    /// Returns a member's log.
    pub(crate) fn log(&self, member: MemberId) -> &dyn OwnLog {
        &self.nodes[&member].disk
    }

    /// Waits until all members have the leader's whole log.
    pub(crate) async fn all_have_all(&self) -> Result<()> {
        let held_there = *self.log(LEADER).appended().borrow();
        for id in self.nodes.keys() {
            let mut appended = self.log(*id).appended();
            let has_it = appended.wait_for(|held| *held >= held_there);
            let has_it = tokio::time::timeout(READY_LIMIT, has_it).await;
            has_it.with_context(|| format!("member {id} does not get its entries"))??;
        }
        Ok(())
    }

    /// Stops all members before the next ring starts.
    pub(crate) async fn end(self) {
        let nodes = self.nodes.into_values();
        join_all(nodes.map(|node| async move {
            node.member.shutdown().await;
            node.server.shutdown().await;
        }))
        .await;
    }

    fn routes(&self) -> &RouteTable {
        &self.nodes[&LEADER].routes
    }
}

/// Starts a member as the `witness` program does, with a log in memory.
async fn start(
    ring: RingId,
    id: MemberId,
    record: &MemberRecord,
    listener: TcpListener,
    doors: Doors,
    variant: Variant,
) -> Result<Node> {
    let timers = Timers::default();
    let config = TransportConfig::for_timers(&timers);
    let identity = Identity {
        member: id,
        incarnation: record.incarnation,
        ring: RingState::Belongs { ring },
    };
    let origin = LogOrigin::default();
    let book = Arc::new(IdentityBook::new(identity, origin, Box::new(NoFile)));
    let local = Arc::new(LocalMember::new(book.clone(), Arc::new(NoStatus)));
    let server = serve(listener, local.clone(), None, &config)?;

    let factory = || {
        let options = NetworkOptions {
            config,
            ..NetworkOptions::default()
        };
        GrpcNetworkFactory::new(book.clone(), options)
    };
    let network = Addressed::new(factory(), factory(), doors);
    let disk = MemoryDisk::default();
    let log: Arc<dyn OwnLog> = Arc::new(disk.clone());
    let routes = RouteTable::new(id, record, variant.options(), timers.longest_election());
    let proxying = Proxying::new(network.clone(), network.clone(), routes.clone());
    let matching = LogProbe::new(proxying, log.clone(), &timers);
    let _ = local.log.set(log.clone());
    let member = Member::start(
        MemberConfig {
            timers,
            rules: RingRules {
                policy: QuorumPolicy::SingleRegionDynamic,
                ..RingRules::default()
            },
            ..MemberConfig::new(ring, id, record.kind)
        },
        disk.open(),
        matching,
        Arc::new(network.clone()),
        AppliedFloor::default(),
        Arc::new(disk.clone()),
    )
    .await?;
    let inbound = member.inbound();
    let _ = local.inbound.set(inbound.clone());
    routes.know_the_ring(Arc::new(move |member| inbound.record(member)));
    let relay = Relay::new(id, log, network.clone(), network.clone(), routes.clone());
    let _ = local.proxy.set(Arc::new(relay));
    Ok(Node {
        member,
        disk,
        routes,
        network,
        server,
    })
}

/// An identity file that is written and never read.
struct NoFile;

impl IdentityFile for NoFile {
    fn write(&self, _: &IdentityPages) -> io::Result<()> {
        Ok(())
    }
}

/// A status that is never requested.
struct NoStatus;

impl StatusSource for NoStatus {
    fn status(&self) -> BoxFuture<'_, Vec<u8>> {
        async { Vec::new() }.boxed()
    }
}

// A member's transport, which calls every other member over the link of the pair.

/// The addresses at which a member's links to other members begin.
pub(crate) type Doors = BTreeMap<(MemberId, Lane), SocketAddr>;

/// Calls each member through a link that counts bytes. A proxy is called over a second link, so that messages to it for other members
/// are counted separately; in production they use one connection. A proxied destination therefore has one connection with keepalives
/// more than needed.
#[derive(Clone)]
pub(crate) struct Addressed {
    own: GrpcNetworkFactory,
    proxied: GrpcNetworkFactory,
    doors: Arc<Doors>,
}

impl Addressed {
    /// Creates a transport. Both factories are for the same member.
    pub(crate) fn new(own: GrpcNetworkFactory, proxied: GrpcNetworkFactory, doors: Doors) -> Self {
        Self {
            own,
            proxied,
            doors: Arc::new(doors),
        }
    }

    /// Returns the record of a member with the address of the link to it.
    fn over(&self, to: MemberId, lane: Lane, record: &MemberRecord) -> MemberRecord {
        let door = self.doors.get(&(to, lane));
        MemberRecord {
            address: door.map_or_else(|| record.address.clone(), SocketAddr::to_string),
            ..record.clone()
        }
    }
}

impl MemberNetwork for Addressed {
    fn client(
        &self,
        lane: log_probe::Lane,
        to: MemberId,
        record: &MemberRecord,
    ) -> Box<dyn MemberClient> {
        self.own.client(lane, to, &self.over(to, Lane::Own, record))
    }
}

impl MemberCalls for Addressed {
    fn ask<'a>(
        &'a self,
        to: MemberId,
        record: &'a MemberRecord,
        question: Question,
        deadline: Duration,
    ) -> BoxFuture<'a, Result<Answer, CallError>> {
        async move {
            let record = self.over(to, Lane::Own, record);
            self.own.ask(to, &record, question, deadline).await
        }
        .boxed()
    }

    fn knock<'a>(
        &'a self,
        at: MemberId,
        record: &'a MemberRecord,
        deadline: Duration,
    ) -> BoxFuture<'a, Knock> {
        async move {
            let record = self.over(at, Lane::Own, record);
            self.own.knock(at, &record, deadline).await
        }
        .boxed()
    }
}

impl ProxyCalls for Addressed {
    fn open(
        &self,
        proxy: MemberId,
        record: &MemberRecord,
        onward: Vec<MemberId>,
        requests: BoxStream<'static, ProxyRequest>,
    ) -> BoxFuture<'static, Result<ProxyAnswers, LineBroken>> {
        let record = self.over(proxy, Lane::Proxied, record);
        self.proxied.open(proxy, &record, onward, requests)
    }
}

// When entries arrive in the logs of distant members.

/// Pairs of an index and the time from which the log has all entries before that index. Both increase from pair to pair.
type Growth = Arc<Mutex<Vec<(u64, Instant)>>>;

/// Records when entries arrive in logs, until it is dropped.
pub(crate) struct Arrivals(Vec<Watched>);

struct Watched {
    growth: Growth,
    watching: AbortHandle,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

impl Arrivals {
    pub(crate) fn watch(ring: &Ring, members: impl Iterator<Item = MemberId>) -> Self {
        Self(members.map(|member| watch(ring.log(member))).collect())
    }

    /// Returns the time from the client's answer to an entry's arrival, in milliseconds, for each commit and each log. Entries that have
    /// not arrived are omitted.
    pub(crate) fn lags_ms(&self, commits: &[Commit]) -> Vec<f64> {
        let logs = self.0.iter();
        logs.flat_map(|watched| {
            let growth = watched
                .growth
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let lags = commits.iter().map(|commit| lag_ms(&growth, commit));
            lags.collect::<Vec<_>>()
        })
        .flatten()
        .collect()
    }
}

fn watch(log: &dyn OwnLog) -> Watched {
    let growth = Growth::default();
    let mut appended = log.appended();
    let noted = growth.clone();
    let watching = tokio::spawn(async move {
        while appended.changed().await.is_ok() {
            let held_there = *appended.borrow_and_update();
            let mut growth = noted.lock().unwrap_or_else(PoisonError::into_inner);
            growth.push((held_there, Instant::now()));
        }
    });
    Watched {
        growth,
        watching: watching.abort_handle(),
    }
}

fn lag_ms(growth: &[(u64, Instant)], commit: &Commit) -> Option<f64> {
    let position = growth.partition_point(|(held_there, _)| *held_there <= commit.index);
    let (_, arrived) = growth.get(position)?;
    let after = arrived.checked_duration_since(commit.answered);
    let before = commit.answered.saturating_duration_since(*arrived);
    Some(after.map_or_else(|| -milliseconds(before), milliseconds))
}

fn milliseconds(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
