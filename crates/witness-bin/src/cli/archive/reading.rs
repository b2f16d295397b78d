//! `witness archive list`: shows an archive's contents, from the names and manifests of its objects. `witness archive verify` and `fetch`:
//! read and verify a whole archived log.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use archive::base_backup::{self, BaseError, BaseForm, BaseManifest, Survey, make_empty, survey};
use archive::encryption::{EncryptionError, Identities};
use archive::manifest::Manifest;
use archive::name::PieceName;
use archive::reading::{ArchivedLog, PieceFault};
use archive::sealed::SealError;
use archive::storage::{Storage, StorageError};
use binlog_store::{FileNumber, LogPlace};
use raft_types::{RingId, UnixSeconds};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::archive::place::{PlaceArgs, ReadArgs};
use crate::terminal::{Attempt, Exit, Failure, Format, Table, bytes_bar, merge, print};
use crate::text::lines;
use crate::text::times::second_of_day;

/// Arguments of `witness archive fetch`.
#[derive(Debug, clap::Args)]
pub(crate) struct FetchArgs {
    #[command(flatten)]
    read: ReadArgs,
    /// Where the files go; it is made, and has to be empty
    #[arg(short, long, value_name = "DIRECTORY")]
    directory: PathBuf,
    /// The first file to get, as in binlog.000007; without it, the first one that is there
    #[arg(long, value_name = "FILE")]
    from_file: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct Verdict {
    ok: bool,
    pieces: usize,
    bytes: u64,
    transactions: u64,
    begins: Option<String>,
    /// The file before which the archive was pruned; `None` if it was never pruned.
    pruned_before: Option<String>,
    ends: Option<String>,
    gaps: Vec<Range>,
    damaged: Vec<Damage>,
    /// Ranges without a gap or damage. From a backup that was taken within a range, any point up to the range's end can be restored.
    intact: Vec<Range>,
    /// `None` if only log files were read.
    #[serde(flatten)]
    bases: Option<VerifiedBases>,
}

pub(super) async fn verify(args: &ReadArgs, format: Format) -> Attempt {
    let (storage, log) = args.look().await?;
    let mut ring = None;
    let mut verdict = Verdict {
        ok: true,
        ..Verdict::default()
    };
    if let Some(mut log) = log {
        verdict = read_all(&mut log, None, None).await?;
        ring = log.ring();
    }
    let bases = survey(&storage, ring).await?;
    let bases = VerifiedBases::read(&storage, &bases, &args.identities()?).await?;
    verdict.ok &= bases.is_sound();
    verdict.bases = Some(bases);
    verdict.print(format, "read and verified")
}

pub(super) async fn fetch(args: &FetchArgs, format: Format) -> Attempt {
    let from = match &args.from_file {
        None => None,
        Some(name) => Some(FileNumber::from_name(name).ok_or_else(|| {
            Exit::Usage.because(
                format!("`{name}` is not the name of a log file"),
                "write it as in binlog.000007; `witness archive list` shows them",
            )
        })?),
    };
    let (_, log) = args.read.look().await?;
    let no_log = || Failure::error("there is no log of a ring in the archive");
    let mut log = log.ok_or_else(no_log)?;
    if log.pieces().all(|piece| Some(piece.file) < from) {
        return Err(Failure::error("the archive has no such file"));
    }
    let directory = &args.directory;
    make_empty(directory, 0o700)?;
    let verdict = read_all(&mut log, from, Some(directory)).await?;
    verdict.print(format, &format!("written to {}", directory.display()))
}

/// Opens a log file in a directory, for writing from the start of a piece. Later bytes in the file are removed: they may be from a damaged
/// piece.
fn open_at(directory: &Path, piece: PieceName) -> io::Result<File> {
    let path = directory.join(piece.file.name());
    let file = (OpenOptions::new().create(true).append(true).mode(0o600)).open(&path)?;
    if file.metadata()?.len() < piece.start {
        return Err(io::Error::other(format!(
            "{} lacks what comes before byte {}",
            path.display(),
            piece.start
        )));
    }
    file.set_len(piece.start)?;
    Ok(file)
}

/// Reads and verifies all pieces from the file `from` on, and writes them into the directory `into`, if it is given. A damaged or missing
/// piece is reported, and reading continues with the next piece.
async fn read_all(
    log: &mut ArchivedLog,
    from: Option<FileNumber>,
    into: Option<&PathBuf>,
) -> Attempt<Verdict> {
    let wanted: Vec<PieceName> = log
        .pieces()
        .filter(|piece| Some(piece.file) >= from)
        .collect();
    let bar = bytes_bar();
    bar.set_length(wanted.iter().map(|piece| piece.end - piece.start).sum());
    let mut verdict = Verdict {
        begins: wanted.first().map(|piece| piece.begins().to_string()),
        pruned_before: log.begins.map(|begins| begins.file.name()),
        ends: wanted.last().map(|piece| piece.continues_at().to_string()),
        gaps: gaps(&wanted),
        ..Verdict::default()
    };
    let mut intact: Vec<(LogPlace, LogPlace)> = Vec::new();
    let mut before: Option<Manifest> = None;
    for (at, piece) in wanted.into_iter().enumerate() {
        let read = async {
            let manifest = log.manifest(piece).await?;
            let adjoins = |before: &&Manifest| before.piece.continues_at() == piece.begins();
            let to = Sink {
                piece,
                into: into.cloned(),
                to: None,
            };
            let before = before.as_ref().filter(adjoins);
            log.read(&manifest, before, to).await?;
            Ok::<Manifest, PieceFault>(manifest)
        };
        match read.await {
            Ok(manifest) => {
                verdict.pieces += 1;
                verdict.bytes += piece.end - piece.start;
                verdict.transactions += manifest.transactions;
                if at == 0 && from.is_none() {
                    verdict.gaps.splice(0..0, gap_before(log, &manifest));
                }
                match intact.last_mut() {
                    Some((_, to)) if *to == piece.begins() && before.is_some() => {
                        *to = piece.continues_at();
                    }
                    _ => intact.push((piece.begins(), piece.continues_at())),
                }
                before = Some(manifest);
            }
            // A local file could not be written. The archive is not damaged.
            Err(PieceFault::Seal(SealError::Write(error))) => return Err(error.into()),
            Err(fault) => {
                says_nothing(log, piece, &fault).await?;
                before = None;
                verdict.damaged.push(Damage::new(piece, &fault));
            }
        }
        bar.inc(piece.end - piece.start);
    }
    bar.finish_and_clear();
    let intact = intact.into_iter().map(|(from, to)| Range::new(from, to));
    verdict.intact = intact.collect();
    verdict.ok = verdict.gaps.is_empty() && verdict.damaged.is_empty();
    Ok(verdict)
}

impl Verdict {
    fn print(&self, format: Format, done: &str) -> Attempt {
        print(format, self, || self.text(done))?;
        Exit::Corrupt.unless(self.ok)
    }

