//! Replaces the data of the member's mysqld by a copy of another member's data, one attempt at a time. If an attempt only waits for the
//! restart of mysqld, it is completed automatically. If only an operator can continue, the message of the role says what to do.

mod copied_mysqld;
mod decisions;
mod donor_member;
mod replaced_statement;

pub(crate) use copied_mysqld::CopiedMysqld;
#[cfg(feature = "simulation")]
pub(crate) use decisions::fit;
pub(crate) use decisions::hold_at_start;
pub use donor_member::Donor;
pub(crate) use donor_member::DonorMember;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use mysqld_controller::Ring;
use mysqld_controller::status::{Hold, RoleState, WriteFenceStatus};
use mysqld_controller::watch::{Protection, WatchReport};
use mysqld_server::provision::{
    BeforeALook, CloneAccount, CloneOffer, CopyState, NoteStep, ProvisionError, ProvisionNote,
    copy, executed, finish, log_place, look, make_ready, offer, prepared_transactions,
    roll_back_prepared, schema_sizes,
};
use raft_types::MemberId;
use spilling_bytes::long_work;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::copied_mysqld::{BEGIN, LOOK, Stop};
use self::decisions::{
    AGAIN, Kept, Next, accounts_fit, files_with, interrupted, is_closed, keep, next, not_all,
    unreadable, wait_words,
};
use crate::protocol::{
    CommandProgress, ProvisionPlan, Provisioned, Refusal, RefusalKind, SchemaSize,
};
use crate::ring_handle::RingHandle;

/// How long the ring may take to report its committed set. Also how long a status check may delay another operation.
const SOON: Duration = Duration::from_secs(10);

pub(crate) struct Provisioner {
    pub(crate) own: MemberId,
    pub(crate) member_dir: PathBuf,
    pub(crate) mysqld: CopiedMysqld,
    pub(crate) ring: Arc<RingHandle>,
    pub(crate) write_fence: watch::Receiver<WriteFenceStatus>,
    pub(crate) reports: watch::Receiver<WatchReport>,
    /// The hold that the role obeys.
    pub(crate) hold: watch::Sender<Option<Hold>>,
    /// Held while data is replaced, or while an interrupted replacement is checked.
    pub(crate) busy: Mutex<()>,
    /// Held for a whole command. A second command must not wait for the first one, because it would copy again.
    pub(crate) command: Mutex<()>,
    /// When the last copy was completed. Earlier observations belong to a server without its new data.
    pub(crate) copied_at: watch::Sender<Option<Instant>>,
}

impl Provisioner {
    /// Completes attempts that only wait for mysqld. If the GTIDs of a server were reset, disables its role permanently.
    pub(crate) async fn look_after(self: Arc<Self>) {
        loop {
            if let Ok(_alone) = self.busy.try_lock()
                && (self.hold.borrow().is_some() || self.was_reset())
            {
                let hold = match self.go_on().await {
                    Ok(hold) => hold,
                    Err(error) => Some(Hold::Interrupted {
                        cause: format!("{}; {AGAIN}", error.what),
                    }),
                };
                self.set(hold);
            }
            tokio::time::sleep(LOOK * 4).await;
        }
    }

    /// Makes one check, and returns the role's new hold.
    async fn go_on(&self) -> Result<Option<Hold>, Refusal> {
        let note = match ProvisionNote::load(&self.member_dir) {
            Ok(Some(note)) => note,
            Ok(None) => return self.kept_off_if_reset(),
            Err(error) => return Ok(Some(unreadable(&error))),
        };
        let copy = match &note.step {
            NoteStep::Copying { account } => Some(look(&self.mysqld.connect, account).await),
            _ => None,
        };
        let donor = &note.donor;
        match next(&note, copy, self.mysqld.supervisor.is_some()) {
            Next::Hold(hold) => return Ok(Some(hold)),
            Next::Complete => self.complete(donor).await?,
            Next::Discard => {
                ProvisionNote::remove(&self.member_dir).map_err(on_disk)?;
                tracing::warn!(%donor, "mysqld was about to get a copy of another one's data, and is used as it is: nothing was removed yet");
            }
        }
        Ok(None)
    }

    /// Returns true if the running server has lost executed GTIDs. During a copy, this is expected and ignored.
    fn was_reset(&self) -> bool {
        let report = self.reports.borrow();
        let answers = !matches!(report.protection, Protection::Unknown { .. });
        let server = report.server.as_ref().filter(|_| answers);
        let copied_at = *self.copied_at.borrow();
        server.is_some_and(|server| {
            !server.lost.is_empty() && copied_at.is_none_or(|copied| server.seen_at > copied)
        })
    }

