//! A witness that leads serves nobody: it gives the leadership to a database member as soon as one is
//! caught up, and says why while it cannot. Which one is a pure decision; the task performs it.

use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use raft_types::{MemberId, MemberKind};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::leadership::Leadership;
use crate::questions::MemberCalls;
use crate::seat::Seat;
use crate::standing::{RingView, Standing};
use crate::transfer::{MOST_BEHIND, TransferOutcome, transfer, verify};

/// What a leading witness does about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum HandoverState {
    /// It gives the leadership to this member.
    Transferring {
        /// The database member.
        to: MemberId,
    },
    /// It goes on leading, serving nobody.
    Waiting {
        /// In words, for what.
        why: String,
    },
}

/// The decision about one view of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HandoverStep {
    /// The leader is a database member, or this member does not lead.
    NotNeeded,
    /// Give the leadership to this member.
    Transfer(MemberId),
    /// Nobody can take it now.
    Wait(String),
}

/// Chooses the heir: a voting database member that answers and is caught up; of its own region if it
/// can be, then the least behind, then the lowest number. Those in `failed` come last.
pub(crate) fn decide(view: &RingView, lease: Duration, failed: &[MemberId]) -> HandoverStep {
    let own = view.member(view.own);
    let Some(own) = own.filter(|own| view.leads && own.record.kind == MemberKind::Witness) else {
        return HandoverStep::NotNeeded;
    };
    let databases: Vec<&Standing> = view
        .members
        .iter()
        .filter(|standing| standing.record.kind == MemberKind::Database && standing.voter)
        .collect();
    let heir = databases
        .iter()
        .filter(|standing| verify(view, standing.id, lease).is_ok())
        .min_by_key(|standing| {
            (
                failed.contains(&standing.id),
                standing.record.region != own.record.region,
                standing.behind,
                standing.id,
            )
        });
    match heir {
        Some(heir) => HandoverStep::Transfer(heir.id),
        None => HandoverStep::Wait(obstacle(&databases, lease)),
    }
}

/// What keeps all of them from leading, in words.
fn obstacle(databases: &[&Standing], lease: Duration) -> String {
    let Some(first) = databases.first() else {
        return "the ring has no voting database member that could lead; add one".to_owned();
    };
    let nearest = databases
        .iter()
        .filter(|standing| standing.answers(lease))
        .min_by_key(|standing| standing.behind);
    match nearest {
        Some(nearest) => format!(
            "database member {} is {} entries behind, at most {MOST_BEHIND} are allowed; it is catching up",
            nearest.id,
            nearest.behind.unwrap_or(u64::MAX),
        ),
        None => format!(
            "no database member answers; bring member {} ({}) back",
            first.id, first.record.name
        ),
    }
}

/// Hands the leadership over whenever this member leads as a witness, until the engine stops.
pub(crate) async fn run(
    seat: Arc<Seat>,
    calls: Arc<dyn MemberCalls>,
    mut leadership: watch::Receiver<Leadership>,
    state: watch::Sender<Option<HandoverState>>,
) {
    loop {
        let leads = leadership
            .wait_for(|now| now.leading_term().is_some())
            .await
            .is_ok();
        if !leads {
            return;
        }
        hand_over(&seat, &calls, &mut leadership, &state).await;
        state.send_replace(None);
    }
}

/// Works on one leadership until it ends.
async fn hand_over(
    seat: &Arc<Seat>,
    calls: &Arc<dyn MemberCalls>,
    leadership: &mut watch::Receiver<Leadership>,
    state: &watch::Sender<Option<HandoverState>>,
) {
    let mut progress = seat.raft.data_metrics();
    let mut failed: Vec<MemberId> = Vec::new();
    while leadership.borrow_and_update().leading_term().is_some() {
        match decide(&seat.ring_view(), seat.timers.lease, &failed) {
            HandoverStep::NotNeeded => {
                state.send_replace(None);
                if leadership.changed().await.is_err() {
                    return;
                }
            }
            HandoverStep::Transfer(to) => {
                state.send_replace(Some(HandoverState::Transferring { to }));
                match transfer(seat, calls, to).await {
                    Ok(TransferOutcome::Done { term }) => {
                        tracing::info!(%to, %term, "handed the leadership over");
                    }
                    Ok(TransferOutcome::AnotherLeads { leader, term }) => {
                        tracing::warn!(%to, %leader, %term, "another member leads than the one it was handed to");
                    }
                    Err(error) => {
                        tracing::warn!(%to, %error, "handing the leadership over failed");
                        if !failed.contains(&to) {
                            failed.push(to);
                        }
                        state.send_replace(Some(HandoverState::Waiting {
                            why: error.to_string(),
                        }));
                        tokio::time::sleep(seat.timers.heartbeat / 4).await;
                    }
                }
            }
            HandoverStep::Wait(why) => {
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

/// Says why the leadership stays here; only when the reason changed.
fn publish_wait(state: &watch::Sender<Option<HandoverState>>, why: String) {
    let waiting = Some(HandoverState::Waiting { why });
    state.send_if_modified(|published| {
        let changed = *published != waiting;
        if changed {
            if let Some(HandoverState::Waiting { why }) = &waiting {
                tracing::warn!(%why, "this witness leads and serves nobody");
            }
            *published = waiting;
        }
        changed
    });
}

#[cfg(test)]
mod tests {
    use raft_types::Region;

    use super::*;
    use crate::transfer::tests::{LEASE, standing, view};

    fn step(view: &RingView) -> HandoverStep {
        decide(view, LEASE, &[])
    }

    #[test]
    fn a_leading_witness_hands_over_to_the_database_member() {
        assert_eq!(step(&view()), HandoverStep::Transfer(MemberId(3)));
    }

    #[test]
    fn who_need_not_hand_over_does_not() {
        let mut follower = view();
        follower.leads = false;
        assert_eq!(step(&follower), HandoverStep::NotNeeded);

        let mut database = view();
        database.members[0].record.kind = MemberKind::Database;
        assert_eq!(step(&database), HandoverStep::NotNeeded);
    }

    #[test]
    fn the_own_region_comes_before_the_shorter_lag() {
        let mut ring = view();
        let mut far = standing(4, MemberKind::Database);
        far.record.region = Region("b".to_owned());
        ring.members.push(far);
        ring.members[2].behind = Some(7);
        assert_eq!(step(&ring), HandoverStep::Transfer(MemberId(3)));
        ring.members[3].record.region = Region("a".to_owned());
        assert_eq!(step(&ring), HandoverStep::Transfer(MemberId(4)));
        assert_eq!(
            decide(&ring, LEASE, &[MemberId(4)]),
            HandoverStep::Transfer(MemberId(3))
        );
    }

    #[test]
    fn it_says_why_it_keeps_the_leadership() {
        let wait = |ring: &RingView| match step(ring) {
            HandoverStep::Wait(why) => why,
            other => panic!("{other:?}"),
        };
        let mut ring = view();
        ring.members[2].behind = Some(1000);
        assert!(wait(&ring).contains("member 3 is 1000 entries behind"));
        ring.members[2].answered = None;
        assert!(wait(&ring).contains("bring member 3 (member-3) back"));
        ring.members[2].voter = false;
        assert!(wait(&ring).contains("no voting database member"));
    }
}
