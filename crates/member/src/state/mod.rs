//! State of a member, and its view.

mod status_view;
mod takeover;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use binlog_store::{LogHandle, NotArchived, ReadFault};
use consensus::Named;
use futures::future::BoxFuture;
use proxy::RouteTable;
use raft_types::{RingId, UnixSeconds};
use ring_admin::{IdentityBook, LogOrigin};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use transport::GrpcNetworkFactory;

use crate::archiving::ArchiveProgress;
use crate::binlog_serving::served_log::Serving;
use crate::credentials::{Credentials, Renewed};
use crate::error::MemberError;
use crate::mysqld::MysqldManagement;
use crate::protocol::Refusal;
use crate::ring_handle::{RingHandle, now_in_seconds};
use crate::ring_history::book::HistoryBook;
use crate::settings::{HookSettings, Settings};
use crate::state::status_view::Observer;
pub(crate) use crate::state::status_view::ring_status;
use crate::status::{
    ActivityView, ArchiveView, GtidText, HooksView, LogView, MemberView, MysqlView,
    ReplicationRoutesView, Role, ScrubView, ViewSource,
};

pub(crate) use crate::state::takeover::watch_takeovers;
pub use crate::state::takeover::{TakeoverObserver, TakeoverPhase};

/// An order to bootstrap a ring of the configured members.
pub(crate) struct BootstrapOrder {
    /// The transactions before the ring's log.
    pub(crate) origin: LogOrigin,
    /// Receives the new ring, or the reason why there is none.
    pub(crate) answer: oneshot::Sender<Result<RingId, Refusal>>,
}

/// The member's phase.
#[derive(Clone)]
pub(crate) enum Phase {
    /// The member has its data directory, and answers calls.
    Opened,
    /// The member has joined its ring.
    LogOpen(LogHandle),
    /// The member takes part in its ring.
    TakesPart(Arc<Parts>),
}

/// The parts of a member that takes part in its ring.
pub(crate) struct Parts {
    pub(crate) ring: RingHandle,
    /// The routes by which the member sends entries.
    pub(crate) routes: RouteTable,
    pub(crate) network: GrpcNetworkFactory,
    /// Manages the member's mysqld; `None` for a witness.
    pub(crate) management: Option<Arc<MysqldManagement>>,
    /// `None` without a binlog server.
    pub(crate) serving: Option<Serving>,
    /// The member's next action, if its mysqld should be the primary and cannot be.
    pub(crate) demotion: watch::Receiver<Option<String>>,
}

/// The state of a member, from which its status is made for HTTP, `witness status` and the demonstration. The phases of the member record
/// their progress here, so the status is available from the start.
pub(crate) struct MemberState {
    pub(crate) settings: Arc<Settings>,
    pub(crate) book: Arc<IdentityBook>,
    pub(crate) observer: Observer,
    started: Instant,
    phase: watch::Sender<Phase>,
    /// The channel is full unless the member waits for an order.
    pub(crate) bootstrap_orders: mpsc::Sender<BootstrapOrder>,
    /// Why the member has failed, if it has.
    fault: OnceLock<String>,
    pub(crate) credentials: Credentials,
    pub(crate) hook_settings: watch::Sender<HookSettings>,
    /// Hook results since the member started.
    pub(crate) hooks: watch::Sender<HooksView>,
    /// Progress of the archive, if this member has one.
    pub(crate) archive: ArchiveProgress,
    /// The part of the ring's history in the data directory.
    pub(crate) history: Arc<HistoryBook>,
}

/// Longest interval between two checks of state that changes only with time.
const LONGEST: Duration = Duration::from_secs(1);

