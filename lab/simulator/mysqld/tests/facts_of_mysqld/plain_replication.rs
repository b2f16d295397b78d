//! Plain replication between two servers by GTIDs, with and without semi-sync, and the statements for it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::stage::{EITHER_END, PLAIN, Player, Stage, append, on_both, on_both_pairs};

const LIMIT: Duration = Duration::from_secs(60);
const STATUS: &str = "SHOW REPLICA STATUS";
/// The query with which members check whether a replica acknowledges.
const ACKNOWLEDGES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('rpl_semi_sync_replica_enabled', 'rpl_semi_sync_slave_enabled')";
const RECEIVE_AGAIN: [&str; 2] = ["STOP REPLICA IO_THREAD", "START REPLICA IO_THREAD"];

fn change(source: &Stage) -> String {
    format!(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {}, SOURCE_USER = 'witness', \
         SOURCE_PASSWORD = 'secret', SOURCE_SSL = 0, SOURCE_AUTO_POSITION = 1, SOURCE_CONNECT_RETRY = 1, \
         GET_SOURCE_PUBLIC_KEY = 1",
        source.port()
    )
}

async fn run(session: &mut Player, statements: &[&str]) -> Result<()> {
    for statement in statements {
        let told = session.run(statement).await;
        ensure!(told.is_ok(), "{statement}: {told:?}");
    }
    Ok(())
}

/// Returns whether the receiver is connected and whether the applier runs.
async fn threads(session: &mut Player) -> Result<(String, String)> {
    let columns = ["Replica_IO_Running", "Replica_SQL_Running"];
    let row = session.named(STATUS, &columns).await?;
    let mut row = row.unwrap_or_default().into_iter();
    Ok((
        row.next().unwrap_or_default(),
        row.next().unwrap_or_default(),
    ))
}

