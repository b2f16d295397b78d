//! A file of acknowledged commits, one line each: microseconds since 1970, op id, GTID. A line is written to the operating system before
//! its commit counts as acknowledged, so killing the process loses no line.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use binlog_format::gtid::Gtid;
use raft_types::OpId;

/// A file of acknowledged commits, being written.
pub(crate) struct Account {
    file: File,
}

/// One acknowledged commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// The op id as text, as [`OpId`] writes it.
    pub(crate) op_id: String,
    /// The GTID as text, as [`Gtid`] writes it.
    pub(crate) gtid: String,
}

impl Account {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file })
    }

    /// Records one commit with the current time.
    pub(crate) fn add(&mut self, op_id: OpId, gtid: Gtid) -> Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        let line = format!("{now} {op_id} {gtid}\n");
        self.file.write_all(line.as_bytes())?;
        Ok(())
    }
}

/// Reads the lines of a file, without an incomplete last line.
pub(crate) fn read(path: &Path) -> Result<Vec<Line>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole.lines().map(|line| {
        let mut words = line.split(' ').skip(1);
        match (words.next(), words.next(), words.next()) {
            (Some(op_id), Some(gtid), None) => Ok(Line {
                op_id: op_id.to_owned(),
                gtid: gtid.to_owned(),
            }),
            _ => anyhow::bail!("{}: not a line of an account: {line}", path.display()),
        }
    });
    lines.collect()
}
