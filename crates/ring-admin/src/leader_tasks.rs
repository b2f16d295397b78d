//! The leader's maintenance tasks. A leader moves the quorum to the members that the policy requires. A witness that leads moves the quorum
//! to the region of a database member, and then transfers the leadership to this member. The decision is a pure function of one view of
//! the ring. The task performs one step, and then decides again.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use consensus::quorum::{QuorumPlan, RingRules, VoterSets, plan};
use consensus::{
    HistoryEvent, Leadership, LedTerm, Named, RingView, RoleSnapshot, Standings, TargetStanding,
};
use openraft::async_runtime::watch::WatchReceiver;
use raft_types::{FormatVersion, MemberId, MemberKind, UnixSeconds, lock};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::administration::{Administration, LeaderTask};
use crate::formats::{self, Programs};
use crate::mysqld::{self, Asking, DatabaseStates};
use crate::pause;
use crate::promotion::{self, PromotionCause};
use crate::scheduled_switchover::{self, ScheduledSwitchover, SwitchoverPhase};
use crate::target;

/// The task that follows from one view of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextTask {
    /// No task is due, or this member does not lead.
    Stay,
    Move {
        next: VoterSets,
        target: Option<MemberId>,
    },
    /// The last step of a quorum move: send its entry, then transfer the leadership without waiting for the commit.
    MoveAndTransfer { next: VoterSets, to: MemberId },
    /// Transfer the leadership to this member.
    Transfer(MemberId),
    /// An earlier transfer to this member failed: check with a mock election whether it would be elected now.
    MockElection(MemberId),
    /// The pause of failover has expired: end it.
    EndPause,
    /// A scheduled switchover is due: execute it.
    Switchover(ScheduledSwitchover),
    /// A scheduled switchover is complete or has expired: remove it.
    EndSwitchover(ScheduledSwitchover),
    /// No other task is due, and every member supports the next format: raise the ring's format.
    RaiseFormat(FormatVersion),
    /// A task is due, but blocked for the reason in the text.
    Wait(String),
}

/// Decides the leader's next task, from its view and the reports of the databases and programs. Members in `failed`, to which a transfer
/// has failed, are chosen last. They may also have to wait, or to win a mock election first.
pub(crate) fn decide(
    view: &RingView,
    rules: &RingRules,
    failed: &Standings,
    databases: &DatabaseStates,
    programs: &Programs,
    now: UnixSeconds,
) -> NextTask {
    match decide_quorum(view, rules, failed, databases, now) {
        NextTask::Stay => {
            formats::to_raise(view, programs).map_or(NextTask::Stay, NextTask::RaiseFormat)
        }
        more_urgent => more_urgent,
    }
}

