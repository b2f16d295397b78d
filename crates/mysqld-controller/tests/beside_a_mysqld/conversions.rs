//! Steps of a conversion on a real server.

use std::path::Path;

use anyhow::{Result, ensure};
use mysql_link::{ConnectOptions, Connection, Endpoint};
use mysqld_controller::BinlogPlace;
use mysqld_controller::conversion::{look, steps};
use mysqld_controller::settings::Requirements;

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

/// On all servers on the same day, years after the ring was made.
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
    // By another path to the same files.
    let home = tempfile::tempdir()?;
    std::os::unix::fs::symlink(data_dir, home.path().join("link"))?;
    let link = home.path().join("link");
    assert_eq!(obstacles(&link, "mysql-bin").await?, [""; 0]);
    Ok(())
}
