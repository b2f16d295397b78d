//! The phase in which a member takes part in its ring, until its end.

use std::sync::Arc;
use std::time::Duration;

use binlog_server::BinlogServer;
use binlog_store::{LogHandle, StoreError};
use consensus::log_probe::LogProbe;
use consensus::{AppliedFloor, Bounds, MemberConfig};
use mysqld_controller::plan::same_uuid::OtherMysqlds;
use proxy::{Proxying, Relay, RouteTable};
use raft_types::LogId;
use ring_admin::Member;
use tokio::sync::watch;

use crate::archiving::archive;
use crate::binlog_serving::served_log::{ServedLog, Serving};
use crate::error::MemberError;
use crate::log_keeping::{purge_as_configured, scrub};
use crate::mysqld::{
    Child, DemotionTask, MysqldManagement, Setup, ask_around, event_scheduler, native_source,
    requirements,
};
use crate::other_members::OtherMembers;
use crate::phases::opened::{Joined, Opened, origin_gtids, record_of};
use crate::phases::{Base, listen};
use crate::ring_handle::RingHandle;
use crate::ring_history::keep_history;
use crate::state::{Parts, Phase, watch_takeovers};
use crate::{binlog_serving, hooks, leaving};

/// A member that takes part in its ring.
pub struct Running {
    base: Base,
    ring: RingHandle,
}

impl Running {
    /// Returns the member's Raft and log.
    pub fn ring(&self) -> &RingHandle {
        &self.ring
    }

    /// Waits until the member fails. The log is checked too, because an engine that writes nothing does not detect that the log has failed.
    pub async fn failed(&self) -> MemberError {
        let RingHandle { member, log } = &self.ring;
        let error = tokio::select! {
            // If the engine only reports that its log failed, the log's own error is returned.
            fault = member.fault() => log.failure().map_or(MemberError::Engine(fault), MemberError::Store),
            error = log_failure(log) => MemberError::Store(error),
            () = self.base.server.ended() => MemberError::ended(
                "the port for other members",
                "keep the member's log output and start it again",
            ),
        };
        self.base.state.fails(&error);
        error
    }

    /// Stops gracefully: transfers the leadership if possible, ends mysqld, then makes everything durable.
    ///
    /// # Errors
    /// If the log cannot be closed.
    pub async fn stop(self) -> Result<(), MemberError> {
        let (member, management) = (&self.ring.member, self.base.state.management());
        let (settings, lease) = (&self.base.settings, self.base.timers.lease);
        leaving::in_good_order(member, management.as_deref(), settings, lease).await;
        self.base.close(Some(self.ring)).await
    }

    /// Ends after a failure. A mysqld that runs as a child process continues. After a restart, the member decides about its waiting
    /// commits.
    ///
    /// # Errors
    /// The error of the log, if the log had failed.
    pub async fn end_failed(self) -> Result<(), MemberError> {
        if let Some(management) = self.base.state.management() {
            management.end(Child::Stays).await;
        }
        self.base.close(Some(self.ring)).await
    }
}

impl Opened {
    /// Begins to take part in the ring. Does not wait for other members.
    ///
    /// # Errors
    /// If the member cannot take part. Everything that had begun is closed then.
    pub async fn take_part(self, joined: Joined) -> Result<Running, MemberError> {
        let mut base = self.base;
        let mut started = None;
        match begin(&mut base, joined, &mut started).await {
            Ok(ring) => Ok(Running { base, ring }),
            Err(error) => {
                base.state.fails(&error);
                if let Err(also) = base.close(started).await {
                    tracing::warn!(error = %also, "and the log could not be closed");
                }
                Err(error)
            }
        }
    }
}

