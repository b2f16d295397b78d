//! A mysqld with a ring of processes around it, and the table of acknowledged rows.

use std::time::Duration;

use anyhow::Result;
use testkit::cluster::{Cluster, ClusterOptions, Profile, witness_binary};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;
use testkit::mysqld::sysbench::{Sysbench, SysbenchRun};

use crate::writers::Writers;
use crate::written_rows::make_rows;

/// The number of commits that shows that writes continue.
const SOME: usize = 20;
const SOON: Duration = Duration::from_secs(30);

/// A ring around a mysqld: the starting point of most tests.
pub struct Scene {
    /// The ring. It is declared before the server, because it must be dropped first.
    pub ring: Cluster,
    /// The primary.
    pub server: Mysqld,
}

impl Scene {
    /// Starts a ring around a fresh mysqld, with the default options of a test, changed by
    /// `adjust`.
    ///
    /// # Errors
    /// If the ring does not start; the message contains the members' last log lines.
    pub fn launch(adjust: impl FnOnce(ClusterOptions) -> ClusterOptions) -> Result<Self> {
        let server = Mysqld::launch(&MysqlTree::require())?;
        let options = adjust(ClusterOptions::around(&server));
        let ring = Cluster::launch(&witness_binary(Profile::Dev)?, options)?;
        make_rows(&server)?;
        Ok(Self { ring, server })
    }

    /// Starts sysbench in the background, on prepared tables.
    ///
    /// # Errors
    /// If sysbench fails; with its message.
    pub fn start_load(&self, threads: u32, duration: Duration) -> Result<SysbenchRun> {
        let load = Sysbench::on(&self.server)
            .tables(2, 1000)
            .threads(threads)
            .duration(duration);
        load.prepare(&self.server)?;
        load.start()
    }

    /// Starts writers, and waits until their first commits are acknowledged.
    ///
    /// # Errors
    /// If no commit is acknowledged.
    pub fn start_writers(&self, writers: u64) -> Result<Writers> {
        let writers = Writers::at(&self.server, writers, 0);
        writers.wait_for_more(SOME, SOON)?;
        Ok(writers)
    }
}
