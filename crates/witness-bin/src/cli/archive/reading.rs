//! `witness archive verify` and `fetch`: read and verify all of an archived log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use archive::base_backup::{make_empty, survey};
use archive::manifest::Manifest;
use archive::name::PieceName;
use archive::reading::{ArchivedLog, PieceFault};
use archive::sealed::SealError;
use binlog_store::{FileNumber, LogPlace};
use serde::Serialize;

use super::findings::{Damage, Range, VerifiedBases, fault_lines, gap_before, gaps, says_nothing};
use super::place::ReadArgs;
use crate::terminal::{Attempt, Exit, Failure, Format, bytes_bar, print};

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

pub(super) async fn verify(args: &ReadArgs, format: Format) -> Attempt {
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
    let mut log = args.read.open().await?;
    if log.pieces().all(|piece| Some(piece.file) < from) {
        return Err(Failure::error("the archive has no such file"));
    }
    let directory = &args.directory;
    make_empty(directory, 0o700)?;
    let into = directory.clone();
    let verdict = read_all(&mut log, from, move |piece| {
        Ok(Box::new(open_at(&into, piece)?))
    })
    .await?;
    verdict.print(format, &format!("written to {}", directory.display()))
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
                open: open.clone(),
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
            // A failure of a local file, which is no damage of the archive.
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
            for range in &self.intact {
                text.push_str(&format!("INTACT: {range}\n"));
            }
        }
        if let Some(bases) = &self.bases {
            text.push_str(&bases.text());
        }
        text
    }
}

/// A local file, opened at the first write: an entry that cannot be decrypted creates none.
struct Sink<Open> {
    piece: PieceName,
    open: Open,
    to: Option<Box<dyn Write + Send>>,
}

impl<Open: Fn(PieceName) -> io::Result<Box<dyn Write + Send>>> Write for Sink<Open> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let to = match &mut self.to {
            Some(to) => to,
            none => none.insert((self.open)(self.piece)?),
        };
        to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.as_mut().map_or(Ok(()), |to| to.flush())
    }
}
