//! A server copies its data into a directory on its own machine, and keeps running.

use std::time::Duration;

use anyhow::{Result, ensure};
use mysql_link::{ConnectOptions, Connection, Endpoint};
use mysqld_server::provision::{
    CloneAccount, CloneOffer, LocalCopy, ProvisionError, copy, copy_under_way, end_copy, executed,
    executed_and_applied, local_source, make_ready, offer, prepared_transactions, ready_for_copies,
    roll_back_prepared,
};
use mysqld_server::settings::native_grants;
use raft_types::MemberId;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions, PendingSql};

const SOON: Duration = Duration::from_secs(60);

/// Connects as the member's account, with only the privileges for `native`.
fn member(server: &Mysqld) -> Result<ConnectOptions> {
    let grants = native_grants("'member'@'%'").join("; ");
    server.client().sql(&format!(
        "CREATE USER 'member'@'%' IDENTIFIED BY 'm'; {grants}; CREATE SCHEMA shop; \
         CREATE TABLE shop.orders (id INT PRIMARY KEY); INSERT INTO shop.orders VALUES (1), (2)"
    ))?;
    let endpoint = Endpoint::unix(server.socket());
    Ok(ConnectOptions::new(endpoint, "member", "m"))
}

/// Starts a server whose commits wait indefinitely for an ACK once semi-sync is enabled.
fn with_semi_sync() -> Result<Mysqld> {
    let options = MysqldOptions::with_server_id(1).with_arguments([
        "--plugin-load-add=semisync_source.so",
        "--rpl-semi-sync-source-timeout=1000000000000000000",
    ]);
    Mysqld::launch_with(&MysqlTree::require(), options)
}

fn commit_that_waits(server: &Mysqld) -> Result<PendingSql> {
    let client = server.client();
    client.sql("SET GLOBAL rpl_semi_sync_source_enabled = ON")?;
    let waiting = client.start_sql("INSERT INTO shop.orders VALUES (3)")?;
    let waits = "SELECT COUNT(*) FROM performance_schema.processlist WHERE state = 'Waiting for semi-sync ACK from replica'";
    testkit::wait::try_eventually("the commit waits", SOON, || Ok(client.value(waits)? == "1"))?;
    Ok(waiting)
}

/// Such a copy would have the table without its rows, follow, and become the primary.
#[tokio::test(flavor = "multi_thread")]
async fn no_copy_is_offered_that_would_lack_the_rows_of_a_table() -> Result<()> {
    let tree = MysqlTree::require();
    let server = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(1))?;
    let connect = member(&server)?;
    server
        .client()
        .sql("CREATE TABLE shop.old (id INT PRIMARY KEY) ENGINE = MyISAM; INSERT INTO shop.old VALUES (1)")?;
    let refused = offer(&connect, MemberId(2)).await;
    ensure!(
        matches!(&refused, Err(ProvisionError::OtherEngines(tables)) if tables == "shop.old"),
        "{refused:?}"
    );
    let accounts = "SELECT COUNT(*) FROM mysql.user WHERE user LIKE 'witness_clone%'";
    ensure!(
        server.client().value(accounts)? == "0",
        "an account was made"
    );
    server
        .client()
        .sql("ALTER TABLE shop.old ENGINE = InnoDB")?;
    offer(&connect, MemberId(2)).await?;
    Ok(())
}

fn an_offer(keyring_needed: bool) -> CloneOffer {
    CloneOffer {
        account: CloneAccount::random(MemberId(2)),
        password: "p".to_owned(),
        port: 1,
        version: "9.7.4".to_owned(),
        member_account: "full".to_owned(),
        member_grants: vec!["GRANT SELECT, INSERT ON *.* TO `full`@`%`".to_owned()],
        keyring_needed,
        bytes: 0,
    }
}

