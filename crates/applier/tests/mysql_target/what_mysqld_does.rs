//! Facts about mysqld that the target depends on. If one of these fails with a later version, check the design before the
//! test.

use std::time::Duration;

use anyhow::Result;
use applier::backend::Backend;
use applier::transaction::{Body, Transaction};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use binlog_format::canonical::stamp;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::events::{EncodeEvent, EventOrigin, FormatDescription};
use mysql_link::{Connection, LinkError, Ran, Statements};
use testkit::mysqld::Mysqld;

use crate::pair::{Pair, Way, connect, server};

const LIMIT: Duration = Duration::from_secs(20);

fn binlog(events: &[u8]) -> String {
    format!("BINLOG '{}'", STANDARD.encode(events))
}

/// Opens a connection for events without checksums.
async fn applying(server: &Mysqld, user: &str) -> Result<Connection> {
    let mut options = connect(server, user);
    options.several_statements = true;
    let mut connection = Connection::open(&options).await?;
    let description = FormatDescription {
        checksum: ChecksumAlgorithm::None,
        ..FormatDescription::built_in("9.7.4")
    };
    let mut events = Vec::new();
    stamp(&description.encode(EventOrigin::default()), 0, &mut events)?;
    connection.execute(binlog(&events)).await?;
    connection.execute("SET sql_log_bin = 0").await?;
    Ok(connection)
}

/// Returns the statement that applies a transaction of one rows event.
fn rows(transaction: &Transaction) -> String {
    let Body::Rows(rows) = &transaction.body else {
        panic!("rows");
    };
    binlog(&[&rows.tables[0].map[..], &rows.events[0].event].concat())
}

fn begin(transaction: &Transaction) -> String {
    format!("SET gtid_next = '{}'", transaction.gtid)
}

async fn run(connection: &mut Connection, statements: &[&str]) -> Result<Ran> {
    let mut list = Statements::default();
    statements.iter().for_each(|sql| list.push(sql));
    Ok(connection.run_all(&mut list, LIMIT, |_, _| ()).await?)
}

/// Creates a pair with a table of rows 1 and 2. The source then inserts rows 3, 4 and 5.
async fn three_inserts() -> Result<(Pair, Vec<std::sync::Arc<Transaction>>)> {
    let mut pair = Pair::new().await?;
    pair.write(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1), (2)",
    )?;
    pair.equal_after(Way::Batches(1), &["d"]).await?;
    pair.write(
        "INSERT INTO d.t VALUES (3); INSERT INTO d.t VALUES (4); INSERT INTO d.t VALUES (5)",
    )?;
    let mut missing = pair.missing().await?;
    let mut inserts = Vec::new();
    while let Some(next) = pair.next(&mut missing).await? {
        inserts.push(next);
    }
    assert_eq!(inserts.len(), 3);
    Ok((pair, inserts))
}

fn ids(pair: &Pair) -> Result<String> {
    pair.target
        .client()
        .value("SELECT GROUP_CONCAT(id ORDER BY id) FROM d.t")
}

/// Shows why rows and COMMIT are sent in one packet, and why the answers of the packet are counted.
#[tokio::test]
async fn mysqld_stops_a_packet_at_a_binlog_statement_that_fails() -> Result<()> {
    let (pair, inserts) = three_inserts().await?;
    let mut connection = applying(&pair.target, "root").await?;
    let [third, fourth, fifth] = &inserts[..] else {
        panic!("three");
    };
    let both = [
        begin(third),
        "BEGIN".into(),
        rows(third),
        "COMMIT".into(),
        begin(fourth),
        "BEGIN".into(),
        rows(fourth),
        "COMMIT".into(),
    ];
    let both: Vec<&str> = both.iter().map(String::as_str).collect();
    assert_eq!(
        run(&mut connection, &both).await?,
        Ran {
            done: 8,
            error: None
        }
    );
    assert_eq!(ids(&pair)?, "1,2,3,4");

    // A duplicate key: no later statement of the packet runs, and the GTID is not used up.
    let executed = pair.backend.executed().await?;
    let failing = [
        begin(fifth),
        "BEGIN".into(),
        rows(fifth),
        rows(third),
        "COMMIT".into(),
    ];
    let failing: Vec<&str> = failing.iter().map(String::as_str).collect();
    let ran = run(&mut connection, &failing).await?;
    assert_eq!(
        (ran.done, ran.error.map(|error| error.code)),
        (3, Some(1062))
    );
    assert_eq!(run(&mut connection, &["ROLLBACK"]).await?.error, None);
    assert_eq!(
        (ids(&pair)?.as_str(), pair.backend.executed().await?),
        ("1,2,3,4", executed)
    );

    // In a separate packet, the COMMIT commits the partial result of the failed statement, under the GTID.
    let without_commit = failing.split_last().unwrap().1;
    assert_eq!(run(&mut connection, without_commit).await?.done, 3);
    assert_eq!(run(&mut connection, &["COMMIT"]).await?.error, None);
    assert_eq!(ids(&pair)?, "1,2,3,4,5");
    assert!(pair.backend.executed().await?.contains(&fifth.gtid));
    Ok(())
}

