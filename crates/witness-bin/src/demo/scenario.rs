//! The events of a demonstration, in their order and with their durations, and its report.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use binlog_format::gtid::GtidSet;
use binlog_store::{DirectoryError, LogDirectory};
use member::protocol::{CommandResult, OperatorCommand};
use member::status::{MemberView, answer};
use serde::Serialize;
use tokio::time::sleep;

use crate::demo::cluster::{Cluster, DATABASE, MEMBERS, WITNESS_1, WITNESS_2};
use crate::demo::screen::Display;
use crate::operator::RingReport;
use crate::terminal::{Attempt, Exit, Failure};

/// Interval between queries of the members while the scenario waits.
const POLL: Duration = Duration::from_millis(20);
/// Time limit of each wait. It is long enough for mysqld's initialisation and recovery on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A member with at most this lag, in entries, has caught up. Under load, a follower never has all entries.
const NEARLY: u64 = 100;

pub(crate) struct Scenario<'a> {
    pub(crate) cluster: &'a mut Cluster,
    pub(crate) display: &'a Display,
    pub(crate) story: &'a mut Story,
    /// How long the load runs between two events.
    pub(crate) pause: Duration,
}

impl Scenario<'_> {
    /// Runs the scenario, stops all members, and returns the acknowledged transactions.
    pub(crate) async fn play(mut self) -> Attempt<GtidSet> {
        self.make_the_ring().await?;
        let load = self.cluster.start_load(&self.display.board).await?;
        self.wait_for_commits(0).await?;
        sleep(self.pause).await;
        self.a_witness_crashes().await?;
        self.the_log_rotates().await?;
        self.both_witnesses_crash().await?;
        self.the_leader_crashes().await?;
        sleep(self.pause).await;

        let begun = Instant::now();
        let acknowledged = load.finish().await?;
        self.wait_until("all members have the same log", all_equal)
            .await?;
        let seen = "every log ends at the same entry";
        self.record("the clients stop and the members come level", seen, begun);
        let begun = Instant::now();
        // The followers stop first. Then the leader has no quorum, and commits nothing more.
        for at in [WITNESS_1, WITNESS_2, DATABASE] {
            self.cluster.stop(at).await?;
        }
        let seen = "first the witnesses, then db-1";
        self.record("the members stop", seen, begun);
        Ok(acknowledged)
    }

    async fn make_the_ring(&mut self) -> Attempt {
        let begun = Instant::now();
        self.cluster.start(WITNESS_1, false)?;
        self.cluster.start(WITNESS_2, false)?;
        self.cluster.start(DATABASE, true)?;
        let ring = self.wait_until_writable().await?;
        let mysql = view(&ring, DATABASE).and_then(|view| view.mysql.as_ref());
        let seen = match mysql.and_then(|mysql| mysql.version.as_ref()) {
            Some(version) => format!("MySQL {version} is initialised, attached and open"),
            None => "db-1 leads".to_owned(),
        };
        self.record("three members become a ring", seen, begun);
        Ok(())
    }

    async fn a_witness_crashes(&mut self) -> Attempt {
        let board = self.display.board.clone();
        board.take_longest_gap();
        let begun = Instant::now();
        let before = board.total();
        self.cluster.crash(WITNESS_1)?;
        sleep(self.pause).await;
        let seen = format!(
            "{} more commits, the longest pause was {} ms",
            board.total() - before,
            board.take_longest_gap().as_millis()
        );
        self.record("witness-1 crashes", seen, begun);

        let begun = Instant::now();
        let missed = board.total() - before;
        self.start_witness_1().await?;
        let seen = format!("it fetched about {missed} entries that it had missed");
        self.record("witness-1 is back and has caught up", seen, begun);
        Ok(())
    }

    async fn the_log_rotates(&mut self) -> Attempt {
        let begun = Instant::now();
        let until = tokio::time::Instant::now() + PATIENCE;
        let flush = OperatorCommand::FlushLog;
        let asker = &self.display.asker;
        let to = loop {
            let ring = asker.report().await;
            match asker.lead(&ring, &flush, until, |_| ()).await {
                Ok(CommandResult::Flushed { file, .. }) => break file,
                Ok(other) => {
                    let answered = format!("{flush} was answered with {other:?}");
                    return Err(Failure::error(answered));
                }
                // On a loaded machine, the leader can lose its quorum briefly.
                Err(failure)
                    if failure.exit == Exit::NoQuorum && tokio::time::Instant::now() < until =>
                {
                    sleep(POLL).await;
                }
                Err(failure) => return Err(failure),
            }
        };
        let all_write = |ring: &RingReport| {
            let mut files = (0..MEMBERS).map(|at| view(ring, at).map(|view| &view.log.file));
            files.all(|file| file >= Some(&to))
        };
        self.wait_until("every member writes the next file", all_write)
            .await?;
        let seen = format!("every member writes {to}, commits continue");
        self.record("the log rotates", seen, begun);
        sleep(self.pause / 2).await;
        Ok(())
    }

    async fn both_witnesses_crash(&mut self) -> Attempt {
        let begun = Instant::now();
        self.cluster.crash(WITNESS_1)?;
        self.cluster.crash(WITNESS_2)?;
        let board = self.display.board.clone();
        let acknowledged = board.wait_until_blocked(self.pause / 2).await?;
        let seen = match self.cluster.visible_rows().await? {
            None => "commits wait, nothing is acknowledged".to_owned(),
            Some(rows) if rows <= acknowledged => {
                format!("commits wait; a reader sees {rows} rows, all of them acknowledged")
            }
            Some(rows) => {
                let why = format!("a reader sees {rows} rows, {acknowledged} were acknowledged");
                return Err(Failure::error(why));
            }
        };
        self.record("both witnesses crash", seen, begun);

        let begun = Instant::now();
        self.cluster.start(WITNESS_2, false)?;
        self.wait_for_commits(acknowledged).await?;
        self.record("witness-2 is back", "the waiting commits finish", begun);
        self.start_witness_1().await?;
        sleep(self.pause / 2).await;
        Ok(())
    }

    async fn the_leader_crashes(&mut self) -> Attempt {
        let begun = Instant::now();
        self.cluster.crash(DATABASE)?;
        let ring = self
            .wait_until("another member leads", |ring| ring.leader.is_some())
            .await?;
        let leader = ring
            .leader_view()
            .map_or("", |view| view.member.name.as_str());
        let seen = format!("{leader} leads, to hand over; commits wait");
        self.record("db-1, the leader, crashes", seen, begun);
        let board = self.display.board.clone();
        let acknowledged = board.wait_until_blocked(self.pause / 2).await?;

        let begun = Instant::now();
        self.cluster.start(DATABASE, false)?;
        self.wait_until_writable().await?;
        self.wait_for_commits(acknowledged).await?;
        let seen = "it is handed the leadership, the waiting commits finish";
        self.record("db-1 is back", seen, begun);
        Ok(())
    }

    async fn start_witness_1(&mut self) -> Attempt {
        self.cluster.start(WITNESS_1, false)?;
        let caught_up = |ring: &RingReport| has_caught_up(ring, WITNESS_1);
        self.wait_until("witness-1 has caught up", caught_up)
            .await
            .map(drop)
    }

    async fn wait_until_writable(&mut self) -> Attempt<RingReport> {
        let question = self.cluster.writable();
        let writable = |view: &MemberView| answer(question, view).is_ok();
        self.wait_until("db-1 takes writes", |ring| {
            view(ring, DATABASE).is_some_and(writable)
        })
        .await
    }

    /// Waits until more than `acknowledged` commits are acknowledged.
    async fn wait_for_commits(&mut self, acknowledged: u64) -> Attempt {
        let board = self.display.board.clone();
        self.wait_until("commits continue", |_| board.total() > acknowledged)
            .await
            .map(drop)
    }

    /// Waits until `reached` accepts the report of the ring, and returns the report. `what` describes the condition in errors.
    async fn wait_until(
        &mut self,
        what: &str,
        reached: impl Fn(&RingReport) -> bool,
    ) -> Attempt<RingReport> {
        let begun = Instant::now();
        loop {
            let ring = self.display.asker.report().await;
            if reached(&ring) {
                return Ok(ring);
            }
            let late = || format!("not within {} s: {what}", PATIENCE.as_secs());
            let ended = self.cluster.ended();
            if let Some(why) = ended.or_else(|| (begun.elapsed() > PATIENCE).then(late)) {
                return Err(Exit::Error.because(
                    format!("{why}\n{}", self.cluster.last_lines()),
                    "keep the members' files with --data-dir, and examine them",
                ));
            }
            sleep(POLL).await;
        }
    }

    fn record(&mut self, what: &str, seen: impl Into<String>, begun: Instant) {
        let line = self.story.happened(what, seen.into(), begun.elapsed());
        self.display.screen.print(&line);
    }
}

