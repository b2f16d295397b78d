//! What happens in the embedded demonstration, in order, each event timed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use applier::keys::Fold;
use applier::run::{Options, RunHandle, apply};
use applier::schema::{ColumnShape, KeyShape, TableName, TableShape};
use applier::source::FileSource;
use binlog_format::gtid::{GtidSet, SourceId};
use binlog_store::LogDirectory;
use testkit::memory_database::MemoryBackend;
use uuid::Uuid;

use crate::demo::embedded::primary::{Acknowledged, Clients, Primary, TABLES, WEALTH};
use crate::demo::embedded::stage::{DATABASE, Stage};
use crate::demo::story::Story;
use crate::terminal::{Exit, Failure};

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

// After the show: the log of a witness, which has no database, is applied to a database in memory by several workers at once,
// while readers look on. Money only moves, so a reader that saw anything but a prefix of the log would see another sum.

const WORKERS: usize = 4;
/// How often a reader looks at the bank.
const LOOK: Duration = Duration::from_millis(2);

/// Applies the log of the member whose files are in `data_dir`, and tells the story what came of it.
///
/// # Errors
/// Exit 7 when a reader saw what no prefix of the log has, or rows are missing at the end.
pub(super) async fn replay(story: &mut Story, data_dir: &Path) -> Result<(), Failure> {
    let error = |error: &dyn std::fmt::Display| Failure::error(error.to_string());
    let files = files(data_dir).map_err(|refused| error(&refused))?;
    let source = FileSource::open(files, GtidSet::new(), u64::from(u32::MAX)).await;
    let source = source.map_err(|refused| error(&refused))?;
    let target = MemoryBackend::default();
    for (name, columns) in TABLES {
        target.put_table(shape(name, columns));
    }
    let handle = RunHandle::unattended();
    let options = Options {
        workers: WORKERS,
        ..Options::default()
    };
    let began = Instant::now();
    let applying = {
        let (target, handle) = (Arc::new(target.clone()), handle.clone());
        tokio::spawn(async move { apply(source, target, &options, handle).await })
    };
    let mut looks = 0;
    let mut wrong = None;
    while !applying.is_finished() {
        looks += 1;
        wrong = wrong.or(what_is_wrong(&target));
        tokio::time::sleep(LOOK).await;
    }
    let took = began.elapsed();
    let applied = applying.await.map_err(|broken| error(&broken))?;
    applied.map_err(|stopped| error(&stopped))?;
    let transfers = target.rows(&table_name(TABLES[1].0)).len();
    wrong = wrong.or(what_is_wrong(&target));
    if let Some(wrong) = wrong {
        let advice = "this is a fault of the applier; keep the log (--data-dir) and report it";
        return Err(Failure::new(Exit::Corrupt, wrong, advice));
    }
    let rate = transfers as f64 / took.as_secs_f64().max(1e-6);
    story.happened(
        &format!("a witness's log applied by {WORKERS} workers"),
        format!(
            "{transfers} transfers, {rate:.0} a second; {looks} readers saw all the money each time"
        ),
        took,
    );
    Ok(())
}

fn files(data_dir: &Path) -> Result<Vec<PathBuf>, binlog_store::DirectoryError> {
    let directory = LogDirectory::on_disk(data_dir)?;
    let files = directory.files()?;
    Ok(files
        .iter()
        .map(|file| directory.path().join(file.file.to_string()))
        .collect())
}

/// What a reader sees that it should not, in words.
fn what_is_wrong(target: &MemoryBackend) -> Option<String> {
    let accounts = target.rows(&table_name(TABLES[0].0));
    let balances = accounts.iter().filter_map(|row| {
        let bytes: [u8; 8] = row.value(1)?.try_into().ok()?;
        Some(i64::from_le_bytes(bytes))
    });
    let sum: i64 = balances.sum();
    let whole = accounts.is_empty() || sum == WEALTH;
    (!whole).then(|| {
        let count = accounts.len();
        format!("a reader saw {count} accounts with {sum} in all, where there are {WEALTH}")
    })
}

fn table_name(table: &str) -> TableName {
    TableName::new("bank", table)
}

/// The first column is the primary key; all keys are numbers.
fn shape(name: &str, columns: &[&str]) -> TableShape {
    let column = |name: &&str| ColumnShape {
        name: (*name).into(),
        fold: Fold::Bytes,
    };
    TableShape {
        primary_key: Some(KeyShape::of(&[0])),
        ..TableShape::new(table_name(name), columns.iter().map(column).collect())
    }
}
