//! Measures one durable write without any protocol, the second part of the physical limit.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use anyhow::{Context, Result};
use testkit::figures::target_folder;
use testkit::log_entries;
use testkit::statistics::Percentiles;

use super::load::TEXT_BYTES;

const WRITES: usize = 200;

/// Returns the median time to append a transaction's bytes to a file and call `fdatasync`, in
/// milliseconds.
pub(crate) fn median_ms() -> Result<f64> {
    let folder = tempfile::tempdir_in(target_folder())?;
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(folder.path().join("plain"))?;
    let bytes = log_entries::transaction_events(0, TEXT_BYTES);
    let mut times = Vec::with_capacity(WRITES);
    for number in 0..WRITES {
        let begun = Instant::now();
        file.write_all_at(&bytes, (number * bytes.len()) as u64)?;
        file.sync_data()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Percentiles::of(times).context("nothing was written")?.p50)
}