#[tokio::test]
async fn mysqld_says_of_a_binlog_statement_that_nothing_follows_it() -> Result<()> {
    let (pair, inserts) = three_inserts().await?;
    let mut connection = applying(&pair.target, "root").await?;
    connection.execute(begin(&inserts[0])).await?;
    // A client that relies on the flag mistakes the first statement's answer for the only one.
    connection
        .execute(format!("{};DO 1", rows(&inserts[0])))
        .await?;
    let mut connection = applying(&pair.target, "root").await?;
    let told = connection.execute("DO 1;DO 1").await;
    assert!(matches!(told, Err(LinkError::Protocol { .. })), "{told:?}");
    Ok(())
}

/// Shows why `autocommit` is off.
#[tokio::test]
async fn mysqld_commits_a_binlog_statement_without_its_gtid_under_autocommit() -> Result<()> {
    let (pair, inserts) = three_inserts().await?;
    let mut connection = applying(&pair.target, "root").await?;
    let executed = pair.backend.executed().await?;
    let third = &inserts[0];
    assert_eq!(
        run(&mut connection, &[&begin(third), &rows(third)])
            .await?
            .error,
        None
    );
    assert_eq!(ids(&pair)?, "1,2,3");
    assert_eq!(pair.backend.executed().await?, executed);
    drop(connection);
    // With autocommit off, no BEGIN is needed, and rows and GTID are committed together.
    let mut connection = applying(&pair.target, "root").await?;
    let fourth = &inserts[1];
    let statements = [
        "SET autocommit = 0",
        &begin(fourth),
        &rows(fourth),
        "COMMIT",
    ];
    assert_eq!(run(&mut connection, &statements).await?.error, None);
    assert!(pair.backend.executed().await?.contains(&fourth.gtid));
    Ok(())
}

/// Shows why a target's binlog must not be served if applied transactions are not logged there.
#[tokio::test]
async fn mysqld_writes_empty_transactions_for_gtids_that_are_not_to_be_logged() -> Result<()> {
    let (mut pair, inserts) = three_inserts().await?;
    let client = pair.target.client();
    client.sql("FLUSH BINARY LOGS")?;
    pair.follow(Way::Batches(3)).await?.expect("applied");
    let last = pair.target.binlog_files()?.pop().unwrap();
    let last = last.file_name().unwrap().to_str().unwrap();
    let events = client.sql(&format!("SHOW BINLOG EVENTS IN '{last}'"))?;
    let types: Vec<&str> = events
        .0
        .iter()
        .skip(2)
        .map(|event| event[2].as_str())
        .collect();
    assert_eq!(types, ["Gtid", "Query", "Query"].repeat(3), "{events:?}");
    assert_eq!(events.0.last().unwrap()[5], "COMMIT");

    // How to make such a server a source: begin a new binlog file, and declare the earlier GTIDs purged.
    client.sql("FLUSH BINARY LOGS")?;
    let newest = pair.target.binlog_files()?.pop().unwrap();
    client.sql(&format!(
        "PURGE BINARY LOGS TO '{}'",
        newest.file_name().unwrap().to_str().unwrap()
    ))?;
    let purged = client.variable("gtid_purged")?;
    let purged: binlog_format::gtid::GtidSet = purged.replace("\\n", "").parse()?;
    assert!(inserts.iter().all(|insert| purged.contains(&insert.gtid)));
    Ok(())
}

/// Shows why a follower can apply while it is closed to clients.
#[tokio::test]
async fn mysqld_takes_rows_under_read_only_from_who_has_connection_admin_and_never_under_super_read_only()
-> Result<()> {
    let (pair, inserts) = three_inserts().await?;
    pair.tamper(
        "CREATE USER plain@localhost, admin@localhost; GRANT REPLICATION_APPLIER, SESSION_VARIABLES_ADMIN ON *.* TO plain@localhost, admin@localhost;
         GRANT INSERT, CREATE ON *.* TO plain@localhost, admin@localhost; GRANT CONNECTION_ADMIN ON *.* TO admin@localhost",
    )?;
    let mut answers = Vec::new();
    for (setting, value) in [
        ("read_only", "OFF"),
        ("read_only", "ON"),
        ("super_read_only", "ON"),
    ] {
        pair.target
            .client()
            .sql(&format!("SET GLOBAL {setting} = {value}"))?;
        for user in ["plain", "admin"] {
            let mut connection = applying(&pair.target, user).await?;
            run(&mut connection, &["SET autocommit = 0"]).await?;
            let code = |ran: Ran| ran.error.map_or(0, |error| error.code);
            let insert =
                code(run(&mut connection, &[&begin(&inserts[0]), &rows(&inserts[0])]).await?);
            run(&mut connection, &["ROLLBACK"]).await?;
            let name = format!("CREATE TABLE d.{user}_{setting}_{value} (i INT)");
            run(&mut connection, &["SET gtid_next = 'AUTOMATIC'"]).await?;
            let ddl = code(run(&mut connection, &[&name]).await?);
            answers.push((setting, value, user, insert, ddl));
        }
    }
    assert_eq!(
        answers,
        [
            ("read_only", "OFF", "plain", 0, 0),
            ("read_only", "OFF", "admin", 0, 0),
            ("read_only", "ON", "plain", 1290, 1290),
            ("read_only", "ON", "admin", 0, 0),
            ("super_read_only", "ON", "plain", 1290, 1290),
            ("super_read_only", "ON", "admin", 1290, 1290),
        ]
    );
    Ok(())
}

