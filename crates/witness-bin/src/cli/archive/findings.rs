//! What the archive commands find in an archive: its base backups, missing and damaged parts, and failures that show neither.

use std::fmt;
use std::ops::ControlFlow;

use archive::base_backup::{BaseError, BaseForm, BaseManifest, Survey, verify};
use archive::encryption::{EncryptionError, Identities};
use archive::manifest::Manifest;
use archive::name::PieceName;
use archive::reading::{ArchivedLog, PieceFault};
use archive::sealed::SealError;
use archive::storage::{Storage, StorageError};
use binlog_store::LogPlace;
use raft_types::UnixSeconds;
use serde::Serialize;
use serde_json::{Value, json};

use crate::terminal::{Attempt, Exit, Failure, Table, bytes_bar, cell, merge};
use crate::text::times::second_of_day;

/// A part of the log.
#[derive(Debug, Serialize)]
pub(super) struct Range {
    from: String,
    to: String,
}

impl Range {
    pub(super) fn new(from: LogPlace, to: LogPlace) -> Self {
        Self {
            from: from.to_string(),
            to: to.to_string(),
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {} to {}", self.from, self.to)
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Damage {
    pub(super) piece: String,
    pub(super) why: String,
}

impl Damage {
    pub(super) fn new(piece: PieceName, fault: &PieceFault) -> Self {
        Self {
            piece: piece.to_string(),
            why: fault.to_string(),
        }
    }
}

/// Gaps between pieces.
pub(super) fn gaps(wanted: &[PieceName]) -> Vec<Range> {
    let pairs = wanted
        .windows(2)
        .map(|pair| (pair[0].continues_at(), pair[1].begins()));
    let gaps = pairs.filter(|(from, to)| from != to);
    gaps.map(|(from, to)| Range::new(from, to)).collect()
}

/// The gap before the first piece.
pub(super) fn gap_before(log: &ArchivedLog, first: &Manifest) -> Option<Range> {
    let (from, to) = log.missing_before(first)?;
    Some(Range::new(from, to))
}

/// The failure that ends the command without a result about the archive: the storage fails, an identity is missing, or another process has
/// pruned the archive in the meantime.
pub(super) async fn says_nothing(
    log: &ArchivedLog,
    piece: PieceName,
    fault: &PieceFault,
) -> Attempt {
    if let PieceFault::Seal(SealError::Encryption(error)) = fault
        && fault.lacks_an_identity()
    {
        return Err(no_identity(&piece.to_string(), error));
    }
    match fault.of_storage() {
        None => Ok(()),
        Some(StorageError::NotFound(_)) => match log.was_pruned(piece).await? {
            false => Ok(()),
            true => Err(Exit::Error.because(
                format!("{piece} was deleted by pruning while the archive was read"),
                "run the command again",
            )),
        },
        Some(_) => Err(Failure::error(fault.to_string())),
    }
}

/// An object is encrypted, and the given identities do not decrypt it.
pub(super) fn no_identity(object: &str, error: &EncryptionError) -> Failure {
    let advice = match error {
        EncryptionError::NoIdentity => {
            "name the file with the secret key of one of its recipients: --identity FILE"
        }
        _ => {
            "name the identity of one of its recipients when it was archived, too: --identity may be given several times"
        }
    };
    Exit::Usage.because(format!("{object}: {error}"), advice)
}

pub(super) fn fault_lines(gaps: &[Range], damaged: &[Damage]) -> String {
    let mut text = String::new();
    for Damage { piece, why } in damaged {
        text.push_str(&format!("DAMAGED: {piece}: {why}\n"));
    }
    for gap in gaps {
        text.push_str(&format!("MISSING: {gap}\n"));
    }
    if !text.is_empty() {
        text.push_str("everything before the first of these can be restored; later transactions only from a backup that was taken after it\n");
    }
    text
}

/// A base backup in a listing. Times are UTC.
pub(super) fn listed(base: &BaseManifest) -> Value {
    let mut json = json!({
        "name": base.name.to_string(),
        "began": second_of_day(UnixSeconds(base.began_at)),
        "ended": second_of_day(UnixSeconds(base.ended_at)),
        "taken_by": base.taken_by,
        "gtids_at_least": base.gtids_at_least.to_string(),
        "gtids_at_most": base.gtids_at_most.to_string(),
        "mysqld_version": base.mysqld_version,
        "server_uuid": base.server_uuid.map(|uuid| uuid.to_string()),
        "keyring_needed": base.keyring_needed,
        // Bytes in the storage.
        "stored_bytes": base.stored_bytes(),
        "unpacked_bytes": base.unpacked_bytes,
        "files": base.files,
    });
    merge(&mut json, &base.form);
    json
}

/// Its description in a sentence.
pub(super) fn sentence(base: &BaseManifest) -> String {
    let (name, at_least, at_most) = (base.name, &base.gtids_at_least, &base.gtids_at_most);
    let gtids = match at_least == at_most {
        true => format!("GTIDs {at_least}"),
        false => format!("GTIDs at least {at_least} and at most {at_most}"),
    };
    match &base.form {
        BaseForm::DataDirectory => format!(
            "{name}: {} files of {} bytes, {} in the archive; {gtids}\n",
            base.files,
            base.unpacked_bytes,
            base.stored_bytes()
        ),
        BaseForm::Registered { tool, place } => {
            format!("{name}: registered, by {tool} in {place}; {gtids}\n")
        }
    }
}

/// The base backups of a listing.
pub(super) fn listed_bases(survey: &Survey) -> Value {
    let unfinished = survey.unfinished.iter().map(ToString::to_string);
    json!({
        "base_backups": survey.bases.iter().map(listed).collect::<Vec<_>>(),
        // Those with invalid manifests, and those without one.
        "damaged_base_backups": damaged_of(survey),
        "unfinished_base_backups": unfinished.collect::<Vec<_>>(),
    })
}

/// Lines after those of the log; none without base backups.
pub(super) fn bases_text(survey: &Survey) -> String {
    let mut text = String::new();
    if !survey.bases.is_empty() {
        let mut table =
            Table::titled("Base_backup Form Stored_bytes Unpacked_bytes Files Ended MySQL");
        for base in &survey.bases {
            let form = match &base.form {
                BaseForm::DataDirectory => "data directory".to_owned(),
                BaseForm::Registered { tool, .. } => format!("registered ({tool})"),
            };
            table.row(vec![
                base.name.to_string(),
                form,
                base.stored_bytes().to_string(),
                base.unpacked_bytes.to_string(),
                base.files.to_string(),
                second_of_day(UnixSeconds(base.ended_at)),
                cell(base.mysqld_version.as_ref()),
            ]);
        }
        text = format!("\n{table}");
    }
    text += &damage_lines(&damaged_of(survey));
    for name in &survey.unfinished {
        text += &format!(
            "UNFINISHED: {name}: being taken, or left by a backup that was killed; it does not count\n"
        );
    }
    text
}

fn damaged_of(survey: &Survey) -> Vec<Damage> {
    let damaged = survey.damaged.iter().map(|damaged| Damage {
        piece: damaged.name.folder(),
        why: damaged.error.to_string(),
    });
    damaged.collect()
}

fn damage_lines(damaged: &[Damage]) -> String {
    let lines = damaged.iter().map(|Damage { piece, why }| {
        format!("DAMAGED: {piece}: {why}; nothing can be restored from it\n")
    });
    lines.collect()
}

/// Result of reading all base backups.
#[derive(Debug, Serialize)]
pub(super) struct VerifiedBases {
    /// Base backups read and found intact.
    base_backups: usize,
    /// Bytes of their files.
    base_backup_bytes: u64,
    /// Base backups that are only registered, with nothing to read.
    registered_base_backups: usize,
    damaged_base_backups: Vec<Damage>,
}

impl VerifiedBases {
    /// Reads all of them.
    ///
    /// # Errors
    /// Exit 1 where the storage fails to provide them, 2 where an identity is missing or does not match.
    pub(super) async fn read(
        storage: &Storage,
        survey: &Survey,
        identities: &Identities,
    ) -> Attempt<Self> {
        let mut verified = Self {
            base_backups: 0,
            base_backup_bytes: 0,
            registered_base_backups: 0,
            damaged_base_backups: damaged_of(survey),
        };
        for base in &survey.bases {
            let bar = bytes_bar();
            bar.set_length(base.unpacked_bytes);
            let shown = bar.clone();
            let read = verify(storage, base, identities, move |bytes| {
                shown.set_position(bytes);
                ControlFlow::Continue(())
            });
            let read = read.await;
            bar.finish_and_clear();
            match read {
                Ok(()) => {
                    verified.base_backups += 1;
                    verified.base_backup_bytes += base.unpacked_bytes;
                }
                Err(BaseError::Registered { .. }) => verified.registered_base_backups += 1,
                Err(BaseError::Storage(error)) => return Err(error.into()),
                Err(BaseError::Encryption(object, error)) => {
                    return Err(no_identity(&object, &error));
                }
                Err(error) => verified.damaged_base_backups.push(Damage {
                    piece: base.name.folder(),
                    why: error.to_string(),
                }),
            }
        }
        Ok(verified)
    }

    pub(super) fn is_sound(&self) -> bool {
        self.damaged_base_backups.is_empty()
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{} base backups, {} bytes read and verified",
            self.base_backups, self.base_backup_bytes
        );
        if self.registered_base_backups > 0 {
            let registered = self.registered_base_backups;
            text.push_str(&format!(
                "; {registered} are only registered, and elsewhere"
            ));
        }
        format!("{text}\n{}", damage_lines(&self.damaged_base_backups))
    }
}
