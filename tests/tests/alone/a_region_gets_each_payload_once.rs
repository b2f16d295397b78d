//! In two distant regions, a payload crosses the link between them once: to the other region's proxy, which relays it. Whatever
//! failure the proxy has, no member of that region is without new entries for longer than a second.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::Signal;
use serde_json::Value;
use testkit::bounded_run;
use testkit::cluster::{
    ChildServer, Cluster, ClusterOptions, MemberDatabase, MemberOptions, Profile, witness_binary,
};
use testkit::mysql_tree::MysqlTree;
use testkit::wait::eventually;

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// Time limit for a large transaction on a loaded machine.
const LONG: Duration = Duration::from_secs(300);
/// The members of the region without the leader.
const FAR: [usize; 3] = [3, 4, 5];
/// The limit that the project promises.
const LONGEST_SILENCE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

struct Regions {
    ring: Cluster,
}

impl Regions {
    fn launch(distance: Option<(Duration, Duration)>) -> Self {
        let server = ChildServer::prepare(&MysqlTree::require(), 1, None).unwrap();
        let witness = |name: &str| MemberOptions::new(name, &name[..1], MemberDatabase::Nothing);
        let mut members = vec![MemberOptions::new("a-db", "a", server.into())];
        members.extend(["a-w1", "a-w2", "b-w1", "b-w2", "b-w3"].map(witness));
        let options = ClusterOptions {
            distance,
            ..ClusterOptions::of(members)
        };
        let mut ring = Cluster::prepare(&witness_binary(Profile::Dev).unwrap(), options).unwrap();
        ring.bootstrap().unwrap();
        let regions = Self { ring };
        regions.wait_until("the primary is open", || {
            regions
                .ring
                .get(0, "/primary")
                .is_ok_and(|answer| answer.status == 200)
        });
        let client = regions.ring.client(0);
        client
            .sql("CREATE DATABASE d; CREATE TABLE d.rows (id INT AUTO_INCREMENT PRIMARY KEY, note TEXT)")
            .unwrap();
        client
            .sql(
                "DELIMITER //\nCREATE PROCEDURE d.commit_for(seconds INT) BEGIN \
                 DECLARE until DATETIME(6) DEFAULT TIMESTAMPADD(SECOND, seconds, NOW(6)); \
                 WHILE SYSDATE(6) < until DO \
                 INSERT INTO d.rows (note) VALUES (REPEAT(UUID(), 30)); DO SLEEP(0.005); END WHILE; END//",
            )
            .unwrap();
        regions
    }

    fn status(&self, index: usize) -> Option<Value> {
        let answer = self.ring.get(index, "/status").ok()?;
        serde_json::from_str(&answer.body).ok()
    }

    fn log_end(&self, index: usize) -> Option<u64> {
        self.status(index)?["log_end"]["index"].as_u64()
    }

