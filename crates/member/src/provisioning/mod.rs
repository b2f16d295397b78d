//! Provisions the member's mysqld from another member's, one attempt at a time, and completes an attempt that only waits for mysqld's
//! restart. The role's message names any step that only an operator can continue.

mod copied_mysqld;
mod donor_member;
mod replaced_statement;

pub(crate) use copied_mysqld::CopiedMysqld;
pub use donor_member::Donor;
pub(crate) use donor_member::DonorMember;
#[cfg(feature = "simulation")]
pub(crate) use donor_member::fit;

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use mysqld_controller::Ring;
use mysqld_controller::status::{Hold, RoleState, WriteFenceState, WriteFenceStatus};
use mysqld_controller::watch::{Protection, WatchReport};
use mysqld_server::BinlogPlace;
use mysqld_server::provision::{
    BeforeALook, CloneAccount, CloneOffer, CopyState, NoteStep, ProvisionError, ProvisionNote,
    copy, executed, finish, log_place, look, make_ready, offer, prepared_transactions,
    roll_back_prepared, schema_sizes,
};
use mysqld_server::tail_trim::{ErrantFile, ErrantFiles, TrimmedTail, errant_files};
use raft_types::MemberId;
use spilling_bytes::long_work;
use thiserror::Error;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::copied_mysqld::{BEGIN, LOOK, Stop};
use crate::protocol::{
    CommandProgress, KeptBinlog, ProvisionPlan, Provisioned, Refusal, RefusalKind, SchemaSize,
};
use crate::ring_handle::RingHandle;

/// How long the ring may take to report its committed set, and a status check may block another operation.
const SOON: Duration = Duration::from_secs(10);
const AGAIN: &str = "run the command again: `witness reprovision --from`";

pub(crate) struct Provisioner {
    pub(crate) own: MemberId,
    pub(crate) member_dir: PathBuf,
    pub(crate) mysqld: CopiedMysqld,
    pub(crate) ring: Arc<RingHandle>,
    pub(crate) write_fence: watch::Receiver<WriteFenceStatus>,
    pub(crate) reports: watch::Receiver<WatchReport>,
    /// The role obeys it.
    pub(crate) hold: watch::Sender<Option<Hold>>,
    /// Held while data are replaced, or while an interrupted replacement is checked.
    pub(crate) busy: Mutex<()>,
    /// Held for a whole command. A queued second command would copy again.
    pub(crate) command: Mutex<()>,
    /// Time of the last complete copy: earlier observations are of a server whose data were being replaced.
    pub(crate) copied_at: watch::Sender<Option<Instant>>,
}

/// Hold of the role at the member's start.
pub(crate) fn hold_at_start(member_dir: &std::path::Path) -> Option<Hold> {
    match ProvisionNote::load(member_dir) {
        Ok(None) => None,
        Ok(Some(ProvisionNote {
            step: NoteStep::Needed { why },
            ..
        })) => Some(Hold::Interrupted { cause: why }),
        Ok(Some(note)) => Some(Hold::Working {
            what: format!(
                "the progress of the copy of `{}`'s data has to be checked",
                note.donor
            ),
        }),
        Err(error) => Some(unreadable(&error)),
    }
}

fn unreadable(error: &io::Error) -> Hold {
    Hold::Interrupted {
        cause: format!("whether mysqld's data are being replaced cannot be read: {error}"),
    }
}

impl Provisioner {
    /// Completes attempts that only wait for mysqld, and permanently disables the role on a server whose GTIDs were reset.
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

    /// One check; returns the role's new hold.
    async fn go_on(&self) -> Result<Option<Hold>, Refusal> {
        let note = match ProvisionNote::load(&self.member_dir) {
            Ok(Some(note)) => note,
            Ok(None) => return self.kept_off_if_reset(),
            Err(error) => return Ok(Some(unreadable(&error))),
        };
        let donor = &note.donor;
        let what = match &note.step {
            NoteStep::Needed { why } => return Ok(Some(Hold::Interrupted { cause: why.clone() })),
            // Nothing was removed, as in an attempt that fails earlier, and the role compares GTIDs. The donor or the client of the command
            // may never return.
            NoteStep::Starting => {
                ProvisionNote::remove(&self.member_dir).map_err(|error| on_disk(&error))?;
                tracing::warn!(%donor, "mysqld was about to get a copy of another one's data, and is used as it is: nothing was removed yet");
                return Ok(None);
            }
            NoteStep::Copied => {
                self.complete(donor).await?;
                return Ok(None);
            }
            NoteStep::Copying { account } => match look(&self.mysqld.connect, account).await {
                CopyState::There => {
                    self.complete(donor).await?;
                    return Ok(None);
                }
                CopyState::UnderWay { .. } => format!("the data of `{donor}` are being copied"),
                CopyState::Ending | CopyState::Down(_) => self.wait_words(donor),
                CopyState::Not { error, .. } => {
                    return Ok(Some(interrupted(donor, error.as_deref())));
                }
            },
        };
        Ok(Some(Hold::Working { what }))
    }