/// MySQL detects a missing keyring only after it has removed all data.
#[tokio::test(flavor = "multi_thread")]
async fn encrypted_data_are_not_copied_to_a_server_without_a_keyring() -> Result<()> {
    let tree = MysqlTree::require();
    let server = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(1))?;
    member(&server)?;
    server.client().sql("CREATE USER 'full'@'%' IDENTIFIED BY 'f'; GRANT ALL ON *.* TO 'full'@'%' WITH GRANT OPTION")?;
    let connect = ConnectOptions::new(Endpoint::unix(server.socket()), "full", "f");
    let refused = make_ready(&connect, "localhost", &an_offer(true)).await;
    ensure!(
        matches!(refused, Err(ProvisionError::NoKeyring)),
        "{refused:?}"
    );
    // A donor reports that it is encrypted; each kind of encryption suffices.
    let folder = tempfile::tempdir()?;
    let with_keyring = tree.with_keyring(folder.path())?;
    let donor = Mysqld::launch_with(&with_keyring, MysqldOptions::with_server_id(2))?;
    let donors = member(&donor)?;
    for (encrypts, then_not) in [
        (
            "SET GLOBAL innodb_redo_log_encrypt = ON",
            "SET GLOBAL innodb_redo_log_encrypt = OFF",
        ),
        (
            "SET GLOBAL innodb_undo_log_encrypt = ON",
            "SET GLOBAL innodb_undo_log_encrypt = OFF",
        ),
        (
            "CREATE TABLE shop.secret (id INT PRIMARY KEY) ENCRYPTION = 'Y'",
            "DROP TABLE shop.secret",
        ),
    ] {
        ensure!(
            !offer(&donors, MemberId(2)).await?.keyring_needed,
            "{encrypts}"
        );
        donor.client().sql(encrypts)?;
        ensure!(
            offer(&donors, MemberId(2)).await?.keyring_needed,
            "{encrypts}"
        );
        donor.client().sql(then_not)?;
    }
    donor.client().sql("CREATE USER 'full'@'%' IDENTIFIED BY 'f'; GRANT ALL ON *.* TO 'full'@'%' WITH GRANT OPTION")?;
    let has_one = ConnectOptions::new(Endpoint::unix(donor.socket()), "full", "f");
    make_ready(&has_one, "localhost", &an_offer(true)).await?;
    make_ready(&connect, "localhost", &an_offer(false)).await?;
    // Privileges that the copied account lacks for an applier are also known before the copy. A member with an earlier version does not
    // send them.
    let mut offer = an_offer(false);
    ensure!(offer.lacks_for_rows() == ["UPDATE", "DELETE"]);
    offer.member_grants.clear();
    ensure!(offer.lacks_for_rows().is_empty());
    Ok(())
}

/// The member's write fence may close the server after the preparation, because of an older order.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_begun_again_where_mysqld_was_closed_meanwhile() -> Result<()> {
    let tree = MysqlTree::require();
    let donor = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(1))?;
    let recipient = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(2))?;
    let offer = offer(&member(&donor)?, MemberId(2)).await?;
    // This schema and account cause the removal to fail if the server is closed.
    recipient.client().sql("CREATE USER 'full'@'%' IDENTIFIED BY 'f'; GRANT ALL ON *.* TO 'full'@'%' WITH GRANT OPTION; CREATE SCHEMA old; CREATE TABLE old.rows (id INT PRIMARY KEY)")?;
    let connect = ConnectOptions::new(Endpoint::unix(recipient.socket()), "full", "f");
    make_ready(&connect, "127.0.0.1", &offer).await?;
    recipient.client().sql("SET GLOBAL super_read_only = ON")?;
    // mysqld ends after its copy, and is not restarted here.
    copy(&connect, "127.0.0.1", &offer).await?;
    Ok(())
}

/// Regression: a copy removes every table first. It waited a year for locks of a reader with an idle transaction, and indefinitely for
/// those of a prepared XA transaction.
#[tokio::test(flavor = "multi_thread")]
async fn no_transaction_keeps_a_copy_from_removing_a_table() -> Result<()> {
    let tree = MysqlTree::require();
    let server = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(1))?;
    member(&server)?;
    let root = server.client();
    root.sql("CREATE USER 'app'@'%' IDENTIFIED BY 'a'; GRANT ALL ON shop.* TO 'app'@'%'; CREATE USER 'full'@'%' IDENTIFIED BY 'f'; GRANT ALL ON *.* TO 'full'@'%' WITH GRANT OPTION")?;
    let of = |user, password| ConnectOptions::new(Endpoint::unix(server.socket()), user, password);
    let mut reader = Connection::open(&of("app", "a")).await?;
    reader.execute("BEGIN").await?;
    reader.query("SELECT * FROM shop.orders").await?;
    for xid in ["'one'", "X'00ff27', 'branch', 7"] {
        let id = xid.len();
        root.sql(&format!(
            "XA START {xid}; INSERT INTO shop.orders VALUES ({id}); XA END {xid}; XA PREPARE {xid}"
        ))?;
    }
    let before = root.gtid_executed()?;
    let removal = "SET lock_wait_timeout = 1; SET sql_log_bin = 0; DROP TABLE shop.orders";
    ensure!(root.sql(removal).is_err(), "nothing keeps it");
    make_ready(&of("full", "f"), "localhost", &an_offer(false)).await?;
    ensure!(root.sql(removal).is_err(), "something was rolled back");
    let prepared = prepared_transactions(&of("full", "f")).await?;
    ensure!(prepared.len() == 2, "{prepared:?}");
    roll_back_prepared(&of("full", "f"), &prepared).await?;
    root.sql(removal)?;
    ensure!(root.value("XA RECOVER").is_err() || root.value("XA RECOVER")?.is_empty());
    ensure!(root.gtid_executed()? == before, "something was logged");
    ensure!(
        reader.query("SELECT 1").await.is_err(),
        "the reader is there still"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_a_server_of_its_own_that_says_what_it_has() -> Result<()> {
    let tree = MysqlTree::require();
    let server = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(1))?;
    let connect = member(&server)?;
    // The state of a follower with native replica threads.
    server.client().sql("SET GLOBAL super_read_only = ON")?;
    let source = local_source(&connect).await?;
    ensure!(source.version.starts_with(&tree.version), "{source:?}");
    ensure!(source.server_uuid.to_string() == server.client().variable("server_uuid")?);
    ensure!(source.bytes > 10 << 20, "{source:?}");
    ensure!(!source.keyring_needed && source.other_engines.is_empty());
    ready_for_copies(&connect).await?;
    ready_for_copies(&connect).await?;
    let closed = server.client().value("SELECT @@GLOBAL.super_read_only")?;
    ensure!(closed == "1", "it is not closed again");
    let home = tempfile::tempdir()?;
    let into = home.path().join("copy");
    let at_least = executed(&connect).await?;
    LocalCopy::open(&connect).await?.copy(&into).await?;
    let at_most = executed_and_applied(&connect).await?;
    ensure!(!at_least.is_empty() && at_least == at_most);
    ensure!(copy_under_way(&connect).await?.is_none());
    // A second copy does not overwrite the first.
    let again = LocalCopy::open(&connect).await?.copy(&into).await;
    ensure!(again.is_err());

    let options = MysqldOptions {
        copy_of: Some(into.clone()),
        ..MysqldOptions::with_server_id(2)
    };
    let copy = Mysqld::launch_with(&tree, options)?;
    ensure!(copy.client().gtid_executed()? == server.client().gtid_executed()?);
    ensure!(copy.client().value("SELECT COUNT(*) FROM shop.orders")? == "2");
    Ok(())
}

