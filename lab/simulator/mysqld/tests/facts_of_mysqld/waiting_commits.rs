//! Operations that wait for commits without an ACK, and operations that do not.

use anyhow::{Result, ensure};
use binlog_format::gtid::GtidSet;

use crate::stage::{PLAIN, Stage, WAITING, append, on_both, read};

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_closes_for_writes_after_waiting_commits() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let waiting = stage.waiting_append(1, 1).await?;
        let mut member = stage.log_in("witness").await?;
        for option in ["super_read_only", "read_only"] {
            let close = format!("SET SESSION lock_wait_timeout = 1, GLOBAL {option} = ON");
            ensure!(member.run(&close).await == Err(1205), "{option}");
            ensure!(stage.variable("read_only").await? == "0");
            ensure!(stage.variable("super_read_only").await? == "0");
        }
        let close = "SET SESSION lock_wait_timeout = 20, GLOBAL super_read_only = ON";
        let mut closing = member.begin(close);
        closing.waits().await?;
        // The variable shows ON before it is in force. No write can begin, and reads continue.
        ensure!(stage.variable("super_read_only").await? == "1");
        ensure!(stage.variable("read_only").await? == "0");
        let mut writer = stage.log_in("client").await?.begin(&append(2, 2));
        writer.waits().await?;
        ensure!(stage.log_in("client").await?.run(&read(1)).await == Ok(vec![]));
        let (framed, _) = replica.transaction().await?;
        replica.ack(&framed).await?;
        waiting.succeeds().await?;
        closing.succeeds().await?;
        writer.fails(1290).await?;
        ensure!(stage.variable("read_only").await? == "1");
        ensure!(stage.variable("super_read_only").await? == "1");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_continues_to_write_when_a_closing_is_abandoned_or_killed() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let first = stage.waiting_append(1, 1).await?;
        let closer = stage.log_in("witness").await?;
        let id = closer.id();
        let mut closing = closer.begin("SET GLOBAL super_read_only = ON");
        closing.waits().await?;
        let mut writer = stage.log_in("client").await?.begin(&append(2, 2));
        writer.waits().await?;
        stage
            .log_in("witness")
            .await?
            .run(&format!("KILL CONNECTION {id}"))
            .await
            .unwrap();
        closing.finish().await?.unwrap_err();
        // The variable shows ON until the statement has ended, which may be shortly after the end of its connection.
        stage.until_variable("super_read_only", "0").await?;
        for _ in 0..2 {
            let (framed, _) = replica.transaction().await?;
            replica.ack(&framed).await?;
        }
        first.succeeds().await?;
        writer.succeeds().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_begins_a_file_only_after_waiting_commits() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let mut looks = stage.log_in("root").await?;
        let mut first = stage.waiting_append(1, 1).await?;
        looks.run("SHOW BINARY LOG STATUS").await.unwrap();
        let mut rotating = stage.log_in("witness").await?.begin("FLUSH BINARY LOGS");
        rotating.waits().await?;
        let mut second = stage.log_in("client").await?.begin(&append(2, 2));
        second.waits().await?;
        // A transaction that waits for the rotation is not in the binlog yet.
        let (one, _) = replica.transaction().await?;
        let owned = stage.variable("gtid_owned").await?;
        ensure!(owned.matches('#').count() == 1, "{owned}");
        let mut status = looks.begin("SHOW BINARY LOG STATUS");
        status.waits().await?;
        first.waits().await?;
        replica.ack(&one).await?;
        first.succeeds().await?;
        rotating.succeeds().await?;
        let (two, _) = replica.transaction().await?;
        ensure!(two.end_position.file != one.end_position.file);
        status.succeeds().await?;
        replica.ack(&two).await?;
        second.succeeds().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_kills_clients_and_not_their_commits() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let client = stage.log_in("client").await?;
        let id = client.id();
        let mut waiting = client.begin(&append(1, 1));
        stage
            .until_status("Rpl_semi_sync_source_wait_sessions", "1")
            .await?;
        let mut member = stage.log_in("witness").await?;
        member.run(&format!("KILL QUERY {id}")).await.unwrap();
        waiting.waits().await?;
        member.run(&format!("KILL {id}")).await.unwrap();
        waiting.finish().await?.unwrap_err();
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        ensure!(stage.list(1).await?.is_empty());
        ensure!(stage.status("Rpl_semi_sync_source_wait_sessions").await? == "1");
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let (framed, _) = replica.transaction().await?;
        replica.ack(&framed).await?;
        stage
            .until_status("Rpl_semi_sync_source_wait_sessions", "0")
            .await?;
        ensure!(stage.list(1).await? == ["1"]);
        ensure!(member.run("KILL 4000000").await == Err(1094));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_goes_offline_without_waiting() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let waiting = stage.waiting_append(1, 1).await?;
        let mut idle = stage.log_in("client").await?;
        let mut member = stage.log_in("witness").await?;
        member.run("SET GLOBAL offline_mode = ON").await.unwrap();
        waiting.finish().await?.unwrap_err();
        ensure!(idle.run("SELECT 1").await.is_err());
        ensure!(stage.try_log_in("client").await.err() == Some(3032));
        let who = "SELECT variable_source = 'DYNAMIC' AND set_user = SUBSTRING_INDEX(USER(), '@', 1) \
                   FROM performance_schema.variables_info WHERE variable_name = 'offline_mode'";
        ensure!(member.value(who).await? == "1");
        ensure!(stage.log_in("root").await?.value(who).await? == "0");
        ensure!(stage.status("Rpl_semi_sync_source_wait_sessions").await? == "1");
        ensure!(stage.list(1).await?.is_empty());
        member.run("SET GLOBAL offline_mode = OFF").await.unwrap();
        stage.log_in("client").await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_accepts_no_login_while_an_account_waits() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let mut reserve = stage.log_in("witness").await?;
        let mut member = stage.log_in("witness").await?;
        let mut root = stage.log_in("root").await?;
        let grants = stage.log_in("witness").await?;
        let status = stage.log_in("witness").await?;
        let set = stage.log_in("witness").await?;
        // After its OK packet, a login acquires the account lock once more. The pings wait for this.
        for session in [&mut reserve, &mut member, &mut root] {
            ensure!(session.ping().await);
        }
        let creates = stage.log_in("root").await?;
        let mut waiting = creates.begin("CREATE USER 'x'@'%' IDENTIFIED BY 'y'");
        waiting.waits().await?;
        let mut entering = stage.begin_log_in("client");
        entering.waits().await?;
        member.value("SELECT @@GLOBAL.gtid_executed").await?;
        ensure!(reserve.ping().await);
        let mut grants = grants.begin("SHOW GRANTS");
        let mut status = status.begin("SHOW GLOBAL STATUS LIKE 'Uptime'");
        let mut set = set.begin("SET GLOBAL sync_binlog = 1");
        grants.waits().await?;
        status.waits().await?;
        set.waits().await?;
        root.run("SHOW GLOBAL STATUS LIKE 'Uptime'").await.unwrap();
        root.run("SET GLOBAL sync_binlog = 1").await.unwrap();
        let mut replica = reserve.dump(&GtidSet::new(), 0x4001, false).await?;
        let (framed, wanted) = replica.transaction().await?;
        ensure!(wanted);
        replica.ack(&framed).await?;
        waiting.succeeds().await?;
        grants.succeeds().await?;
        status.succeeds().await?;
        set.succeeds().await?;
        ensure!(entering.finish().await?.is_ok());
        Ok(())
    })
    .await
}

