//! The privileges that an account needs, and the report of missing ones.

use anyhow::{Context, Result, ensure};
use applier::backend::{Backend, BackendError};
use applier::mysql::{MysqlBackend, MysqlOptions};
use mysql_link::Connection;
use testkit::mysqld::Mysqld;

use crate::pair::{Pair, Way, connect, server};

fn limited(server: &Mysqld) -> MysqlOptions {
    MysqlOptions::new(connect(server, "limited"))
}

/// Connects, and grants the reported missing privileges until none is missing. Returns the grants.
async fn granted_one_by_one(target: &Mysqld) -> Result<Vec<String>> {
    let mut granted = Vec::new();
    loop {
        match MysqlBackend::connect(limited(target)).await {
            Ok(_) => return Ok(granted),
            Err(error) => {
                let message = error.to_string();
                let grant = message
                    .split_once("GRANT ")
                    .with_context(|| message.clone())?
                    .1;
                let grant = grant.split(" (").next().unwrap_or_default();
                ensure!(
                    !granted.iter().any(|known| known == grant),
                    "asked for twice: {message}"
                );
                target
                    .client()
                    .sql(&format!("SET sql_log_bin = 0; GRANT {grant}"))?;
                granted.push(grant.to_owned());
            }
        }
    }
}

#[tokio::test]
async fn an_account_is_told_what_to_be_granted_by_mysqld() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.tamper("CREATE USER limited@localhost")?;
    let to = " ON *.* TO 'limited'@'localhost'";
    assert_eq!(
        granted_one_by_one(&pair.target).await?,
        [
            "INSERT, UPDATE, DELETE, TRANSACTION_GTID_TAG",
            "REPLICATION_APPLIER",
            "SESSION_VARIABLES_ADMIN"
        ]
        .map(|one| format!("{one}{to}"))
    );
    pair.target.client().sql("SET GLOBAL read_only = ON")?;
    assert_eq!(
        granted_one_by_one(&pair.target).await?,
        [format!("CONNECTION_ADMIN{to}")]
    );

    // These privileges suffice for rows, even with `read_only`. Statements need further privileges.
    pair.tamper(
        "CREATE DATABASE d; CREATE TABLE d.t (i INT PRIMARY KEY); CREATE TABLE d.u (i INT)",
    )?;
    pair.source.client().sql("SET sql_log_bin = 0; CREATE DATABASE d; CREATE TABLE d.t (i INT PRIMARY KEY); CREATE TABLE d.u (i INT)")?;
    pair.backend = MysqlBackend::connect(limited(&pair.target)).await?;
    pair.write("INSERT INTO d.t VALUES (1), (2); UPDATE d.t SET i = 3 WHERE i = 1; DELETE FROM d.t WHERE i = 2")?;
    pair.equal_after(Way::Batches(2), &["d"]).await?;
    pair.write("ALTER TABLE d.t ADD COLUMN j INT")?;
    let stop = pair
        .follow(Way::Batches(2))
        .await?
        .expect_err("no right to ALTER");
    let message = stop.error.to_string();
    ensure!(
        message.contains("ALTER command denied") && message.contains("ADD COLUMN j"),
        "{message}"
    );
    pair.tamper(
        "GRANT ALTER, SELECT ON d.* TO limited@localhost; REVOKE INSERT ON *.* FROM limited@localhost; GRANT INSERT ON d.u TO limited@localhost",
    )?;
    pair.backend = MysqlBackend::connect(limited(&pair.target)).await?;
    pair.write("INSERT INTO d.t VALUES (5, 5)")?;
    let stop = pair
        .follow(Way::Batches(2))
        .await?
        .expect_err("no right to INSERT");
    ensure!(
        stop.error
            .to_string()
            .contains("lacks INSERT, UPDATE or DELETE"),
        "{}",
        stop.error
    );
    pair.tamper("GRANT SELECT ON performance_schema.* TO limited@localhost")?;
    let stop = pair
        .follow(Way::Batches(2))
        .await?
        .expect_err("no right to INSERT");
    ensure!(
        stop.error.to_string().contains("INSERT command denied"),
        "{}",
        stop.error
    );
    pair.tamper("GRANT INSERT ON d.* TO limited@localhost")?;
    pair.equal_after(Way::Batches(2), &["d"]).await
}

/// Regression: rows of a batch were committed, and their GTIDs never appeared in `gtid_executed`.
#[tokio::test]
async fn tagged_transactions_need_the_documented_rights_before_anything_is_applied() -> Result<()> {
    let mut pair = Pair::new().await?;
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/applier.md");
    let page = std::fs::read_to_string(page)?;
    let (_, block) = page.split_once("```sql\n").context("no statements")?;
    let (block, _) = block.split_once("```").context("no end")?;
    let all = block.replace('…', "").replace(" TO applier", " TO limited");
    let all = all.replace("CREATE USER applier", "CREATE USER limited");
    let of_tags = |line: &&str| line.contains("TRANSACTION_GTID_TAG");
    let others: Vec<&str> = all.lines().filter(|line| !of_tags(line)).collect();
    pair.tamper(&others.join("\n"))?;
    let refused = MysqlBackend::connect(limited(&pair.target)).await;
    let message = refused.expect_err("no right to tags").to_string();
    ensure!(
        message.contains("GRANT TRANSACTION_GTID_TAG ON *.* TO"),
        "{message}"
    );
    ensure!(pair.target.client().gtid_executed()?.is_empty());

    pair.tamper(all.lines().find(of_tags).context("not documented")?)?;
    pair.backend = MysqlBackend::connect(limited(&pair.target)).await?;
    ensure!(pair.backend.commits_as_one());
    pair.backend.begin().await?;
    pair.write(
        "CREATE DATABASE d; CREATE TABLE d.t (i INT PRIMARY KEY); SET gtid_next = 'AUTOMATIC:blue'; \
         INSERT INTO d.t VALUES (1); INSERT INTO d.t VALUES (2); SET gtid_next = 'AUTOMATIC'",
    )?;
    pair.equal_after(Way::AsOne(2), &["d"]).await?;
    let executed = pair.target.client().gtid_executed()?;
    ensure!(executed.contains("blue:1-2"), "{executed}");
    Ok(())
}

