//! What happens in the demonstration around a real mysqld, in order, each event timed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mysql_link::{ConnectOptions, Connection, LinkError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::demo::mysql::stage::{DATABASE, Stage};
use crate::demo::screen::Scoreboard;
use crate::demo::story::Story;
use crate::terminal::Failure;

const WITNESS_1: usize = 1;
const WITNESS_2: usize = 2;
const CLIENTS: u64 = 8;

/// What the clients and the server know at the end.
pub(crate) struct Outcome {
    /// Acknowledged rows that the server does not have.
    pub(crate) missing_rows: u64,
    /// What the server has executed.
    pub(crate) gtid_executed: String,
}

/// Plays the script; afterwards all members run, equal and idle.
pub(crate) async fn play(
    stage: &mut Stage,
    story: &mut Story,
    pause: Duration,
) -> Result<Outcome, Failure> {
    let mut play = Play {
        stage,
        story,
        pause,
    };
    play.make_the_ring().await?;
    prepare(&play.stage.account).await?;
    let clients = Clients::start(CLIENTS, &play.stage.account, &play.stage.board);
    tokio::time::sleep(pause).await;

    play.a_witness_is_killed().await?;
    play.both_witnesses_are_killed().await?;
    play.the_member_beside_mysqld_is_killed().await?;
    tokio::time::sleep(pause).await;

    let begun = Instant::now();
    let acknowledged = clients.finish().await;
    play.stage
        .wait_until("all members have the same log", |picture| {
            picture.all_equal()
        })
        .await?;
    play.tell(
        "the clients stop and the members come level",
        "every log ends at the same entry".into(),
        begun.elapsed(),
    );

    let account = &play.stage.account;
    let rows = column(account, "SELECT id FROM demo.transfers").await?;
    let rows: std::collections::BTreeSet<u64> =
        rows.iter().filter_map(|id| id.parse().ok()).collect();
    let executed = column(account, "SELECT @@GLOBAL.gtid_executed").await?;
    Ok(Outcome {
        missing_rows: acknowledged.difference(&rows).count() as u64,
        gtid_executed: executed.concat(),
    })
}

struct Play<'a> {
    stage: &'a mut Stage,
    story: &'a mut Story,
    pause: Duration,
}

impl Play<'_> {
    fn tell(&mut self, what: &str, seen: String, took: Duration) {
        let line = self.story.happened(what, seen, took);
        self.stage.picture.screen().say(&line);
    }

    async fn make_the_ring(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        self.stage.start(WITNESS_1)?;
        self.stage.start(WITNESS_2)?;
        self.stage.start(DATABASE)?;
        self.stage
            .wait_until("mysqld takes writes", |picture| picture.primary_is_open())
            .await?;
        let version = self
            .stage
            .picture
            .view(DATABASE)
            .and_then(|view| view.mysql?.version);
        let seen = format!(
            "MySQL {} is initialised, attached and open",
            version.unwrap_or_default()
        );
        self.tell("three members become a ring", seen, begun.elapsed());
        Ok(())
    }

    async fn a_witness_is_killed(&mut self) -> Result<(), Failure> {
        self.stage.board.take_longest_gap();
        let begun = Instant::now();
        let before = self.stage.board.total();
        self.stage.kill(WITNESS_1)?;
        tokio::time::sleep(self.pause).await;
        let gap = self.stage.board.take_longest_gap();
        let went_on = self.stage.board.total() - before;
        let seen = format!(
            "{went_on} commits went on, the longest pause was {} ms",
            gap.as_millis()
        );
        self.tell("witness-1 is killed (SIGKILL)", seen, begun.elapsed());

        let begun = Instant::now();
        self.stage.start(WITNESS_1)?;
        self.stage
            .wait_until("witness-1 has caught up", |picture| {
                picture.has_caught_up(WITNESS_1)
            })
            .await?;
        self.tell(
            "witness-1 is back and has caught up",
            "it fetched what it had missed".into(),
            begun.elapsed(),
        );
        Ok(())
    }

    async fn both_witnesses_are_killed(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        self.stage.kill(WITNESS_1)?;
        self.stage.kill(WITNESS_2)?;
        let waiting = self.stage.board.stands_still(self.pause / 2).await?;
        let visible = column(&self.stage.account, "SELECT COUNT(*) FROM demo.transfers")
            .await?
            .concat();
        let unseen = visible
            .parse::<u64>()
            .is_ok_and(|visible| visible <= waiting);
        if !unseen {
            return Err(Failure::error(format!(
                "a reader sees {visible} rows, but only {waiting} were acknowledged"
            )));
        }
        let seen = format!("commits wait; a reader sees {visible} rows, all of them acknowledged");
        self.tell("both witnesses are killed", seen, begun.elapsed());

        let begun = Instant::now();
        self.stage.start(WITNESS_2)?;
        self.commits_go_on(waiting).await?;
        self.tell(
            "witness-2 is back",
            "the waiting commits finish".into(),
            begun.elapsed(),
        );
        self.stage.start(WITNESS_1)?;
        self.stage
            .wait_until("witness-1 has caught up", |picture| {
                picture.has_caught_up(WITNESS_1)
            })
            .await?;
        tokio::time::sleep(self.pause / 2).await;
        Ok(())
    }

    async fn the_member_beside_mysqld_is_killed(&mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        self.stage.kill(DATABASE)?;
        let waiting = self.stage.board.stands_still(self.pause / 2).await?;
        self.tell(
            "db-1, the member beside mysqld, is killed",
            "mysqld goes on, commits wait".into(),
            begun.elapsed(),
        );

        let begun = Instant::now();
        self.stage.start(DATABASE)?;
        self.commits_go_on(waiting).await?;
        self.tell(
            "db-1 is back",
            "it takes mysqld over, the waiting commits finish".into(),
            begun.elapsed(),
        );
        Ok(())
    }

    async fn commits_go_on(&mut self, waiting: u64) -> Result<(), Failure> {
        let board = self.stage.board.clone();
        self.stage
            .wait_until("commits go on", |_| board.total() > waiting)
            .await?;
        Ok(())
    }
}

