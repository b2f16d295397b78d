//! What happens in the embedded demonstration, in order, each event timed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use binlog_format::gtid::SourceId;
use uuid::Uuid;

use super::clients::Clients;
use super::primary::{Acknowledged, Primary};
use super::stage::{DATABASE, Stage};
use crate::demo::story::Story;
use crate::terminal::Failure;

const WITNESS_1: usize = 1;
const WITNESS_2: usize = 2;
const CLIENTS: usize = 8;

/// Plays the script; afterwards all members run, equal and idle.
pub(crate) async fn play(
    stage: &Arc<Stage>,
    story: &mut Story,
    pause: Duration,
) -> Result<Acknowledged, Failure> {
    let mut play = Play {
        stage,
        story,
        pause,
    };
    play.make_the_ring().await?;
    let database = stage.member(DATABASE);
    let (primary, client, acknowledged) = Primary::new(SourceId(Uuid::new_v4()), database.ring());
    let working = tokio::spawn(primary.run());
    let clients = Clients::start(CLIENTS, &client, &stage.board);
    drop(client);
    stage
        .wait_until("the first commit", |stage| stage.board.total() > 0)
        .await?;
    tokio::time::sleep(pause).await;

    play.a_witness_crashes().await?;
    play.the_log_rotates().await?;
    play.both_witnesses_crash().await?;
    play.the_leader_crashes().await?;
    tokio::time::sleep(pause).await;

    let begun = Instant::now();
    clients.finish().await;
    match working.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(Failure::error(error.to_string())),
        Err(error) => return Err(Failure::error(error.to_string())),
    }
    stage
        .wait_until("all members have the same log", Stage::all_equal)
        .await?;
    play.tell(
        "the clients stop and the members come level",
        "every log ends at the same entry".into(),
        begun.elapsed(),
    );
    Ok(acknowledged)
}

struct Play<'a> {
    stage: &'a Stage,
    story: &'a mut Story,
    pause: Duration,
}

impl Play<'_> {
    fn tell(&mut self, what: &str, seen: String, took: Duration) {
        let line = self.story.happened(what, seen, took);
        self.stage.say(&line);
    }

    async fn make_the_ring(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        self.stage.member(WITNESS_1).start(false).await?;
        self.stage.member(WITNESS_2).start(false).await?;
        self.stage.member(DATABASE).start(true).await?;
        self.stage
            .wait_until("db-1 leads the new ring", |stage| stage.serves(DATABASE))
            .await?;
        self.tell(
            "three members become a ring",
            "db-1 leads".into(),
            begun.elapsed(),
        );
        Ok(())
    }

    async fn a_witness_crashes(&mut self) -> Result<(), Failure> {
        self.stage.board.take_longest_gap();
        let begun = Instant::now();
        let before = self.stage.board.total();
        self.stage.member(WITNESS_1).crash().await;
        tokio::time::sleep(self.pause).await;
        let gap = self.stage.board.take_longest_gap();
        let went_on = self.stage.board.total() - before;
        let seen = format!(
            "{went_on} commits went on, the longest pause was {} ms",
            gap.as_millis()
        );
        self.tell("witness-1 crashes", seen, begun.elapsed());

        let begun = Instant::now();
        let missed = self
            .end(DATABASE)
            .saturating_sub(self.end_on_disk(WITNESS_1));
        self.stage.member(WITNESS_1).start(false).await?;
        self.stage
            .wait_until("witness-1 has caught up", |stage| {
                stage.has_caught_up(WITNESS_1)
            })
            .await?;
        let seen = format!("it fetched about {missed} entries that it had missed");
        self.tell("witness-1 is back and has caught up", seen, begun.elapsed());
        Ok(())
    }

    async fn the_log_rotates(&mut self) -> Result<(), Failure> {
        let ring = self.stage.member(DATABASE).ring().borrow().clone();
        let ring = ring.ok_or_else(|| Failure::error("db-1 has lost its ring"))?;
        let begun = Instant::now();
        let from = ring.log.current_file().number.name();
        let rotated = ring.rotate().await;
        let rotated = rotated.map_err(|error| Failure::error(error.to_string()))?;
        let to = rotated.file.name();
        let reached = |stage: &Stage| {
            let files = (0..stage.members.len()).filter_map(|at| stage.view(at));
            files.filter(|view| view.log.file >= to).count() == stage.members.len()
        };
        drop(ring);
        self.stage
            .wait_until("every member writes the next file", reached)
            .await?;
        self.tell(
            "the log rotates",
            format!("{from} to {to} on every member, commits go on"),
            begun.elapsed(),
        );
        tokio::time::sleep(self.pause / 2).await;
        Ok(())
    }

    async fn both_witnesses_crash(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        self.stage.member(WITNESS_1).crash().await;
        self.stage.member(WITNESS_2).crash().await;
        let waiting = self.stage.board.stands_still(self.pause / 2).await?;
        self.tell(
            "both witnesses crash",
            "commits wait, nothing is acknowledged".into(),
            begun.elapsed(),
        );

        let begun = Instant::now();
        self.stage.member(WITNESS_2).start(false).await?;
        self.stage
            .wait_until("commits go on", |stage| stage.board.total() > waiting)
            .await?;
        self.tell(
            "witness-2 is back",
            "the waiting commits finish".into(),
            begun.elapsed(),
        );
        self.stage.member(WITNESS_1).start(false).await?;
        self.stage
            .wait_until("witness-1 has caught up", |stage| {
                stage.has_caught_up(WITNESS_1)
            })
            .await?;
        tokio::time::sleep(self.pause / 2).await;
        Ok(())
    }

    async fn the_leader_crashes(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        self.stage.member(DATABASE).crash().await;
        self.stage
            .wait_until("another member leads", |stage| {
                stage.anybody_serves().is_some()
            })
            .await?;
        let elected = begun.elapsed();
        let leader = self
            .stage
            .anybody_serves()
            .map_or("a witness", |at| self.stage.member(at).name());
        self.tell(
            "db-1, the leader, crashes",
            format!("{leader} leads, to hand over; commits wait"),
            elected,
        );
        tokio::time::sleep(self.pause / 2).await;

        let begun = Instant::now();
        let waiting = self.stage.board.total();
        self.stage.member(DATABASE).start(false).await?;
        self.stage
            .wait_until("db-1 leads again", |stage| stage.serves(DATABASE))
            .await?;
        self.stage
            .wait_until("commits go on", |stage| stage.board.total() > waiting)
            .await?;
        self.tell(
            "db-1 is back",
            "it is handed the leadership, the waiting commits finish".into(),
            begun.elapsed(),
        );
        Ok(())
    }

    fn end(&self, at: usize) -> u64 {
        let view = self.stage.view(at);
        view.and_then(|view| view.log_end)
            .map_or(0, |end| end.index)
    }

    /// A member that is down cannot be asked; its log can.
    fn end_on_disk(&self, at: usize) -> u64 {
        crate::demo::proof::last_index(&self.stage.member(at).data_dir()).unwrap_or(0)
    }
}
