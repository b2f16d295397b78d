//! What happens in a demonstration, in order, each event timed.

use std::time::{Duration, Instant};

use binlog_format::gtid::GtidSet;
use member::protocol::{CommandResult, OperatorCommand};
use member::status::{MemberView, answer};
use tokio::time::sleep;

use crate::demo::cluster::{Cluster, DATABASE, MEMBERS, WITNESS_1, WITNESS_2};
use crate::demo::screen::Display;
use crate::demo::story::Story;
use crate::operator::RingReport;
use crate::terminal::{Attempt, Exit, Failure};

/// How often the members are asked while the scenario waits.
const POLL: Duration = Duration::from_millis(20);
/// The limit of each wait. It includes mysqld's initialisation and recovery on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The lag of a member that has caught up: under load, a follower never has all entries.
const NEARLY: u64 = 100;

pub(crate) struct Scenario<'a> {
    pub(crate) cluster: &'a mut Cluster,
    pub(crate) display: &'a Display,
    pub(crate) story: &'a mut Story,
    /// How long the load runs between two events.
    pub(crate) pause: Duration,
}

impl Scenario<'_> {
    /// Plays it; returns the acknowledged transactions. Afterwards all members have stopped.
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
        // The followers first: a leader without them writes nothing more.
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
                // On a busy machine, the leader can lack its quorum for a moment.
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

    /// Waits until more than so many commits are acknowledged.
    async fn wait_for_commits(&mut self, acknowledged: u64) -> Attempt {
        let board = self.display.board.clone();
        self.wait_until("commits continue", |_| board.total() > acknowledged)
            .await
            .map(drop)
    }

    /// Waits until the members' status is as wanted, and returns it.
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

/// True when all members are up and their logs end at the same entry, committed on each of them.
fn all_equal(ring: &RingReport) -> bool {
    let end = |view: &MemberView| (view.log_end, view.log.file.clone(), view.log.file_bytes);
    let first = view(ring, 0).map(end);
    (0..MEMBERS).all(|at| {
        view(ring, at).is_some_and(|view| {
            view.log_end.is_some() && view.committed == view.log_end && Some(end(view)) == first
        })
    })
}

#[cfg(test)]
mod tests {
    use member::status::sample::{database_leader, witness_follower};
    use raft_types::OpId;

    use super::*;
    use crate::operator::Asked;

    fn ring(follower: Option<MemberView>) -> RingReport {
        let views = [Some(database_leader()), follower, Some(witness_follower())];
        let asked = (1..).zip(views).map(|(id, view)| {
            let answer = view.ok_or_else(|| "gone".to_owned());
            Asked::sample(id, "", answer)
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
}
