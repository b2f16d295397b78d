//! How a server ends, and what its next start finds.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, RawEvent};
use binlog_format::events::FormatDescription;
use binlog_format::gtid::GtidSet;

use crate::stage::{PLAIN, Stage, WAITING, append, on_both};

/// Returns a file's in-use flag and creation time.
fn description(file: &Path) -> Result<(bool, u32)> {
    let mut bytes = bytes::Bytes::from(fs::read(file)?).split_off(4);
    let event = RawEvent::split_from(&mut bytes)?.unwrap();
    let in_use = event.header().flags.contains(EventFlags::BINLOG_IN_USE);
    let described = FormatDescription::decode(event.verified(ChecksumAlgorithm::Crc32)?)?;
    Ok((in_use, described.created))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_is_killed_commits_what_its_binlog_names() -> Result<()> {
    on_both(&WAITING, async |mut stage: Stage| {
        let waiting = stage.waiting_append(1, 1).await?;
        let mut rotating = stage.log_in("witness").await?.begin("FLUSH BINARY LOGS");
        rotating.waits().await?;
        // The next transaction is prepared, but not in the binlog.
        let mut later = stage.log_in("client").await?.begin(&append(2, 2));
        later.waits().await?;
        let before = stage.binlog_files()?;
        stage.kill()?;
        ensure!(waiting.finish().await? == Err(0) && later.finish().await? == Err(0));
        stage.start()?;
        ensure!(stage.list(1).await? == ["1"] && stage.list(2).await?.is_empty());
        let uuid = stage.variable("server_uuid").await?;
        ensure!(stage.variable("gtid_executed").await? == format!("{uuid}:1"));
        ensure!(stage.binlog_files()?.len() == before.len() + 1);
        // After the restart, no session waits for the ACK of the recovered transaction.
        ensure!(stage.status("Rpl_semi_sync_source_wait_sessions").await? == "0");
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let (_, wanted) = replica.transaction().await?;
        ensure!(!wanted);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_gives_the_gtids_of_a_cut_tail_again() -> Result<()> {
    on_both(&WAITING, async |mut stage: Stage| {
        let file = stage.binlog_files()?.pop().unwrap();
        let begin = fs::metadata(&file)?.len();
        let waiting = stage.waiting_append(1, 1).await?;
        stage.kill()?;
        waiting.finish().await?.unwrap_err();
        ensure!(description(&file)?.0, "it was not closed");
        // The server itself truncates an incomplete transaction at the end.
        OpenOptions::new()
            .write(true)
            .open(&file)?
            .set_len(begin + 30)?;
        OpenOptions::new()
            .append(true)
            .open(&file)?
            .write_all(&[0; 64])?;
        stage.start()?;
        ensure!(stage.list(1).await?.is_empty());
        ensure!(stage.variable("gtid_executed").await?.is_empty());
        ensure!(fs::metadata(&file)?.len() == begin);
        ensure!(!description(&file)?.0);
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let again = stage.waiting_append(1, 5).await?;
        let (framed, _) = replica.transaction().await?;
        replica.ack(&framed).await?;
        again.succeeds().await?;
        let uuid = stage.variable("server_uuid").await?;
        ensure!(stage.variable("gtid_executed").await? == format!("{uuid}:1"));
        ensure!(stage.list(1).await? == ["5"]);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_gets_sigterm_lets_waiting_commits_through() -> Result<()> {
    on_both(&WAITING, async |mut stage: Stage| {
        let waiting = stage.waiting_append(1, 1).await?;
        let file = stage.binlog_files()?.pop().unwrap();
        let began = Instant::now();
        stage.terminate()?;
        waiting.succeeds().await?;
        stage.ends().await?;
        ensure!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        ensure!(!description(&file)?.0);
        stage.start()?;
        ensure!(stage.list(1).await? == ["1"]);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_with_a_semi_sync_replica_stops_after_ten_seconds() -> Result<()> {
    on_both(&WAITING, async |mut stage: Stage| {
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let mut waiting = stage.waiting_append(1, 1).await?;
        let (_, _) = replica.transaction().await?;
        let mut idle = stage.log_in("client").await?;
        let began = Instant::now();
        stage.terminate()?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        ensure!(idle.ping().await, "sessions stay as long as dumps do");
        waiting.waits().await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        ensure!(stage.try_log_in("witness").await.is_err());
        let reading = tokio::spawn(async move { replica.end().await });
        waiting.succeeds().await?;
        let told = began.elapsed();
        ensure!((7..13).contains(&told.as_secs()), "{told:?}");
        stage.ends().await?;
        reading.await?;
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_mysqld_ends_a_session_after_its_next_statement() -> Result<()> {
    on_both(&WAITING, async |mut stage: Stage| {
        let mut replica = stage.replica(&GtidSet::new()).await?;
        let waiting = stage.waiting_append(1, 1).await?;
        let (_, _) = replica.transaction().await?;
        let mut member = stage.log_in("witness").await?;
        let mut pinging = stage.log_in("root").await?;
        let mut open = stage.log_in("client").await?;
        let mut writing = stage.log_in("client").await?;
        open.run("BEGIN").await.unwrap();
        open.run(&append(2, 2)).await.unwrap();
        stage.terminate()?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        // None of these statements is executed, so that no client can wait for a late ACK. All run concurrently, because mysqld closes idle
        // sessions two seconds after it begins to stop.
        let third = append(3, 3);
        let (pings, member_told, open_told, writing_told) = tokio::join!(
            async { pinging.ping().await && !pinging.ping().await },
            member.run("SELECT 1"),
            open.run("COMMIT"),
            writing.run(&third),
        );
        ensure!(pings);
        for (session, told, code) in [
            (&mut member, member_told, 1053),
            (&mut open, open_told, 3100),
            (&mut writing, writing_told, 1053),
        ] {
            ensure!(told == Err(code), "{told:?}, and not {code}");
            ensure!(session.run("SELECT 1").await == Err(0), "{code}");
        }
        waiting.succeeds().await?;
        stage.ends().await?;
        stage.start()?;
        ensure!(stage.list(1).await? == ["1"]);
        ensure!(stage.list(2).await?.is_empty() && stage.list(3).await?.is_empty());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_without_dumps_waits_two_seconds_for_idle_sessions_when_it_stops() -> Result<()> {
    on_both(&PLAIN, async |mut stage: Stage| {
        let mut idle = stage.log_in("client").await?;
        idle.run("SELECT 1").await.unwrap();
        let began = Instant::now();
        stage.terminate()?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        ensure!(stage.try_log_in("client").await.is_err());
        stage.ends().await?;
        let told = began.elapsed();
        drop(idle);
        ensure!((2..6).contains(&told.as_secs()), "{told:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_begins_its_first_file_with_the_time_and_others_without() -> Result<()> {
    on_both(&PLAIN, async |mut stage: Stage| {
        let of_last = |stage: &Stage| description(&stage.binlog_files()?.pop().unwrap());
        let (in_use, created) = of_last(&stage)?;
        ensure!(in_use && created > 0);
        stage
            .log_in("witness")
            .await?
            .run("FLUSH BINARY LOGS")
            .await
            .unwrap();
        let files = stage.binlog_files()?;
        ensure!(!description(&files[files.len() - 2])?.0);
        ensure!(of_last(&stage)? == (true, 0));
        stage.terminate()?;
        stage.ends().await?;
        ensure!(of_last(&stage)? == (false, 0));
        stage.start()?;
        let (in_use, created) = of_last(&stage)?;
        ensure!(in_use && created > 0);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_counts_its_time_from_its_start() -> Result<()> {
    on_both(&PLAIN, async |mut stage: Stage| {
        const TIMER: &str = "SELECT timer_start FROM performance_schema.events_statements_current \
             WHERE thread_id = PS_CURRENT_THREAD_ID()";
        const UPTIME: &str = "SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Uptime'";
        let milliseconds = async |stage: &Stage| -> Result<u64> {
            let mut session = stage.log_in("root").await?;
            Ok(session.value(TIMER).await?.parse::<u64>()? / 1_000_000_000)
        };
        tokio::time::sleep(Duration::from_millis(2200)).await;
        let began = Instant::now();
        let first = milliseconds(&stage).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let second = milliseconds(&stage).await?;
        let passed = u64::try_from(began.elapsed().as_millis())?;
        ensure!((450..=passed + 50).contains(&(second - first)), "{first} {second}");
        let mut session = stage.log_in("root").await?;
        let up: u64 = session.value(UPTIME).await?.parse()?;
        ensure!(up >= 2 && up.abs_diff(second / 1000) <= 2, "{up} {second}");
        let again = Instant::now();
        stage.kill()?;
        stage.start()?;
        let third = milliseconds(&stage).await?;
        let passed = u64::try_from(again.elapsed().as_millis())?;
        ensure!(third <= passed + 50, "{third} {passed}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_of_mysqld_outlives_a_restart() -> Result<()> {
    let arguments = [&PLAIN[..], &["--skip-replica-start"]].concat();
    on_both(&arguments, async |mut stage: Stage| {
        const COUNT: &str = "SELECT COUNT(*) FROM performance_schema.replication_connection_configuration \
             WHERE channel_name = 'witness'";
        let mut member = stage.log_in("witness").await?;
        member.run("SET GLOBAL super_read_only = ON").await.unwrap();
        ensure!(member.run("STOP REPLICA FOR CHANNEL 'witness'").await == Err(3074));
        ensure!(member.value(COUNT).await? == "0");
        let change = "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 1, SOURCE_USER = 'x', \
             SOURCE_PASSWORD = 'y', SOURCE_SSL = 0, SOURCE_AUTO_POSITION = 1, SOURCE_CONNECT_RETRY = 1, \
             SOURCE_RETRY_COUNT = 0 FOR CHANNEL 'witness'";
        member.run(change).await.unwrap();
        member.run("START REPLICA FOR CHANNEL 'witness'").await.unwrap();
        ensure!(member.run(change).await.is_err());
        ensure!(member.run("RESET REPLICA ALL FOR CHANNEL 'witness'").await == Err(3081));
        stage.kill()?;
        stage.start()?;
        let mut member = stage.log_in("witness").await?;
        ensure!(member.value(COUNT).await? == "1");
        let state = "SELECT 'receiver', service_state, last_error_number, last_error_message, NULL \
             FROM performance_schema.replication_connection_status WHERE channel_name = 'witness' \
             UNION ALL SELECT 'worker', service_state, last_error_number, last_error_message, NULL \
             FROM performance_schema.replication_applier_status_by_worker WHERE channel_name = 'witness'";
        let threads = member.run(state).await.unwrap();
        ensure!(threads.iter().all(|row| row[1] == "OFF"), "{threads:?}");
        member.run("STOP REPLICA FOR CHANNEL 'witness'").await.unwrap();
        member.run("RESET REPLICA ALL FOR CHANNEL 'witness'").await.unwrap();
        ensure!(member.value(COUNT).await? == "0");
        Ok(())
    })
    .await
}

/// A persisted value would override the command line. Both servers run with `--no-defaults`, which disables persisted values.
#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_without_defaults_loads_nothing_that_was_persisted() -> Result<()> {
    on_both(&PLAIN, async |mut stage: Stage| {
        const PERSISTED: &str = "SELECT @@GLOBAL.event_scheduler, (SELECT variable_value FROM \
             performance_schema.persisted_variables WHERE variable_name = 'event_scheduler')";
        let mut member = stage.log_in("witness").await?;
        member
            .run("SET PERSIST_ONLY event_scheduler = ON")
            .await
            .unwrap();
        ensure!(member.run(PERSISTED).await.unwrap() == [["OFF", "ON"]]);
        let all = "SELECT variable_name, variable_value FROM performance_schema.persisted_variables";
        ensure!(member.run(all).await.unwrap() == [["event_scheduler", "ON"]]);
        member.run("SET GLOBAL event_scheduler = ON").await.unwrap();
        ensure!(member.run(PERSISTED).await.unwrap() == [["ON", "ON"]]);
        stage.kill()?;
        stage.start()?;
        let mut member = stage.log_in("witness").await?;
        ensure!(member.value("SELECT @@GLOBAL.event_scheduler").await? == "OFF");
        // RESET PERSIST of one variable keeps the running value and the other persisted values.
        member.run("RESET PERSIST IF EXISTS event_scheduler").await.unwrap();
        ensure!(member.run(all).await.unwrap().is_empty());
        let lifetime = "SELECT IFNULL(password_lifetime, @@GLOBAL.default_password_lifetime) FROM mysql.user \
             WHERE CONCAT(user, '@', host) = CURRENT_USER()";
        ensure!(member.value(lifetime).await? == "0");
        Ok(())
    })
    .await
}
