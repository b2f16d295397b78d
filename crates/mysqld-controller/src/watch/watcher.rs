//! The task that observes mysqld. Each observation and each connection has a time limit. A failed observation makes the verdict unknown and
//! closes the connection. Between observations, a connection is kept only while ingest is attached.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError, Step, server_code};
use mysqld_server::STATEMENT_LIMIT;
use mysqld_server::channels::{foreign_channels, stop_foreign_channels};
use mysqld_server::events::EventScheduler;
use mysqld_server::sessions::kill;
use mysqld_server::settings::{
    MEMBER_ACKS, Observed, Phase, Plan, Requirements, SemiSyncNames, apply, await_acks,
    binlog_filters, commits, keeps_replicas_from_releasing, observe_again, semi_sync_clients,
    server_clock,
};
use mysqld_server::supervisor::started_open;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::ingest::{IngestFigures, IngestStatus};
use crate::status::Readiness;
use crate::watch::advice::{PersistedWatch, UnloggedWatch};
use crate::watch::commits::{CommitSight, CommitWatch, RingSide, Room};
use crate::watch::protection::{Protection, ReadOnly, ServerFacts, WatchReport, judge};
use crate::watch::starts::{HadGtids, Sighting, Span, Starts};

/// The pause between two checks for foreign ACKs.
const ACKERS_EVERY: Duration = Duration::from_millis(100);

/// Which mysqld is observed, how often, and with which requirements.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// The server and the member's account. Its time limits should be about one interval.
    pub connect: ConnectOptions,
    /// Requirements on the server's settings.
    pub requirements: Requirements,
    /// The pause between two observations.
    pub interval: Duration,
    /// The configured event scheduler of the server; `None` if it is not checked.
    pub events: Option<EventScheduler>,
    /// Counters of ingest; `None` if commit progress is not checked.
    pub figures: Option<Arc<IngestFigures>>,
    /// The server's data directory, if on this machine, to check for free space.
    pub data_dir: Option<PathBuf>,
}

impl WatchOptions {
    /// The defaults: an observation every second, each limited to two seconds.
    pub fn new(connect: ConnectOptions, requirements: Requirements) -> Self {
        Self {
            connect: connect.bounded("witness-watch", STATEMENT_LIMIT),
            requirements,
            interval: Duration::from_secs(1),
            events: None,
            figures: None,
            data_dir: None,
        }
    }
}

/// Result of an observation.
struct Look {
    protection: Protection,
    server: Option<ServerFacts>,
    /// Commit progress.
    commits: CommitSight,
    /// True if settings were fixed after the observation.
    fixed: bool,
}

/// Why an observation failed.
#[derive(Default)]
struct Failed {
    cause: String,
    /// True if the server did not answer in time and refused nothing.
    silent: bool,
    /// True if the server ended the session, or no longer listens.
    gone: bool,
    /// True if the server sent its greeting and did not complete the login in time, so it lives and refused nothing.
    locked_out: bool,
}

impl From<LinkError> for Failed {
    fn from(error: LinkError) -> Self {
        use io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
        let (silent, locked_out, gone) = match &error {
            LinkError::Timeout { step, .. } => (true, *step == Step::Authentication, false),
            LinkError::Unreachable { source, .. } => match source.kind() {
                // mysqld no longer accepts connections, and its socket's queue is full.
                WouldBlock => (true, false, false),
                kind => (false, false, matches!(kind, NotFound | ConnectionRefused)),
            },
            LinkError::Closed { .. } => (false, false, true),
            LinkError::Server(error) => (false, false, error.code == server_code::SERVER_SHUTDOWN),
            _ => (false, false, false),
        };
        Self {
            cause: error.to_string(),
            silent,
            gone,
            locked_out,
        }
    }
}

