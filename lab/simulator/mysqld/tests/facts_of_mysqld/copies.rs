//! Clones of another server's data: requirements, removed and copied data, and the state after an interruption.

use std::time::{Duration, Instant};

use crate::stage::{PLAIN, Player, Stage, append, on_both, on_both_pairs, read};
use anyhow::{Result, ensure};
use binlog_format::gtid::GtidSet;

const INSTALL: &str = "INSTALL PLUGIN clone SONAME 'mysql_clone.so'";
/// The query with which members check the plugin.
const PLUGIN: &str = "SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = 'clone' AND plugin_status = 'ACTIVE'";
const STATUS: &str = "SELECT s.state, s.error_no, s.error_message, \
     EXISTS (SELECT 1 FROM performance_schema.threads t WHERE t.processlist_id = s.pid), s.pid \
     FROM performance_schema.clone_status s";
const STAGES: &str = "SELECT stage, state, IFNULL(estimate, 0), IFNULL(data, 0) FROM performance_schema.clone_progress ORDER BY id";
const SCHEMAS: &str = "SELECT s.schema_name, CAST(IFNULL(SUM(t.data_length + t.index_length), 0) AS UNSIGNED) \
     FROM information_schema.schemata s LEFT JOIN information_schema.tables t ON t.table_schema = s.schema_name \
     WHERE s.schema_name NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') \
     GROUP BY s.schema_name ORDER BY s.schema_name";
const LIKE: &str =
    r"SELECT user FROM mysql.user WHERE host = '%' AND user LIKE 'witness\\_clone\\_3\\_%'";
const CREATE: &str = "CREATE USER 'witness_clone_3_a'@'%' IDENTIFIED BY 'Aa1-p' REQUIRE NONE PASSWORD EXPIRE INTERVAL 7 DAY";
const GRANT: &str = "GRANT BACKUP_ADMIN ON *.* TO 'witness_clone_3_a'@'%'";
const CHANNEL: &str = "SELECT COUNT(*) FROM performance_schema.replication_connection_configuration \
     WHERE channel_name = 'witness'";
const LIMIT: Duration = Duration::from_secs(60);

fn copy_from(port: u16, password: &str) -> String {
    format!("CLONE INSTANCE FROM 'witness_clone_3_a'@'127.0.0.1':{port} IDENTIFIED BY '{password}'")
}

fn list(ports: &[u16]) -> String {
    let donors = ports.iter().map(|port| format!("127.0.0.1:{port}"));
    let donors = donors.collect::<Vec<_>>().join(",");
    format!("SET GLOBAL clone_valid_donor_list = '{donors}'")
}

async fn count(session: &mut Player, user: &str) -> Result<String> {
    let count = format!("SELECT COUNT(*) FROM mysql.user WHERE user = '{user}'");
    session.value(&count).await
}

/// Returns the state and the error of the last clone, whether its session exists, and whether this process began the clone.
async fn status(session: &mut Player) -> (String, String, bool, bool) {
    let rows = session.run(STATUS).await.unwrap();
    let row = &rows[0];
    (row[0].clone(), row[1].clone(), row[3] == "1", row[4] != "0")
}

/// Returns the state of each stage, in order.
async fn stages(session: &mut Player) -> Vec<String> {
    let rows = session.run(STAGES).await.unwrap();
    rows.into_iter().map(|row| row[1].clone()).collect()
}

/// Prepares a donor with an account for a clone, and a recipient that may clone from it.
async fn make_ready(donor: &Stage, recipient: &Stage) -> Result<()> {
    for statement in ["SET sql_log_bin = 0", INSTALL, CREATE, GRANT] {
        let mut session = donor.log_in("root").await?;
        session.run("SET sql_log_bin = 0").await.unwrap();
        session.run(statement).await.unwrap();
    }
    recipient.log_in("root").await?.run(INSTALL).await.unwrap();
    may_copy(donor, recipient).await
}

/// Allows a clone until the recipient's restart. Slows the clone down, so that other sessions can check its state in the middle.
async fn may_copy(donor: &Stage, recipient: &Stage) -> Result<()> {
    let mut session = recipient.log_in("root").await?;
    session.run(&list(&[donor.port()])).await.unwrap();
    // The limit of the clone's speed, about 10 MiB per second.
    session.run(&bandwidth(10)).await.unwrap();
    Ok(())
}

