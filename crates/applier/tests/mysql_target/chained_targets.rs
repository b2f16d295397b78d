//! A target with a binlog, and replicas of this target.

use anyhow::{Result, ensure};
use applier::backend::Backend;
use applier::source::{FileSource, Source};
use binlog_format::canonical::CanonicalEvents;
use binlog_format::events::GtidEvent;
use binlog_format::framing::FramedTransaction;
use testkit::mysqld::Mysqld;

use crate::pair::{Pair, Way};

async fn log(server: &Mysqld) -> Result<Vec<FramedTransaction>> {
    let mut files = FileSource::open(server.binlog_files()?, None, 1 << 30).await?;
    let mut all = Vec::new();
    while let Some(next) = files.next().await? {
        all.push(next);
    }
    Ok(all)
}

#[tokio::test]
async fn a_mysqld_in_the_middle_hands_on_rows_identifiers_and_times() -> Result<()> {
    let mut pair = Pair::with(&[], &[], |options| options.target_binlog = true).await?;
    pair.write(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); INSERT INTO d.t VALUES (1, 1), (2, 2); UPDATE d.t SET v = 3;
         XA START 'x'; INSERT INTO d.t VALUES (3, 3); XA END 'x'; XA PREPARE 'x'; XA COMMIT 'x'; ALTER TABLE d.t ADD COLUMN w INT;
         CREATE TABLE d.c (PRIMARY KEY (id)) SELECT id FROM d.t; DELETE FROM d.t WHERE id = 1;",
    )?;
    pair.equal_after(Way::Batches(1), &["d"]).await?;
    let (written, handed_on) = (log(&pair.source).await?, log(&pair.target).await?);
    ensure!(written.len() == handed_on.len() && written.len() > 8);
    for (one, other) in written.iter().zip(&handed_on) {
        ensure!(one.gtid == other.gtid);
        ensure!(
            other.original_commit == one.immediate_commit,
            "{}: {other:?}",
            one.gtid
        );
        let gtid = CanonicalEvents::new(other.payload.clone())
            .next()
            .unwrap()?;
        let gtid = GtidEvent::decode(gtid.canonical())?;
        // If the original and the immediate server have the same version, the version is written
        // once.
        ensure!(
            gtid.original_version.is_none() && gtid.immediate_version.is_some(),
            "{gtid:?}"
        );
    }
    // A replica of the second server has the same result as a replica of the first one.
    let third = crate::pair::server(3, &[])?;
    let backend = applier::mysql::MysqlBackend::connect(crate::pair::options(&third)).await?;
    let mut last = Pair::of(pair.target, third, backend).await?;
    last.equal_after(Way::Batches(8), &["d"]).await?;
    ensure!(last.backend.executed().await?.count() == written.len() as u128);
    Ok(())
}