    /// Disables the role of a server after a reset of its GTIDs. The reason is stored durably, because after the next start, the server's
    /// earlier GTIDs are no longer known.
    fn kept_off_if_reset(&self) -> Result<Option<Hold>, Refusal> {
        if !self.was_reset() {
            return Ok(None);
        }
        let server = self.reports.borrow().server.clone();
        let lost = server.map_or(0, |server| server.lost.count());
        let why = format!(
            "mysqld had executed {lost} transactions that its gtid_executed no longer names, as after RESET BINARY LOGS AND GTIDS: \
             nothing says what is in its data. Give it a copy of another member's: `witness reprovision --from`"
        );
        self.note("", NoteStep::Needed { why: why.clone() })?;
        Ok(Some(Hold::Interrupted { cause: why }))
    }

    /// Returns what a provisioning would remove.
    ///
    /// # Errors
    /// If the provisioning would be refused.
    pub(crate) async fn plan(&self, donor: &dyn Donor) -> Result<ProvisionPlan, Refusal> {
        self.may_begin()?;
        let mut plan = ProvisionPlan {
            donor: donor.name().to_owned(),
            ..ProvisionPlan::default()
        };
        match executed(&self.mysqld.connect).await {
            Ok(executed) => {
                let errant = executed.difference(&self.committed().await?);
                plan.errant = errant.to_string().replace('\n', "");
                plan.errant_transactions = u64::try_from(errant.count()).unwrap_or(u64::MAX);
                let place = log_place(&self.mysqld.connect, BeforeALook::Nothing).await?;
                let lost = move || not_all(files_with(place.as_ref(), &executed, &errant)).1;
                let lost = long_work::on_disk(lost).await;
                plan.needs_force = lost.map(|why| why.to_string());
                match schema_sizes(&self.mysqld.connect).await {
                    Ok(schemas) => {
                        let sized = |(name, bytes)| SchemaSize { name, bytes };
                        plan.schemas = schemas.into_iter().map(sized).collect();
                    }
                    Err(error) => plan.sizes_unknown = Some(error.to_string()),
                }
            }
            Err(error) => {
                plan.unknown = Some(self.mysqld.why_down().unwrap_or_else(|| error.to_string()))
            }
        }
        Ok(plan)
    }

    /// Replaces the data. If it is repeated after an interruption, it continues.
    ///
    /// # Errors
    /// If it is refused or fails. The message says whether data was removed.
    pub(crate) async fn provision(
        &self,
        donor: &dyn Donor,
        force: bool,
        events: &CommandProgress,
    ) -> Result<Provisioned, Refusal> {
        let began = Instant::now();
        let already = || {
            Refusal::refused(
                "the data of this member's mysqld are being replaced already",
                "check with `witness status` how far it is",
            )
        };
        let _only = self.command.try_lock().map_err(|_| already())?;
        let alone = tokio::time::timeout(SOON, self.busy.lock()).await;
        let _alone = alone.map_err(|_| already())?;
        let note = ProvisionNote::load(&self.member_dir).map_err(on_disk)?;
        let mut kept = Kept::default();
        let mut donor_name = donor.name().to_owned();
        let mut touched = matches!(&note, Some(note) if note.step != NoteStep::Starting);
        let (account, copying) = match note {
            Some(ProvisionNote {
                donor: first,
                step: NoteStep::Copying { account },
            }) if !matches!(
                look(&self.mysqld.connect, &account).await,
                CopyState::Not { .. } | CopyState::Down(_)
            ) =>
            {
                // The copy continues, or mysqld is about to restart.
                donor_name = first;
                (account, None)
            }
            _ => {
                let begun = self.begin(donor, &mut touched, force, events).await;
                let (now_kept, account, copying) =
                    begun.map_err(|refusal| self.not_begun(&donor_name, touched, refusal))?;
                kept = now_kept;
                (account, Some(copying))
            }
        };
        let copied = self.mysqld.copied(&account, copying, events);
        let copied = events.phase("copy", copied).await;
        copied.map_err(|stop| self.stopped(&donor_name, touched, stop))?;
        self.set(Some(Hold::Working {
            what: wait_words(&donor_name, self.mysqld.supervisor.is_some()),
        }));
        let phase = match self.mysqld.supervisor {
            Some(_) => "restart",
            None => "restart (start mysqld now, if nothing else does)",
        };
        let restarted = events.phase(phase, self.mysqld.restarted(&account)).await;
        restarted.map_err(|stop| self.stopped(&donor_name, true, stop))?;
        self.complete(&donor_name).await?;
        self.set(None);
        if donor_name == donor.name()
            && let Err(refusal) = donor.withdraw(&account).await
        {
            tracing::warn!(%account, "the account of the copy stays at the donor until its next copy: {}", refusal.what);
        }
        let role = events.phase("follow", self.mysqld.followed()).await?;
        Ok(Provisioned {
            donor: donor_name,
            kept: kept.files,
            not_kept: kept.not_kept,
            follows: role == RoleState::Following,
            seconds: began.elapsed().as_secs_f64(),
        })
    }

