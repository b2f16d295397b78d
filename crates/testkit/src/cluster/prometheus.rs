//! A real Prometheus that scrapes a ring and evaluates the alerts, and `promtool`, which checks the files of
//! rules and alerts.
//!
//! The programs on the PATH are used, or those of Debian's package.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::bounded_run::{self, KilledOnDrop};
use crate::cluster::http::http_get_query;
use crate::debian_package;
use crate::mysql_tree::find_on_path;
use crate::ports::free_address;
use crate::wait::try_eventually;

const CHECK_LIMIT: Duration = Duration::from_secs(300);
const START_LIMIT: Duration = Duration::from_secs(30);

/// Locations of the two programs.
#[derive(Clone, Debug)]
pub struct PrometheusPrograms {
    prometheus: PathBuf,
    promtool: PathBuf,
}

impl PrometheusPrograms {
    /// Finds the two programs on the PATH, or unpacks them.
    ///
    /// # Errors
    /// If neither this machine nor its Debian archive has them; the message says what to do.
    pub fn provide() -> Result<Self> {
        if let (Some(prometheus), Some(promtool)) =
            (find_on_path("prometheus"), find_on_path("promtool"))
        {
            return Ok(Self {
                prometheus,
                promtool,
            });
        }
        let folder = debian_package::unpacked("prometheus").context(
            "without an archive, install `prometheus` so that it and `promtool` are on the PATH",
        )?;
        Ok(Self {
            prometheus: folder.join("usr/bin/prometheus"),
            promtool: folder.join("usr/bin/promtool"),
        })
    }

    /// Runs `promtool` in a folder, and returns its output.
    ///
    /// # Errors
    /// If `promtool` finds an error; with its output.
    pub fn check(&self, folder: &Path, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.promtool);
        command.args(arguments).current_dir(folder);
        let done = bounded_run::run("promtool", command, Vec::new(), CHECK_LIMIT)?;
        // promtool prints failed rules on standard output.
        ensure!(
            done.status.success(),
            "promtool {}: {}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
        done.into_text("promtool")
    }
}

/// A running Prometheus. Dropping it kills the process.
#[derive(Debug)]
pub struct Prometheus {
    _child: KilledOnDrop,
    home: TempDir,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes these members twice a second, and evaluates a file of rules.
    ///
    /// # Errors
    /// If Prometheus does not start; with its log.
    pub fn start(
        programs: &PrometheusPrograms,
        members: &[SocketAddr],
        rules: &Path,
    ) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("prometheus-").tempdir()?;
        let address = free_address()?;
        let targets: Vec<String> = members.iter().map(|member| format!("{member}")).collect();
        // The configuration file is YAML, of which JSON is a subset.
        let configuration = serde_json::json!({
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [rules],
            "scrape_configs": [{"job_name": "witness", "static_configs": [{"targets": targets}]}],
        });
        let file = home.path().join("prometheus.yml");
        fs::write(&file, configuration.to_string())?;
        let mut command = Command::new(&programs.prometheus);
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!(
            "--storage.tsdb.path={}",
            home.path().join("data").display()
        ));
        command.arg(format!("--web.listen-address={address}"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(home.path().join("stderr"))?);
        let child = command.spawn().context("prometheus does not start")?;
        let running = Self {
            _child: KilledOnDrop(child),
            home,
            address,
        };
        let is_up = || running.get("/-/ready", &[]).map(|_| true).or(Ok(false));
        try_eventually("prometheus is ready", START_LIMIT, is_up)
            .with_context(|| running.words())?;
        Ok(running)
    }

    /// Returns the current samples of a query, each with `metric` and `value`.
    ///
    /// # Errors
    /// If the query is refused; with the reason.
    pub fn query(&self, query: &str) -> Result<Vec<Value>> {
        let answer = self.json("/api/v1/query", &[("query", query)])?;
        let samples = answer["result"].as_array().cloned();
        samples.with_context(|| format!("{query}: {answer}"))
    }

    /// Returns the names of all metrics that Prometheus has scraped or recorded.
    ///
    /// # Errors
    /// If Prometheus does not answer.
    pub fn metric_names(&self) -> Result<Vec<String>> {
        let answer = self.json("/api/v1/label/__name__/values", &[])?;
        Ok(serde_json::from_value(answer)?)
    }

    /// Returns the names of the firing alerts.
    ///
    /// # Errors
    /// If Prometheus does not answer.
    pub fn firing(&self) -> Result<Vec<String>> {
        let answer = self.json("/api/v1/alerts", &[])?;
        let alerts = answer["alerts"].as_array().into_iter().flatten();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        let names = firing.filter_map(|alert| alert["labels"]["alertname"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// Returns Prometheus's log.
    #[must_use]
    pub fn words(&self) -> String {
        fs::read_to_string(self.home.path().join("stderr")).unwrap_or_default()
    }

    fn json(&self, path: &str, query: &[(&str, &str)]) -> Result<Value> {
        let body = self.get(path, query)?;
        let mut answer: Value = serde_json::from_str(&body)?;
        Ok(answer["data"].take())
    }

    fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<String> {
        let answer = http_get_query(self.address, path, query)?;
        if answer.status != 200 {
            bail!("{path} {query:?}: {} {}", answer.status, answer.body);
        }
        Ok(answer.body)
    }
}
