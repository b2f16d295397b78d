//! `witness archive list`: an archive's contents, from its names and manifests.

use std::collections::BTreeMap;
use std::time::Duration;

use archive::base_backup::survey;
use archive::manifest::Manifest;
use archive::name::PieceName;
use archive::reading::ArchivedLog;
use binlog_store::FileNumber;
use raft_types::RingId;
use serde::Serialize;
use serde_json::json;

use super::findings::{
    Damage, Range, bases_text, fault_lines, gap_before, gaps, listed_bases, says_nothing,
};
use super::place::PlaceArgs;
use crate::terminal::{Attempt, Exit, Format, Table, merge, print};

/// The archived part of a log file.
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
    /// UTC time of its first and last commits.
    first_time: Option<String>,
    last_time: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct Listing {
    ring: Option<RingId>,
    /// None with base backups only.
    history: Option<u32>,
    files: Vec<ArchivedFile>,
    gaps: Vec<Range>,
    /// Start of the archive, and the file before which it was pruned, if any.
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
    merge(&mut json, &listed_bases(&bases));
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
    /// The archived log.
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
