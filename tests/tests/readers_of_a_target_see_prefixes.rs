//! Readers of the target see prefixes of the log only. Every transaction inserts the next row and writes its number into two
//! other tables; a single client made them, so that their order is known. A reader that finds a number finds exactly as many
//! rows, and never two different numbers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write;
use std::time::{Duration, Instant};

use testkit::bounded_run::wait_within;
use witness_tests::Pair;

const TRANSACTIONS: u64 = 3_000;

fn written() -> Pair {
    let pair = Pair::new().unwrap();
    let mut script = String::from(
        "CREATE DATABASE p; USE p; CREATE TABLE a (id INT PRIMARY KEY, n BIGINT); CREATE TABLE b (id INT PRIMARY KEY, n BIGINT); \
         CREATE TABLE rows_in_order (n BIGINT PRIMARY KEY, note VARCHAR(40)); \
         INSERT INTO a SELECT 1, 0; INSERT INTO b SELECT 1, 0;\n",
    );
    for number in 1..=TRANSACTIONS {
        // The hot rows are written every tenth time only, or nothing could run beside anything.
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
    let pair = written();
    let target = pair.target.client();
    let mut command = pair.command(&["--workers", "8", "--rate", "1500"]).unwrap();
    let mut applier = command.spawn().unwrap();
    // One statement reads at one moment.
    let read = "SELECT a.n, b.n, r.last, r.count FROM p.a, p.b, \
                (SELECT COALESCE(MAX(n), 0) AS last, COUNT(*) AS count FROM p.rows_in_order) AS r";
    let (mut reads, mut between) = (0, 0);
    let until = Instant::now() + Duration::from_secs(60);
    let status = loop {
        assert!(Instant::now() < until, "it does not end");
        if let Ok(rows) = target.sql(read)
            && let Some(row) = rows.0.first()
        {
            let number = |at: usize| row[at].parse::<u64>().unwrap();
            assert_eq!(number(0), number(1), "the two rows differ");
            assert_eq!(number(2), number(3), "a row of the prefix is missing");
            assert_eq!(number(0), number(2) / 10 * 10, "not of one moment");
            reads += 1;
            between += u64::from((1..TRANSACTIONS).contains(&number(2)));
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
