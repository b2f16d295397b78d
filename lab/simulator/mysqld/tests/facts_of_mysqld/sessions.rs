//! Accepted and refused logins.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::stage::{LIMIT, PLAIN, Stage, on_both};

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_has_one_more_connection_for_administrators() -> Result<()> {
    on_both(&PLAIN, async |stage: Stage| {
        let mut member = stage.log_in("witness").await?;
        member.run("SET GLOBAL max_connections = 3").await.unwrap();
        let _first = stage.log_in("client").await?;
        let _second = stage.log_in("client").await?;
        ensure!(stage.try_log_in("client").await.err() == Some(1040));
        // The reserved connection is free as soon as the refused client has disconnected.
        let began = Instant::now();
        let more = loop {
            match stage.try_log_in("witness").await {
                Ok(more) => break more,
                Err(code) => ensure!(code == 1040 && began.elapsed() < LIMIT, "{code}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        ensure!(stage.try_log_in("witness").await.err() == Some(1040));
        drop(more);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_accepts_no_login_without_the_password() -> Result<()> {
    on_both(&PLAIN, async |stage: Stage| {
        ensure!(stage.try_log_in("nobody").await.err() == Some(1045));
        let mut member = stage.log_in("witness").await?;
        ensure!(member.value("SELECT CURRENT_USER()").await? == "witness@%");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn mysqld_shows_switches_in_two_forms() -> Result<()> {
    on_both(&PLAIN, async |stage: Stage| {
        let mut root = stage.log_in("root").await?;
        for (name, shown, selected) in [
            ("read_only", "OFF", "0"),
            ("log_bin", "ON", "1"),
            ("gtid_mode", "ON", "ON"),
            ("enforce_gtid_consistency", "ON", "ON"),
            ("event_scheduler", "OFF", "OFF"),
            ("binlog_encryption", "OFF", "0"),
            ("sync_binlog", "1", "1"),
            ("binlog_checksum", "CRC32", "CRC32"),
        ] {
            let show =
                format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('{name}', 'no_such_thing')");
            ensure!(root.run(&show).await.unwrap() == [[name, shown]], "{name}");
            ensure!(
                root.value(&format!("SELECT @@GLOBAL.{name}")).await? == selected,
                "{name}"
            );
        }
        Ok(())
    })
    .await
}
