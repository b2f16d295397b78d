//! A primary with its follower, and the measurement at one rate.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::bounded_run::Running;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::paced::{Pace, Paced, PacedLoad};
use testkit::mysqld::workload::Workload;
use testkit::mysqld::{Mysqld, REPLICATION_PASSWORD, REPLICATION_USER, TableChecksums};
use testkit::statistics::Percentiles;

use super::Follower;
use super::search::{Point, Rate};
use crate::compare::servers::{Template, count};

/// Interval of the probe's updates. Without any lag, the age read is 10 ms on average.
const PROBE: Duration = Duration::from_millis(20);
/// Interval of the readings. It differs from the probe's interval, so that readings occur at all times between two updates.
const READING: Duration = Duration::from_millis(23);
/// Time from the first update, after the clients' logins, to the first reading.
const SETTLED: Duration = Duration::from_secs(1);
/// Time limit for the follower to catch up after the load, far above the expected time.
const LIMIT: Duration = Duration::from_secs(1800);

/// The data from which primaries and followers start.
pub(super) struct Bed {
    workload: Workload,
    template: Template,
}

/// A running primary and its follower.
pub(super) struct Pair<'a> {
    bed: &'a Bed,
    /// This applier's process. It is dropped first, so that it ends before the servers.
    _applier: Option<Running>,
    primary: Mysqld,
    follower: Mysqld,
}

impl Bed {
    pub(super) fn make(tree: &MysqlTree, workload: Workload) -> Result<Self> {
        let template = Template::of_followers(tree, |server| {
            server.client().sql(
                "CREATE DATABASE probe; CREATE TABLE probe.written (id INT PRIMARY KEY, at DATETIME(6) NOT NULL); \
                 INSERT INTO probe.written VALUES (1, SYSDATE(6))",
            )?;
            workload.prepare(server)
        })?;
        Ok(Self { workload, template })
    }

    /// Starts a primary, and a follower that replicates from it.
    pub(super) fn pair(
        &self,
        follower: Follower,
        workers: u32,
        witness: &Path,
    ) -> Result<Pair<'_>> {
        let primary = self.template.launch(1, &[])?;
        let of_threads = format!("--replica-parallel-workers={workers}");
        let server = self.template.launch(
            2,
            &[
                "--log-replica-updates=ON",
                "--replica-preserve-commit-order=ON",
                "--skip-replica-start",
                &of_threads,
            ],
        )?;
        let applier = match follower {
            Follower::Native => {
                server.replicate_from(&primary, false)?;
                None
            }
            Follower::Ours => {
                let mut command = Command::new(witness);
                command.env("WITNESS_FROM_PASSWORD", REPLICATION_PASSWORD);
                command.args(["apply", "--to-user", "root", "--workers"]);
                command.arg(workers.to_string()).arg("--to");
                command.arg(server.socket()).arg("--from-mysql");
                command.arg(primary.address().to_string());
                command.args(["--from-user", REPLICATION_USER]);
                Some(Running::start("witness apply", command, Vec::new())?)
            }
        };
        let pair = Pair {
            bed: self,
            _applier: applier,
            primary,
            follower: server,
        };
        pair.catch_up()?;
        Ok(pair)
    }
}

impl Pair<'_> {
    /// Puts a load of this rate on the primary for `duration`, and reads the lag at the same time. Then waits until the follower has caught
    /// up.
    pub(super) fn hold(
        &self,
        per_second: Rate,
        clients: u32,
        duration: Duration,
        seed: u32,
    ) -> Result<Point> {
        let before = self.executed()?;
        let began = Instant::now();
        let pace = |interval, from| Pace {
            interval: Some(interval),
            from,
            until: began + duration,
        };
        let write = "UPDATE probe.written SET at = SYSDATE(6) WHERE id = 1;\n";
        let read =
            "SELECT TIMESTAMPDIFF(MICROSECOND, at, SYSDATE(6)) FROM probe.written WHERE id = 1;\n";
        let writes = Paced::start(&self.primary.client(), pace(PROBE, began), move |_| {
            write.to_owned()
        })?;
        let reads = Paced::start(
            &self.follower.client(),
            pace(READING, began + SETTLED),
            move |_| read.to_owned(),
        )?;
        let load = PacedLoad {
            per_second,
            clients,
            duration,
            seed,
        };
        load.run(self.bed.workload, &self.primary)?;
        let took = began.elapsed();
        let committed = self.executed()? - before;
        writes.finish()?;
        let (answers, _) = reads.finish()?;
        let micros: Vec<f64> = answers
            .lines()
            .filter_map(|line| line.parse().ok())
            .collect();
        let lag_ms = Percentiles::of(micros.iter().map(|micros| micros / 1e3));
        let lag_ms = lag_ms.context("the follower was not read once")?;
        let ended = Instant::now();
        self.catch_up()?;
        let caught_up_after_s = ended.elapsed().as_secs_f64();
        ensure!(
            self.checksums(&self.primary)? == self.checksums(&self.follower)?,
            "the follower's tables differ from the primary's"
        );
        Ok(Point {
            asked: per_second,
            per_second: committed as f64 / took.as_secs_f64(),
            lag_ms,
            caught_up_after_s,
        })
    }

    fn executed(&self) -> Result<u64> {
        count(&self.primary.client().gtid_executed()?)
    }

    fn checksums(&self, server: &Mysqld) -> Result<TableChecksums> {
        server.client().table_checksums(self.bed.workload.schema())
    }

    fn catch_up(&self) -> Result<()> {
        let all = self.primary.client().gtid_executed()?;
        let wait = format!(
            "SELECT WAIT_FOR_EXECUTED_GTID_SET('{all}', {})",
            LIMIT.as_secs()
        );
        let waited = self.follower.client().sql_within(&wait, LIMIT)?;
        ensure!(waited.single()? == "0", "the follower did not catch up");
        Ok(())
    }
}
