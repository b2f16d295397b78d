//! Commits that wait for an ACK.

use anyhow::{Result, ensure};
use binlog_format::gtid::GtidSet;

use crate::stage::{PLAIN, Stage, WAITING, append, on_both, read};

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_commits_what_was_acknowledged() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let uuid = stage.variable("server_uuid").await?;
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let mut waiting = stage.waiting_append(1, 7).await?;
        waiting.waits().await?;
        ensure!(stage.list(1).await?.is_empty());
        ensure!(stage.variable("gtid_executed").await?.is_empty());
        let owned = stage.variable("gtid_owned").await?;
        ensure!(owned.starts_with(&format!("{uuid}:1#")), "{owned}");
        let mut looks = stage.log_in("root").await?;
        let processes = looks.run("SHOW PROCESSLIST").await.unwrap();
        let of_client: Vec<_> = processes.iter().filter(|row| row[1] == "client").collect();
        ensure!(
            of_client.len() == 1 && of_client[0][4] == "Query",
            "{of_client:?}"
        );
        ensure!(
            of_client[0][6] == "Waiting for semi-sync ACK from replica",
            "{of_client:?}"
        );
        let (framed, wanted) = replica.transaction().await?;
        ensure!(wanted && framed.gtid.to_string() == format!("{uuid}:1"));
        replica.ack(&framed).await?;
        waiting.succeeds().await?;
        ensure!(stage.list(1).await? == ["7"]);
        ensure!(stage.variable("gtid_executed").await? == format!("{uuid}:1"));
        ensure!(stage.variable("gtid_owned").await?.is_empty());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_makes_one_group_of_commits_queued_after_a_waiting_one() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let first = stage.waiting_append(1, 1).await?;
        let mut second = stage.log_in("client").await?.begin(&append(2, 2));
        let (one, _) = replica.transaction().await?;
        let (two, wanted) = replica.transaction().await?;
        ensure!(wanted, "what queues is in the log, and wants its ACK");
        let mut third = stage.log_in("client").await?.begin(&append(3, 3));
        let (three, _) = replica.transaction().await?;
        // The transaction is in the binlog before its session is in the commit queue.
        stage
            .until_processes("waiting for handler commit", 2)
            .await?;
        third.waits().await?;
        replica.ack(&one).await?;
        first.succeeds().await?;
        second.waits().await?;
        replica.ack(&two).await?;
        second.waits().await?;
        third.waits().await?;
        replica.ack(&three).await?;
        second.succeeds().await?;
        third.succeeds().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_holds_row_locks_until_the_engine_has_committed() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let begun = stage.waiting_append(1, 1).await?;
        let (framed, _) = replica.transaction().await?;
        replica.ack(&framed).await?;
        begun.succeeds().await?;
        let first = stage.waiting_append(1, 2).await?;
        let mut second = stage.log_in("client").await?.begin(&append(1, 3));
        second.waits().await?;
        let (framed, _) = replica.transaction().await?;
        replica.ack(&framed).await?;
        first.succeeds().await?;
        let (framed, _) = replica.transaction().await?;
        replica.ack(&framed).await?;
        second.succeeds().await?;
        ensure!(stage.list(1).await? == ["1", "2", "3"]);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_keeps_a_transaction_open_until_its_commit() -> Result<()> {
    on_both(&PLAIN, async |stage: Stage| {
        let mut client = stage.log_in("client").await?;
        client.run("BEGIN").await.unwrap();
        client.run(&append(1, 1)).await.unwrap();
        client.run(&append(2, 2)).await.unwrap();
        ensure!(client.run(&read(1)).await.unwrap() == [["1"]]);
        ensure!(stage.list(1).await?.is_empty());
        client.run("COMMIT").await.unwrap();
        ensure!(stage.list(1).await? == ["1"] && stage.list(2).await? == ["2"]);
        client.run("START TRANSACTION").await.unwrap();
        client.run(&append(1, 3)).await.unwrap();
        client.run("ROLLBACK").await.unwrap();
        ensure!(stage.list(1).await? == ["1"]);
        let uuid = stage.variable("server_uuid").await?;
        ensure!(stage.variable("gtid_executed").await? == format!("{uuid}:1"));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_with_semi_sync_switched_off_while_waiting_does_not_switch_it_on() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let waiting = stage.waiting_append(1, 1).await?;
        let switching = stage.log_in("root").await?;
        let mut switching = switching.begin("SET GLOBAL rpl_semi_sync_source_enabled = OFF");
        switching.waits().await?;
        let (framed, _) = replica.transaction().await?;
        replica.ack(&framed).await?;
        waiting.succeeds().await?;
        switching.succeeds().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_does_not_wait_without_replicas_if_configured() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let mut root = stage.log_in("root").await?;
        root.run("SET GLOBAL rpl_semi_sync_source_wait_no_replica = OFF")
            .await
            .unwrap();
        stage
            .log_in("client")
            .await?
            .begin(&append(1, 1))
            .succeeds()
            .await
    })
    .await
}
