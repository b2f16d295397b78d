//! The proof at the end of a demonstration, from the members' files alone.

use std::path::PathBuf;

use binlog_format::gtid::GtidSet;
use binlog_store::{DirectoryError, LogDirectory};

use crate::demo::story::Story;

/// Searches every member's log for the acknowledged transactions, and compares the logs byte by byte.
///
/// # Errors
/// When a log cannot be read.
pub(crate) fn prove(
    story: &mut Story,
    acknowledged: &GtidSet,
    data_dirs: &[PathBuf],
) -> Result<(), DirectoryError> {
    let logs = data_dirs.iter().map(|path| LogDirectory::on_disk(path));
    let logs = logs.collect::<Result<Vec<_>, _>>()?;
    for log in &logs {
        let mut logged = GtidSet::new();
        for record in log.entries()? {
            if let Some(gtid) = record?.gtid
                && !logged.add(gtid)
            {
                story.doubled_total += 1;
            }
        }
        let lost = acknowledged.difference(&logged).count();
        story.lost_total += u64::try_from(lost).unwrap_or(u64::MAX);
    }
    if let Some((first, others)) = logs.split_first() {
        story.compared_bytes = first.files()?.iter().map(|file| file.size).sum();
        for other in others {
            if let Some(found) = first.diff(other)?.first() {
                let (left, right) = (first.path().display(), other.path().display());
                story.difference = Some(format!("{left} and {right}: {found:?}"));
            }
        }
    }
    story.conclude();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};
    use tokio_util::sync::CancellationToken;
    use uuid::Uuid;

    use super::*;
    use crate::demo::cluster::settings;
    use crate::demo::embedded_member::EmbeddedMember;
    use crate::demo::scoreboard::Scoreboard;
    use crate::demo::writer::Writer;

    /// Writes to a ring of one member that crashes once; returns the acknowledged transactions.
    async fn write(data_dir: &Path) -> GtidSet {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let toml = format!(
            "data_dir = {data_dir:?}\nring.name = \"alone\"\nmember.id = 1\nraft.heartbeat = \"20ms\"\n\
             log.disk_reserve_bytes = 0\n[[members]]\nid = 1\nname = \"a\"\nregion = \"r\"\nkind = \"witness\"\n\
             address = \"{address}\"\n"
        );
        let mut member = EmbeddedMember::new(settings(toml).unwrap());
        member.start(true).unwrap();
        let (board, stop) = (Arc::new(Scoreboard::new()), CancellationToken::new());
        let writer = Writer::new(member.ring(), board.clone(), stop.clone());
        let writing = tokio::spawn(writer.run());
        for acknowledged in [20, 40] {
            while board.total() < acknowledged {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            member.crash().unwrap();
            member.start(false).unwrap();
        }
        stop.cancel();
        let acknowledged = writing.await.unwrap().unwrap();
        member.stop().await.unwrap();
        assert_eq!(u128::from(board.total()), acknowledged.count());
        acknowledged
    }

    fn proof(acknowledged: &GtidSet, data_dirs: &[PathBuf]) -> Story {
        let mut story = Story {
            acknowledged_total: 1,
            ..Story::default()
        };
        prove(&mut story, acknowledged, data_dirs).unwrap();
        story
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lost_transactions_and_different_logs_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = ["a", "b"].map(|name| directory.path().join(name));
        let acknowledged = write(&one).await;
        let whole = proof(&acknowledged, &[one.clone(), one.clone()]);
        assert!(whole.ok && whole.compared_bytes > 0, "{whole:?}");

        let mut more = acknowledged.clone();
        more.add(Gtid {
            source: SourceId(Uuid::new_v4()),
            tag: Tag::NONE,
            gno: Gno::MIN,
        });
        let lost = proof(&more, &[one.clone(), one.clone()]);
        assert_eq!((lost.lost_total, lost.ok), (2, false), "one on each member");

        let theirs = write(&other).await;
        let different = proof(&theirs, &[other, one]);
        assert!(
            different.difference.is_some() && !different.ok,
            "{different:?}"
        );
        assert_eq!(u128::from(different.lost_total), theirs.count());
    }
}