fn view(ring: &RingReport, at: usize) -> Option<&MemberView> {
    ring.members.get(at)?.view.as_ref()
}

/// True when a member follows the leader and has nearly all of its entries.
fn has_caught_up(ring: &RingReport, at: usize) -> bool {
    let lag = ring.members.get(at).and_then(|member| member.lag_entries);
    let follows = view(ring, at).is_some_and(|view| view.leader == ring.leader);
    follows && lag.is_some_and(|lag| lag <= NEARLY)
}

/// True when all members answer, and their logs end at the same entry, which each member has recorded as committed.
fn all_equal(ring: &RingReport) -> bool {
    let end = |view: &MemberView| (view.log_end, view.log.file.clone(), view.log.file_bytes);
    let first = view(ring, 0).map(end);
    (0..MEMBERS).all(|at| {
        view(ring, at).is_some_and(|view| {
            view.log_end.is_some() && view.committed == view.log_end && Some(end(view)) == first
        })
    })
}

// The report of a demonstration: each event with its observation and duration, and the verdict. Only the members' files are used as
// evidence for the verdict.

/// The report of a demonstration, as `--output json` prints it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Story {
    /// All events, in their order.
    pub(crate) events: Vec<Event>,
    /// The number of commits that clients saw acknowledged.
    pub(crate) acknowledged_total: u64,
    /// The median latency of commits.
    pub(crate) latency_p50_seconds: f64,
    /// The latency that 99 % of the commits did not exceed.
    pub(crate) latency_p99_seconds: f64,
    /// The number of acknowledged commits that a member's log lacks.
    pub(crate) lost_total: u64,
    /// The number of transactions that are twice in a member's log.
    pub(crate) doubled_total: u64,
    /// The first difference between two members' log files.
    pub(crate) difference: Option<String>,
    /// The number of bytes of log files that were compared on each member.
    pub(crate) compared_bytes: u64,
    /// The directory with the members' files. If it is temporary, it is removed at the end.
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
    /// Adds an event, and returns its line of text.
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

    /// Searches every member's log for the acknowledged transactions, compares the logs byte by byte, and records the verdict.
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

    /// Computes the verdict from the findings, records it, and returns it.
    fn conclude(&mut self) -> bool {
        self.ok = self.lost_total == 0
            && self.doubled_total == 0
            && self.difference.is_none()
            && self.acknowledged_total > 0;
        self.ok
    }

    /// Returns the report as text, with the verdict at the end.
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
    use member::status::sample::{database_leader, witness_follower};
    use raft_types::OpId;
    use tokio_util::sync::CancellationToken;
    use uuid::Uuid;

    use super::*;
    use crate::demo::clients::Writer;
    use crate::demo::cluster::{EmbeddedMember, settings};
    use crate::demo::screen::Scoreboard;
    use crate::operator::MemberReport;

    fn ring(follower: Option<MemberView>) -> RingReport {
        let views = [Some(database_leader()), follower, Some(witness_follower())];
        let asked = (1..).zip(views).map(|(id, view)| {
            let answer = view.ok_or_else(|| "gone".to_owned());
            MemberReport::sample(id, "", answer)
        });
        RingReport::new("demo", asked.collect())
    }

    fn changed(change: fn(&mut MemberView)) -> RingReport {
        let mut follower = witness_follower();
        change(&mut follower);
        ring(Some(follower))
    }

    #[test]
    fn a_member_that_is_down_or_lags_is_not_equal() {
        assert!(all_equal(&changed(|_| {})));
        assert!(!all_equal(&ring(None)));
        let changes: [fn(&mut MemberView); 3] = [
            |view| view.log_end = Some(OpId::new(3, 41)),
            |view| view.committed = Some(OpId::new(3, 41)),
            |view| view.log.file_bytes += 1,
        ];
        for change in changes {
            assert!(!all_equal(&changed(change)));
        }
    }

    #[test]
    fn a_caught_up_member_follows_the_leader() {
        assert!(has_caught_up(&changed(|_| {}), WITNESS_1));
        assert!(!has_caught_up(
            &changed(|view| view.leader = None),
            WITNESS_1
        ));
        assert!(!has_caught_up(&ring(None), WITNESS_1));
    }

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

    /// Writes to a ring with one member, which crashes once. Returns the acknowledged transactions.
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
