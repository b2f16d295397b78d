//! Runs sysbench's `oltp_write_only` against a server, as the load of fault tests and of the commit latency comparison.
//!
//! It connects as `root` over the server's socket. Debian's sysbench uses MariaDB's client library, which loads `caching_sha2_password`
//! from its own plugin folder. For an unpacked tree, `$MARIADB_PLUGIN_DIR` must name this folder. Over a socket the password is sent in
//! clear text. Over TCP without TLS the library requests the server's RSA key itself. Both were tested with 9.7.4. TLS needs certificate
//! files for the client.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::bounded_run;
use crate::bounded_run::Running;
use crate::mysql_tree::MysqlTree;
use crate::mysqld::Mysqld;

/// How much longer than its duration a run may take before it counts as hung.
const GRACE: Duration = Duration::from_secs(60);
const PREPARE_LIMIT: Duration = Duration::from_secs(300);
const SCHEMA: &str = "sbtest";

/// The settings of a load.
#[derive(Clone, Debug)]
pub struct Sysbench {
    tree: MysqlTree,
    socket: PathBuf,
    /// Number of tables.
    pub tables: u32,
    /// Rows in each table.
    pub table_size: u32,
    /// Client threads.
    pub threads: u32,
    /// Duration of the run.
    pub duration: Duration,
    /// Ends the run earlier, after this many transactions.
    pub events: Option<u64>,
}

/// A running load. Dropping it kills sysbench.
#[derive(Debug)]
pub struct SysbenchRun {
    running: Running,
    limit: Duration,
}

impl Sysbench {
    /// Creates a small load on `server`: 4 tables of 10,000 rows, one thread, ten seconds. Rows are chosen uniformly, so that the commit is
    /// measured and not the wait for a few contended rows.
    #[must_use]
    pub fn on(server: &Mysqld) -> Self {
        Self {
            tree: server.tree().clone(),
            socket: server.socket(),
            tables: 4,
            table_size: 10_000,
            threads: 1,
            duration: Duration::from_secs(10),
            events: None,
        }
    }

    /// Returns the schema of the tables.
    #[must_use]
    pub fn schema() -> &'static str {
        SCHEMA
    }

    /// Sets the number of client threads.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the duration.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }

    /// Ends the run after this many transactions, if its duration has not passed before.
    #[must_use]
    pub fn events(mut self, events: u64) -> Self {
        self.events = Some(events);
        self
    }

    /// Sets the number of tables, and of rows in each.
    #[must_use]
    pub fn tables(mut self, tables: u32, rows: u32) -> Self {
        (self.tables, self.table_size) = (tables, rows);
        self
    }

    /// Creates the schema and the tables.
    ///
    /// # Errors
    /// If sysbench fails; with its message.
    pub fn prepare(&self, server: &Mysqld) -> Result<()> {
        server
            .client()
            .sql(&format!("CREATE DATABASE IF NOT EXISTS {SCHEMA}"))?;
        let mut command = self.command()?;
        command.arg("prepare");
        bounded_run::text("sysbench prepare", command, PREPARE_LIMIT).map(drop)
    }

    /// Runs the load to its end.
    ///
    /// # Errors
    /// If sysbench fails (with its message) or hangs.
    pub fn run(&self) -> Result<SysbenchReport> {
        self.start()?.finish()
    }

    /// Starts the load and returns immediately.
    ///
    /// # Errors
    /// If sysbench cannot be started.
    pub fn start(&self) -> Result<SysbenchRun> {
        let mut command = self.command()?;
        command.args(["--histogram=on", "run"]);
        let running = Running::start("sysbench", command, Vec::new())?;
        Ok(SysbenchRun {
            running,
            limit: self.duration + GRACE,
        })
    }

    fn command(&self) -> Result<Command> {
        let mut command = self
            .tree
            .optional("sysbench", self.tree.sysbench.as_ref())?;
        let scripts = self
            .tree
            .sysbench_scripts
            .as_ref()
            .context("the sysbench of this MySQL comes without oltp_write_only.lua")?;
        // The script includes other scripts of its folder by module name.
        command.env("LUA_PATH", scripts.join("?.lua"));
        if let Some(plugins) = &self.tree.client_plugin_dir {
            command.env("MARIADB_PLUGIN_DIR", plugins);
        }
        command.arg(scripts.join("oltp_write_only.lua")).args([
            format!("--tables={}", self.tables),
            format!("--table-size={}", self.table_size),
            format!("--threads={}", self.threads),
            format!("--time={}", self.duration.as_secs().max(1)),
            format!("--mysql-db={SCHEMA}"),
            "--mysql-user=root".into(),
            format!("--mysql-socket={}", self.socket.display()),
            "--rand-type=uniform".into(),
        ]);
        command.args(self.events.map(|events| format!("--events={events}")));
        Ok(command)
    }
}

