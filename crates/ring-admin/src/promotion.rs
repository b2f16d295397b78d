//! A planned promotion: the leader transfers the leadership to a chosen member, in its own region or another. Each phase has a deadline,
//! and can be undone. Until the transfer, the old leader continues to lead. If a phase fails, its leader tasks move the quorum back.

use std::time::Duration;

use consensus::quorum::{MoveObstacle, QuorumPlan, QuorumPolicy, VoterSets, plan};
use consensus::{
    Answer, LedTerm, MockElection, MockElectionCall, MoveError, NotServing, Question, RingPause,
    RingView, TransferError, TransferRefusal,
};
use raft_types::{MemberId, MemberKind, Region, Term};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::administration::Administration;
use crate::member::Member;
use crate::mysqld::Paused;
use crate::pause;

/// The phases of a promotion, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromotionPhase {
    /// Checks that the target could lead and its region could commit. No state changes.
    Check,
    /// Checks that the target's voters would elect it. No state changes.
    MockElection,
    /// The target's region joins the quorum, and then the old region leaves it. The old leader still leads. Commits are slower during this
    /// phase.
    MoveQuorum,
    /// The target catches up with the entries in flight.
    CatchUp,
    /// The old leader's mysqld stops accepting writes, and pending writes are committed.
    Drain,
    /// The old leader stops proposing entries, and the target is elected. After this phase, only another election can undo the promotion.
    Transfer,
    /// The new leader commits an entry of its own.
    Release,
}

impl PromotionPhase {
    /// Returns the display name of the phase.
    pub fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::MockElection => "mock election",
            Self::MoveQuorum => "quorum move",
            Self::CatchUp => "catch-up",
            Self::Drain => "drain",
            Self::Transfer => "transfer",
            Self::Release => "release",
        }
    }
}

/// The initiator of a promotion, which determines its effect on a failover pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PromotionCause {
    /// An operator ordered it: the pause then reserves the primary's place for the target.
    Ordered,
    /// The leader itself decided to yield. Refused if a pause reserves the primary's place for a member other than the target. The check is
    /// made under the reconfiguration lock, because the pause may be newer than the choice of the target.
    Automatic,
}

/// The progress of a promotion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromotionProgress {
    /// The completed phases and their durations.
    pub done: Vec<(PromotionPhase, Duration)>,
    /// The current phase.
    pub under_way: Option<PromotionPhase>,
}

/// A completed promotion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promoted {
    /// The new leader: the target.
    pub leader: MemberId,
    /// The term in which the target was elected.
    pub term: Term,
    /// Each phase and its duration.
    pub phases: Vec<(PromotionPhase, Duration)>,
}

/// Why a promotion was not started or not completed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PromotionError {
    /// A check before the first step failed; no state was changed.
    #[error(transparent)]
    Refused(#[from] PromotionRefusal),
    /// The quorum could not be moved. The old leader still leads, and moves the quorum back to the named region.
    #[error("the quorum could not be moved: {0}; the leader stays and takes it back to region {1}")]
    Move(MoveError, Region),
    /// Writes could not be stopped, for the reason in the text. The old leader still leads, and moves the quorum back to the named region.
    #[error(
        "the primary's writes could not be stopped: {0}; the leader stays and takes the quorum back to region {1}"
    )]
    Drain(String, Region),
    /// The target lags. The old leader still leads, and moves the quorum back to the named region.
    #[error(
        "after the quorum had moved: {0}; the leader stays and takes the quorum back to region {1}"
    )]
    TargetLags(TransferRefusal, Region),
    /// The promotion was no longer needed before writes were stopped. The old leader still leads, and moves the quorum back to the named
    /// region.
    #[error(
        "the reason for the promotion has passed; the leader stays and takes the quorum back to region {0}"
    )]
    NotNeeded(Region),
    /// A member other than the target won the election.
    #[error(
        "member {leader} was elected instead of member {target}, in term {term}; look at the target, then try again"
    )]
    AnotherLeads {
        /// The target.
        target: MemberId,
        /// The member that leads instead.
        leader: MemberId,
        /// The term in which this member was elected.
        term: Term,
    },
    /// The outcome is unknown: no member leads yet, or the target has not committed an entry in time.
    #[error("the outcome is unknown: {0}; check with `witness status`")]
    Unknown(String),
}

