//! Transfer of the leadership to a named member. The engine's own transfer has no cancel and no deadline, and accepts targets that can
//! never lead. So this module checks the target first, and then watches the outcome. If no member takes over in time, it asks other voters
//! to campaign. If that fails too, the old leader campaigns, because the target may have reached the next term without being able to
//! request this member's vote.

use std::sync::Arc;
use std::time::Duration;

use openraft::raft::VoteRequest;
use raft_types::{MemberId, MemberKind, Term, TypeConfig, Vote};
use thiserror::Error;
use tokio::time::Instant;

use crate::calls::Question;
use crate::election::elections::{Elections, StartedTransfer};
use crate::election::leader_exit::LedTerm;
use crate::engine::handle::EngineHandle;
use crate::engine::{self, Fault, RoleSnapshot};
use crate::node::RaftNode;
use crate::ring_view::{RingMember, RingView};

/// The maximum number of entries that a target may lack. They must reach its disk before it campaigns, and the ring accepts no entries in
/// the meantime.
pub(crate) const MOST_BEHIND: u64 = 1024;

/// Why a transfer was not started or not completed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TransferError {
    /// A check before the transfer failed; no state was changed.
    #[error(transparent)]
    Refused(#[from] TransferRefusal),
    /// No member leads yet. Other voters are asked to campaign until one of them leads. The old leader campaigns, too.
    #[error(
        "no member took over the leadership from member {from} within {waited:?}; other voters are asked to campaign, and it does so itself"
    )]
    NobodyLeads {
        /// The old leader.
        from: MemberId,
        /// How long the old leader waited for an election.
        waited: Duration,
    },
    /// The consensus engine has stopped; the leader is unknown.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

/// Why the leadership cannot be transferred to a member.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TransferRefusal {
    /// Only the leader can transfer the leadership.
    #[error("this member does not lead{}", match .leader {
        Some(leader) => format!("; ask member {leader}"),
        None => "; nobody does at the moment".to_owned(),
    })]
    NotLeader {
        /// The leader, if known.
        leader: Option<MemberId>,
    },
    /// The target is the leader.
    #[error("member {0} leads already")]
    LeadsAlready(MemberId),
    /// No member has this number.
    #[error("the ring has no member {0}; see the list of its members")]
    NoSuchMember(MemberId),
    /// The target has no vote, so it cannot be elected.
    #[error("member {0} is not a voter, so it cannot lead; choose a voter")]
    NotAVoter(MemberId),
    /// The target does not answer.
    #[error("member {member} has not answered {}; choose another or bring it back", match .last {
        Some(age) => format!("for {age:?}"),
        None => "since this member leads".to_owned(),
    })]
    Silent {
        /// The target.
        member: MemberId,
        /// The age of its last answer.
        last: Option<Duration>,
    },
    /// The target's durable log lags too far.
    #[error(
        "member {member} is {lag} entries behind; at most {MOST_BEHIND} are allowed: wait for it"
    )]
    Lagging {
        /// The target.
        member: MemberId,
        /// Number of entries its durable log lacks.
        lag: u64,
    },
    /// The target did not sync the end of the log to its disk in time.
    #[error(
        "member {member} still lacks {lag} entries of the log after {waited:?}; look at its disk"
    )]
    Slow {
        /// The target.
        member: MemberId,
        /// Number of entries its durable log lacks.
        lag: u64,
        /// How long the leader waited for it.
        waited: Duration,
    },
    /// A transfer is in progress, and the engine cannot cancel it.
    #[error("a transfer to member {0} is under way already; wait for its end")]
    UnderWay(MemberId),
}

impl RingView {
    /// Checks that the leadership may be transferred to `to`.
    ///
    /// # Errors
    /// The first obstacle.
    pub fn check_transfer(&self, to: MemberId) -> Result<(), TransferRefusal> {
        if !self.leads {
            return Err(TransferRefusal::NotLeader {
                leader: self.leader,
            });
        }
        if to == self.own {
            return Err(TransferRefusal::LeadsAlready(to));
        }
        let target = self.member(to).ok_or(TransferRefusal::NoSuchMember(to))?;
        if !target.voter {
            return Err(TransferRefusal::NotAVoter(to));
        }
        if !self.answers(target) {
            return Err(TransferRefusal::Silent {
                member: to,
                last: target.answered,
            });
        }
        match target.lag {
            Some(lag) if lag <= MOST_BEHIND => Ok(()),
            lag => Err(TransferRefusal::Lagging {
                member: to,
                lag: lag.unwrap_or(u64::MAX),
            }),
        }
    }
}