/// A copy waits for commits that are in the binlog and not in the engine, so a commit that waits for an ACK delays the copy.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_under_way_is_seen_and_ended() -> Result<()> {
    let server = with_semi_sync()?;
    let connect = member(&server)?;
    ready_for_copies(&connect).await?;
    let waiting = commit_that_waits(&server)?;
    let home = tempfile::tempdir()?;
    let into = home.path().join("copy");
    let copy = LocalCopy::open(&connect).await?;
    let id = copy.id();
    let copying = tokio::spawn({
        let into = into.clone();
        async move { copy.copy(&into).await }
    });
    let deadline = tokio::time::Instant::now() + SOON;
    let seen = loop {
        if let Some(seen) = copy_under_way(&connect).await? {
            break seen;
        }
        ensure!(!copying.is_finished(), "nothing held it up");
        ensure!(tokio::time::Instant::now() < deadline, "it is not seen");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    ensure!(seen.id == id && seen.into == into, "{seen:?}");
    end_copy(&connect, id).await?;
    ensure!(copying.await?.is_err());
    ensure!(copy_under_way(&connect).await?.is_none());
    // Ending a copy that has finished is not an error.
    end_copy(&connect, id).await?;
    drop(waiting);
    Ok(())
}

/// While a close waits for commits, `super_read_only` reads ON. A session that then treats the server as closed would leave it closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_being_closed_is_left_as_it_is_by_whoever_wants_a_copy() -> Result<()> {
    let server = with_semi_sync()?;
    let connect = member(&server)?;
    let client = server.client();
    let waiting = commit_that_waits(&server)?;
    for attempt in 1..=2 {
        let closing =
            client.start_sql("SET SESSION lock_wait_timeout = 2, GLOBAL super_read_only = ON")?;
        testkit::wait::try_eventually("the closing waits", SOON, || {
            Ok(client.value("SELECT @@GLOBAL.super_read_only")? == "1")
        })?;
        // The result depends on when the close gives up.
        let _ = ready_for_copies(&connect).await;
        let _ = offer(&connect, MemberId(attempt)).await;
        ensure!(closing.finish(SOON).is_err(), "it was closed");
    }
    // The pending `SET` takes effect after this.
    client.sql("SET GLOBAL rpl_semi_sync_source_enabled = OFF")?;
    waiting.finish(SOON)?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let read_only = client.value("SELECT CONCAT(@@GLOBAL.read_only, @@GLOBAL.super_read_only)")?;
    ensure!(read_only == "00", "{read_only}");
    // A server that was closed before is closed again.
    client.sql("SET GLOBAL super_read_only = ON")?;
    offer(&connect, MemberId(3)).await?;
    let read_only = client.value("SELECT CONCAT(@@GLOBAL.read_only, @@GLOBAL.super_read_only)")?;
    ensure!(read_only == "11", "{read_only}");
    Ok(())
}