/// Why a promotion is refused; no state was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PromotionRefusal {
    /// The target cannot take over the leadership.
    #[error(transparent)]
    Target(#[from] TransferRefusal),
    /// The target is a witness.
    #[error("member {0} is a witness, which cannot be the primary; choose a database member")]
    Witness(MemberId),
    /// The leader does not serve clients.
    #[error("the leader does not serve: {0}")]
    NotServing(NotServing),
    /// The target's region could not commit.
    #[error("with member {to} as the leader, commits would not be possible: {why}")]
    RegionCannotCommit {
        /// The target.
        to: MemberId,
        /// The obstacle.
        why: MoveObstacle,
    },
    /// The target's voters would not elect it.
    #[error("{0}")]
    MockElectionLost(Box<MockElection>),
    /// The mock election could not be held.
    #[error("the mock election could not be held: {0}; bring the target back, or try again")]
    NoMockElection(String),
    /// No member can take over the leadership.
    #[error("no member can take over the leadership: {0}")]
    NoTarget(String),
    /// No operator ordered the promotion, and a pause reserves the primary's place for this member.
    #[error("failover is paused, and member {0} stays the primary; `witness resume` ends that")]
    Paused(MemberId),
    /// Another change of the members, the quorum or the leader is in progress.
    #[error(
        "another change of the quorum, the members or the leader is under way; wait for its end"
    )]
    Busy,
}

/// Checks whether `to` could take over the leadership, and returns the voter sets with `to` as the leader.
pub(crate) fn check(
    view: &RingView,
    to: MemberId,
    admin: &Administration,
) -> Result<VoterSets, PromotionRefusal> {
    if !view.leads {
        let leader = view.leader;
        return Err(TransferRefusal::NotLeader { leader }.into());
    }
    if to == view.own {
        return Err(TransferRefusal::LeadsAlready(to).into());
    }
    let target = view.member(to).ok_or(TransferRefusal::NoSuchMember(to))?;
    if target.record.kind == MemberKind::Witness {
        return Err(PromotionRefusal::Witness(to));
    }
    if !target.record.votes {
        return Err(TransferRefusal::NotAVoter(to).into());
    }
    if !view.answers(target) {
        let last = target.answered;
        return Err(TransferRefusal::Silent { member: to, last }.into());
    }
    let rules = admin.rules();
    let sets = match plan(&rules, view, &target.record.region) {
        QuorumPlan::Blocked(why) => {
            return Err(PromotionRefusal::RegionCannotCommit { to, why });
        }
        QuorumPlan::Settled => view.voter_sets.clone(),
        QuorumPlan::Step(next) => next,
    };
    // After a step to a joint quorum, the next step leaves only the sets that contain the target.
    let with_target: VoterSets = match rules.policy {
        QuorumPolicy::SingleRegionDynamic => sets
            .iter()
            .filter(|set| set.contains(&to))
            .cloned()
            .collect(),
        _ => sets,
    };
    if !with_target.iter().any(|set| set.contains(&to)) {
        return Err(TransferRefusal::NotAVoter(to).into());
    }
    Ok(with_target)
}

/// Asks the target to hold a mock election.
pub(crate) async fn mock_election(
    admin: &Administration,
    to: MemberId,
) -> Result<MockElection, PromotionRefusal> {
    let view = admin.node.ring_view();
    let sets = check(&view, to, admin)?;
    let term = admin.node.role().term;
    let (Some(cursor), Some(target)) = (view.last_log, view.member(to)) else {
        return Err(TransferRefusal::NoSuchMember(to).into());
    };
    let patience = admin.node.timers().longest_election();
    let call = MockElectionCall {
        term,
        cursor,
        sets,
        patience_ms: u64::try_from((patience / 2).as_millis()).unwrap_or(u64::MAX),
    };
    let (calls, question) = (admin.node.calls(), Question::MockElection(call));
    let asked = calls.ask(to, &target.record, question, patience);
    match asked.await {
        Ok(Answer::MockElection(election)) => Ok(election),
        Ok(other) => Err(PromotionRefusal::NoMockElection(
            other.unexpected().to_string(),
        )),
        Err(error) => Err(PromotionRefusal::NoMockElection(error.to_string())),
    }
}

impl Member {
    /// Promotes a database member of this or another region on an operator's order, and waits for the end. `progress` has
    /// the current phase. If this future is dropped, the promotion continues. If failover is paused, the pause then reserves
    /// the primary's place for the target.
    ///
    /// # Errors
    /// [`PromotionError`]; it describes the resulting state of the ring.
    pub async fn promote(
        &self,
        to: MemberId,
        progress: watch::Sender<PromotionProgress>,
    ) -> Result<Promoted, PromotionError> {
        self.promoted(to, PromotionCause::Ordered, progress, || true)
            .await
    }