/// Observes a server periodically.
#[derive(Debug)]
pub struct Watcher {
    options: WatchOptions,
    /// The state of ingest. Settings are fixed only while its dump runs, because a fix may make commits wait.
    ingest: watch::Receiver<IngestStatus>,
    /// The server's readiness. A follower's commits need not wait, so the watcher then does not warn about that.
    readiness: watch::Receiver<Readiness>,
    reports: watch::Sender<WatchReport>,
    connection: Option<Connection>,
    starts: Starts,
    had: HadGtids,
    /// The last observation of the server.
    seen: Option<Observed>,
    /// The start of mysqld, and the binlog's filters in that start.
    filters: Option<(u64, Vec<String>)>,
    /// The last start of mysqld with a complete observation.
    looked_whole: Option<u64>,
    commits: CommitWatch,
    room: Room,
    persisted: PersistedWatch,
    /// Advice about foreign channels, from the last observation that queried them.
    channels: Vec<String>,
    unlogged: UnloggedWatch,
    ending: Ending,
    /// Since when consecutive observations completed no login.
    locked_out: Option<Instant>,
    /// The last foreign semi-sync replica with an ended dump.
    foreign_replica: Option<String>,
    /// The last start of mysqld that booted open for writes.
    started_open: Option<u64>,
}

/// Detects a shutdown: the server closes its sessions and refuses logins seconds before its process ends.
#[derive(Debug, Default)]
struct Ending {
    /// True if the server ended a session that was kept between observations.
    session_ended: bool,
    /// Since when logins have been refused after that.
    since: Option<Instant>,
}

impl Ending {
    fn failed(&mut self, gone: bool, now: Instant) {
        match (gone, self.session_ended) {
            (true, true) => drop(self.since.get_or_insert(now)),
            (true, false) => {}
            (false, _) => *self = Self::default(),
        }
    }
}

impl Watcher {
    /// Creates a watcher and the receiver of its reports. `ingest` shows whether the member's dump runs.
    pub fn new(
        options: WatchOptions,
        ingest: watch::Receiver<IngestStatus>,
        readiness: watch::Receiver<Readiness>,
    ) -> (Self, watch::Receiver<WatchReport>) {
        let (reports, receiver) = watch::channel(WatchReport::unknown(Instant::now()));
        let watcher = Self {
            room: Room::new(options.data_dir.clone()),
            options,
            ingest,
            readiness,
            reports,
            connection: None,
            starts: Starts::default(),
            had: HadGtids::default(),
            filters: None,
            seen: None,
            looked_whole: None,
            commits: CommitWatch::default(),
            persisted: PersistedWatch::default(),
            channels: Vec::new(),
            unlogged: UnloggedWatch::default(),
            ending: Ending::default(),
            locked_out: None,
            foreign_replica: None,
            started_open: None,
        };
        (watcher, receiver)
    }