    /// True if the running server has lost executed GTIDs. During a copy it does.
    fn was_reset(&self) -> bool {
        let report = self.reports.borrow();
        let answers = !matches!(report.protection, Protection::Unknown { .. });
        let server = report.server.as_ref().filter(|_| answers);
        let copied_at = *self.copied_at.borrow();
        server.is_some_and(|server| {
            !server.lost.is_empty() && copied_at.is_none_or(|copied| server.seen_at > copied)
        })
    }

    /// Durable, since the next start no longer has the server's earlier GTIDs.
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

    fn wait_words(&self, donor: &str) -> String {
        match self.mysqld.supervisor {
            Some(_) => format!("mysqld has to come back with its copy of the data of `{donor}`"),
            None => format!(
                "mysqld has to come back with its copy of the data of `{donor}`: start it, if nothing else does"
            ),
        }
    }

    /// What a provisioning would remove.
    ///
    /// # Errors
    /// When it would be refused.
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
                let place = log_place(&self.mysqld.connect, BeforeALook::Nothing).await;
                let place = place.map_err(at_server)?;
                plan.needs_force = long_work::on_disk(move || {
                    let files = files_with(place.as_ref(), &executed, &errant);
                    Ok::<_, Infallible>(not_all(files).1.map(|why| why.to_string()))
                })
                .await
                .unwrap_or_else(|never| match never {});
                match schema_sizes(&self.mysqld.connect).await {
                    Ok(schemas) => {
                        let schemas = schemas.into_iter();
                        plan.schemas = schemas
                            .map(|(name, bytes)| SchemaSize { name, bytes })
                            .collect();
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

    /// Replaces the data. Repeated after an interruption, it continues.
    ///
    /// # Errors
    /// When it is refused or fails; the message says whether data were removed.
    pub(crate) async fn provision(
        &self,
        donor: &dyn Donor,
        force: bool,
        events: &CommandProgress,
    ) -> Result<Provisioned, Refusal> {
        let began = Instant::now();
        let already = || {
            Refusal::new(
                RefusalKind::Refused,
                "the data of this member's mysqld are being replaced already",
                "check with `witness status` how far it is",
            )
        };
        let Ok(_only) = self.command.try_lock() else {
            return Err(already());
        };
        let Ok(_alone) = tokio::time::timeout(SOON, self.busy.lock()).await else {
            return Err(already());
        };
        let note = ProvisionNote::load(&self.member_dir).map_err(|error| on_disk(&error))?;
        let mut kept = Kept::default();
        let mut donor_name = donor.name().to_owned();
        let account = match note {
            Some(ProvisionNote {
                donor: first,
                step: NoteStep::Copying { account },
            }) if !matches!(
                look(&self.mysqld.connect, &account).await,
                CopyState::Not { .. } | CopyState::Down(_)
            ) =>
            {
                // It continues, or is about to restart.
                donor_name = first;
                let copied = events.phase("copy", self.mysqld.copied(&account, None, events));
                copied
                    .await
                    .map_err(|stop| self.stopped(&donor_name, true, stop))?;
                account
            }
            note => {
                let mut touched = matches!(&note, Some(note) if note.step != NoteStep::Starting);
                let begun = self.begin(donor, &mut touched, force, events).await;
                let (account, copying) = match begun {
                    Ok((now_kept, account, copying)) => {
                        kept = now_kept;
                        (account, copying)
                    }
                    Err(refusal) => {
                        return Err(self.not_begun(&donor_name, touched, refusal));
                    }
                };
                let copied =
                    events.phase("copy", self.mysqld.copied(&account, Some(copying), events));
                copied
                    .await
                    .map_err(|stop| self.stopped(&donor_name, touched, stop))?;
                account
            }
        };
        self.set(Some(Hold::Working {
            what: self.wait_words(&donor_name),
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

    /// Creates an account for a copy of this mysqld by another member, unless its own data are being replaced. The account would prove
    /// transactions that this server has lost. It also needs a mysqld without errant transactions: a copy with them could not follow.
    ///
    /// # Errors
    /// When its data are being replaced, it has errant transactions, or mysqld refuses.
    pub(crate) async fn offer(&self, recipient: MemberId) -> Result<CloneOffer, Refusal> {
        // A concurrent request for an account completes soon.
        let alone = tokio::time::timeout(SOON, self.busy.lock()).await;
        if alone.is_err() || self.hold.borrow().is_some() {
            return Err(Refusal::new(
                RefusalKind::Refused,
                "the data of this member's mysqld are being replaced",
                "name another donor with --from",
            ));
        }
        let executed = executed(&self.mysqld.connect).await.map_err(at_server)?;
        let errant = executed.difference(&self.committed().await?);
        if !errant.is_empty() {
            return Err(Refusal::new(
                RefusalKind::Refused,
                format!(
                    "the mysqld of this member has transactions that the ring has not committed (errant), and so would its copy: {}",
                    errant.to_string().replace('\n', "")
                ),
                "name another donor with --from",
            ));
        }
        offer(&self.mysqld.connect, recipient)
            .await
            .map_err(at_server)
    }

    fn may_begin(&self) -> Result<(), Refusal> {
        if self.mysqld.role.is_none() {
            return Err(Refusal::new(
                RefusalKind::Refused,
                "nothing is applied to this member's mysqld (`mysql.apply = \"off\"`), so that a copy would not follow the ring",
                "set mysql.apply = \"rows\", and start the member again",
            ));
        }
        if self.ring.serving_term().is_some() {
            return Err(Refusal::new(
                RefusalKind::Refused,
                "this member leads, and its mysqld is or becomes the primary",
                "nothing was changed; transfer the leadership first with `witness switchover`",
            ));
        }
        Ok(())
    }

    /// All steps before the first byte is removed, and the statement that removes it. `touched`: true if this attempt or an earlier one has
    /// removed something from the server.
    async fn begin(
        &self,
        donor: &dyn Donor,
        touched: &mut bool,
        force: bool,
        events: &CommandProgress,
    ) -> Result<(Kept, CloneAccount, JoinHandle<Result<(), ProvisionError>>), Refusal> {
        self.may_begin()?;
        let what = format!("mysqld gets a copy of the data of `{}`", donor.name());
        events
            .phase("prepare", self.take_hold(donor, *touched, &what))
            .await?;
        let kept = events.phase("keep", self.keep_errant(force)).await?;
        let offer = events.phase("offer", donor.offer(self.own)).await?;
        if offer.member_account != self.mysqld.connect.user {
            return Err(Refusal::new(
                RefusalKind::Refused,
                format!(
                    "the account of `{}` is `{}`, and `{}` here: after the copy, which brings its accounts, this member could not log in",
                    donor.name(),
                    offer.member_account,
                    self.mysqld.connect.user
                ),
                "give all members the same mysql.user and password",
            ));
        }
        let lacks = offer.lacks_for_rows();
        if self.mysqld.applies_rows && !lacks.is_empty() {
            return Err(Refusal::new(
                RefusalKind::Refused,
                format!(
                    "the account `{}` of `{}` lacks {}, which this member's applier needs: the copy brings that account, and would not \
                     follow",
                    offer.member_account,
                    donor.name(),
                    lacks.join(", ")
                ),
                format!(
                    "at the mysqld of `{}`: SET sql_log_bin = 0; GRANT ALL PRIVILEGES ON *.* TO the account WITH GRANT OPTION, with \
                     super_read_only off meanwhile; or name another donor with --from",
                    donor.name()
                ),
            ));
        }
        let host = donor.host().to_owned();
        make_ready(&self.mysqld.connect, &host, &offer)
            .await
            .map_err(at_server)?;
        let prepared = prepared_transactions(&self.mysqld.connect).await;
        let prepared = prepared.map_err(at_server)?;
        if !prepared.is_empty() {
            // Clients' transactions belong to the ring, and have yet to be committed.
            let why = format!(
                "prepared XA transactions were rolled back in mysqld for a copy of the data of `{}`, and it may lack them; {AGAIN}",
                donor.name()
            );
            self.note(donor.name(), NoteStep::Needed { why })?;
            *touched = true;
            let rolled_back = roll_back_prepared(&self.mysqld.connect, &prepared).await;
            rolled_back.map_err(at_server)?;
        }
        self.note(
            donor.name(),
            NoteStep::Copying {
                account: offer.account.clone(),
            },
        )?;
        let (connect, account) = (self.mysqld.connect.clone(), offer.account.clone());
        let copying = tokio::spawn(async move { copy(&connect, &host, &offer).await });
        Ok((kept, account, copying))
    }

    /// Makes the role release a running server.
    async fn take_hold(&self, donor: &dyn Donor, touched: bool, what: &str) -> Result<(), Refusal> {
        let down = executed(&self.mysqld.connect).await.is_err();
        let state = self.write_fence.borrow().state.clone();
        let may_be_open = matches!(
            state,
            WriteFenceState::Open | WriteFenceState::Opening | WriteFenceState::NotClosed { .. }
        );
        if !down && may_be_open {
            return Err(Refusal::new(
                RefusalKind::Refused,
                "clients can write to this member's mysqld, or commits wait in it",
                "check with `witness status`, and try again when it is closed",
            ));
        }
        let hold = Hold::Working {
            what: what.to_owned(),
        };
        self.set(Some(hold.clone()));
        if down {
            if !touched {
                self.note(donor.name(), NoteStep::Starting)?;
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
            _ => Err(Refusal::new(
                RefusalKind::Failed,
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

    /// Keeps all binlog files with transactions that the ring lacks; if forced, as many as possible.
    async fn keep_errant(&self, force: bool) -> Result<Kept, Refusal> {
        let committed = self.committed().await?;
        let place = log_place(&self.mysqld.connect, BeforeALook::BeginAFile);
        let place = place.await.map_err(at_server)?;
        let executed = executed(&self.mysqld.connect).await.map_err(at_server)?;
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
            Refusal::new(
                RefusalKind::Refused,
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
        finish(&self.mysqld.connect).await.map_err(at_server)?;
        ProvisionNote::remove(&self.member_dir).map_err(|error| on_disk(&error))?;
        self.copied_at.send_replace(Some(Instant::now()));
        tracing::info!("mysqld has a copy of the data of `{donor}`");
        Ok(())
    }

    /// Ends an attempt that has removed nothing.
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

    /// Ends an attempt without a complete copy.
    fn stopped(&self, donor: &str, touched: bool, stop: Stop) -> Refusal {
        let Stop { begun, why } = stop;
        if !begun {
            let refusal = Refusal::new(
                RefusalKind::Failed,
                format!("the data of `{donor}` could not be copied: {why}"),
                "fix that and try again; nothing was removed by this attempt",
            );
            return self.not_begun(donor, touched, refusal);
        }
        self.set(Some(interrupted(donor, Some(&why))));
        Refusal::new(
            RefusalKind::Failed,
            format!("the copy of the data of `{donor}` was interrupted: {why}"),
            "mysqld may have lost all of its data and is not used until the command is run again",
        )
    }

    fn note(&self, donor: &str, step: NoteStep) -> Result<(), Refusal> {
        let note = ProvisionNote {
            donor: donor.to_owned(),
            step,
        };
        note.store(&self.member_dir)
            .map_err(|error| on_disk(&error))
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

/// Files kept before data are replaced.
#[derive(Debug, Default)]
struct Kept {
    files: Vec<KeptBinlog>,
    /// What could not be kept, and why, if forced.
    not_kept: Option<String>,
}

/// The server's files with errant transactions.
fn files_with(
    place: Option<&BinlogPlace>,
    executed: &GtidSet,
    errant: &GtidSet,
) -> io::Result<ErrantFiles> {
    match place {
        // Without errant transactions no file has to be readable.
        _ if errant.is_empty() => Ok(ErrantFiles::default()),
        Some(place) => errant_files(place, executed, errant),
        None => Ok(ErrantFiles::without_a_binlog(errant)),
    }
}

/// Why not all errant transactions can be kept.
#[derive(Debug, Error)]
enum NotKept {
    #[error("the binlog files with errant transactions cannot be kept: {0}")]
    Files(#[from] io::Error),
    #[error(
        "{} errant transactions are in no binlog file, so that nothing can be kept of them: {}",
        .0.count(),
        .0.to_string().replace('\n', "")
    )]
    InNoFile(GtidSet),
}

/// The files with errant transactions, and why they are not all, if so.
fn not_all(files: io::Result<ErrantFiles>) -> (Vec<ErrantFile>, Option<NotKept>) {
    match files {
        Err(error) => (Vec::new(), Some(error.into())),
        Ok(found) if found.in_no_file.is_empty() => (found.files, None),
        Ok(found) => (found.files, Some(NotKept::InNoFile(found.in_no_file))),
    }
}

/// Keeps the files found with `keep`; if forced, as many as possible. Returns why some cannot be kept.
fn keep(
    found: io::Result<ErrantFiles>,
    force: bool,
    keep: impl Fn(&ErrantFile) -> io::Result<TrimmedTail>,
) -> Result<Kept, NotKept> {
    let (found, mut not_kept) = not_all(found);
    let mut files = Vec::new();
    for file in found {
        if not_kept.is_some() && !force {
            break;
        }
        match keep(&file) {
            Ok(tail) => files.push(KeptBinlog {
                from: tail.from.display().to_string(),
                gtids: tail.gtids,
                kept_as: tail.kept_as,
            }),
            Err(error) => not_kept = Some(error.into()),
        }
    }
    match not_kept {
        Some(why) if !force => Err(why),
        not_kept => Ok(Kept {
            files,
            not_kept: not_kept.map(|why| why.to_string()),
        }),
    }
}

fn interrupted(donor: &str, why: Option<&str>) -> Hold {
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    Hold::Interrupted {
        cause: format!(
            "the copy of the data of `{donor}` was interrupted{why}, and mysqld may have lost all of its data; {AGAIN}"
        ),
    }
}

fn unsettled(why: &str) -> Refusal {
    Refusal::new(
        RefusalKind::NoQuorum,
        format!("the ring does not say which transactions are committed: {why}"),
        "check with `witness status` what it waits for, and try again",
    )
}

fn at_server(error: ProvisionError) -> Refusal {
    Refusal::new(
        RefusalKind::Failed,
        error.to_string(),
        "fix that and try again",
    )
}

fn on_disk(error: &io::Error) -> Refusal {
    Refusal::new(
        RefusalKind::Failed,
        format!("the note of the provisioning in the member's data directory: {error}"),
        "fix that and try again",
    )
}

#[cfg(test)]
mod keeping_tests {
    use std::cell::Cell;

    use super::*;

    fn set(text: &str) -> GtidSet {
        format!("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:{text}")
            .parse()
            .unwrap()
    }

    /// A follower's three transactions without a binlog file.
    #[test]
    fn incomplete_copies_of_errant_transactions_need_force() {
        let (errant, executed) = (set("7-9"), set("1-9"));
        let found = || files_with(None, &executed, &errant);
        let asked = Cell::new(0);
        let never = |_: &ErrantFile| {
            asked.set(asked.get() + 1);
            Err(io::ErrorKind::StorageFull.into())
        };
        let why = keep(found(), false, never).unwrap_err();
        assert!(
            matches!(&why, NotKept::InNoFile(lost) if *lost == errant),
            "{why}"
        );
        // The dry run reports the same.
        let dry = not_all(found()).1.map(|why| why.to_string());
        assert_eq!(dry, Some(why.to_string()));
        let kept = keep(found(), true, never).unwrap();
        assert!(kept.files.is_empty());
        assert_eq!(kept.not_kept, Some(why.to_string()));
        assert_eq!(asked.get(), 0, "there is no file");
    }

    #[test]
    fn unreadable_files_do_not_matter_without_errant_transactions() {
        let broken = BinlogPlace::of_index("/nowhere".into(), std::path::Path::new("."));
        let executed = set("1-9");
        let found = |errant| files_with(Some(&broken), &executed, &errant);
        let never = |_: &ErrantFile| Err(io::ErrorKind::StorageFull.into());
        assert!(
            keep(found(GtidSet::new()), false, never)
                .unwrap()
                .files
                .is_empty()
        );
    }
}
