//! `witness archive`: looks at the archive of a ring's log, verifies it, and gets files of the log from it. No member has to run, and
//! none has to be left.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use archive::manifest::Manifest;
use archive::name::PieceName;
use archive::reading::{ArchivedLog, PieceFault};
use archive::sealed::SealError;
use archive::storage::{Storage, StorageError, StorageSettings};
use binlog_store::FileNumber;
use serde::Serialize;
use url::Url;

use crate::cli::config_args::ConfigArgs;
use crate::cli::restore::{self, RestoreArgs};
use crate::cli::session::block_on;
use crate::terminal::{Exit, Failure, Format, Table, bytes_bar, print_json, print_text};

/// How long one call of the storage may take where no configuration says it.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// The verbs of `witness archive`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ArchiveCommand {
    /// The files of the log that the archive has, and from when to when
    List(PlaceArgs),
    /// Read all that the archive has of the log: every checksum, and whether something is missing
    Verify(PlaceArgs),
    /// Get the files of the log from the archive, verified, into a directory
    Fetch(FetchArgs),
    /// Make a data directory for mysqld from a base backup and the log, up to a time or a transaction
    Restore(Box<RestoreArgs>),
}

/// Which archive.
#[derive(Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// Where the archive is, as in `archive.url`; without it, as the configuration says
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// File with what the storage has to know, as in `archive.options_file`
    #[arg(long, value_name = "FILE", requires = "url")]
    options_file: Option<PathBuf>,
    /// Configuration file to take them from
    #[arg(short, long, value_name = "FILE", env = "WITNESS_CONFIG")]
    config: Option<PathBuf>,
}

/// Arguments of `witness archive fetch`.
#[derive(Debug, clap::Args)]
pub(crate) struct FetchArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Where the files go; it is made, and has to be empty
    #[arg(short, long, value_name = "DIRECTORY")]
    directory: PathBuf,
    /// The first file to get, as in binlog.000007; without it, the first one that is there
    #[arg(long, value_name = "FILE")]
    from_file: Option<String>,
}

/// Runs a verb.
///
/// # Errors
/// Exit 7 where something of the archive is damaged or missing, 1 for everything else.
pub(crate) fn run(command: &ArchiveCommand, format: Format) -> Result<(), Failure> {
    match command {
        ArchiveCommand::List(place) => block_on(list(place, format)),
        ArchiveCommand::Verify(place) => block_on(verify(place, format)),
        ArchiveCommand::Fetch(args) => block_on(fetch(args, format)),
        ArchiveCommand::Restore(args) => restore::run(args, format),
    }
}

impl PlaceArgs {
    /// What is in the archive, by its names.
    async fn open(&self) -> Result<ArchivedLog, Failure> {
        let log = ArchivedLog::look(self.storage()?, None).await;
        log.map_err(|error| unreachable(&error))?
            .ok_or_else(|| Failure::error("there is no log of a ring in the archive"))
    }

    /// Where the archive is; nothing is asked yet.
    pub(super) fn storage(&self) -> Result<Storage, Failure> {
        let (url, file, call_limit) = match &self.url {
            Some(url) => (url.clone(), self.options_file.clone(), CALL_LIMIT),
            None => {
                let config = ConfigArgs::of_file(self.config.clone());
                let settings = config.load_without_files()?.0.member.archive;
                let settings = settings.ok_or_else(|| {
                    Failure::new(
                        Exit::Usage,
                        "neither --url nor a configuration with `archive.url` is given",
                        "say where the archive is, as in --url s3://backups/orders",
                    )
                })?;
                (settings.url, settings.options_file, settings.call_limit)
            }
        };
        let reached = StorageSettings::with_options_of(url, file.as_deref(), call_limit);
        let storage = reached.and_then(|reached| Storage::open(&reached));
        storage.map_err(|error| unreachable(&error))
    }
}

fn unreachable(error: &StorageError) -> Failure {
    Failure::error(error.to_string())
}

/// A file of the log, as far as the archive has it.
#[derive(Debug, Default, Serialize)]
struct ArchivedFile {
    log_name: String,
    /// Bytes of the log.
    archived_bytes: u64,
    /// Bytes in the storage.
    stored_bytes: u64,
    pieces: usize,
    closed: bool,
    transactions: u64,
    first_op_id: Option<String>,
    last_op_id: Option<String>,
    /// UTC, when its first and its last transaction were committed.
    first_time: Option<String>,
    last_time: Option<String>,
}

#[derive(Debug, Serialize)]
struct Listing {
    ring: Option<String>,
    history: u32,
    files: Vec<ArchivedFile>,
    gaps: Vec<Gap>,
    /// Where the archive ends.
    ends: Option<String>,
    /// Pieces that are not what they should be.
    damaged: Vec<Damage>,
}

#[derive(Debug, Serialize)]
struct Gap {
    from: String,
    to: String,
}

#[derive(Debug, Serialize)]
struct Damage {
    piece: String,
    why: String,
}