/// Decides the next task that concerns the leader or the quorum.
fn decide_quorum(
    view: &RingView,
    rules: &RingRules,
    failed: &Standings,
    databases: &DatabaseStates,
    now: UnixSeconds,
) -> NextTask {
    let Some(own) = view.member(view.own).filter(|_| view.leads) else {
        return NextTask::Stay;
    };
    if view.pause().is_some_and(|paused| paused.pause.is_over(now)) {
        return NextTask::EndPause;
    }
    if let Some(scheduled) = ScheduledSwitchover::of(view) {
        match scheduled.turn(view, now) {
            SwitchoverPhase::ToCome => {}
            // A witness first transfers the leadership to a database member, which then performs the switchover.
            SwitchoverPhase::Due if own.record.kind == MemberKind::Witness => {}
            SwitchoverPhase::Due => return NextTask::Switchover(scheduled),
            SwitchoverPhase::Over => return NextTask::EndSwitchover(scheduled),
        }
    }
    let home = &own.record.region;
    let settle = |idle: NextTask| match plan(rules, view, home) {
        // An interim leader does not move the quorum: it leads until a voter has the end of the log.
        _ if view.is_interim => idle,
        QuorumPlan::Settled => idle,
        QuorumPlan::Step(next) => NextTask::Move { next, target: None },
        QuorumPlan::Blocked(why) => match idle {
            NextTask::Stay => NextTask::Wait(format!(
                "the quorum should move to region {home}, but cannot: {why}"
            )),
            idle => idle,
        },
    };
    // During a pause that reserves the primary's place for another member, a database member transfers the leadership as a witness does.
    if !gives_away(view) {
        return settle(NextTask::Stay);
    }
    let target = match view.is_interim {
        true => target::choose_voter(view, failed, databases),
        false => target::choose(view, rules, failed, databases),
    };
    let target = match target {
        Ok(target) => target,
        Err(why) => return settle(NextTask::Wait(why.to_string())),
    };
    match failed.get(&target) {
        Some(TargetStanding::Held(why)) => return settle(NextTask::Wait(why.clone())),
        Some(TargetStanding::ToBeTested) => return settle(NextTask::MockElection(target)),
        Some(TargetStanding::ComesLast) | None => {}
    }
    let transfer = || match view.check_transfer(target) {
        Ok(()) => NextTask::Transfer(target),
        Err(refusal) => NextTask::Wait(refusal.to_string()),
    };
    if view.is_interim {
        return transfer();
    }
    let there = view.member(target).map(|target| &target.record.region);
    match plan(rules, view, there.unwrap_or(home)) {
        QuorumPlan::Step(next) if is_last_step(view, &next, target) => {
            NextTask::MoveAndTransfer { next, to: target }
        }
        QuorumPlan::Step(next) => NextTask::Move {
            next,
            target: Some(target),
        },
        // `Blocked` cannot occur: no target in a blocked region is chosen.
        QuorumPlan::Settled | QuorumPlan::Blocked(_) => transfer(),
    }
}

/// True if this step leaves one set in force, which contains `target`. Then the target needs only the entry of the step to be elected by
/// that set, and to commit the entry. Raft permits this: a member uses the newest membership in its log, even if it is not committed. Any
/// member that these voters elect has the entry. This saves the round trip for the entry's acknowledgement.
fn is_last_step(view: &RingView, next: &VoterSets, target: MemberId) -> bool {
    let elects = |set| view.voter_sets.contains(set) && set.contains(&target);
    next.len() == 1
        && next.iter().all(elects)
        && view.member(target).is_some_and(|peer| view.is_near(peer))
}

/// True if this leader should transfer the leadership as soon as possible: a witness, an interim leader, or a leader during a pause that
/// reserves the primary's place for another member.
fn gives_away(view: &RingView) -> bool {
    let own = view.member(view.own);
    view.leads
        && own.is_some_and(|own| {
            own.record.kind == MemberKind::Witness
                || view.is_interim
                || view.pins_another_primary_than(own.id)
        })
}

/// The databases' reports in this term, and the times of the queries. The times limit how often a waiting leader queries the databases.
#[derive(Debug, Default)]
struct DatabaseReports {
    first_asked: Option<Instant>,
    asked: Option<Instant>,
    first_reported: Option<Instant>,
    states: watch::Sender<DatabaseStates>,
}

/// How long the leader waits for further members after the first one has reported. Without this wait, the first member to report would be
/// chosen before members at the same distance, which the operator may prefer.
const ALONG: Duration = Duration::from_millis(5);