    /// Promotes a database member because this leader itself decided to yield. The promotion is aborted if it is no longer
    /// `needed` before clients are affected. It is refused while a pause reserves the primary's place for another member.
    ///
    /// # Errors
    /// [`PromotionError`]; it describes the resulting state of the ring.
    pub async fn promote_while(
        &self,
        to: MemberId,
        progress: watch::Sender<PromotionProgress>,
        needed: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Promoted, PromotionError> {
        self.promoted(to, PromotionCause::Automatic, progress, needed)
            .await
    }

    async fn promoted(
        &self,
        to: MemberId,
        cause: PromotionCause,
        progress: watch::Sender<PromotionProgress>,
        needed: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Promoted, PromotionError> {
        let admin = self.admin().clone();
        let promoting =
            tokio::spawn(async move { promote(&admin, to, cause, &progress, &needed).await });
        promoting
            .await
            .unwrap_or_else(|error| Err(PromotionError::Unknown(error.to_string())))
    }

    /// Transfers the leadership to a suitable member, in this region or another, because this member is about to stop.
    ///
    /// # Errors
    /// [`PromotionError`] when no member is suitable, failover is paused, or the promotion did not complete.
    pub async fn give_leadership_away(&self) -> Result<Promoted, PromotionError> {
        let target = self.transfer_target().await;
        let (target, _) = target.map_err(|why| PromotionRefusal::NoTarget(why.to_string()))?;
        self.promote_while(target, watch::Sender::default(), || true)
            .await
    }

    /// Asks a member whether its voters would elect it now. Changes nothing.
    ///
    /// # Errors
    /// [`PromotionRefusal`] if the member could not lead in any case, or does not answer.
    pub async fn mock_election(&self, to: MemberId) -> Result<MockElection, PromotionRefusal> {
        mock_election(self.admin(), to).await
    }
}

/// Records the current phase and the durations of the completed phases.
struct Clock<'a> {
    progress: &'a watch::Sender<PromotionProgress>,
    began: Instant,
}

impl Clock<'_> {
    fn enter(&mut self, phase: impl Into<Option<PromotionPhase>>) {
        let took = self.began.elapsed();
        self.began = Instant::now();
        let phase = phase.into();
        self.progress.send_modify(|progress| {
            let done = std::mem::replace(&mut progress.under_way, phase);
            progress.done.extend(done.map(|done| (done, took)));
        });
    }

    fn end(mut self) -> Vec<(PromotionPhase, Duration)> {
        self.enter(None::<PromotionPhase>);
        self.progress.borrow().done.clone()
    }
}

/// Executes a promotion phase by phase. If a phase before the transfer fails, the quorum is moved back. `needed` is checked just before
/// clients are affected, because the quorum move may take long.
pub(crate) async fn promote(
    admin: &Administration,
    to: MemberId,
    cause: PromotionCause,
    progress: &watch::Sender<PromotionProgress>,
    needed: &(dyn Fn() -> bool + Send + Sync),
) -> Result<Promoted, PromotionError> {
    let mut clock = Clock {
        progress,
        began: Instant::now(),
    };
    clock.enter(PromotionPhase::Check);
    // A task that holds the lock finishes within an election, or is stuck.
    let _lock = admin.lock().await.ok_or(PromotionRefusal::Busy)?;
    let view = admin.node.ring_view();
    let paused = view.pause().filter(|paused| paused.primary != to);
    if let (Some(paused), PromotionCause::Automatic) = (&paused, cause) {
        return Err(PromotionRefusal::Paused(paused.primary).into());
    }
    if let Some(paused) = paused
        .as_ref()
        .filter(|_| view.leads && to == admin.node.id())
    {
        return take_the_place(admin, paused, clock).await;
    }
    check(&view, to, admin)?;
    let serving = admin.node.ensure_serving();
    serving.map_err(PromotionRefusal::NotServing)?;
    let region_of = |id| view.member(id).map(|peer| peer.record.region.clone());
    let home = region_of(admin.node.id()).unwrap_or_default();
    let there = region_of(to).unwrap_or_default();

    clock.enter(PromotionPhase::MockElection);
    let election = mock_election(admin, to).await?;
    if !election.is_won() {
        return Err(PromotionRefusal::MockElectionLost(Box::new(election)).into());
    }

    let stays = |error| PromotionError::Move(error, home.clone());
    clock.enter(PromotionPhase::MoveQuorum);
    loop {
        let view = admin.node.ring_view();
        match plan(&admin.rules(), &view, &there) {
            QuorumPlan::Settled => break,
            QuorumPlan::Step(next) => admin.move_quorum(next).await.map_err(stays)?,
            QuorumPlan::Blocked(why) => {
                let reason = why.to_string();
                return Err(stays(MoveError::Refused(reason)));
            }
        }
    }

    clock.enter(PromotionPhase::CatchUp);
    wait_until_caught_up(admin, to)
        .await
        .map_err(|refusal| PromotionError::TargetLags(refusal, home.clone()))?;

    if !needed() {
        let home = home.clone();
        return Err(PromotionError::NotNeeded(home));
    }
    clock.enter(PromotionPhase::Drain);
    let drained = Paused::begin(admin.writer.get().map(|writer| &**writer)).await;
    let _drained = drained.map_err(|why| PromotionError::Drain(why.to_string(), home.clone()))?;
    if let Some(paused) = &paused {
        // If the promotion fails after this, any later leader transfers the leadership to the target.
        pause::keep_for(admin, paused, to).await.map_err(stays)?;
    }
    let term = match drained_transfer(admin, to, home, &mut clock).await {
        Ok(term) => term,
        Err(error) => {
            if let Some(paused) = &paused
                && let Err(error) = pause::keep_for(admin, paused, paused.primary).await
            {
                tracing::warn!(%error, primary = %to, "the pinned primary stays the target");
            }
            return Err(error);
        }
    };

    clock.enter(PromotionPhase::Release);
    released(admin, to, term, clock).await
}

