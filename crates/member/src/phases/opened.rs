//! The first phase: the member has its data directory, answers calls, and joins its ring. There are three cases: the directory belongs to a
//! ring, waits until it is added to one, or bootstraps one. It bootstraps because of `--bootstrap`, or continues an unfinished bootstrap.
//! If the ring has continued without the end of this member's log, the log is truncated first.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use binlog_store::{
    BinlogStore, DiskFileSystem, LogHandle, ProgressCallback, SledMeta, StoreOptions,
};
use consensus::{MemberCalls, Recollection, Timers};
use futures::future::join_all;
use raft_types::{MemberId, MemberRecord, RingId};
use ring_admin::{
    BootstrapRefusal, IdentityBook, IdentityError, LogOrigin, Rejoin, Returning, RingState,
};
use spilling_bytes::SpillFolder;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transport::{
    AdminCalls, AdminClient, GrpcNetworkFactory, LocalMember, NetworkOptions, RingBootstrapError,
    TlsMaterial, TransportConfig, bootstrap_ring, serve,
};

use super::{Base, Surroundings, Tasks, listen};
use crate::commands::Commands;
use crate::credentials::{Credentials, Renewed};
use crate::data_directory::{Claim, DirectoryLock, META, open_identity};
use crate::error::MemberError;
use crate::protocol::Refusal;
use crate::reachability;
use crate::ring_handle::now_in_seconds;
use crate::settings::{MemberEntry, Settings};
use crate::state::{BootstrapOrder, MemberState, Phase};
use crate::status::ViewSource;

/// Interval between two requests to the other members for their ring.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How long a bootstrap waits for the other members: practically until it is stopped.
const BOOTSTRAP_PATIENCE: Duration = Duration::from_secs(365 * 86_400);

/// How long a bootstrap waits for the other members while an operator waits.
const ORDERED_PATIENCE: Duration = Duration::from_secs(10);

/// A member that has its data directory and answers calls, but has not joined its ring yet.
pub struct Opened {
    pub(super) base: Base,
    /// Receives the orders to bootstrap the ring.
    bootstrap_orders: mpsc::Receiver<BootstrapOrder>,
}

impl Opened {
    /// Locks the data directory and begins to answer calls.
    ///
    /// # Errors
    /// [`MemberError`]. The data directory is unlocked again.
    pub async fn open(settings: Settings, with: Surroundings) -> Result<Self, MemberError> {
        let data_dir = &settings.data_dir;
        std::fs::create_dir_all(data_dir).map_err(MemberError::data_dir(data_dir))?;
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
        let _ = local.spill.set(spill.clone());
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
        let _ = local.commands.set(Arc::new(commands.clone()));
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

    /// Returns the source of the member's view, for this phase and all later ones.
    pub fn view(&self) -> Arc<dyn ViewSource> {
        self.base.state.clone()
    }

    /// Returns the commands, for this phase and all later ones.
    pub fn commands(&self) -> Commands {
        self.base.commands.clone()
    }

    /// Returns the certificate that other members verify, and their CA; `None` without TLS.
    pub fn tls(&self) -> Option<TlsMaterial> {
        self.base.state.credentials.tls.clone()
    }

    /// Returns a function that gives the member newer certificates, passwords and hooks.
    pub fn renewal(&self) -> impl Fn(Renewed) + Send + Sync + 'static {
        let state = self.base.state.clone();
        move |newer| state.renew(newer)
    }

    /// Returns a token that is cancelled when the member closes. Until then, its status and commands may be served.
    pub fn end(&self) -> CancellationToken {
        self.base.tasks.stop.clone()
    }

    /// Ends the member before it has taken part in a ring.
    ///
    /// # Errors
    /// Currently none.
    pub async fn close(self) -> Result<(), MemberError> {
        self.base.close(None).await
    }
}

// How the member joins its ring.

/// A ring and its open log. If this member must bootstrap the ring, also the ring's first members.
type Entered = (
    RingId,
    BinlogStore,
    Option<BTreeMap<MemberId, MemberRecord>>,
);

