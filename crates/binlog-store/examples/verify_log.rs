//! Verifies the log directory of a member, which may be running, and prints what it contains: `cargo run -p binlog-store --example
//! verify_log -- DATA_DIR/log`.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use binlog_store::LogDirectory;

fn main() -> Result<()> {
    let path = PathBuf::from(env::args().nth(1).context("name the directory of a log")?);
    let log = LogDirectory::on_disk(&path)?;
    for entry in log.entries()? {
        let entry = entry?;
        let gtid = entry.gtid.map(|gtid| gtid.to_string());
        println!(
            "{}  {:?}  {} bytes in {} at {}  {}",
            entry.op_id,
            entry.kind,
            entry.payload_len,
            entry.file,
            entry.offset,
            gtid.unwrap_or_default(),
        );
    }
    let report = log.verify(&|_| ())?;
    println!(
        "{} entries in {} files are whole",
        report.entries, report.files
    );
    match report.damaged.first() {
        Some(damage) => bail!("{damage}"),
        None => Ok(()),
    }
}
