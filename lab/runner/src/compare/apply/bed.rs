//! The log of one workload, and the measurement of one applier on this log.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use testkit::bounded_run;
use testkit::figures::peak_memory;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::workload::{Load, Workload};
use testkit::mysqld::{Mysqld, REPLICATION_PASSWORD, REPLICATION_USER, TableChecksums};
use testkit::wait::try_eventually;

use super::contender::{Applier, Contender, Policy};
use crate::compare::servers::{Template, count, executed_since, settings_of};

/// Time limit for each step, far above the expected time.
const LIMIT: Duration = Duration::from_secs(900);
/// Settings that decide the durability of a target's commits. They are recorded with the figures.
const RECORDED_SETTINGS: [&str; 5] = [
    "innodb_flush_log_at_trx_commit",
    "innodb_buffer_pool_size",
    "sync_binlog",
    "replica_preserve_commit_order",
    "version",
];

/// The configuration of the targets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Targets {
    /// True if this applier makes the targets write applied transactions into their binlogs.
    pub(super) binlog: bool,
    /// True if the targets sync their logs once a second instead of at each commit.
    pub(super) relaxed: bool,
}

/// The source of a log, and the data from which its targets start.
pub(super) struct Bed {
    workload: Workload,
    source: Mysqld,
    template: Template,
    /// The GTIDs of the log to apply.
    gtids: String,
    transactions: u64,
    checksums: TableChecksums,
    targets: Targets,
}

/// The result of one measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) transactions_per_second: f64,
    /// The peak memory of the target, plus the peak memory of this applier.
    pub(super) peak_memory_mib: f64,
}

/// The part of the output of `witness apply` that is read.
#[derive(Debug, Deserialize)]
struct Applied {
    transactions: u64,
    seconds: f64,
    peak_memory_bytes: u64,
}

impl Bed {
    /// Creates the tables, copies the data for the targets, and writes the log.
    pub(super) fn make(
        tree: &MysqlTree,
        workload: Workload,
        load: Load,
        targets: Targets,
    ) -> Result<Self> {
        let template = Template::of_followers(tree, |server| workload.prepare(server))?;
        let source = template.launch(1, &[])?;
        let client = source.client();
        let before = client.gtid_executed()?;
        workload.run(&source, load)?;
        client.sql("FLUSH BINARY LOGS")?;
        let gtids = executed_since(&client, &before)?;
        let checksums = client.table_checksums(workload.schema())?;
        Ok(Self {
            workload,
            template,
            transactions: count(&gtids)?,
            gtids,
            checksums,
            source,
            targets,
        })
    }

    /// The values of the recorded settings, read from a target.
    pub(super) fn settings(&self) -> Result<Value> {
        let target = self.target(Contender {
            applier: Applier::Native,
            workers: 1,
        })?;
        settings_of(&target.client(), &RECORDED_SETTINGS)
    }

    /// Starts a target. It has a binlog, because each follower has one.
    fn target(&self, contender: Contender) -> Result<Mysqld> {
        let logged = match contender.applier {
            Applier::NativeUnlogged => "--log-replica-updates=OFF",
            Applier::Native | Applier::Own(_) => "--log-replica-updates=ON",
        };
        let workers = format!("--replica-parallel-workers={}", contender.workers);
        let mut arguments = vec![
            logged,
            &workers,
            "--replica-preserve-commit-order=ON",
            "--skip-replica-start",
        ];
        if self.targets.relaxed {
            arguments.extend(["--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0"]);
        }
        self.template.launch(2, &arguments)
    }

    /// Applies the log to a fresh target.
    pub(super) fn measure(&self, contender: Contender, witness: &Path) -> Result<Outcome> {
        let target = self.target(contender)?;
        let (seconds, own_memory) = match contender.applier {
            Applier::Native | Applier::NativeUnlogged => (self.native(&target)?, 0),
            Applier::Own(policy) => {
                let applied = self.own(&target, witness, policy, contender.workers)?;
                ensure!(
                    applied.transactions == self.transactions,
                    "{} of {} transactions were applied",
                    applied.transactions,
                    self.transactions
                );
                (applied.seconds, applied.peak_memory_bytes)
            }
        };
        let checksums = target.client().table_checksums(self.workload.schema())?;
        ensure!(
            checksums == self.checksums,
            "the tables differ from the source's"
        );
        let missing = format!(
            "SELECT GTID_SUBTRACT('{}', @@GLOBAL.gtid_executed)",
            self.gtids
        );
        let missing = target.client().value(&missing)?;
        ensure!(missing.is_empty(), "the target lacks {missing}");
        let server = target.process_id().context("the target has ended")?;
        let memory = peak_memory(server)? + own_memory;
        Ok(Outcome {
            transactions_per_second: self.transactions as f64 / seconds,
            peak_memory_mib: memory as f64 / f64::from(1 << 20),
        })
    }

    /// Returns the seconds that MySQL's own replica needs.
    fn native(&self, target: &Mysqld) -> Result<f64> {
        let client = target.client();
        client.sql(&format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{}', SOURCE_PORT = {}, SOURCE_USER = '{REPLICATION_USER}', \
             SOURCE_PASSWORD = '{REPLICATION_PASSWORD}', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1; \
             START REPLICA IO_THREAD",
            self.source.address().ip(),
            self.source.address().port(),
        ))?;
        let received = format!(
            "SELECT COALESCE(MAX(GTID_SUBSET('{}', received_transaction_set)), 0) \
             FROM performance_schema.replication_connection_status",
            self.gtids
        );
        let is_full = || Ok(client.value(&received)? == "1");
        try_eventually("the relay log has everything", LIMIT, is_full)?;
        let wait = format!(
            "START REPLICA SQL_THREAD; SELECT WAIT_FOR_EXECUTED_GTID_SET('{}', {})",
            self.gtids,
            LIMIT.as_secs()
        );
        let began = Instant::now();
        let waited = client.sql_within(&wait, LIMIT)?;
        let seconds = began.elapsed().as_secs_f64();
        ensure!(
            waited.single()? == "0",
            "the native replica did not finish in time"
        );
        Ok(seconds)
    }

    /// Runs this applier in a separate process.
    fn own(
        &self,
        target: &Mysqld,
        witness: &Path,
        policy: Policy,
        workers: u32,
    ) -> Result<Applied> {
        let mut command = Command::new(witness);
        command.args(["--output", "json", "apply", "--to-user", "root"]);
        command.arg("--to").arg(target.socket());
        command.args(policy.arguments());
        command.args(["--workers", &workers.to_string()]);
        if self.targets.binlog {
            command.arg("--target-binlog");
        }
        command.args(self.source.binlog_files()?);
        let text = bounded_run::text("witness apply", command, LIMIT)?;
        serde_json::from_str(&text).with_context(|| format!("unexpected report: {text}"))
    }
}
