//! Steps of a conversion on a real server.

use anyhow::Result;
use mysqld_controller::conversion::{look, steps};

use crate::primary::{connect, eventually, finish, launch, requirements, visible};

/// As behind a restart of a primary whose replicas were told to acknowledge no more: semi-sync cannot be switched off while a commit
/// waits.
#[tokio::test(flavor = "multi_thread")]
async fn commits_that_nobody_acknowledges_are_let_through() -> Result<()> {
    let server = launch(&[])?;
    let client = server.client();
    client.sql(
        "SET GLOBAL rpl_semi_sync_source_timeout = 1000000000000000000; SET GLOBAL rpl_semi_sync_source_enabled = ON",
    )?;
    let mut waiting = Vec::new();
    for id in 1..=3 {
        waiting.push(client.start_sql(&format!("INSERT INTO d.t VALUES ({id}, '')"))?);
    }
    let wait_sessions = || server.client().status("Rpl_semi_sync_source_wait_sessions");
    eventually("they wait", || Ok(wait_sessions()? != "0")).await?;
    steps::stop_waiting(&connect(&server.socket()), &requirements()).await?;
    for insert in waiting {
        finish(insert).await?;
    }
    assert!(visible(&server, 1)? && visible(&server, 2)? && visible(&server, 3)?);
    assert_eq!(client.variable("rpl_semi_sync_source_enabled")?, "0");
    let dumps =
        "SELECT COUNT(*) FROM performance_schema.processlist WHERE command LIKE 'Binlog Dump%'";
    eventually("nobody is left that acknowledged", || {
        Ok(server.client().value(dumps)? == "0")
    })
    .await
}

/// Behind a start, so that whoever uses the table empties it.
#[tokio::test(flavor = "multi_thread")]
async fn tables_in_memory_stand_in_the_way_and_the_look_leaves_them_alone() -> Result<()> {
    let mut server = launch(&[])?;
    let account = connect(&server.socket());
    let in_memory = async || {
        let look = look(&account, &requirements()).await?;
        let found = look.obstacles.into_iter();
        let found = found.filter(|found| found.contains("tables in memory"));
        Ok::<Vec<String>, anyhow::Error>(found.collect())
    };
    assert_eq!(in_memory().await?, Vec::<String>::new());
    server
        .client()
        .sql("CREATE TABLE d.m (i INT PRIMARY KEY) ENGINE = MEMORY; INSERT INTO d.m VALUES (1)")?;
    server.restart()?;
    let before = server.client().gtid_executed()?;
    let found = in_memory().await?;
    assert!(
        found.len() == 1 && found[0].contains(", d.m: "),
        "{found:?}"
    );
    assert_eq!(server.client().gtid_executed()?, before);
    Ok(())
}
