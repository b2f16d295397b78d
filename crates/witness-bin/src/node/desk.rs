//! Where a member is asked about itself: over HTTP, by `witness status`, by the demonstration. Parts of
//! the member report here as they come into being, so that it answers from its first moment.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use binlog_store::LogHandle;
use consensus::{IdentityBook, Member};
use futures::future::BoxFuture;

use super::observer::Observer;
use super::portrait::Portrait;
use crate::config::Config;
use crate::status::{ActivityView, ConsumerView, LogView, MemberView, MysqlView, ViewSource};

/// Gives the view of the mysqld beside the member.
pub(crate) type MysqlSource = Box<dyn Fn() -> MysqlView + Send + Sync>;

/// Gives the views of those who read the member's binlog server.
pub(crate) type ConsumerSource = Box<dyn Fn() -> Vec<ConsumerView> + Send + Sync>;

/// See the module.
pub(crate) struct Desk {
    pub(crate) config: Arc<Config>,
    pub(crate) book: Arc<IdentityBook>,
    pub(crate) observer: Observer,
    started: Instant,
    log: OnceLock<LogHandle>,
    raft: OnceLock<Member>,
    mysql: OnceLock<MysqlSource>,
    consumers: OnceLock<ConsumerSource>,
    fault: Mutex<Option<String>>,
}

impl Desk {
    pub(crate) fn new(config: Arc<Config>, book: Arc<IdentityBook>) -> Self {
        Self {
            config,
            book,
            observer: Observer::new(),
            started: Instant::now(),
            log: OnceLock::new(),
            raft: OnceLock::new(),
            mysql: OnceLock::new(),
            consumers: OnceLock::new(),
            fault: Mutex::new(None),
        }
    }

    /// The log is open. Each part reports once; a later one changes nothing.
    pub(crate) fn has_log(&self, log: LogHandle) {
        drop(self.log.set(log));
    }

    /// The member takes part in its ring.
    pub(crate) fn has_raft(&self, raft: Member) {
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
    pub(crate) fn has_mysql(&self, mysql: MysqlSource) {
        drop(self.mysql.set(mysql));
    }

    /// The binlog server serves.
    pub(crate) fn has_consumers(&self, consumers: ConsumerSource) {
        drop(self.consumers.set(consumers));
    }

    /// The member has stopped working. The first reason stays.
    pub(crate) fn has_failed(&self, why: &str) {
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
            disk_alarm: stats.disk_alarm,
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

impl ViewSource for Desk {
    fn view(&self) -> MemberView {
        let remembered = self.observer.remembered();
        let (log, activity) = self.log_view();
        let fault = self
            .fault
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        Portrait {
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
            mysql: self.mysql.get().map(|mysql| mysql()),
            consumers: self.consumers.get().map(|consumers| consumers()),
            fault,
        }
        .view()
    }
}

impl transport::StatusSource for Desk {
    fn status(&self) -> BoxFuture<'_, Vec<u8>> {
        // A view is plain values, which always have a JSON form.
        let json = serde_json::to_vec(&self.view()).unwrap_or_default();
        Box::pin(std::future::ready(json))
    }
}