/// Begins to take part in the ring. All steps that can fail come before the first action on mysqld.
async fn begin(
    base: &mut Base,
    joined: Joined,
    started: &mut Option<RingHandle>,
) -> Result<RingHandle, MemberError> {
    let (settings, id) = (base.settings.clone(), base.settings.own.id);
    let log = joined.log.handle();
    let (own_log, network) = (Arc::new(log.clone()), joined.network);
    // Two leases are used, so that one late heartbeat changes no route.
    let heard_within = base.timers.lease * 2;
    let (own, proxying) = (record_of(&settings.own), settings.regions.proxy.clone());
    let routes = RouteTable::new(id, &own, proxying, heard_within);
    let over_proxies = Proxying::new(network.clone(), network.clone(), routes.clone());
    let config = MemberConfig {
        timers: base.timers,
        rules: settings.rules.clone(),
        bounds: Bounds {
            proposals_bytes: settings.raft.proposals_bytes,
            ..Bounds::default()
        },
        program: settings.program.clone(),
        ..MemberConfig::new(joined.ring, id, settings.own.kind)
    };
    let (last_applied, membership) = log.applied_at_open();
    let floor = AppliedFloor {
        last_applied: last_applied.map(LogId::from),
        membership,
    };
    let member = Member::start(
        config,
        joined.log,
        LogProbe::new(over_proxies, own_log.clone(), &base.timers),
        Arc::new(network.clone()),
        floor,
        Arc::new(log.clone()),
    );
    let member = member.await?;
    member.take_in_by(Arc::new(log.clone()));
    let kept = member.keep_formats_in(&base.book);
    kept.map_err(MemberError::data_dir(&settings.data_dir))?;
    let ring = RingHandle {
        member: member.clone(),
        log,
    };
    *started = Some(ring.clone());
    base.tasks
        .spawn(joined.returning.campaign_when_known(member.clone()));
    let (factory, others_of) = (network.clone(), member.clone());
    base.tasks
        .spawn(member.essential("connecting to the others", async move {
            factory.keep_connected(others_of).await;
        }));
    let inbound = member.inbound();
    routes.know_the_ring(Arc::new(move |member| inbound.record(member)));
    let relay = Relay::new(
        id,
        own_log,
        network.clone(),
        network.clone(),
        routes.clone(),
    );
    let _ = base.local.proxy.set(Arc::new(relay));
    let _ = base.local.inbound.set(member.inbound());
    if let Some(members) = joined.first_members {
        member.bootstrap(members).await?;
        base.book.bootstrapped()?;
    }
    let _ = base.local.readable.set(Arc::new(ring.clone()));
    let serving = match &settings.binlog_server {
        None => None,
        Some(server) => {
            let listener = listen("binlog_server.listen", &server.listen).await?;
            binlog_serving::prepare(&base.state, listener, &ring)?
        }
    };
    let (told, demotion) = watch::channel(None);
    let others = other_mysqlds(base, &ring);
    purge(base, &ring);
    let management = look_after_mysqld(base, &ring, told, others.clone())?;
    if let Some(management) = management.clone() {
        let watch = move || management.clone().watch_unmanaged();
        base.tasks
            .spawn_again("watching an unmanaged mysqld", watch);
    }
    let serving =
        serving.map(|(server, log)| serve_binlog(base, &ring, server, log, others.clone()));
    base.state.enter(Phase::TakesPart(Arc::new(Parts {
        ring: ring.clone(),
        routes,
        network,
        management,
        serving,
        demotion,
    })));
    look_after(base, &ring);
    Ok(ring)
}

/// Begins to serve the binlog.
fn serve_binlog(
    base: &mut Base,
    ring: &RingHandle,
    server: BinlogServer,
    log: Arc<ServedLog>,
    others: watch::Receiver<OtherMysqlds>,
) -> Serving {
    let consumers = server.consumers();
    tracing::info!(address = %server.address(), "serving the binlog");
    let (followed, state) = (log.clone(), base.state.clone());
    base.tasks.spawn(async move { followed.follow().await });
    let released = log.clone();
    let own = move || {
        let name = || state.settings.own.name.clone();
        let view = state.management()?.view();
        view.released.then(name)
    };
    base.tasks
        .spawn(async move { released.follow_release(own, others).await });
    // The server ends its sessions itself.
    let serving = server.serve(base.tasks.stop.clone());
    let serving = ring.member.essential("the binlog server", serving);
    base.tasks.set.spawn(serving);
    Serving { consumers, log }
}

/// Starts the requests for the states of the other members' mysqlds. A database member compares its own mysqld with them. A binlog server
/// checks whether the primary was released.
fn other_mysqlds(base: &mut Base, ring: &RingHandle) -> watch::Receiver<OtherMysqlds> {
    let (said, others) = watch::channel(OtherMysqlds::default());
    if base.settings.mysql.is_some() || base.settings.binlog_server.is_some() {
        let members = OtherMembers {
            state: base.state.clone(),
            transport: base.transport,
        };
        base.tasks
            .spawn(ask_around(ring.member.clone(), members, said));
    }
    others
}