    fn text(&self, done: &str) -> String {
        let place = |place: &Option<String>| place.clone().unwrap_or_default();
        let mut text = format!(
            "{} pieces, {} bytes, {} transactions {done}, from {} to {}\n",
            self.pieces,
            self.bytes,
            self.transactions,
            place(&self.begins),
            place(&self.ends),
        );
        if let Some(file) = &self.pruned_before {
            text.push_str(&format!("what stood before {file} was pruned\n"));
        }
        text.push_str(&fault_lines(&self.gaps, &self.damaged));
        if !self.gaps.is_empty() || !self.damaged.is_empty() {
            text += &lines("INTACT: ", &self.intact);
        }
        if let Some(bases) = &self.bases {
            text.push_str(&bases.text());
        }
        text
    }
}

/// A local file that is opened at the first write, so that a piece that cannot be decrypted creates no file.
struct Sink {
    piece: PieceName,
    into: Option<PathBuf>,
    to: Option<File>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(directory) = &self.into else {
            return Ok(bytes.len());
        };
        let to = match &mut self.to {
            Some(to) => to,
            none => none.insert(open_at(directory, self.piece)?),
        };
        to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The archived part of a log file.
#[derive(Debug, Default, Serialize)]
struct ArchivedFile {
    log_name: String,
    /// Bytes of the log that are archived.
    archived_bytes: u64,
    /// Bytes in the storage.
    stored_bytes: u64,
    pieces: usize,
    closed: bool,
    transactions: u64,
    first_op_id: Option<String>,
    last_op_id: Option<String>,
    /// Times (UTC) of the first and the last commit in the file.
    first_time: Option<String>,
    last_time: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct Listing {
    ring: Option<RingId>,
    /// `None` if the archive has only base backups.
    history: Option<u32>,
    files: Vec<ArchivedFile>,
    gaps: Vec<Range>,
    /// The start of the archived log, and the file before which the archive was pruned, if it was ever pruned.
    begins: Option<String>,
    pruned_before: Option<String>,
    /// End of the archive.
    ends: Option<String>,
    /// Invalid pieces.
    damaged: Vec<Damage>,
}

pub(super) async fn list(place: &PlaceArgs, format: Format) -> Attempt {
    let (storage, log) = place.look().await?;
    let mut listing = match log {
        Some(log) => Listing::of(log).await?,
        None => Listing::default(),
    };
    let bases = survey(&storage, listing.ring).await?;
    listing.ring = (listing.ring).or(bases.bases.first().map(|base| base.ring));
    let mut json = json!(listing);
    let unfinished = bases.unfinished.iter().map(ToString::to_string);
    json["base_backups"] = bases.bases.iter().map(listed).collect();
    // Damaged backups have an invalid manifest; unfinished backups have none.
    json["damaged_base_backups"] = json!(damaged_of(&bases));
    json["unfinished_base_backups"] = unfinished.collect();
    print(format, &json, || listing.text() + &bases_text(&bases))?;
    let is_sound = listing.gaps.is_empty() && listing.damaged.is_empty();
    Exit::Corrupt.unless(is_sound && bases.damaged.is_empty())
}

impl ArchivedFile {
    fn add(&mut self, manifest: &Manifest) {
        let time = |micros: Option<u64>| {
            let time = micros.map(Duration::from_micros)?;
            let time = humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + time);
            Some(time.to_string())
        };
        self.stored_bytes += manifest.object.bytes;
        self.transactions += manifest.transactions;
        self.first_op_id = (self.first_op_id.take()).or(manifest.first.map(|id| id.to_string()));
        self.last_op_id = (manifest.last.map(|id| id.to_string())).or(self.last_op_id.take());
        self.first_time = (self.first_time.take()).or(time(manifest.committed_from_us));
        self.last_time = time(manifest.committed_to_us).or(self.last_time.take());
    }
}

impl Listing {
    /// Creates the listing of an archived log.
    async fn of(mut log: ArchivedLog) -> Attempt<Self> {
        let mut files: BTreeMap<FileNumber, ArchivedFile> = BTreeMap::new();
        let mut damaged = Vec::new();
        let wanted: Vec<PieceName> = log.pieces().collect();
        let mut gaps = gaps(&wanted);
        for &piece in &wanted {
            let file = files.entry(piece.file).or_default();
            file.log_name = piece.file.name();
            file.pieces += 1;
            file.archived_bytes += piece.end - piece.start;
            file.closed |= piece.closed;
            match log.manifest(piece).await {
                Ok(manifest) => {
                    file.add(&manifest);
                    if Some(&piece) == wanted.first() {
                        gaps.splice(0..0, gap_before(&log, &manifest));
                    }
                }
                Err(fault) => {
                    says_nothing(&log, piece, &fault).await?;
                    damaged.push(Damage::new(piece, &fault));
                }
            }
        }
        Ok(Self {
            ring: log.ring(),
            history: Some(log.timeline.0),
            files: files.into_values().collect(),
            gaps,
            begins: wanted.first().map(|piece| piece.begins().to_string()),
            pruned_before: log.begins.map(|begins| begins.file.name()),
            ends: wanted.last().map(|piece| piece.continues_at().to_string()),
            damaged,
        })
    }