const HOLDERS: &str = "SELECT t.PROCESSLIST_ID, t.PROCESSLIST_TIME, t.PROCESSLIST_USER, t.PROCESSLIST_HOST, held.OBJECT_TYPE \
     FROM performance_schema.metadata_locks AS held \
     JOIN performance_schema.threads AS t ON t.THREAD_ID = held.OWNER_THREAD_ID \
     WHERE held.LOCK_STATUS = 'GRANTED' AND t.TYPE = 'FOREGROUND' AND t.PROCESSLIST_ID <> CONNECTION_ID() \
     AND held.OBJECT_TYPE = 'GLOBAL' AND held.LOCK_TYPE = 'INTENTION_EXCLUSIVE' \
     AND NOT EXISTS (SELECT 1 FROM performance_schema.metadata_locks AS committing \
         WHERE committing.OWNER_THREAD_ID = held.OWNER_THREAD_ID \
         AND committing.OBJECT_TYPE = 'COMMIT' AND committing.LOCK_STATUS = 'GRANTED')";

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_closes_after_writing_statements_and_refuses_idle_transactions() -> Result<()> {
    on_both(&PLAIN, async |stage: Stage| {
        stage
            .log_in("client")
            .await?
            .run(&append(1, 0))
            .await
            .unwrap();
        let mut idle = stage.log_in("client").await?;
        idle.run("BEGIN").await.unwrap();
        idle.run(&append(1, 1)).await.unwrap();
        let mut member = stage.log_in("witness").await?;
        ensure!(member.run(HOLDERS).await == Ok(vec![]));
        // No session waits for row locks of the idle transaction.
        let row_waits = "SELECT BLOCKING_THREAD_ID FROM performance_schema.data_lock_waits";
        ensure!(member.run(row_waits).await == Ok(vec![]));
        let writer = stage.log_in("client").await?;
        let id = writer.id();
        let mut writing = writer.begin(&append(1, 2));
        writing.waits().await?;
        let holders = member.run(HOLDERS).await.unwrap();
        ensure!(
            holders.len() == 1 && holders[0][0] == id.to_string(),
            "{holders:?}"
        );
        let mut closing = member.begin("SET GLOBAL super_read_only = ON");
        closing.waits().await?;
        stage
            .log_in("witness")
            .await?
            .run(&format!("KILL {id}"))
            .await
            .unwrap();
        writing.finish().await?.unwrap_err();
        closing.succeeds().await?;
        ensure!(idle.run("COMMIT").await == Err(1290));
        ensure!(stage.list(1).await? == ["0"]);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_refuses_writes_by_its_read_only_modes() -> Result<()> {
    on_both(&PLAIN, async |stage: Stage| {
        let mut member = stage.log_in("witness").await?;
        let mut root = stage.log_in("root").await?;
        let mut client = stage.log_in("client").await?;
        ensure!(client.run("SET GLOBAL read_only = ON").await == Err(1227));
        member.run("SET GLOBAL read_only = ON").await.unwrap();
        ensure!(client.run(&append(1, 1)).await == Err(1290));
        root.run(&append(1, 2)).await.unwrap();
        member.run("SET GLOBAL super_read_only = ON").await.unwrap();
        ensure!(root.run(&append(1, 3)).await == Err(1290));
        let install = "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'";
        ensure!(root.run(install).await == Err(1290));
        member
            .run("SET PERSIST_ONLY event_scheduler = OFF")
            .await
            .unwrap();
        member
            .run("SET GLOBAL super_read_only = OFF")
            .await
            .unwrap();
        ensure!(stage.variable("read_only").await? == "1");
        let missing = "SELECT @@GLOBAL.rpl_semi_sync_source_enabled";
        ensure!(member.run(missing).await == Err(1193));
        let executed = stage.variable("gtid_executed").await?;
        root.run(install).await.unwrap();
        ensure!(root.run(install).await == Err(1125));
        ensure!(member.value(missing).await? == "0");
        ensure!(stage.variable("gtid_executed").await? == executed);
        member.run("SET GLOBAL super_read_only = ON").await.unwrap();
        member.run("SET GLOBAL read_only = OFF").await.unwrap();
        ensure!(stage.variable("super_read_only").await? == "0");
        client.run(&append(1, 4)).await.unwrap();
        ensure!(stage.list(1).await? == ["2", "4"]);
        ensure!(member.run("SET GLOBAL no_such_thing = 1").await == Err(1193));
        ensure!(member.run("SET GLOBAL server_uuid = 'x'").await == Err(1238));
        Ok(())
    })
    .await
}

/// `SET GLOBAL super_read_only` has two steps. If `read_only` is already on, `super_read_only` shows ON only when it is in force.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_mysqld_reads_super_read_only_when_it_is_in_force() -> Result<()> {
    on_both(&WAITING, async |stage: Stage| {
        let mut root = stage.log_in("root").await?;
        root.run("SET GLOBAL read_only = ON").await.unwrap();
        let mut waiting = root.begin(&append(1, 1));
        stage
            .until_status("Rpl_semi_sync_source_wait_sessions", "1")
            .await?;
        let closing = stage.log_in("witness").await?;
        let mut closing = closing.begin("SET GLOBAL read_only = ON, GLOBAL super_read_only = ON");
        closing.waits().await?;
        ensure!(stage.variable("super_read_only").await? == "0");
        waiting.waits().await?;
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let (framed, _) = replica.transaction().await?;
        replica.ack(&framed).await?;
        waiting.succeeds().await?;
        closing.succeeds().await?;
        ensure!(stage.variable("super_read_only").await? == "1");
        Ok(())
    })
    .await
}
