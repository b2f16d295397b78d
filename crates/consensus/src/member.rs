//! One ring member's Raft: started over a log and a network, then proposed to, watched, asked, and shut
//! down. A handle; clones are the same member. It runs until [`Member::shutdown`], also without one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::RaftNetworkFactory;
use openraft::network::NetSnapshot;
use openraft::storage::RaftLogStorage;
use raft_types::{
    AppEntry, CommittedLeaderId, FileStarts, MAX_TRANSACTION_BYTES, MemberId, MemberRecord,
    Membership, OfferedStart, OpId, ProposalResponder, TypeConfig,
};
use thiserror::Error;
use tokio::sync::{Semaphore, watch};
use tokio::task::AbortHandle;

use crate::contacts::{Contacts, Noted};
use crate::engine::{self, Engine};
use crate::explain::explain;
use crate::fault::{self, Fault};
use crate::heir;
use crate::impose::{ImposeError, impose};
use crate::inbound::Inbound;
use crate::leadership::{Leadership, Term};
use crate::member_config::{ConfigError, MemberConfig};
use crate::mock_election::MockElection;
use crate::observer;
use crate::promotion::{self, Promoted, PromotionError, PromotionProgress, PromotionRefusal};
use crate::proposal::{InFlight, ProposalTicket, ProposeError, Refusal};
use crate::questions::{Answer, CallError, MemberCalls, Question};
use crate::quorum::{PolicyGap, QuorumHealth, QuorumPolicy, region_quorums};
use crate::region_watermarks::PurgeFloor;
use crate::repair::{self, MemberEvidence, RepairPlan, RepairRefusal};
use crate::roster::{self, RosterError};
use crate::seat::Seat;
use crate::standing::RingView;
use crate::status::MemberStatus;
use crate::steward::{self, StewardState};
use crate::transfer::{self, TransferError, TransferOutcome};
use crate::watermark::{AppliedFloor, CommitMark, CommittedLog, PurgeGoal};

/// A running member.
#[derive(Debug, Clone)]
pub struct Member(Arc<Running>);

struct Running {
    config: MemberConfig,
    seat: Arc<Seat>,
    calls: Arc<dyn MemberCalls>,
    starts: Arc<dyn FileStarts>,
    purge_goal: PurgeGoal,
    proposals: Arc<Semaphore>,
    leadership: watch::Receiver<Leadership>,
    steward: watch::Receiver<Option<StewardState>>,
    fault: watch::Receiver<Option<Fault>>,
    tasks: [AbortHandle; 3],
}

/// Why a member could not be started.
#[derive(Debug, Error)]
pub enum StartError {
    /// Its configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its log or its network could not be opened.
    #[error("the consensus engine did not start: {0}")]
    Engine(#[from] Fault),
}

/// Why a ring was not initialised.
#[derive(Debug, Error)]
pub enum BootstrapError {
    /// The log has entries, or the member voted.
    #[error("this member has a log already; a ring is initialised once, on an empty one")]
    NotPristine,
    /// This member is not in the list.
    #[error("member {0} is not among the members to begin with")]
    NotInList(MemberId),
    /// The founder does not vote.
    #[error("member {0} does not vote, so it cannot make the ring; bootstrap a member that does")]
    DoesNotVote(MemberId),
    /// The founder does not count under the policy: nobody who does would ever hear of the ring.
    #[error(
        "with policy {policy}, member {member} is in no quorum, so it cannot make the ring; bootstrap a voting member of those regions"
    )]
    OutsideTheQuorum {
        /// The founder.
        member: MemberId,
        /// The policy.
        policy: QuorumPolicy,
    },
    /// The policy needs voters that are not there.
    #[error(transparent)]
    Policy(#[from] PolicyGap),
    /// The engine has stopped.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

/// Why the log was not purged.
#[derive(Debug, Error)]
pub enum PurgeError {
    /// Beyond what is applied.
    #[error("entries up to {upto} cannot be purged; only those up to {} are applied", match .applied {
        Some(applied) => applied.to_string(),
        None => "none".to_owned(),
    })]
    NotApplied {
        /// What was asked for.
        upto: OpId,
        /// What could be.
        applied: Option<OpId>,
    },
    /// Inside of a file, or within the file that is being written to.
    #[error("entries up to {upto} cannot be purged: no file ends there; {}", match .next {
        Some(next) => format!("the next one that does ends with {next}"),
        None => "the files from there on are still needed".to_owned(),
    })]
    NotTheEndOfAFile {
        /// What was asked for.
        upto: OpId,
        /// The first entry behind it that ends a file, where another file follows.
        next: Option<OpId>,
    },
    /// The log could not be read.
    #[error("the log cannot say where its files begin: {reason}")]
    Log {
        /// The log's words.
        reason: String,
    },
    /// The engine has stopped.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

