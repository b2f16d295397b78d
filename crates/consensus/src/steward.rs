//! What a leader does for its ring besides leading it: it brings the quorum to where the policy wants it, and a witness
//! gives the leadership to a database member, moving the quorum there first. What to do is a pure decision about one view
//! of the ring; the task performs one step at a time and looks again.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use raft_types::{MemberId, MemberKind, UnixSeconds};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::candidacy::{self, DatabaseStates};
use crate::heir;
use crate::leadership::Leadership;
use crate::pause;
use crate::questions::MemberCalls;
use crate::quorum::{QuorumPlan, RingRules, VoterSets, plan};
use crate::seat::Seat;
use crate::standing::RingView;
use crate::transfer::{self, TransferOutcome, transfer};

/// What a leader is doing for its ring; nothing when all is as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum StewardState {
    /// It changes the voter sets.
    MovingQuorum {
        /// To these.
        next: VoterSets,
        /// So that this database member can lead, where a witness does it.
        heir: Option<MemberId>,
    },
    /// As a witness, it gives the leadership to this member.
    Transferring {
        /// The database member.
        to: MemberId,
    },
    /// It would do something, and cannot; a witness goes on leading meanwhile, serving nobody.
    Waiting {
        /// In words, for what.
        why: String,
    },
}

/// The decision about one view of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Course {
    /// All is as it should be, or this member does not lead.
    Stay,
    /// Change the voter sets.
    Move {
        next: VoterSets,
        heir: Option<MemberId>,
    },
    /// Give the leadership to this member.
    Transfer(MemberId),
    /// The time of the pause is over.
    EndPause,
    /// Nothing can be done now.
    Wait(String),
}

/// What the leader of this view should do, with what the databases say of themselves. Heirs in `failed` come last.
pub(crate) fn decide(
    view: &RingView,
    rules: &RingRules,
    lease: Duration,
    failed: &[MemberId],
    said: &DatabaseStates,
    now: UnixSeconds,
) -> Course {
    let Some(own) = view.member(view.own).filter(|_| view.leads) else {
        return Course::Stay;
    };
    if view.pause().is_some_and(|paused| paused.pause.is_over(now)) {
        return Course::EndPause;
    }
    let home = &own.record.region;
    let settle = |idle: Course| match plan(rules, view, home, lease) {
        QuorumPlan::Settled => idle,
        QuorumPlan::Step { next } => Course::Move { next, heir: None },
        QuorumPlan::Blocked { why } => match idle {
            Course::Stay => Course::Wait(format!(
                "the quorum should be in region {home} and cannot: {why}"
            )),
            idle => idle,
        },
    };
    // While another one's place is kept, a database member takes care of the ring as a witness does.
    if !gives_away(view) {
        return settle(Course::Stay);
    }
    let heir = match heir::choose(view, rules, lease, failed, said) {
        Ok(heir) => heir,
        Err(why) => return settle(Course::Wait(why)),
    };
    let there = view.member(heir).map(|heir| &heir.record.region);
    match plan(rules, view, there.unwrap_or(home), lease) {
        QuorumPlan::Step { next } => Course::Move {
            next,
            heir: Some(heir),
        },
        // An heir whose region is blocked is not chosen.
        QuorumPlan::Settled | QuorumPlan::Blocked { .. } => {
            match transfer::verify(view, heir, lease) {
                Ok(()) => Course::Transfer(heir),
                Err(refusal) => Course::Wait(refusal.to_string()),
            }
        }
    }
}