    fn text(&self) -> String {
        let table = Table::of(
            "Log_name Archived_bytes Stored_bytes Pieces Closed Transactions First_op_id Last_op_id First_time Last_time",
            &self.files,
        );
        let mut text = table.to_string();
        if let Some(file) = &self.pruned_before {
            text.push_str(&format!("what stood before {file} was pruned\n"));
        }
        text.push_str(&fault_lines(&self.gaps, &self.damaged));
        text
    }
}

// Findings of the archive commands: base backups, missing and damaged parts of the log, and failures that do not prove damage.

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

/// Returns the gaps between pieces.
pub(super) fn gaps(wanted: &[PieceName]) -> Vec<Range> {
    let pairs = wanted
        .windows(2)
        .map(|pair| (pair[0].continues_at(), pair[1].begins()));
    let gaps = pairs.filter(|(from, to)| from != to);
    gaps.map(|(from, to)| Range::new(from, to)).collect()
}

/// Returns the gap before the first piece.
pub(super) fn gap_before(log: &ArchivedLog, first: &Manifest) -> Option<Range> {
    let (from, to) = log.missing_before(first)?;
    Some(Range::new(from, to))
}

/// Returns `Ok` if a fault proves that a piece is damaged or missing.
///
/// # Errors
/// If the fault proves neither: the storage fails, an identity is missing, or another process has pruned the piece in the meantime.
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

/// The failure for an encrypted object that the given identities cannot decrypt.
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
    text += &lines("MISSING: ", gaps);
    if !text.is_empty() {
        text.push_str("everything before the first of these can be restored; later transactions only from a backup that was taken after it\n");
    }
    text
}

/// Returns the JSON object for a base backup in a listing. Times are UTC.
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

/// Describes a base backup in one sentence.
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

/// Returns the lines about base backups, which follow the lines about the log. Empty if there is no base backup.
pub(super) fn bases_text(survey: &Survey) -> String {
    let mut text = String::new();
    if !survey.bases.is_empty() {
        let rows = survey.bases.iter().map(|base| {
            let mut row = listed(base);
            row["form"] = json!(match &base.form {
                BaseForm::DataDirectory => "data directory".to_owned(),
                BaseForm::Registered { tool, .. } => format!("registered ({tool})"),
            });
            row
        });
        let columns =
            "Base_backup:name Form Stored_bytes Unpacked_bytes Files Ended MySQL:mysqld_version";
        text = format!("\n{}", Table::of(columns, &rows.collect::<Vec<_>>()));
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
    /// Bytes of the files in these base backups.
    base_backup_bytes: u64,
    /// Base backups that are only registered, with nothing to read.
    registered_base_backups: usize,
    damaged_base_backups: Vec<Damage>,
}

impl VerifiedBases {
    /// Reads and verifies all base backups.
    ///
    /// # Errors
    /// Exit 1 if the storage fails, 2 if an identity is missing or does not match.
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
            let read = base_backup::verify(storage, base, identities, move |bytes| {
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