impl Member {
    /// Starts a member over its log. `floor` is from where the log is known to be committed; `starts` is
    /// the same log again, as a row of files with which another member's log may begin.
    ///
    /// # Errors
    /// [`StartError`] when the configuration cannot work, or the log cannot be read.
    pub async fn start<L, N>(
        config: MemberConfig,
        log: L,
        network: N,
        calls: Arc<dyn MemberCalls>,
        floor: AppliedFloor,
        starts: Arc<dyn FileStarts>,
    ) -> Result<Self, StartError>
    where
        L: RaftLogStorage<TypeConfig>,
        N: RaftNetworkFactory<TypeConfig>,
        N::Network: NetSnapshot<TypeConfig, SnapshotData = OfferedStart>,
    {
        let engine_config = config.engine()?;
        let mark = CommitMark::new(floor.last_applied.map(OpId::from));
        let purge_goal = PurgeGoal::default();
        let state_machine =
            CommittedLog::new(floor, mark.clone(), starts.clone(), purge_goal.clone());
        let contacts = Contacts::default();
        let network = Noted::new(network, contacts.clone());
        let raft = Engine::new(config.id, engine_config, network, log, state_machine)
            .await
            .map_err(Fault::from)?;

        let rules = config.rules.clone();
        let seat = Seat::new(raft, config.id, config.timers, rules, mark, contacts);
        let seat = Arc::new(seat);
        let (publish_leadership, leadership) =
            watch::channel(Leadership::Follower { leader: None });
        let (publish_steward, steward) = watch::channel(None);
        let (publish_fault, fault) = watch::channel(None);
        let observer = tokio::spawn(observer::observe(seat.clone(), publish_leadership));
        let supervisor = tokio::spawn(fault::supervise(seat.clone(), publish_fault));
        let stewarding = tokio::spawn(steward::run(
            seat.clone(),
            calls.clone(),
            leadership.clone(),
            publish_steward,
        ));
        Ok(Self(Arc::new(Running {
            proposals: Arc::new(Semaphore::new(config.bounds.proposals_bytes as usize)),
            config,
            seat,
            calls,
            starts,
            purge_goal,
            leadership,
            steward,
            fault,
            tasks: [
                observer.abort_handle(),
                supervisor.abort_handle(),
                stewarding.abort_handle(),
            ],
        })))
    }

    /// Initialises the ring: all its members, and the voter sets that the policy wants with the leader in this member's
    /// region. Once in a ring's life, on one member.
    ///
    /// # Errors
    /// [`BootstrapError`]; the log is unchanged then.
    pub async fn bootstrap(
        &self,
        members: BTreeMap<MemberId, MemberRecord>,
    ) -> Result<(), BootstrapError> {
        let own = members.get(&self.id());
        let own = own.ok_or(BootstrapError::NotInList(self.id()))?;
        if !own.votes {
            return Err(BootstrapError::DoesNotVote(self.id()));
        }
        let policy = &self.0.config.rules.policy;
        let sets = policy.voter_sets(&members, &own.region)?;
        if !sets.iter().any(|set| set.contains(&self.id())) {
            return Err(BootstrapError::OutsideTheQuorum {
                member: self.id(),
                policy: policy.clone(),
            });
        }
        if self.raft().is_initialized().await.map_err(Fault::from)? {
            return Err(BootstrapError::NotPristine);
        }
        // The sets are of members of the list, and none is empty.
        let membership = Membership::new(sets, members).map_err(|_| PolicyGap::NoVotersAtAll)?;
        match impose(self.raft(), membership, None, FIRST_TERM).await {
            Ok(_) => Ok(()),
            Err(ImposeError::Changed) => Err(BootstrapError::NotPristine),
            Err(ImposeError::Stopped(fault)) => Err(fault.into()),
        }
    }

