//! Steps of a conversion on a real server.

use std::path::Path;

use anyhow::{Result, ensure};
use mysql_link::{ConnectOptions, Connection, Endpoint, Secret};
use mysqld_server::conversion::{ConversionError, look, steps};
use mysqld_server::settings::Requirements;
use mysqld_server::{BinlogPlace, ReplicationSource, SourceTls};

use crate::primary::{connect, eventually, finish, launch, requirements, visible};

/// The primary was restarted after its replicas were set to stop acknowledging. Semi-sync cannot be switched off while a commit waits.
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
    eventually("the acknowledging replica is gone", || {
        Ok(server.client().value(dumps)? == "0")
    })
    .await
}

/// An older session keeps its binlog format, and would write statements into the ring's log whose rows differ on every server.
#[tokio::test(flavor = "multi_thread")]
async fn no_session_from_before_goes_on_logging_statements() -> Result<()> {
    for was_set_by_hand in [false, true] {
        let server = launch(&["--binlog-format=STATEMENT"])?;
        let root = server.client();
        root.sql("CREATE USER app IDENTIFIED BY 'app'; GRANT ALL ON d.* TO app")?;
        let mut account = ConnectOptions::new(Endpoint::unix(server.socket()), "app", "app");
        account.program_name = "app".to_owned();
        let mut old = Connection::open(&account).await?;
        old.execute("INSERT INTO d.t VALUES (1, 'a statement')")
            .await?;
        if was_set_by_hand {
            root.sql("SET GLOBAL binlog_format = 'ROW'")?;
        }
        steps::prepare(&connect(&server.socket()), &requirements()).await?;
        let insert = "INSERT INTO d.t VALUES (2, @@hostname)";
        assert!(old.execute(insert).await.is_err(), "{was_set_by_hand}");
        let mut new = Connection::open(&account).await?;
        new.execute(insert).await?;
        let format = new.query("SELECT @@SESSION.binlog_format").await?;
        assert_eq!(format.first().and_then(|row| row.text_at(0)), Some("ROW"));
        // A second call also leaves sessions that log rows open.
        steps::prepare(&connect(&server.socket()), &requirements()).await?;
        new.query("SELECT 1").await?;
    }
    Ok(())
}

/// The source may be unreachable for longer than a receiver retries by default, and the channel may have a name.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_follows_through_the_channel_that_it_has_and_does_not_give_up() -> Result<()> {
    let source = ReplicationSource {
        host: "127.0.0.1".to_owned(),
        port: 2,
        user: "replica".to_owned(),
        password: Secret::new("password"),
        tls: SourceTls::Off,
    };
    for channel in ["", "prod's"] {
        let server = launch(&[])?;
        let (client, account) = (server.client(), connect(&server.socket()));
        let name = channel.replace('\'', "''");
        client.sql(&format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 1, SOURCE_USER = 'x', SOURCE_AUTO_POSITION = 1 \
             FOR CHANNEL '{name}'; START REPLICA"
        ))?;
        steps::follow_source(&account, &source).await?;
        let configured = client.sql(
            "SELECT channel_name, port, connection_retry_count FROM performance_schema.replication_connection_configuration",
        )?;
        assert_eq!(configured.0, [[channel, "2", "0"]]);
        client.sql("CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'x', SOURCE_AUTO_POSITION = 1 FOR CHANNEL 'second'")?;
        let several = steps::follow_source(&account, &source).await;
        assert!(
            matches!(several, Err(ConversionError::SeveralChannels(2))),
            "{several:?}"
        );
        let running = "SELECT COUNT(*) FROM performance_schema.replication_applier_status WHERE service_state = 'ON'";
        assert_eq!(client.value(running)?, "1", "it was not stopped");
    }
    Ok(())
}

/// If an operator enables semi-sync later, it uses the values that the ring has left.
#[tokio::test(flavor = "multi_thread")]
async fn semi_sync_of_a_released_primary_has_a_timeout() -> Result<()> {
    let server = launch(&["--rpl-semi-sync-source-timeout=1000000000000000000"])?;
    steps::release_primary(&connect(&server.socket())).await?;
    let timeout = server.client().variable("rpl_semi_sync_source_timeout")?;
    assert_eq!(timeout, "10000");
    Ok(())
}

/// The server was started shortly before and does not follow yet. If its commits waited, it would receive everything as a replica and apply
/// nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_is_released_waits_for_nobodys_ack() -> Result<()> {
    let server = launch(&[])?;
    let client = server.client();
    client.sql("SET GLOBAL rpl_semi_sync_source_enabled = ON")?;
    steps::release_follower(&connect(&server.socket())).await?;
    assert_eq!(client.variable("rpl_semi_sync_source_enabled")?, "0");
    Ok(())
}