    /// Returns the proxied members of the other region, each with the member that relays its entries.
    fn proxied(&self) -> Vec<(usize, usize)> {
        let status = self.status(0).unwrap_or_default();
        let routes = status["replication_routes"]["routes"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let place = |id: &Value| {
            FAR.into_iter()
                .find(|at| Some(self.ring.id(*at)) == id.as_u64())
        };
        let over =
            |route: &Value| Some((place(&route["member"])?, place(route["through"].get(0)?)?));
        routes.iter().filter_map(over).collect()
    }

    /// Returns the member that relays entries, after both other members of the region receive everything through it.
    fn proxy(&self) -> usize {
        let mut proxy = None;
        self.wait_until("two members are proxied over the third", || {
            let proxied = self.proxied();
            proxy = proxied.first().map(|(_, proxy)| *proxy);
            proxied.len() == 2 && proxied.iter().all(|(_, over)| Some(*over) == proxy)
        });
        proxy.unwrap()
    }

    fn wait_until(&self, what: &str, holds: impl FnMut() -> bool) {
        let waited = eventually(what, SOON, holds);
        waited.with_context(|| self.ring.last_words()).unwrap();
    }

    /// Observes some members for `time`. Returns the longest time that each was without a new entry.
    fn longest_silences(&self, members: &[usize], time: Duration) -> Vec<Duration> {
        let began = Instant::now();
        let mut seen = vec![(None, began); members.len()];
        let mut longest = vec![Duration::ZERO; members.len()];
        while began.elapsed() < time {
            for (at, member) in members.iter().enumerate() {
                let end = self.log_end(*member);
                let now = Instant::now();
                longest[at] = longest[at].max(now - seen[at].1);
                if end.is_some() && end != seen[at].0 {
                    seen[at] = (end, now);
                }
            }
            std::thread::sleep(POLL);
        }
        longest
    }

    /// Returns the payload bytes that the leader sent to a member directly, and the bytes that a proxy saved.
    fn sent_to(&self, member: usize) -> (u64, u64) {
        let status = self.status(0).unwrap();
        let id = self.ring.id(member);
        let sent = status["replication_routes"]["sent"].as_array().unwrap();
        let to = sent
            .iter()
            .find(|sent| sent["member"].as_u64() == Some(id))
            .unwrap();
        let number = |key: &str| to[key].as_u64().unwrap();
        (number("direct_bytes_total"), number("spared_bytes_total"))
    }

    /// Returns the bytes of entries that the leader sent to the other region, and how often it fell back from a proxy, by reason.
    fn crossed(&self) -> (u64, Vec<(String, u64)>) {
        let routes = &self.status(0).unwrap()["replication_routes"];
        let far = FAR.map(|at| self.ring.id(at));
        let to_far = |link: &&Value| far.iter().any(|id| link["member"].as_u64() == Some(*id));
        let links = routes["links"].as_array().unwrap().iter().filter(to_far);
        let crossed = links.map(|link| link["entries_bytes_total"].as_u64().unwrap());
        let fallbacks = routes["fallbacks"].as_array().unwrap().iter();
        let left = fallbacks.map(|left| {
            let reason = left["reason"].as_str().unwrap().to_owned();
            (reason, left["times_total"].as_u64().unwrap())
        });
        (crossed.sum(), left.collect())
    }

    /// Waits until all members have the same bytes as the leader.
    fn agrees(&self) {
        self.wait_until("all logs end alike", || {
            let ends = (0..self.ring.size()).map(|index| self.log_end(index));
            let ends: Vec<_> = ends.collect();
            ends.iter().all(|end| end.is_some() && *end == ends[0])
        });
        let logs = (0..self.ring.size()).map(|index| self.ring.log_files(index).unwrap());
        let logs: Vec<_> = logs.collect();
        for log in &logs {
            assert_eq!(log.first_difference(&logs[0]), None);
        }
    }
}

#[test]
fn no_member_is_silent_for_a_second_after_its_proxy_dies_or_stops() {
    let _turn = SCENES.take();
    let distance = (Duration::from_micros(100), Duration::from_millis(20));
    let mut regions = Regions::launch(Some(distance));
    let proxy = regions.proxy();
    let others: Vec<usize> = FAR.into_iter().filter(|at| *at != proxy).collect();

    // The traffic between the regions while all members are healthy.
    let before: Vec<_> = others.iter().map(|at| regions.sent_to(*at)).collect();
    let client = regions.ring.client(0);
    client.sql_within("CALL d.commit_for(3)", SOON).unwrap();
    for (at, before) in others.iter().zip(before) {
        let after = regions.sent_to(*at);
        let (direct, spared) = (after.0 - before.0, after.1 - before.1);
        println!("to {at}: {direct} bytes of payload from the leader, {spared} over the proxy");
        assert!(spared > 20_000, "{spared}");
        assert_eq!(direct, 0, "a payload crossed the distance twice");
    }
    let shown = shown_status(&regions);
    assert!(shown.contains("Entries travel from `a-db`"), "{shown}");

    // The proxy dies under load.
    let load = client.start_sql("CALL d.commit_for(5)").unwrap();
    regions.ring.kill(proxy).unwrap();
    let silences = regions.longest_silences(&others, Duration::from_secs(4));
    println!("longest silences around the kill: {silences:?}");
    assert!(
        silences.iter().all(|silence| *silence < LONGEST_SILENCE),
        "{silences:?}"
    );
    load.finish(SOON).unwrap();
    // One of the two remaining members is the proxy of the other. The third member restarts, and receives its entries through the new
    // proxy.
    regions.wait_until("one is proxied over the other", || {
        regions.proxied().len() == 1
    });
    regions.ring.start(proxy).unwrap();
    let proxy = regions.proxy();
    let others: Vec<usize> = FAR.into_iter().filter(|at| *at != proxy).collect();

    // The proxy hangs under load, and its connections stay open.
    let load = client.start_sql("CALL d.commit_for(4)").unwrap();
    regions.ring.signal(proxy, Signal::STOP).unwrap();
    let silences = regions.longest_silences(&others, Duration::from_secs(3));
    regions.ring.signal(proxy, Signal::CONT).unwrap();
    println!("longest silences around the stop: {silences:?}");
    assert!(
        silences.iter().all(|silence| *silence < LONGEST_SILENCE),
        "{silences:?}"
    );
    load.finish(SOON).unwrap();
    regions.proxy();
    regions.agrees();
}

/// Runs on loopback, where the members' own work takes most of the time. `LARGE_MIB` in the environment sets another size.
#[test]
fn also_a_transaction_that_takes_longer_than_a_proxy_waits_for_small_ones() {
    let _turn = SCENES.take();
    let mib = std::env::var("LARGE_MIB").map_or(64, |mib| mib.parse().expect("a number"));
    let regions = Regions::launch(None);
    let client = regions.ring.client(0);
    // Random hexadecimal text is as costly to compress as a table's rows, and is compressed to half of its size.
    client
        .sql(
            "SET SESSION group_concat_max_len = 1 << 23, cte_max_recursion_depth = 10000; CREATE TABLE d.large (id INT PRIMARY KEY, b LONGBLOB); \
             CREATE TABLE d.noise (b LONGBLOB); INSERT INTO d.noise WITH RECURSIVE n (n) AS \
             (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1280) SELECT GROUP_CONCAT(HEX(RANDOM_BYTES(1024)) SEPARATOR '') FROM n",
        )
        .unwrap();
    regions.proxy();
    regions.agrees();
    let (before, _) = regions.crossed();
    let rows = mib * 2 / 5;
    let begun = Instant::now();
    client
        .sql_within(
            &format!(
                "SET SESSION cte_max_recursion_depth = 10000; INSERT INTO d.large WITH RECURSIVE n (n) AS \
                 (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows}) \
                 SELECT n, CONCAT(REVERSE(SUBSTR(noise.b, 1 + n * 997)), SUBSTR(noise.b, 1, n * 997)) FROM n, d.noise"
            ),
            LONG,
        )
        .unwrap();
    let committed = begun.elapsed();
    let end = regions.log_end(0);
    let arrived = eventually("all of the region have it", LONG, || {
        FAR.iter().all(|at| regions.log_end(*at) >= end)
    });
    arrived.with_context(|| regions.ring.last_words()).unwrap();
    let there = begun.elapsed();
    let (crossed, left) = regions.crossed();
    let crossed = (crossed - before) >> 20;
    println!(
        "{mib} MiB: committed after {committed:?}, in the other region after {there:?}; {crossed} MiB crossed; proxies left so far: \
         {left:?}"
    );
    // The payload crosses once, compressed to about half of its size.
    assert!(
        crossed < mib * 3 / 4,
        "{crossed} MiB crossed\n{}",
        regions.ring.last_words()
    );
}

fn shown_status(regions: &Regions) -> String {
    let mut command = Command::new(witness_binary(Profile::Dev).unwrap());
    command
        .arg("status")
        .arg("--config")
        .arg(regions.ring.config(0));
    let run = bounded_run::run("witness status", command, Vec::new(), SOON).unwrap();
    run.into_text("witness status").unwrap()
}
