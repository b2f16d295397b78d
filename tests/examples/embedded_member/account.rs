//! The acknowledged commits, one line each: microseconds since 1970, op id, GTID. The operating system has a line before its commit counts,
//! so that killing the process loses none.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use binlog_format::gtid::Gtid;
use raft_types::OpId;

/// See the module.
pub(crate) struct Account {
    file: File,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Written as [`OpId`] is.
    pub(crate) op_id: String,
    /// Written as [`Gtid`] is.
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

/// The lines of a file, without an unfinished last one.
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