impl DatabaseReports {
    /// Queries the databases if the last query is older than half a heartbeat. A new leader waits for the first reports, and for the
    /// heartbeat answers of the members that reported: before that, it has no evidence that members are alive. Later, it does not wait: the
    /// earlier reports are used until new ones arrive. Otherwise each query would delay a quorum move by one round trip.
    async fn renew(&mut self, admin: &Administration) {
        let view = admin.node.ring_view();
        if !gives_away(&view) {
            return;
        }
        let pause = admin.node.timers().heartbeat / 2;
        if self.asked.is_none_or(|at| at.elapsed() >= pause) {
            self.asked = Some(Instant::now());
            let asking = Asking::begin(
                &admin.node,
                admin.local.database_version(),
                &view,
                &self.states,
            );
            if self.first_asked.is_none() {
                asking.wait().await;
            }
        }
        let first_asked = *self.first_asked.get_or_insert_with(Instant::now);
        while first_asked.elapsed() < pause {
            let view = admin.node.ring_view();
            let (reported, all_are_there) = {
                let states = self.states.borrow();
                let mut reported = states.keys();
                let is_there =
                    |id: &MemberId| view.member(*id).is_some_and(|peer| view.is_near(peer));
                (reported.len(), reported.all(is_there))
            };
            let first_reported = match reported {
                0 => None,
                _ => Some(*self.first_reported.get_or_insert_with(Instant::now)),
            };
            let others_may_come = reported < mysqld::candidates(&view).count()
                && first_reported.is_some_and(|at| at.elapsed() < ALONG);
            if all_are_there && !others_may_come || !view.leads {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Runs the leader tasks whenever this member leads, until the engine stops.
pub(crate) async fn run(admin: Arc<Administration>, mut leadership: watch::Receiver<Leadership>) {
    loop {
        let leads = leadership
            .wait_for(|now| now.leading_term().is_some())
            .await
            .is_ok();
        if !leads {
            return;
        }
        lead(&admin, &mut leadership).await;
        admin.leader_task.send_replace(None);
    }
}

/// Runs the tasks of one leader term until it ends.
async fn lead(admin: &Administration, leadership: &mut watch::Receiver<Leadership>) {
    let (node, timers) = (&admin.node, admin.node.timers());
    let mut progress = node.engine().data_metrics();
    let mut roles = node.engine().server_metrics();
    let mut failed: Vec<MemberId> = Vec::new();
    let mut databases = DatabaseReports::default();
    let mut states = databases.states.subscribe();
    while leadership.borrow_and_update().leading_term().is_some() {
        databases.renew(admin).await;
        // While a promotion or a membership change is in progress, this waits. The decision then uses the result.
        let reconfiguration_lock = admin.reconfiguration_lock.lock().await;
        let rules = admin.rules();
        let next = decide_now(admin, &rules, &failed, &states.borrow_and_update());
        let done = match next {
            NextTask::Stay => {
                drop(reconfiguration_lock);
                publish(admin, None);
                tokio::select! {
                    _ = leadership.changed() => {}
                    _ = roles.changed() => {}
                    // No event reports that a new member has caught up or a voter answers again, so the view is checked regularly.
                    () = tokio::time::sleep(check_interval(&rules, timers.heartbeat)) => {}
                }
                continue;
            }
            NextTask::Wait(why) => {
                drop(reconfiguration_lock);
                publish_wait(admin, why);
                tokio::select! {
                    _ = progress.changed() => {}
                    _ = states.changed() => {}
                    _ = leadership.changed() => {}
                    () = tokio::time::sleep(timers.heartbeat / 2) => {}
                }
                continue;
            }
            NextTask::MockElection(to) => {
                drop(reconfiguration_lock);
                let lost = match promotion::mock_election(admin, to).await {
                    Ok(election) => (!election.is_won()).then(|| election.to_string()),
                    Err(refusal) => Some(refusal.to_string()),
                };
                let pause = timers.longest_election();
                let targets = &node.failed_targets;
                targets.tested(to, lost, pause, Instant::now());
                continue;
            }
            NextTask::Switchover(scheduled) => {
                drop(reconfiguration_lock);
                if let Err(failure) = switch_over(admin, &scheduled).await {
                    let to = scheduled.to;
                    let why = format!("the scheduled switchover to member {to} waits: {failure}");
                    publish_wait(admin, why);
                    tokio::time::sleep(timers.lease).await;
                }
                continue;
            }
            NextTask::Move { next, target } => {
                publish_move(admin, &next, target);
                admin.move_quorum(next).await.map_err(TaskFailure::from)
            }
            NextTask::MoveAndTransfer { next, to } => {
                publish_move(admin, &next, Some(to));
                move_and_transfer(admin, next, to).await
            }
            NextTask::Transfer(to) => {
                publish(admin, Some(LeaderTask::Transferring(to)));
                let done = transfer(admin, to, 0).await;
                if done.is_err() && !failed.contains(&to) {
                    failed.push(to);
                }
                done
            }
            NextTask::RaiseFormat(to) => raise_format(admin, to).await,
            NextTask::EndPause => {
                let ended = pause::write(admin, None, "").await;
                ended.map(drop).map_err(TaskFailure::from)
            }
            NextTask::EndSwitchover(scheduled) => {
                let why = (scheduled.to != node.id()).then(|| match &*admin.leader_task.borrow() {
                    Some(LeaderTask::Waiting(why)) => why.clone(),
                    _ => "no leader could carry it out in time".to_owned(),
                });
                let ended = scheduled_switchover::take_out(admin, why).await;
                ended.map(drop).map_err(TaskFailure::from)
            }
        };
        if let Err(failure) = done {
            publish_wait(admin, failure.to_string());
            drop(reconfiguration_lock);
            tokio::time::sleep(timers.heartbeat / 4).await;
        }
    }
}

/// Decides the next task from the current state. A transfer to the members in `failed` has failed in this term, so they are chosen last.
fn decide_now(
    admin: &Administration,
    rules: &RingRules,
    failed: &[MemberId],
    states: &DatabaseStates,
) -> NextTask {
    let node = &admin.node;
    let mut programs = lock(&admin.local.programs).clone();
    programs.insert(node.id(), admin.local.program.clone());
    let mut standings = node.failed_targets.standings(Instant::now());
    for id in failed {
        standings.entry(*id).or_insert(TargetStanding::ComesLast);
    }
    decide(
        &node.ring_view(),
        rules,
        &standings,
        states,
        &programs,
        pause::now(),
    )
}

/// Why a leader's task was not completed. The reason is only shown to operators; the next decision tries again.
type TaskFailure = Box<dyn Error + Send + Sync>;

/// Interval between checks while no task is due and no event arrives.
fn check_interval(rules: &RingRules, heartbeat: Duration) -> Duration {
    match rules.policy.follows_answers() {
        // The interval must be short: after a region stops answering, the quorum must change before the lease ends.
        true => heartbeat / 16,
        false => heartbeat,
    }
}

/// Executes a scheduled switchover, unless the target reports that its mysqld cannot be the primary.
async fn switch_over(
    admin: &Administration,
    scheduled: &ScheduledSwitchover,
) -> Result<(), TaskFailure> {
    let to = scheduled.to;
    let view = admin.node.ring_view();
    let reported = admin.database_state(to).await;
    if let Some(why) = reported.and_then(|state| state.unfit) {
        return Err(why.into());
    }
    let named = |id| view.member(id).map(|peer| Named::of(id, &peer.record));
    let (from, named) = (named(admin.node.id()), named(to));
    let (ordered, progress) = (PromotionCause::Ordered, watch::Sender::default());
    promotion::promote(admin, to, ordered, &progress, &|| true).await?;
    if let (Some(from), Some(to)) = (from, named) {
        let why = "scheduled switchover".to_owned();
        let event = HistoryEvent::GaveAway { from, to, why };
        let entry = admin.entry_now(&scheduled.by, event);
        admin.local.notes.take(vec![entry]);
    }
    Ok(())
}

/// Moves the quorum to `next` and transfers the leadership to `to` once the entry has been sent.
async fn move_and_transfer(
    admin: &Administration,
    next: VoterSets,
    to: MemberId,
) -> Result<(), TaskFailure> {
    let is_in_the_log = |role: &RoleSnapshot| role.voter_sets() == next.as_slice();
    tokio::select! {
        moved = admin.move_quorum(next.clone()) => moved?,
        // The entry is in the log, and may not be committed yet.
        _ = admin.node.role_when(is_in_the_log) => {}
    }
    transfer(admin, to, 1).await
}

/// Transfers the leadership to `to`, which may lack `in_flight` entries that have been sent to it.
async fn transfer(admin: &Administration, to: MemberId, in_flight: u64) -> Result<(), TaskFailure> {
    admin.node.wait_for_log(to, in_flight).await?;
    let LedTerm { leader, term } = admin.node.transfer(to).await?;
    match leader == to {
        true => tracing::info!(%to, %term, "transferred the leadership"),
        false => {
            tracing::warn!(%to, %leader, %term, "another member leads than the transfer target")
        }
    }
    Ok(())
}

/// Raises the ring's format. The caller holds the reconfiguration lock.
async fn raise_format(admin: &Administration, to: FormatVersion) -> Result<(), TaskFailure> {
    let stays = |why: &dyn Error| format!("the ring's format stays: {why}");
    admin.local.reach(to).map_err(|why| stays(&why))?;
    let entries = [admin.entry_now("", HistoryEvent::FormatRaised { to })];
    let change = admin.change_records(&entries, |members| formats::write(members, to));
    change.await.map_err(|why| stays(&why))?;
    tracing::info!(%to, "all members support it: the ring's format is raised");
    Ok(())
}

fn publish(admin: &Administration, now: Option<LeaderTask>) {
    admin.leader_task.send_if_modified(|published| {
        let changed = *published != now;
        if changed {
            match &now {
                Some(LeaderTask::MovingQuorum { next, target }) => {
                    tracing::info!(?next, to = ?target, "moving the quorum");
                }
                Some(LeaderTask::Waiting(why)) => {
                    tracing::warn!(%why, "the ring is not as it should be");
                }
                Some(LeaderTask::Transferring(_)) | None => {}
            }
            *published = now;
        }
        changed
    });
}

fn publish_move(admin: &Administration, next: &VoterSets, target: Option<MemberId>) {
    let next = next.clone();
    publish(admin, Some(LeaderTask::MovingQuorum { next, target }));
}

fn publish_wait(admin: &Administration, why: String) {
    publish(admin, Some(LeaderTask::Waiting(why)));
}

#[cfg(test)]
mod tests {
    use consensus::Program;
    use raft_types::Pause;

    use super::*;
    use crate::test_ring::Ring;

    const NOW: UnixSeconds = UnixSeconds(1_000);

    fn next_task(ring: &Ring) -> NextTask {
        next_task_in(&ring.view())
    }

    fn next_task_in(view: &RingView) -> NextTask {
        decide(
            view,
            &RingRules::default(),
            &Standings::new(),
            &DatabaseStates::new(),
            &Programs::new(),
            NOW,
        )
    }

    #[test]
    fn the_ring_s_format_rises_when_there_is_nothing_else_to_do() {
        let speaks = Program {
            version: "0.2.0".to_owned(),
            formats: "1-2".parse().unwrap(),
        };
        let next = |ring: &Ring| {
            let view = ring.view();
            let all = view.members.iter().map(|peer| (peer.id, speaks.clone()));
            let (rules, none) = (RingRules::default(), DatabaseStates::new());
            let failed = Standings::new();
            decide(&view, &rules, &failed, &none, &all.collect(), NOW)
        };
        assert_eq!(next(&ring()), NextTask::RaiseFormat(FormatVersion(2)));
        let moves = next(&ring().with_sets(&[&[4, 5, 6]]));
        assert!(matches!(moves, NextTask::Move { .. }), "{moves:?}");
        let hands_over = next(&ring().led_by(2));
        assert_eq!(hands_over, NextTask::Transfer(MemberId(1)));
    }

    fn sets(of: &[&[u64]]) -> VoterSets {
        let set = |ids: &&[u64]| ids.iter().copied().map(MemberId).collect();
        of.iter().map(set).collect()
    }

    fn ring() -> Ring {
        Ring::new("a: 1d 2w 3w | b: 4d 5w 6w").with_sets(&[&[1, 2, 3]])
    }

    #[test]
    fn a_database_member_in_its_own_quorum_stays() {
        assert_eq!(next_task(&ring()), NextTask::Stay);
    }

    #[test]
    fn a_witness_hands_over_in_its_region_if_it_can() {
        assert_eq!(
            next_task(&ring().led_by(2)),
            NextTask::Transfer(MemberId(1))
        );
    }

    #[test]
    fn a_failed_target_is_tried_again_after_a_mock_election() {
        let next = |ring: &Ring, standing: TargetStanding| {
            let failed = Standings::from([(MemberId(1), standing)]);
            let (rules, none) = (RingRules::default(), DatabaseStates::new());
            let (view, programs) = (ring.view(), Programs::new());
            decide(&view, &rules, &failed, &none, &programs, NOW)
        };
        let held = || TargetStanding::Held("it would not be elected".to_owned());
        let one = Ring::new("a: 1d 2w 3w").with_sets(&[&[1, 2, 3]]).led_by(2);
        let gets_it = NextTask::Transfer(MemberId(1));
        assert_eq!(next(&one, TargetStanding::ComesLast), gets_it);
        let is_tested = NextTask::MockElection(MemberId(1));
        assert_eq!(next(&one, TargetStanding::ToBeTested), is_tested);
        let waits = NextTask::Wait("it would not be elected".to_owned());
        assert_eq!(next(&one, held()), waits);
        let two = Ring::new("a: 1d 2w 3d").with_sets(&[&[1, 2, 3]]).led_by(2);
        for standing in [
            TargetStanding::ComesLast,
            TargetStanding::ToBeTested,
            held(),
        ] {
            assert_eq!(next(&two, standing), NextTask::Transfer(MemberId(3)));
        }
    }

    fn paused(ring: &Ring, primary: u64, until: Option<u64>) -> Ring {
        ring.with(primary, |peer| {
            peer.record.pause = Some(Box::new(Pause {
                since: UnixSeconds(900),
                until: until.map(UnixSeconds),
                by: "anna".to_owned(),
                reason: String::new(),
            }));
        })
    }

    #[test]
    fn during_a_pause_the_leadership_returns_to_the_primary() {
        let ring = Ring::new("a: 1d 2w 3d | b: 4d 5w 6w").with_sets(&[&[1, 2, 3]]);
        let paused_ring = paused(&ring, 1, None);
        assert_eq!(next_task(&paused_ring), NextTask::Stay);
        // Both a witness and another database member transfer the leadership back. Without a pause, the database member would keep it.
        for leader in [2, 3] {
            let back = paused_ring.clone().led_by(leader);
            assert_eq!(next_task(&back), NextTask::Transfer(MemberId(1)));
            let gone = back.silent(&[1]);
            let NextTask::Wait(why) = next_task(&gone) else {
                panic!("{:?}", next_task(&gone));
            };
            assert!(
                why.contains("failover is paused until member 1 is the primary again")
                    && why.contains("does not answer"),
                "{why}"
            );
        }
        // If the leader is in another region, the quorum moves together with the leadership.
        let elsewhere = paused_ring.led_by(4).with_sets(&[&[4, 5, 6]]);
        let target = Some(MemberId(1));
        let next = sets(&[&[4, 5, 6], &[1, 2, 3]]);
        assert_eq!(next_task(&elsewhere), NextTask::Move { next, target });
    }

    #[test]
    fn an_interim_leader_transfers_to_a_voter_without_a_quorum_move() {
        let ring = Ring::new("a: 1w 2d | b: 3d 4d 5w").with_sets(&[&[1, 2]]);
        let without = |silent: &[u64]| {
            let view = ring.clone().led_by(3).silent(silent).view();
            next_task_in(&RingView {
                is_interim: true,
                ..view
            })
        };
        assert_eq!(without(&[]), NextTask::Transfer(MemberId(2)));
        // If no database member with a vote answers, the leadership is transferred to a witness with a vote.
        assert_eq!(without(&[2]), NextTask::Transfer(MemberId(1)));
        // Members without a vote do not get the leadership, even if only they answer.
        let NextTask::Wait(why) = without(&[1, 2]) else {
            panic!("{:?}", without(&[1, 2]));
        };
        assert!(why.contains("no voter"), "{why}");
        // A leader outside of the quorum moves the quorum to its own region.
        let outside = ring.led_by(3);
        assert!(matches!(next_task(&outside), NextTask::Move { .. }));
    }

    #[test]
    fn a_leader_ends_the_pause_when_its_time_is_over() {
        let ring = ring();
        for leader in [1, 2, 4] {
            let over = paused(&ring, 1, Some(1_000)).led_by(leader);
            assert_eq!(next_task(&over), NextTask::EndPause);
        }
        assert_eq!(next_task(&paused(&ring, 1, Some(1_001))), NextTask::Stay);
    }

    #[test]
    fn a_witness_without_a_target_at_home_moves_the_quorum() {
        let target = Some(MemberId(4));
        let bereft = ring().led_by(2).silent(&[1]);
        let next = sets(&[&[1, 2, 3], &[4, 5, 6]]);
        assert_eq!(next_task(&bereft), NextTask::Move { next, target });
        let joint = bereft.clone().with_sets(&[&[1, 2, 3], &[4, 5, 6]]);
        let next = sets(&[&[4, 5, 6]]);
        let to = MemberId(4);
        let last = NextTask::MoveAndTransfer { next, to };
        assert_eq!(next_task(&joint), last);
        let moved = bereft.with_sets(&[&[4, 5, 6]]);
        assert_eq!(next_task(&moved), NextTask::Transfer(MemberId(4)));
    }

    #[test]
    fn the_last_step_of_a_move_includes_the_transfer() {
        let ring = ring().led_by(2);
        let joint = ring.clone().with_sets(&[&[1, 2, 3], &[4, 5, 6]]);
        let is_last = |ring: &Ring, next: &[&[u64]], target| {
            is_last_step(&ring.view(), &sets(next), MemberId(target))
        };
        assert!(is_last(&joint, &[&[4, 5, 6]], 4));
        let others_elect = is_last(&joint, &[&[1, 2, 3]], 4);
        let two_sets = is_last(&joint, &[&[1, 2, 3], &[4, 5, 6]], 4);
        let set_to_come = is_last(&ring, &[&[4, 5, 6]], 4);
        let silent = is_last(&joint.clone().silent(&[4]), &[&[4, 5, 6]], 4);
        let lag = joint.with(4, |peer| peer.lag = Some(5_000));
        let far = is_last(&lag, &[&[4, 5, 6]], 4);
        let none = [others_elect, two_sets, set_to_come, silent, far];
        assert_eq!(none, [false; 5]);
    }

    #[test]
    fn an_interrupted_quorum_move_is_completed() {
        let joint = ring().with_sets(&[&[1, 2, 3], &[4, 5, 6]]);
        let next = sets(&[&[1, 2, 3]]);
        assert_eq!(next_task(&joint), NextTask::Move { next, target: None });
        let away = ring().with_sets(&[&[4, 5, 6]]);
        let next = sets(&[&[4, 5, 6], &[1, 2, 3]]);
        assert_eq!(next_task(&away), NextTask::Move { next, target: None });
    }

    #[test]
    fn obstacles_are_reported() {
        let alone = ring().led_by(2).silent(&[1, 4]);
        let NextTask::Wait(why) = next_task(&alone) else {
            panic!("{:?}", next_task(&alone));
        };
        assert!(why.contains("does not answer"), "{why}");
        let away = ring().with_sets(&[&[4, 5, 6]]).silent(&[2, 3]);
        let NextTask::Wait(why) = next_task(&away) else {
            panic!("{:?}", next_task(&away));
        };
        assert!(
            why.contains("the quorum should move to region a, but cannot"),
            "{why}"
        );
    }
}
