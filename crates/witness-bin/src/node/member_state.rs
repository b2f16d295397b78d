//! Where a member is asked about itself: over HTTP, by `witness status`, by the demonstration. Parts of
//! the member report here as they come into being, so that it answers from its first moment.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use binlog_store::{LogHandle, ReadFault, ScrubProgress};
use consensus::{IdentityBook, LogOrigin, Member};
use futures::future::BoxFuture;
use raft_types::{RingId, UnixSeconds};
use tokio::sync::{mpsc, oneshot};

use super::mysql::Steering;
use super::observer::Observer;
use super::provisioning::Provisioner;
use super::ring_handle::now_in_seconds;
use super::status_view::StatusView;
use crate::config::Settings;
use crate::hooks::HookFigures;
use crate::status::{
    ActivityView, ConsumerView, LogView, MemberView, MysqlView, ScrubView, TravelView, ViewSource,
};

/// An order to make a ring of the configured members.
pub(crate) struct FoundOrder {
    /// What its log begins behind.
    pub(crate) origin: LogOrigin,
    /// Whether that came about, or why not.
    pub(crate) answer: oneshot::Sender<Result<RingId, String>>,
}

/// Gives the view of the mysqld beside the member.
pub(crate) type MysqlSource = Box<dyn Fn() -> MysqlView + Send + Sync>;

/// Gives the views of those who read the member's binlog server.
pub(crate) type ConsumerSource = Box<dyn Fn() -> Vec<ConsumerView> + Send + Sync>;

/// Gives the view of how entries travel.
pub(crate) type TravelSource = Box<dyn Fn() -> TravelView + Send + Sync>;

/// See the module.
pub(crate) struct MemberState {
    pub(crate) config: Arc<Settings>,
    pub(crate) book: Arc<IdentityBook>,
    pub(crate) observer: Observer,
    started: Instant,
    log: OnceLock<LogHandle>,
    raft: OnceLock<Member>,
    mysql: OnceLock<MysqlSource>,
    consumers: OnceLock<ConsumerSource>,
    travel: OnceLock<TravelSource>,
    steering: OnceLock<Arc<Steering>>,
    founding: mpsc::Sender<FoundOrder>,
    /// Taken by whoever comes to the ring.
    founding_orders: Mutex<Option<mpsc::Receiver<FoundOrder>>>,
    fault: Mutex<Option<String>>,
    giving_way: Mutex<Option<String>>,
    /// How the hooks do.
    pub(crate) hooks: Arc<HookFigures>,
}

impl MemberState {
    pub(crate) fn new(config: Arc<Settings>, book: Arc<IdentityBook>) -> Self {
        let (founding, founding_orders) = mpsc::channel(1);
        Self {
            config,
            book,
            observer: Observer::new(),
            started: Instant::now(),
            log: OnceLock::new(),
            raft: OnceLock::new(),
            mysql: OnceLock::new(),
            consumers: OnceLock::new(),
            travel: OnceLock::new(),
            steering: OnceLock::new(),
            founding,
            founding_orders: Mutex::new(Some(founding_orders)),
            fault: Mutex::new(None),
            giving_way: Mutex::new(None),
            hooks: Arc::default(),
        }
    }

    /// The log is open. Each part reports once; a later one changes nothing.
    pub(crate) fn set_log(&self, log: LogHandle) {
        drop(self.log.set(log));
    }

    /// The member takes part in its ring.
    pub(crate) fn set_raft(&self, raft: Member) {
        drop(self.raft.set(raft));
    }

    /// The member's log, once it is open.
    pub(crate) fn log(&self) -> Option<&LogHandle> {
        self.log.get()
    }

    /// The member's Raft, once it takes part.
    pub(crate) fn raft(&self) -> Option<&Member> {
        self.raft.get()
    }

    /// The mysqld beside the member is being looked after.
    pub(crate) fn set_mysql(&self, mysql: MysqlSource) {
        drop(self.mysql.set(mysql));
    }

    /// The member acts on the mysqld beside it, or leaves it alone.
    pub(crate) fn set_steering(&self, steering: Arc<Steering>) {
        let viewed = steering.clone();
        self.set_mysql(Box::new(move || viewed.view()));
        drop(self.steering.set(steering));
    }

    /// Who acts on the mysqld beside the member, once it takes part.
    pub(crate) fn steering(&self) -> Option<&Arc<Steering>> {
        self.steering.get()
    }

