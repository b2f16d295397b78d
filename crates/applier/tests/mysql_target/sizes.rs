//! Transactions and rows that are much larger or slower than others.

use std::time::Duration;

use anyhow::{Result, ensure};
use applier::backend::Backend;
use applier::backend::WriteError;
use applier::mysql::{MysqlBackend, MysqlOptions};

use crate::pair::{Pair, Way, connect};

#[tokio::test]
async fn huge_transactions_and_huge_rows_reach_mysqld() -> Result<()> {
    let mut pair = Pair::with(
        &["--max-allowed-packet=64M"],
        &["--max-allowed-packet=1M"],
        |_| {},
    )
    .await?;
    pair.write(
        "CREATE DATABASE d; USE d; CREATE TABLE many (id INT PRIMARY KEY, v CHAR(40)); CREATE TABLE large (id INT PRIMARY KEY, b LONGBLOB);
         SET cte_max_recursion_depth = 200000; INSERT INTO many WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 100000) SELECT i, HEX(i * 7919) FROM n;
         BEGIN; UPDATE many SET v = REVERSE(v) WHERE id % 4 = 0; DELETE FROM many WHERE id % 2 = 1; INSERT INTO large VALUES (1, REPEAT('x', 300000)); COMMIT;",
    )?;
    pair.equal_after(Way::Batches(8), &["d"]).await?;
    pair.write("UPDATE d.many SET v = 'all'; INSERT INTO d.many VALUES (1, '')")?;
    pair.equal_after(Way::Pieces(1), &["d"]).await?;

    // A row larger than the target accepts, with an account that may not change the limit.
    pair.tamper(
        "CREATE USER limited; GRANT REPLICATION_APPLIER, TRANSACTION_GTID_TAG, SESSION_VARIABLES_ADMIN, INSERT, UPDATE, DELETE, SELECT ON *.* TO limited",
    )?;
    let able = std::mem::replace(
        &mut pair.backend,
        MysqlBackend::connect(MysqlOptions::new(connect(&pair.target, "limited"))).await?,
    );
    pair.write("INSERT INTO d.large VALUES (2, 'small'), (3, REPEAT('y', 3000000)), (4, '')")?;
    for (turn, way) in [Way::Batches(8), Way::Pieces(5)].into_iter().enumerate() {
        if turn == 0 {
            let lost = pair.follow(way).await?.expect_err("too large");
            ensure!(matches!(lost.error, WriteError::Lost(_)), "{}", lost.error);
        }
        let stop = pair.follow(way).await?.expect_err("too large");
        let WriteError::Refused(refusal) = &stop.error else {
            panic!("{}", stop.error);
        };
        ensure!((refusal.code, refusal.row) == (1153, Some(2)), "{refusal}");
        ensure!(
            refusal.message.contains("SET GLOBAL max_allowed_packet = "),
            "{refusal}"
        );
    }
    // With an account that may change the limit, the next session can send the row.
    pair.backend = able;
    pair.backend.begin().await?;
    let lost = pair.follow(Way::Pieces(5)).await?.expect_err("too large");
    ensure!(matches!(lost.error, WriteError::Lost(_)), "{}", lost.error);
    pair.equal_after(Way::Pieces(5), &["d"]).await?;
    ensure!(pair.target.client().variable("max_allowed_packet")? == "1048576");
    pair.write(
        "USE d; BEGIN; INSERT INTO large VALUES (5, REPEAT('z', 20000000)), (6, REPEAT('z', 5000000)); UPDATE large SET b = CONCAT(b, 'more') WHERE id = 6;
         DELETE FROM large WHERE id = 5; COMMIT",
    )?;
    pair.equal_after(Way::Batches(8), &["d"]).await
}

#[tokio::test]
async fn rows_of_which_the_source_takes_one_in_a_packet_are_followed() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.write("CREATE DATABASE d; CREATE TABLE d.large (id INT PRIMARY KEY, b LONGBLOB)")?;
    pair.equal_after(Way::Batches(8), &["d"]).await?;
    // 64 MiB, the most that the source accepts by default: first among other rows, then in a barrier.
    pair.write(
        "USE d; BEGIN; INSERT INTO large VALUES (1, 'a'), (2, REPEAT('b', 64 << 20)), (3, 'c'); DELETE FROM large WHERE id = 1; COMMIT;
         XA START 'x'; INSERT INTO large VALUES (4, REPEAT('d', 52 << 20)), (5, 'e'); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x';",
    )?;
    let lost = pair.follow(Way::Batches(8)).await?.expect_err("too large");
    ensure!(matches!(lost.error, WriteError::Lost(_)), "{}", lost.error);
    pair.equal_after(Way::Batches(8), &["d"]).await?;
    ensure!(pair.target.client().variable("max_allowed_packet")? == "67108864");
    Ok(())
}

/// More rows than fit into a packet, of a table that is searched for each row. The packet's time limit is doubled until
/// it suffices.
#[tokio::test]
async fn rows_that_take_longer_than_they_may_are_applied_all_the_same() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.write(
        "CREATE DATABASE d; USE d; CREATE TABLE keyless (id INT, v VARCHAR(1000)); SET cte_max_recursion_depth = 5000;
         INSERT INTO keyless WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 3000) SELECT i, REPEAT('v', 1000) FROM n;",
    )?;
    pair.equal_after(Way::Batches(8), &["d"]).await?;
    let mut options = MysqlOptions::new(connect(&pair.target, "root"));
    options.lock_wait = Duration::from_secs(1);
    options.rows_limit = Duration::from_millis(50);
    pair.backend = MysqlBackend::connect(options).await?;
    pair.backend.begin().await?;
    pair.write("UPDATE d.keyless SET v = CONCAT('w', SUBSTRING(v, 2))")?;
    let mut given_up = 0;
    while let Err(stop) = pair.follow(Way::Batches(8)).await? {
        let is_refused = matches!(stop.error, WriteError::Refused(_));
        ensure!(!is_refused, "{}", stop.error);
        given_up += 1;
        ensure!(given_up < 200, "it is given up indefinitely");
    }
    ensure!(given_up > 0, "nothing took longer than it may");
    pair.compare(&["d"]).await
}