/// Begins to manage the member's mysqld, if there is one. If mysqld cannot be the primary, `told` receives the member's next action.
fn look_after_mysqld(
    base: &mut Base,
    ring: &RingHandle,
    told: watch::Sender<Option<String>>,
    others: watch::Receiver<OtherMysqlds>,
) -> Result<Option<Arc<MysqldManagement>>, MemberError> {
    let config = base.settings.clone();
    let credentials = &base.state.credentials;
    let (Some(settings), Some(connect)) = (&config.mysql, credentials.mysqld.clone()) else {
        return Ok(None);
    };
    let server = credentials.binlog_server.as_ref();
    let identity = base.book.identity();
    let events = event_scheduler(&config, settings, &connect);
    let setup = Setup {
        requirements: requirements(settings, identity.member, identity.incarnation),
        events: events.map_err(MemberError::data_dir(&config.data_dir))?,
        settings: settings.clone(),
        connect,
        ring: ring.clone(),
        native: server.and_then(|server| native_source(&config, &server.account)),
        origin: origin_gtids(&config, &base.book.origin())?,
        guard: base.with.guard.clone(),
        runtime_dir: base.with.runtime_dir.clone(),
        commits: base.with.commits.clone(),
        spill: base.spill.clone(),
        owner: None,
        others,
        config: config.clone(),
    };
    let management = MysqldManagement::begin(setup);
    let management = management.map_err(MemberError::data_dir(&config.data_dir))?;
    if let Some(watching) = DemotionTask::of(&management, told) {
        let watching = watching.run();
        let watching = ring.member.essential("judging the primary", watching);
        base.tasks.spawn(watching);
    }
    Ok(Some(management))
}

/// Begins to purge the log, except entries that the member's mysqld still needs.
fn purge(base: &mut Base, ring: &RingHandle) {
    let settings = base.settings.log;
    let mysqld = base.state.credentials.mysqld.clone();
    base.watch("purging the log", ring, move |state, ring| {
        purge_as_configured(ring, settings, mysqld.clone(), move || state.not_archived())
    });
}

/// Begins the tasks that watch the member itself.
fn look_after(base: &mut Base, ring: &RingHandle) {
    base.watch("counting commits", ring, |state, ring| async move {
        state.observer.observe(ring.member).await;
    });
    let takeovers = base.with.takeovers.clone();
    base.watch("watching takeovers", ring, move |state, ring| {
        watch_takeovers(state, ring.member, takeovers.clone())
    });
    base.watch("keeping the history", ring, |state, ring| {
        keep_history(state, ring.member)
    });
    base.watch("running hooks", ring, |state, _| hooks::run(state));
    let (region, rate) = (
        base.settings.own.region.clone(),
        base.settings.log.scrub_rate,
    );
    base.watch("reading the log back", ring, move |_, ring| {
        scrub(ring, region.clone(), rate)
    });
    if let Some(settings) = base.settings.archive.clone() {
        let record = record_of(&base.settings.own);
        base.watch("archiving", ring, move |state, ring| {
            let (record, settings) = (record.clone(), settings.clone());
            async move { archive(ring, record, settings, &state.archive).await }
        });
    }
}

/// Interval between two checks of the log for a failed writer.
const LOG_LOOK: Duration = Duration::from_secs(1);

async fn log_failure(log: &LogHandle) -> StoreError {
    loop {
        if let Some(error) = log.failure() {
            return error;
        }
        tokio::time::sleep(LOG_LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use binlog_store::{BinlogStore, StoreOptions, WriterMode};
    use openraft::storage::RaftLogStorage;
    use raft_types::{MemberId, RingId, Vote};
    use testkit::disk::{CallFault, FaultyDisk};
    use tokio::time::timeout;

    use super::*;

    /// Regression: in a quiet ring, the engine writes nothing, so a voter detected the failure only at the next vote request.
    #[tokio::test(start_paused = true)]
    async fn a_log_that_failed_is_told_of_although_nobody_writes_to_it() {
        let disk = FaultyDisk::new();
        let options = StoreOptions {
            writer: WriterMode::Inline,
            disk_reserve_bytes: 0,
            ..StoreOptions::new("/data", RingId::random())
        };
        let opened = BinlogStore::open(options, disk.file_system(), disk.meta());
        let (mut store, _) = opened.unwrap();
        let log = store.handle();
        let told = || timeout(2 * LOG_LOOK, log_failure(&log));
        assert!(told().await.is_err());
        disk.fail_call(disk.calls() + 1, CallFault::Io);
        let vote = Vote::new(1, MemberId(1));
        store.save_vote(&vote).await.unwrap_err();
        let told = told().await.unwrap();
        assert_eq!(Some(told), log.failure());
    }
}