impl RaftNode {
    /// Waits until `to` has the log durably, except for the last `in_flight` entries; waits at most one lease. In the engine's transfer,
    /// the target waits too, but only for a heartbeat. If it then refuses, the other voters assume that the leadership was transferred, and
    /// elect one of themselves.
    ///
    /// # Errors
    /// [`TransferRefusal`] if the target does not have the log in time.
    pub async fn wait_for_log(&self, to: MemberId, in_flight: u64) -> Result<(), TransferRefusal> {
        let lease = self.engine.timers.lease;
        let until = Instant::now() + lease;
        loop {
            let view = self.ring_view();
            match view.member(to).and_then(|target| target.lag) {
                // This member no longer leads; the transfer reports that.
                None => return Ok(()),
                Some(lag) if lag <= in_flight => return Ok(()),
                Some(lag) if Instant::now() >= until => {
                    // Another check may fail for a more specific reason.
                    view.check_transfer(to)?;
                    return Err(TransferRefusal::Slow {
                        member: to,
                        lag,
                        waited: lease,
                    });
                }
                Some(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }

    /// Transfers the leadership to `to` and waits for the outcome. If another member is elected instead, returns that member.
    ///
    /// # Errors
    /// [`TransferError`]: the transfer is refused and nothing is changed, or no member leads yet.
    pub async fn transfer(self: &Arc<Self>, to: MemberId) -> Result<LedTerm, TransferError> {
        let timers = self.engine.timers;
        self.ring_view().check_transfer(to)?;
        let term = engine::role(&self.engine.raft).term;
        self.elections
            .claim_transfer(StartedTransfer { term, to })
            .map_err(|earlier| TransferRefusal::UnderWay(earlier.to))?;
        self.elections.transfer_started.notify_one();
        tracing::info!(%to, %term, "transferring the leadership");
        let trigger = self.engine.raft.trigger();
        trigger.transfer_leader(to).await.map_err(Fault::from)?;

        // This is a separate task, so that the ring recovers even if the caller stops waiting for the outcome.
        tokio::spawn(help_out(self.clone(), term, to));
        let deadline = timers.longest_election() * 2;
        match tokio::time::timeout(deadline, next_leader(&self.engine, term)).await {
            Ok(led) => Ok(led?),
            Err(_) => Err(TransferError::NobodyLeads {
                from: self.engine.id,
                waited: deadline,
            }),
        }
    }
}

/// Returns the voters to ask to campaign if `failed` did not take over. Database members come first, then witnesses; within each kind, the
/// longest log comes first. The failed target comes last.
pub(crate) fn ways_out(view: &RingView, failed: MemberId) -> Vec<&RingMember> {
    let mut voters: Vec<&RingMember> = view
        .members
        .iter()
        .filter(|peer| peer.voter && peer.id != view.own)
        .collect();
    voters.sort_by_key(|peer| {
        (
            peer.id == failed,
            peer.record.kind != MemberKind::Database,
            peer.lag,
            peer.id,
        )
    });
    voters
}

/// Asks the voters in turn to campaign until a later term has a leader. If none of them is elected, this member campaigns.
async fn help_out(node: Arc<RaftNode>, term: Term, failed: MemberId) {
    let timers = node.engine.timers;
    let patience = timers.longest_election();
    let first = tokio::time::timeout(patience, next_leader(&node.engine, term)).await;
    match &first {
        Ok(Ok(led)) if led.leader == failed => node.failed_targets.took_over(failed),
        Ok(Err(_)) => {}
        // Without this record, the next leader could choose the same target again, and so could the leader after it.
        Ok(Ok(_)) | Err(_) => node.failed_targets.failed(failed, patience, Instant::now()),
    }
    if first.is_ok() {
        return;
    }
    loop {
        let view = node.ring_view();
        for voter in ways_out(&view, failed) {
            tracing::warn!(%failed, voter = %voter.id, "no member leads after a transfer; asking a voter to campaign");
            let question = Question::Campaign { term };
            let calls = &node.engine.calls;
            let asked = calls.ask(voter.id, &voter.record, question, timers.lease);
            let wait = match asked.await {
                Ok(_) => timers.lease,
                Err(refusal) => {
                    tracing::warn!(voter = %voter.id, %refusal, "the voter does not campaign");
                    timers.heartbeat / 2
                }
            };
            let elected = tokio::time::timeout(wait, next_leader(&node.engine, term));
            if elected.await.is_ok() {
                return;
            }
        }
        if let Err(fault) = campaign_again(&node.elections, term, failed).await {
            tracing::warn!(%fault, "the old leader does not campaign");
        }
        let led = tokio::time::timeout(timers.heartbeat, next_leader(&node.engine, term));
        if led.await.is_ok() {
            return;
        }
    }
}

/// Steps down and campaigns as the old leader of `term`. The engine cannot undo a transfer, and a leader cannot campaign. So this member
/// first votes for the target in the next term, as it would have done on the target's request. Its campaign begins with a pre-vote, which
/// does not disturb a leader that was elected in the meantime.
async fn campaign_again(elections: &Elections, term: Term, target: MemberId) -> Result<(), Fault> {
    if elections.campaigning.gate.stays_out().is_some() {
        return Ok(());
    }
    let raft = &elections.engine.raft;
    if engine::role(raft).term == term {
        tracing::warn!(%target, "no member leads after a transfer and the campaigns of all voters; the old leader campaigns itself");
        let end = engine::progress(raft).last_log;
        let request = VoteRequest::<TypeConfig> {
            vote: Vote::new(term.0 + 1, target),
            last_log_id: end.map(Into::into),
            // This member has ended its own lease.
            leadership_transfer: true,
        };
        raft.vote(request).await?;
    }
    Ok(raft.trigger().elect(true).await?)
}

/// Waits for a leader of a term after `term`.
async fn next_leader(engine: &EngineHandle, term: Term) -> Result<LedTerm, Fault> {
    let leader = |role: &RoleSnapshot| role.leader.filter(|_| role.term > term);
    let role = engine::role_when(&engine.raft, |role| leader(role).is_some()).await?;
    let (leader, term) = (leader(&role).ok_or(Fault::Stopped)?, role.term);
    Ok(LedTerm { leader, term })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring_view::tests::{LEASE, Ring};

    /// Member 1, a witness, leads; 2 and 3 are witness and database.
    fn view() -> RingView {
        Ring::new("a: 1w 2w 3d").with_sets(&[&[1, 2, 3]]).view()
    }

    #[test]
    fn a_voter_that_answers_and_is_caught_up_may_lead() {
        assert_eq!(view().check_transfer(MemberId(3)), Ok(()));
    }

    type Change = fn(&mut RingView);

    #[test]
    fn every_other_target_is_refused_with_its_reason() {
        let table: [(u64, Change, TransferRefusal); 7] = [
            (
                3,
                |view| {
                    view.leads = false;
                    view.leader = Some(MemberId(2));
                },
                TransferRefusal::NotLeader {
                    leader: Some(MemberId(2)),
                },
            ),
            (1, |_| {}, TransferRefusal::LeadsAlready(MemberId(1))),
            (9, |_| {}, TransferRefusal::NoSuchMember(MemberId(9))),
            (
                3,
                |view| view.members[2].voter = false,
                TransferRefusal::NotAVoter(MemberId(3)),
            ),
            (
                3,
                |view| view.members[2].answered = None,
                TransferRefusal::Silent {
                    member: MemberId(3),
                    last: None,
                },
            ),
            (
                3,
                |view| view.members[2].answered = Some(LEASE),
                TransferRefusal::Silent {
                    member: MemberId(3),
                    last: Some(LEASE),
                },
            ),
            (
                3,
                |view| view.members[2].lag = Some(MOST_BEHIND + 1),
                TransferRefusal::Lagging {
                    member: MemberId(3),
                    lag: MOST_BEHIND + 1,
                },
            ),
        ];
        for (to, change, expected) in table {
            let mut view = view();
            change(&mut view);
            assert_eq!(view.check_transfer(MemberId(to)), Err(expected));
        }
    }

    #[test]
    fn database_members_are_asked_to_campaign_first_and_the_failed_one_last() {
        let order = |failed| -> Vec<u64> {
            let view = view();
            let asked = ways_out(&view, MemberId(failed));
            asked.iter().map(|peer| peer.id.0).collect()
        };
        assert_eq!(order(3), [2, 3]);
        assert_eq!(order(2), [3, 2]);
    }
}
