//! A member from its start to its end: takes its data directory, answers calls from the first moment,
//! comes to its ring, works, and stops in good order.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use binlog_store::{LogHandle, StoreError, StoreObserver};
use consensus::log_probe::LogProbe;
use consensus::{AppliedFloor, Bounds, Fault, IdentityBook, Member, MemberConfig, Timers};
use proxy::{Proxying, Records, Relay, RouteTable};
use raft_types::LogId;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use transport::{
    GrpcNetworkFactory, LocalMember, RunningServer, TlsMaterial, TransportConfig, serve,
};

use super::automatic_demotion::DemotionTask;
use super::binlog_serving;
use super::commands::CommandService;
use super::directory_lock::DirectoryLock;
use super::error::NodeError;
use super::identity::{Claim, open_identity};
use super::joining::{Joined, Joining, record_of};
use super::leaving::{Successor, give_leadership_away};
use super::log_opening::origin_gtids;
use super::log_reading::ReadableLog;
use super::member_state::MemberState;
use super::mysql::{
    Child, Given, GuardCommand, PrimaryHealth, Steering, connect_options, native_source,
    requirements,
};
use super::purging::{Retention, purge_as_configured};
use super::returning::come_back;
use super::ring_handle::RingHandle;
use super::rotation::keep_files_within;
use super::scrubbing::scrub;
use crate::config::{Settings, TlsSettings};
use crate::hooks;
use crate::status::{TravelView, ViewSource};

/// What the program gives its member.
#[derive(Default)]
pub struct Surroundings {
    /// Hears how long flushes take.
    pub flushes: Option<Arc<dyn StoreObserver>>,
    /// How a guard is started, which keeps readers off the mysqld of a database member when this process hangs or ends badly;
    /// none where this process is not one member.
    pub guard: Option<GuardCommand>,
}

/// A member's process.
///
/// ```text
///   launch ──► answers calls, role `joining` ──► join ──► takes part ──► stop
///                     (identify, adopt, status)             │
///                                                           └─► failed: why
/// ```
pub struct Node {
    config: Arc<Settings>,
    book: Arc<IdentityBook>,
    member_state: Arc<MemberState>,
    local: Arc<LocalMember>,
    tls: Option<TlsMaterial>,
    transport: TransportConfig,
    timers: Timers,
    with: Surroundings,
    commands: Arc<CommandService>,
    server: Mutex<Option<RunningServer>>,
    /// Ends everything that looks after the member.
    stop: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
    ring: Mutex<Option<RingHandle>>,
    /// Last, so that the directory is free only when everything else is gone.
    _lock: DirectoryLock,
}

impl Node {
    /// Takes the data directory and begins to answer calls.
    ///
    /// # Errors
    /// [`NodeError`]; the data directory is then free again.
    pub async fn launch(config: Settings, with: Surroundings) -> Result<Self, NodeError> {
        let data_dir = &config.data_dir;
        std::fs::create_dir_all(data_dir).map_err(|source| NodeError::DataDir {
            path: data_dir.clone(),
            source,
        })?;
        let lock = DirectoryLock::take(data_dir)?;
        let claim = Claim {
            ring_name: config.ring_name.clone(),
            member_id: config.own.id,
            member_name: config.own.name.clone(),
        };
        let book = Arc::new(open_identity(data_dir, &claim)?);
        let tls = config.tls.as_ref().map(TlsSettings::load).transpose()?;
        let timers = Timers {
            heartbeat: config.raft.heartbeat,
            lease: config.raft.lease,
        };
        let transport = TransportConfig::for_timers(&timers);
        let config = Arc::new(config);
        let member_state = Arc::new(MemberState::new(config.clone(), book.clone()));
        let local = Arc::new(LocalMember::new(book.clone(), member_state.clone()));
        let stop = CancellationToken::new();
        let commands =
            CommandService::new(member_state.clone(), tls.clone(), transport, stop.clone());
        let commands = Arc::new(commands);
        local.take_commands(commands.clone());
        let listener = listen("member.listen", &config.listen).await?;
        let server = serve(listener, local.clone(), tls.as_ref(), &transport)?;
        Ok(Self {
            config,
            book,
            member_state,
            local,
            tls,
            transport,
            timers,
            with,
            commands,
            server: Mutex::new(Some(server)),
            stop,
            tasks: Mutex::new(JoinSet::new()),
            ring: Mutex::new(None),
            _lock: lock,
        })
    }

