//! A server that is killed repeatedly while several sessions commit: at the moment of an ACK, or
//! while commits wait for one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::mysqld::PendingSql;

use crate::crashing_server::{CrashingServer, LIMIT};
use crate::reference::Reference;

/// How often the server is killed; each kill takes about four seconds.
const KILLS: &str = "WITNESS_TRIM_KILLS";
const FEW_KILLS: u64 = 4;
const SESSIONS: u64 = 6;
const TRANSACTIONS: u64 = 400;

/// A random number generator that returns the same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Returns one session's workload: its own rows, shared rows, tables created and dropped, XA.
fn script(session: u64, round: u64, dice: &mut Dice) -> String {
    let mut script = "USE d;\n".to_owned();
    for step in 0..TRANSACTIONS {
        let id = (round * SESSIONS + session) * TRANSACTIONS + step;
        let shared = dice.roll(20);
        script += &match dice.roll(20) {
            0 => format!("CREATE TABLE t{id} (id INT PRIMARY KEY); DROP TABLE t{id};\n"),
            1 => format!("ALTER TABLE own{session} COMMENT = 'changed in {id}';\n"),
            2 => format!(
                "XA START 'x{id}'; INSERT INTO rows_of_all VALUES ({id}, 0); XA END 'x{id}'; XA PREPARE 'x{id}'; XA COMMIT 'x{id}';\n"
            ),
            3 => format!(
                "INSERT INTO rows_of_all SELECT {id}, LENGTH(REPEAT('big', 50000)); UPDATE own{session} SET v = REPEAT('big', 20000) WHERE id = {shared};\n"
            ),
            4..=8 => format!("UPDATE sums SET v = v + {step} WHERE id = {shared};\n"),
            9 => format!(
                "BEGIN; INSERT INTO rows_of_all VALUES ({id}, 2); DELETE FROM rows_of_all WHERE id < {id} ORDER BY id LIMIT 1; COMMIT;\n"
            ),
            _ => format!("INSERT INTO rows_of_all VALUES ({id}, 1);\n"),
        };
    }
    script
}

fn sessions(server: &CrashingServer, round: u64, dice: &mut Dice) -> Result<Vec<PendingSql>> {
    (0..SESSIONS)
        .map(|session| {
            let compressed = match session {
                0 => "SET SESSION binlog_transaction_compression = ON;\n",
                _ => "",
            };
            let script = format!("{compressed}{}", script(session, round, dice));
            server.server.client().start_sql(&script)
        })
        .collect()
}

async fn committed(server: &CrashingServer, index: u64) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while server.ring.last_index() < Some(index) {
        ensure!(
            Instant::now() < deadline,
            "the load stalls: {:?}",
            server.server.client().sql("SHOW PROCESSLIST; XA RECOVER")
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Ends prepared XA transactions, and returns their number. A kill between XA PREPARE and XA COMMIT
/// leaves a prepared transaction with locked rows, for which the next round's sessions would wait.
fn settle_prepared(server: &CrashingServer) -> Result<usize> {
    let client = server.server.client();
    let prepared = client.sql("XA RECOVER")?.0;
    for row in &prepared {
        let name = row.last().context("XA RECOVER names it")?;
        client.sql(&format!("XA ROLLBACK '{name}'"))?;
    }
    Ok(prepared.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_under_load_has_what_the_ring_has() -> Result<()> {
    let kills = match std::env::var(KILLS) {
        Ok(count) => count
            .parse()
            .with_context(|| format!("{KILLS} is a number"))?,
        Err(_) => FEW_KILLS,
    };
    let mut dice = Dice(7);
    let mut server = CrashingServer::start().await?;
    let mut reference = Reference::start()?;
    let mut before =
        "CREATE DATABASE d; USE d; CREATE TABLE rows_of_all (id INT PRIMARY KEY, v INT); \
         CREATE TABLE sums (id INT PRIMARY KEY, v INT);"
            .to_owned();
    for id in 0..20 {
        before += &format!("INSERT INTO sums VALUES ({id}, 0);");
    }
    for session in 0..SESSIONS {
        before += &format!(
            "CREATE TABLE own{session} (id INT PRIMARY KEY, v LONGTEXT); INSERT INTO own{session} VALUES (1, ''), (2, '');"
        );
    }
    server.server.client().sql(&before)?;
    let (mut cut, mut prepared) = (0, 0);
    for round in 0..kills {
        let begun = server.ring.last_index().context("something is committed")?;
        let load = sessions(&server, round, &mut dice)?;
        committed(&server, begun + 20 + dice.roll(100)).await?;
        let held = dice.roll(3) > 0;
        if held {
            server.ring.set_commits_at_once(false);
            tokio::time::sleep(Duration::from_millis(dice.roll(60))).await;
        }
        server.crash().await?;
        drop(load);
        let what = || format!("kill {round}, commits held: {held}");
        server.start_again().await.with_context(what)?;
        server.equals_the_ring().with_context(what)?;
        reference
            .equals(&server.ring, &server.server)
            .with_context(what)?;
        server.recovered_without_an_error().with_context(what)?;
        cut += server.trimmed()?.len();
        server.lead().await.with_context(what)?;
        prepared += settle_prepared(&server).with_context(what)?;
    }
    let tails = server.trimmed()?;
    let transactions: u128 = tails
        .iter()
        .map(|tail| Ok(tail.gtids.parse::<binlog_format::gtid::GtidSet>()?.count()))
        .sum::<Result<u128>>()?;
    eprintln!(
        "{kills} kills, {} tails cut with {transactions} transactions, {prepared} XA transactions left prepared",
        tails.len()
    );
    ensure!(cut > 0, "no kill left anything to cut");
    Ok(())
}