    /// Observes until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(self.options.interval.min(ACKERS_EVERY));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut again = false;
        let mut next = Instant::now();
        loop {
            let ticked = tokio::select! {
                () = stop.cancelled() => return,
                () = std::future::ready(()), if again => false,
                _ = ticks.tick() => true,
                // A new attachment is observed without delay: the write fence waits for the verdict.
                attached = newly_attached(&mut self.ingest) => if attached { false } else { return },
            };
            if ticked && Instant::now() < next && !self.somebody_else_acknowledges().await {
                continue;
            }
            let began = Instant::now();
            next = began + self.options.interval;
            let look = tokio::select! {
                () = stop.cancelled() => return,
                look = self.look(began, !ticked) => look,
            };
            // Clients wait for a fix on a closed server, so the result is checked immediately, but only once. A fix that does not last is
            // checked at the next interval.
            let closed = |server: &ServerFacts| server.read_only != ReadOnly::Off;
            again = !again && look.fixed && look.server.as_ref().is_some_and(closed);
            self.report(look, began);
        }
    }

    /// Checks between two observations whether more semi-sync replicas are attached than the member's. Only such replicas can release a
    /// commit without the ring while no setting changes.
    async fn somebody_else_acknowledges(&mut self) -> bool {
        let Some(connection) = &mut self.connection else {
            return false;
        };
        if !self.reports.borrow().protection.is_protected() {
            return false;
        }
        match semi_sync_clients(connection).await {
            Ok(count) => count > u64::from(MEMBER_ACKS),
            // The next observation finds the cause, on a new connection.
            Err(error) => {
                self.connection = None;
                self.ending.session_ended |= Failed::from(error).gone;
                true
            }
        }
    }

    /// Observes the server. `hurries`: the observation is for a new attachment.
    async fn look(&mut self, began: Instant, hurries: bool) -> Look {
        let kept = self.connection.is_some();
        match self.look_and_mend(began, hurries).await {
            Ok(look) => {
                self.ending = Ending::default();
                self.locked_out = None;
                look
            }
            Err(failed) => {
                let since = self.locked_out.unwrap_or(began);
                self.locked_out = failed.locked_out.then_some(since);
                self.ending.failed(failed.gone, began);
                self.ending.session_ended |= failed.gone && kept;
                self.connection = None;
                let commits = match failed.silent {
                    true => CommitSight::Silent(failed.cause.clone()),
                    false => CommitSight::Nothing,
                };
                Look {
                    protection: Protection::Unknown {
                        cause: failed.cause,
                    },
                    server: None,
                    commits,
                    fixed: false,
                }
            }
        }
    }

    /// Observes the server and fixes its settings. Reports the settings as observed, even if they are fixed now: the next observation
    /// reports the fix.
    async fn look_and_mend(&mut self, began: Instant, hurries: bool) -> Result<Look, Failed> {
        // Done before the first query, so that an attachment in the meantime is observed again.
        self.ingest.mark_unchanged();
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open_with_own_settings(&self.options.connect).await?,
        };
        let mut observed = observe_again(&mut connection, self.seen.as_ref()).await?;
        self.seen = Some(observed.clone());
        let sighting = sight(&mut connection, &observed, began).await?;
        let start = self.starts.see(sighting);
        if self.looked_whole.is_some_and(|before| before != start)
            && started_open(&mut connection).await?.is_some()
        {
            self.started_open = Some(start);
        }
        observed.binlog_filters = self.filters(&observed, start).await;
        let follows = *self.readiness.borrow() == Readiness::Applying;
        if !follows && waits_for_the_member(&observed) {
            self.end_foreign_replicas(&mut connection, &observed)
                .await?;
        }
        let (protection, mut advice) = judge(&observed, &self.options.requirements);
        advice.extend(self.foreign_replica.iter().map(|replica| {
            format!(
                "the dump of a semi-sync replica of this mysqld was ended ({replica}): its ACKs would release commits without the \
                 ring; on that replica set rpl_semi_sync_replica_enabled = OFF, and have it read from a member's binlog server"
            )
        }));
        advice.extend(self.persisted.not_persisted.clone());
        advice.extend(self.unlogged.warning());
        let mut server = ServerFacts::of(&observed, advice, start, &mut self.had, began);
        server.started_open = self.started_open;
        // Clients wait for this verdict, and no commit runs. So other checks are left to the next observation.
        let closed = server.read_only != ReadOnly::Off;
        let hurries = hurries && closed && self.looked_whole == Some(server.incarnation);
        if let Some(events) = self.options.events.as_ref().filter(|_| !hurries) {
            events.look(&mut connection, follows).await?;
        }
        if !hurries {
            self.persisted
                .look(
                    &mut connection,
                    &self.options.requirements,
                    observed.semi_sync(),
                )
                .await?;
            if follows && let Err(why) = stop_foreign_channels(&mut connection).await {
                warn!("{why}");
            }
            let channels = foreign_channels(&mut connection).await?;
            self.channels = channels.iter().map(|one| one.advice(follows)).collect();
        }
        server.advice.extend(self.channels.iter().cloned());
        if follows {
            self.unlogged = UnloggedWatch::default();
        } else if !hurries {
            self.unlogged
                .look(&mut connection, server.incarnation, began)
                .await?;
        }
        let commits = match &self.options.figures {
            Some(_) if !follows && !hurries => {
                let no_room = self.room.is_gone().await;
                commits(&mut connection, server.incarnation, no_room).await?
            }
            _ => None,
        };
        self.looked_whole = Some(server.incarnation);
        let attached = self.ingest.borrow().is_attached();
        let plan = self.remedy(&observed, follows, attached && !protection.is_protected());
        apply(&mut connection, &plan)
            .await
            .map_err(|error| Failed {
                cause: format!("the drift could not be fixed: {error}"),
                ..Failed::default()
            })?;
        let names = observed.semi_sync().filter(|_| !follows && attached);
        if let Some(names) = names
            && let Some(acks) = observed.variable(&names.replica_count())
            && !keeps_replicas_from_releasing(acks)
        {
            await_acks(&mut connection, names, MEMBER_ACKS).await?;
        }
        if attached {
            self.connection = Some(connection);
        } else {
            // If clients occupy all connections, one extra connection remains, which ingest needs.
            connection.close().await;
        }
        Ok(Look {
            protection,
            server: Some(server),
            commits: commits.map_or(CommitSight::Nothing, CommitSight::Answered),
            fixed: !plan.statements.is_empty(),
        })
    }

    /// Returns the statements that correct the settings of a follower, or of an attached primary that is unprotected.
    fn remedy(&self, observed: &Observed, follows: bool, unprotected: bool) -> Plan {
        let requirements = &self.options.requirements;
        let plan = match (follows, unprotected) {
            (true, _) => Plan::of_a_follower(observed, requirements),
            (false, true) => Plan::make(observed, requirements, Phase::Attached),
            (false, false) => Plan::default(),
        };
        if follows && !plan.statements.is_empty() {
            warn!(
                "innodb_flush_log_at_trx_commit is not 1 on a mysqld that follows, where a cut of the power would cost rows and not \
                 their GTIDs: it is set to 1"
            );
        }
        plan
    }

    /// Ends the dumps of foreign semi-sync replicas, because their ACKs would count too.
    async fn end_foreign_replicas(
        &mut self,
        connection: &mut Connection,
        observed: &Observed,
    ) -> Result<(), LinkError> {
        let requirements = &self.options.requirements;
        let replicas = observed.semi_sync_replicas.iter().flatten();
        for replica in replicas.filter(|replica| !requirements.is_ours(replica)) {
            let id = replica.connection_id;
            kill(connection, &id.to_string()).await?;
            self.foreign_replica = Some(match replica.uuid {
                Some(uuid) => uuid.to_string(),
                None => format!("connection {id}"),
            });
        }
        Ok(())
    }

    /// Returns the binlog's filters. They cannot change while mysqld runs, so they are queried once for each start. Uses a separate
    /// connection, because the answer may be slow.
    async fn filters(&mut self, observed: &Observed, incarnation: u64) -> Option<Vec<String>> {
        let known = self.filters.as_ref().filter(|known| known.0 == incarnation);
        if let Some((_, filters)) = known {
            return Some(filters.clone());
        }
        if observed.waiting_sessions() > 0 {
            return None;
        }
        let mut connection = Connection::open_with_own_settings(&self.options.connect)
            .await
            .ok()?;
        let filters = binlog_filters(&mut connection).await.ok()?;
        connection.close().await;
        self.filters = filters.clone().map(|filters| (incarnation, filters));
        filters
    }

    fn report(&mut self, look: Look, now: Instant) {
        let follows = *self.readiness.borrow() == Readiness::Applying;
        let ring = self.ring_side(look.server.as_ref());
        let standing = ring.and_then(|ring| self.commits.see(look.commits, ring, now));
        let (ending, locked_out) = (self.ending.since, self.locked_out);
        self.reports.send_modify(|report| {
            match (&report.commits, &standing) {
                (None, Some(standing)) if !follows => {
                    warn!("the primary has stalled: {}", standing.why)
                }
                (Some(_), None) => info!("the primary no longer stalls"),
                _ => {}
            }
            let next = WatchReport {
                protection: look.protection,
                looked_at: now,
                // The last facts are kept if an observation fails.
                server: look.server.or_else(|| report.server.clone()),
                commits: standing,
                ending,
                locked_out,
            };
            if !next.protection.is_like(&report.protection) && !follows {
                tell(&next.protection);
            }
            let known = advice_of(report);
            for advice in advice_of(&next) {
                if !known.contains(advice) {
                    warn!("{advice}");
                }
            }
            *report = next;
        });
    }

    /// Returns the member's own state for the check of the server's commits.
    fn ring_side(&self, server: Option<&ServerFacts>) -> Option<RingSide> {
        let figures = self.options.figures.as_ref()?.view(Instant::now());
        let waits = match self.ingest.borrow().is_attached() {
            true => figures.oldest_unacknowledged.is_some(),
            // Ingest receives nothing, so a session that waits for an ACK waits for the ring.
            false => server.is_some_and(|server| server.waiting_sessions > 0),
        };
        Some(RingSide {
            waits,
            progress: (figures.proposed_total, figures.acks_total),
            received: figures.received_bytes_total,
        })
    }
}