    /// Comes to the ring and takes part in it; waits for that as long as it takes.
    ///
    /// # Errors
    /// When waiting cannot help.
    pub async fn join(&self, bootstrap: bool) -> Result<RingHandle, NodeError> {
        let joining = Joining {
            config: &self.config,
            member_state: &self.member_state,
            book: &self.book,
            tls: self.tls.as_ref(),
            transport: self.transport,
            flushes: self.with.flushes.as_ref(),
            bootstrap,
        };
        let joined = joining.join().await.inspect_err(|error| self.note(error))?;
        let handle = self
            .take_part(joined)
            .await
            .inspect_err(|error| self.note(error))?;
        *self.lock_ring() = Some(handle.clone());
        Ok(handle)
    }

    async fn take_part(&self, joined: Joined) -> Result<RingHandle, NodeError> {
        let log = joined.log.handle();
        self.member_state.set_log(log.clone());
        let network = self.network();
        let factory = network.clone();
        let calls = Arc::new(network.clone());
        let own_log = Arc::new(log.clone());
        self.local.report_of(own_log.clone());
        let own = record_of(&self.config.own);
        let proxying = self.config.regions.proxy.clone();
        // Two leases: one heartbeat that is late changes no route.
        let heard_within = self.timers.lease * 2;
        let routes = RouteTable::new(self.config.own.id, &own, proxying, heard_within);
        let (viewed, counted) = (routes.clone(), network.clone());
        self.member_state.set_travel(Box::new(move || {
            TravelView::new(viewed.routes(), viewed.traffic().counted(), &counted)
        }));
        let over_proxies = Proxying::new(network.clone(), network.clone(), routes.clone());
        let sent = LogProbe::new(over_proxies, own_log.clone(), &self.timers);
        let mut store = joined.log;
        let returning = come_back(&mut store, self.config.own.id, calls.clone()).await?;
        let config = MemberConfig {
            timers: self.timers,
            rules: self.config.rules.clone(),
            bounds: Bounds {
                proposals_bytes: self.config.raft.proposals_bytes,
                ..Bounds::default()
            },
            ..MemberConfig::new(joined.ring, self.config.own.id, self.config.own.kind)
        };
        let floor = applied_floor(&log);
        let starts = Arc::new(log.clone());
        let member = Member::start(config, store, sent, calls, floor, starts).await?;
        member.take_in_by(Arc::new(log.clone()));
        self.spawn(returning.campaign_when_known(member.clone()));
        let others_of = member.clone();
        self.spawn(async move { factory.keep_connected(|| others_of.others()).await });
        let inbound = member.inbound();
        let records: Records = Arc::new(move |member| inbound.record(member));
        let id = self.config.own.id;
        let relay = Relay::new(id, own_log, network.clone(), network, routes, records);
        self.local.send_on_by(Arc::new(relay));
        self.local.attach(member.inbound());
        self.member_state.set_raft(member.clone());
        if let Some(members) = joined.first_members {
            member.bootstrap(members).await?;
            self.book.founded()?;
        }
        let handle = RingHandle { member, log };
        self.local.serve_log(Arc::new(ReadableLog(handle.clone())));
        self.look_after(&handle)?;
        self.serve_binlog(&handle).await?;
        Ok(handle)
    }

