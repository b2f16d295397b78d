//! What tests, benches, `cargo xtask` and the demonstration share; no part of the product.
//!
//! Two halves. The mysqld fixtures (a tree of MySQL's programs, servers started from it, sysbench, figures) depend on
//! no crate of ours. The faulty doubles of our own seams are behind the feature `storage`, on by default; a network between
//! members in one process is behind `network`.

pub mod bounded_run;
pub mod cluster;
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
mod owner;
pub mod ports;
pub mod real_disks;
pub mod statistics;
pub mod wait;

/// The root of the checkout that this crate was built in.
#[must_use]
pub fn checkout() -> std::path::PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}