impl Damage {
    fn new(piece: PieceName, fault: &PieceFault) -> Self {
        Self {
            piece: piece.to_string(),
            why: fault.to_string(),
        }
    }
}

async fn list(place: &PlaceArgs, format: Format) -> Result<(), Failure> {
    let mut log = place.open().await?;
    let mut files: BTreeMap<FileNumber, ArchivedFile> = BTreeMap::new();
    let mut damaged = Vec::new();
    let wanted = pieces(&log, None);
    for &piece in &wanted {
        let file = files.entry(piece.file).or_default();
        file.log_name = piece.file.name();
        file.pieces += 1;
        file.archived_bytes += piece.end - piece.start;
        file.closed |= piece.closed;
        match log.manifest(piece).await {
            Ok(manifest) => file.add(&manifest),
            Err(fault) if says_nothing(&fault) => return Err(Failure::error(fault.to_string())),
            Err(fault) => damaged.push(Damage::new(piece, &fault)),
        }
    }
    let listing = Listing {
        ring: log.ring().map(|ring| ring.to_string()),
        history: log.timeline().0,
        files: files.into_values().collect(),
        gaps: gaps(&wanted),
        ends: wanted.last().map(|piece| piece.goes_on().to_string()),
        damaged,
    };
    match format {
        Format::Json => print_json(&listing)?,
        Format::Table => print_text(&listing.text())?,
    }
    match listing.gaps.is_empty() && listing.damaged.is_empty() {
        true => Ok(()),
        false => Err(Failure::silent(Exit::Corrupt)),
    }
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
    fn text(&self) -> String {
        let mut table = Table::new(&[
            "Log_name",
            "Archived_bytes",
            "Stored_bytes",
            "Pieces",
            "Closed",
            "Transactions",
            "First_op_id",
            "Last_op_id",
            "First_time",
            "Last_time",
        ]);
        for file in &self.files {
            let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            table.row(vec![
                file.log_name.clone(),
                file.archived_bytes.to_string(),
                file.stored_bytes.to_string(),
                file.pieces.to_string(),
                if file.closed { "yes" } else { "no" }.to_owned(),
                file.transactions.to_string(),
                text(&file.first_op_id),
                text(&file.last_op_id),
                text(&file.first_time),
                text(&file.last_time),
            ]);
        }
        let mut text = table.lines().join("\n") + "\n";
        text.push_str(&words(&self.gaps, &self.damaged));
        text
    }
}

#[derive(Debug, Serialize)]
struct Verdict {
    ok: bool,
    pieces: usize,
    bytes: u64,
    transactions: u64,
    begins: Option<String>,
    ends: Option<String>,
    gaps: Vec<Gap>,
    damaged: Vec<Damage>,
}

async fn verify(place: &PlaceArgs, format: Format) -> Result<(), Failure> {
    let mut log = place.open().await?;
    let wanted = pieces(&log, None);
    let verdict = read_all(&mut log, wanted, |_| Ok(Box::new(io::sink()))).await?;
    verdict.told(format, "read and verified")
}

async fn fetch(args: &FetchArgs, format: Format) -> Result<(), Failure> {
    let from = match &args.from_file {
        None => None,
        Some(name) => Some(FileNumber::from_name(name).ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                format!("`{name}` is not the name of a log file"),
                "write it as in binlog.000007; `witness archive list` shows them",
            )
        })?),
    };
    let mut log = args.place.open().await?;
    let wanted = pieces(&log, from);
    if wanted.is_empty() {
        return Err(Failure::error("the archive has no such file"));
    }
    let directory = &args.directory;
    let made =
        fs::create_dir_all(directory).and_then(|()| fs::read_dir(directory)?.next().transpose());
    match made {
        Ok(None) => {}
        Ok(Some(_)) => {
            return Err(Failure::new(
                Exit::Refused,
                format!("{} is not empty", directory.display()),
                "name another directory, or an empty one",
            ));
        }
        Err(error) => return Err(Failure::error(format!("{}: {error}", directory.display()))),
    }
    let into = directory.clone();
    let verdict = read_all(&mut log, wanted, move |piece| {
        Ok(Box::new(open_at(&into, piece)?))
    })
    .await?;
    verdict.told(format, &format!("written to {}", directory.display()))
}

