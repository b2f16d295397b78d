//! Dumps: their events, ACKs, and how they end.

use std::time::Duration;

use anyhow::{Result, ensure};
use binlog_format::gtid::GtidSet;
use mysql_link::{DumpError, DumpRefusal};

use crate::stage::{PLAIN, Received, Stage, WAITING, append, on_both};

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_of_mysqld_does_not_acknowledge_what_it_skips() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let mut waiting = stage.waiting_append(1, 1).await?;
        let uuid = stage.variable("server_uuid").await?;
        let mut replica = stage.replica(&format!("{uuid}:1").parse()?).await?;
        let mut heartbeats = 0;
        while heartbeats < 3 {
            match replica.next().await? {
                Received::Transaction(..) => anyhow::bail!("it has it already"),
                Received::Heartbeat => heartbeats += 1,
                Received::Other => {}
            }
        }
        waiting.waits().await?;
        ensure!(stage.status("Rpl_semi_sync_source_clients").await? == "1");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_wants_no_ack_for_what_is_committed() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let mut first = stage.replica(&GtidSet::new()).await?;
        let waiting = stage.waiting_append(1, 1).await?;
        let (framed, wanted) = first.transaction().await?;
        ensure!(wanted);
        first.ack(&framed).await?;
        waiting.succeeds().await?;
        // Another replica receives the same transaction. A newer replica with the same UUID ends the dump of the previous one.
        let mut second = stage.replica(&GtidSet::new()).await?;
        let (again, wanted) = second.transaction().await?;
        ensure!(!wanted && again.payload == framed.payload);
        let end = first.end().await;
        let replaced = matches!(
            &end,
            DumpError::Refused {
                refusal: DumpRefusal::DuplicateUuid,
                ..
            }
        );
        ensure!(replaced, "{end}");
        stage
            .until_status("Rpl_semi_sync_source_clients", "1")
            .await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_refuses_dumps_that_are_ahead_or_purged() -> Result<()> {
    on_both(&PLAIN, async |stage: Stage| {
        let mut client = stage.log_in("client").await?;
        client.run(&append(1, 1)).await.unwrap();
        let uuid = stage.variable("server_uuid").await?;
        let refusal = async |have: &str| -> Result<DumpRefusal> {
            let session = stage.log_in("witness").await?;
            let have: GtidSet = have.parse()?;
            match session.plain_dump(&have).await {
                Err(DumpError::Refused { refusal, .. }) => Ok(refusal),
                Err(other) => anyhow::bail!("{other}"),
                Ok(_) => anyhow::bail!("not refused"),
            }
        };
        ensure!(refusal(&format!("{uuid}:1-2")).await? == DumpRefusal::SourceBehind);
        let mut member = stage.log_in("witness").await?;
        member.run("FLUSH BINARY LOGS").await.unwrap();
        client.run(&append(1, 2)).await.unwrap();
        let files = member.run("SHOW BINARY LOGS").await.unwrap();
        let last = &files.last().unwrap()[0];
        member
            .run(&format!("PURGE BINARY LOGS TO '{last}'"))
            .await
            .unwrap();
        ensure!(member.run("SHOW BINARY LOGS").await.unwrap().len() == 1);
        ensure!(stage.variable("gtid_purged").await? == format!("{uuid}:1"));
        ensure!(member.run("PURGE BINARY LOGS TO 'binlog.000099'").await == Err(1373));
        ensure!(refusal("").await? == DumpRefusal::PurgedGtids);
        let session = stage.log_in("witness").await?;
        let mut replica = session.plain_dump(&format!("{uuid}:1").parse()?).await?;
        let (framed, _) = replica.transaction().await?;
        ensure!(framed.gtid.to_string() == format!("{uuid}:2"));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_is_stopped_in_its_tracks_keeps_its_connections() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let mut waiting = stage.waiting_append(1, 1).await?;
        let (framed, _) = replica.transaction().await?;
        let mut member = stage.log_in("witness").await?;
        stage.pause()?;
        replica.ack(&framed).await?;
        waiting.waits().await?;
        ensure!(member.is_silent().await);
        while tokio::time::timeout(Duration::from_millis(300), replica.next())
            .await
            .is_ok()
        {}
        stage.resume()?;
        waiting.succeeds().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_numbers_the_transactions_of_each_file_from_one() -> Result<()> {
    on_both(&PLAIN, async |stage: Stage| {
        let mut client = stage.log_in("client").await?;
        let mut member = stage.log_in("witness").await?;
        client.run(&append(1, 1)).await.unwrap();
        client.run(&append(1, 2)).await.unwrap();
        member.run("FLUSH BINARY LOGS").await.unwrap();
        client.run(&append(1, 3)).await.unwrap();
        let mut replica = member.plain_dump(&GtidSet::new()).await?;
        for expected in [1, 2, 1] {
            let (framed, _) = replica.transaction().await?;
            let number = framed.clock.sequence_number;
            ensure!(number == expected, "{number}, not {expected}");
        }
        Ok(())
    })
    .await
}

/// The test compares the items that the framer returns for the stream, in order.
#[tokio::test(flavor = "multi_thread")]
async fn a_dump_of_mysqld_is_announced_file_by_file() -> Result<()> {
    on_both(&PLAIN, async |stage: Stage| {
        let mut client = stage.log_in("client").await?;
        let mut member = stage.log_in("witness").await?;
        client.run(&append(1, 1)).await.unwrap();
        member.run("FLUSH BINARY LOGS").await.unwrap();
        client.run(&append(1, 2)).await.unwrap();
        let mut replica = member.plain_dump(&GtidSet::new()).await?;
        let mut items = Vec::new();
        while items.len() < 9 {
            items.push(replica.item().await?);
        }
        let expected = [
            "a made-up rotate",
            "a format description",
            "previous GTIDs",
            "a transaction",
            "a rotate",
            "a made-up rotate",
            "a format description",
            "previous GTIDs",
            "a transaction",
        ];
        ensure!(items == expected, "{items:?}");
        Ok(())
    })
    .await
}
