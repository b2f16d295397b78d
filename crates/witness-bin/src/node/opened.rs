//! A member from its start to its end, in phases that are types: each has only what it can do.
//!
//! ```text
//!   Opened::open ──► answers calls, role `joining` ──► join ──► take_part ──► Running ──► stop
//!                       (identify, adopt, status)                                └─► failed: why
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use binlog_store::{BinlogStore, StoreError, StoreObserver};
use consensus::{IdentityBook, Returning, Timers};
use raft_types::{MemberId, MemberRecord, RingId};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use transport::{
    GrpcNetworkFactory, LocalMember, RunningServer, TlsMaterial, TransportConfig, serve,
};

use super::commands::Commands;
use super::directory_lock::DirectoryLock;
use super::error::NodeError;
use super::identity::{Claim, open_identity};
use super::joining::{Joining, come_back};
use super::member_state::{FoundOrder, MemberState, Phase};
use super::mysql::GuardCommand;
use super::ring_handle::RingHandle;
use super::running::{Running, take_part};
use crate::config::{Settings, TlsSettings};
use crate::status::ViewSource;

/// What the program gives its member.
#[derive(Default)]
pub struct Surroundings {
    /// Hears how long flushes take.
    pub flushes: Option<Arc<dyn StoreObserver>>,
    /// How a guard is started, which keeps readers off the mysqld of a database member when this process hangs or ends badly;
    /// none where this process is not one member.
    pub guard: Option<GuardCommand>,
}

/// A member that has its data directory and answers calls, and is on its way to its ring.
pub struct Opened {
    core: Core,
    founding: mpsc::Receiver<FoundOrder>,
}

/// A member that has come to its ring: its log is open, and was cut back if the ring had gone on without its end.
pub struct Joined {
    pub(super) ring: RingId,
    pub(super) log: BinlogStore,
    pub(super) returning: Returning,
    pub(super) network: GrpcNetworkFactory,
    /// When this member has to begin the ring.
    pub(super) first_members: Option<BTreeMap<MemberId, MemberRecord>>,
}

/// What a member has in every phase.
pub(super) struct Core {
    pub(super) settings: Arc<Settings>,
    pub(super) book: Arc<IdentityBook>,
    pub(super) state: Arc<MemberState>,
    pub(super) local: Arc<LocalMember>,
    pub(super) tls: Option<TlsMaterial>,
    pub(super) transport: TransportConfig,
    pub(super) timers: Timers,
    pub(super) with: Surroundings,
    commands: Commands,
    server: RunningServer,
    pub(super) tasks: Tasks,
    /// Last, so that the directory is free only when everything else is gone.
    _lock: DirectoryLock,
}

impl Opened {
    /// Takes the data directory and begins to answer calls.
    ///
    /// # Errors
    /// [`NodeError`]; the data directory is then free again.
    pub async fn open(settings: Settings, with: Surroundings) -> Result<Self, NodeError> {
        let data_dir = &settings.data_dir;
        std::fs::create_dir_all(data_dir).map_err(|source| NodeError::DataDir {
            path: data_dir.clone(),
            source,
        })?;
        let lock = DirectoryLock::take(data_dir)?;
        let claim = Claim {
            ring_name: settings.ring_name.clone(),
            member_id: settings.own.id,
            member_name: settings.own.name.clone(),
        };
        let book = Arc::new(open_identity(data_dir, &claim)?);
        let tls = settings.tls.as_ref().map(TlsSettings::load).transpose()?;
        let timers = Timers {
            heartbeat: settings.raft.heartbeat,
            lease: settings.raft.lease,
        };
        let transport = TransportConfig::for_timers(&timers);
        let settings = Arc::new(settings);
        let (orders, founding) = mpsc::channel(1);
        let state = Arc::new(MemberState::new(settings.clone(), book.clone(), orders));
        let local = Arc::new(LocalMember::new(book.clone(), state.clone()));
        let tasks = Tasks::default();
        let stop = tasks.stop.clone();
        let commands = Commands::new(state.clone(), tls.clone(), transport, stop);
        local.take_commands(Arc::new(commands.clone()));
        let listener = listen("member.listen", &settings.listen).await?;
        let server = serve(listener, local.clone(), tls.as_ref(), &transport)?;
        let core = Core {
            settings,
            book,
            state,
            local,
            tls,
            transport,
            timers,
            with,
            commands,
            server,
            tasks,
            _lock: lock,
        };
        Ok(Self { core, founding })
    }

