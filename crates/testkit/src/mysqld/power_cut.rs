//! A cut of the power under a mysqld: it is killed, and what InnoDB had not forced of its redo log is gone.

use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Mysqld;

/// The redo log is written in blocks of so many bytes.
const BLOCK: u64 = 512;
/// Blocks at the begin of a redo log file that hold none of the log. The first says, from its byte 8 on, where the file begins.
const HEADER_BLOCKS: u64 = 4;

impl Mysqld {
    /// Kills the server, and takes away what it had written to its redo log without forcing it: what a system that loses its
    /// power may lose. Data files are left as they are, since InnoDB forces the log before the pages that it describes.
    ///
    /// # Errors
    /// When the server does not say how far its log is forced, or the log cannot be cut.
    pub fn cut_power(&mut self) -> Result<()> {
        let forced: u64 = self
            .client()
            .status("Innodb_redo_log_flushed_to_disk_lsn")?
            .parse()?;
        self.kill()?;
        let redo = self.data_dir().join("#innodb_redo");
        for entry in fs::read_dir(&redo).with_context(|| format!("reading {}", redo.display()))? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().ends_with("_tmp") {
                forget_beyond(&entry.path(), forced)?;
            }
        }
        Ok(())
    }
}

/// Zeroes the blocks of a redo log file that hold nothing before `forced`.
fn forget_beyond(path: &Path, forced: u64) -> Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    let mut header = [0; 16];
    file.read_exact(&mut header)?;
    let start = u64::from_be_bytes(header[8..].try_into()?);
    ensure!(start % BLOCK == 0, "{} begins oddly", path.display());
    let kept = forced.saturating_sub(start).div_ceil(BLOCK);
    let zeroes = vec![0; 64 * BLOCK as usize];
    let mut at = (HEADER_BLOCKS + kept) * BLOCK;
    while at < length {
        let count = (length - at).min(zeroes.len() as u64) as usize;
        file.write_all_at(&zeroes[..count], at)?;
        at += count as u64;
    }
    file.sync_all()?;
    Ok(())
}