    /// What calls the other members.
    fn network(&self) -> GrpcNetworkFactory {
        let (book, tls) = (self.book.clone(), self.tls.clone());
        let region = self.config.own.region.clone();
        match self.config.regions.compression {
            None => GrpcNetworkFactory::new(book, tls, self.transport),
            Some(packed) => {
                GrpcNetworkFactory::compressing(book, tls, self.transport, region, packed)
            }
        }
    }

    async fn serve_binlog(&self, ring: &RingHandle) -> Result<(), NodeError> {
        let Some(settings) = &self.config.binlog_server else {
            return Ok(());
        };
        let listener = listen("binlog_server.listen", &settings.listen).await?;
        let incarnation = self.book.identity().incarnation;
        let ready = binlog_serving::prepare(&self.config, settings, listener, ring, incarnation)?;
        let (server, log) = (ready.server, ready.log);
        let viewer = binlog_serving::viewer(server.consumers(), log.clone());
        self.member_state.set_consumers(Box::new(viewer));
        tracing::info!(address = %server.address(), "serving the binlog");
        self.spawn(async move { log.follow().await });
        // It ends its sessions itself.
        self.lock_tasks().spawn(server.serve(self.stop.clone()));
        Ok(())
    }

    fn look_after(&self, ring: &RingHandle) -> Result<(), NodeError> {
        let (member_state, member) = (self.member_state.clone(), ring.member.clone());
        self.spawn(async move { member_state.observer.observe(member).await });
        if self.config.hooks.any() {
            let (config, member_state) = (self.config.clone(), self.member_state.clone());
            self.spawn(async move {
                let figures = member_state.hooks.clone();
                hooks::run(
                    config.hooks.clone(),
                    config.mysql.as_ref(),
                    member_state,
                    figures,
                )
                .await;
            });
        }
        let (region, rate) = (self.config.own.region.clone(), self.config.log.scrub_rate);
        self.spawn(scrub(ring.clone(), region, rate));
        let retention = Retention::of(&self.config.log);
        let Some(settings) = &self.config.mysql else {
            self.spawn(keep_files_within(
                ring.clone(),
                self.config.log.max_file_bytes,
            ));
            self.spawn(purge_as_configured(ring.clone(), retention, None));
            return Ok(());
        };
        let identity = self.book.identity();
        let requirements = requirements(settings, identity.member, identity.incarnation);
        let connect = connect_options(settings);
        let connect = connect.map_err(|source| NodeError::PasswordFile {
            key: "mysql.password_file",
            source,
        })?;
        let asked = Some(connect.clone());
        self.spawn(purge_as_configured(ring.clone(), retention, asked));
        let config = &self.config;
        let native = native_source(config);
        let native = native.map_err(|source| NodeError::PasswordFile {
            key: "binlog_server.password_file",
            source,
        })?;
        let ring_of = ring.clone();
        let origin = origin_gtids(config, &self.book.origin())?;
        let given = Given {
            native,
            origin,
            guard: self.with.guard.clone(),
        };
        let steering = Steering::begin(config, settings, connect, requirements, given, ring_of);
        let steering = steering.map_err(|source| NodeError::DataDir {
            path: config.data_dir.clone(),
            source,
        })?;
        ring.member.set_writer(steering.clone());
        ring.member.set_database(steering.clone());
        self.member_state.set_steering(steering.clone());
        if let Some(patience) = settings.demote_after {
            let full = ring.member.clone();
            let watching = DemotionTask {
                member: ring.member.clone(),
                patience,
                health: Box::new(move || match full.is_full_alone() {
                    true => Some(PrimaryHealth::full()),
                    false => steering.health(),
                }),
                member_state: self.member_state.clone(),
            };
            self.spawn(watching.run());
        }
        Ok(())
    }

    /// What the member says of itself.
    pub fn view(&self) -> Arc<dyn ViewSource> {
        self.member_state.clone()
    }

    /// Who carries out what operators order.
    pub fn commands(&self) -> Arc<CommandService> {
        self.commands.clone()
    }