async fn until_connected(replica: &Stage) -> Result<()> {
    let began = Instant::now();
    let mut session = replica.log_in("root").await?;
    loop {
        let threads = threads(&mut session).await?;
        if threads == ("Yes".to_owned(), "Yes".to_owned()) {
            return Ok(());
        }
        ensure!(
            began.elapsed() < LIMIT,
            "it does not replicate: {threads:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_list(replica: &Stage, list: u64, values: &[&str]) -> Result<()> {
    let began = Instant::now();
    while replica.list(list).await? != values {
        ensure!(began.elapsed() < LIMIT, "not {values:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_follows_another_one_by_gtids_while_it_is_closed() -> Result<()> {
    on_both_pairs(&PLAIN, async |mut source: Stage, mut replica: Stage| {
        let mut client = source.log_in("client").await?;
        client.run(&append(1, 1)).await.unwrap();
        let mut session = replica.log_in("witness").await?;
        run(&mut session, &["SET GLOBAL super_read_only = ON"]).await?;
        run(&mut session, &[&change(&source)]).await?;
        let columns = [
            "Channel_Name",
            "Source_Host",
            "Source_Port",
            "Source_User",
            "Source_UUID",
        ];
        let row = session.named(STATUS, &columns).await?.unwrap_or_default();
        let port = source.port().to_string();
        ensure!(row == ["", "127.0.0.1", &port, "witness", ""], "{row:?}");
        ensure!(threads(&mut session).await? == ("No".into(), "No".into()));
        run(&mut session, &["START REPLICA"]).await?;
        until_list(&replica, 1, &["1"]).await?;
        let row = session.named(STATUS, &columns).await?.unwrap_or_default();
        ensure!(row[4] == source.variable("server_uuid").await?);
        let executed = source.variable("gtid_executed").await?;
        ensure!(replica.variable("gtid_executed").await? == executed);
        // The replica is read-only for clients, in any state of its threads.
        let mut other = replica.log_in("client").await?;
        ensure!(other.run(&append(1, 9)).await == Err(1290));
        // After a restart of the replica, and after one of the source, the replica continues without a command.
        replica.kill()?;
        client.run(&append(1, 2)).await.unwrap();
        replica.start()?;
        until_list(&replica, 1, &["1", "2"]).await?;
        source.kill()?;
        source.start()?;
        let mut client = source.log_in("client").await?;
        client.run(&append(1, 3)).await.unwrap();
        until_list(&replica, 1, &["1", "2", "3"]).await?;
        let mut session = replica.log_in("witness").await?;
        ensure!(session.run("RESET REPLICA ALL").await == Err(3081));
        run(&mut session, &["STOP REPLICA", "RESET REPLICA ALL"]).await?;
        ensure!(session.named(STATUS, &columns).await?.is_none());
        ensure!(
            replica.variable("gtid_executed").await? == source.variable("gtid_executed").await?
        );
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_acknowledges_as_configured_at_its_connection() -> Result<()> {
    on_both_pairs(&EITHER_END, async |source: Stage, replica: Stage| {
        let mut at_source = source.log_in("witness").await?;
        run(
            &mut at_source,
            &["SET GLOBAL rpl_semi_sync_source_enabled = ON"],
        )
        .await?;
        let mut session = replica.log_in("witness").await?;
        ensure!(
            session.run(ACKNOWLEDGES).await
                == Ok(vec![vec![
                    "rpl_semi_sync_replica_enabled".into(),
                    "OFF".into()
                ]])
        );
        run(
            &mut session,
            &["SET GLOBAL rpl_semi_sync_replica_enabled = ON"],
        )
        .await?;
        let mut waiting = source.waiting_append(1, 1).await?;
        waiting.waits().await?;
        run(&mut session, &[&change(&source), "START REPLICA"]).await?;
        waiting.succeeds().await?;
        until_list(&replica, 1, &["1"]).await?;
        source
            .until_status("Rpl_semi_sync_source_clients", "1")
            .await?;
        // The new setting takes effect at the next connection.
        run(
            &mut session,
            &["SET GLOBAL rpl_semi_sync_replica_enabled = OFF"],
        )
        .await?;
        let mut client = source.log_in("client").await?;
        client.run(&append(1, 2)).await.unwrap();
        run(&mut session, &RECEIVE_AGAIN).await?;
        until_connected(&replica).await?;
        source
            .until_status("Rpl_semi_sync_source_clients", "0")
            .await?;
        let mut waiting = source.waiting_append(1, 3).await?;
        waiting.waits().await?;
        // The replica has received the transaction without acknowledging it, and shows it before the source does.
        until_list(&replica, 1, &["1", "2", "3"]).await?;
        ensure!(source.list(1).await? == ["1", "2"]);
        waiting.abandon();
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_without_a_source_has_nothing_to_stop_and_nothing_to_start() -> Result<()> {
    on_both(&PLAIN, async |stage: Stage| {
        let mut session = stage.log_in("witness").await?;
        ensure!(session.run(STATUS).await == Ok(vec![]));
        ensure!(session.run(ACKNOWLEDGES).await == Ok(vec![]));
        run(&mut session, &["STOP REPLICA", "RESET REPLICA ALL"]).await?;
        ensure!(session.run("START REPLICA").await == Err(1200));
        ensure!(session.run("STOP REPLICA FOR CHANNEL 'witness'").await == Err(3074));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_mysqld_with_a_name_goes_with_its_session() -> Result<()> {
    const LOCK: &str = "SELECT GET_LOCK('witness.conversion', 0)";
    on_both(&PLAIN, async |stage: Stage| {
        let mut first = stage.log_in("witness").await?;
        let mut second = stage.log_in("witness").await?;
        ensure!(first.value(LOCK).await? == "1" && first.value(LOCK).await? == "1");
        ensure!(second.value(LOCK).await? == "0");
        drop(first);
        let began = Instant::now();
        while second.value(LOCK).await? != "1" {
            ensure!(began.elapsed() < LIMIT, "it stays");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    })
    .await
}