fn bandwidth(limit: u32) -> String {
    format!("SET GLOBAL clone_max_data_bandwidth = {limit}")
}

/// Waits until files are being copied.
async fn in_the_middle(recipient: &Stage) -> Result<Player> {
    let began = Instant::now();
    let mut session = recipient.log_in("root").await?;
    loop {
        let stages = stages(&mut session).await;
        if stages.get(1).is_some_and(|state| state == "In Progress") {
            return Ok(session);
        }
        ensure!(began.elapsed() < LIMIT, "nothing is copied: {stages:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_makes_accounts_and_takes_a_plugin_without_its_binlog() -> Result<()> {
    on_both(&PLAIN, async |mut stage: Stage| {
        let mut session = stage.log_in("root").await?;
        session.run("SET sql_log_bin = 0").await.unwrap();
        ensure!(
            session
                .run("SET GLOBAL clone_valid_donor_list = 'a:1'")
                .await
                == Err(1193)
        );
        ensure!(session.run(STATUS).await == Err(1146) && session.run(STAGES).await == Err(1146));
        ensure!(session.run(&copy_from(1, "p")).await == Err(1524));
        session
            .run("SET GLOBAL super_read_only = ON")
            .await
            .unwrap();
        for statement in [INSTALL, CREATE, GRANT, "DROP USER IF EXISTS 'nobody'@'%'"] {
            ensure!(session.run(statement).await == Err(1290), "{statement}");
        }
        session
            .run("SET GLOBAL read_only = ON, GLOBAL super_read_only = OFF")
            .await
            .unwrap();
        ensure!(session.value(PLUGIN).await? == "0");
        session.run(INSTALL).await.unwrap();
        ensure!(session.run(INSTALL).await == Err(1125));
        ensure!(session.value(PLUGIN).await? == "1");
        ensure!(session.run(STATUS).await == Ok(vec![]) && session.run(STAGES).await == Ok(vec![]));
        ensure!(session.run(GRANT).await == Err(1410));
        session.run(CREATE).await.unwrap();
        ensure!(session.run(CREATE).await == Err(1396));
        session.run(GRANT).await.unwrap();
        ensure!(session.run(LIKE).await == Ok(vec![vec!["witness_clone_3_a".to_owned()]]));
        ensure!(count(&mut session, "witness_clone_3_a").await? == "1");
        stage.kill()?;
        stage.start()?;
        let mut session = stage.log_in("root").await?;
        session.run("SET sql_log_bin = 0").await.unwrap();
        ensure!(session.value(PLUGIN).await? == "1");
        ensure!(count(&mut session, "witness_clone_3_a").await? == "1");
        session
            .run("DROP USER 'witness_clone_3_a'@'%'")
            .await
            .unwrap();
        ensure!(session.run("DROP USER 'witness_clone_3_a'@'%'").await == Err(1396));
        session
            .run("DROP USER IF EXISTS 'witness_clone_3_a'@'%'")
            .await
            .unwrap();
        ensure!(session.run(LIKE).await == Ok(vec![]));
        ensure!(stage.variable("gtid_executed").await?.is_empty());
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_refuses_a_copy_before_any_of_its_data_are_gone() -> Result<()> {
    on_both_pairs(&PLAIN, async |donor: Stage, recipient: Stage| {
        let mut client = recipient.log_in("client").await?;
        client.run(&append(1, 7)).await.unwrap();
        let mut at_donor = donor.log_in("root").await?;
        let mut session = recipient.log_in("root").await?;
        session.run(INSTALL).await.unwrap();
        ensure!(session.run(&copy_from(donor.port(), "Aa1-p")).await == Err(3869));
        ensure!(session.run(STATUS).await == Ok(vec![]));
        // No server listens on port 1.
        session.run(&list(&[donor.port(), 1])).await.unwrap();
        ensure!(session.run(&copy_from(1, "Aa1-p")).await == Err(3862));
        ensure!(status(&mut session).await == ("Failed".into(), "3862".into(), true, true));
        ensure!(stages(&mut session).await.is_empty());
        at_donor.run("SET sql_log_bin = 0").await.unwrap();
        at_donor.run(CREATE).await.unwrap();
        ensure!(session.run(&copy_from(donor.port(), "Aa1-p")).await == Err(3862));
        at_donor.run(INSTALL).await.unwrap();
        ensure!(session.run(&copy_from(donor.port(), "Aa1-p")).await == Err(3862));
        at_donor.run(GRANT).await.unwrap();
        ensure!(session.run(&copy_from(donor.port(), "another")).await == Err(3862));
        ensure!(stages(&mut session).await.is_empty());
        session
            .run("SET GLOBAL super_read_only = ON")
            .await
            .unwrap();
        ensure!(session.run(&copy_from(donor.port(), "Aa1-p")).await == Err(1290));
        ensure!(status(&mut session).await == ("Failed".into(), "1290".into(), true, true));
        ensure!(stages(&mut session).await[..2] == ["Failed", "Not Started"]);
        ensure!(recipient.list(1).await? == ["7"]);
        let uuid = recipient.variable("server_uuid").await?;
        ensure!(recipient.variable("gtid_executed").await? == format!("{uuid}:1"));
        ensure!(recipient.binlog_files()?.len() == 1);
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_that_was_copied_has_all_data_of_its_donor_and_its_own_identity() -> Result<()> {
    on_both_pairs(&PLAIN, async |donor: Stage, mut recipient: Stage| {
        make_ready(&donor, &recipient).await?;
        donor
            .log_in("client")
            .await?
            .run(&append(1, 1))
            .await
            .unwrap();
        donor
            .log_in("root")
            .await?
            .run("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 1 FOR CHANNEL 'witness'")
            .await
            .unwrap();
        let mut client = recipient.log_in("client").await?;
        client.run(&append(2, 2)).await.unwrap();
        let mut session = recipient.log_in("root").await?;
        ensure!(session.run(SCHEMAS).await.unwrap()[0][0] == "sim");
        session.run("SET sql_log_bin = 0").await.unwrap();
        session
            .run("CREATE USER 'mine'@'%' IDENTIFIED BY 'x'")
            .await
            .unwrap();
        let uuid = recipient.variable("server_uuid").await?;
        let copying = recipient.log_in("root").await?;
        let copying = copying.begin(&copy_from(donor.port(), "Aa1-p"));
        let mut session = in_the_middle(&recipient).await?;
        ensure!(status(&mut session).await == ("In Progress".into(), "0".into(), true, true));
        ensure!(session.run(&copy_from(donor.port(), "Aa1-p")).await == Err(3634));
        ensure!(session.run(&read(2)).await == Err(1049));
        ensure!(session.run(SCHEMAS).await == Ok(vec![]));
        ensure!(session.value("SELECT @@GLOBAL.gtid_executed").await?.is_empty());
        ensure!(recipient.binlog_files()?.len() == 1);
        ensure!(count(&mut session, "mine").await? == "1");
        ensure!(count(&mut session, "witness_clone_3_a").await? == "0");
        // Commits during the clone are copied, too.
        donor
            .log_in("client")
            .await?
            .run(&append(1, 3))
            .await
            .unwrap();
        session.run(&bandwidth(0)).await.unwrap();
        let told = copying.finish().await?;
        ensure!(matches!(told, Err(3707 | 0)), "{told:?}");
        recipient.ends().await?;
        recipient.start()?;
        let mut session = recipient.log_in("root").await?;
        ensure!(recipient.list(1).await? == ["1", "3"] && recipient.list(2).await?.is_empty());
        ensure!(count(&mut session, "mine").await? == "0");
        ensure!(count(&mut session, "witness_clone_3_a").await? == "1");
        ensure!(session.value(PLUGIN).await? == "1" && session.value(CHANNEL).await? == "1");
        // The recipient reports completion only after its restart.
        ensure!(status(&mut session).await == ("Completed".into(), "0".into(), false, false));
        ensure!(stages(&mut session).await == ["Completed"; 7]);
        let executed = donor.variable("gtid_executed").await?;
        ensure!(recipient.variable("gtid_executed").await? == executed);
        ensure!(recipient.variable("gtid_purged").await? == executed);
        ensure!(recipient.variable("server_uuid").await? == uuid);
        let auto = std::fs::read_to_string(recipient.data_dir().join("auto.cnf"))?;
        ensure!(auto.contains(&uuid));
        // One file is from before the end of the process, and one from its start.
        ensure!(recipient.binlog_files()?.len() == 2);
        let refused = recipient.replica(&GtidSet::new()).await;
        let refused = match refused {
            Err(_) => true,
            Ok(mut replica) => replica.end().await.to_string().contains("purged"),
        };
        ensure!(refused, "a dump begins after the copied transactions");
        recipient
            .log_in("client")
            .await?
            .run(&append(1, 4))
            .await
            .unwrap();
        let mut with_own: GtidSet = recipient.variable("gtid_executed").await?.parse()?;
        with_own = with_own.difference(&executed.parse()?);
        ensure!(with_own.to_string() == format!("{uuid}:1"));
        // The data stays after a crash.
        recipient.kill()?;
        recipient.start()?;
        ensure!(recipient.list(1).await? == ["1", "3", "4"]);
        ensure!(recipient.variable("gtid_purged").await? == executed);
        let mut session = recipient.log_in("root").await?;
        ensure!(status(&mut session).await.0 == "Completed");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mysqld_with_an_interrupted_copy_has_neither_rows_nor_gtids() -> Result<()> {
    on_both_pairs(&PLAIN, async |mut donor: Stage, mut recipient: Stage| {
        make_ready(&donor, &recipient).await?;
        donor
            .log_in("client")
            .await?
            .run(&append(1, 1))
            .await
            .unwrap();
        let mut client = recipient.log_in("client").await?;
        client.run(&append(2, 2)).await.unwrap();
        // The recipient is killed during a clone.
        let copying = recipient.log_in("root").await?;
        let copying = copying.begin(&copy_from(donor.port(), "Aa1-p"));
        in_the_middle(&recipient).await?;
        recipient.kill()?;
        ensure!(copying.finish().await? == Err(0));
        recipient.start()?;
        let mut session = recipient.log_in("root").await?;
        let (state, _, alive, of_this_process) = status(&mut session).await;
        ensure!(
            state == "In Progress" && !alive && !of_this_process,
            "{state}"
        );
        ensure!(stages(&mut session).await[..2] == ["Completed", "Failed"]);
        ensure!(session.run(&read(2)).await == Err(1049));
        ensure!(
            session
                .value("SELECT @@GLOBAL.gtid_executed")
                .await?
                .is_empty()
        );
        ensure!(
            session
                .value("SELECT @@GLOBAL.gtid_purged")
                .await?
                .is_empty()
        );
        ensure!(session.value(PLUGIN).await? == "1");
        ensure!(count(&mut session, "client").await? == "1");
        ensure!(count(&mut session, "witness_clone_3_a").await? == "0");
        ensure!(recipient.binlog_files()?.len() == 2);
        // The donor is killed during a clone and restarts. Until the restart, a real recipient would retry for minutes.
        may_copy(&donor, &recipient).await?;
        let copying = recipient.log_in("root").await?;
        let copying = copying.begin(&copy_from(donor.port(), "Aa1-p"));
        in_the_middle(&recipient).await?;
        donor.kill()?;
        donor.start()?;
        copying.fails(3862).await?;
        let mut session = recipient.log_in("root").await?;
        let (state, error, ..) = status(&mut session).await;
        ensure!(state == "Failed" && error == "3862", "{state} {error}");
        ensure!(stages(&mut session).await[..2] == ["Completed", "Failed"]);
        ensure!(session.run(&read(2)).await == Err(1049));
        // The client of the clone disconnects.
        let copying = recipient.log_in("root").await?;
        let copying = copying.begin(&copy_from(donor.port(), "Aa1-p"));
        in_the_middle(&recipient).await?;
        copying.abandon();
        recipient.ends().await?;
        recipient.start()?;
        ensure!(recipient.list(1).await? == ["1"]);
        Ok(())
    })
    .await
}
