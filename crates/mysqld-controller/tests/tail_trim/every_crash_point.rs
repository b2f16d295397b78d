//! A transaction of every kind waits for its ACK, the server is killed, and its file is cut at every point.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use binlog_format::gtid::GtidSet;
use mysqld_server::tail_trim::{FileOffset, TrimmedTail};
use tempfile::TempDir;
use testkit::mysqld::PendingSql;
use testkit::mysqld::client::verified_sql;

use crate::crashing_server::{CrashingServer, LIMIT, event_borders, transaction_starts};
use crate::reference::Reference;
use crate::statements::{BEFORE, KINDS, NO_OPS, OBJECTS};

/// Starts one session for each kind, sequentially, so that their order in the binlog is known.
async fn all_wait(server: &CrashingServer, kinds: &[(&str, &str)]) -> Result<Vec<PendingSql>> {
    let begun = transaction_starts(&server.last_file()?)?.len();
    let mut waiting = Vec::new();
    for (count, (kind, sql)) in kinds.iter().enumerate() {
        waiting.push(server.server.client().start_sql(sql)?);
        let written = server.transactions_in_file(begun + count + 1).await;
        written.map_err(|error| error.context((*kind).to_owned()))?;
    }
    Ok(waiting)
}

/// The crash is before or after the fsync, and before the ACK. Afterwards, no waiting transaction remains, and its GTIDs are free.
#[tokio::test(flavor = "multi_thread")]
async fn what_waited_for_its_ack_is_gone_after_a_crash_of_mysqld() -> Result<()> {
    let mut server = CrashingServer::start().await?;
    let mut reference = Reference::start()?;
    server.server.client().sql(BEFORE)?;
    server.ring.set_commits_at_once(false);
    let before = server.ring.gtids();
    let waiting = all_wait(&server, &KINDS).await?;
    server.crash().await?;
    drop(waiting);
    ensure!(server.ring.gtids() == before);
    let crashed = Snapshot::take(&server)?;

    server.start_again().await?;
    server.equals_the_ring()?;
    reference.equals(&server.ring, &server.server)?;
    let [tail] = &server.trimmed()?[..] else {
        bail!("{:?}", server.trimmed()?);
    };
    let gone: GtidSet = tail.gtids.parse()?;
    ensure!(gone.count() == KINDS.len() as u128, "{gone}");
    let before: GtidSet = before.parse()?;
    ensure!(gone.intersection(&before).is_empty());
    let kept = TrimmedTail::directory(server.member_dir.path()).join(&tail.kept_as);
    let sql = verified_sql(server.server.tree(), &[kept])?;
    ensure!(sql.matches("SET @@SESSION.GTID_NEXT= '").count() == KINDS.len() + 1);

    let points = cut_points(&crashed, tail.offset)?;
    let all: Vec<usize> = match std::env::var(EVERY_POINT) {
        Ok(first) => (first.parse()?..points.len()).collect(),
        Err(_) => (0..SOME_POINTS)
            .map(|part| part * points.len() / SOME_POINTS)
            .collect(),
    };
    for (done, place) in all.iter().enumerate() {
        let point = points[*place];
        server.server.kill()?;
        crashed.restore(&server)?;
        let file = OpenOptions::new().write(true).open(server.last_file()?)?;
        file.set_len(point)?;
        if done % 2 == 1 {
            // The file had grown when the power failed, so zeros follow.
            file.set_len(point + ZEROS)?;
        }
        let at = || {
            format!(
                "the file ended at {point}, place {place} of {}",
                points.len()
            )
        };
        server.start_again().await.with_context(at)?;
        server.equals_the_ring().with_context(at)?;
        reference
            .equals(&server.ring, &server.server)
            .with_context(at)?;
    }
    eprintln!(
        "{} of {} places at which the file may end",
        all.len(),
        points.len()
    );

    // The same transactions again, under the same GTIDs. This time the ring commits all of them, and the server is killed before it
    // receives the ACKs.
    server.lead().await?;
    server.ring.set_commits_at_once(false);
    let waiting = all_wait(&server, &KINDS).await?;
    let every = before.union(&gone).to_string();
    let deadline = Instant::now() + LIMIT;
    while server.ring.gtids() != every {
        ensure!(Instant::now() < deadline, "{}", server.ring.gtids());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.member_ends().await;
    server.ring.commit_up_to(u64::MAX);
    server.crash().await?;
    drop(waiting);
    let trimmed = server.trimmed()?.len();
    server.start_again().await?;
    server.equals_the_ring()?;
    reference.equals(&server.ring, &server.server)?;
    ensure!(server.trimmed()?.len() == trimmed);
    server.recovered_without_an_error()
}

/// Applications run such statements at their start. If tables of other engines exist, it is unknown whether a table was created or dropped.
#[tokio::test(flavor = "multi_thread")]
async fn statements_that_changed_nothing_are_cut() -> Result<()> {
    let mut server = CrashingServer::start().await?;
    let mut reference = Reference::start()?;
    server.server.client().sql(BEFORE)?;
    server.server.client().sql(OBJECTS)?;
    server.ring.set_commits_at_once(false);
    let waiting = all_wait(&server, &NO_OPS).await?;
    server.crash().await?;
    drop(waiting);
    server.start_again().await?;
    server.equals_the_ring()?;
    reference.equals(&server.ring, &server.server)?;
    let [tail] = &server.trimmed()?[..] else {
        bail!("{:?}", server.trimmed()?);
    };
    let gone: GtidSet = tail.gtids.parse()?;
    ensure!(gone.count() == NO_OPS.len() as u128, "{gone}");
    server.recovered_without_an_error()
}

/// Shows that the trim is necessary.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_trim_mysqld_commits_what_nobody_acknowledged() -> Result<()> {
    let mut server = CrashingServer::start().await?;
    server
        .server
        .client()
        .sql("CREATE TABLE mysql.t (id INT PRIMARY KEY)")?;
    server.ring.set_commits_at_once(false);
    let waiting = server
        .server
        .client()
        .start_sql("INSERT INTO mysql.t VALUES (1)")?;
    server.transactions_in_file(2).await?;
    server.crash().await?;
    drop(waiting);
    server.server.start()?;
    ensure!(
        server
            .server
            .client()
            .value("SELECT COUNT(*) FROM mysql.t")?
            == "1"
    );
    ensure!(server.equals_the_ring().is_err());
    Ok(())
}