    /// What the member says of itself, in this phase and in all that come.
    pub fn view(&self) -> Arc<dyn ViewSource> {
        self.core.state.clone()
    }

    /// Who carries out what operators order, likewise.
    pub fn commands(&self) -> Commands {
        self.core.commands.clone()
    }

    /// Cancelled when the member closes: until then it may be served to others.
    pub fn end(&self) -> CancellationToken {
        self.core.tasks.stop.clone()
    }

    /// Comes to the ring; waits for that as long as it takes. Dropped at any point, nothing is lost, and it may be called again.
    ///
    /// # Errors
    /// When waiting cannot help.
    pub async fn join(&mut self, bootstrap: bool) -> Result<Joined, NodeError> {
        let core = &self.core;
        let joining = Joining {
            settings: &core.settings,
            founding: &mut self.founding,
            book: &core.book,
            tls: core.tls.as_ref(),
            transport: core.transport,
            flushes: core.with.flushes.as_ref(),
            bootstrap,
        };
        let come = async {
            let (ring, mut log, first_members) = joining.join().await?;
            core.state.enter(Phase::LogOpen(log.handle()));
            core.local.report_of(Arc::new(log.handle()));
            let network = core.network();
            let calls = Arc::new(network.clone());
            let returning = come_back(&mut log, core.settings.own.id, calls).await?;
            Ok(Joined {
                ring,
                log,
                returning,
                network,
                first_members,
            })
        };
        come.await.inspect_err(|error| core.state.fails(error))
    }

    /// Takes part in the ring. Waits for no other member.
    ///
    /// # Errors
    /// When it cannot; what had begun is closed then.
    pub async fn take_part(self, joined: Joined) -> Result<Running, NodeError> {
        take_part(self.core, joined).await
    }

    /// Ends without having taken part.
    ///
    /// # Errors
    /// None of today's.
    pub async fn close(self) -> Result<(), NodeError> {
        self.core.close(None).await
    }
}

impl Core {
    /// What calls the other members.
    fn network(&self) -> GrpcNetworkFactory {
        let (book, tls) = (self.book.clone(), self.tls.clone());
        let region = self.settings.own.region.clone();
        match self.settings.regions.compression {
            None => GrpcNetworkFactory::new(book, tls, self.transport),
            Some(packed) => {
                GrpcNetworkFactory::compressing(book, tls, self.transport, region, packed)
            }
        }
    }

    /// Ends everything, the engine before the log, and frees the data directory.
    pub(super) async fn close(mut self, ring: Option<RingHandle>) -> Result<(), NodeError> {
        self.tasks.stop.cancel();
        self.server.shutdown().await;
        if let Some(ring) = &ring {
            // The engine ends when it has what it asked of the log, and a full disk may take for ever.
            ring.log.wait_for_no_room();
            ring.member.shutdown().await;
        }
        self.tasks.set.shutdown().await;
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
}

/// Everything that looks after a member. It ends with this, at the latest.
#[derive(Default)]
pub(super) struct Tasks {
    pub(super) stop: CancellationToken,
    set: JoinSet<()>,
}

impl Tasks {
    /// Spawns what is dropped when the member closes.
    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.set.spawn(async move {
            tokio::select! {
                () = task => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Spawns what ends by itself once `stop` is cancelled.
    pub(super) fn spawn_to_its_end(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.set.spawn(task);
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(super) async fn listen(key: &'static str, address: &str) -> Result<TcpListener, NodeError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| NodeError::Listen {
            key,
            address: address.to_owned(),
            source,
        })
}