fn advice_of(report: &WatchReport) -> &[String] {
    let server = report.server.as_ref();
    server.map_or(&[], |server| &server.advice)
}

/// True if commits wait for a ring. Replicas of any other server are left alone.
fn waits_for_the_member(observed: &Observed) -> bool {
    let semi_sync = |names: SemiSyncNames| {
        let acks = observed.variable(&names.replica_count());
        observed.is_on(&names.enabled()) && acks.is_some_and(keeps_replicas_from_releasing)
    };
    observed.semi_sync().is_some_and(semi_sync)
}

/// Waits for a new attachment of ingest; false when ingest has ended.
async fn newly_attached(ingest: &mut watch::Receiver<IngestStatus>) -> bool {
    loop {
        if ingest.changed().await.is_err() {
            return false;
        }
        if ingest.borrow_and_update().is_attached() {
            return true;
        }
    }
}

/// A clock that differs from the uptime by more than this is wrong.
const AS_UPTIME: Duration = Duration::from_secs(5);

/// Returns the server's start, from an observation that began at `began` and has these results.
async fn sight(
    connection: &mut Connection,
    observed: &Observed,
    began: Instant,
) -> Result<Sighting, LinkError> {
    let asked = Instant::now();
    let ticks = server_clock(connection).await?;
    let latest = Instant::now();
    let span = |earliest| Span { earliest, latest };
    let uptime = Duration::from_secs(observed.uptime_seconds().unwrap_or(0));
    Ok(Sighting {
        uuid: observed.server_uuid(),
        connection_id: connection.id(),
        uptime,
        began_to_tick: ticks
            .filter(|ticks| ticks.abs_diff(uptime) < AS_UPTIME)
            .and_then(|ticks| Span::before(ticks, span(asked))),
        looked: span(began),
    })
}