/// A statement holds its locks, and its transaction is not in the binlog yet.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_written_yet_needs_no_trim() -> Result<()> {
    let mut server = CrashingServer::start().await?;
    let client = server.server.client();
    client.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)")?;
    let open = client.start_sql("BEGIN; INSERT INTO d.t VALUES (1); SELECT SLEEP(60)")?;
    let holds = "SELECT COUNT(*) FROM performance_schema.data_locks WHERE object_name = 't'";
    while client.value(holds)? == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.crash().await?;
    drop(open);
    server.start_again().await?;
    server.equals_the_ring()?;
    ensure!(server.server.client().value("SELECT COUNT(*) FROM d.t")? == "0");
    ensure!(server.trimmed()?.is_empty());
    Ok(())
}

/// Environment variable with the number of a cut point. The file is cut at that point and every later one, which takes some minutes.
const EVERY_POINT: &str = "WITNESS_TRIM_EVERY_POINT";
/// The number of zeros that are appended after every second cut.
const ZEROS: u64 = 700;
/// The number of cuts if [`EVERY_POINT`] is not set.
const SOME_POINTS: usize = 6;

/// Returns every event border after the first cut transaction, and offsets within every event.
fn cut_points(crashed: &Snapshot, from: FileOffset) -> Result<Vec<u64>> {
    let borders = event_borders(&crashed.last_file)?;
    let mut points = Vec::new();
    let after = borders.iter().filter(|(at, _)| *at >= from.0);
    for (at, _) in after {
        // An offset within the header, and one within the body.
        points.extend([*at, at + 11, at + 25]);
    }
    Ok(points)
}

/// A crashed server's files, and its member's record.
struct Snapshot {
    folder: TempDir,
    last_file: PathBuf,
}

impl Snapshot {
    fn take(server: &CrashingServer) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        copy(server.server.data_dir(), &folder.path().join("data"))?;
        copy(server.member_dir.path(), &folder.path().join("member"))?;
        let name = server.last_file()?;
        let name = name.file_name().context("a file has a name")?;
        let last_file = folder.path().join("data").join(name);
        Ok(Self { folder, last_file })
    }

    fn restore(&self, server: &CrashingServer) -> Result<()> {
        for (name, to) in [
            ("data", server.server.data_dir()),
            ("member", server.member_dir.path()),
        ] {
            fs::remove_dir_all(to)?;
            copy(&self.folder.path().join(name), to)?;
        }
        Ok(())
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (entry, to) = (entry?, to);
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &to)?,
            false => drop(fs::copy(entry.path(), &to)?),
        }
    }
    Ok(())
}
