//! `witness archive verify` and `fetch`: read and verify all of an archived log.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use archive::base_backup::survey;
use archive::manifest::Manifest;
use archive::name::PieceName;
use archive::reading::{ArchivedLog, PieceFault};
use binlog_store::{FileNumber, LogPlace};
use serde::Serialize;

use super::bases::VerifiedBases;
use super::faults::{Damage, Range, gap_before, gaps, pieces, says_nothing, words};
use super::place::{ReadArgs, unreachable};
use crate::terminal::{Exit, Failure, Format, bytes_bar, print_json, print_text};

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
    /// The file before which the archive was pruned, if it was.
    pruned_before: Option<String>,
    ends: Option<String>,
    gaps: Vec<Range>,
    damaged: Vec<Damage>,
    /// Restorable ranges: each from a backup taken within it, to its end.
    intact: Vec<Range>,
    /// None where only log files were requested.
    #[serde(flatten)]
    bases: Option<VerifiedBases>,
}

pub(super) async fn verify(args: &ReadArgs, format: Format) -> Result<(), Failure> {
    let (storage, log) = args.look().await?;
    let mut ring = None;
    let mut verdict = Verdict {
        ok: true,
        ..Verdict::default()
    };
    if let Some(mut log) = log {
        verdict = read_all(&mut log, None, |_| Ok(Box::new(io::sink()))).await?;
        ring = log.ring();
    }
    let bases = survey(&storage, ring).await;
    let bases = bases.map_err(|error| unreachable(&error))?;
    let bases = VerifiedBases::read(&storage, &bases, &args.identities()?).await?;
    verdict.ok &= bases.is_sound();
    verdict.bases = Some(bases);
    verdict.told(format, "read and verified")
}

pub(super) async fn fetch(args: &FetchArgs, format: Format) -> Result<(), Failure> {
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
    let mut log = args.read.open().await?;
    if pieces(&log).all(|piece| Some(piece.file) < from) {
        return Err(Failure::error("the archive has no such file"));
    }
    let directory = &args.directory;
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(directory);
    let made = made.and_then(|()| fs::read_dir(directory)?.next().transpose());
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
    let verdict = read_all(&mut log, from, move |piece| {
        Ok(Box::new(open_at(&into, piece)?))
    })
    .await?;
    verdict.told(format, &format!("written to {}", directory.display()))
}

/// A log file in a directory, to be written from the start of a piece: later bytes may be of a damaged piece.
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

/// Reads pieces in turn, from a file on. After a damaged or missing piece, files continue at the next one.
async fn read_all(
    log: &mut ArchivedLog,
    from: Option<FileNumber>,
    open: impl Fn(PieceName) -> io::Result<Box<dyn Write + Send>> + Clone + Send + 'static,
) -> Result<Verdict, Failure> {
    let wanted: Vec<PieceName> = pieces(log)
        .filter(|piece| Some(piece.file) >= from)
        .collect();
    let bar = bytes_bar();
    bar.set_length(wanted.iter().map(|piece| piece.end - piece.start).sum());
    let mut verdict = Verdict {
        begins: wanted.first().map(|piece| piece.begins().to_string()),
        pruned_before: log.begins().map(|begins| begins.file.name()),
        ends: wanted.last().map(|piece| piece.goes_on().to_string()),
        gaps: gaps(&wanted),
        ..Verdict::default()
    };
    let mut intact: Vec<(LogPlace, LogPlace)> = Vec::new();
    let mut before: Option<Manifest> = None;
    let failed = OwnError::default();
    for (at, piece) in wanted.into_iter().enumerate() {
        let read = async {
            let manifest = log.manifest(piece).await?;
            let adjoins = |before: &&Manifest| before.piece.goes_on() == piece.begins();
            let open = open.clone();
            let to = Sink::new(move || open(piece), &failed);
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
                if at == 0 && from.is_none() {
                    verdict.gaps.splice(0..0, gap_before(log, &manifest));
                }
                match intact.last_mut() {
                    Some((_, to)) if *to == piece.begins() && before.is_some() => {
                        *to = piece.goes_on();
                    }
                    _ => intact.push((piece.begins(), piece.goes_on())),
                }
                before = Some(manifest);
            }
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
                if let Some(file) = &self.pruned_before {
                    text.push_str(&format!("what stood before {file} was pruned\n"));
                }
                text.push_str(&words(&self.gaps, &self.damaged));
                if !self.gaps.is_empty() || !self.damaged.is_empty() {
                    for range in &self.intact {
                        text.push_str(&format!("INTACT: {range}\n"));
                    }
                }
                if let Some(bases) = &self.bases {
                    text.push_str(&bases.text());
                }
                print_text(&text)?;
            }
        }
        match self.ok {
            true => Ok(()),
            false => Err(Failure::silent(Exit::Corrupt)),
        }
    }
}

/// A failure with a local file, which is no damage of the archive.
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

type Opens = Box<dyn FnOnce() -> io::Result<Box<dyn Write + Send>> + Send>;

/// A local file, opened at the first write: an entry that cannot be decrypted creates none.
struct Sink {
    open: Option<Opens>,
    to: Option<Box<dyn Write + Send>>,
    failed: OwnError,
}

impl Sink {
    fn new(
        open: impl FnOnce() -> io::Result<Box<dyn Write + Send>> + Send + 'static,
        failed: &OwnError,
    ) -> Self {
        Self {
            open: Some(Box::new(open)),
            to: None,
            failed: failed.clone(),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(open) = self.open.take() {
            self.to = Some(self.failed.put(open())?);
        }
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
