//! A ring of real processes on loopback. Its database members attach to a mysqld that is not there, which
//! is enough for everything that the ring decides.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use testkit::cluster::{Cluster, ClusterOptions, MemberDatabase, MemberOptions};
use testkit::wait::Patience;

use super::{Run, Scratch, witness};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The ring, and a place for its operator.
pub(crate) struct Ring {
    cluster: Cluster,
    /// The operator's directory.
    scratch: Scratch,
}

/// From `name region kind`, and `novote` for one that only receives the log.
fn member(words: &str) -> MemberOptions {
    let words: Vec<_> = words.split(' ').collect();
    let beside = match words[2] {
        "database" => MemberDatabase::Embedded {
            program: env!("CARGO_BIN_EXE_witness").into(),
        },
        _ => MemberDatabase::Nothing,
    };
    MemberOptions {
        votes: words.get(3) != Some(&"novote"),
        ..MemberOptions::new(words[0], words[1], beside)
    }
}

impl Ring {
    /// A ring whose members run, and of which the first one leads. `members` are `name region kind`, and `novote`
    /// for one that only receives the log.
    pub(crate) fn launch(members: &[&str]) -> Self {
        let scratch = Scratch::new();
        let options = ClusterOptions {
            folder: Some(scratch.path().to_owned()),
            ..ClusterOptions::of(members.iter().map(|words| member(words)).collect())
                .with("raft", "heartbeat = \"100ms\"\nlease = \"600ms\"")
                .with("log", "disk_reserve_bytes = 0")
                .with("mysql", "port = 1")
        };
        let program = Path::new(env!("CARGO_BIN_EXE_witness"));
        let mut cluster = Cluster::prepare(program, options).expect("the ring's files");
        cluster.bootstrap().expect("the ring starts");
        let ring = Self { cluster, scratch };
        ring.configure();
        ring.wait_for_leader(1);
        ring
    }

    /// Another member, which is not started and not in the others' configuration.
    pub(crate) fn prepare(&mut self, words: &str) -> usize {
        self.cluster.add(member(words)).expect("its place")
    }

    /// Writes the configuration of every member with all of them, and the operator's.
    pub(crate) fn configure(&self) {
        self.cluster.write_configs().expect("the configurations");
        let operators = self.scratch.join("witness.toml");
        std::fs::copy(self.cluster.config(0), operators).expect("the operator's");
    }

    /// A member's address.
    pub(crate) fn address(&self, at: usize) -> String {
        self.cluster.raft_address(at).to_string()
    }

    /// Where a member answers HTTP.
    pub(crate) fn http(&self, at: usize) -> SocketAddr {
        self.cluster.http(at)
    }

    /// Starts a member.
    pub(crate) fn start(&mut self, at: usize, arguments: &[&str]) {
        let started = self.cluster.start_with(at, arguments);
        started.expect("the member starts");
    }

    /// Kills a member.
    pub(crate) fn kill(&mut self, at: usize) {
        self.cluster.kill(at).expect("a running process");
    }

    /// Stops a member's process where it stands.
    pub(crate) fn freeze(&self, at: usize) {
        self.cluster
            .signal(at, Signal::STOP)
            .expect("a running process");
    }

    /// Continues it.
    pub(crate) fn thaw(&self, at: usize) {
        self.cluster
            .signal(at, Signal::CONT)
            .expect("a running process");
    }

    /// Has a member reload its configuration.
    pub(crate) fn hang_up(&self, at: usize) {
        self.cluster
            .signal(at, Signal::HUP)
            .expect("a running process");
    }

    /// A member's configuration file.
    pub(crate) fn config(&self, at: usize) -> PathBuf {
        self.cluster.config(at).to_owned()
    }

    /// A member's data directory.
    pub(crate) fn directory(&self, at: usize) -> &Path {
        self.cluster.directory(at)
    }

    /// Waits until a member has ended by itself, and says with which code.
    pub(crate) fn exit_code(&mut self, at: usize) -> Option<i32> {
        let ended = self.cluster.wait_for_exit(at, PATIENCE);
        ended.expect("it ends").code()
    }

    /// What a member logged.
    pub(crate) fn log(&self, at: usize) -> String {
        self.cluster.output(at)
    }

    /// Runs a command as an operator.
    pub(crate) fn run(&self, line: &str) -> Run {
        witness(&self.scratch).args(line.split_whitespace()).run()
    }

    /// Runs a command without a configuration, with the address of one member.
    pub(crate) fn run_from_elsewhere(&self, line: &str, at: usize) -> Run {
        let elsewhere = Scratch::new();
        witness(&elsewhere)
            .env("WITNESS_ENDPOINTS", &self.address(at))
            .args(line.split_whitespace())
            .run()
    }

    /// Runs a command as an operator, with JSON as its output; panics when it fails.
    pub(crate) fn json(&self, line: &str) -> serde_json::Value {
        let run = self.run(&format!("{line} --output json"));
        assert_eq!(run.code, 0, "{line}: {run}");
        run.json()
    }

    /// The state of the ring. Here no mysqld runs, which is what the exit code says.
    pub(crate) fn status(&self) -> serde_json::Value {
        let run = self.run("status --output json");
        assert!(matches!(run.code, 0 | 1), "{run}");
        run.json()
    }

    /// Waits for a leader with a quorum.
    pub(crate) fn wait_for_leader(&self, id: u64) {
        self.wait("the leader", || {
            let run = self.run("status --output json");
            run.code <= 1 && run.json()["leader"] == id
        });
    }

    /// Waits until something is so.
    pub(crate) fn wait(&self, what: &str, so: impl Fn() -> bool) {
        let patience = Patience::every(Duration::from_millis(100), PATIENCE);
        self.cluster
            .eventually(what, patience, so)
            .expect("it comes about");
    }

    /// The name of a member.
    pub(crate) fn name(&self, at: usize) -> &str {
        self.cluster.name(at)
    }
}