impl SysbenchRun {
    /// True if the run has ended.
    ///
    /// # Errors
    /// If waiting for sysbench fails.
    pub fn is_finished(&mut self) -> Result<bool> {
        self.running.is_finished()
    }

    /// Waits for the end of the run.
    ///
    /// # Errors
    /// If sysbench failed (with its message) or hangs.
    pub fn finish(self) -> Result<SysbenchReport> {
        let done = self.running.finish(self.limit)?;
        // sysbench may print its failure on either stream.
        let said = format!(
            "{}\n{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
        let fatal: Vec<&str> = said
            .lines()
            .filter(|line| line.starts_with("FATAL"))
            .collect();
        anyhow::ensure!(
            done.status.success() && fatal.is_empty(),
            "sysbench failed ({}): {}",
            done.status,
            fatal.join("; ")
        );
        SysbenchReport::parse(&said)
    }
}

// A parser of the report that sysbench 1.0 prints at the end of a run. Pure.

/// The result of one run. Latencies are of whole transactions, in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct SysbenchReport {
    /// The total number of transactions.
    pub transactions: u64,
    /// Transactions per second.
    pub transactions_per_second: f64,
    /// The mean latency.
    pub latency_mean_ms: f64,
    /// The median. Percentiles are from sysbench's histogram, whose steps are below 2 %.
    pub latency_p50_ms: f64,
    /// 95 % of the latencies are at most this long.
    pub latency_p95_ms: f64,
    /// 99 % of the latencies are at most this long.
    pub latency_p99_ms: f64,
    /// The longest latency.
    pub latency_max_ms: f64,
}

impl SysbenchReport {
    /// Reads the output of a run with `--histogram=on`.
    ///
    /// # Errors
    /// If a line is missing: the run was cut short, or the version of sysbench differs.
    pub fn parse(text: &str) -> Result<Self> {
        let histogram: Vec<(f64, u64)> = text.lines().filter_map(bucket).collect();
        let (transactions, transactions_per_second) = count_and_rate(text, "transactions:")?;
        ensure!(transactions > 0, "sysbench finished no transaction at all");
        let percentile =
            |hundredth| percentile(&histogram, hundredth).context("sysbench printed no histogram");
        Ok(Self {
            transactions,
            transactions_per_second,
            latency_mean_ms: number(text, "avg:")?,
            latency_p50_ms: percentile(50)?,
            latency_p95_ms: percentile(95)?,
            latency_p99_ms: percentile(99)?,
            latency_max_ms: number(text, "max:")?,
        })
    }
}

/// Parses a line of the histogram, such as `       0.677 |************************                 130`.
fn bucket(line: &str) -> Option<(f64, u64)> {
    let (value, rest) = line.split_once('|')?;
    let count = rest.trim_start_matches(|c: char| c == '*' || c.is_whitespace());
    Some((value.trim().parse().ok()?, count.trim().parse().ok()?))
}

/// Returns the upper bound of the percentile's bucket: [`nearest_rank`](crate::statistics::nearest_rank) of counted values.
fn percentile(histogram: &[(f64, u64)], hundredth: u64) -> Option<f64> {
    let all: u64 = histogram.iter().map(|(_, count)| count).sum();
    let wanted = (all * hundredth).div_ceil(100);
    let mut seen = 0;
    histogram.iter().find_map(|(value, count)| {
        seen += count;
        (seen >= wanted).then_some(*value)
    })
}

