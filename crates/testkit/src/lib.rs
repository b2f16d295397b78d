//! Shared code of tests, benches, `cargo xtask` and the demonstration; not part of the product.
//!
//! The mysqld fixtures (a tree of MySQL's programs, servers started from it, sysbench, figures) depend on no crate of this workspace.
//! Faulty implementations of this workspace's interfaces need the feature `storage`, which is on by default. A network between members in
//! one process needs the feature `network`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub mod bounded_run;
pub mod cluster;
pub mod debian_package;
#[cfg(feature = "storage")]
pub mod disk;
pub mod distance;
pub mod documentation;
pub mod figures;
#[cfg(feature = "storage")]
pub mod log_entries;
#[cfg(feature = "memory-database")]
pub mod memory_database;
pub mod mysql_tree;
pub mod mysqld;
#[cfg(feature = "network")]
pub mod network;
#[cfg(feature = "object-storage")]
pub mod object_storage;
pub mod other_clock;
mod owner;
pub mod ports;
pub mod real_disks;
mod signals;
pub mod statistics;
pub mod wait;

/// Returns a flag that SIGINT (Ctrl-C) and SIGTERM set instead of ending the process. A program that checks the flag can end cleanly, and
/// remove the processes and namespaces that it created.
///
/// # Errors
/// If the signals cannot be handled.
pub fn stop_on_interrupt() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

/// Returns the root of the checkout in which this crate was built.
#[must_use]
pub fn checkout() -> std::path::PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}