/// A file of the log in a directory, to be written from where a piece begins: what may have been written behind that was of a damaged
/// one.
fn open_at(directory: &Path, piece: PieceName) -> io::Result<File> {
    let path = directory.join(piece.file.name());
    let file = OpenOptions::new().create(true).append(true).open(&path)?;
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

/// Reads pieces one after the other. Behind one that is damaged or missing, files go on where the next one begins.
async fn read_all(
    log: &mut ArchivedLog,
    wanted: Vec<PieceName>,
    open: impl Fn(PieceName) -> io::Result<Box<dyn Write + Send>>,
) -> Result<Verdict, Failure> {
    let bar = bytes_bar();
    bar.set_length(wanted.iter().map(|piece| piece.end - piece.start).sum());
    let mut verdict = Verdict {
        ok: true,
        pieces: 0,
        bytes: 0,
        transactions: 0,
        begins: wanted.first().map(|piece| piece.begins().to_string()),
        ends: wanted.last().map(|piece| piece.goes_on().to_string()),
        gaps: gaps(&wanted),
        damaged: Vec::new(),
    };
    let mut before: Option<Manifest> = None;
    let failed = OwnError::default();
    for piece in wanted {
        let read = async {
            let manifest = log.manifest(piece).await?;
            let adjoins = |before: &&Manifest| before.piece.goes_on() == piece.begins();
            let to = Sink::new(open(piece), &failed);
            let before = before.as_ref().filter(adjoins);
            log.read(&manifest, before, to).await?;
            Ok::<Manifest, PieceFault>(manifest)
        };
        let read = read.await;
        if let Some(error) = failed.take() {
            return Err(error.into());
        }
        match read {
            Ok(manifest) => {
                verdict.pieces += 1;
                verdict.bytes += piece.end - piece.start;
                verdict.transactions += manifest.transactions;
                before = Some(manifest);
            }
            Err(fault) if says_nothing(&fault) => return Err(Failure::error(fault.to_string())),
            Err(fault) => {
                before = None;
                verdict.damaged.push(Damage::new(piece, &fault));
            }
        }
        bar.inc(piece.end - piece.start);
    }
    bar.finish_and_clear();
    verdict.ok = verdict.gaps.is_empty() && verdict.damaged.is_empty();
    Ok(verdict)
}

impl Verdict {
    fn told(&self, format: Format, done: &str) -> Result<(), Failure> {
        match format {
            Format::Json => print_json(self)?,
            Format::Table => {
                let place = |place: &Option<String>| place.clone().unwrap_or_default();
                let mut text = format!(
                    "{} pieces, {} bytes, {} transactions {done}, from {} to {}\n",
                    self.pieces,
                    self.bytes,
                    self.transactions,
                    place(&self.begins),
                    place(&self.ends),
                );
                text.push_str(&words(&self.gaps, &self.damaged));
                print_text(&text)?;
            }
        }
        match self.ok {
            true => Ok(()),
            false => Err(Failure::silent(Exit::Corrupt)),
        }
    }
}

fn words(gaps: &[Gap], damaged: &[Damage]) -> String {
    let mut text = String::new();
    for Damage { piece, why } in damaged {
        text.push_str(&format!("DAMAGED: {piece}: {why}\n"));
    }
    for Gap { from, to } in gaps {
        text.push_str(&format!("MISSING: from {from} to {to}\n"));
    }
    if !text.is_empty() {
        text.push_str("what lies before the first of these can be restored, and behind it only from a backup that was taken behind it\n");
    }
    text
}

fn pieces(log: &ArchivedLog, from: Option<FileNumber>) -> Vec<PieceName> {
    let all = log.runs().iter().flat_map(|run| &run.pieces);
    let wanted = all.filter(|piece| from.is_none_or(|from| piece.file >= from));
    wanted.copied().collect()
}

fn gaps(wanted: &[PieceName]) -> Vec<Gap> {
    let pairs = wanted
        .windows(2)
        .map(|pair| (pair[0].goes_on(), pair[1].begins()));
    let gaps = pairs.filter(|(from, to)| from != to);
    gaps.map(|(from, to)| Gap {
        from: from.to_string(),
        to: to.to_string(),
    })
    .collect()
}

/// Whether it is a failure of the storage, which says nothing of what is in it. An object that is not there is missing.
fn says_nothing(fault: &PieceFault) -> bool {
    let of_storage = match fault {
        PieceFault::Storage(error) => Some(error),
        PieceFault::Seal(SealError::Io(error)) => error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<StorageError>()),
        _ => None,
    };
    of_storage.is_some_and(|error| !matches!(error, StorageError::NotFound(_)))
}

/// What went wrong with a file of our own, which is no damage of the archive.
#[derive(Clone, Default)]
struct OwnError(Arc<Mutex<Option<io::Error>>>);

impl OwnError {
    fn lock(&self) -> MutexGuard<'_, Option<io::Error>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<io::Error> {
        self.lock().take()
    }

    fn put<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| {
            let told = io::Error::new(error.kind(), error.to_string());
            *self.lock() = Some(error);
            told
        })
    }
}

/// A file of our own, or why there is none.
struct Sink {
    to: Option<Box<dyn Write + Send>>,
    failed: OwnError,
}

impl Sink {
    fn new(opened: io::Result<Box<dyn Write + Send>>, failed: &OwnError) -> Self {
        Self {
            to: failed.put(opened).ok(),
            failed: failed.clone(),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.to {
            Some(to) => self.failed.put(to.write(bytes)),
            None => Err(io::Error::other("it was not opened")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.to {
            Some(to) => self.failed.put(to.flush()),
            None => Ok(()),
        }
    }
}
