//! Opens the primary for writes, and closes it. Closing only informs clients early: a former leader cannot commit, because its transactions
//! receive no ACK. Only this module sets `read_only` and `super_read_only` of a primary, even for a switchover ([`long_statements`] handles
//! blocking statements). The plan decides ([`crate::plan::write_fence`]).

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError};
use mysqld_server::STATEMENT_LIMIT;
use mysqld_server::channels::{
    ForeignChannel, StopChannelsError, start_channels, stop_foreign_channels,
};
use mysqld_server::events::{EventScheduler, enable_replicated, events_that_are_over};
use mysqld_server::read_only::{self, EventsAtOpening};
use mysqld_server::sessions::long_statements;
use raft_types::Term;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::plan::facts::{Incarnation, WriteMemory};
use crate::plan::write_fence::{CloseReason, StayReason};
use crate::start_guard::ProtectionStart;
use crate::status::{WriteFenceState, WriteFenceStatus};
use crate::watch::{ReadOnly, WatchReport};

/// The member does not revert this, because another session may have had a reason.
const CLOSED_BY_OTHERS: &str = "read_only or super_read_only was set by another session; SET GLOBAL read_only = OFF opens the primary again";

/// How long closing may wait for running statements. Whole seconds. New writes wait in the meantime.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// Options of the write fence.
#[derive(Debug, Clone)]
pub struct WriteFenceOptions {
    /// The primary and the member's account.
    pub connect: ConnectOptions,
    /// How long statements may delay the close for a planned switchover before their sessions are killed. `None`: no session is killed, and
    /// a blocked switchover fails.
    pub statement_patience: Option<Duration>,
    /// The pause after a failed attempt.
    pub retry: Duration,
    /// Decides whether events run on the primary; `None` leaves its scheduler unchanged.
    pub events: Option<EventScheduler>,
    /// Begins a binlog file that can be trimmed on a server that ran before its member.
    pub protection_start: Option<ProtectionStart>,
}

impl WriteFenceOptions {
    /// The defaults: a pause of three seconds after a failure.
    pub fn new(connect: ConnectOptions) -> Self {
        Self {
            connect: connect.bounded("witness-write-fence", STATEMENT_LIMIT),
            statement_patience: None,
            retry: Duration::from_secs(3),
            events: None,
            protection_start: None,
        }
    }

    /// Returns how long a planned switchover waits for statements at most, with this patience.
    pub fn longest_wait_for_statements(patience: Option<Duration>) -> Duration {
        patience.map_or(Duration::ZERO, long_statements::longest)
    }
}

/// Opens and closes one primary.
#[derive(Debug)]
pub(crate) struct WriteFence {
    options: WriteFenceOptions,
    status: watch::Sender<WriteFenceStatus>,
    pub(crate) memory: WriteMemory,
    /// The events to disable at the opening for which all queries are complete.
    events: EventsAtOpening,
    /// Time of the last change or failed attempt by this fence, and the state since then. A report of an earlier observation does not show
    /// that state.
    moved: Option<(Instant, ReadOnly)>,
    /// The start of mysqld whose binlog can be trimmed.
    trimmable_in: Option<Incarnation>,
    /// The task that enables replicated events while the primary is open.
    enabling: JoinSet<()>,
    /// Operators' channels that ran until the primary was closed.
    stopped: Vec<ForeignChannel>,
}

impl WriteFence {
    /// Creates a fence and its status.
    pub(crate) fn new(options: WriteFenceOptions) -> (Self, watch::Receiver<WriteFenceStatus>) {
        let (status, receiver) = watch::channel(WriteFenceStatus {
            state: WriteFenceState::Unknown,
            since: Instant::now(),
        });
        let fence = Self {
            options,
            status,
            memory: WriteMemory::default(),
            events: EventsAtOpening::default(),
            moved: None,
            trimmable_in: None,
            enabling: JoinSet::new(),
            stopped: Vec::new(),
        };
        (fence, receiver)
    }

    /// Returns which accounts may write, by the watcher's report or a later change of this fence. `super_read_only` reads ON as soon as its
    /// `SET` begins, even if the `SET` waits for commits and finally fails.
    pub(crate) fn read_only(&self, report: &WatchReport) -> Option<ReadOnly> {
        let server = report.server.as_ref()?;
        Some(match self.moved {
            Some((at, read_only)) if at >= report.looked_at => read_only,
            _ => server.read_only,
        })
    }

