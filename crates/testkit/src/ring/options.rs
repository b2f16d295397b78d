//! How a ring of a test is configured, and the configuration files that follow.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::mysqld::Mysqld;

/// What the database member does about mysqld.
#[derive(Clone, Debug)]
pub enum Beside {
    /// It attaches to one that runs, over its socket.
    Attached {
        /// The server's socket.
        socket: PathBuf,
    },
    /// It starts one itself.
    Child {
        /// The command that starts mysqld, with whatever wraps it.
        mysqld: Vec<String>,
        /// Further arguments.
        extra_args: Vec<String>,
        /// Its data directory.
        datadir: PathBuf,
        /// Its socket, in a short path.
        socket: PathBuf,
        /// Its TCP port.
        port: u16,
    },
}

/// How a ring is made: one database member and two witnesses in one region, and further database members behind them.
#[derive(Clone, Debug)]
pub struct RingOptions {
    /// What stands beside the first database member.
    pub beside: Beside,
    /// What stands beside each further one; they are members 3, 4 and so on.
    pub more: Vec<Beside>,
    /// Where the members' folders go and stay; `None`: a temporary folder.
    pub folder: Option<PathBuf>,
    /// `log.durability`.
    pub durability: &'static str,
    /// `raft.heartbeat`; the lease follows from it as the defaults do.
    pub heartbeat: Duration,
    /// Members whose mysqlds apply by their own replica threads; they need a binlog server.
    pub native: Vec<usize>,
    /// Whether every member serves its binlog, to [`BINLOG_USER`].
    pub binlog_server: bool,
    /// Further TOML lines by section, for example `("log", "max_file_bytes = \"1MiB\"")`.
    pub extra: Vec<(&'static str, String)>,
}

pub(super) struct Place {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) raft: SocketAddr,
    pub(super) http: SocketAddr,
    pub(super) binlog: SocketAddr,
}

/// The account of members' binlog servers.
pub const BINLOG_USER: &str = "replica";
/// Its password.
pub const BINLOG_PASSWORD: &str = "replica-password";

impl RingOptions {
    /// Around a mysqld that runs.
    #[must_use]
    pub fn around(server: &Mysqld) -> Self {
        Self::new(Beside::Attached {
            socket: server.socket(),
        })
    }

    /// With the given kind of mysqld.
    #[must_use]
    pub fn new(beside: Beside) -> Self {
        Self {
            beside,
            more: Vec::new(),
            folder: None,
            durability: "fsync",
            heartbeat: Duration::from_millis(100),
            native: Vec::new(),
            binlog_server: false,
            extra: Vec::new(),
        }
    }

    /// With a binlog server on every member.
    #[must_use]
    pub fn with_binlog_servers(mut self) -> Self {
        self.binlog_server = true;
        self
    }

    /// With binlog servers, from which the mysqld of this member applies by its own replica threads.
    #[must_use]
    pub fn with_native(mut self, member: usize) -> Self {
        self.native.push(member);
        self.with_binlog_servers()
    }

    /// With one more line in a section of every member's file.
    #[must_use]
    pub fn with(mut self, section: &'static str, line: impl Into<String>) -> Self {
        self.extra.push((section, line.into()));
        self
    }

    /// With further database members.
    #[must_use]
    pub fn with_more(mut self, more: impl IntoIterator<Item = Beside>) -> Self {
        self.more.extend(more);
        self
    }

    pub(super) fn names(&self) -> Vec<String> {
        let first = ["db-1", "witness-1", "witness-2"].map(str::to_owned);
        let more = (0..self.more.len()).map(|index| format!("db-{}", index + 2));
        first.into_iter().chain(more).collect()
    }

    /// What stands beside a member; none beside a witness.
    fn beside(&self, index: usize) -> Option<&Beside> {
        match index {
            0 => Some(&self.beside),
            1 | 2 => None,
            more => self.more.get(more - 3),
        }
    }

    pub(super) fn toml(&self, place: &Place, places: &[Place], directory: &Path) -> String {
        let heartbeat = self.heartbeat.as_millis();
        let mut sections = vec![
            ("", vec![format!("data_dir = {:?}", directory)]),
            ("ring", vec!["name = \"test\"".to_owned()]),
            ("member", vec![format!("id = {}", place.index + 1)]),
            ("log", vec![format!("durability = {:?}", self.durability)]),
            (
                "raft",
                vec![
                    format!("heartbeat = \"{heartbeat}ms\""),
                    // The lease stands to the heartbeat as in the defaults.
                    format!("lease = \"{}ms\"", heartbeat * 8 / 5),
                ],
            ),
            ("http", vec![format!("listen = \"{}\"", place.http)]),
        ];
        if let Some(beside) = self.beside(place.index) {
            let mut lines = beside.toml_lines();
            if self.native.contains(&place.index) {
                lines.push("apply = \"native\"".to_owned());
            }
            sections.push(("mysql", lines));
        }
        if self.binlog_server {
            let lines = vec![
                format!("listen = \"{}\"", place.binlog),
                format!("user = \"{BINLOG_USER}\""),
                format!("password = \"{BINLOG_PASSWORD}\""),
            ];
            sections.push(("binlog_server", lines));
        }
        for (section, line) in &self.extra {
            if let Some((_, lines)) = sections.iter_mut().find(|(name, _)| name == section) {
                lines.push(line.clone());
            } else if *section != "mysql" {
                sections.push((section, vec![line.clone()]));
            }
        }
        let mut text = String::new();
        for (section, lines) in sections {
            if !section.is_empty() {
                let _ = writeln!(text, "[{section}]");
            }
            let _ = writeln!(text, "{}\n", lines.join("\n"));
        }
        for other in places {
            let kind = match self.beside(other.index) {
                Some(_) => "database",
                None => "witness",
            };
            let _ = writeln!(
                text,
                "[[members]]\nid = {}\nname = \"{}\"\nregion = \"here\"\nkind = \"{kind}\"\naddress = \"{}\"\n",
                other.index + 1,
                other.name,
                other.raft
            );
        }
        text
    }
}

impl Beside {
    /// The lines of `[mysql]` that say so.
    pub(super) fn toml_lines(&self) -> Vec<String> {
        let mut lines = vec!["user = \"root\"".to_owned()];
        match self {
            Self::Attached { socket } => lines.extend([
                "mode = \"attach\"".to_owned(),
                format!("socket = {socket:?}"),
            ]),
            Self::Child {
                mysqld,
                extra_args,
                datadir,
                socket,
                port,
            } => lines.extend([
                "mode = \"child\"".to_owned(),
                format!("mysqld = {mysqld:?}"),
                format!("extra_args = {extra_args:?}"),
                format!("datadir = {datadir:?}"),
                format!("socket = {socket:?}"),
                format!("port = {port}"),
            ]),
        }
        lines
    }
}