/// After a restart, the server acknowledges again because of its option file, and has no source to connect to.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_has_left_its_source_is_not_told_to_connect_to_it() -> Result<()> {
    let server = launch(&[
        "--plugin-load-add=semisync_replica.so",
        "--rpl-semi-sync-replica-enabled=ON",
    ])?;
    steps::stop_acknowledging(&connect(&server.socket())).await?;
    let acknowledges = server.client().variable("rpl_semi_sync_replica_enabled")?;
    assert_eq!(acknowledges, "0");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_replica_threads_leave_out_is_seen() -> Result<()> {
    let server = launch(&[
        "--replicate-ignore-db=d",
        "--replica-skip-errors=1032",
        "--replica-exec-mode=IDEMPOTENT",
    ])?;
    let account = connect(&server.socket());
    let of_server = [
        "replica_exec_mode=IDEMPOTENT",
        "replica_skip_errors=1032",
        "replicate-ignore-db=d",
    ];
    let leaves_out =
        async || Ok::<_, anyhow::Error>(look(&account, &requirements()).await?.leaves_out);
    assert_eq!(leaves_out().await?, of_server, "without a channel");
    let client = server.client();
    client.sql(
        "CHANGE REPLICATION FILTER REPLICATE_IGNORE_DB = (); SET GLOBAL replica_exec_mode = STRICT; \
         CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 1 FOR CHANNEL 'x'; \
         CHANGE REPLICATION FILTER REPLICATE_REWRITE_DB = ((d, e)) FOR CHANNEL 'x'",
    )?;
    let of_channel = ["replica_skip_errors=1032", "replicate-rewrite-db=(d,e)"];
    assert_eq!(leaves_out().await?, of_channel);
    client.sql("RESET REPLICA ALL FOR CHANNEL 'x'")?;
    assert_eq!(leaves_out().await?, of_channel[..1]);
    Ok(())
}

/// Without this check, the accounts of all servers would expire on the same day, perhaps years after the creation of the ring.
#[tokio::test(flavor = "multi_thread")]
async fn an_account_of_a_mysqld_whose_password_expires_is_an_obstacle() -> Result<()> {
    let server = launch(&["--default-password-lifetime=180"])?;
    let client = server.client();
    client.sql("CREATE USER w@localhost IDENTIFIED BY 'w'; GRANT ALL ON *.* TO w@localhost WITH GRANT OPTION")?;
    let account = ConnectOptions::new(Endpoint::unix(server.socket()), "w", "w");
    let obstacles =
        async || Ok::<_, anyhow::Error>(look(&account, &requirements()).await?.obstacles);
    let remedy = "ALTER USER 'w'@'localhost' PASSWORD EXPIRE NEVER";
    let told = |found: &[String]| found.iter().any(|obstacle| obstacle.contains(remedy));
    let found = obstacles().await?;
    ensure!(told(&found), "{found:?}");
    client.sql(remedy)?;
    let found = obstacles().await?;
    ensure!(!told(&found), "{found:?}");
    client.sql("ALTER USER w@localhost PASSWORD EXPIRE")?;
    let Err(error) = Connection::open(&account).await else {
        anyhow::bail!("it may log in");
    };
    let words = error.to_string();
    ensure!(words.contains("PASSWORD EXPIRE NEVER"), "{words}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_whose_binlog_is_not_where_the_member_looks_is_an_obstacle() -> Result<()> {
    let server = launch(&["--log-bin=mysql-bin"])?;
    let obstacles = async |data_dir: &Path, log_bin: &str| {
        let option = format!("--log-bin={log_bin}");
        let requirements = Requirements {
            binlog: BinlogPlace::of_options([option.as_str()], data_dir, ""),
            ..requirements()
        };
        let found = look(&connect(&server.socket()), &requirements).await?;
        let of_the_key = found.obstacles.into_iter();
        Ok::<Vec<_>, anyhow::Error>(
            of_the_key
                .filter(|found| found.contains("mysql.log_bin"))
                .collect(),
        )
    };
    let data_dir = server.data_dir();
    let found = obstacles(data_dir, "binlog").await?;
    let key = format!("mysql.log_bin = \"{}", data_dir.display());
    ensure!(found.len() == 1 && found[0].contains(&key), "{found:?}");
    assert_eq!(obstacles(data_dir, "mysql-bin").await?, [""; 0]);
    // Another path to the same files.
    let home = tempfile::tempdir()?;
    std::os::unix::fs::symlink(data_dir, home.path().join("link"))?;
    let link = home.path().join("link");
    assert_eq!(obstacles(&link, "mysql-bin").await?, [""; 0]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_other_engines_stand_in_the_way() -> Result<()> {
    let server = launch(&[])?;
    let account = connect(&server.socket());
    let tables = "CREATE TABLE d.isam (i INT PRIMARY KEY) ENGINE = MyISAM; CREATE TABLE d.z (i INT NOT NULL) ENGINE = CSV";
    server.client().sql(tables)?;
    let look = look(&account, &requirements()).await?;
    let mut found = look.obstacles.iter();
    ensure!(
        found.any(|found| found.contains("engines than InnoDB, d.isam and others: ")),
        "{look:?}"
    );
    Ok(())
}

/// The check runs after a start of mysqld, when the first session that uses the table would empty it.
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
