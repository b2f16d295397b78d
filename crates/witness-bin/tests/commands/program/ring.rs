//! A ring of real processes on loopback. Its database members are configured for a mysqld that does not exist. The
//! decisions of the ring do not need it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use testkit::cluster::{Cluster, ClusterOptions, MemberDatabase, MemberOptions};

use super::{Run, Scratch, witness};

/// Time limit of each wait, long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The ring, and the operator's directory.
pub(crate) struct Ring {
    cluster: Cluster,
    /// The operator's directory.
    scratch: Scratch,
}

/// Parses the options of a member from `name region kind`, with `novote` at the end for a member without a vote.
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
    /// Starts a ring, and waits until its first member leads. Each of `members` is `name region kind`, with `novote`
    /// at the end for a member without a vote.
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

    /// Prepares another member. It is not started, and not in the other members' configurations.
    pub(crate) fn prepare(&mut self, words: &str) -> usize {
        self.cluster.add(member(words)).expect("its place")
    }

    /// Writes the configurations of all members and of the operator, each with the list of all members.
    pub(crate) fn configure(&self) {
        self.cluster.write_configs().expect("the configurations");
        let operators = self.scratch.join("witness.toml");
        std::fs::copy(self.cluster.config(0), operators).expect("the operator's");
    }

    /// Returns a member's address for the other members.
    pub(crate) fn address(&self, at: usize) -> String {
        self.cluster.raft_address(at).to_string()
    }

    /// Returns a member's address for HTTP.
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

    /// Suspends a member's process (SIGSTOP).
    pub(crate) fn freeze(&self, at: usize) {
        self.cluster
            .signal(at, Signal::STOP)
            .expect("a running process");
    }

    /// Resumes a suspended member (SIGCONT).
    pub(crate) fn thaw(&self, at: usize) {
        self.cluster
            .signal(at, Signal::CONT)
            .expect("a running process");
    }

    /// Makes a member reload its configuration (SIGHUP).
    pub(crate) fn hang_up(&self, at: usize) {
        self.cluster
            .signal(at, Signal::HUP)
            .expect("a running process");
    }

    /// Returns the path of a member's configuration file.
    pub(crate) fn config(&self, at: usize) -> PathBuf {
        self.cluster.config(at).to_owned()
    }

    /// Returns a member's data directory.
    pub(crate) fn directory(&self, at: usize) -> &Path {
        self.cluster.directory(at)
    }

    /// Waits until a member's process has ended, and returns its exit code.
    pub(crate) fn exit_code(&mut self, at: usize) -> Option<i32> {
        let ended = self.cluster.wait_for_exit(at, PATIENCE);
        ended.expect("it ends").code()
    }

    /// Returns a member's log output.
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

    /// Runs a command as an operator, and returns its JSON output. Panics if the command fails.
    pub(crate) fn json(&self, line: &str) -> serde_json::Value {
        let run = self.run(&format!("{line} --output json"));
        assert_eq!(run.code, 0, "{line}: {run}");
        run.json()
    }

    /// Returns the state of the ring. Exit code 1 is accepted, because no mysqld runs.
    pub(crate) fn status(&self) -> serde_json::Value {
        let run = self.run("status --output json");
        assert!(matches!(run.code, 0 | 1), "{run}");
        run.json()
    }

    /// Waits until this member leads with a quorum.
    pub(crate) fn wait_for_leader(&self, id: u64) {
        self.wait("the leader", || {
            let run = self.run("status --output json");
            run.code <= 1 && run.json()["leader"] == id
        });
    }

    /// Waits until a condition holds; `what` describes the condition in errors.
    pub(crate) fn wait(&self, what: &str, so: impl Fn() -> bool) {
        self.cluster
            .eventually(what, PATIENCE, so)
            .expect("it comes about");
    }

    /// Returns the name of a member.
    pub(crate) fn name(&self, at: usize) -> &str {
        self.cluster.name(at)
    }
}