/// Transfers the leadership to `to` after it has received all entries of the drained writes. No entries are added during this wait.
async fn drained_transfer(
    admin: &Administration,
    to: MemberId,
    home: Region,
    clock: &mut Clock<'_>,
) -> Result<Term, PromotionError> {
    admin
        .node
        .wait_for_log(to, 0)
        .await
        .map_err(|refusal| PromotionError::TargetLags(refusal, home))?;
    clock.enter(PromotionPhase::Transfer);
    match admin.node.transfer(to).await {
        Ok(LedTerm { leader, term }) if leader == to => Ok(term),
        Ok(LedTerm { leader, term }) => Err(PromotionError::AnotherLeads {
            target: to,
            leader,
            term,
        }),
        Err(TransferError::Refused(refusal)) => Err(PromotionRefusal::Target(refusal).into()),
        Err(error) => Err(PromotionError::Unknown(error.to_string())),
    }
}

/// Makes the leader the primary during a pause that reserves the primary's place for another member. This handles an ordered promotion to
/// the member that already leads.
async fn take_the_place(
    admin: &Administration,
    paused: &RingPause,
    mut clock: Clock<'_>,
) -> Result<Promoted, PromotionError> {
    let (view, own) = (admin.node.ring_view(), admin.node.id());
    let peer = view.member(own).ok_or(TransferRefusal::NoSuchMember(own));
    let record = &peer.map_err(PromotionRefusal::from)?.record;
    if record.kind == MemberKind::Witness {
        return Err(PromotionRefusal::Witness(own).into());
    }
    let serving = admin.node.ensure_serving();
    serving.map_err(PromotionRefusal::NotServing)?;
    clock.enter(PromotionPhase::Release);
    let term = admin.node.role().term;
    let home = record.region.clone();
    let kept = pause::keep_for(admin, paused, own).await;
    kept.map_err(|error| PromotionError::Move(error, home))?;
    Ok(Promoted {
        leader: own,
        term,
        phases: clock.end(),
    })
}

/// Waits until the new leader has committed an entry of its own term.
async fn released(
    admin: &Administration,
    to: MemberId,
    term: Term,
    clock: Clock<'_>,
) -> Result<Promoted, PromotionError> {
    let mut committed = admin.node.committed();
    let own_entry = committed.wait_for(|mark| mark.is_some_and(|mark| mark.term >= term.0));
    let patience = admin.node.timers().longest_election();
    match tokio::time::timeout(patience, own_entry).await {
        Ok(Ok(_)) => Ok(Promoted {
            leader: to,
            term,
            phases: clock.end(),
        }),
        Ok(Err(_)) => Err(PromotionError::Unknown("the engine has stopped".to_owned())),
        Err(_) => Err(PromotionError::Unknown(format!(
            "member {to} leads in term {term}, and nothing of it is committed within {patience:?}"
        ))),
    }
}

/// Waits until the target has all entries that the log had at the start of the wait, for at most one lease. The rest will then take no
/// longer than a lease either, so the writes can be stopped.
async fn wait_until_caught_up(admin: &Administration, to: MemberId) -> Result<(), TransferRefusal> {
    let lease = admin.node.timers().lease;
    let until = Instant::now() + lease;
    let end = admin.node.ring_view().last_log;
    loop {
        let view = admin.node.ring_view();
        let verified = view.check_transfer(to);
        let target = view.member(to);
        if verified.is_ok() && target.is_some_and(|target| target.matched >= end) {
            return Ok(());
        }
        if Instant::now() >= until {
            verified?;
            return Err(TransferRefusal::Slow {
                member: to,
                lag: target.and_then(|target| target.lag).unwrap_or(u64::MAX),
                waited: lease,
            });
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