    /// Creates an account with which another member copies this mysqld. It is refused while this server's own data is being replaced: the
    /// account would be evidence for transactions that the server has lost. It is also refused if this mysqld has errant transactions,
    /// because its copy could not follow.
    ///
    /// # Errors
    /// If this server's data is being replaced, it has errant transactions, or mysqld refuses.
    pub(crate) async fn offer(&self, recipient: MemberId) -> Result<CloneOffer, Refusal> {
        // If another request for an account is being processed, it ends soon.
        let alone = tokio::time::timeout(SOON, self.busy.lock()).await;
        if alone.is_err() || self.hold.borrow().is_some() {
            return Err(Refusal::refused(
                "the data of this member's mysqld are being replaced",
                "name another donor with --from",
            ));
        }
        let executed = executed(&self.mysqld.connect).await?;
        let errant = executed.difference(&self.committed().await?);
        if !errant.is_empty() {
            return Err(Refusal::refused(
                format!(
                    "the mysqld of this member has transactions that the ring has not committed (errant), and so would its copy: {}",
                    errant.to_string().replace('\n', "")
                ),
                "name another donor with --from",
            ));
        }
        Ok(offer(&self.mysqld.connect, recipient).await?)
    }

    /// Checks that a copy may replace the data of the member's mysqld.
    ///
    /// # Errors
    /// If it must not, with advice.
    fn may_begin(&self) -> Result<(), Refusal> {
        if self.mysqld.role.is_none() {
            return Err(Refusal::refused(
                "nothing is applied to this member's mysqld (`mysql.apply = \"off\"`), so that a copy would not follow the ring",
                "set mysql.apply = \"rows\", and start the member again",
            ));
        }
        if self.ring.serving_term().is_some() {
            return Err(Refusal::refused(
                "this member leads, and its mysqld is or becomes the primary",
                "nothing was changed; transfer the leadership first with `witness switchover`",
            ));
        }
        Ok(())
    }

    /// Executes all steps before the first byte is removed, and the statement that removes it. `touched` is set to true if this attempt, or
    /// an earlier one, has removed something from the server.
    async fn begin(
        &self,
        donor: &dyn Donor,
        touched: &mut bool,
        force: bool,
        events: &CommandProgress,
    ) -> Result<(Kept, CloneAccount, JoinHandle<Result<(), ProvisionError>>), Refusal> {
        self.may_begin()?;
        let prepared = self.take_hold(donor.name(), *touched);
        events.phase("prepare", prepared).await?;
        let kept = events.phase("keep", self.keep_errant(force)).await?;
        let offer = events.phase("offer", donor.offer(self.own)).await?;
        let (connect, name) = (&self.mysqld.connect, donor.name());
        accounts_fit(&offer, name, &connect.user, self.mysqld.applies_rows)?;
        let host = donor.host().to_owned();
        make_ready(connect, &host, &offer).await?;
        let prepared = prepared_transactions(connect).await?;
        if !prepared.is_empty() {
            // The transactions of clients belong to the ring, which may still commit them.
            let why = format!(
                "prepared XA transactions were rolled back in mysqld for a copy of the data of `{name}`, and it may lack them; {AGAIN}"
            );
            self.note(name, NoteStep::Needed { why })?;
            *touched = true;
            roll_back_prepared(connect, &prepared).await?;
        }
        let account = offer.account.clone();
        self.note(name, NoteStep::Copying { account })?;
        let (connect, account) = (connect.clone(), offer.account.clone());
        let copying = tokio::spawn(async move { copy(&connect, &host, &offer).await });
        Ok((kept, account, copying))
    }

    /// Makes the role stop acting on a running server.
    async fn take_hold(&self, donor: &str, touched: bool) -> Result<(), Refusal> {
        let what = format!("mysqld gets a copy of the data of `{donor}`");
        let hold = Hold::Working { what };
        if executed(&self.mysqld.connect).await.is_ok() {
            is_closed(&self.write_fence.borrow().state)?;
        } else {
            self.set(Some(hold.clone()));
            if !touched {
                self.note(donor, NoteStep::Starting)?;
            }
            self.mysqld.answers().await?;
        }
        self.hold_the_role(hold).await
    }