/// Whether the leader of this view gives the leadership to a database member as soon as it can.
fn gives_away(view: &RingView) -> bool {
    let own = view.member(view.own);
    view.leads
        && own
            .is_some_and(|own| own.record.kind == MemberKind::Witness || view.keeps_a_place(own.id))
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
    async fn renew(&mut self, seat: &Seat, calls: &Arc<dyn MemberCalls>) {
        let pause = seat.timers.heartbeat / 2;
        let is_new = self.at.is_some_and(|at| at.elapsed() < pause);
        if is_new || !gives_away(&seat.ring_view()) {
            return;
        }
        self.states = candidacy::ask(seat, calls, &seat.ring_view()).await;
        let until = Instant::now() + pause;
        let answers = |view: &RingView, id| {
            let standing = view.member(id);
            standing.is_some_and(|standing| standing.answers(seat.timers.lease))
        };
        loop {
            let view = seat.ring_view();
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
    seat: Arc<Seat>,
    calls: Arc<dyn MemberCalls>,
    mut leadership: watch::Receiver<Leadership>,
    state: watch::Sender<Option<StewardState>>,
) {
    loop {
        let leads = leadership
            .wait_for(|now| now.leading_term().is_some())
            .await
            .is_ok();
        if !leads {
            return;
        }
        look_after(&seat, &calls, &mut leadership, &state).await;
        state.send_replace(None);
    }
}

/// Works on one leadership until it ends.
async fn look_after(
    seat: &Arc<Seat>,
    calls: &Arc<dyn MemberCalls>,
    leadership: &mut watch::Receiver<Leadership>,
    state: &watch::Sender<Option<StewardState>>,
) {
    let mut progress = seat.raft.data_metrics();
    let mut roles = seat.raft.server_metrics();
    let mut failed: Vec<MemberId> = Vec::new();
    let mut said = Said::default();
    while leadership.borrow_and_update().leading_term().is_some() {
        said.renew(seat, calls).await;
        // A promotion or a change of members is under way: what it leaves behind is looked at after it.
        let course_lock = seat.course.lock().await;
        let (view, lease) = (seat.ring_view(), seat.timers.lease);
        let rules = seat.rules();
        match decide(&view, &rules, lease, &failed, &said.states, pause::now()) {
            Course::Stay => {
                drop(course_lock);
                publish(state, None);
                tokio::select! {
                    _ = leadership.changed() => {}
                    _ = roles.changed() => {}
                    // A new member is caught up, or a voter is back.
                    () = tokio::time::sleep(pause_between_looks(&rules, seat.timers.heartbeat)) => {}
                }
            }
            Course::Move { next, heir } => {
                let moving = StewardState::MovingQuorum {
                    next: next.clone(),
                    heir,
                };
                publish(state, Some(moving));
                if let Err(error) = seat.move_quorum(next).await {
                    publish_wait(state, error.to_string());
                    drop(course_lock);
                    tokio::time::sleep(seat.timers.heartbeat / 4).await;
                }
            }
            Course::Transfer(to) => {
                publish(state, Some(StewardState::Transferring { to }));
                if let Err(why) = give_to(seat, calls, to).await {
                    if !failed.contains(&to) {
                        failed.push(to);
                    }
                    publish_wait(state, why);
                    drop(course_lock);
                    tokio::time::sleep(seat.timers.heartbeat / 4).await;
                }
            }
            Course::EndPause => {
                if let Err(error) = pause::write(seat, None).await {
                    publish_wait(state, error.to_string());
                    drop(course_lock);
                    tokio::time::sleep(seat.timers.heartbeat / 4).await;
                }
            }
            Course::Wait(why) => {
                drop(course_lock);
                publish_wait(state, why);
                tokio::select! {
                    _ = progress.changed() => {}
                    _ = leadership.changed() => {}
                    () = tokio::time::sleep(seat.timers.heartbeat / 2) => {}
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

/// Gives the leadership of a witness to `to`; in words, why that failed.
async fn give_to(
    seat: &Arc<Seat>,
    calls: &Arc<dyn MemberCalls>,
    to: MemberId,
) -> Result<(), String> {
    wait_for_the_log(seat, to).await?;
    match transfer(seat, calls, to).await {
        Ok(TransferOutcome::Done { term }) => {
            tracing::info!(%to, %term, "handed the leadership over");
            Ok(())
        }
        Ok(TransferOutcome::AnotherLeads { leader, term }) => {
            tracing::warn!(%to, %leader, %term, "another member leads than the one it was handed to");
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Waits, a lease at most, until `to` has the whole log durably. A target of the engine's transfer waits for it, too, but
/// only for a heartbeat; then it refuses, and the others, who take the leadership for given away, elect one of theirs.
async fn wait_for_the_log(seat: &Seat, to: MemberId) -> Result<(), String> {
    let until = Instant::now() + seat.timers.lease;
    loop {
        let view = seat.ring_view();
        let behind = view.member(to).and_then(|target| target.behind);
        match behind {
            // None: it does not lead any more, and the transfer says so.
            Some(0) | None => return Ok(()),
            Some(behind) if Instant::now() >= until => {
                let lease = seat.timers.lease;
                return Err(format!(
                    "member {to} still lacks {behind} entries of the log after {lease:?}; look at its disk"
                ));
            }
            Some(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

fn publish(state: &watch::Sender<Option<StewardState>>, now: Option<StewardState>) {
    state.send_if_modified(|published| {
        let changed = *published != now;
        if changed {
            match &now {
                Some(StewardState::MovingQuorum { next, heir }) => {
                    tracing::info!(?next, ?heir, "moving the quorum");
                }
                Some(StewardState::Waiting { why }) => {
                    tracing::warn!(%why, "the ring is not as it should be");
                }
                Some(StewardState::Transferring { .. }) | None => {}
            }
            *published = now;
        }
        changed
    });
}

fn publish_wait(state: &watch::Sender<Option<StewardState>>, why: String) {
    publish(state, Some(StewardState::Waiting { why }));
}

#[cfg(test)]
mod tests {
    use raft_types::{Pause, PauseMark};

    use super::*;
    use crate::standing::tests::{LEASE, Ring};

    const NOW: UnixSeconds = UnixSeconds(1_000);

    fn course(ring: &Ring) -> Course {
        decide(
            &ring.view(),
            &RingRules::default(),
            LEASE,
            &[],
            &DatabaseStates::new(),
            NOW,
        )
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
        assert_eq!(course(&ring()), Course::Stay);
    }

    #[test]
    fn a_witness_hands_over_in_its_region_if_it_can() {
        assert_eq!(course(&ring().led_by(2)), Course::Transfer(MemberId(1)));
    }

    fn paused(ring: &Ring, primary: u64, until: Option<u64>) -> Ring {
        ring.with(primary, |standing| {
            standing.record.pause = PauseMark(Some(Box::new(Pause {
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
        assert_eq!(course(&paused_ring), Course::Stay);
        // Another database member, which would otherwise stay, and a witness give it back.
        for leader in [2, 3] {
            let back = paused_ring.clone().led_by(leader);
            assert_eq!(course(&back), Course::Transfer(MemberId(1)));
            let gone = back.silent(&[1]);
            let Course::Wait(why) = course(&gone) else {
                panic!("{:?}", course(&gone));
            };
            assert!(
                why.contains("failover is paused until member 1 is the primary again")
                    && why.contains("does not answer"),
                "{why}"
            );
        }
        // From another region, the quorum goes with it.
        let elsewhere = paused_ring.led_by(4).with_sets(&[&[4, 5, 6]]);
        let heir = Some(MemberId(1));
        let next = sets(&[&[4, 5, 6], &[1, 2, 3]]);
        assert_eq!(course(&elsewhere), Course::Move { next, heir });
    }

    #[test]
    fn a_leader_ends_the_pause_when_its_time_is_over() {
        let ring = ring();
        for leader in [1, 2, 4] {
            let over = paused(&ring, 1, Some(1_000)).led_by(leader);
            assert_eq!(course(&over), Course::EndPause);
        }
        assert_eq!(course(&paused(&ring, 1, Some(1_001))), Course::Stay);
    }

    #[test]
    fn a_witness_without_an_heir_at_home_takes_the_quorum_to_another_region() {
        let heir = Some(MemberId(4));
        let bereft = ring().led_by(2).silent(&[1]);
        let next = sets(&[&[1, 2, 3], &[4, 5, 6]]);
        assert_eq!(course(&bereft), Course::Move { next, heir });
        let joint = bereft.clone().with_sets(&[&[1, 2, 3], &[4, 5, 6]]);
        let next = sets(&[&[4, 5, 6]]);
        assert_eq!(course(&joint), Course::Move { next, heir });
        let moved = bereft.with_sets(&[&[4, 5, 6]]);
        assert_eq!(course(&moved), Course::Transfer(MemberId(4)));
    }

    #[test]
    fn a_quorum_that_was_left_between_two_regions_comes_home() {
        let joint = ring().with_sets(&[&[1, 2, 3], &[4, 5, 6]]);
        let next = sets(&[&[1, 2, 3]]);
        assert_eq!(course(&joint), Course::Move { next, heir: None });
        let away = ring().with_sets(&[&[4, 5, 6]]);
        let next = sets(&[&[4, 5, 6], &[1, 2, 3]]);
        assert_eq!(course(&away), Course::Move { next, heir: None });
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let alone = ring().led_by(2).silent(&[1, 4]);
        let Course::Wait(why) = course(&alone) else {
            panic!("{:?}", course(&alone));
        };
        assert!(why.contains("does not answer"), "{why}");
        let away = ring().with_sets(&[&[4, 5, 6]]).silent(&[2, 3]);
        let Course::Wait(why) = course(&away) else {
            panic!("{:?}", course(&away));
        };
        assert!(
            why.contains("the quorum should be in region a and cannot"),
            "{why}"
        );
    }
}