    /// Ensures that the binlog of this start of mysqld can be trimmed after a crash. Returns whether that succeeded.
    async fn make_trimmable(&mut self, incarnation: Incarnation) -> bool {
        let Some(start) = &self.options.protection_start else {
            return true;
        };
        if self.trimmable_in == Some(incarnation) {
            return true;
        }
        match start.ensure(&self.options.connect).await {
            Ok(()) => self.trimmable_in = Some(incarnation),
            Err(cause) => {
                warn!("a crash of mysqld may not be trimmed until its next start: {cause}");
            }
        }
        self.trimmable_in == Some(incarnation)
    }

    /// Adopts an open server: it counts as opened in this leadership once its binlog can be trimmed after a crash.
    pub(crate) async fn take_over_open(mut self, term: Term, incarnation: Incarnation) -> Self {
        self.settle(StayReason::Open);
        if self.make_trimmable(incarnation).await {
            self.memory = WriteMemory {
                opened: Some((term, incarnation)),
                ..WriteMemory::default()
            };
        } else {
            self.memory.take_over_not_before = Some(Instant::now() + self.options.retry);
        }
        self
    }

    /// Runs the queries that must precede opening this start of mysqld in this leadership.
    pub(crate) async fn prepare(mut self, term: Term, incarnation: Incarnation) -> Self {
        self.make_trimmable(incarnation).await;
        self.events = match self.events_at_opening().await {
            Ok(events) => events,
            Err(error) => {
                self.memory.not_before = Some(Instant::now() + self.options.retry);
                self.go(WriteFenceState::NotOpened {
                    cause: error.to_string(),
                });
                return self;
            }
        };
        self.memory.prepared = Some((term, incarnation));
        self
    }

    async fn events_at_opening(&self) -> Result<EventsAtOpening, LinkError> {
        let wanted = match &self.options.events {
            Some(scheduler) => scheduler.wanted().await,
            None => false,
        };
        let over = match wanted {
            true => events_that_are_over(&self.options.connect).await?,
            false => Vec::new(),
        };
        Ok(EventsAtOpening { wanted, over })
    }

    pub(crate) async fn open(mut self, term: Term, incarnation: Incarnation) -> Self {
        match read_only::open(&self.options.connect, &self.events).await {
            Ok(()) => {
                info!(term = term.0, "the primary is open for writes");
                let reopened = self.memory.opened == Some((term, incarnation));
                self.memory = WriteMemory {
                    opened: Some((term, incarnation)),
                    ..WriteMemory::default()
                };
                self.moved = Some((Instant::now(), ReadOnly::Off));
                self.go(WriteFenceState::Open);
                self.enable_events();
                let stopped = std::mem::take(&mut self.stopped);
                // Another member may have been the primary in between, and run these channels.
                if reopened
                    && !stopped.is_empty()
                    && let Err(error) = start_again(&self.options.connect, &stopped).await
                {
                    warn!("replication channels were not started again: {error}");
                }
            }
            Err(error) => {
                self.memory.not_before = Some(Instant::now() + self.options.retry);
                self.memory.prepared = None;
                self.go(WriteFenceState::NotOpened {
                    cause: error.to_string(),
                });
            }
        }
        self
    }

    /// Enables replicated events after the opening. The statements wait for the ring, and clients must not wait for them.
    fn enable_events(&mut self) {
        self.enabling.abort_all();
        if self.options.events.is_none() {
            return;
        }
        let (connect, retry) = (self.options.connect.clone(), self.options.retry);
        self.enabling.spawn(async move {
            while let Err(error) = enable_replicated(&connect).await {
                warn!("events that came by replication are not enabled yet: {error}");
                tokio::time::sleep(retry).await;
            }
        });
    }

    /// Blocks all writes. `before` is the last known state of the server. A switchover waits for long statements while `wanted` returns
    /// true. The attempt opens a separate connection, so it reaches this start of mysqld or a later one.
    pub(crate) async fn close(
        mut self,
        reason: CloseReason,
        before: Option<(ReadOnly, Incarnation)>,
        wanted: impl Fn() -> bool,
    ) -> Self {
        self.enabling.abort_all();
        let connect = &self.options.connect;
        let closed = match reason {
            CloseReason::Switchover => {
                let patience = self.options.statement_patience;
                long_statements::close(connect, LOCK_WAIT, patience, wanted).await
            }
            _ => read_only::close(connect, LOCK_WAIT).await,
        };
        match closed {
            Ok(()) => {
                // `super_read_only` does not stop replica threads. Their current transaction is acknowledged by the ring or cut, like a
                // client's: while a channel runs, the server does not follow, and its commits wait for ACKs.
                match stop_channels(connect).await {
                    Ok(stopped) => self.stopped.extend(stopped),
                    Err(why) => warn!("{why}"),
                }
                info!(%reason, "the primary is closed for writes");
                self.memory.closed_by_us = true;
                self.memory.not_before = None;
                self.moved = Some((Instant::now(), ReadOnly::Everybody));
                let why = reason.to_string();
                self.go(WriteFenceState::Closed { why });
            }
            Err(error) => {
                let now = Instant::now();
                let behind_commits = before.filter(|_| error.is_behind_commits());
                self.moved = before.map(|(read_only, _)| (now, read_only));
                self.memory.not_before = Some(now + self.options.retry);
                let is_news = self.go(WriteFenceState::NotClosed {
                    why: reason.to_string(),
                    cause: error.to_string(),
                    stuck_in: behind_commits.map(|(_, incarnation)| incarnation),
                });
                if is_news {
                    warn!(%reason, "the primary could not be closed for writes: {error}");
                }
            }
        }
        self
    }

