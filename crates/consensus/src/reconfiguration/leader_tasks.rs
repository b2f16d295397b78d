//! What a leader does for its ring besides leading it: it brings the quorum to where the policy wants it, and a witness
//! gives the leadership to a database member, moving the quorum there first. What to do is a pure decision about one view
//! of the ring; the task performs one step at a time and looks again.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use raft_types::{FormatVersion, MemberId, MemberKind, UnixSeconds};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::calls::MemberCalls;
use crate::formats;
use crate::formats::Programs;
use crate::history::noting::entry_now;
use crate::history::{HistoryEvent, Named};
use crate::lease::leadership::Leadership;
use crate::member::core::MemberCore;
use crate::quorum::{QuorumPlan, RingRules, VoterSets, plan};
use crate::reconfiguration::scheduled_switchover::{ScheduledSwitchover, Turn};
use crate::reconfiguration::{pause, promotion, scheduled_switchover};
use crate::ring_view::RingView;
use crate::transfer::fitness::DatabaseStates;
use crate::transfer::leadership_transfer::{TransferOutcome, transfer};
use crate::transfer::{fitness, leadership_transfer, target};

/// What a leader is doing for its ring; nothing when all is as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum LeaderTask {
    /// It changes the voter sets.
    MovingQuorum {
        /// The voter sets that it moves to in this step.
        next: VoterSets,
        /// So that this database member can lead, where a witness does it.
        target: Option<MemberId>,
    },
    /// As a witness, it gives the leadership to this member.
    Transferring {
        /// The database member that is to lead.
        to: MemberId,
    },
    /// It would do something, and cannot; a witness goes on leading meanwhile, serving nobody.
    Waiting {
        /// In words, what keeps it from acting.
        why: String,
    },
}

/// The decision about one view of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextTask {
    /// All is as it should be, or this member does not lead.
    Stay,
    Move {
        next: VoterSets,
        target: Option<MemberId>,
    },
    /// Give the leadership to this member.
    Transfer(MemberId),
    /// The time of the pause is over.
    EndPause,
    /// The time of a scheduled switchover has come.
    Switchover(ScheduledSwitchover),
    /// A scheduled switchover is done, or its time is over.
    EndSwitchover(ScheduledSwitchover),
    /// All is as it should be, and every member speaks the next format: it becomes the ring's.
    RaiseFormat(FormatVersion),
    /// Nothing can be done now.
    Wait(String),
}

/// What the leader of this view should do, with what the databases and the members say of themselves. Transfer targets in `failed`
/// come last.
pub(crate) fn decide(
    view: &RingView,
    rules: &RingRules,
    lease: Duration,
    failed: &[MemberId],
    said: &DatabaseStates,
    programs: &Programs,
    now: UnixSeconds,
) -> NextTask {
    match look_after_quorum(view, rules, lease, failed, said, now) {
        NextTask::Stay => {
            formats::to_raise(view, programs).map_or(NextTask::Stay, NextTask::RaiseFormat)
        }
        more_urgent => more_urgent,
    }
}

/// What is to be done about who leads and who decides a commit.
fn look_after_quorum(
    view: &RingView,
    rules: &RingRules,
    lease: Duration,
    failed: &[MemberId],
    said: &DatabaseStates,
    now: UnixSeconds,
) -> NextTask {
    let Some(own) = view.member(view.own).filter(|_| view.leads) else {
        return NextTask::Stay;
    };
    if view.pause().is_some_and(|paused| paused.pause.is_over(now)) {
        return NextTask::EndPause;
    }
    if let Some(scheduled) = view.scheduled_switchover() {
        match scheduled.turn(view, now) {
            Turn::ToCome => {}
            // A witness gives the leadership to a database member first, which then goes on with it.
            Turn::Due if own.record.kind == MemberKind::Witness => {}
            Turn::Due => return NextTask::Switchover(scheduled),
            Turn::Over => return NextTask::EndSwitchover(scheduled),
        }
    }
    let home = &own.record.region;
    let settle = |idle: NextTask| match plan(rules, view, home, lease) {
        QuorumPlan::Settled => idle,
        QuorumPlan::Step { next } => NextTask::Move { next, target: None },
        QuorumPlan::Blocked { why } => match idle {
            NextTask::Stay => NextTask::Wait(format!(
                "the quorum should move to region {home}, but cannot: {why}"
            )),
            idle => idle,
        },
    };
    // While another one's place is kept, a database member takes care of the ring as a witness does.
    if !gives_away(view) {
        return settle(NextTask::Stay);
    }
    let target = match target::choose(view, rules, lease, failed, said) {
        Ok(target) => target,
        Err(why) => return settle(NextTask::Wait(why)),
    };
    let there = view.member(target).map(|target| &target.record.region);
    match plan(rules, view, there.unwrap_or(home), lease) {
        QuorumPlan::Step { next } => NextTask::Move {
            next,
            target: Some(target),
        },
        // A target whose region is blocked is not chosen.
        QuorumPlan::Settled | QuorumPlan::Blocked { .. } => {
            match leadership_transfer::verify(view, target, lease) {
                Ok(()) => NextTask::Transfer(target),
                Err(refusal) => NextTask::Wait(refusal.to_string()),
            }
        }
    }
}

