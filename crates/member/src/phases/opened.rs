//! The first phase: the member has its data directory, answers calls, and joins its ring.

use std::sync::Arc;

use consensus::Timers;
use spilling_bytes::SpillFolder;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transport::{LocalMember, TlsMaterial, TransportConfig, serve};

use super::joining::{Joined, Joining};
use super::running::{Running, take_part};
use super::{Base, Surroundings, Tasks, listen};
use crate::commands::Commands;
use crate::credentials::{Credentials, Renewed};
use crate::data_directory::{Claim, DirectoryLock, open_identity};
use crate::error::MemberError;
use crate::reachability;
use crate::settings::Settings;
use crate::state::{BootstrapOrder, MemberState};
use crate::status::ViewSource;

/// A member with its data directory that answers calls and has yet to join its ring.
pub struct Opened {
    base: Base,
    bootstrap_orders: mpsc::Receiver<BootstrapOrder>,
}

impl Opened {
    /// Locks the data directory and begins to answer calls.
    ///
    /// # Errors
    /// [`MemberError`]; the data directory is then unlocked again.
    pub async fn open(settings: Settings, with: Surroundings) -> Result<Self, MemberError> {
        let data_dir = &settings.data_dir;
        std::fs::create_dir_all(data_dir).map_err(|source| MemberError::DataDir {
            path: data_dir.clone(),
            source,
        })?;
        let lock = DirectoryLock::take(data_dir)?;
        let claim = Claim {
            ring_name: settings.ring_name.clone(),
            member_id: settings.own.id,
            member_name: settings.own.name.clone(),
        };
        let book = Arc::new(open_identity(data_dir, &claim, settings.program.formats)?);
        let credentials = Credentials::read(&settings)?;
        let spill = SpillFolder::open(data_dir.join("spill"), settings.log.disk_reserve_bytes);
        let timers = Timers {
            heartbeat: settings.raft.heartbeat,
            lease: settings.raft.lease,
        };
        let transport = TransportConfig::for_timers(&timers);
        let settings = Arc::new(settings);
        let (orders, bootstrap_orders) = mpsc::channel(1);
        let state = MemberState::new(settings.clone(), credentials, book.clone(), orders);
        let state = Arc::new(state);
        let local = Arc::new(LocalMember::new(book.clone(), state.clone()));
        local.hold_large_payloads_in(spill.clone());
        let mut tasks = Tasks::default();
        if let Some(tls) = state.credentials.tls.clone() {
            let settings = settings.clone();
            tasks.spawn_again("watching the certificate", move || {
                reachability::watch_certificate(tls.clone(), settings.clone())
            });
        }
        let commands = Commands {
            state: state.clone(),
            transport,
            stop: tasks.stop.clone(),
            reload: Arc::default(),
        };
        local.take_commands(Arc::new(commands.clone()));
        let listener = listen("member.listen", &settings.listen).await?;
        if let Ok(at) = listener.local_addr() {
            tracing::info!(%at, "listening for the other members");
            if let Some(alone) = settings.heard_here_alone(at.ip()) {
                tracing::warn!("{}: {}", alone.what, alone.advice);
            }
        }
        let tls = state.credentials.tls.as_ref();
        let server = serve(listener, local.clone(), tls, &transport).map_err(MemberError::Serve)?;
        let base = Base {
            settings,
            book,
            state,
            local,
            transport,
            spill,
            timers,
            with,
            commands,
            server,
            tasks,
            _lock: lock,
        };
        Ok(Self {
            base,
            bootstrap_orders,
        })
    }

    /// The member's view, in this phase and all later ones.
    pub fn view(&self) -> Arc<dyn ViewSource> {
        self.base.state.clone()
    }

    /// Executes operators' commands, likewise.
    pub fn commands(&self) -> Commands {
        self.base.commands.clone()
    }

    /// The certificate shown to other members, and their CA; none without TLS.
    pub fn tls(&self) -> Option<TlsMaterial> {
        self.base.state.credentials.tls.clone()
    }

    /// Gives the member newer certificates, passwords and hooks.
    pub fn renewal(&self) -> impl Fn(Renewed) + Send + Sync + 'static {
        let state = self.base.state.clone();
        move |newer| state.renew(newer)
    }

    /// Cancelled when the member closes: until then it may be served to others.
    pub fn end(&self) -> CancellationToken {
        self.base.tasks.stop.clone()
    }

    /// Joins the ring; waits as long as needed. May be dropped at any point without loss, and repeated.
    ///
    /// # Errors
    /// When waiting cannot help.
    pub async fn join(&mut self, bootstrap: bool) -> Result<Joined, MemberError> {
        let joining = Joining {
            base: &self.base,
            bootstrap_orders: &mut self.bootstrap_orders,
            bootstrap,
        };
        let joined = joining.join().await;
        joined.inspect_err(|error| self.base.state.fails(error))
    }

    /// Takes part in the ring. Waits for no other member.
    ///
    /// # Errors
    /// When it cannot; all that had begun is then closed.
    pub async fn take_part(self, joined: Joined) -> Result<Running, MemberError> {
        take_part(self.base, joined).await
    }

    /// Ends without having taken part.
    ///
    /// # Errors
    /// Currently none.
    pub async fn close(self) -> Result<(), MemberError> {
        self.base.close(None).await
    }
}
