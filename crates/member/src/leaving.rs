//! The graceful stop of a member: another member gets the leadership, and mysqld ends after its last commit.
//!
//! A stopping leader transfers the leadership before its mysqld ends. Otherwise the ring would have no primary while mysqld ends, which may
//! take long, and until an election. If the other members are still catching up, the leader waits for them, at most for
//! [`PATIENCE_LEASES`].

use std::time::Duration;

use raft_types::MemberKind;
use ring_admin::{Member, PromotionError, PromotionRefusal};
use tokio::time::Instant;

use crate::mysqld::{Child, MysqldManagement};
use crate::ring_history::note_promotion;
use crate::settings::Settings;

/// How long a stop may wait for a successor, and how long one attempt may take; both in leases.
const PATIENCE_LEASES: u32 = 8;
const AGAIN: Duration = Duration::from_millis(50);

/// Transfers the leadership if possible, and ends mysqld. The caller closes the log afterwards.
pub(crate) async fn in_good_order(
    member: &Member,
    management: Option<&MysqldManagement>,
    settings: &Settings,
    lease: Duration,
) {
    let mysql = settings.mysql.as_ref();
    let statements = mysql.map_or(Duration::ZERO, |mysql| mysql.longest_wait_for_statements());
    // The leadership is transferred first, after all running commits, because mysqld may take long to end, and the ring needs a primary
    // until then.
    give_leadership_away(member, lease, statements, true).await;
    // While this member still leads, running commits of mysqld can be acknowledged.
    if let Some(management) = management {
        management.end(Child::Stops).await;
    }
    // Another member may have been unable to take over because of slow commits. They are complete now.
    give_leadership_away(member, lease, statements, false).await;
}

/// Transfers the leadership, if this member leads and another member can take over. With a primary here, an attempt may take `statements`
/// longer. If `waits` is true, waits for a successor while the primary continues.
async fn give_leadership_away(member: &Member, lease: Duration, statements: Duration, waits: bool) {
    let patience = lease * PATIENCE_LEASES;
    let until = Instant::now() + patience;
    let mut told = false;
    while serves(member) {
        let error = match tokio::time::timeout(patience + statements, member.give_leadership_away())
            .await
        {
            Ok(Ok(promoted)) => {
                tracing::info!(leader = %promoted.leader, "transferred the leadership");
                note_promotion(member, &promoted, "", "it stopped".to_owned());
                member.hand_notes_on(lease).await;
                return;
            }
            Ok(Err(error)) => error,
            Err(_) => {
                tracing::warn!("the leadership was not transferred in time");
                return;
            }
        };
        let awaited = waits && Instant::now() < until;
        if !awaited || !may_pass(&error) || !has_candidates(member) {
            tracing::info!(%error, "stopping as the leader");
            return;
        }
        if matches!(error, PromotionError::AnotherLeads { .. })
            && !serves_again(member, until).await
        {
            tracing::info!(%error, "another member leads");
            return;
        }
        if !told {
            told = true;
            tracing::info!(%error, seconds = patience.as_secs_f32(), "waiting for a member that can take over; a second signal stops immediately");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn serves(member: &Member) -> bool {
    member.leadership_now().serving_term().is_some()
}

/// If another member than the target was elected, waits for the final leader. Returns true if this member leads again: an elected witness
/// may transfer the leadership back to it, and then mysqld must not end.
async fn serves_again(member: &Member, until: Instant) -> bool {
    while !serves(member) {
        let another_is_primary = member.primacy_now().elsewhere.is_some();
        if another_is_primary || Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(AGAIN).await;
    }
    true
}

/// Returns true if the same attempt may succeed a moment later. These errors changed nothing, or this member still leads or may lead again.
/// A failed drain is not included, because each attempt delays clients. Slow commits can end while mysqld ends, and then there is one more
/// attempt.
fn may_pass(error: &PromotionError) -> bool {
    match error {
        PromotionError::Refused(refusal) => !matches!(
            refusal,
            PromotionRefusal::Witness(_)
                | PromotionRefusal::NotServing(_)
                | PromotionRefusal::Paused(_)
        ),
        PromotionError::Move { .. }
        | PromotionError::TargetLags { .. }
        | PromotionError::AnotherLeads { .. } => true,
        PromotionError::Drain { .. }
        | PromotionError::NotNeeded(_)
        | PromotionError::Unknown(_) => false,
    }
}

/// Returns true if another member could lead at all. That is false if the ring has no other voting database member, and while failover is
/// paused.
fn has_candidates(member: &Member) -> bool {
    let mut others = member.others().into_values();
    member.status().pause.is_none()
        && others.any(|other| other.kind == MemberKind::Database && other.votes)
}

#[cfg(test)]
mod tests {
    use consensus::{NotServing, Term, TransferRefusal};
    use raft_types::MemberId;
    use raft_types::Region;

    use super::*;

    #[test]
    fn what_leaves_the_leader_as_it_was_is_tried_again() {
        let refused = |refusal| may_pass(&PromotionError::Refused(refusal));
        assert!(refused(PromotionRefusal::NoTarget(
            "catching up".to_owned()
        )));
        assert!(refused(PromotionRefusal::Busy));
        assert!(!refused(PromotionRefusal::Witness(MemberId(2))));
        assert!(!refused(PromotionRefusal::NotServing(
            NotServing::QuorumSilent
        )));
        assert!(!refused(PromotionRefusal::Paused(MemberId(1))));
        assert!(!may_pass(&PromotionError::Drain(
            "one commit waits".to_owned(),
            Region("a".to_owned())
        )));
        assert!(may_pass(&PromotionError::TargetLags(
            TransferRefusal::Slow {
                member: MemberId(2),
                lag: 1,
                waited: Duration::from_secs(1),
            },
            Region("a".to_owned())
        )));
        assert!(may_pass(&PromotionError::AnotherLeads {
            target: MemberId(2),
            leader: MemberId(3),
            term: Term(4),
        }));
        assert!(!may_pass(&PromotionError::Unknown("no leader".to_owned())));
    }
}
