//! A member that takes part in its ring: what that takes, and its end.

use std::sync::Arc;
use std::time::Duration;

use binlog_store::LogHandle;
use consensus::log_probe::LogProbe;
use consensus::{AppliedFloor, Bounds, Fault, Member, MemberConfig};
use proxy::{Proxying, Records, Relay, RouteTable};
use raft_types::LogId;
use tokio::sync::watch;

use super::automatic_demotion::DemotionTask;
use super::binlog_serving;
use super::error::NodeError;
use super::joining::record_of;
use super::leaving::{Successor, give_leadership_away};
use super::log_opening::origin_gtids;
use super::log_reading::ReadableLog;
use super::member_state::{ConsumerSource, Parts, Phase};
use super::mysql::{
    Child, Given, PrimaryHealth, Steering, connect_options, native_source, requirements,
};
use super::opened::{Core, Joined, listen};
use super::purging::{Retention, purge_as_configured};
use super::ring_handle::RingHandle;
use super::scrubbing::scrub;
use crate::hooks;

/// A member that takes part in its ring.
pub struct Running {
    core: Core,
    ring: RingHandle,
    steering: Option<Arc<Steering>>,
}

impl Running {
    /// The ring as its leader uses it.
    pub fn ring(&self) -> &RingHandle {
        &self.ring
    }

    /// Waits until the member cannot go on.
    pub async fn failed(&self) -> NodeError {
        let error = why_stopped(self.ring.member.fault().await, &self.ring.log);
        self.core.state.fails(&error);
        error
    }

    /// Stops in good order: gives the leadership away if it can, lets mysqld finish, then makes everything durable.
    ///
    /// # Errors
    /// When the log cannot be closed.
    pub async fn stop(self) -> Result<(), NodeError> {
        // First, behind what commits: the end of mysqld may take long, and the ring shall have a primary meanwhile.
        self.hand_over(Successor::Awaited).await;
        self.leave_mysql(Child::Stops).await;
        // Who waited for commits that took too long may take it now.
        self.hand_over(Successor::NowOrNever).await;
        self.core.close(Some(self.ring)).await
    }

    /// Ends after a failure. A mysqld that is the member's child goes on: what waits there is decided when the member is back.
    ///
    /// # Errors
    /// Why the log had failed, if it had.
    pub async fn end_failed(self) -> Result<(), NodeError> {
        self.leave_mysql(Child::Stays).await;
        self.core.close(Some(self.ring)).await
    }

    async fn hand_over(&self, successor: Successor) {
        let mysql = self.core.settings.mysql.as_ref();
        let statements = mysql.map_or(Duration::ZERO, |mysql| mysql.longest_wait_for_statements());
        let lease = self.core.timers.lease;
        give_leadership_away(&self.ring.member, lease, statements, successor).await;
    }

    /// While it still leads, what mysqld has under way can be acknowledged.
    async fn leave_mysql(&self, child: Child) {
        if let Some(steering) = &self.steering {
            steering.end(child).await;
        }
    }
}

/// See [`super::Opened::take_part`].
pub(super) async fn take_part(mut core: Core, joined: Joined) -> Result<Running, NodeError> {
    let mut started = None;
    match begin(&mut core, joined, &mut started).await {
        Ok((ring, steering)) => Ok(Running {
            core,
            ring,
            steering,
        }),
        Err(error) => {
            core.state.fails(&error);
            if let Err(also) = core.close(started).await {
                tracing::warn!(error = %also, "and the log could not be closed");
            }
            Err(error)
        }
    }
}