    /// Who replaces the data of the mysqld beside the member, where there is one and the member acts on it.
    pub(crate) fn provisioner(&self) -> Option<Arc<Provisioner>> {
        self.steering.get()?.provisioner()
    }

    /// Has the member make a ring. False while it does not wait for that.
    pub(crate) fn order_founding(&self, order: FoundOrder) -> bool {
        self.founding.try_send(order).is_ok()
    }

    /// The orders to make a ring; once.
    pub(crate) fn founding_orders(&self) -> Option<mpsc::Receiver<FoundOrder>> {
        let mut orders = self
            .founding_orders
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        orders.take()
    }

    /// The mysqld beside the member, as it is now.
    pub(crate) fn mysql_view(&self) -> Option<MysqlView> {
        self.mysql.get().map(|mysql| mysql())
    }

    /// The binlog server serves.
    pub(crate) fn set_consumers(&self, consumers: ConsumerSource) {
        drop(self.consumers.set(consumers));
    }

    /// The member sends entries.
    pub(crate) fn set_travel(&self, travel: TravelSource) {
        drop(self.travel.set(travel));
    }

    /// What the member does about a mysqld that should be the primary and cannot be it.
    pub(crate) fn gives_way(&self, words: Option<String>) {
        *lock(&self.giving_way) = words;
    }

    /// The member has stopped working. The first reason stays.
    pub(crate) fn set_failed(&self, why: &str) {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.get_or_insert_with(|| why.to_owned());
    }

    fn log_view(&self) -> (LogView, ActivityView) {
        let durability = self.config.log.durability.name().to_owned();
        let Some(log) = self.log.get() else {
            let empty = LogView {
                durability,
                ..LogView::default()
            };
            return (empty, ActivityView::default());
        };
        let (file, stats) = (log.current_file(), log.stats());
        let view = LogView {
            file: file.number.name(),
            file_bytes: file.size,
            gtid_set: log.gtid_set().to_string(),
            durability,
            log_bytes: stats.log_bytes,
            disk_free_bytes: stats.free_bytes,
            disk_left_bytes: stats.left_bytes,
            unreadable: log.read_faults().iter().map(unreadable).collect(),
            scrub: ScrubView {
                bytes_per_second: self.config.log.scrub_rate,
                ..scrub_view(log.scrub_progress())
            },
            disk_alarm: stats.disk_alarm,
            disk_full: stats.disk_refuses,
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

fn scrub_view(progress: ScrubProgress) -> ScrubView {
    ScrubView {
        read_bytes_total: progress.read_bytes,
        damaged_total: progress.damaged,
        repaired_total: progress.repaired,
        turn_bytes: progress.turn_bytes,
        closed_bytes: progress.closed_bytes,
        unverified_bytes: progress.unverified_bytes,
        completed_at: progress.completed_at,
        bytes_per_second: None,
    }
}

/// What an operator is told of a file that cannot be read.
fn unreadable(fault: &ReadFault) -> String {
    let from = fault.index.map(|index| format!(" from entry {index} on"));
    format!(
        "{} is damaged or cannot be read{}; a member that lacks its entries waits until another one's file has replaced it: {}",
        fault.file,
        from.unwrap_or_default(),
        fault.why
    )
}

impl ViewSource for MemberState {
    fn view(&self) -> MemberView {
        let remembered = self.observer.remembered();
        let (log, activity) = self.log_view();
        let fault = self
            .fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        StatusView {
            config: &self.config,
            identity: self.book.identity(),
            uptime: self.started.elapsed(),
            raft: self.raft.get().map(Member::status),
            log,
            activity: ActivityView {
                elections_won_total: remembered.elections_won,
                leader_changes_total: remembered.leader_changes,
                ..activity
            },
            quorum_lost_for: remembered.quorum_lost_for,
            mysql: self.mysql_view().map(|mysql| MysqlView {
                demotion: lock(&self.giving_way).clone(),
                ..mysql
            }),
            consumers: self.consumers.get().map(|consumers| consumers()),
            travel: self.travel.get().map(|travel| travel()),
            hooks: self.config.hooks.any().then(|| self.hooks.view()),
            fault,
            now: UnixSeconds(u64::from(now_in_seconds())),
        }
        .view()
    }
}

impl transport::StatusSource for MemberState {
    fn status(&self) -> BoxFuture<'_, Vec<u8>> {
        // A view is plain values, which always have a JSON form.
        let json = serde_json::to_vec(&self.view()).unwrap_or_default();
        Box::pin(std::future::ready(json))
    }
}

fn lock<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The value is replaced as a whole, so a panic elsewhere cannot have left half of one.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