/// A member that has joined its ring. Its log is open. If the ring has continued without the log's end, the log was truncated.
pub struct Joined {
    pub(super) ring: RingId,
    pub(super) log: BinlogStore,
    pub(super) returning: Returning,
    pub(super) network: GrpcNetworkFactory,
    /// Set if this member must bootstrap the ring.
    pub(super) first_members: Option<BTreeMap<MemberId, MemberRecord>>,
}

impl Opened {
    /// Joins the ring, and waits as long as necessary. It may be dropped at any point without a loss, and repeated.
    ///
    /// # Errors
    /// If waiting cannot help.
    pub async fn join(&mut self, bootstrap: bool) -> Result<Joined, MemberError> {
        let joined = self.join_ring(bootstrap).await;
        joined.inspect_err(|error| self.base.state.fails(error))
    }

    async fn join_ring(&mut self, bootstrap: bool) -> Result<Joined, MemberError> {
        let (ring, mut log, first_members) = self.enter(bootstrap).await?;
        let base = &self.base;
        base.state.enter(Phase::LogOpen(log.handle()));
        let _ = base.local.log.set(Arc::new(log.handle()));
        let members = base.settings.members.iter();
        let options = NetworkOptions {
            tls: base.state.credentials.tls.clone(),
            config: base.transport,
            far: Some((
                base.settings.own.region.clone(),
                base.settings.regions.far.clone(),
            )),
            spill: base.spill.clone(),
            configured: members.map(|one| (one.id, one.address.clone())).collect(),
            ..NetworkOptions::default()
        };
        let network = GrpcNetworkFactory::new(base.book.clone(), options);
        let calls = Arc::new(network.clone());
        let returning = rejoin(&mut log, base.settings.own.id, calls).await?;
        Ok(Joined {
            ring,
            log,
            returning,
            network,
            first_members,
        })
    }

    async fn enter(&mut self, bootstrap: bool) -> Result<Entered, MemberError> {
        match self.base.book.identity().ring {
            RingState::Belongs { ring } => {
                if bootstrap {
                    tracing::info!(%ring, "--bootstrap has nothing to do: this member belongs to a ring");
                }
                self.entered(ring, None).await
            }
            RingState::Bootstrapping { ring } => {
                // The log shows whether the bootstrap stopped before or after the first entry.
                let log = self.open_log(ring).await?;
                if log.bounds().is_some() {
                    self.base.book.bootstrapped()?;
                    return Ok((ring, log, None));
                }
                drop(log.close());
                drop(log);
                self.bootstrap_ring(&self.base.book.origin(), BOOTSTRAP_PATIENCE)
                    .await
            }
            RingState::Fresh if bootstrap => {
                self.bootstrap_ring(&LogOrigin::default(), BOOTSTRAP_PATIENCE)
                    .await
            }
            RingState::Fresh => self.added_or_ordered().await,
        }
    }

    /// Waits until another member adds this one to a ring, or an operator orders this member to bootstrap one.
    async fn added_or_ordered(&mut self) -> Result<Entered, MemberError> {
        let mut logging = pin!(log_awaited(&self.base));
        loop {
            let BootstrapOrder { origin, answer } = tokio::select! {
                never = &mut logging => match never {},
                ring = added(&self.base.book) => return self.entered(ring, None).await,
                Some(order) = self.bootstrap_orders.recv() => order,
            };
            // A bootstrap that has begun is continued with the same ring.
            let origin = match self.base.book.identity().ring {
                RingState::Bootstrapping { .. } => self.base.book.origin(),
                _ => origin,
            };
            // The client of the order may have disconnected. The bootstrap continues.
            match self.bootstrap_ring(&origin, ORDERED_PATIENCE).await {
                Ok(joined) => {
                    drop(answer.send(Ok(joined.0)));
                    return Ok(joined);
                }
                Err(error) => {
                    tracing::warn!(%error, "the ring could not be created");
                    let what = format!("the ring cannot be made: {error}");
                    let refusal = Refusal::refused(what, bootstrap_advice(&error));
                    drop(answer.send(Err(refusal)));
                }
            }
        }
    }

    async fn bootstrap_ring(
        &self,
        origin: &LogOrigin,
        patience: Duration,
    ) -> Result<Entered, MemberError> {
        // The incarnations of the members are not known yet.
        let members = self.base.settings.members.iter();
        let configured = members.map(|entry| (entry.id, record_of(entry))).collect();
        let base = &self.base;
        let calls = AdminCalls(base.state.credentials.tls.as_ref(), base.transport);
        let plan = bootstrap_ring(&calls, &base.book, true, origin, &configured, patience);
        let plan = plan.await?;
        self.entered(plan.ring, Some(plan.members)).await
    }

