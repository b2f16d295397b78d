//! Checks whether every member's log has every acknowledged commit, at the acknowledged op id.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use binlog_store::LogDirectory;
use clap::Args;

use super::account;

#[derive(Args)]
pub(crate) struct Options {
    /// Files of acknowledged commits
    #[arg(long, required = true)]
    acknowledged: Vec<PathBuf>,
    /// Data directories of all members, which must have stopped
    #[arg(long, required = true)]
    data_dir: Vec<PathBuf>,
}

/// Prints `{"acknowledged": n, "lost": [{"data_dir", "op_id", "gtid"}], "log_ends": [op id, …]}`.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut acknowledged = Vec::new();
    for path in &options.acknowledged {
        acknowledged.extend(account::read(path)?);
    }
    let (mut lost, mut ends) = (Vec::new(), Vec::new());
    for directory in &options.data_dir {
        let log = Log::read(directory)?;
        for line in &acknowledged {
            if log.gtids.get(&line.op_id) != Some(&line.gtid) {
                lost.push(serde_json::json!({
                    "data_dir": directory,
                    "op_id": line.op_id,
                    "gtid": line.gtid,
                }));
            }
        }
        ends.push(log.end);
    }
    let found = serde_json::json!({
        "acknowledged": acknowledged.len(),
        "lost": lost,
        "log_ends": ends,
    });
    println!("{found}");
    Ok(())
}

struct Log {
    /// The GTIDs of the transactions, by op id.
    gtids: BTreeMap<String, String>,
    end: String,
}

impl Log {
    fn read(directory: &Path) -> Result<Self> {
        let reading = || format!("reading the log in {}", directory.display());
        let log = LogDirectory::on_disk(directory).with_context(reading)?;
        let mut gtids = BTreeMap::new();
        let mut end = None;
        for record in log.entries().with_context(reading)? {
            let record = record.with_context(reading)?;
            end = Some(record.op_id);
            if let Some(gtid) = record.gtid {
                gtids.insert(record.op_id.to_string(), gtid.to_string());
            }
        }
        ensure!(end.is_some(), "the log in {} is empty", directory.display());
        let end = end.map(|op_id| op_id.to_string()).unwrap_or_default();
        Ok(Self { gtids, end })
    }
}
