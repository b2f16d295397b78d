//! The report of a demonstration: each event with its observation and duration, and the verdict at the end, which is proven from the
//! members' files alone.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use binlog_store::{DirectoryError, LogDirectory};
use serde::Serialize;

use crate::demo::scoreboard::Scoreboard;

/// The report of a demonstration, as `--output json` prints it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Story {
    /// Everything that happened, in order.
    pub(crate) events: Vec<Event>,
    /// Commits that came back to their clients.
    pub(crate) acknowledged_total: u64,
    /// Half of the commits took at most this.
    pub(crate) latency_p50_seconds: f64,
    /// All but one in a hundred took at most this.
    pub(crate) latency_p99_seconds: f64,
    /// Acknowledged commits that a member's log lacks.
    pub(crate) lost_total: u64,
    /// Transactions that stand twice in a member's log.
    pub(crate) doubled_total: u64,
    /// The first difference between two members' log files.
    pub(crate) difference: Option<String>,
    /// Bytes of log files that were compared, on each member.
    pub(crate) compared_bytes: u64,
    /// The directory of the members' files; a temporary one is removed.
    pub(crate) data_dir: String,
    /// True when nothing is lost, doubled or different.
    pub(crate) ok: bool,
}

/// One event of the demonstration, such as a killed leader.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Event {
    /// The action, such as the crash of a member.
    pub(crate) what: String,
    /// The observation.
    pub(crate) seen: String,
    /// Seconds that the event took.
    pub(crate) seconds: f64,
}

impl Story {
    pub(crate) fn record_commits(&mut self, board: &Scoreboard) {
        self.acknowledged_total = board.total();
        self.latency_p50_seconds = board.quantile(0.5).as_secs_f64();
        self.latency_p99_seconds = board.quantile(0.99).as_secs_f64();
    }

    /// Adds an event and answers with its line.
    pub(crate) fn happened(&mut self, what: &str, seen: String, took: Duration) -> String {
        let event = Event {
            what: what.to_owned(),
            seen,
            seconds: took.as_secs_f64(),
        };
        let line = event.line();
        self.events.push(event);
        line
    }

    /// Searches every member's log for the acknowledged transactions, compares the logs byte by byte, and concludes.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub(crate) fn prove(
        &mut self,
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
                    self.doubled_total += 1;
                }
            }
            let lost = acknowledged.difference(&logged).count();
            self.lost_total += u64::try_from(lost).unwrap_or(u64::MAX);
        }
        if let Some((first, others)) = logs.split_first() {
            self.compared_bytes = first.files()?.iter().map(|file| file.size).sum();
            for other in others {
                if let Some(found) = first.diff(other)?.first() {
                    let (left, right) = (first.path().display(), other.path().display());
                    self.difference = Some(format!("{left} and {right}: {found:?}"));
                }
            }
        }
        self.conclude();
        Ok(())
    }

    /// The verdict on the findings.
    fn conclude(&mut self) -> bool {
        self.ok = self.lost_total == 0
            && self.doubled_total == 0
            && self.difference.is_none()
            && self.acknowledged_total > 0;
        self.ok
    }

    /// The story as text, with the verdict at the end.
    pub(crate) fn summary(&self) -> String {
        let mut out = String::from("\nWhat happened\n");
        for event in &self.events {
            let _ = writeln!(out, "  {}", event.line());
        }
        let millis = |seconds: f64| seconds * 1000.0;
        let _ = writeln!(
            out,
            "\n{} commits acknowledged, half of them within {:.2} ms, 99 in 100 within {:.2} ms",
            self.acknowledged_total,
            millis(self.latency_p50_seconds),
            millis(self.latency_p99_seconds)
        );
        let _ = match (self.lost_total, self.doubled_total) {
            (0, 0) => writeln!(out, "Every one of them stands once in every member's log"),
            (lost, doubled) => writeln!(out, "LOST: {lost} of them; TWICE in a log: {doubled}"),
        };
        let _ = match &self.difference {
            None => writeln!(
                out,
                "The members' log files are the same, byte by byte ({} bytes each)",
                self.compared_bytes
            ),
            Some(difference) => writeln!(out, "DIFFERENT log files: {difference}"),
        };
        out
    }
}

impl Event {
    fn line(&self) -> String {
        format!("{:<44} {:>7.2} s   {}", self.what, self.seconds, self.seen)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::path::Path;
    use std::sync::Arc;

    use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};
    use tokio_util::sync::CancellationToken;
    use uuid::Uuid;

    use super::*;
    use crate::demo::clients::Writer;
    use crate::demo::cluster::settings;
    use crate::demo::members::EmbeddedMember;

    fn good() -> Story {
        Story {
            acknowledged_total: 3,
            compared_bytes: 100,
            ..Story::default()
        }
    }

    #[test]
    fn lost_doubled_or_different_transactions_are_not_ok() {
        assert!(good().conclude());
        let changes: [fn(&mut Story); 4] = [
            |story| story.lost_total = 1,
            |story| story.doubled_total = 1,
            |story| story.difference = Some("x".into()),
            |story| story.acknowledged_total = 0,
        ];
        for change in changes {
            let mut story = good();
            change(&mut story);
            assert!(!story.conclude(), "{story:?}");
        }
    }

    #[test]
    fn the_summary_names_what_is_wrong() {
        let story = Story {
            lost_total: 2,
            difference: Some("a at offset 4".into()),
            ..good()
        };
        let text = story.summary();
        assert!(text.contains("LOST: 2"), "{text}");
        assert!(
            text.contains("DIFFERENT log files: a at offset 4"),
            "{text}"
        );
    }

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
        story.prove(acknowledged, data_dirs).unwrap();
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