/// Shows why a target that does not log the rows of its transactions does not need `sync_binlog`.
#[tokio::test]
async fn mysqld_knows_the_gtids_of_unlogged_rows_though_its_binlog_lost_them_in_a_crash()
-> Result<()> {
    let (mut pair, inserts) = three_inserts().await?;
    pair.target.client().sql("FLUSH BINARY LOGS")?;
    assert!(pair.follow(Way::Batches(3)).await?.is_ok());
    let last = pair.target.binlog_files()?.pop().unwrap();
    pair.target.kill()?;
    // Cut the file after its first two events, as if the later bytes had not reached the disk.
    let written = std::fs::read(&last)?;
    let mut rest = &written[binlog_format::MAGIC.len()..];
    for _ in 0..2 {
        binlog_format::event::EventRef::split_from(&mut rest)?.unwrap();
    }
    assert!(rest.len() > 3 * 60, "three empty transactions");
    std::fs::write(&last, &written[..written.len() - rest.len()])?;
    pair.target.start()?;
    assert_eq!(ids(&pair)?, "1,2,3,4,5");
    let executed = pair.backend.executed().await?;
    assert!(
        inserts.iter().all(|insert| executed.contains(&insert.gtid)),
        "{executed}"
    );
    Ok(())
}

/// A date that is copied from another column. mysqld decides once for each of its open tables whether the bytes may be copied
/// unchanged: by the `sql_mode` of the session that copies first through that open table.
const COPIED_DATES: &str = "CREATE DATABASE d; USE d; \
     CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, d DATE, copy DATE AS (d) STORED, at DATETIME, at_copy DATETIME AS (at) STORED, \
     same DATE AS (COALESCE(d)) STORED)";
const LENIENT_DATES: &str =
    "SET sql_mode = ''; INSERT INTO d.t (d, at) VALUES ('2020-02-00', '2020-02-00 01:02:03')";
/// Writes the row again, including its generated columns.
const STRICT_DATES: &str = "SET sql_mode = 'TRADITIONAL'; UPDATE IGNORE d.t SET id = id + 100";
const DATES: &str =
    "SELECT GROUP_CONCAT(CONCAT_WS(' ', copy, LEFT(at_copy, 10), same) ORDER BY id) FROM d.t";
/// A date that is copied keeps its month without a day. A date that is checked becomes all zeros.
const COPIED: &str = "2020-02-00 2020-02-00 0000-00-00";
const CHECKED: &str = "0000-00-00 0000-00-00 0000-00-00";

/// Shows two results of one statement in one session of one server.
#[tokio::test]
async fn mysqld_copies_a_date_as_the_first_session_of_an_open_table_had_it() -> Result<()> {
    let one = server(1, &[])?;
    let client = one.client();
    for (before, value) in [("DO 0", COPIED), ("FLUSH TABLES", CHECKED)] {
        let script = format!("{COPIED_DATES}; {LENIENT_DATES}; {before}; {STRICT_DATES}; {DATES}");
        assert_eq!(client.value(&script)?, value, "{before}");
        client.sql("DROP DATABASE d")?;
    }
    Ok(())
}

/// mysqld ignores the value in the row's image. Followers have the result of their own open tables, whatever applies the row.
/// The result of an expression that is not just a column is as on the source.
#[tokio::test]
async fn mysqld_gives_a_copied_date_of_a_row_of_the_log_another_value_than_its_image_has()
-> Result<()> {
    // One open table for all sessions. By default, applier threads and sessions have up to sixteen.
    let one_table = ["--table-open-cache-instances=1"];
    let mut pair = Pair::with(&[], &one_table, |_| {}).await?;
    pair.source.client().create_replication_user()?;
    let replica = server(3, &one_table)?;
    replica.replicate_from(&pair.source, false)?;
    // The source copies for the first time in the session that checks dates.
    for write in [
        COPIED_DATES,
        LENIENT_DATES,
        "FLUSH LOCAL TABLES",
        STRICT_DATES,
    ] {
        pair.write(write)?;
        if let Err(stop) = pair.follow(Way::Batches(1)).await? {
            anyhow::bail!("{}: {}", stop.gtid, stop.error);
        }
        let executed = pair.source.client().gtid_executed()?;
        replica.client().wait_for_gtids(&executed, LIMIT)?;
    }
    assert_eq!(pair.source.client().value(DATES)?, CHECKED);
    assert_eq!(replica.client().value(DATES)?, COPIED);
    assert_eq!(pair.target.client().value(DATES)?, COPIED);
    Ok(())
}
