//! Facts about mysqld that the design depends on. If a test fails with a later version, check the design before the test.

use std::time::Duration;

use anyhow::Result;
use binlog_format::event::EventType;
use binlog_format::gtid::GtidSet;
use mysql_link::{Connection, DumpOptions, LinkError, ReplicationStream, server_code};
use mysqld_server::settings::{Depth, observe, observe_again};
use testkit::mysqld::{Mysqld, PendingSql};

use crate::primary::{A_WHILE, LIMIT, OUR_UUID, connect, eventually, launch, still_waits, visible};

/// A semi-sync source on which commits wait indefinitely, without any acker.
fn source() -> Result<Mysqld> {
    let server = launch(&[])?;
    server.client().sql(
        "SET GLOBAL rpl_semi_sync_source_timeout = 1000000000000000000; SET GLOBAL rpl_semi_sync_source_enabled = ON",
    )?;
    Ok(server)
}

async fn waiting_insert(server: &Mysqld, id: u32) -> Result<PendingSql> {
    let waiting = server
        .client()
        .start_sql(&format!("INSERT INTO d.t VALUES ({id}, '')"))?;
    let wait_sessions = || server.client().status("Rpl_semi_sync_source_wait_sessions");
    eventually("it waits", || Ok(wait_sessions()? == "1")).await?;
    Ok(waiting)
}

/// The reason for which the dump never reports a waiting transaction as received, and acknowledges it when it arrives again.
#[tokio::test(flavor = "multi_thread")]
async fn mysqld_does_not_release_what_a_replica_says_it_has() -> Result<()> {
    let server = source()?;
    let mut waiting = waiting_insert(&server, 1).await?;
    let uuid = server.client().variable("server_uuid")?;
    assert_eq!(server.client().gtid_executed()?, format!("{uuid}:1-2"));
    let owned = server.client().variable("gtid_owned")?;
    assert!(owned.starts_with(&format!("{uuid}:3#")), "{owned}");

    let connection = Connection::open(&connect(&server.socket())).await?;
    let options = DumpOptions {
        heartbeat: Duration::from_millis(100),
        ..DumpOptions::new(4001, OUR_UUID, format!("{uuid}:1-3").parse::<GtidSet>()?)
    };
    let mut stream = ReplicationStream::start(connection, &options).await?;
    let mut heartbeats = 0;
    while heartbeats < 3 {
        let event = stream.next().await?.event;
        assert!(!matches!(
            event.event_type(),
            EventType::Gtid | EventType::Xid
        ));
        heartbeats += usize::from(event.event_type() == EventType::Heartbeat);
    }
    still_waits(&mut waiting).await
}

/// The reason for which sessions that operators kill while they wait need no handling.
#[tokio::test(flavor = "multi_thread")]
async fn killing_a_session_does_not_end_its_wait_in_mysqld() -> Result<()> {
    let server = source()?;
    let mut waiting = waiting_insert(&server, 1).await?;
    let session = server.client().value(
        "SELECT id FROM performance_schema.processlist WHERE info LIKE 'INSERT INTO d.t%'",
    )?;
    server.client().sql(&format!("KILL QUERY {session}"))?;
    still_waits(&mut waiting).await?;
    server.client().sql(&format!("KILL {session}"))?;
    // The client gets a lost connection, which is correct, because the outcome is unknown.
    let told = waiting.finish(LIMIT).expect_err("an unacknowledged commit");
    assert!(told.to_string().contains("Lost connection"), "{told}");
    tokio::time::sleep(A_WHILE).await;
    assert!(!visible(&server, 1)?);
    assert_eq!(
        server
            .client()
            .status("Rpl_semi_sync_source_wait_sessions")?,
        "1"
    );
    Ok(())
}

