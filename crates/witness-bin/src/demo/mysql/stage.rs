//! The stage of the demonstration around a real mysqld: three member processes, what they say of
//! themselves, and the waiting for what should happen.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use member::status::{MemberView, Question, answer};
use mysql_link::{ConnectOptions, Endpoint};
use tempfile::TempDir;

use crate::config::{Sources, read};
use crate::demo::mysql::processes::{MemberProcess, ServerTree};
use crate::demo::options::free_addresses;
use crate::demo::proof;
use crate::demo::screen::{Frame, Scoreboard, Screen};
use crate::operator::Asker;
use crate::terminal::Failure;

/// The place of the database member in [`NAMES`].
pub(crate) const DATABASE: usize = 0;
const NAMES: [&str; 3] = ["db-1", "witness-1", "witness-2"];

const FRAME: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(20);
/// mysqld may have to recover first, on a machine that does other things.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Stage {
    pub(crate) members: Vec<MemberProcess>,
    pub(crate) board: Arc<Scoreboard>,
    pub(crate) picture: Arc<Picture>,
    pub(crate) account: ConnectOptions,
    datadir: PathBuf,
    /// Holds mysqld's socket, whose path must be short.
    _socket_dir: TempDir,
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
    pub(crate) fn set(data_dir: &Path, tree: &ServerTree, screen: Screen) -> Result<Self, Failure> {
        let socket_dir = tempfile::Builder::new().prefix("witness-").tempdir()?;
        let socket = socket_dir.path().join("mysqld.sock");
        let datadir = data_dir.join(NAMES[DATABASE]).join("mysql");
        let addresses = free_addresses()?;
        let setting = Setting {
            addresses,
            tree,
            socket: &socket,
            datadir: &datadir,
        };
        let mut members = Vec::new();
        for (own, name) in NAMES.iter().enumerate() {
            let own_dir = data_dir.join(name);
            members.push(MemberProcess::new(
                name,
                &own_dir,
                &setting.toml(own, &own_dir),
            )?);
        }
        let sources = Sources {
            file: Some(("demo".to_owned(), setting.toml(1, &data_dir.join(NAMES[1])))),
            ..Sources::default()
        };
        let (config, problems) = read(&sources);
        let config = config.ok_or_else(|| Failure::error(problems.to_string()))?;
        let asker =
            Asker::new(&config.member).map_err(|error| Failure::error(error.to_string()))?;
        let board = Arc::new(Scoreboard::new());
        Ok(Self {
            members,
            picture: Arc::new(Picture {
                asker,
                screen: Mutex::new(screen),
                board: board.clone(),
                started: Instant::now(),
                views: Mutex::new(Vec::new()),
            }),
            board,
            account: ConnectOptions::new(Endpoint::unix(socket), "root", ""),
            datadir,
            _socket_dir: socket_dir,
        })
    }

    pub(crate) fn member(&mut self, at: usize) -> &mut MemberProcess {
        &mut self.members[at]
    }

    pub(crate) fn data_dirs(&self) -> Vec<PathBuf> {
        self.members
            .iter()
            .map(|member| member.data_dir().to_owned())
            .collect()
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
            if let Some(ended) = self.members.iter_mut().find_map(MemberProcess::has_ended) {
                return Err(Failure::error(ended));
            }
            if begun.elapsed() > PATIENCE {
                let last = self.members[DATABASE].last_words();
                return Err(Failure::error(format!(
                    "not within {} s: {what}; db-1 said at last:\n{last}",
                    PATIENCE.as_secs()
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Stops everything that was started here: the witnesses first, since a leader that is left alone
    /// writes nothing more, then the member beside mysqld with mysqld.
    pub(crate) async fn stop(&mut self) -> Result<(), Failure> {
        let (database, witnesses) = self.members.split_at_mut(DATABASE + 1);
        for members in [witnesses, database] {
            for member in members.iter_mut() {
                member.ask_to_stop();
            }
            for member in members.iter_mut() {
                if let Some(status) = member.ended(PATIENCE).await?
                    && !status.success()
                {
                    return Err(Failure::error(format!(
                        "member `{}` did not stop well ({status}):\n{}",
                        member.name,
                        member.last_words()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Makes sure that nothing stays behind, however the demonstration ended.
    pub(crate) fn clear(&mut self) {
        for member in &mut self.members {
            // Its end is all that counts now.
            let _ = member.kill();
        }
        self.members[DATABASE].kill_mysqld(&self.datadir);
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

/// What the members' configurations are made from.
struct Setting<'a> {
    /// Of the three members, and of mysqld.
    addresses: [SocketAddr; 4],
    tree: &'a ServerTree,
    socket: &'a Path,
    datadir: &'a Path,
}

impl Setting<'_> {
    fn toml(&self, own: usize, own_dir: &Path) -> String {
        let mut text = format!(
            "data_dir = {own_dir:?}\n[ring]\nname = \"demo\"\n[member]\nid = {}\n\
             [log]\ndisk_reserve_bytes = \"16MiB\"\n[raft]\nheartbeat = \"100ms\"\n",
            own + 1
        );
        if own == DATABASE {
            text.push_str(&self.mysql());
        }
        for (at, name) in NAMES.iter().enumerate() {
            let kind = if at == DATABASE {
                "database"
            } else {
                "witness"
            };
            text.push_str(&format!(
                "[[members]]\nid = {}\nname = \"{name}\"\nregion = \"here\"\nkind = \"{kind}\"\n\
                 address = \"{}\"\n",
                at + 1,
                self.addresses[at]
            ));
        }
        text
    }

    fn mysql(&self) -> String {
        let mut arguments = self.tree.arguments.clone();
        arguments.extend(
            [
                "--bind-address=127.0.0.1",
                "--mysqlx=OFF",
                "--secure-file-priv=",
            ]
            .map(str::to_owned),
        );
        // mysqld refuses to run as root unless that is said to be meant.
        if rustix::process::geteuid().is_root() {
            arguments.push("--user=root".to_owned());
        }
        format!(
            "[mysql]\nuser = \"root\"\nmysqld = {:?}\nextra_args = {arguments:?}\ndatadir = {:?}\n\
             socket = {:?}\nport = {}\n",
            self.tree.command,
            self.datadir,
            self.socket,
            self.addresses[3].port()
        )
    }
}