    async fn entered(
        &self,
        ring: RingId,
        first_members: Option<BTreeMap<MemberId, MemberRecord>>,
    ) -> Result<Entered, MemberError> {
        let log = self.open_log(ring).await?;
        Ok((ring, log, first_members))
    }

    /// Opens the log of a ring, with files in `log/` and hard state in `meta/`. The configuration determines how much of the log is
    /// verified.
    async fn open_log(&self, ring: RingId) -> Result<BinlogStore, MemberError> {
        let (settings, book) = (&self.base.settings, &self.base.book);
        let log = &settings.log;
        let options = StoreOptions {
            origin: origin_gtids(settings, &book.origin())?,
            begun: book.log_begun(),
            boot_id: binlog_store::boot_id(),
            durability: log.durability,
            verify_at_start: log.verify,
            cache_bytes: log.cache_bytes,
            queue_bytes: log.queue_bytes,
            disk_limit_bytes: log.disk_limit_bytes,
            disk_reserve_bytes: log.disk_reserve_bytes,
            observer: self.base.with.flushes.clone(),
            progress: Some(progress()),
            spill: self.base.spill.clone(),
            ..StoreOptions::new(&settings.data_dir, ring)
        };
        let meta_dir = settings.data_dir.join(META);
        let opened = tokio::task::spawn_blocking(move || open_log(options, meta_dir)).await;
        let log = opened.map_err(|error| MemberError::ended("opening the log", error))??;
        // The note is written after the log. After a crash in between, there is a log without the note, never a note without a log.
        book.note_log_begun().map_err(IdentityError::File)?;
        Ok(log)
    }
}