    /// Proposes an entry in the leadership of `term`; it is refused, on the ticket, when that is over.
    /// Calls that follow each other put their entries into the log in that order; nothing waits for
    /// the commit of the one before. Waits while the proposals under way are at their bound.
    ///
    /// # Errors
    /// [`ProposeError`] when the entry was not proposed at all.
    pub async fn propose(
        &self,
        entry: AppEntry,
        term: Term,
    ) -> Result<ProposalTicket, ProposeError> {
        let share = self.share_of(&entry)?;
        let leadership = *self.0.leadership.borrow();
        if leadership.leading_term() != Some(term) {
            let leader = match leadership {
                Leadership::Follower { leader } => leader,
                _ => None,
            };
            let refusal = Refusal::NotLeader { leader };
            return Ok(ProposalTicket::refused(
                term,
                refusal,
                self.0.leadership.clone(),
            ));
        }
        let share = self.0.proposals.clone().acquire_many_owned(share).await;
        // Closed by `shutdown` only.
        let share = share.map_err(|_| Fault::Stopped)?;
        let (in_flight, ticket) = InFlight::new(
            term,
            self.0.seat.mark.clone(),
            share,
            self.0.leadership.clone(),
        );
        self.raft()
            .write(entry)
            .with_leader(CommittedLeaderId::new(term.0))
            .responder(ProposalResponder::new(in_flight))
            .await
            .map_err(Fault::from)?;
        Ok(ticket)
    }

    /// The part of the bound on proposals that an entry takes.
    fn share_of(&self, entry: &AppEntry) -> Result<u32, ProposeError> {
        let bytes = match entry {
            AppEntry::Transaction(payload) => payload.bytes().len(),
            AppEntry::Rotate(rotate) => rotate.format_description.len(),
        };
        if bytes as u64 > MAX_TRANSACTION_BYTES {
            return Err(ProposeError::TooLarge {
                bytes: bytes as u64,
                limit: MAX_TRANSACTION_BYTES,
            });
        }
        let bound = self.0.config.bounds.proposals_bytes;
        Ok(u32::try_from(bytes)
            .unwrap_or(bound)
            .clamp(SMALLEST_SHARE, bound))
    }

    /// Up to where the log is committed, as far as this member knows; never goes back.
    pub fn committed(&self) -> watch::Receiver<Option<OpId>> {
        self.0.seat.mark.subscribe()
    }