/// Resolves at the next change from now on. Without a channel, it never resolves.
fn changed<T>(mut told: Option<watch::Receiver<T>>) -> impl Future<Output = ()> {
    told.iter_mut().for_each(watch::Receiver::mark_unchanged);
    async move {
        if let Some(mut told) = told
            && told.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

impl MemberState {
    /// Creates the state. The joining phase receives the other end of `bootstrap_orders`.
    pub(crate) fn new(
        settings: Arc<Settings>,
        credentials: Credentials,
        book: Arc<IdentityBook>,
        bootstrap_orders: mpsc::Sender<BootstrapOrder>,
    ) -> Self {
        let owner = Named {
            id: settings.own.id,
            name: settings.own.name.clone(),
        };
        Self {
            history: Arc::new(HistoryBook::new(&settings.data_dir, owner)),
            hook_settings: watch::Sender::new(settings.hooks.clone()),
            credentials,
            settings,
            book,
            observer: Observer::new(),
            started: Instant::now(),
            phase: watch::Sender::new(Phase::Opened),
            bootstrap_orders,
            fault: OnceLock::new(),
            hooks: watch::Sender::default(),
            archive: ArchiveProgress::default(),
        }
    }

    /// Enters the next phase.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Returns the member's parts; `None` before it takes part in its ring.
    pub(crate) fn parts(&self) -> Option<Arc<Parts>> {
        match &*self.phase.borrow() {
            Phase::TakesPart(parts) => Some(parts.clone()),
            Phase::Opened | Phase::LogOpen(_) => None,
        }
    }

    /// Returns the management of the member's mysqld; `None` before the member takes part in its ring.
    pub(crate) fn management(&self) -> Option<Arc<MysqldManagement>> {
        self.parts()?.management.clone()
    }

    /// Waits for the next change of the leadership or of mysqld's write fence after this call, but a second at most.
    pub(crate) fn next_change(&self) -> impl Future<Output = ()> + Send + use<> {
        let parts = self.parts();
        let leadership = changed(parts.map(|parts| parts.ring.member.leadership()));
        let management = self.management();
        let fence = changed(management.and_then(|management| management.write_fence()));
        async move {
            tokio::select! {
                () = leadership => {}
                () = fence => {}
                () = tokio::time::sleep(LONGEST) => {}
            }
        }
    }

    /// Uses the new values of a configuration reload.
    pub(crate) fn renew(&self, newer: Renewed) {
        self.credentials.renew(&newer.credentials);
        self.hook_settings.send_replace(newer.hooks);
        if let Some(management) = self.management() {
            management.renew_guard();
        }
    }

    fn mysql_view(&self, parts: &Parts) -> Option<MysqlView> {
        let mut mysql = parts.management.as_ref()?.view();
        mysql.demotion = parts.demotion.borrow().clone();
        mysql.exposed = self.history.exposed();
        mysql.warnings.extend(mysql.exposed.map(|transactions| {
            format!(
                "mysqld was started open for writes, and transactions that committed without the ring: {transactions}; \
                 `witness history` says when. Find what started it, then run `witness history --acknowledge`"
            )
        }));
        Some(mysql)
    }

    fn archive_view(&self) -> Option<ArchiveView> {
        let settings = self.settings.archive.as_ref()?;
        let mut view = self.archive.view(settings);
        if let Some(parts) = self.parts()
            && let Some(serving) = &parts.serving
        {
            serving.log.tell(&mut view);
        }
        Some(view)
    }

    /// Returns the entries that stay in the log because they are not archived yet; `None` if this member has no archive.
    pub(crate) fn not_archived(&self) -> Option<NotArchived> {
        let settings = self.settings.archive.as_ref()?;
        Some(self.archive.not_archived(settings.hold_bytes))
    }

    /// Records that the member has failed. Only the first reason is kept.
    pub(crate) fn fails(&self, why: &MemberError) {
        self.fault.get_or_init(|| why.to_string());
    }

    fn log_view(&self, log: Option<&LogHandle>) -> (LogView, ActivityView) {
        let durability = self.settings.log.durability.to_string();
        let Some(log) = log else {
            let empty = LogView {
                durability,
                ..LogView::default()
            };
            return (empty, ActivityView::default());
        };
        let (file, stats, scrub) = (log.current_file(), log.stats(), log.scrub_progress());
        let view = LogView {
            file: file.number.name(),
            file_bytes: file.size,
            gtid_set: GtidText(log.gtid_set()),
            durability,
            log_bytes: stats.log_bytes,
            disk_free_bytes: stats.free_bytes,
            disk_left_bytes: stats.left_bytes,
            unreadable: log.read_faults().iter().map(unreadable).collect(),
            scrub: ScrubView {
                read_bytes_total: scrub.read_bytes,
                damaged_total: scrub.damaged,
                repaired_total: scrub.repaired,
                turn_bytes: scrub.turn_bytes,
                closed_bytes: scrub.closed_bytes,
                unverified_bytes: scrub.unverified_bytes,
                completed_at: scrub.completed_at,
                bytes_per_second: self.settings.log.scrub_rate,
            },
            disk_alarm: stats.disk_alarm,
            disk_full: stats.disk_refuses,
            disk_has_no_inodes: stats.no_inodes,
            disk_busy_ms: u64::try_from(stats.busy_for.as_millis()).unwrap_or(u64::MAX),
        };
        let activity = ActivityView {
            appended_entries_total: stats.appended_entries,
            appended_bytes_total: stats.appended_bytes,
            flushes_total: stats.flushes,
            queued_bytes: stats.queued_bytes,
            ..ActivityView::default()
        };
        (view, activity)
    }
}

/// Returns the message about a log file that cannot be read.
fn unreadable(fault: &ReadFault) -> String {
    let from = fault.index.map(|index| format!(" from entry {index} on"));
    format!(
        "{} is damaged or cannot be read{}; members that lack its entries wait until another member's file has replaced it: {}",
        fault.file,
        from.unwrap_or_default(),
        fault.why
    )
}

impl ViewSource for MemberState {
    fn view(&self) -> MemberView {
        let remembered = self.observer.remembered();
        let phase = self.phase.borrow().clone();
        let (log, parts) = match &phase {
            Phase::Opened => (None, None),
            Phase::LogOpen(log) => (Some(log), None),
            Phase::TakesPart(parts) => (Some(&parts.ring.log), Some(parts)),
        };
        let (log, activity) = self.log_view(log);
        let ring = ring_status(
            &self.settings,
            &self.book.identity(),
            parts.map(|parts| parts.ring.member.status()).as_ref(),
            remembered.quorum_lost_for,
            UnixSeconds(u64::from(now_in_seconds())),
        );
        let routes_view = |parts: &Arc<Parts>| {
            let routes = match ring.role {
                Role::Leader => parts.routes.routes(),
                // A member that does not lead still has the routes of its last leadership, which are omitted.
                _ => Vec::new(),
            };
            ReplicationRoutesView::new(routes, parts.routes.traffic().counted(), &parts.network)
        };
        let leaderless_ms = remembered.last_leaderless.map(|time| time.as_millis());
        let has_hooks = self.hook_settings.borrow().any();
        MemberView {
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            log,
            activity: ActivityView {
                elections_won_total: remembered.elections_won,
                leader_changes_total: remembered.leader_changes,
                leaderless_ms: leaderless_ms.and_then(|time| u64::try_from(time).ok()),
                proposals_bytes: ring.activity.proposals_bytes,
                ..activity
            },
            mysql: parts.and_then(|parts| self.mysql_view(parts)),
            consumers: parts.and_then(|parts| Some(parts.serving.as_ref()?.views())),
            replication_routes: parts.map(routes_view),
            archive: self.archive_view(),
            hooks: has_hooks.then(|| self.hooks.borrow().clone()),
            fault: self.fault.get().cloned().or(ring.fault),
            ..ring
        }
    }
}

impl transport::StatusSource for MemberState {
    fn status(&self) -> BoxFuture<'_, Vec<u8>> {
        // A view consists of plain values, which always have a JSON form.
        let json = serde_json::to_vec(&self.view()).unwrap_or_default();
        Box::pin(std::future::ready(json))
    }
}