/// `[ 1s ] thds: 2 tps: 2395.91 qps: … err/s: 5.99 reconn/s: 0.00`
/// `    transactions:                        4978   (2486.38 per sec.)`
fn count_and_rate(text: &str, label: &str) -> Result<(u64, f64)> {
    let (count, rate) = rest_of(text, label)?
        .split_once('(')
        .with_context(|| format!("sysbench's {label} has no rate"))?;
    let rate = rate.split_whitespace().next().unwrap_or_default();
    Ok((count.trim().parse()?, rate.parse()?))
}

fn number(text: &str, label: &str) -> Result<f64> {
    rest_of(text, label)?
        .trim()
        .parse()
        .with_context(|| format!("sysbench's {label} is no number"))
}

fn rest_of<'a>(text: &'a str, label: &str) -> Result<&'a str> {
    text.lines()
        .find_map(|line| line.trim_start().strip_prefix(label))
        .with_context(|| format!("sysbench printed no line `{label}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::nearest_rank;

    const OUTPUT: &str = "\
[ 1s ] thds: 2 tps: 95.91 qps: 575.42 (r/w/o: 0.00/383.62/191.81) lat (ms,95%): 1.25 err/s: 5.99 reconn/s: 0.00
[ 2s ] thds: 2 tps: 0.00 qps: 0.00 (r/w/o: 0.00/0.00/0.00) lat (ms,95%): 0.00 err/s: 0.00 reconn/s: 0.00
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       0.500 |**                                       49
       1.000 |**************************************** 45
       2.000 |*                                        5
      40.000 |                                         1
 
SQL statistics:
    queries performed:
        read:                            0
        total:                           600
    transactions:                        100    (50.00 per sec.)
    queries:                             600    (300.00 per sec.)
    ignored errors:                      6      (3.00 per sec.)
    reconnects:                          1      (0.50 per sec.)

General statistics:
    total time:                          2.0017s

Latency (ms):
         min:                                    0.37
         avg:                                    1.13
         max:                                   39.43
         95th percentile:                        1.25
         sum:                                 1996.28
";

    #[test]
    fn a_report_is_read() {
        let report = SysbenchReport::parse(OUTPUT).unwrap();
        assert_eq!(report.transactions, 100);
        assert_eq!(report.transactions_per_second, 50.0);
        assert_eq!(
            (report.latency_mean_ms, report.latency_max_ms),
            (1.13, 39.43)
        );
        assert_eq!(
            (
                report.latency_p50_ms,
                report.latency_p95_ms,
                report.latency_p99_ms
            ),
            (1.0, 2.0, 2.0)
        );
    }

    #[test]
    fn a_percentile_of_a_histogram_is_that_of_its_values() {
        let histogram: Vec<_> = OUTPUT.lines().filter_map(bucket).collect();
        let values = histogram.iter().flat_map(|(value, count)| {
            let count = usize::try_from(*count).unwrap();
            std::iter::repeat_n(*value, count)
        });
        let values: Vec<f64> = values.collect();
        for hundredth in 1..=100 {
            let expected = nearest_rank(&values, hundredth);
            assert_eq!(percentile(&histogram, hundredth as u64), expected);
        }
    }

    #[test]
    fn a_report_that_was_cut_short_is_an_error() {
        for line in OUTPUT.lines().filter(|line| {
            ["transactions:", "avg:"]
                .iter()
                .any(|label| line.contains(label))
        }) {
            assert!(
                SysbenchReport::parse(&OUTPUT.replace(line, "")).is_err(),
                "without {line:?}"
            );
        }
        let (before, _) = OUTPUT.split_once("       0.500").unwrap();
        let (_, after) = OUTPUT.split_once("SQL statistics").unwrap();
        assert!(
            SysbenchReport::parse(&format!("{before}SQL statistics{after}")).is_err(),
            "without the histogram"
        );
        assert!(
            SysbenchReport::parse(&OUTPUT.replace("        100    ", "        0      ")).is_err(),
            "without a transaction"
        );
    }
}
