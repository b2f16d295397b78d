//! Restores transactions that were cut off although mysqld's engines had committed them, because they were released without the ring.
//! mysqld then starts with rows whose transactions are in no binlog file. These transactions are found after the start and restored before
//! the next start. Then the ring receives them, or reports them as errant.
//!
//! ```text
//! note the cut ─► cut ─► start ─► its GTIDs in gtid_purged? ─no─► drop the note
//!                                          │yes: note them, kill
//!                                          ▼
//!                        append them to their file ─► drop later files from the index ─► start
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Connection, LinkError};
use raft_types::MAX_TRANSACTION_BYTES;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::binlog_place::BinlogPlace;
use crate::durable_file;
use crate::tail_trim::cut::{TrimmedTail, lock_data};
use crate::tail_trim::last_file::{Beginning, LastFile};
use crate::tail_trim::plan::Plan;

const FILE: &str = "mysqld-cut.json";
/// The pause between two attempts to query a starting mysqld.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// The last cut, stored until the following start of mysqld was checked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CutNote {
    tail: TrimmedTail,
    /// Transactions of the tail that the engines had committed; `None` before the check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    committed: Option<String>,
}

impl CutNote {
    pub(super) fn new(tail: TrimmedTail) -> Self {
        let committed = None;
        Self { tail, committed }
    }

    fn load(member_dir: &Path) -> io::Result<Option<Self>> {
        durable_file::load(&member_dir.join(FILE))
    }

    /// Stores the note. Durable on return.
    pub(super) fn store(&self, member_dir: &Path) -> io::Result<()> {
        durable_file::store(&member_dir.join(FILE), self)
    }

    fn drop_from(member_dir: &Path) -> io::Result<()> {
        durable_file::remove(&member_dir.join(FILE))
    }
}

/// Why a starting mysqld must be killed and restarted.
#[derive(Debug, Error)]
pub enum CheckStartError {
    /// The note of a cut cannot be read or stored.
    #[error("{}: {}", FILE, .0)]
    Note(#[from] io::Error),
    /// The engines had committed these transactions, which were cut off.
    #[error(
        "{0} was committed in mysqld without the ring, so that cutting it off the binlog does not undo it: the binlog gets it back, and \
         mysqld starts again"
    )]
    Committed(String),
}

/// Checks whether a starting mysqld has transactions of the last cut. If so, records them and returns an error: mysqld must be killed and
/// restarted, and the restart restores the transactions.
///
/// # Errors
/// [`CheckStartError`].
pub async fn check_start(
    member_dir: &Path,
    account: &ConnectOptions,
) -> Result<(), CheckStartError> {
    let note = CutNote::load(member_dir)?;
    let Some(mut note) = note.filter(|note| note.committed.is_none()) else {
        return Ok(());
    };
    let purged = loop {
        match purged(account).await {
            Ok(purged) => break purged,
            Err(_) => tokio::time::sleep(ASK_EVERY).await,
        }
    };
    // If a GTID was free after the cut and was assigned again, its new transaction is in a file, so it is not in `gtid_purged`.
    let cut: GtidSet = note.tail.gtids.parse().unwrap_or_default();
    let committed = purged.intersection(&cut);
    if committed.is_empty() {
        return Ok(CutNote::drop_from(member_dir)?);
    }
    let gtids = committed.to_string().replace('\n', "");
    note.committed = Some(gtids.clone());
    note.store(member_dir)?;
    Err(CheckStartError::Committed(gtids))
}

async fn purged(account: &ConnectOptions) -> Result<GtidSet, LinkError> {
    let mut connection = Connection::open_with_own_settings(account).await?;
    let answer = connection.query("SELECT @@GLOBAL.gtid_purged").await?;
    connection.close().await;
    let purged = answer.value().and_then(|value| value.parse().ok());
    Ok(purged.unwrap_or_default())
}

/// Restores transactions of the last cut that the engines have, if any. May be repeated after a crash.
///
/// # Errors
/// When a later file has transactions; and I/O errors.
pub fn restore(place: &BinlogPlace, member_dir: &Path) -> io::Result<Option<String>> {
    let Some(note) = CutNote::load(member_dir)? else {
        return Ok(None);
    };
    let Some(committed) = note.committed else {
        return Ok(None);
    };
    let _locked = lock_data(&place.data_dir)?;
    let tail = note.tail;
    let refused = |why: &str| refused(&tail.from, &committed, why);
    let files = place.files()?;
    let at = files.iter().position(|file| *file == tail.from);
    let Some((_, later)) = at.and_then(|at| files.get(at..)?.split_first()) else {
        return Err(refused("its index no longer lists the file"));
    };
    for file in later {
        let mut reads = LastFile::open(file)?;
        if let Beginning::Header(header) = reads.beginning()?
            && !reads.gtids(&header)?.is_empty()
        {
            return Err(refused("a later file has transactions"));
        }
    }
    append(&tail, member_dir, &committed)?;
    shorten_index(place.index(), later)?;
    for file in later {
        fs::remove_file(file)?;
    }
    CutNote::drop_from(member_dir)?;
    Ok(Some(committed))
}

fn refused(file: &Path, gtids: &str, why: &str) -> io::Error {
    io::Error::other(format!(
        "{gtids}, which mysqld has and the ring lacks, cannot be restored in {}: {why}; reprovision this mysqld: `witness \
         reprovision MEMBER --from`",
        file.display()
    ))
}

/// Appends the transactions up to the last one that was committed, because engines commit in the order of the binlog.
fn append(tail: &TrimmedTail, member_dir: &Path, committed: &str) -> io::Result<()> {
    let path = TrimmedTail::directory(member_dir).join(&tail.kept_as);
    let refused = |why: &str| refused(&tail.from, committed, why);
    let mut kept = LastFile::open(&path)?;
    let Beginning::Header(header) = kept.beginning()? else {
        return Err(refused("what was cut off is damaged"));
    };
    let committed_set: GtidSet = committed.parse().map_err(io::Error::other)?;
    let stays = committed_set.union(&header.previous);
    // The statements were already checked when they were cut off.
    let end = match kept.plan(&header, &stays, None, false, MAX_TRANSACTION_BYTES)? {
        Plan::Cut { at, .. } => at.0,
        Plan::Keep(_) => header.end.0 + tail.bytes,
        Plan::Refuse(refusal) => return Err(refused(&refusal.to_string())),
    };
    let mut from = File::open(&path)?;
    from.seek(SeekFrom::Start(header.end.0))?;
    let mut to = OpenOptions::new().write(true).open(&tail.from)?;
    to.set_len(tail.offset.0)?;
    to.seek(SeekFrom::Start(tail.offset.0))?;
    let bytes = end.saturating_sub(header.end.0);
    if io::copy(&mut io::Read::take(&mut from, bytes), &mut to)? != bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    to.flush()?;
    to.sync_all()
}

/// Removes the last lines of the index in place, so that mysqld can still write the file.
fn shorten_index(index: &Path, later: &[PathBuf]) -> io::Result<()> {
    let text = fs::read_to_string(index)?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let kept = lines.len().saturating_sub(later.len());
    let bytes: usize = lines.iter().take(kept).map(|line| line.len()).sum();
    let file = OpenOptions::new().write(true).open(index)?;
    file.set_len(bytes as u64)?;
    file.sync_all()
}
