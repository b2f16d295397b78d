//! Transactions of a server that are in no binlog file, and are lost when the server's data are replaced.

use anyhow::{Result, ensure};
use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Endpoint};
use mysqld_controller::checks::never_sent;
use mysqld_server::provision::{BeforeALook, executed, log_place};
use mysqld_server::tail_trim::{ErrantFiles, errant_files};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};

use crate::ring_in_memory::MemoryRing;

const UNLOGGED: &str = "cccccccc-cccc-cccc-cccc-cccccccccccc:1";
const DUMP: &str = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb:1-5000";

/// Returns where all transactions of this server are.
async fn all_of_it(connect: &ConnectOptions, before: BeforeALook) -> Result<ErrantFiles> {
    let place = log_place(connect, before).await?.unwrap();
    let executed = executed(connect).await?;
    Ok(errant_files(&place, &executed, &executed)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dump_has_loaded_or_a_purge_removed_is_in_no_binlog_file() -> Result<()> {
    let server = Mysqld::launch_with(&MysqlTree::require(), MysqldOptions::with_server_id(1))?;
    let client = server.client();
    client.sql(
        "CREATE USER 'member'@'%' IDENTIFIED BY 'm'; GRANT ALL ON *.* TO 'member'@'%'; CREATE SCHEMA shop",
    )?;
    let connect = ConnectOptions::new(Endpoint::unix(server.socket()), "member", "m");
    for before in [BeforeALook::Nothing, BeforeALook::BeginAFile] {
        let found = all_of_it(&connect, before).await?;
        ensure!(found.in_no_file.is_empty(), "{found:?}");
    }

    let purged = || -> Result<GtidSet> {
        let purged = client.value("SELECT REPLACE(@@GLOBAL.gtid_purged, CHAR(10), '')")?;
        Ok(purged.parse()?)
    };
    let ring = MemoryRing::new();
    ring.invent(&client.gtid_executed()?.to_string());
    let sent = never_sent(&*ring, purged()?).await;
    ensure!(sent.as_ref().is_ok_and(GtidSet::is_empty), "{sent:?}");

    // mysqldump writes these statements by default.
    client.sql(&format!(
        "SET @@SESSION.SQL_LOG_BIN = 0; SET @@GLOBAL.GTID_PURGED = '+{DUMP}'; CREATE SCHEMA dumped"
    ))?;
    let dump: GtidSet = DUMP.parse()?;
    // A transaction in the binlog reaches the ring, so it is not reported.
    client.sql("CREATE SCHEMA other")?;
    let sent = never_sent(&*ring, purged()?).await;
    ensure!(sent.as_ref().is_ok_and(|sent| *sent == dump), "{sent:?}");
    for before in [BeforeALook::Nothing, BeforeALook::BeginAFile] {
        let found = all_of_it(&connect, before).await?;
        ensure!(found.in_no_file == dump, "{found:?}");
        let held = found
            .files
            .iter()
            .any(|file| !file.gtids.intersection(&dump).is_empty());
        ensure!(!held, "{found:?}");
    }

    // A transaction with a chosen GTID that is kept out of the binlog appears there as an empty transaction.
    client.sql(&format!(
        "SET SQL_LOG_BIN = 0; SET GTID_NEXT = '{UNLOGGED}'; CREATE SCHEMA unlogged; SET GTID_NEXT = AUTOMATIC"
    ))?;
    let found = all_of_it(&connect, BeforeALook::Nothing).await?;
    ensure!(found.in_no_file == dump, "{found:?}");

    client.sql("DROP SCHEMA shop; FLUSH BINARY LOGS")?;
    let before = executed(&connect).await?;
    let last = client.sql("SHOW BINARY LOGS")?.0;
    let last = last.last().and_then(|row| row.first()).unwrap();
    client.sql(&format!(
        "PURGE BINARY LOGS TO '{last}'; CREATE SCHEMA shop"
    ))?;
    for look in [BeforeALook::Nothing, BeforeALook::BeginAFile] {
        let found = all_of_it(&connect, look).await?;
        ensure!(found.in_no_file == before, "{found:?}");
        ensure!(found.files.len() == 1 && found.files[0].gtids.count() == 1);
    }
    Ok(())
}
