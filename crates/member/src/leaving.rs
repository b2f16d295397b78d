//! The end of a member that is told to stop, in good order: the ring gets another primary, mysqld ends behind its last commit.
//!
//! A leader that is told to stop gives the leadership away before its mysqld ends. Where nobody can take it in that moment,
//! because the others have just come back and are catching up, it goes on leading for a while: its mysqld may take long to
//! end, and there is no primary from its end to the election of another one.

use std::time::Duration;

use consensus::{Member, PromotionError, PromotionRefusal};
use raft_types::MemberKind;
use tokio::time::Instant;

use crate::mysqld::{Child, MysqldManagement};
use crate::ring_history::note_promotion;
use crate::settings::Settings;

/// How long a stop may wait for somebody who can take the leadership over, and how long one attempt may take, each in leases.
const PATIENCE_LEASES: u32 = 8;
const AGAIN: Duration = Duration::from_millis(50);

/// Whether to wait for somebody who can take the leadership over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Successor {
    /// The primary goes on meanwhile.
    Awaited,
    /// There is no primary beside this member any more.
    NowOrNever,
}

/// Gives the leadership away if it can, and lets mysqld finish. The log is closed behind it.
pub(crate) async fn in_good_order(
    member: &Member,
    management: Option<&MysqldManagement>,
    settings: &Settings,
    lease: Duration,
) {
    let mysql = settings.mysql.as_ref();
    let statements = mysql.map_or(Duration::ZERO, |mysql| mysql.longest_wait_for_statements());
    // First, behind what commits: the end of mysqld may take long, and the ring shall have a primary meanwhile.
    give_leadership_away(member, lease, statements, Successor::Awaited).await;
    // While it still leads, what mysqld has under way can be acknowledged.
    if let Some(management) = management {
        management.end(Child::Stops).await;
    }
    // Who waited for commits that took too long may take it now.
    give_leadership_away(member, lease, statements, Successor::NowOrNever).await;
}

/// Gives the leadership away, if this member leads and somebody can take it. An attempt waits for `statements` more where they
/// run at the primary.
async fn give_leadership_away(
    member: &Member,
    lease: Duration,
    statements: Duration,
    successor: Successor,
) {
    let patience = lease * PATIENCE_LEASES;
    let until = Instant::now() + patience;
    let mut waits = false;
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
        let awaited = successor == Successor::Awaited && Instant::now() < until;
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
        if !waits {
            waits = true;
            tracing::info!(%error, seconds = patience.as_secs_f32(), "waiting for a member that can take over the leadership; a second signal stops at once");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

fn serves(member: &Member) -> bool {
    member.leadership_now().serving_term().is_some()
}

/// Waits for who leads for good behind an election that the target lost, and says whether that is this member. A witness that was
/// elected gives the leadership on, perhaps back to this one: its mysqld is not to end then.
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

/// Whether the same attempt may succeed a moment later. Nothing was changed by those, or the leader goes on as before, or may lead
/// again.
fn may_pass(error: &PromotionError) -> bool {
    match error {
        PromotionError::Refused(refusal) => match refusal {
            PromotionRefusal::Target(_)
            | PromotionRefusal::RegionCannotCommit { .. }
            | PromotionRefusal::MockElectionLost(_)
            | PromotionRefusal::NoMockElection(_)
            | PromotionRefusal::NoTarget(_)
            | PromotionRefusal::Busy => true,
            PromotionRefusal::Witness(_)
            | PromotionRefusal::NotServing(_)
            | PromotionRefusal::Paused(_) => false,
        },
        PromotionError::Move { .. }
        | PromotionError::FellBehind { .. }
        | PromotionError::AnotherLeads { .. } => true,
        // Each attempt holds clients up; what commits so slowly goes on while mysqld ends, and then it is tried once more.
        PromotionError::Drain { .. } => false,
        PromotionError::NotNeeded { .. } | PromotionError::Unknown(_) => false,
    }
}

/// Whether anybody else could ever lead: not in a ring of one database member, nor while failover is paused.
fn has_candidates(member: &Member) -> bool {
    let mut others = member.others().into_values();
    member.status().pause.is_none()
        && others.any(|other| other.kind == MemberKind::Database && other.votes)
}

#[cfg(test)]
mod tests {
    use consensus::{Term, TransferRefusal};
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
        assert!(!refused(PromotionRefusal::NotServing("cut off".to_owned())));
        assert!(!refused(PromotionRefusal::Paused(MemberId(1))));
        assert!(!may_pass(&PromotionError::Drain {
            why: "one commit waits".to_owned(),
            home: Region("a".to_owned()),
        }));
        assert!(may_pass(&PromotionError::FellBehind {
            refusal: TransferRefusal::Slow {
                member: MemberId(2),
                behind: 1,
                waited: Duration::from_secs(1),
            },
            home: Region("a".to_owned()),
        }));
        assert!(may_pass(&PromotionError::AnotherLeads {
            target: MemberId(2),
            leader: MemberId(3),
            term: Term(4),
        }));
        assert!(!may_pass(&PromotionError::Unknown("nobody".to_owned())));
    }
}
