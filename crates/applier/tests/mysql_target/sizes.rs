//! Transactions and rows that are much larger than others.

use anyhow::{Result, ensure};
use applier::backend::WriteError;

use crate::pair::{Pair, Way};

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

    // A row that the target does not take.
    pair.write("INSERT INTO d.large VALUES (2, 'small'), (3, REPEAT('y', 3000000)), (4, '')")?;
    for way in [Way::Batches(8), Way::Pieces(5)] {
        let stop = pair.follow(way).await?.expect_err("too large");
        let WriteError::Refused(refusal) = &stop.error else {
            panic!("{}", stop.error);
        };
        ensure!((refusal.code, refusal.row) == (1153, Some(2)), "{refusal}");
        ensure!(
            refusal.words.contains("SET GLOBAL max_allowed_packet = "),
            "{refusal}"
        );
    }
    pair.tamper("SET GLOBAL max_allowed_packet = 64 * 1024 * 1024")?;
    pair.write(
        "USE d; BEGIN; INSERT INTO large VALUES (5, REPEAT('z', 20000000)), (6, REPEAT('z', 5000000)); UPDATE large SET b = CONCAT(b, 'more') WHERE id = 6;
         DELETE FROM large WHERE id = 5; COMMIT",
    )?;
    pair.equal_after(Way::Batches(8), &["d"]).await
}