/// Whether the leader of this view gives the leadership to a database member as soon as it can.
fn gives_away(view: &RingView) -> bool {
    let own = view.member(view.own);
    view.leads
        && own.is_some_and(|own| {
            own.record.kind == MemberKind::Witness || view.pins_another_primary_than(own.id)
        })
}

/// What the databases said last, and when: a leader that waits for something does not ask them without a pause.
#[derive(Debug, Default)]
struct Said {
    at: Option<Instant>,
    states: DatabaseStates,
}

impl Said {
    /// Asks again, if what was said is old. A leader that was just elected knows of nobody that it is there before the first
    /// heartbeats are answered; whoever has said how its mysqld is will answer them, and is waited for, so that the first one to answer
    /// is not chosen for that.
    async fn renew(&mut self, core: &MemberCore, calls: &Arc<dyn MemberCalls>) {
        let pause = core.timers.heartbeat / 2;
        let is_new = self.at.is_some_and(|at| at.elapsed() < pause);
        if is_new || !gives_away(&core.ring_view()) {
            return;
        }
        self.states = fitness::ask(core, calls, &core.ring_view()).await;
        let until = Instant::now() + pause;
        let answers = |view: &RingView, id| {
            let peer = view.member(id);
            peer.is_some_and(|peer| peer.answers(core.timers.lease))
        };
        loop {
            let view = core.ring_view();
            let all_answer = self.states.keys().all(|id| answers(&view, *id));
            if all_answer || !view.leads || Instant::now() >= until {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.at = Some(Instant::now());
    }
}

/// Looks after the ring whenever this member leads, until the engine stops.
pub(crate) async fn run(
    core: Arc<MemberCore>,
    calls: Arc<dyn MemberCalls>,
    mut leadership: watch::Receiver<Leadership>,
    state: watch::Sender<Option<LeaderTask>>,
) {
    loop {
        let leads = leadership
            .wait_for(|now| now.leading_term().is_some())
            .await
            .is_ok();
        if !leads {
            return;
        }
        look_after(&core, &calls, &mut leadership, &state).await;
        state.send_replace(None);
    }
}

/// Works on one leadership until it ends.
async fn look_after(
    core: &Arc<MemberCore>,
    calls: &Arc<dyn MemberCalls>,
    leadership: &mut watch::Receiver<Leadership>,
    state: &watch::Sender<Option<LeaderTask>>,
) {
    let mut progress = core.raft.data_metrics();
    let mut roles = core.raft.server_metrics();
    let mut failed: Vec<MemberId> = Vec::new();
    let mut said = Said::default();
    while leadership.borrow_and_update().leading_term().is_some() {
        said.renew(core, calls).await;
        // A promotion or a change of members is under way: what it leaves behind is looked at after it.
        let reconfiguration_lock = core.reconfiguration_lock.lock().await;
        let (view, lease) = (core.ring_view(), core.timers.lease);
        let rules = core.rules();
        let programs = core.formats.programs(core.id);
        let next = decide(
            &view,
            &rules,
            lease,
            &failed,
            &said.states,
            &programs,
            pause::now(),
        );
        match next {
            NextTask::Stay => {
                drop(reconfiguration_lock);
                publish(state, None);
                tokio::select! {
                    _ = leadership.changed() => {}
                    _ = roles.changed() => {}
                    // A new member is caught up, or a voter is back.
                    () = tokio::time::sleep(pause_between_looks(&rules, core.timers.heartbeat)) => {}
                }
            }
            NextTask::Move { next, target } => {
                let moving = LeaderTask::MovingQuorum {
                    next: next.clone(),
                    target,
                };
                publish(state, Some(moving));
                if let Err(error) = core.move_quorum(next).await {
                    publish_wait(state, error.to_string());
                    drop(reconfiguration_lock);
                    tokio::time::sleep(core.timers.heartbeat / 4).await;
                }
            }
            NextTask::Transfer(to) => {
                publish(state, Some(LeaderTask::Transferring { to }));
                if let Err(why) = give_to(core, calls, to).await {
                    if !failed.contains(&to) {
                        failed.push(to);
                    }
                    publish_wait(state, why);
                    drop(reconfiguration_lock);
                    tokio::time::sleep(core.timers.heartbeat / 4).await;
                }
            }
            NextTask::RaiseFormat(to) => {
                if let Err(why) = formats::raise(core, to).await {
                    publish_wait(state, format!("the ring's format stays: {why}"));
                    drop(reconfiguration_lock);
                    tokio::time::sleep(core.timers.heartbeat / 4).await;
                }
            }
            NextTask::EndPause => {
                if let Err(error) = pause::write(core, None, "").await {
                    publish_wait(state, error.to_string());
                    drop(reconfiguration_lock);
                    tokio::time::sleep(core.timers.heartbeat / 4).await;
                }
            }
            NextTask::Switchover(scheduled) => {
                drop(reconfiguration_lock);
                if let Err(why) = switch_over(core, calls, &scheduled).await {
                    publish_wait(state, why);
                    tokio::time::sleep(core.timers.lease).await;
                }
            }
            NextTask::EndSwitchover(scheduled) => {
                let why = (scheduled.to != core.id).then(|| match &*state.borrow() {
                    Some(LeaderTask::Waiting { why }) => why.clone(),
                    _ => "nobody could carry it out in time".to_owned(),
                });
                if let Err(error) = scheduled_switchover::take_out(core, why).await {
                    publish_wait(state, error.to_string());
                    drop(reconfiguration_lock);
                    tokio::time::sleep(core.timers.heartbeat / 4).await;
                }
            }
            NextTask::Wait(why) => {
                drop(reconfiguration_lock);
                publish_wait(state, why);
                tokio::select! {
                    _ = progress.changed() => {}
                    _ = leadership.changed() => {}
                    () = tokio::time::sleep(core.timers.heartbeat / 2) => {}
                }
            }
        }
    }
}

/// How long a leader that has nothing to do waits before it looks again, if nothing wakes it.
fn pause_between_looks(rules: &RingRules, heartbeat: Duration) -> Duration {
    match rules.policy.follows_answers() {
        // There is a short time between the silence of a region and the end of the lease.
        true => heartbeat / 16,
        false => heartbeat,
    }
}

/// Carries a scheduled switchover out, unless its target says that its mysqld is not fit; in words, why that failed.
async fn switch_over(
    core: &Arc<MemberCore>,
    calls: &Arc<dyn MemberCalls>,
    scheduled: &ScheduledSwitchover,
) -> Result<(), String> {
    let to = scheduled.to;
    let failed = |why: String| format!("the scheduled switchover to member {to} waits: {why}");
    let view = core.ring_view();
    let said = fitness::ask(core, calls, &view).await;
    if let Some(why) = said.get(&to).and_then(|state| state.unfit.clone()) {
        return Err(failed(why));
    }
    let from = view
        .member(core.id)
        .map(|own| Named::of(core.id, &own.record));
    let named = view.member(to).map(|peer| Named::of(to, &peer.record));
    let promoted = promotion::promote(core, calls, to, &watch::Sender::default()).await;
    promoted.map_err(|error| failed(error.to_string()))?;
    if let (Some(from), Some(to)) = (from, named) {
        let why = "scheduled switchover".to_owned();
        let event = HistoryEvent::GaveAway { from, to, why };
        core.notes.take(vec![entry_now(core, &scheduled.by, event)]);
    }
    Ok(())
}

/// Gives the leadership of a witness to `to`; in words, why that failed.
async fn give_to(
    core: &Arc<MemberCore>,
    calls: &Arc<dyn MemberCalls>,
    to: MemberId,
) -> Result<(), String> {
    wait_for_the_log(core, to).await?;
    match transfer(core, calls, to).await {
        Ok(TransferOutcome::Done { term }) => {
            tracing::info!(%to, %term, "transferred the leadership");
            Ok(())
        }
        Ok(TransferOutcome::AnotherLeads { leader, term }) => {
            tracing::warn!(%to, %leader, %term, "another member leads than the transfer target");
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Waits, a lease at most, until `to` has the whole log durably. A target of the engine's transfer waits for it, too, but
/// only for a heartbeat; then it refuses, and the others, who take the leadership for given away, elect one of theirs.
async fn wait_for_the_log(core: &MemberCore, to: MemberId) -> Result<(), String> {
    let until = Instant::now() + core.timers.lease;
    loop {
        let view = core.ring_view();
        let behind = view.member(to).and_then(|target| target.behind);
        match behind {
            // None: it does not lead any more, and the transfer says so.
            Some(0) | None => return Ok(()),
            Some(behind) if Instant::now() >= until => {
                let lease = core.timers.lease;
                return Err(format!(
                    "member {to} still lacks {behind} entries of the log after {lease:?}; look at its disk"
                ));
            }
            Some(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

fn publish(state: &watch::Sender<Option<LeaderTask>>, now: Option<LeaderTask>) {
    state.send_if_modified(|published| {
        let changed = *published != now;
        if changed {
            match &now {
                Some(LeaderTask::MovingQuorum { next, target }) => {
                    tracing::info!(?next, to = ?target, "moving the quorum");
                }
                Some(LeaderTask::Waiting { why }) => {
                    tracing::warn!(%why, "the ring is not as it should be");
                }
                Some(LeaderTask::Transferring { .. }) | None => {}
            }
            *published = now;
        }
        changed
    });
}

fn publish_wait(state: &watch::Sender<Option<LeaderTask>>, why: String) {
    publish(state, Some(LeaderTask::Waiting { why }));
}

#[cfg(test)]
mod tests {
    use raft_types::Pause;
    use raft_types::PauseMark;

    use super::*;
    use crate::formats::Program;
    use crate::ring_view::tests::LEASE;
    use crate::ring_view::tests::Ring;

    const NOW: UnixSeconds = UnixSeconds(1_000);

    fn next_task(ring: &Ring) -> NextTask {
        decide(
            &ring.view(),
            &RingRules::default(),
            LEASE,
            &[],
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
            let (rules, nobody) = (RingRules::default(), DatabaseStates::new());
            decide(&view, &rules, LEASE, &[], &nobody, &all.collect(), NOW)
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

    fn paused(ring: &Ring, primary: u64, until: Option<u64>) -> Ring {
        ring.with(primary, |peer| {
            peer.record.pause = PauseMark(Some(Box::new(Pause {
                since: UnixSeconds(900),
                until: until.map(UnixSeconds),
                by: "anna".to_owned(),
                reason: String::new(),
            })));
        })
    }

    #[test]
    fn while_failover_is_paused_the_leadership_goes_back_and_nowhere_else() {
        let ring = Ring::new("a: 1d 2w 3d | b: 4d 5w 6w").with_sets(&[&[1, 2, 3]]);
        let paused_ring = paused(&ring, 1, None);
        assert_eq!(next_task(&paused_ring), NextTask::Stay);
        // Another database member, which would otherwise stay, and a witness give it back.
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
        // From another region, the quorum goes with it.
        let elsewhere = paused_ring.led_by(4).with_sets(&[&[4, 5, 6]]);
        let target = Some(MemberId(1));
        let next = sets(&[&[4, 5, 6], &[1, 2, 3]]);
        assert_eq!(next_task(&elsewhere), NextTask::Move { next, target });
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
    fn a_witness_without_an_heir_at_home_takes_the_quorum_to_another_region() {
        let target = Some(MemberId(4));
        let bereft = ring().led_by(2).silent(&[1]);
        let next = sets(&[&[1, 2, 3], &[4, 5, 6]]);
        assert_eq!(next_task(&bereft), NextTask::Move { next, target });
        let joint = bereft.clone().with_sets(&[&[1, 2, 3], &[4, 5, 6]]);
        let next = sets(&[&[4, 5, 6]]);
        assert_eq!(next_task(&joint), NextTask::Move { next, target });
        let moved = bereft.with_sets(&[&[4, 5, 6]]);
        assert_eq!(next_task(&moved), NextTask::Transfer(MemberId(4)));
    }

    #[test]
    fn a_quorum_that_was_left_between_two_regions_comes_home() {
        let joint = ring().with_sets(&[&[1, 2, 3], &[4, 5, 6]]);
        let next = sets(&[&[1, 2, 3]]);
        assert_eq!(next_task(&joint), NextTask::Move { next, target: None });
        let away = ring().with_sets(&[&[4, 5, 6]]);
        let next = sets(&[&[4, 5, 6], &[1, 2, 3]]);
        assert_eq!(next_task(&away), NextTask::Move { next, target: None });
    }

    #[test]
    fn what_cannot_be_done_is_said() {
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
