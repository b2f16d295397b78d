//! Which servers count as stalled. A server with a full disk does, because statements are refused before their commit. A server with a
//! statement that commits repeatedly does not.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use mysql_link::{Connection, LinkError};
use mysqld_controller::watch::{WatchOptions, WatchReport, Watcher};
use raft_types::Term;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};
use testkit::real_disks::LoopDisk;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::primary::{LIMIT, Running, connect, ingest_options, launch, requirements};
use crate::ring_in_memory::{Leadership, MemoryRing};

/// More than InnoDB preallocates in a table's file, so that the file must grow before anything is written to the binlog.
const ROW: &str = "INSERT INTO d.t (v) VALUES (REPEAT('x', 12 << 20))";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_statements_because_its_disk_is_full_stands_still() -> Result<()> {
    let home = tempfile::tempdir()?;
    let folder = home.path().join("disk");
    std::fs::create_dir(&folder)?;
    let disk = LoopDisk::mount(&folder, home.path(), 600 << 20)?;
    let options = MysqldOptions {
        data_dir: Some(folder.join("data")),
        ..MysqldOptions::default().with_arguments(["--plugin-load-add=semisync_source.so"])
    };
    let mut server = Mysqld::prepare(&MysqlTree::require(), options)?;
    // The redo log is moved to another disk, because InnoDB shuts down if its redo log cannot grow.
    let moved = Command::new("mv")
        .arg(server.data_dir().join("#innodb_redo"))
        .arg(home.path())
        .status()?;
    ensure!(moved.success(), "{moved}");
    server.add_arguments([format!(
        "--innodb-log-group-home-dir={}",
        home.path().display()
    )]);
    server.start()?;
    let table =
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGBLOB)";
    server.client().sql(table)?;

    let mut watched = Watched::start(&server).await?;
    let mut client = Connection::open(&connect(&server.socket())).await?;
    client.query_within(ROW, LIMIT).await?;
    disk.fill()?;
    let struck = Instant::now();
    let standing = loop {
        let refused = client.query_within(ROW, LIMIT).await;
        let code = refused.as_ref().err().and_then(LinkError::server_code);
        ensure!(code == Some(1114), "{refused:?}");
        if let Some(standing) = watched.reports.borrow().commits.clone() {
            break standing;
        }
        ensure!(struck.elapsed() < LIMIT, "the stall is not detected");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    println!("{standing:?}");

    disk.make_room()?;
    let goes_on = watched.reports.wait_for(|report| report.commits.is_none());
    tokio::time::timeout(LIMIT, goes_on).await??;
    client.query_within(ROW, LIMIT).await?;
    watched.end().await
}

/// For example, a client queries the sizes of all tables: mysqld stores the statistics of each table in a commit without the binlog.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_commits_again_and_again_does_not_stand_still() -> Result<()> {
    let server = launch(&[])?;
    server.client().sql(
        "CREATE TABLE d.n (id INT PRIMARY KEY AUTO_INCREMENT);
         DELIMITER //
         CREATE PROCEDURE d.loads()
         BEGIN
           DECLARE n INT DEFAULT 0;
           WHILE n < 10000000 DO INSERT INTO d.n VALUES (); SET n = n + 1; END WHILE;
         END//",
    )?;
    let watched = Watched::start(&server).await?;
    let loads = server
        .client()
        .start_sql("SET sql_log_bin = 0; CALL d.loads()")?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(8) {
        let standing = watched.reports.borrow().commits.clone();
        ensure!(standing.is_none(), "{standing:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let rows: u64 = server.client().value("SELECT COUNT(*) FROM d.n")?.parse()?;
    ensure!(rows > 100, "it hardly committed: {rows}");
    drop(loads);
    watched.end().await
}

/// A primary whose commits are watched.
struct Watched {
    ingest: Running,
    reports: watch::Receiver<WatchReport>,
    stop: CancellationToken,
    watching: JoinHandle<()>,
}

impl Watched {
    async fn start(server: &Mysqld) -> Result<Self> {
        let ring = MemoryRing::new();
        ring.invent(&server.client().gtid_executed()?);
        ring.set_leadership(Leadership::Serving(Term(2)));
        let mut ingest = Running::start(&ring, ingest_options(server));
        ingest.attached().await?;
        let options = WatchOptions {
            interval: Duration::from_millis(200),
            figures: Some(ingest.figures.clone()),
            data_dir: Some(server.data_dir().to_owned()),
            ..WatchOptions::new(connect(&server.socket()), requirements())
        };
        let (watcher, reports) = Watcher::new(options, ingest.status.clone(), ingest.readiness());
        let stop = CancellationToken::new();
        let watching = tokio::spawn(watcher.run(stop.clone()));
        Ok(Self {
            ingest,
            reports,
            stop,
            watching,
        })
    }

    async fn end(self) -> Result<()> {
        self.stop.cancel();
        self.watching.await?;
        self.ingest.stop().await
    }
}