    /// Cancelled when the member closes: until then it may be served to others.
    pub fn end(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until the member, which takes part in its ring, cannot go on.
    pub async fn failed(&self) -> NodeError {
        let ring = self.lock_ring().clone();
        let error = match ring {
            Some(ring) => why_stopped(ring.member.fault().await, &ring.log),
            None => std::future::pending().await,
        };
        self.note(&error);
        error
    }

    /// Stops in good order: gives the leadership away if it can, lets mysqld finish, then makes
    /// everything durable.
    ///
    /// # Errors
    /// When the log cannot be closed.
    pub async fn stop(&self) -> Result<(), NodeError> {
        // First, behind what commits: the end of mysqld may take long, and the ring shall have a primary meanwhile.
        self.hand_over(Successor::Awaited).await;
        self.leave_mysql(Child::Stops).await;
        // Who waited for commits that took too long may take it now.
        self.hand_over(Successor::NowOrNever).await;
        self.close().await
    }

    async fn hand_over(&self, successor: Successor) {
        let member = self.lock_ring().as_ref().map(|ring| ring.member.clone());
        if let Some(member) = member {
            let mysql = self.config.mysql.as_ref();
            let statements =
                mysql.map_or(Duration::ZERO, |mysql| mysql.longest_wait_for_statements());
            give_leadership_away(&member, self.timers.lease, statements, successor).await;
        }
    }

    /// Stops in good order and leaves the election of another leader to the others.
    ///
    /// # Errors
    /// When the log cannot be closed.
    pub async fn stop_as_follower(&self) -> Result<(), NodeError> {
        self.leave_mysql(Child::Stops).await;
        self.close().await
    }

    /// Ends after a failure. A mysqld that is the member's child goes on: what waits there is decided
    /// when the member is back.
    ///
    /// # Errors
    /// Why the log had failed, if it had.
    pub async fn end_failed(&self) -> Result<(), NodeError> {
        self.leave_mysql(Child::Stays).await;
        self.close().await
    }

    async fn close(&self) -> Result<(), NodeError> {
        let ring = self.lock_ring().take();
        self.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.lock_tasks());
        let server = self
            .server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(server) = server {
            server.shutdown().await;
        }
        if let Some(ring) = &ring {
            // The engine ends when it has what it asked of the log, and a full disk may take for ever.
            ring.log.wait_for_no_room();
            ring.member.shutdown().await;
        }
        tasks.shutdown().await;
        let Some(ring) = ring else { return Ok(()) };
        let closed = tokio::task::spawn_blocking(move || ring.log.close()).await;
        match closed {
            Ok(Ok(()) | Err(StoreError::Closed)) => Ok(()),
            Ok(Err(error)) => Err(NodeError::Store(error)),
            Err(error) => Err(NodeError::Ended {
                what: "closing the log",
                why: error.to_string(),
            }),
        }
    }

    /// While it still leads, what mysqld has under way can be acknowledged.
    async fn leave_mysql(&self, child: Child) {
        if let Some(steering) = self.member_state.steering() {
            steering.end(child).await;
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.lock_tasks().spawn(async move {
            tokio::select! {
                () = task => {}
                () = stop.cancelled() => {}
            }
        });
    }

    fn note(&self, error: &NodeError) {
        self.member_state.set_failed(&error.to_string());
    }

    fn lock_ring(&self) -> std::sync::MutexGuard<'_, Option<RingHandle>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_tasks(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn listen(key: &'static str, address: &str) -> Result<TcpListener, NodeError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| NodeError::Listen {
            key,
            address: address.to_owned(),
            source,
        })
}

fn applied_floor(log: &LogHandle) -> AppliedFloor {
    let (last_applied, membership) = log.applied_at_open();
    AppliedFloor {
        last_applied: last_applied.map(LogId::from),
        membership,
    }
}

/// The engine says that its log failed; the log says how.
fn why_stopped(fault: Fault, log: &LogHandle) -> NodeError {
    match log.failure() {
        Some(error) => NodeError::Store(error),
        None => NodeError::Engine(fault),
    }
}