/// The reason for which mysqld is asked to stop only if no commit waits, and is killed otherwise. A stop reports to clients that their
/// commits succeeded without an ACK.
#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_is_asked_to_stop_lets_waiting_commits_succeed() -> Result<()> {
    let mut server = source()?;
    let waiting = waiting_insert(&server, 1).await?;
    let server = tokio::task::spawn_blocking(move || server.stop().map(|()| server)).await??;
    waiting.finish(LIMIT)?;
    assert!(server.error_log().contains("Shutdown complete"));
    Ok(())
}

/// The reason for which closing for writes has a time limit. Shows which statements run while commits wait.
#[tokio::test(flavor = "multi_thread")]
async fn what_blocks_behind_waiting_commits_in_mysqld() -> Result<()> {
    let server = source()?;
    let mut waiting = waiting_insert(&server, 1).await?;
    let mut connection = Connection::open(&connect(&server.socket())).await?;
    connection
        .execute("SET SESSION lock_wait_timeout = 1")
        .await?;
    for blocked in [
        "SET GLOBAL super_read_only = ON",
        "SET GLOBAL read_only = ON",
    ] {
        let refused = connection.execute(blocked).await;
        let Err(LinkError::Server(error)) = refused else {
            panic!("{blocked}: {refused:?}")
        };
        assert_eq!(error.code, server_code::LOCK_WAIT_TIMEOUT);
        // The statement has changed nothing.
        assert_eq!(server.client().variable("read_only")?, "0");
    }
    for free in [
        "SHOW BINARY LOG STATUS",
        "SELECT @@GLOBAL.gtid_executed",
        "SELECT @@GLOBAL.gtid_owned",
        "SET GLOBAL rpl_semi_sync_source_timeout = 2000000000000000000",
        "SET GLOBAL rpl_semi_sync_source_wait_point = 'AFTER_SYNC'",
        "SET GLOBAL sync_binlog = 1",
        "SET GLOBAL max_binlog_cache_size = 1073741824",
        "SET GLOBAL offline_mode = OFF",
    ] {
        connection
            .query_within(free, Duration::from_secs(5))
            .await?;
    }
    let rotated = connection.query_within("FLUSH BINARY LOGS", A_WHILE).await;
    assert!(
        matches!(rotated, Err(LinkError::Timeout { .. })),
        "{rotated:?}"
    );
    still_waits(&mut waiting).await
}

/// The reason for which the write fence ignores an observation from the time in which it tried to close the server.
#[tokio::test(flavor = "multi_thread")]
async fn super_read_only_reads_on_before_it_is_in_force_in_mysqld() -> Result<()> {
    let server = source()?;
    let mut waiting = waiting_insert(&server, 1).await?;
    let options = connect(&server.socket());
    let mut closing = Connection::open(&options).await?;
    let attempt = tokio::spawn(async move {
        closing.execute("SET SESSION lock_wait_timeout = 2").await?;
        closing.execute("SET GLOBAL super_read_only = ON").await
    });
    let reads =
        |value| move |server: &Mysqld| Ok(server.client().variable("super_read_only")? == value);
    eventually("it reads ON", || reads("1")(&server)).await?;
    assert!(attempt.await?.is_err());
    eventually("it reads OFF again", || reads("0")(&server)).await?;
    still_waits(&mut waiting).await
}

/// The reason for which installing a missing plugin needs `super_read_only` off for a moment.
#[tokio::test(flavor = "multi_thread")]
async fn a_super_read_only_mysqld_refuses_to_install_a_plugin() -> Result<()> {
    let server = Mysqld::launch(&testkit::mysql_tree::MysqlTree::require())?;
    let mut connection = Connection::open(&connect(&server.socket())).await?;
    connection
        .execute("SET GLOBAL super_read_only = ON")
        .await?;
    let install = "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'";
    let refused = connection.execute(install).await;
    let Err(LinkError::Server(error)) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(error.code, server_code::OPTION_PREVENTS_STATEMENT);
    // `read_only` stays on, and does not prevent the installation. Nothing is written to the binlog.
    let executed = server.client().gtid_executed()?;
    connection
        .execute("SET GLOBAL super_read_only = OFF")
        .await?;
    assert_eq!(server.client().variable("read_only")?, "1");
    connection.execute(install).await?;
    assert_eq!(server.client().gtid_executed()?, executed);
    Ok(())
}

