//! `witness apply` follows a growing log: that of a mysqld, as its replica, and the committed transactions of a ring member. Both are
//! paused, slowed down and resumed over HTTP, and end at a given position.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::bounded_run::wait_within;
use testkit::cluster::{Profile, http_get, http_post, witness_binary};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions, REPLICATION_PASSWORD, REPLICATION_USER};
use testkit::ports::free_address;
use testkit::wait::eventually;
use witness_tests::{Pair, Scene};

use crate::SCENES;

const PATIENCE: Duration = Duration::from_secs(60);

/// A running applier with an HTTP server. Dropping it ends the applier.
struct Follower {
    child: Child,
    http: SocketAddr,
}

impl Follower {
    fn start(mut command: Command) -> Self {
        let http = free_address().unwrap();
        command.args(["--listen", &http.to_string()]);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        Self { child, http }
    }

    fn status(&self) -> serde_json::Value {
        let status = eventually("it answers", PATIENCE, || http_get(self.http, "/status"));
        status.unwrap().json().unwrap()
    }

    fn committed(&self) -> u64 {
        self.status()["committed"]["transactions"].as_u64().unwrap()
    }

    fn wait_until(&self, what: &str, reached: impl Fn(&serde_json::Value) -> bool) {
        let reached = eventually(what, PATIENCE, || {
            let status = self.status();
            match reached(&status) {
                true => Ok(()),
                false => Err(status),
            }
        });
        reached.unwrap();
    }

    fn post(&self, path: &str) -> serde_json::Value {
        http_post(self.http, path).unwrap().json().unwrap()
    }

    /// Waits until the applier ends, and returns its report.
    fn finish(mut self) -> serde_json::Value {
        let status = wait_within(&mut self.child, PATIENCE).unwrap();
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
        let mut report = String::new();
        let mut out = self.child.stdout.take().unwrap();
        std::io::Read::read_to_string(&mut out, &mut report).unwrap();
        serde_json::from_str(&report).unwrap()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_is_followed_paused_slowed_and_left_at_a_gtid() {
    let _turn = SCENES.take();
    let mut pair = Pair::new().unwrap();
    let (source, address) = (pair.source.client(), pair.source.address());
    source.create_replication_user().unwrap();
    source
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
        .unwrap();
    let write = |count: u32| {
        let insert = "INSERT INTO d.t (v) VALUES (1);".repeat(count as usize);
        source.sql(&insert).unwrap();
    };
    write(50);
    let begin = |pair: &Pair, until: Option<&str>| {
        let mut command = pair.command_without_files(&["--from-user", REPLICATION_USER]);
        command.arg("--from-mysql").arg(address.to_string());
        command.env("WITNESS_FROM_PASSWORD", REPLICATION_PASSWORD);
        command.args(until.map(|until| ["--until", until]).into_iter().flatten());
        Follower::start(command)
    };
    let follower = begin(&pair, None);
    let all =
        |count: u64| move |status: &serde_json::Value| status["committed"]["transactions"] == count;
    // 54 transactions: among them two about an account and two about the schema.
    follower.wait_until("the first transactions", all(54));
    follower.wait_until("an idle target has no lag", |status| {
        let lags = ["received", "scheduled", "committed"];
        lags.iter().all(|stage| status[stage]["lag_ms"] == 0)
    });

    assert_eq!(follower.post("/pause")["paused"], true);
    write(20);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(follower.committed(), 54, "it is paused");
    let lagging = follower.status();
    assert!(
        lagging["committed"]["lag_ms"].as_u64().unwrap() >= 300,
        "{lagging}"
    );
    follower.post("/rate?per_second=40");
    let began = Instant::now();
    assert_eq!(follower.post("/resume")["paused"], false);
    follower.wait_until("the rows written in the meantime", all(74));
    assert!(
        began.elapsed() > Duration::from_millis(300),
        "20 at 40 a second"
    );
    follower.post("/rate?per_second=0");
    let metrics = http_get(follower.http, "/metrics").unwrap().body;
    for line in [
        "witness_apply_transactions_total{stage=\"committed\"} 74",
        "witness_apply_lag_milliseconds{stage=\"received\"}",
    ] {
        assert!(metrics.contains(line), "no `{line}` in {metrics}");
    }

    // The source stops and restarts.
    pair.source.restart().unwrap();
    source.sql("INSERT INTO d.t (v) VALUES (2)").unwrap();
    follower.wait_until("what came after the restart", all(75));
    drop(follower);

    let executed = source.gtid_executed().unwrap();
    let uuid = executed.split(':').next().unwrap();
    source
        .sql(&"INSERT INTO d.t (v) VALUES (3);".repeat(10))
        .unwrap();
    let report = begin(&pair, Some(&format!("{uuid}:80"))).finish();
    assert_eq!(report["transactions"], 5, "{report}");
    assert_eq!(report["last"], format!("{uuid}:80"));
}

#[test]
fn a_member_is_followed_by_its_committed_transactions() {
    let _turn = SCENES.take();
    let scene = Scene::launch(|options| options).unwrap();
    let tree = MysqlTree::require();
    let target = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(77)).unwrap();
    // A witness is the source: it has the log and no database.
    let witness = 1;
    let name = scene.ring.get(witness, "/status").unwrap().json().unwrap();
    let name = name["member"]["name"].as_str().unwrap().to_owned();
    let mut command = Command::new(witness_binary(Profile::Dev).unwrap());
    command.args(["--output", "json", "apply", "--to-user", "root", "--to"]);
    command.arg(target.socket()).args(["--from-member", &name]);
    command.arg("--config").arg(scene.ring.config(witness));
    let writers = scene.start_writers(4).unwrap();
    let follower = Follower::start(command);
    std::thread::sleep(Duration::from_secs(3));
    let written = writers.finish().unwrap();
    let acknowledged = written
        .commits
        .iter()
        .filter(|commit| commit.error.is_none());
    assert!(acknowledged.count() > 50);
    let (primary, target) = (scene.server.client(), target.client());
    let executed = primary.gtid_executed().unwrap();
    target.wait_for_gtids(&executed, PATIENCE).unwrap();
    drop(follower);
    assert_eq!(
        primary.table_checksums("acked").unwrap(),
        target.table_checksums("acked").unwrap()
    );
    assert_eq!(executed, target.gtid_executed().unwrap());
}
