//! The stage of the demonstration around a real mysqld: three member processes, what they say of
//! themselves, and the waiting for what should happen.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use member::status::{MemberView, Question, answer};
use mysql_link::{ConnectOptions, Endpoint};
use testkit::cluster::{ChildServer, Cluster, ClusterOptions};
use testkit::mysql_tree::MysqlTree;

use crate::config::{Sources, read};
use crate::demo::failed;
use crate::demo::proof;
use crate::demo::screen::{Frame, Scoreboard, Screen};
use crate::operator::Asker;
use crate::terminal::Failure;

/// The place of the database member in the cluster.
pub(crate) const DATABASE: usize = 0;
/// One that is not, as whom the members are asked.
const WITNESS: usize = 1;

const FRAME: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(20);
/// mysqld may have to recover first, on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    ring: Cluster,
    pub(crate) board: Arc<Scoreboard>,
    pub(crate) picture: Arc<Picture>,
    pub(crate) account: ConnectOptions,
}

/// What is shown, drawn beside the script.
pub(crate) struct Picture {
    asker: Asker,
    screen: Mutex<Screen>,
    board: Arc<Scoreboard>,
    started: Instant,
    views: Mutex<Vec<(String, Option<MemberView>)>>,
}

impl Stage {
    /// Three members with their files below `data_dir`; none runs yet.
    pub(crate) fn set(data_dir: &Path, tree: &MysqlTree, screen: Screen) -> Result<Self, Failure> {
        let datadir = data_dir.join("db-1").join("mysql");
        let server = ChildServer::to_be_made(tree, 1, datadir).map_err(failed)?;
        let account = ConnectOptions::new(Endpoint::unix(server.socket()), "root", "");
        let options = ClusterOptions {
            folder: Some(data_dir.to_owned()),
            ..ClusterOptions::new(server.into()).with("log", "disk_reserve_bytes = \"16MiB\"")
        };
        let ring = Cluster::prepare(&std::env::current_exe()?, options).map_err(failed)?;
        let toml = std::fs::read_to_string(ring.config(WITNESS))?;
        let sources = Sources {
            file: Some(("demo".to_owned(), toml)),
            ..Sources::default()
        };
        let (config, problems) = read(&sources);
        let config = config.ok_or_else(|| Failure::error(problems.to_string()))?;
        let asker =
            Asker::new(&config.member).map_err(|error| Failure::error(error.to_string()))?;
        let board = Arc::new(Scoreboard::new());
        Ok(Self {
            ring,
            picture: Arc::new(Picture {
                asker,
                screen: Mutex::new(screen),
                board: board.clone(),
                started: Instant::now(),
                views: Mutex::new(Vec::new()),
            }),
            board,
            account,
        })
    }

    /// Starts a member; the one beside mysqld makes the ring, unless it is in one.
    pub(crate) fn start(&mut self, at: usize) -> Result<(), Failure> {
        let bootstrap: &[&str] = match at {
            DATABASE => &["--bootstrap"],
            _ => &[],
        };
        self.ring.start_with(at, bootstrap).map_err(failed)
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self, at: usize) -> Result<(), Failure> {
        self.ring.kill(at).map_err(failed)
    }

    pub(crate) fn data_dirs(&self) -> Vec<PathBuf> {
        let directory = |at| self.ring.directory(at).to_owned();
        (0..self.ring.size()).map(directory).collect()
    }

    /// Waits until what the members say is as `reached` wants it, and answers how long that took.
    pub(crate) async fn wait_until(
        &mut self,
        what: &str,
        reached: impl Fn(&Picture) -> bool,
    ) -> Result<Duration, Failure> {
        let begun = Instant::now();
        loop {
            self.picture.look().await;
            if reached(&self.picture) {
                return Ok(begun.elapsed());
            }
            let overdue = begun.elapsed() > PATIENCE;
            let why = match self.ring.look_after() {
                Err(ended) => ended.to_string(),
                Ok(()) if overdue => format!("not within {} s: {what}", PATIENCE.as_secs()),
                Ok(()) => {
                    tokio::time::sleep(LOOK).await;
                    continue;
                }
            };
            return Err(failed(format!("{why}\n{}", self.ring.last_words())));
        }
    }

    /// Stops everything that was started here: the witnesses first, since a leader that is left alone
    /// writes nothing more, then the member beside mysqld with mysqld.
    pub(crate) fn stop(&mut self) -> Result<(), Failure> {
        // Each takes a moment, and the picture is not to stand still.
        tokio::task::block_in_place(|| {
            for at in [1, 2, DATABASE] {
                let status = self.ring.stop(at).map_err(failed)?;
                if !status.success() {
                    let (name, words) = (self.ring.name(at), self.ring.last_words());
                    let what = format!("member `{name}` did not stop well ({status}):\n{words}");
                    return Err(failed(what));
                }
            }
            Ok(())
        })
    }
}

impl Picture {
    /// Draws for as long as it is polled.
    pub(crate) async fn draw(&self) {
        let mut frames = tokio::time::interval(FRAME);
        loop {
            frames.tick().await;
            self.look().await;
            let frame = Frame::new(self.started.elapsed(), &self.board.window(), &self.views());
            self.screen().show(&frame.lines, &frame.brief);
        }
    }

    /// Asks the members what they say now.
    async fn look(&self) {
        let report = self.asker.report().await;
        let views = report
            .members
            .into_iter()
            .map(|member| (member.name, member.view));
        *self.views.lock().unwrap_or_else(PoisonError::into_inner) = views.collect();
    }

    pub(crate) fn screen(&self) -> std::sync::MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn views(&self) -> Vec<(String, Option<MemberView>)> {
        self.views
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn view(&self, at: usize) -> Option<MemberView> {
        self.views().into_iter().nth(at).and_then(|(_, view)| view)
    }

    /// Whether mysqld takes writes of clients, and they wait for the ring.
    pub(crate) fn primary_is_open(&self) -> bool {
        self.view(DATABASE)
            .is_some_and(|view| answer(Question::Primary, &view).is_ok())
    }

    /// Whether this member follows and has nearly all that the leader committed.
    pub(crate) fn has_caught_up(&self, at: usize) -> bool {
        match (self.view(DATABASE), self.view(at)) {
            (Some(leader), Some(own)) => proof::has_caught_up(&own, &leader),
            _ => false,
        }
    }

    /// Whether all logs end at the same entry, committed everywhere.
    pub(crate) fn all_equal(&self) -> bool {
        proof::all_equal(self.views().iter().map(|(_, view)| view.as_ref()))
    }
}
