//! What operators order of a member, and what they ask it before they do.

use std::sync::Arc;
use std::time::SystemTime;

use raft_types::{MemberId, MemberRecord, OpId};
use tokio::sync::watch;

use super::Member;
use crate::calls::questions::Question;
use crate::election::mock_election::MockElection;
use crate::quorum::RingRules;
use crate::reconfiguration::members::{self, RosterError};
use crate::reconfiguration::pause::{self, PauseError, PauseWish};
use crate::reconfiguration::pinned_primary::RingPause;
use crate::reconfiguration::promotion::{
    self, Promoted, PromotionError, PromotionProgress, PromotionRefusal,
};
use crate::reconfiguration::updates::{self, Amendment, RecordWish, RulesWish};
use crate::repair::plan::{self, MemberEvidence, RepairPlan, RepairRefusal};
use crate::transfer::fitness::{self, Database, DatabaseState};
use crate::transfer::leadership_transfer::{self, TransferError, TransferOutcome};
use crate::transfer::target;
use crate::transfer::writer::Writer;

impl Member {
    /// Gives the leadership to a voter and waits for the outcome, four leases at most.
    ///
    /// # Errors
    /// [`TransferError`]: refused with nothing changed, or nobody leads yet.
    pub async fn transfer_leader(&self, to: MemberId) -> Result<TransferOutcome, TransferError> {
        leadership_transfer::transfer(&self.0.core, &self.0.calls, to).await
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
        let (core, calls) = (self.0.core.clone(), self.0.calls.clone());
        let promoting =
            tokio::spawn(async move { promotion::promote(&core, &calls, to, &progress).await });
        promoting
            .await
            .unwrap_or_else(|error| Err(PromotionError::Unknown(error.to_string())))
    }

    /// Who writes to this member's log, and is paused before the leadership is given away on purpose. Said once.
    pub fn set_writer(&self, writer: Arc<dyn Writer>) {
        self.0.core.writer.set(writer);
    }

    /// Gives the leadership to who is fit for it, in this region or another, because this member is about to stop.
    ///
    /// # Errors
    /// [`PromotionError`] when nobody is fit, or it did not come to its end.
    pub async fn give_leadership_away(&self) -> Result<Promoted, PromotionError> {
        let (target, _) = self
            .transfer_target()
            .await
            .map_err(PromotionRefusal::NoTarget)?;
        self.promote(target, watch::Sender::default()).await
    }

    /// Pauses failover, or changes the terms of the pause that stands: nobody but the present primary, or who was it when
    /// the pause began, becomes the primary by itself. Committed when this returns.
    ///
    /// # Errors
    /// [`PauseError`].
    pub async fn pause(&self, wish: &PauseWish) -> Result<(RingPause, OpId), PauseError> {
        pause::pause(&self.0.core, wish).await
    }

    /// Ends the pause of failover, and says what it was. Committed when this returns.
    ///
    /// # Errors
    /// [`PauseError`].
    pub async fn resume(&self) -> Result<(RingPause, OpId), PauseError> {
        pause::resume(&self.0.core).await
    }

    /// What a promotion of this member would cost, as far as its mysqld goes. Said once.
    pub fn set_database(&self, database: Arc<dyn Database>) {
        self.0.core.database.set(database);
    }

    /// Who should get the leadership if this member gives it away, and what that one says of its mysqld. All of them are asked
    /// first, at once.
    ///
    /// # Errors
    /// What keeps everybody from leading, in words.
    pub async fn transfer_target(&self) -> Result<(MemberId, Option<DatabaseState>), String> {
        let core = &self.0.core;
        let mut said = fitness::ask(core, &self.0.calls, &core.ring_view()).await;
        let view = core.ring_view();
        let target = target::choose(&view, &core.rules(), core.timers.lease, &[], &said)?;
        Ok((target, said.remove(&target)))
    }

    /// Asks a member whether its voters would elect it now. Changes nothing.
    ///
    /// # Errors
    /// [`PromotionRefusal`] when it could not lead anyway, or could not be asked.
    pub async fn mock_election(&self, to: MemberId) -> Result<MockElection, PromotionRefusal> {
        promotion::mock_election(&self.0.core, &self.0.calls, to).await
    }

    /// Whether the ring could take this member in. Changes nothing.
    ///
    /// # Errors
    /// [`RosterError`], as [`Member::add_member`] would answer it.
    pub fn check_new_member(&self, id: MemberId, record: &MemberRecord) -> Result<(), RosterError> {
        members::check_add(&self.0.core.ring_view(), id, record)
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
        members::add(&self.0.core, id, record).await
    }

    /// Changes what the log says of a member, but for what makes it this one. With `dry_run`, only says what would be.
    ///
    /// # Errors
    /// [`RosterError`].
    pub async fn update_member(
        &self,
        id: MemberId,
        wish: &RecordWish,
        dry_run: bool,
    ) -> Result<Amendment<MemberRecord>, RosterError> {
        let done = updates::update_member(&self.0.core, id, wish, dry_run).await?;
        if done.entry.is_some() {
            // The engine keeps its clients for as long as it leads, and they follow the newest record that anybody has
            // called the member by.
            let (calls, record) = (self.0.calls.clone(), done.after.clone());
            let deadline = self.0.core.timers.lease;
            tokio::spawn(async move {
                drop(calls.ask(id, &record, Question::Greeting, deadline).await);
            });
        }
        Ok(done)
    }

    /// Changes the rules of the ring. With `dry_run`, only says what would be.
    ///
    /// # Errors
    /// [`RosterError`].
    pub async fn set_rules(
        &self,
        wish: &RulesWish,
        dry_run: bool,
    ) -> Result<Amendment<RingRules>, RosterError> {
        updates::set_rules(&self.0.core, wish, dry_run).await
    }

    /// Lets a member go. Its data directory is of no use to this ring any more.
    ///
    /// # Errors
    /// [`RosterError`].
    pub async fn remove_member(&self, id: MemberId) -> Result<OpId, RosterError> {
        members::remove(&self.0.core, id).await
    }

    /// What this member can say when a quorum may be lost for good.
    pub async fn evidence(&self) -> MemberEvidence {
        let core = &self.0.core;
        let leads = core.leadership().serving_term().map(|_| core.id);
        let hears = core.heard.within(core.timers.lease * 2);
        let leader = leads.or(core
            .role()
            .leader
            .filter(|leader| hears && *leader != core.id));
        MemberEvidence::of(core, leader).await
    }

    /// Carries out the repair of a lost quorum, of which this member is the survivor: it goes on alone, and its leader tasks
    /// restores the policy. `accepted` names the last entry after which a loss is accepted; `clock` is what the clock of
    /// this machine shows, from which the repair gets its term.
    ///
    /// # Errors
    /// [`RepairRefusal`]; nothing is changed then.
    pub async fn repair_quorum(
        &self,
        plan: &RepairPlan,
        accepted: Option<OpId>,
        clock: SystemTime,
    ) -> Result<OpId, RepairRefusal> {
        plan::accept(plan, accepted)?;
        if let Some(leader) = self.evidence().await.leader {
            let witness = self.id();
            return Err(RepairRefusal::Led { leader, witness });
        }
        // It campaigns next, and does not know yet who leads if it was just started.
        self.0.core.campaigning.promise_is_over().await;
        plan::carry_out(self.raft(), self.id(), plan, clock).await
    }
}
