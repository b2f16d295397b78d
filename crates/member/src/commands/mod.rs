//! Executes operators' commands on a member, and reports their events. Each command that changes state is logged with its caller and
//! result. A command continues after its client disconnects, and ends when the member ends.

mod mysqld_orders;

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use consensus::HistoryEvent;
use mysqld_server::provision;
use raft_types::{FormatRange, MemberId, MemberRecord, OpId};
use ring_admin::{
    Member, Party, PromotionPhase, PromotionProgress, PromotionRefusal, ScheduledSwitchover,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use transport::{AdminClient, AdminError, CommandCaller, CommandSource, Right, TransportConfig};

pub(crate) use crate::commands::mysqld_orders::OrderedMysqld;
use crate::credentials::Reload;
use crate::log_keeping::purge_on_order;
use crate::other_members::OtherMembers;
use crate::protocol::{
    CommandEvent, CommandProgress, CommandResult, OperatorCommand, Order, Refusal, RefusalKind,
    done_event,
};
use crate::provisioning::{DonorMember, Provisioner};
use crate::ring_handle::{RingHandle, RotateError};
use crate::ring_history::{acknowledge_exposure, note_promotion, whole_history};
use crate::state::MemberState;
use crate::status::ViewSource;

/// Number of events that are queued for a client that does not read. More events are dropped.
const WAITING_EVENTS: usize = 64;

/// Executes operators' commands on a member, also before it has joined its ring. Clones share the state.
#[derive(Clone)]
pub struct Commands {
    pub(crate) state: Arc<MemberState>,
    /// The transport's deadlines for calls to the other members, and to new members.
    pub(crate) transport: TransportConfig,
    pub(crate) stop: CancellationToken,
    pub(crate) reload: Arc<OnceLock<Arc<dyn Reload>>>,
}

impl Commands {
    /// Sets the reload of the configuration, for this value and all its clones. Only the first call takes effect.
    pub fn reload_by(&self, reload: Arc<dyn Reload>) {
        drop(self.reload.set(reload));
    }

    /// Executes a command to its end, even if the client disconnects and receives no events. `caller` is recorded as the command's origin.
    ///
    /// # Errors
    /// The refusal; its kind determines the exit code.
    pub async fn carry_out(
        &self,
        caller: &'static str,
        command: OperatorCommand,
    ) -> Result<CommandResult, Refusal> {
        let (events, _) = mpsc::channel(1);
        let work = self.work(CommandProgress(events));
        let from = Origin {
            caller: caller.to_owned(),
            by: caller.to_owned(),
            claimed: None,
        };
        let stop = self.stop.clone();
        let carried_out = tokio::spawn(async move {
            let outcome = stop.run_until_cancelled(work.record(&from, command));
            let outcome = outcome.await;
            outcome.unwrap_or_else(|| Err(unknown("the member stops")))
        });
        let outcome = carried_out.await;
        outcome.unwrap_or_else(|error| Err(unknown(&error.to_string())))
    }

    fn work(&self, events: CommandProgress) -> Work {
        Work {
            member: self.clone(),
            events,
        }
    }
}

fn unknown(why: &str) -> Refusal {
    Refusal::new(
        RefusalKind::Unknown,
        format!("it is not known whether the order was carried out: {why}"),
        "check with `witness status`",
    )
}

impl CommandSource for Commands {
    fn right(&self, json: &[u8]) -> Right {
        let order = serde_json::from_slice::<Order>(json);
        // A command that this version does not support is not executed, so reading is enough.
        order.map_or(Right::Read, |order| order.command.right())
    }

    fn command(&self, caller: CommandCaller, json: Bytes) -> mpsc::Receiver<Bytes> {
        let (events, receiver) = mpsc::channel(WAITING_EVENTS);
        let work = self.work(CommandProgress(events));
        let stop = self.stop.clone();
        tokio::spawn(async move {
            let answering = work.answer(&caller, json);
            stop.run_until_cancelled(answering).await;
        });
        receiver
    }
}

/// The sender of a command, for the audit log and the ring's history.
#[derive(Debug, PartialEq, Eq)]
struct Origin {
    /// The client's address, or the part of the program that sent the command.
    caller: String,
    /// The name in the certificate. Without TLS, the name that the caller claims, or otherwise its address.
    by: String,
    /// The name that the caller claims, if the certificate contains another one.
    claimed: Option<String>,
}

impl Origin {
    fn of(caller: &CommandCaller, claimed: String) -> Self {
        let address = caller.address;
        let address = address.map_or_else(|| "unknown".to_owned(), |at| at.to_string());
        let claimed = Some(claimed).filter(|claimed| !claimed.is_empty());
        let (by, claimed) = match &caller.certificate_name {
            Some(name) if !name.is_empty() => {
                (name.clone(), claimed.filter(|claimed| claimed != name))
            }
            Some(_) => (
                format!("a certificate without a name, from {address}"),
                claimed,
            ),
            None => (claimed.unwrap_or_else(|| address.clone()), None),
        };
        Self {
            caller: address,
            by,
            claimed,
        }
    }
}

struct Work {
    member: Commands,
    events: CommandProgress,
}

impl Work {
    async fn answer(&self, caller: &CommandCaller, json: Bytes) {
        let outcome = match serde_json::from_slice::<Order>(&json) {
            Ok(Order { mut command, by }) => {
                let from = Origin::of(caller, by);
                if let OperatorCommand::Pause { request } = &mut command {
                    request.by = from.by.clone();
                }
                self.record(&from, command).await
            }
            Err(error) => Err(Refusal::refused(
                format!("this member does not know the command ({error})"),
                "run the same version everywhere",
            )),
        };
        let end = outcome.map_or_else(CommandEvent::Refused, CommandEvent::Result);
        self.events.end(&end).await;
    }

    /// Writes an audit line for a command that changes state, and executes it.
    async fn record(
        &self,
        from: &Origin,
        command: OperatorCommand,
    ) -> Result<CommandResult, Refusal> {
        let (caller, by, claimed) = (&from.caller, &from.by, &from.claimed);
        let audited = command.changes_something();
        let what = command.to_string();
        if audited {
            tracing::info!(target: "audit", caller, by, claimed, "an operator orders {what}: {command:?}");
        }
        let outcome = self.carry_out(by, command).await;
        match &outcome {
            Ok(result) if audited => {
                tracing::info!(target: "audit", caller, "done: {what}: {result:?}");
            }
            Err(refusal) if audited => {
                tracing::warn!(target: "audit", caller, "not done: {what}: {}", refusal.what);
            }
            _ => {}
        }
        outcome
    }

    async fn carry_out(
        &self,
        by: &str,
        command: OperatorCommand,
    ) -> Result<CommandResult, Refusal> {
        let state = &self.member.state;
        let member = || self.ring().map(|ring| ring.member);
        Ok(match command {
            OperatorCommand::Bootstrap { origin } => {
                CommandResult::Bootstrapped(mysqld_orders::bootstrap(state, &origin).await?)
            }
            OperatorCommand::Mysqld { order } => {
                let answer = OrderedMysqld::of(state)?.carry_out(&order).await?;
                CommandResult::Mysqld(Box::new(answer))
            }
            OperatorCommand::Promote { to, force } => self.promote(to, force, by).await?,
            OperatorCommand::ScheduleSwitchover { to, at } => {
                let by = by.to_owned();
                let switchover = ScheduledSwitchover { to, at, by };
                let entry = member()?.schedule_switchover(&switchover).await?;
                CommandResult::Scheduled { switchover, entry }
            }
            OperatorCommand::CancelSwitchover => {
                let (switchover, entry) = member()?.cancel_switchover(by).await?;
                CommandResult::Unscheduled { switchover, entry }
            }
            OperatorCommand::MockElection { to } => {
                CommandResult::MockElection(member()?.mock_election(to).await?)
            }
            OperatorCommand::AddMember { member: id, record } => {
                CommandResult::Added(self.add(&member()?, id, record, by).await?)
            }
            OperatorCommand::UpdateMember {
                member: id,
                change,
                dry_run,
            } => {
                let updated = member()?.update_member(id, &change, dry_run, by).await?;
                CommandResult::MemberUpdated(Box::new(updated))
            }
            OperatorCommand::SetRules { change, dry_run } => {
                let set = member()?.set_rules(&change, dry_run, by).await?;
                CommandResult::RulesSet(Box::new(set))
            }
            OperatorCommand::RemoveMember { member: id } => {
                CommandResult::Removed(member()?.remove_member(id, by).await?)
            }
            OperatorCommand::Pause { request } => {
                let (paused, entry) = member()?.pause(&request).await?;
                CommandResult::Paused { paused, entry }
            }
            OperatorCommand::FlushLog => self.flush(&self.ring()?).await?,
            OperatorCommand::Resume => {
                let (paused, entry) = member()?.resume(by).await?;
                CommandResult::Resumed { paused, entry }
            }
            OperatorCommand::History => CommandResult::History(whole_history(state, &member()?)),
            OperatorCommand::AcknowledgeExposure => {
                acknowledge_exposure(state, &member()?, by).await?;
                CommandResult::ExposureAcknowledged
            }
            OperatorCommand::Evidence => {
                CommandResult::Evidence(Box::new(member()?.evidence().await))
            }
            OperatorCommand::RepairQuorum {
                plan,
                accepted_loss,
            } => {
                let (ring, now) = (member()?, SystemTime::now());
                let repaired = ring.repair_quorum(&plan, accepted_loss, now, by).await?;
                CommandResult::Repaired(repaired)
            }
            OperatorCommand::PurgeLog { request, dry_run } => CommandResult::Purged(
                purge_on_order(&self.ring()?, &request, state, dry_run).await?,
            ),
            OperatorCommand::Provision {
                donor,
                dry_run,
                force,
            } => self.provision(donor, dry_run, force, by).await?,
            OperatorCommand::Reload => self.reload(false).await?,
            OperatorCommand::DryRun { of } => self.dry_run(*of).await?,
            OperatorCommand::RestartMysqld { force } => {
                let management = OrderedMysqld::of(state)?.management()?;
                management.restart(force).await?;
                CommandResult::MysqldRestarted
            }
            OperatorCommand::ReplaceStatement { gtid, statement } => {
                let follows = self.provisioner()?.replace(&gtid, &statement).await?;
                CommandResult::StatementReplaced { follows }
            }
            OperatorCommand::OfferClone { recipient } => {
                CommandResult::Offered(mysqld_orders::offer(state, recipient).await?)
            }
            OperatorCommand::WithdrawClone { account } => {
                provision::withdraw(mysqld_orders::account(state)?, &account).await?;
                CommandResult::Withdrawn
            }
        })
    }

    async fn promote(&self, to: MemberId, force: bool, by: &str) -> Result<CommandResult, Refusal> {
        let member = self.ring()?.member;
        self.may_be_promoted(&member, to, force).await?;
        let (progress, mut seen) = watch::channel(PromotionProgress::default());
        let promoting = member.promote(to, progress);
        tokio::pin!(promoting);
        let mut told = PhasesTold::default();
        let outcome = loop {
            tokio::select! {
                outcome = &mut promoting => break outcome,
                Ok(()) = seen.changed() => {
                    told.tell(&seen.borrow_and_update().clone(), &self.events);
                }
            }
        };
        told.tell(&seen.borrow().clone(), &self.events);
        let promoted = outcome?;
        note_promotion(&member, &promoted, by, String::new());
        Ok(CommandResult::Promoted(promoted))
    }

    async fn may_be_promoted(
        &self,
        member: &Member,
        to: MemberId,
        force: bool,
    ) -> Result<(), Refusal> {
        // Only the leader checks whether the target is fit, because the target may be the leader itself.
        if member.leadership_now().leading_term().is_none() {
            return Err(Refusal::not_leader(member.status().ring_view.leader));
        }
        // While failover is paused, a leader that is not the pinned primary can be made the primary itself. Any other leader is the primary
        // already, and the promotion reports that.
        let pause = self.member.state.view().pause;
        if force || to == member.id() && pause.is_none_or(|pause| pause.primary == to) {
            return Ok(());
        }
        // If the target does not answer, or there is another obstacle, the promotion itself reports that.
        let said = member.database_state(to).await;
        let Some(why) = said.and_then(|state| state.unfit) else {
            return Ok(());
        };
        let named = member.named(to);
        let name = named.map_or_else(|| to.to_string(), |named| named.name);
        Err(Refusal::refused(
            format!("the mysqld beside `{name}` could not be the primary soon: {why}"),
            "nothing was changed; wait until it could (`witness status`), or add --force",
        ))
    }

    fn ring(&self) -> Result<RingHandle, Refusal> {
        let parts = self.member.state.parts();
        parts.map(|parts| parts.ring.clone()).ok_or_else(|| {
            Refusal::new(
                RefusalKind::NoQuorum,
                "this member does not take part in its ring yet",
                "wait until it has opened its log, or add it with `witness members add`",
            )
        })
    }

    /// Returns the refusal that the command itself would return before it changes anything.
    async fn dry_run(&self, command: OperatorCommand) -> Result<CommandResult, Refusal> {
        match command {
            OperatorCommand::Promote { to, force } => {
                let member = self.ring()?.member;
                self.may_be_promoted(&member, to, force).await?;
                let election = member.mock_election(to).await?;
                if !election.is_won() {
                    return Err(PromotionRefusal::MockElectionLost(Box::new(election)).into());
                }
            }
            OperatorCommand::AddMember { member: id, record } => {
                let member = self.ring()?.member;
                self.checked_newcomer(&member, id, &record).await?;
            }
            OperatorCommand::RemoveMember { member: id } => {
                self.ring()?.member.check_removal(id)?;
            }
            OperatorCommand::Reload => return self.reload(true).await,
            other => {
                return Err(Refusal::refused(
                    format!("there is no dry run of {other}"),
                    "nothing was changed",
                ));
            }
        }
        Ok(CommandResult::WouldBeDone)
    }

    async fn reload(&self, dry_run: bool) -> Result<CommandResult, Refusal> {
        let Some(reload) = self.member.reload.get().cloned() else {
            return Err(Refusal::refused(
                "this member has no configuration that could be read again",
                "it is part of another program than `witness run`",
            ));
        };
        let reloaded = tokio::task::spawn_blocking(move || reload.reload(dry_run)).await;
        let reloaded = reloaded.unwrap_or_else(|error| Err(unknown(&error.to_string())));
        reloaded.map(CommandResult::Reloaded)
    }

    async fn flush(&self, ring: &RingHandle) -> Result<CommandResult, Refusal> {
        if ring.member.leadership_now().leading_term().is_none() {
            return Err(Refusal::not_leader(ring.member.status().ring_view.leader));
        }
        let rotated = ring.rotate().await;
        let rotated = rotated.map_err(|error| {
            let kind = match &error {
                RotateError::NotServing => RefusalKind::NoQuorum,
                RotateError::Ended(_) => RefusalKind::Unknown,
                RotateError::Propose(_) | RotateError::NotHere { .. } => RefusalKind::Failed,
            };
            Refusal::new(kind, error.to_string(), "check with `witness status`")
        })?;
        Ok(CommandResult::Flushed {
            entry: rotated.entry,
            file: rotated.file.name(),
        })
    }

    fn provisioner(&self) -> Result<Arc<Provisioner>, Refusal> {
        let management = self.member.state.management();
        let provisioner = management.and_then(|management| management.provisioner());
        provisioner.ok_or_else(mysqld_orders::no_mysqld)
    }

    async fn provision(
        &self,
        donor: MemberId,
        dry_run: bool,
        force: bool,
        by: &str,
    ) -> Result<CommandResult, Refusal> {
        let parts = self.member.state.parts();
        let provisioner = self.provisioner()?;
        let member = parts.as_ref().map(|parts| &parts.ring.member);
        let others = member.map(|member| member.others()).unwrap_or_default();
        let named =
            member.and_then(|member| Some((member.named(member.id())?, member.named(donor)?)));
        let state = &self.member.state;
        let own = state.view().mysql;
        let members = OtherMembers {
            state: state.clone(),
            transport: self.member.transport,
        };
        let donor = DonorMember::find(others.get(&donor), donor, own.as_ref(), &members).await?;
        if dry_run {
            return Ok(CommandResult::ProvisionPlan(
                provisioner.plan(&donor).await?,
            ));
        }
        let provisioned = provisioner.provision(&donor, force, &self.events).await?;
        if let (Some(ring_member), Some((member, donor))) = (member, named) {
            ring_member.note(by, HistoryEvent::Provisioned { member, donor });
        }
        Ok(CommandResult::Provisioned(provisioned))
    }

    /// Checks whether a new member may be added, and returns the formats of its program. If it does not answer, this passes: the next step,
    /// which assigns the member to the ring, then fails with the reason.
    async fn checked_newcomer(
        &self,
        member: &Member,
        id: MemberId,
        record: &MemberRecord,
    ) -> Result<Option<FormatRange>, Refusal> {
        let ring_view = member.status().ring_view;
        if !ring_view.leads {
            return Err(Refusal::not_leader(ring_view.leader));
        }
        member.check_new_member(id, record)?;
        let identified = async { self.client_of(record)?.identify().await };
        let speaks = identified.await.ok().map(|newcomer| newcomer.speaks);
        if let Some(speaks) = speaks {
            member.check_new_member_speaks(speaks)?;
        }
        Ok(speaks)
    }

    /// Returns a client for a new member.
    fn client_of(&self, record: &MemberRecord) -> Result<AdminClient, AdminError> {
        let tls = self.member.state.credentials.tls.as_ref();
        AdminClient::new(&record.address, tls, self.member.transport)
    }

    /// Assigns a new member to the ring, then adds it to the membership. Everything is checked before the first step.
    async fn add(
        &self,
        member: &Member,
        id: MemberId,
        record: MemberRecord,
        by: &str,
    ) -> Result<OpId, Refusal> {
        let speaks = self.checked_newcomer(member, id, &record).await?;
        let party = Party {
            member: id,
            incarnation: record.incarnation,
        };
        let (ring, origin) = (member.status().ring, self.member.state.book.origin());
        let adopting = async { self.client_of(&record)?.adopt(ring, party, &origin).await };
        let adopted = self.events.phase("adopt", adopting).await;
        adopted.map_err(|error: AdminError| {
            Refusal::refused(
                format!("the leader cannot give the new member its ring: {error}"),
                "nothing was changed; start the new member with an empty `data_dir`, at an address that the leader reaches too",
            )
        })?;
        let adding = member.add_member(id, record, speaks, by);
        Ok(self.events.phase("add", adding).await?)
    }
}

/// The phases of a promotion that were reported so far.
#[derive(Default)]
struct PhasesTold {
    done: usize,
    under_way: Option<PromotionPhase>,
}

impl PhasesTold {
    fn tell(&mut self, progress: &PromotionProgress, events: &CommandProgress) {
        for (phase, took) in progress.done.iter().skip(self.done) {
            events.tell(&done_event(phase.name(), *took));
        }
        self.done = progress.done.len();
        if let Some(phase) = progress.under_way
            && self.under_way.replace(phase) != Some(phase)
        {
            let phase = phase.name().to_owned();
            events.tell(&CommandEvent::Began { phase });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_recorded_by_the_certificate_and_not_by_the_name_that_is_claimed() {
        let address = Some("10.0.0.9:4711".parse().unwrap());
        let recorded = |certificate_name: Option<&str>, claimed: &str| {
            let caller = CommandCaller {
                address,
                certificate_name: certificate_name.map(str::to_owned),
            };
            let Origin { by, claimed, .. } = Origin::of(&caller, claimed.to_owned());
            (by, claimed)
        };
        let of = |by: &str, claimed: Option<&str>| (by.to_owned(), claimed.map(str::to_owned));
        assert_eq!(recorded(Some("ana"), "root"), of("ana", Some("root")));
        assert_eq!(recorded(Some("ana"), "ana"), of("ana", None));
        assert_eq!(recorded(Some("ana"), ""), of("ana", None));
        let nameless = "a certificate without a name, from 10.0.0.9:4711";
        assert_eq!(recorded(Some(""), "ana"), of(nameless, Some("ana")));
        // Without TLS, no name is proven, so the claimed name or the address is recorded.
        assert_eq!(recorded(None, "root"), of("root", None));
        assert_eq!(recorded(None, ""), of("10.0.0.9:4711", None));
    }
}