#[tokio::test]
async fn a_mysqld_that_cannot_be_applied_to_is_told_before_anything_is_applied() -> Result<()> {
    let target = server(2, &[])?;
    let refused = async |options: MysqlOptions| match MysqlBackend::connect(options).await {
        Err(BackendError::Refused(message)) => message,
        other => panic!("{other:?}"),
    };
    let root = || MysqlOptions::new(connect(&target, "root"));
    target.client().sql("SET GLOBAL super_read_only = ON")?;
    let message = refused(root()).await;
    ensure!(
        message.contains("SET GLOBAL super_read_only = OFF"),
        "{message}"
    );
    // `read_only` stays on, and root may apply nevertheless.
    target.client().sql("SET GLOBAL super_read_only = OFF")?;
    MysqlBackend::connect(root()).await?;
    target
        .client()
        .sql("SET GLOBAL gtid_mode = ON_PERMISSIVE")?;
    let message = refused(root()).await;
    ensure!(message.contains("gtid_mode is ON_PERMISSIVE"), "{message}");
    let without_log = server(3, &["--skip-log-bin"])?;
    let mut with_binlog = MysqlOptions::new(connect(&without_log, "root"));
    with_binlog.target_binlog = true;
    let message = refused(with_binlog).await;
    ensure!(message.contains("target_binlog = false"), "{message}");
    Ok(())
}

/// mysqld logs some statements as the client's text, with the account that ran them in an extra field. CURRENT_USER() in such a
/// statement does not mean the applier's account.
#[tokio::test]
async fn statements_about_the_own_account_are_about_that_of_the_source() -> Result<()> {
    let mut pair = Pair::new().await?;
    let accounts = ["drops", "renames", "revokes", "owns", "defines", "alters"];
    let all = accounts.map(|name| format!("{name}@localhost")).join(", ");
    pair.write(&format!(
        "CREATE DATABASE d; CREATE USER {all}; GRANT ALL ON *.* TO {all} WITH GRANT OPTION; GRANT SELECT, INSERT ON d.* TO {all};
         CREATE EVENT d.e ON SCHEDULE EVERY 1 DAY DISABLE DO SET @a = 1; CREATE EVENT d.f ON SCHEDULE EVERY 1 DAY DISABLE DO SET @a = 1;"
    ))?;
    for (account, statement) in [
        ("drops", "drop user current_user()"),
        ("renames", "rename user current_user() to renamed@localhost"),
        ("revokes", "revoke insert on d.* from current_user"),
        (
            "owns",
            "revoke all privileges, grant option from current_user()",
        ),
        ("defines", "alter event d.e comment 'current_user()'"),
        (
            "alters",
            "alter definer = current_user event d.f comment 'x'",
        ),
    ] {
        let mut client = Connection::open(&connect(&pair.source, account)).await?;
        client.execute(statement).await?;
    }
    pair.equal_after(Way::Batches(4), &["d"]).await?;
    let accounts = "SELECT CONCAT_WS(' ', user, host, select_priv) FROM mysql.user ORDER BY 1; \
                    SELECT CONCAT_WS(' ', user, db, select_priv, insert_priv) FROM mysql.db ORDER BY 1; \
                    SELECT CONCAT_WS(' ', event_name, definer) FROM information_schema.events ORDER BY 1";
    let (one, other) = (
        pair.source.client().sql(accounts)?,
        pair.target.client().sql(accounts)?,
    );
    ensure!(one == other, "{one:?}\n{other:?}");
    Ok(())
}

/// Uses the account that a member creates for applying the log itself. ALL PRIVILEGES do not include PROXY.
#[tokio::test]
async fn an_account_with_the_rights_of_a_member_lets_accounts_be_used_by_others() -> Result<()> {
    let mut pair = Pair::new().await?;
    pair.tamper(
        "CREATE USER limited@localhost; GRANT ALL PRIVILEGES ON *.* TO limited@localhost WITH GRANT OPTION",
    )?;
    pair.backend = MysqlBackend::connect(limited(&pair.target)).await?;
    pair.write("CREATE USER a, b, c; GRANT PROXY ON a TO b; GRANT PROXY ON a TO c WITH GRANT OPTION; REVOKE PROXY ON a FROM b")?;
    let stop = pair.follow(Way::AsOne(2)).await?.expect_err("no PROXY");
    ensure!(
        stop.error.to_string().contains("GRANT PROXY"),
        "{}",
        stop.error
    );
    pair.tamper("GRANT PROXY ON ''@'' TO limited@localhost WITH GRANT OPTION")?;
    pair.equal_after(Way::AsOne(2), &[]).await?;
    let proxies = "SELECT CONCAT_WS(' ', user, proxied_user, with_grant) FROM mysql.proxies_priv WHERE proxied_user <> ''";
    assert_eq!(pair.target.client().value(proxies)?, "c a 1");
    Ok(())
}
