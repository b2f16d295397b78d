//! Prints the transactions of a binlog file: `cargo run -p binlog-format --example transactions -- FILE`.

use std::{env, fs};

use anyhow::{Context, Result, ensure};
use binlog_format::MAGIC;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::RawEvent;
use binlog_format::framing::{StreamItem, TransactionFramer};
use bytes::Bytes;

fn main() -> Result<()> {
    let file = env::args().nth(1).context("name a binlog file")?;
    let mut rest = Bytes::from(fs::read(&file).context(file)?);
    ensure!(rest.starts_with(&MAGIC), "this is no binlog file");
    let _ = rest.split_to(MAGIC.len());
    // This checksum algorithm applies until the first format description, with which a file begins.
    let mut framer = TransactionFramer::new(ChecksumAlgorithm::Crc32, 1 << 30);
    while let Some(event) = RawEvent::split_from(&mut rest)? {
        if let Some(StreamItem::Transaction(transaction)) = framer.push(&event)? {
            println!(
                "{}  {} events, {} bytes, ends at {}",
                transaction.gtid,
                transaction.event_count,
                transaction.payload.len(),
                transaction.end_position.offset,
            );
        }
    }
    ensure!(
        !framer.in_transaction(),
        "the file ends inside of a transaction"
    );
    Ok(())
}
