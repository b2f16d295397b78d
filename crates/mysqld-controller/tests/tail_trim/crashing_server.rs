//! A mysqld with commits that wait for a ring in memory. It is killed, and restarted after its start guard was called.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use binlog_format::MAGIC;
use binlog_format::event::{EventHeader, EventType, HEADER_LEN};
use mysql_link::{ConnectOptions, Endpoint};
use mysqld_controller::ingest::{Ingest, IngestOptions, IngestState, IngestStatus};
use mysqld_controller::status::Readiness;
use mysqld_controller::{ProtectionStart, TailTrim};
use mysqld_server::settings::Requirements;
use mysqld_server::supervisor::{ServerCommand, StartGuard};
use mysqld_server::tail_trim::{TailTrimOptions, TrimmedTail};
use raft_types::Term;
use tempfile::TempDir;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::ring_in_memory::{Leadership, MemoryRing};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);
const TERM: Term = Term(1);

/// The server, its ring and its member.
pub(crate) struct CrashingServer {
    pub(crate) server: Mysqld,
    pub(crate) ring: Arc<MemoryRing>,
    pub(crate) member_dir: TempDir,
    /// The binlog name that the guard assumes.
    pub(crate) log_bin: &'static str,
    ingest: Option<RunningIngest>,
}

struct RunningIngest {
    status: watch::Receiver<IngestStatus>,
    task: JoinHandle<()>,
    /// Kept because ingest would end without the sender.
    _readiness: watch::Sender<Readiness>,
}

/// The options of a supervised mysqld that concern commits.
const ARGUMENTS: [&str; 9] = [
    "--plugin-load-add=semisync_source.so",
    "--rpl-semi-sync-source-enabled=ON",
    "--rpl-semi-sync-source-timeout=1000000000000000000",
    "--rpl-semi-sync-source-wait-no-replica=ON",
    "--rpl-semi-sync-source-wait-point=AFTER_SYNC",
    "--innodb-redo-log-capacity=16M",
    "--max-binlog-cache-size=1G",
    "--binlog-error-action=ABORT_SERVER",
    // Without a TCP port, because no port is certain to stay free over many restarts.
    "--skip-networking",
];

impl CrashingServer {
    /// Starts a server. The ring commits its transactions immediately.
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(arguments: &[&str]) -> Result<Self> {
        let all = ARGUMENTS.iter().chain(arguments).copied();
        let options = MysqldOptions::default().with_arguments(all);
        let server = Mysqld::prepare(&MysqlTree::require(), options)?;
        let mut this = Self {
            server,
            ring: MemoryRing::new(),
            member_dir: tempfile::tempdir()?,
            ingest: None,
            log_bin: "binlog",
        };
        this.start_again().await?;
        this.lead().await?;
        Ok(this)
    }

    /// Returns the guard of the server's starts.
    pub(crate) fn guard(&self) -> TailTrim<MemoryRing> {
        let data_dir = self.server.data_dir();
        guard_that_looks_in(self.log_bin, &self.ring, data_dir, self.member_dir.path())
    }

    /// Prepares the binlog as a member does before it first opens a running server.
    pub(crate) async fn is_about_to_be_opened(&self) -> Result<()> {
        let options = trim_options(self.log_bin, self.server.data_dir(), self.member_dir.path());
        let connect = ConnectOptions::new(Endpoint::unix(self.server.socket()), "root", "");
        let begun = ProtectionStart(options).ensure(&connect).await;
        begun.map_err(anyhow::Error::msg)
    }

    /// Calls the guard, and starts the server.
    pub(crate) async fn start_again(&mut self) -> Result<()> {
        let guarded = self.guard().before_start().await;
        guarded.map_err(anyhow::Error::msg)?;
        self.server.start()
    }

    /// Makes this member serve, and attaches it to the server.
    pub(crate) async fn lead(&mut self) -> Result<()> {
        self.ring.set_leadership(Leadership::Serving(TERM));
        self.ring.set_commits_at_once(true);
        let endpoint = Endpoint::unix(self.server.socket());
        let connect = ConnectOptions::new(endpoint, "root", "");
        let requirements = Requirements::new(4001, Uuid::from_u128(0x4001));
        let mut options = IngestOptions::new(connect, requirements);
        options.retry = (Duration::from_millis(20), Duration::from_millis(100));
        let (readiness, always) = watch::channel(Readiness::Always);
        let ingest = Ingest::new(Arc::clone(&self.ring), options, always);
        let mut running = RunningIngest {
            status: ingest.status(),
            task: tokio::spawn(ingest.run(CancellationToken::new())),
            _readiness: readiness,
        };
        let attached = running
            .status
            .wait_for(|status| status.state == IngestState::Attached);
        let attached = tokio::time::timeout(LIMIT, attached).await.is_ok();
        ensure!(attached, "not attached: {:?}", *running.status.borrow());
        self.ingest = Some(running);
        Ok(())
    }

