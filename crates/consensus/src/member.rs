//! One ring member's Raft: started over a log and a network, then proposed to, watched, asked, and shut
//! down. A handle; clones are the same member. It runs until [`Member::shutdown`], also without one.

use std::collections::BTreeMap;
use std::sync::Arc;

use openraft::RaftNetworkFactory;
use openraft::network::NetSnapshot;
use openraft::storage::RaftLogStorage;
use raft_types::{
    AppEntry, CommittedLeaderId, FileStarts, LogIntake, MAX_TRANSACTION_BYTES, MemberId,
    MemberRecord, OfferedStart, OpId, ProposalResponder, TypeConfig,
};
use thiserror::Error;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

mod asking;
mod founding;
mod orders;
mod purging;

pub use founding::BootstrapError;
pub use purging::PurgeError;

use crate::campaigning::{Campaigning, first_turn};
use crate::contacts::{Contacts, Noted};
use crate::doubted_tail;
use crate::election_gate::ElectionGate;
use crate::engine::{self, Engine};
use crate::explain::explain;
use crate::fault::Fault;
use crate::inbound::Inbound;
use crate::leadership::{Leadership, Term};
use crate::member_config::{ConfigError, MemberConfig};
use crate::observer;
use crate::proposal::{InFlight, ProposalTicket, ProposeError, Refusal};
use crate::questions::MemberCalls;
use crate::quorum::{QuorumHealth, region_quorums};
use crate::rooms;
use crate::seat::Seat;
use crate::standing::RingView;
use crate::status::MemberStatus;
use crate::steward::{self, StewardState};
use crate::supervision;
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
    /// Held by whoever proposes until the engine has it, so that nobody overtakes who waits for room.
    turn: AsyncMutex<()>,
    leadership: watch::Receiver<Leadership>,
    primacy: watch::Receiver<Leadership>,
    steward: watch::Receiver<Option<StewardState>>,
    fault: watch::Receiver<Option<Fault>>,
    tasks: [AbortHandle; 6],
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
        // Whatever an earlier process has promised, it promised before this.
        let begun = Instant::now();
        let gate = ElectionGate::new(starts.doubted_tail().as_ref());
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
        let is_new = !raft.is_initialized().await.map_err(Fault::from)?;
        let campaigning = Campaigning::new(begun, config.timers.lease, is_new, gate);
        let (id, timers) = (config.id, config.timers);
        let seat = Seat::new(raft, id, timers, rules, mark, contacts, campaigning);
        let seat = Arc::new(seat);
        let waking = tokio::spawn(wake(seat.clone()));
        let (publish_leadership, leadership) =
            watch::channel(Leadership::Follower { leader: None });
        let (publish_primacy, primacy) = watch::channel(Leadership::Follower { leader: None });
        let published = observer::Published {
            leadership: publish_leadership,
            primacy: publish_primacy,
        };
        let (publish_steward, steward) = watch::channel(None);
        let (publish_fault, fault) = watch::channel(None);
        let observer = tokio::spawn(observer::observe(seat.clone(), published));
        let supervisor = tokio::spawn(supervision::supervise(seat.clone(), publish_fault));
        let asking = tokio::spawn(rooms::ask_around(seat.clone(), calls.clone()));
        let stewarding = tokio::spawn(steward::run(
            seat.clone(),
            calls.clone(),
            leadership.clone(),
            publish_steward,
        ));
        let settling = doubted_tail::settle(seat.clone(), calls.clone(), starts.clone());
        let settling = tokio::spawn(settling);
        Ok(Self(Arc::new(Running {
            proposals: Arc::new(Semaphore::new(config.bounds.proposals_bytes as usize)),
            turn: AsyncMutex::default(),
            config,
            seat,
            calls,
            starts,
            purge_goal,
            leadership,
            primacy,
            steward,
            fault,
            tasks: [
                observer.abort_handle(),
                supervisor.abort_handle(),
                stewarding.abort_handle(),
                waking.abort_handle(),
                settling.abort_handle(),
                asking.abort_handle(),
            ],
        })))
    }

    /// Proposes an entry in the leadership of `term`; it is refused, on the ticket, when that is over.
    /// Calls that follow each other put their entries into the log in that order; nothing waits for
    /// the commit of the one before. Waits while the proposals under way are at their bound, and while this member's own log
    /// has so much to write that there is no room for more in memory.
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
        let bytes = bytes_of(&entry);
        let rooms = &self.0.seat.rooms;
        let _turn = self.0.turn.lock().await;
        if matches!(entry, AppEntry::Transaction(_)) {
            let sets = || self.0.seat.role().voter_sets().to_vec();
            rooms.check(self.0.config.id, term, sets, bytes)?;
        }
        if let Some(log) = rooms.own() {
            log.queue_room(bytes).await;
        }
        let share = self.0.proposals.clone().acquire_many_owned(share).await;
        // Closed by `shutdown` only.
        let share = share.map_err(|_| Fault::Stopped)?;
        let (in_flight, ticket) = InFlight::new(
            term,
            self.0.seat.mark.clone(),
            (share, rooms.propose(bytes)),
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
        let bytes = bytes_of(entry);
        if bytes > MAX_TRANSACTION_BYTES {
            return Err(ProposeError::TooLarge {
                bytes,
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

    /// The leadership as the database beside this member may rely on it: while failover is paused and another member is
    /// the primary, a member that leads is none to its own database. It stays true without a reader.
    pub fn primacy(&self) -> watch::Receiver<Leadership> {
        self.0.primacy.clone()
    }

    /// [`Member::primacy`] at this very moment.
    pub fn primacy_now(&self) -> Leadership {
        self.0.seat.primacy(&self.0.seat.role())
    }

    /// Everything that an operator asks about this member's Raft.
    pub fn status(&self) -> MemberStatus {
        let Running { config, seat, .. } = &*self.0;
        let role = seat.role();
        let progress = engine::progress(&seat.raft);
        let ring_view = RingView::new(seat.id, &role, &progress);
        let rules = seat.rules();
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
            explanation: explain(&ring_view, &rules, lease),
            regions: match ring_view.leads {
                true => region_quorums(&ring_view, lease),
                false => Vec::new(),
            },
            rules,
            pause: ring_view.pause(),
            ring_view,
            quorum_cause: quorum
                .as_ref()
                .filter(|quorum| !quorum.ok)
                .map(QuorumHealth::to_string),
            quorum,
            proposals_bytes: u64::from(config.bounds.proposals_bytes).saturating_sub(available),
            stays_out_of_elections: self.stays_out_of_elections(),
            steward: self.0.steward.borrow().clone(),
            fault: self.0.fault.borrow().clone(),
        }
    }

    /// Whether this member may campaign by itself, once a lease after its start is over. It votes and can be given the leadership
    /// either way. It never campaigns while the end of its log is in doubt, whatever is said here.
    pub fn set_campaigning(&self, allowed: bool) {
        self.0.seat.campaigning.allow(self.raft(), allowed);
    }

    /// Others have committed this: whoever this member votes for must have it, and it campaigns when it has it itself.
    pub(crate) fn elects_from(&self, committed: OpId) {
        self.0.seat.campaigning.told(committed, self.raft());
    }

    /// Waits until the own log has what others had committed, and takes part in elections again.
    pub(crate) async fn has_what_it_was_told(&self) {
        let seat = &self.0.seat;
        while seat.campaigning.gate.committed().is_some() {
            let end = doubted_tail::log_end(&seat.raft, seat.id).await;
            let Some(end) = end else {
                // The engine has stopped.
                return;
            };
            seat.campaigning.goes_to(end.last, &seat.raft);
            tokio::time::sleep(seat.timers.heartbeat / 2).await;
        }
    }

    /// Why this member takes part in no election at the moment, in words.
    pub fn stays_out_of_elections(&self) -> Option<String> {
        self.0
            .seat
            .campaigning
            .gate
            .stays_out()
            .map(|why| why.to_string())
    }

    /// From now on nothing is proposed, and no leader's entries are taken, that this log has no room for: said once, right
    /// behind the start, of the log that the member was started over.
    pub fn take_in_by(&self, log: Arc<dyn LogIntake>) {
        self.0.seat.rooms.ask(log);
    }

    /// Whether this member's log has no room for transactions, while a majority of each voter set is not known to lack it: then
    /// another one should lead.
    pub fn is_full_alone(&self) -> bool {
        let seat = &self.0.seat;
        let role = seat.role();
        let term = seat.assess(&role).serving_term();
        term.is_some_and(|term| seat.rooms.only_here(seat.id, term, role.voter_sets()))
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

/// Lets a member that was started campaign when its first turn has come.
async fn wake(seat: Arc<Seat>) {
    let turn = first_turn(&seat.role(), seat.id, &seat.timers);
    seat.campaigning.wake(&seat.raft, turn).await;
}

fn bytes_of(entry: &AppEntry) -> u64 {
    match entry {
        AppEntry::Transaction(payload) => payload.bytes().len() as u64,
        AppEntry::Rotate(rotate) => rotate.format_description.len() as u64,
    }
}

/// What the smallest entry takes of the bound on proposals: it costs more memory than its bytes.
const SMALLEST_SHARE: u32 = 1024;

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