fn tell(protection: &Protection) {
    match protection {
        Protection::Protected => info!("the primary is protected: its commits wait for the ring"),
        Protection::Unprotected { findings } => {
            for finding in findings {
                warn!(check = ?finding.check, "the primary is not protected: {finding}");
            }
        }
        Protection::Unknown { cause } => {
            warn!("whether the primary is protected is not known: {cause}")
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// If other changes also caused an observation, it could be in progress when the observation that clients wait for is due.
    #[test]
    fn only_an_attachment_is_looked_at_without_delay() {
        use crate::ingest::IngestState::Attached;
        use crate::ingest::IngestState::Attaching;
        use crate::ingest::IngestState::CatchingUp;
        use crate::ingest::IngestState::Idle;
        let now = Instant::now();
        let (told, mut ingest) = watch::channel(IngestStatus::new(now));
        let mut go = |state| {
            told.send_modify(|status| status.go(state, now));
            newly_attached(&mut ingest).now_or_never()
        };
        for state in [Attaching, CatchingUp, Idle] {
            assert_eq!(go(state), None);
        }
        assert_eq!(go(Attached), Some(true));
        assert_eq!(go(CatchingUp), None);
        assert_eq!(go(Attached), Some(true));
        drop(told);
        assert_eq!(newly_attached(&mut ingest).now_or_never(), Some(false));
    }

    #[test]
    fn a_server_ends_when_it_ended_a_session_and_lets_nobody_in() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let ended = |session_ended, looks: &[bool]| {
            let mut ending = Ending {
                session_ended,
                since: None,
            };
            for (gone, at) in looks.iter().zip([now, later]) {
                ending.failed(*gone, at);
            }
            ending.since
        };
        assert_eq!(ended(true, &[true]), Some(now));
        assert_eq!(ended(true, &[true, true]), Some(now));
        // The server was never reachable, as before a start.
        assert_eq!(ended(false, &[true, true]), None);
        // A server that refuses the login, or is slow, lives.
        assert_eq!(ended(true, &[true, false]), None);
        assert_eq!(ended(true, &[false, true]), None);
    }
}