    /// Ends the member, so that no further ACKs are sent.
    pub(crate) async fn member_ends(&mut self) {
        if let Some(ingest) = self.ingest.take() {
            ingest.task.abort();
            let _ = ingest.task.await;
        }
    }

    /// Kills the server. The ring continues elsewhere with its committed transactions only.
    pub(crate) async fn crash(&mut self) -> Result<()> {
        self.server.kill()?;
        self.member_ends().await;
        self.ring.lose_uncommitted();
        Ok(())
    }

    /// Returns the current binlog file.
    pub(crate) fn last_file(&self) -> Result<PathBuf> {
        self.server.binlog_files()?.pop().context("no binlog")
    }

    pub(crate) fn trimmed(&self) -> Result<Vec<TrimmedTail>> {
        Ok(TrimmedTail::list(self.member_dir.path())?)
    }

    /// Waits until the current file has `count` transactions.
    pub(crate) async fn transactions_in_file(&self, count: usize) -> Result<()> {
        let file = self.last_file()?;
        let deadline = Instant::now() + LIMIT;
        loop {
            let found = transaction_starts(&file)?.len();
            if found >= count {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "{found} transactions, not {count}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Checks the server's error log for errors. Ignores lines about clients that disconnected without notice, or were gone when mysqld
    /// reported the crash to them; the crash may cut such a line off.
    pub(crate) fn recovered_without_an_error(&self) -> Result<()> {
        let log = self.server.error_log();
        let bad: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("[ERROR]") || line.contains("orrupt"))
            .filter(|line| !line.contains("reading communication packets"))
            .filter(|line| !line.contains("A message intended for a client"))
            // The member's dumps end at arbitrary moments.
            .filter(|line| !line.contains("Semi-sync source failed on net_flush"))
            .collect();
        ensure!(bad.is_empty(), "{bad:#?}");
        Ok(())
    }

    /// Checks that `gtid_executed` of the server is exactly the ring's set.
    pub(crate) fn equals_the_ring(&self) -> Result<()> {
        let executed = self.server.client().gtid_executed()?;
        let ring = self.ring.gtids();
        ensure!(executed == ring, "executed {executed}, in the ring {ring}");
        Ok(())
    }
}

pub(crate) fn guard(
    ring: &Arc<MemoryRing>,
    data_dir: &Path,
    member_dir: &Path,
) -> TailTrim<MemoryRing> {
    guard_that_looks_in("binlog", ring, data_dir, member_dir)
}

fn guard_that_looks_in(
    log_bin: &str,
    ring: &Arc<MemoryRing>,
    data_dir: &Path,
    member_dir: &Path,
) -> TailTrim<MemoryRing> {
    let options = trim_options(log_bin, data_dir, member_dir);
    TailTrim::new(Arc::clone(ring), None, options)
}

fn trim_options(log_bin: &str, data_dir: &Path, member_dir: &Path) -> TailTrimOptions {
    let tree = MysqlTree::require();
    let words = tree.words(&tree.mysqld);
    let server = ServerCommand {
        command: words
            .into_iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        data_dir: data_dir.to_owned(),
        socket: "sock".into(),
        port: None,
        pid_file: "pid".into(),
        error_log: "log.err".into(),
        extra_args: vec![format!("--log-bin={log_bin}")],
    };
    TailTrimOptions {
        member_dir: member_dir.to_owned(),
        server,
        ring_limit: Duration::from_secs(2),
    }
}

/// Returns the offsets of a file's events, followed by the file's end. Omits a torn event.
pub(crate) fn event_borders(file: &Path) -> Result<Vec<(u64, EventType)>> {
    let bytes = fs::read(file)?;
    let mut at = MAGIC.len();
    let mut borders = Vec::new();
    while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= HEADER_LEN) {
        let header = EventHeader::parse(rest)?;
        let size = header.event_size as usize;
        if size > rest.len() {
            break;
        }
        borders.push((at as u64, header.event_type));
        at += size;
    }
    Ok(borders)
}

/// Returns the offsets of a file's transactions.
pub(crate) fn transaction_starts(file: &Path) -> Result<Vec<u64>> {
    let borders = event_borders(file)?;
    let starts = borders
        .into_iter()
        .filter(|(_, event)| matches!(event, EventType::Gtid | EventType::GtidTagged));
    Ok(starts.map(|(at, _)| at).collect())
}
