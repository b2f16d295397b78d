//! Measures how long the disk needs to make a small write durable. No durable commit can be faster.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use testkit::statistics::Percentiles;

/// The size of one append: about the size of a small transaction in the binlog.
const WRITE_BYTES: usize = 4096;
const WRITES: usize = 300;

/// Measures a series of appends to a file in `folder`, each followed by `fdatasync`. The result is in microseconds. `folder` is on the disk
/// of the compared setups.
pub(super) fn measure(folder: &Path) -> Result<Percentiles> {
    let path = folder.join("fdatasync-probe");
    let mut file =
        File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let block = [0x5a; WRITE_BYTES];
    let mut times_us = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let started = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        times_us.push(started.elapsed().as_secs_f64() * 1e6);
    }
    std::fs::remove_file(&path)?;
    Percentiles::of(times_us).context("nothing was written")
}