// The clients of the real mysqld: each inserts one row after the other and waits for the answer.

/// A commit may wait for as long as the longest event of the demonstration.
const LONGEST_COMMIT: Duration = Duration::from_secs(60);
/// How long a client waits before it connects again.
const AGAIN: Duration = Duration::from_millis(200);
/// Rows of one client have numbers in a range of their own.
const ROWS_OF_ONE: u64 = 1_000_000_000;

/// Numbers of the rows whose insertion was acknowledged.
pub(crate) type Acknowledged = Arc<Mutex<BTreeSet<u64>>>;

pub(crate) struct Clients {
    tasks: JoinSet<()>,
    stop: CancellationToken,
    pub(crate) acknowledged: Acknowledged,
}

/// Makes the table that the clients write to.
pub(crate) async fn prepare(options: &ConnectOptions) -> Result<(), Failure> {
    let mut connection = Connection::open(options).await.map_err(failure)?;
    for statement in [
        "CREATE DATABASE demo",
        "CREATE TABLE demo.transfers (id BIGINT UNSIGNED PRIMARY KEY, client INT NOT NULL, note VARCHAR(200) NOT NULL)",
    ] {
        connection.execute(statement).await.map_err(failure)?;
    }
    connection.close().await;
    Ok(())
}

/// Runs one query on a connection of its own and answers with its first column.
pub(crate) async fn column(options: &ConnectOptions, sql: &str) -> Result<Vec<String>, Failure> {
    let mut connection = Connection::open(options).await.map_err(failure)?;
    let result = connection
        .query_within(sql, LONGEST_COMMIT)
        .await
        .map_err(failure)?;
    connection.close().await;
    let texts = result
        .rows
        .iter()
        .filter_map(|row| row.text_at(0).map(str::to_owned));
    Ok(texts.collect())
}

fn failure(error: LinkError) -> Failure {
    Failure::error(format!("mysqld: {error}"))
}

impl Clients {
    pub(crate) fn start(count: u64, options: &ConnectOptions, board: &Arc<Scoreboard>) -> Self {
        let acknowledged = Acknowledged::default();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for number in 1..=count {
            let client = Client {
                number,
                options: options.clone(),
                board: board.clone(),
                acknowledged: acknowledged.clone(),
            };
            tasks.spawn(client.work(stop.clone()));
        }
        Self {
            tasks,
            stop,
            acknowledged,
        }
    }

    /// Lets every client finish the row that it is at.
    pub(crate) async fn finish(mut self) -> BTreeSet<u64> {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        let acknowledged = self.acknowledged.lock();
        acknowledged.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Client {
    number: u64,
    options: ConnectOptions,
    board: Arc<Scoreboard>,
    acknowledged: Acknowledged,
}

impl Client {
    async fn work(self, stop: CancellationToken) {
        let mut next = self.number * ROWS_OF_ONE;
        while !stop.is_cancelled() {
            let Ok(mut connection) = Connection::open(&self.options).await else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            while !stop.is_cancelled() {
                // Whether a row whose answer is lost was written is not known, so its number is not
                // used again.
                next += 1;
                if self.insert(&mut connection, next).await.is_err() {
                    tokio::time::sleep(AGAIN).await;
                    break;
                }
            }
        }
    }

    async fn insert(&self, connection: &mut Connection, id: u64) -> Result<(), LinkError> {
        let note = "-".repeat(100);
        let sql = format!(
            "INSERT INTO demo.transfers VALUES ({id}, {}, '{note}')",
            self.number
        );
        let asked = Instant::now();
        connection.query_within(&sql, LONGEST_COMMIT).await?;
        self.acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id);
        self.board.committed(asked.elapsed());
        Ok(())
    }
}