/// Logs what a member without a ring waits for. When another member reports its ring, logs that ring. An empty data directory may also be a
/// volume that is not mounted; to bootstrap a ring again would then be wrong.
async fn log_awaited(base: &Base) -> Infallible {
    let mut logged = false;
    loop {
        if let Some((member, ring)) = ring_of_another(base).await {
            tracing::warn!(
                "this member's data directory is empty, although the ring {ring} is there (`{member}` belongs to it). If this member was \
                 in the ring before, is its volume mounted? See the runbook lost-member. If it is new, add it with `witness members add`"
            );
            return pending().await;
        }
        if !logged {
            tracing::info!(
                "waiting to be added to a ring; run `witness bootstrap` on one member's host, or `witness enable-raft` on the primary's"
            );
            logged = true;
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Returns the name and the ring of another configured member that belongs to a ring.
async fn ring_of_another(base: &Base) -> Option<(String, RingId)> {
    let own = base.settings.own.id;
    let others = base.settings.members.iter().filter(|one| one.id != own);
    let asked = others.map(|one| async move {
        let tls = base.state.credentials.tls.as_ref();
        let client = AdminClient::new(&one.address, tls, base.transport).ok()?;
        let said = client.identify().await.ok()?.identity;
        match said.ring {
            RingState::Belongs { ring } if said.member == one.id => Some((one.name.clone(), ring)),
            _ => None,
        }
    });
    join_all(asked).await.into_iter().flatten().next()
}

/// Returns the advice after a failed bootstrap order. If a ring may exist, the advice does not suggest to empty a directory.
fn bootstrap_advice(error: &MemberError) -> &'static str {
    match error {
        MemberError::RingBootstrap(RingBootstrapError::Refused {
            refusal: BootstrapRefusal::BelongsAlready { .. } | BootstrapRefusal::HasEntries(_),
            ..
        }) => {
            "the ring is there, and no member's data may be removed. If this member was in it before, is its volume mounted? See the \
             runbook lost-member. If it is new, add it with `witness members add`"
        }
        _ => {
            "start all members of the configuration, bootstrap only one of them, and try again; where one of them was in a ring before, see \
             the runbook lost-member first"
        }
    }
}

async fn added(book: &IdentityBook) -> RingId {
    let belongs = |state: &RingState| matches!(state, RingState::Belongs { .. });
    match book.ring().wait_for(belongs).await.map(|state| *state) {
        Ok(RingState::Belongs { ring }) => ring,
        _ => pending().await,
    }
}

pub(super) fn record_of(entry: &MemberEntry) -> MemberRecord {
    MemberRecord {
        name: entry.name.clone(),
        region: entry.region.clone(),
        kind: entry.kind,
        votes: entry.votes,
        priority: entry.priority,
        address: entry.address.clone(),
        ..MemberRecord::default()
    }
}

/// Rejoins the ring with an existing log. Truncates the log if the ring has continued without its end; see [`Returning`].
///
/// # Errors
/// If the log must be truncated and cannot be, or it cannot be recorded that its end is in doubt.
async fn rejoin(
    store: &mut BinlogStore,
    own: MemberId,
    calls: Arc<dyn MemberCalls>,
) -> Result<Returning, MemberError> {
    let log = store.handle();
    let (_, membership) = log.applied_at_open();
    let mut returning = Returning::new(own, recollection(&log), &membership, calls);
    let rejoin = returning.before_the_start(&log).await;
    let noting = "noting that the log's end is in doubt";
    let rejoin = rejoin.map_err(|error| MemberError::ended(noting, error))?;
    let Rejoin::CutBack { to, ring_last } = rejoin else {
        return Ok(returning);
    };
    let reason = format!(
        "the quorum was repaired without this member; the ring continued to {ring_last} without these entries"
    );
    let at = u64::from(now_in_seconds());
    let tail = store.cut_back(to, &reason, at).await?;
    let gtids = tail.map(|tail| tail.gtids).unwrap_or_default();
    tracing::warn!(?to, %ring_last, %gtids, "the log was cut back: {reason}; what was cut is kept in `trimmed`");
    Ok(returning.cut_back(recollection(&store.handle())))
}

fn recollection(log: &LogHandle) -> Recollection {
    Recollection::new(log.term_runs(), log.settled())
}

/// Returns the transactions before the ring's log.
///
/// # Errors
/// If they are not a GTID set.
pub(crate) fn origin_gtids(config: &Settings, origin: &LogOrigin) -> Result<GtidSet, MemberError> {
    origin.gtids().parse().map_err(|error| MemberError::Origin {
        path: config.data_dir.join("identity"),
        reason: format!("{error}"),
    })
}

fn open_log(options: StoreOptions, meta_dir: PathBuf) -> Result<BinlogStore, MemberError> {
    let meta = SledMeta::open(&meta_dir).map_err(|source| MemberError::Meta {
        path: meta_dir,
        source,
    })?;
    let (store, report) = BinlogStore::open(options, Arc::new(DiskFileSystem), Arc::new(meta))?;
    if report.cut.is_some() || report.doubted || !report.removed_files.is_empty() {
        tracing::warn!("the log was recovered: {report}");
    } else {
        tracing::info!("the log is open: {report}");
    }
    Ok(store)
}

/// Returns a callback that logs each tenth of a long verification.
fn progress() -> ProgressCallback {
    let said = std::sync::atomic::AtomicU64::new(0);
    Arc::new(move |progress| {
        let (done, total) = (progress.done_bytes, progress.total_bytes);
        let tenth = (done * 10).checked_div(total).unwrap_or(10);
        if tenth > said.swap(tenth, std::sync::atomic::Ordering::Relaxed) {
            tracing::info!(done, total, "verifying the log, in bytes");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_told_to_empty_a_data_directory_where_a_ring_may_be() {
        let words = |refusal| {
            let last_error = None;
            let refused = RingBootstrapError::Refused {
                refusal,
                last_error,
            };
            let refused = MemberError::RingBootstrap(refused);
            format!("{refused}: {}", bootstrap_advice(&refused))
        };
        let (member, ring) = (MemberId(2), RingId::random());
        for there in [
            BootstrapRefusal::BelongsAlready { member, ring },
            BootstrapRefusal::HasEntries(member),
        ] {
            let words = words(there);
            assert!(words.contains("is its volume mounted"), "{words}");
            assert!(!words.contains("empty"), "{words}");
        }
        // A member that does not answer may have belonged to a ring.
        let words = words(BootstrapRefusal::Missing(member));
        assert!(!words.contains("empty"), "{words}");
    }
}