    /// Who leads, as this member may rely on it. It stays true without a reader.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.0.leadership.clone()
    }

    /// The leadership at this very moment, for an answer that must not be older than the question.
    pub fn leadership_now(&self) -> Leadership {
        self.0.seat.leadership()
    }

    /// Everything that an operator asks about this member's Raft.
    pub fn status(&self) -> MemberStatus {
        let Running { config, seat, .. } = &*self.0;
        let role = seat.role();
        let progress = engine::progress(&seat.raft);
        let ring_view = RingView::new(seat.id, &role, &progress);
        let leadership = seat.assess(&role);
        let lease = seat.timers.lease;
        let quorum = ring_view.leads.then(|| {
            QuorumHealth::judge(role.voter_sets(), |id| {
                ring_view
                    .member(id)
                    .is_some_and(|standing| standing.answers(lease))
            })
        });
        let available = self.0.proposals.available_permits() as u64;
        MemberStatus {
            ring: config.ring,
            member: config.id,
            leadership,
            not_serving: match leadership {
                Leadership::LeaderNotServing { why, .. } => Some(why.to_string()),
                _ => None,
            },
            term: role.term,
            committed: seat.mark.get(),
            purged: progress.purged,
            explanation: explain(&ring_view, &config.rules, lease),
            regions: match ring_view.leads {
                true => region_quorums(&ring_view, lease),
                false => Vec::new(),
            },
            rules: config.rules.clone(),
            ring_view,
            quorum_cause: quorum
                .as_ref()
                .filter(|quorum| !quorum.ok)
                .map(QuorumHealth::to_string),
            quorum,
            proposals_bytes: u64::from(config.bounds.proposals_bytes).saturating_sub(available),
            steward: self.0.steward.borrow().clone(),
            fault: self.0.fault.borrow().clone(),
        }
    }

    /// Gives the leadership to a voter and waits for the outcome, four leases at most.
    ///
    /// # Errors
    /// [`TransferError`]: refused with nothing changed, or nobody leads yet.
    pub async fn transfer_leader(&self, to: MemberId) -> Result<TransferOutcome, TransferError> {
        transfer::transfer(&self.0.seat, &self.0.calls, to).await
    }

    /// Promotes a database member of this or another region, and waits for the end of it. What is under way can be
    /// followed through `progress`. It goes on when this call is dropped.
    ///
    /// # Errors
    /// [`PromotionError`]; it says what the ring does then.
    pub async fn promote(
        &self,
        to: MemberId,
        progress: watch::Sender<PromotionProgress>,
    ) -> Result<Promoted, PromotionError> {
        let (seat, calls) = (self.0.seat.clone(), self.0.calls.clone());
        let promoting =
            tokio::spawn(async move { promotion::promote(&seat, &calls, to, &progress).await });
        promoting
            .await
            .unwrap_or_else(|error| Err(PromotionError::Unknown(error.to_string())))
    }

    /// Gives the leadership to who is fit for it, in this region or another, because this member is about to stop.
    ///
    /// # Errors
    /// [`PromotionError`] when nobody is fit, or it did not come to its end.
    pub async fn give_leadership_away(&self) -> Result<Promoted, PromotionError> {
        let seat = &self.0.seat;
        let heir = heir::choose(&seat.ring_view(), &seat.rules, seat.timers.lease, &[]);
        let heir = heir.map_err(PromotionRefusal::NoHeir)?;
        self.promote(heir, watch::Sender::default()).await
    }

    /// Asks a member whether its voters would elect it now. Changes nothing.
    ///
    /// # Errors
    /// [`PromotionRefusal`] when it could not lead anyway, or could not be asked.
    pub async fn mock_election(&self, to: MemberId) -> Result<MockElection, PromotionRefusal> {
        promotion::mock_election(&self.0.seat, &self.0.calls, to).await
    }

    /// Whether the ring could take this member in. Changes nothing.
    ///
    /// # Errors
    /// [`RosterError`], as [`Member::add_member`] would answer it.
    pub fn check_new_member(&self, id: MemberId, record: &MemberRecord) -> Result<(), RosterError> {
        roster::check_add(&self.0.seat.ring_view(), id, record)
    }

    /// Takes a member in. It receives the log, and its vote when it is caught up and its region's turn comes.
    ///
    /// # Errors
    /// [`RosterError`].
    pub async fn add_member(
        &self,
        id: MemberId,
        record: MemberRecord,
    ) -> Result<OpId, RosterError> {
        roster::add(&self.0.seat, id, record).await
    }

    /// Lets a member go. Its data directory is of no use to this ring any more.
    ///
    /// # Errors
    /// [`RosterError`].
    pub async fn remove_member(&self, id: MemberId) -> Result<OpId, RosterError> {
        roster::remove(&self.0.seat, id).await
    }

    /// What this member can say when a quorum may be lost for good.
    pub fn evidence(&self) -> MemberEvidence {
        let seat = &self.0.seat;
        let leads = seat.leadership().serving_term().map(|_| seat.id);
        let hears = seat.heard.within(seat.timers.lease * 2);
        let leader = leads.or(seat
            .role()
            .leader
            .filter(|leader| hears && *leader != seat.id));
        MemberEvidence::of(&seat.raft, seat.id, leader)
    }

    /// Carries out the repair of a lost quorum, of which this member is the survivor: it goes on alone, and its steward
    /// restores the policy. `accepted` names the last entry after which a loss is accepted.
    ///
    /// # Errors
    /// [`RepairRefusal`]; nothing is changed then.
    pub async fn repair_quorum(
        &self,
        plan: &RepairPlan,
        accepted: Option<OpId>,
    ) -> Result<OpId, RepairRefusal> {
        repair::accept(plan, accepted)?;
        if let Some(leader) = self.evidence().leader {
            let witness = self.id();
            return Err(RepairRefusal::Led { leader, witness });
        }
        repair::carry_out(self.raft(), self.id(), plan).await
    }

    /// Up to where the ring does not need the log any more, as its leader sees it. A member that did not
    /// answer the leader for `absent_after` holds nothing back.
    ///
    /// # Errors
    /// [`CallError`] when no leader is known, or it does not answer in time.
    pub async fn purge_floor(&self, absent_after: Duration) -> Result<PurgeFloor, CallError> {
        let seat = &self.0.seat;
        if let Some(floor) = seat.purge_floor(absent_after) {
            return Ok(floor);
        }
        let role = seat.role();
        let leader = role.leader.filter(|leader| *leader != seat.id);
        let known = leader.and_then(|leader| {
            let record = role.membership.get_node(&leader)?;
            Some((leader, record))
        });
        let Some((leader, record)) = known else {
            return Err(CallError("no leader is known".to_owned()));
        };
        let question = Question::PurgeFloor { absent_after };
        let deadline = seat.timers.lease;
        let answer = self.0.calls.ask(leader, record, question, deadline).await?;
        match answer {
            Answer::PurgeFloor(floor) => Ok(floor),
            other => Err(CallError(format!("it answers something else: {other:?}"))),
        }
    }

    /// Lets the engine remove entries up to `upto` from the log, when no follower is being sent them.
    /// A file ends with `upto`, so that the log goes on with a file with which another log can begin.
    ///
    /// # Errors
    /// [`PurgeError`] when they are not applied yet, or no file ends there.
    pub async fn purge(&self, upto: OpId) -> Result<(), PurgeError> {
        let applied = engine::progress(self.raft()).applied;
        if applied.is_none_or(|applied| applied.index < upto.index) {
            return Err(PurgeError::NotApplied { upto, applied });
        }
        let purged = engine::progress(self.raft()).purged;
        if purged.is_some_and(|purged| purged.index >= upto.index) {
            return Ok(());
        }
        let next = self.0.starts.first_start(Some(upto)).await;
        let next = next.map_err(|error| PurgeError::Log {
            reason: error.to_string(),
        })?;
        let next = next.map(|start| start.before);
        if next != Some(upto) {
            return Err(PurgeError::NotTheEndOfAFile { upto, next });
        }
        self.0.purge_goal.raise(upto);
        let trigger = self.raft().trigger();
        trigger.snapshot().await.map_err(Fault::from)?;
        let marked = self.raft().wait(None);
        let reached = |seen: &openraft::RaftMetrics<TypeConfig>| {
            seen.snapshot.is_some_and(|at| at.index >= upto.index)
        };
        let reached = marked.metrics(reached, "the mark up to which the log may be purged");
        reached.await.map_err(|_| Fault::Stopped)?;
        trigger.purge_log(upto.index).await.map_err(Fault::from)?;
        Ok(())
    }

    /// Whether this member may campaign by itself. It votes and can be given the leadership either way.
    pub fn set_campaigning(&self, allowed: bool) {
        self.raft().runtime_config().elect(allowed);
    }

    /// The receiving end, for the transport's server.
    pub fn inbound(&self) -> Inbound {
        Inbound::new(
            self.0.seat.clone(),
            self.0.calls.clone(),
            self.0.starts.clone(),
        )
    }

    /// Waits until the engine has stopped, and says why: a failed log storage, a panic, a shutdown.
    pub async fn fault(&self) -> Fault {
        let mut fault = self.0.fault.clone();
        let stopped = fault.wait_for(Option::is_some).await;
        stopped
            .ok()
            .and_then(|fault| fault.clone())
            .unwrap_or(Fault::Stopped)
    }

    /// Stops the member. What was acknowledged stays durable; proposals under way become unknown.
    pub async fn shutdown(&self) {
        self.0.proposals.close();
        // It reports how its task ended, which `fault` tells as well.
        let _ = self.raft().shutdown().await;
        self.fault().await;
    }

    /// All other members of the ring, as this one's membership has them.
    pub fn others(&self) -> BTreeMap<MemberId, MemberRecord> {
        let role = self.0.seat.role();
        let members = role.membership.membership().nodes();
        let others = members.filter(|(id, _)| **id != self.id());
        others.map(|(id, record)| (*id, record.clone())).collect()
    }

    /// This member's number.
    pub fn id(&self) -> MemberId {
        self.0.config.id
    }

    /// The engine itself, for those who measure it and for the simulator, which breaks it on purpose. A membership that is
    /// changed through it goes past every rule of this crate.
    pub fn engine(&self) -> &openraft::Raft<TypeConfig, CommittedLog> {
        self.raft()
    }

    fn raft(&self) -> &Engine {
        &self.0.seat.raft
    }
}

/// What the smallest entry takes of the bound on proposals: it costs more memory than its bytes.
const SMALLEST_SHARE: u32 = 1024;

/// The term under which a ring's first membership is written; its first leader has the next one.
const FIRST_TERM: u64 = 1;

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member")
            .field("config", &self.config)
            .field("leadership", &*self.leadership.borrow())
            .finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