/// Another session may install the plugin first, which is not an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_says_by_its_number_that_a_plugin_is_installed_already() -> Result<()> {
    let server = Mysqld::launch(&testkit::mysql_tree::MysqlTree::require())?;
    let mut connection = Connection::open(&connect(&server.socket())).await?;
    let install = "INSTALL PLUGIN clone SONAME 'mysql_clone.so'";
    connection.execute(install).await?;
    let again = connection.execute(install).await;
    let Err(LinkError::Server(error)) = again else {
        panic!("{again:?}")
    };
    assert_eq!(error.code, server_code::PLUGIN_EXISTS);
    Ok(())
}

/// Compares the faster query for a server that was observed before with the full list.
#[tokio::test(flavor = "multi_thread")]
async fn values_of_variables_are_those_that_a_list_shows() -> Result<()> {
    let server = source()?;
    let mut connection = Connection::open(&connect(&server.socket())).await?;
    let first = observe(&mut connection, Depth::Watch).await?;
    assert_eq!(first.variable("gtid_mode"), Some("ON"));
    assert!(first.semi_sync().is_some() && first.variables.len() > 20);
    server.client().sql(
        "SET GLOBAL read_only = ON; SET GLOBAL sync_binlog = 0; SET GLOBAL rpl_semi_sync_source_enabled = OFF; \
         SET GLOBAL binlog_row_image = 'NOBLOB'; SET GLOBAL rpl_semi_sync_source_wait_no_replica = OFF",
    )?;
    let listed = observe(&mut connection, Depth::Watch).await?;
    let selected = observe_again(&mut connection, Some(&first)).await?;
    assert_ne!(first.variables, listed.variables);
    assert_eq!(selected.variables, listed.variables);
    // The plugin is removed and installed again.
    server
        .client()
        .sql("UNINSTALL PLUGIN rpl_semi_sync_source")?;
    let without = observe_again(&mut connection, Some(&selected)).await?;
    assert_eq!(without.semi_sync(), None);
    server
        .client()
        .sql("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'")?;
    let with = observe_again(&mut connection, Some(&without)).await?;
    assert!(with.semi_sync().is_some());
    Ok(())
}

/// The reason for which a MEMORY table makes a restarted follower errant.
#[tokio::test(flavor = "multi_thread")]
async fn mysqld_empties_a_table_in_memory_in_a_transaction_of_its_own() -> Result<()> {
    let mut server = launch(&[])?;
    let tables = "CREATE TABLE d.m (i INT PRIMARY KEY) ENGINE = MEMORY; CREATE TABLE d.n LIKE d.m; INSERT INTO d.m VALUES (1)";
    server.client().sql(tables)?;
    server.restart()?;
    let uuid = server.client().variable("server_uuid")?;
    assert_eq!(server.client().gtid_executed()?, format!("{uuid}:1-5"));
    // No setting prevents the transaction.
    server
        .client()
        .sql("SET GLOBAL super_read_only = ON; SET sql_log_bin = 0; SELECT COUNT(*) FROM d.m")?;
    assert_eq!(server.client().gtid_executed()?, format!("{uuid}:1-6"));
    let other = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1";
    server.client().sql(&format!(
        "SET GLOBAL super_read_only = OFF; SET gtid_next = '{other}'; INSERT INTO d.n VALUES (1)"
    ))?;
    let executed: GtidSet = server.client().gtid_executed()?.parse()?;
    assert_eq!(executed, format!("{uuid}:1-7,{other}").parse()?);
    let events = server
        .client()
        .sql("SHOW BINLOG EVENTS IN 'binlog.000002'")?;
    for table in ["`d`.`m`", "`d`.`n`"] {
        let words = format!(
            "TRUNCATE TABLE {table} /* generated by server, implicitly emptying in-memory table */"
        );
        assert!(format!("{events:?}").contains(&words), "{events:?}");
    }
    Ok(())
}