    /// Stops the applier until the hold is removed.
    async fn hold_the_role(&self, hold: Hold) -> Result<(), Refusal> {
        self.set(Some(hold.clone()));
        let Some(mut role) = self.mysqld.role.clone() else {
            return Ok(());
        };
        let held = role.wait_for(|status| status.state == RoleState::from(hold.clone()));
        match tokio::time::timeout(BEGIN, held).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Refusal::failed(
                "the applier did not end in time",
                "look into the member's log, and try again",
            )),
        }
    }

    async fn committed(&self) -> Result<GtidSet, Refusal> {
        match tokio::time::timeout(SOON, self.ring.settled()).await {
            Ok(Ok(committed)) => Ok(committed),
            Ok(Err(error)) => Err(unsettled(&error.to_string())),
            Err(_) => Err(unsettled("no member leads with a quorum")),
        }
    }

    /// Keeps all binlog files with transactions that the ring lacks. In a forced command, keeps as many as possible.
    async fn keep_errant(&self, force: bool) -> Result<Kept, Refusal> {
        let committed = self.committed().await?;
        let place = log_place(&self.mysqld.connect, BeforeALook::BeginAFile);
        let place = place.await?;
        let executed = executed(&self.mysqld.connect).await?;
        let errant = executed.difference(&committed);
        let member_dir = self.member_dir.clone();
        let kept = long_work::on_disk(move || {
            keep(
                files_with(place.as_ref(), &executed, &errant),
                force,
                |file| file.keep(&member_dir),
            )
        });
        let kept = kept.await.map_err(|why| {
            Refusal::refused(
                why.to_string(),
                "nothing was changed; fix that, for example by a dump of the schemas that they changed, or add --force to lose them",
            )
        })?;
        if let Some(why) = &kept.not_kept {
            tracing::warn!("not all of what is lost is kept: {why}");
        }
        Ok(kept)
    }

    /// Returns the server to its role after the copy.
    async fn complete(&self, donor: &str) -> Result<(), Refusal> {
        self.note(donor, NoteStep::Copied)?;
        finish(&self.mysqld.connect).await?;
        ProvisionNote::remove(&self.member_dir).map_err(on_disk)?;
        self.copied_at.send_replace(Some(Instant::now()));
        tracing::info!("mysqld has a copy of the data of `{donor}`");
        Ok(())
    }

    /// Ends an attempt before its copy has begun.
    fn not_begun(&self, donor: &str, touched: bool, refusal: Refusal) -> Refusal {
        if touched {
            self.set(Some(interrupted(donor, Some(&refusal.what))));
            return refusal;
        }
        match ProvisionNote::remove(&self.member_dir) {
            Ok(()) => self.set(None),
            Err(error) => self.set(Some(unreadable(&error))),
        }
        refusal
    }

    /// Ends an attempt before its copy is complete.
    fn stopped(&self, donor: &str, touched: bool, stop: Stop) -> Refusal {
        let Stop { begun, why } = stop;
        if !begun {
            let refusal = Refusal::failed(
                format!("the data of `{donor}` could not be copied: {why}"),
                "fix that and try again; nothing was removed by this attempt",
            );
            return self.not_begun(donor, touched, refusal);
        }
        self.set(Some(interrupted(donor, Some(&why))));
        Refusal::failed(
            format!("the copy of the data of `{donor}` was interrupted: {why}"),
            "mysqld may have lost all of its data and is not used until the command is run again",
        )
    }

    fn note(&self, donor: &str, step: NoteStep) -> Result<(), Refusal> {
        let note = ProvisionNote {
            donor: donor.to_owned(),
            step,
        };
        note.store(&self.member_dir).map_err(on_disk)
    }

    fn set(&self, hold: Option<Hold>) {
        self.hold.send_if_modified(|now| {
            let changed = *now != hold;
            if let (true, Some(Hold::Interrupted { cause })) = (changed, &hold) {
                tracing::warn!("mysqld is not used: {cause}");
            }
            *now = hold;
            changed
        });
    }
}

fn unsettled(why: &str) -> Refusal {
    Refusal::new(
        RefusalKind::NoQuorum,
        format!("the ring does not say which transactions are committed: {why}"),
        "check with `witness status` what it waits for, and try again",
    )
}

fn on_disk(error: io::Error) -> Refusal {
    let note = "the note of the provisioning in the member's data directory";
    Refusal::failed(format!("{note}: {error}"), "fix that and try again")
}