    /// Reports the state while no action is due.
    pub(crate) fn settle(&mut self, reason: StayReason) {
        self.memory.not_before = None;
        let closed = |why: &str| WriteFenceState::Closed {
            why: why.to_owned(),
        };
        let changed = self.go(match reason {
            StayReason::Open => WriteFenceState::Open,
            StayReason::Closed(reason) => closed(&reason.to_string()),
            StayReason::ClosedUntilAttached => {
                closed("the primary's transactions are not received yet")
            }
            StayReason::ClosedByOthers => closed(CLOSED_BY_OTHERS),
            StayReason::Unknown => WriteFenceState::Unknown,
        });
        if changed && reason == StayReason::ClosedByOthers {
            warn!("the primary stays closed for writes: {CLOSED_BY_OTHERS}");
        }
        // The answers of the queries before opening may be outdated at the next opening.
        self.memory.prepared = None;
    }

    /// True if the state has changed.
    pub(crate) fn go(&self, state: WriteFenceState) -> bool {
        self.status.send_if_modified(|status| {
            let changed = status.state != state;
            if changed {
                let since = Instant::now();
                *status = WriteFenceStatus { state, since };
            }
            changed
        })
    }
}

async fn stop_channels(connect: &ConnectOptions) -> Result<Vec<ForeignChannel>, StopChannelsError> {
    // The close itself reports an unreachable mysqld.
    let Ok(mut connection) = Connection::open_with_own_settings(connect).await else {
        return Ok(Vec::new());
    };
    let stopped = stop_foreign_channels(&mut connection).await;
    connection.close().await;
    stopped
}

async fn start_again(
    connect: &ConnectOptions,
    channels: &[ForeignChannel],
) -> Result<(), LinkError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    start_channels(&mut connection, channels).await?;
    connection.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use binlog_format::gtid::GtidSet;
    use mysql_link::Endpoint;

    use super::*;
    use crate::watch::ServerFacts;

    fn report(read_only: ReadOnly, looked_at: Instant) -> WatchReport {
        let server = ServerFacts {
            version: "9.7.4".to_owned(),
            server_uuid: None,
            incarnation: 1,
            started_open: None,
            read_only,
            waiting_sessions: 1,
            offline: false,
            advice: Vec::new(),
            ddl_settings: BTreeMap::new(),
            executed: GtidSet::new(),
            purged: GtidSet::new(),
            lost: GtidSet::new(),
            seen_at: looked_at,
        };
        WatchReport {
            server: Some(server),
            ..WatchReport::unknown(looked_at)
        }
    }

    #[tokio::test]
    async fn an_attempt_to_close_that_fails_as_the_one_before_is_no_news() {
        let connect = ConnectOptions::new(Endpoint::unix("/nowhere.sock"), "root", "");
        let (mut fence, mut status) = WriteFence::new(WriteFenceOptions::new(connect));
        let mut told = Vec::new();
        for reason in [CloseReason::NotLeader; 3] {
            fence = fence.close(reason, Some((ReadOnly::Off, 1)), || true).await;
            told.push(status.has_changed().unwrap());
            status.mark_unchanged();
        }
        assert_eq!(told, [true, false, false]);
    }

    /// The closing statement waits for commits, and fails.
    #[test]
    fn what_was_seen_during_an_attempt_to_close_does_not_count_behind_it() {
        let connect = ConnectOptions::new(Endpoint::unix("/nowhere.sock"), "root", "");
        let (mut fence, _status) = WriteFence::new(WriteFenceOptions::new(connect));
        let second = Duration::from_secs(1);
        let during = Instant::now();
        let seen = report(ReadOnly::Everybody, during);
        assert_eq!(fence.read_only(&seen), Some(ReadOnly::Everybody));
        fence.moved = Some((during + second, ReadOnly::Off));
        assert_eq!(fence.read_only(&seen), Some(ReadOnly::Off));
        // Another session has closed the server since.
        let seen = report(ReadOnly::Everybody, during + 2 * second);
        assert_eq!(fence.read_only(&seen), Some(ReadOnly::Everybody));
    }
}