/// Begins to take part. Nothing acts on mysqld before everything that may fail is done.
async fn begin(
    core: &mut Core,
    joined: Joined,
    started: &mut Option<RingHandle>,
) -> Result<(RingHandle, Option<Arc<Steering>>), NodeError> {
    let (settings, id) = (core.settings.clone(), core.settings.own.id);
    let log = joined.log.handle();
    let (own_log, network) = (Arc::new(log.clone()), joined.network);
    // Two leases: one heartbeat that is late changes no route.
    let heard_within = core.timers.lease * 2;
    let (own, proxying) = (record_of(&settings.own), settings.regions.proxy.clone());
    let routes = RouteTable::new(id, &own, proxying, heard_within);
    let over_proxies = Proxying::new(network.clone(), network.clone(), routes.clone());
    let config = MemberConfig {
        timers: core.timers,
        rules: settings.rules.clone(),
        bounds: Bounds {
            proposals_bytes: settings.raft.proposals_bytes,
            ..Bounds::default()
        },
        ..MemberConfig::new(joined.ring, id, settings.own.kind)
    };
    let member = Member::start(
        config,
        joined.log,
        LogProbe::new(over_proxies, own_log.clone(), &core.timers),
        Arc::new(network.clone()),
        applied_floor(&log),
        Arc::new(log.clone()),
    );
    let member = member.await?;
    member.take_in_by(Arc::new(log.clone()));
    let ring = started
        .insert(RingHandle {
            member: member.clone(),
            log,
        })
        .clone();
    core.tasks
        .spawn(joined.returning.campaign_when_known(member.clone()));
    let (factory, others_of) = (network.clone(), member.clone());
    core.tasks
        .spawn(async move { factory.keep_connected(|| others_of.others()).await });
    let inbound = member.inbound();
    let records: Records = Arc::new(move |member| inbound.record(member));
    let relay = Relay::new(
        id,
        own_log,
        network.clone(),
        network.clone(),
        routes.clone(),
        records,
    );
    core.local.send_on_by(Arc::new(relay));
    core.local.attach(member.inbound());
    if let Some(members) = joined.first_members {
        member.bootstrap(members).await?;
        core.book.founded()?;
    }
    core.local.serve_log(Arc::new(ReadableLog(ring.clone())));
    let serving = match &settings.binlog_server {
        None => None,
        Some(server) => {
            let listener = listen("binlog_server.listen", &server.listen).await?;
            let incarnation = core.book.identity().incarnation;
            let ready = binlog_serving::prepare(&settings, server, listener, &ring, incarnation);
            Some(ready?)
        }
    };
    let (steering, demotion) = look_after_mysqld(core, &ring)?;
    let consumers = serving.map(|ready| {
        let viewer = binlog_serving::viewer(ready.server.consumers(), ready.log.clone());
        tracing::info!(address = %ready.server.address(), "serving the binlog");
        core.tasks.spawn(async move { ready.log.follow().await });
        // It ends its sessions itself.
        let stop = core.tasks.stop.clone();
        core.tasks.spawn_to_its_end(ready.server.serve(stop));
        Box::new(viewer) as ConsumerSource
    });
    core.state.enter(Phase::TakesPart(Arc::new(Parts {
        ring: ring.clone(),
        routes,
        network,
        steering: steering.clone(),
        consumers,
        demotion,
    })));
    look_after(core, &ring);
    Ok((ring, steering))
}

/// Begins to act on the mysqld beside the member, if there is one, and to purge as it allows. Also gives what is told of an
/// automatic demotion.
fn look_after_mysqld(
    core: &mut Core,
    ring: &RingHandle,
) -> Result<(Option<Arc<Steering>>, watch::Receiver<Option<String>>), NodeError> {
    let (demotion, told) = watch::channel(None);
    let config = core.settings.clone();
    let retention = Retention::of(&config.log);
    let Some(settings) = &config.mysql else {
        core.tasks
            .spawn(purge_as_configured(ring.clone(), retention, None));
        return Ok((None, told));
    };
    let unreadable = |key| move |source| NodeError::PasswordFile { key, source };
    let connect = connect_options(settings).map_err(unreadable("mysql.password_file"))?;
    let native = native_source(&config).map_err(unreadable("binlog_server.password_file"))?;
    let given = Given {
        native,
        origin: origin_gtids(&config, &core.book.origin())?,
        guard: core.with.guard.clone(),
    };
    let identity = core.book.identity();
    let requirements = requirements(settings, identity.member, identity.incarnation);
    let asked = Some(connect.clone());
    core.tasks
        .spawn(purge_as_configured(ring.clone(), retention, asked));
    let steering = Steering::begin(
        &config,
        settings,
        connect,
        requirements,
        given,
        ring.clone(),
    );
    let steering = steering.map_err(|source| NodeError::DataDir {
        path: config.data_dir.clone(),
        source,
    })?;
    ring.member.set_writer(steering.clone());
    ring.member.set_database(steering.clone());
    if let Some(patience) = settings.demote_after {
        let (full, seen) = (ring.member.clone(), steering.clone());
        let watching = DemotionTask {
            member: ring.member.clone(),
            patience,
            health: Box::new(move || match full.is_full_alone() {
                true => Some(PrimaryHealth::full()),
                false => seen.health(),
            }),
            told: demotion,
        };
        core.tasks.spawn(watching.run());
    }
    Ok((Some(steering), told))
}

/// Begins what looks after the member itself.
fn look_after(core: &mut Core, ring: &RingHandle) {
    let (state, member) = (core.state.clone(), ring.member.clone());
    core.tasks
        .spawn(async move { state.observer.observe(member).await });
    if core.settings.hooks.any() {
        let (settings, state) = (core.settings.clone(), core.state.clone());
        core.tasks.spawn(async move {
            let (commands, figures) = (settings.hooks.clone(), state.hooks.clone());
            hooks::run(commands, settings.mysql.as_ref(), state, figures).await;
        });
    }
    let (region, rate) = (
        core.settings.own.region.clone(),
        core.settings.log.scrub_rate,
    );
    core.tasks.spawn(scrub(ring.clone(), region, rate));
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
