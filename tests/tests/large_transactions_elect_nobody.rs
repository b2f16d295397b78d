//! A large transaction goes through a ring with the heartbeats that rings have, and nobody is elected meanwhile. What each
//! member takes of memory for it is bounded (docs/performance.md has the figures; `LARGE_MIB` in the environment measures other sizes).

use std::time::{Duration, Instant};

use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;
use testkit::ring::{ProcessRing, Profile, RingOptions, witness_binary};

/// How long a loaded machine may take for it.
const LIMIT: Duration = Duration::from_secs(300);
/// Of each row.
const ROW_MIB: u64 = 8;

/// The most memory that a process has had, in MiB.
fn peak_mib(ring: &ProcessRing, member: usize) -> u64 {
    let process = ring.process_id(member).expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|line| line.trim().strip_suffix(" kB"));
    peak.and_then(|kib| kib.parse::<u64>().ok())
        .expect("Linux says it")
        / 1024
}

fn term(ring: &ProcessRing) -> u64 {
    let status = ring.get(0, "/status").expect("it runs").body;
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let term = status.get("term").and_then(serde_json::Value::as_u64);
    term.expect("a member says its term")
}

#[test]
fn a_large_transaction_elects_nobody_and_takes_bounded_memory() {
    let mib = std::env::var("LARGE_MIB").map_or(256, |mib| mib.parse().expect("a number"));
    let server = Mysqld::launch(&MysqlTree::require()).expect("the scene of a test");
    let options = RingOptions {
        heartbeat: Duration::from_millis(500),
        ..RingOptions::around(&server)
    };
    let mut ring = ProcessRing::launch(&witness_binary(Profile::Dev).unwrap(), &options).unwrap();
    let client = server.client();
    client
        .sql("CREATE DATABASE large; CREATE TABLE large.rows (id INT PRIMARY KEY, b LONGBLOB)")
        .unwrap();
    ring.wait_until_equal(LIMIT).unwrap();
    let term_before = term(&ring);
    let before: Vec<u64> = (0..3).map(|member| peak_mib(&ring, member)).collect();

    let begun = Instant::now();
    let rows = mib / ROW_MIB;
    client
        .sql(&format!(
            "SET SESSION cte_max_recursion_depth = 10000; INSERT INTO large.rows \
             WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows}) \
             SELECT n, REPEAT(CHAR(97 + n % 26), {ROW_MIB} * 1048576) FROM n"
        ))
        .unwrap();
    let took = begun.elapsed();
    ring.wait_until_equal(LIMIT).unwrap();
    assert_eq!(term(&ring), term_before, "somebody was elected meanwhile");

    let after: Vec<u64> = (0..3).map(|member| peak_mib(&ring, member)).collect();
    eprintln!(
        "{mib} MiB: committed after {took:?}; peaks in MiB {before:?} before, {after:?} after"
    );
    for (member, peak) in after.iter().enumerate() {
        assert!(
            *peak < before[member] + 4 * mib + 64,
            "member {member}: {after:?} MiB"
        );
    }
}
