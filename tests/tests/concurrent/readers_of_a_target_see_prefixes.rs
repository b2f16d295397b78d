//! Readers of the target see only prefixes of the log. Every transaction inserts the next row. Every tenth one also writes the row's
//! number into two other tables. A single client wrote them, so their order is known. A reader must find at least as many rows as the
//! number, and never two different numbers.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fmt::Write;
use std::time::{Duration, Instant};

use testkit::bounded_run::wait_within;
use witness_tests::Pair;

use crate::SCENES;

const TRANSACTIONS: u64 = 3_000;

/// A single statement, which reads one snapshot.
const READ: &str = "SELECT a.n, b.n, r.last, r.count FROM p.a, p.b, \
                    (SELECT COALESCE(MAX(n), 0) AS last, COUNT(*) AS count FROM p.rows_in_order) AS r";

/// Returns the length of the prefix that a reader has read. Fails if the result is not a prefix.
fn prefix(read: &[u64]) -> u64 {
    let &[a, b, last, count] = read else {
        panic!("{read:?}");
    };
    assert_eq!(a, b, "the two rows differ");
    assert_eq!(last, count, "a row of the prefix is missing");
    assert_eq!(a, last / 10 * 10, "not of one moment");
    last
}

fn written() -> Pair {
    written_by(Pair::new().unwrap())
}

fn written_by(pair: Pair) -> Pair {
    let mut script = String::from(
        "CREATE DATABASE p; USE p; CREATE TABLE a (id INT PRIMARY KEY, n BIGINT); CREATE TABLE b (id INT PRIMARY KEY, n BIGINT); \
         CREATE TABLE rows_in_order (n BIGINT PRIMARY KEY, note VARCHAR(40)); \
         INSERT INTO a SELECT 1, 0; INSERT INTO b SELECT 1, 0;\n",
    );
    for number in 1..=TRANSACTIONS {
        // The rows with the number are updated only by every tenth transaction; otherwise no transactions could run in parallel.
        let hot = match number % 10 {
            0 => format!("UPDATE a SET n = {number}; UPDATE b SET n = {number};"),
            _ => String::new(),
        };
        let insert = format!("INSERT INTO rows_in_order VALUES ({number}, 'x');");
        writeln!(script, "BEGIN; {insert} {hot} COMMIT;").unwrap();
    }
    pair.source
        .client()
        .sql_within(&script, Duration::from_secs(120))
        .unwrap();
    pair
}

#[test]
fn readers_see_prefixes_while_commits_are_in_the_logs_order() {
    let _turn = SCENES.take();
    read_while_applied(&written());
}

/// The target has no binlog, so batches commit as one, in turns. A commit is visible before it is answered.
#[test]
fn readers_see_prefixes_while_commits_pass_on_their_turn() {
    let _turn = SCENES.take();
    let pair = written_by(Pair::with_target_arguments(["--skip-log-bin"]).unwrap());
    read_while_applied(&pair);
    let taken = pair.turns_taken().unwrap();
    println!("{taken} turns were taken");
    // At least the turns of the first measurement; afterwards the faster mode depends on the machine.
    assert!(taken > 20, "{taken} turns");
}

fn read_while_applied(pair: &Pair) {
    let target = pair.target.client();
    let mut command = pair.command(&["--workers", "8", "--rate", "400"]).unwrap();
    let mut applier = command.spawn().unwrap();
    let (mut reads, mut between) = (0, 0);
    let until = Instant::now() + Duration::from_secs(60);
    let status = loop {
        assert!(Instant::now() < until, "it does not end");
        if let Ok(rows) = target.sql(READ)
            && let Some(row) = rows.0.first()
        {
            let numbers: Vec<u64> = row.iter().map(|text| text.parse().unwrap()).collect();
            reads += 1;
            between += u64::from((1..TRANSACTIONS).contains(&prefix(&numbers)));
        }
        if let Some(status) = wait_within(&mut applier, Duration::ZERO).unwrap() {
            break status;
        }
    };
    assert!(status.success());
    assert!(between >= 10, "{between} of {reads} reads were in between");
    println!("{reads} reads, {between} of them in between");
    pair.compare("p").unwrap();
}
