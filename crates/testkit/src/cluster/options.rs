//! The options of a test cluster, and its members' configuration files.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cluster::child_server::ChildServer;
use crate::cluster::{Cluster, Port};
use crate::mysqld::Mysqld;

/// The database of a member.
#[derive(Debug)]
pub enum MemberDatabase {
    /// No database: the member is a witness.
    Nothing,
    /// A database inside the member's own program.
    Embedded {
        /// The program, which accepts `run --config FILE` as `witness` does.
        program: PathBuf,
    },
    /// A running mysqld, reached through its socket.
    Attached {
        /// The server's socket.
        socket: PathBuf,
    },
    /// A mysqld that the member starts.
    Child(Box<ChildServer>),
}

impl From<ChildServer> for MemberDatabase {
    fn from(server: ChildServer) -> Self {
        Self::Child(Box::new(server))
    }
}

/// The options of one member.
#[derive(Debug)]
pub struct MemberOptions {
    /// The member's name.
    pub name: String,
    /// The member's region.
    pub region: String,
    /// The member's database, if it is a database member.
    pub database: MemberDatabase,
    /// True if the mysqld applies with its own replica threads, from the member's binlog server.
    pub native: bool,
    /// True if the member votes.
    pub votes: bool,
}

/// Options of a cluster. Members are numbered from 0, in this order.
#[derive(Debug)]
pub struct ClusterOptions {
    /// The members.
    pub members: Vec<MemberOptions>,
    /// The one-way delays within a region and between two regions, for members that each have an address of their own. `None`:
    /// members on loopback.
    pub distance: Option<(Duration, Duration)>,
    /// The folder that contains the members' folders, which is kept. `None`: a temporary folder.
    pub folder: Option<PathBuf>,
    /// `raft.heartbeat`; the lease keeps its default ratio to the heartbeat. `None`: both have their defaults.
    pub heartbeat: Option<Duration>,
    /// True if every member has a binlog server for [`BINLOG_USER`]. Members with `native` always have one.
    pub binlog_servers: bool,
    /// Further TOML lines by section, such as `("log", "max_file_bytes = \"1MiB\"")`.
    pub lines: Vec<(&'static str, String)>,
}

/// The account for the members' binlog servers.
pub const BINLOG_USER: &str = "replica";
/// The password of this account.
pub const BINLOG_PASSWORD: &str = "replica-password";
/// Shorter than the default, so that tests wait less. With 100 ms, a busy machine elects new leaders.
const HEARTBEAT: Duration = Duration::from_millis(300);

impl MemberOptions {
    /// Creates the options of a member with this database.
    pub fn new(
        name: impl Into<String>,
        region: impl Into<String>,
        database: MemberDatabase,
    ) -> Self {
        Self {
            name: name.into(),
            region: region.into(),
            database,
            native: false,
            votes: true,
        }
    }

    /// True if the member is a database member.
    #[must_use]
    pub fn is_database(&self) -> bool {
        !matches!(self.database, MemberDatabase::Nothing)
    }

    fn kind(&self) -> &'static str {
        match self.is_database() {
            true => "database",
            false => "witness",
        }
    }
}

impl ClusterOptions {
    /// Creates options for these members, on loopback.
    #[must_use]
    pub fn of(members: Vec<MemberOptions>) -> Self {
        Self {
            members,
            distance: None,
            folder: None,
            heartbeat: None,
            binlog_servers: false,
            lines: Vec::new(),
        }
    }

    /// Creates options for one region: member 0 with a database, and two witnesses. The heartbeat is short.
    #[must_use]
    pub fn new(first: MemberDatabase) -> Self {
        let witness = |name| MemberOptions::new(name, "here", MemberDatabase::Nothing);
        let database = MemberOptions::new("db-1", "here", first);
        let members = vec![database, witness("witness-1"), witness("witness-2")];
        Self {
            heartbeat: Some(HEARTBEAT),
            ..Self::of(members)
        }
    }

    /// As [`Self::new`], with a running mysqld as the database.
    #[must_use]
    pub fn around(server: &Mysqld) -> Self {
        Self::new(MemberDatabase::Attached {
            socket: server.socket(),
        })
    }

    /// Creates options with one database member and two witnesses in each region: members 0, 3, 6 and so on are the database
    /// members.
    #[must_use]
    pub fn in_regions<'a>(databases: impl IntoIterator<Item = (&'a str, MemberDatabase)>) -> Self {
        let of_region = |(region, database): (&'a str, MemberDatabase)| {
            let witness = |number| {
                let name = format!("witness-{region}{number}");
                MemberOptions::new(name, region, MemberDatabase::Nothing)
            };
            let database = MemberOptions::new(format!("db-{region}"), region, database);
            [database, witness(1), witness(2)]
        };
        Self::of(databases.into_iter().flat_map(of_region).collect())
    }

    /// Adds a database member for each of these databases.
    #[must_use]
    pub fn with_more(mut self, more: impl IntoIterator<Item = MemberDatabase>) -> Self {
        for (number, database) in (2..).zip(more) {
            let member = MemberOptions::new(format!("db-{number}"), "here", database);
            self.members.push(member);
        }
        self
    }

    /// Sets that every member has a binlog server.
    #[must_use]
    pub fn with_binlog_servers(mut self) -> Self {
        self.binlog_servers = true;
        self
    }

    /// Sets that the mysqld of a member applies with its own replica threads.
    #[must_use]
    pub fn with_native(mut self, member: usize) -> Self {
        self.members[member].native = true;
        self
    }

    /// Adds a line to a section of every member's configuration file. For `[mysql]`, only for members that have this section.
    #[must_use]
    pub fn with(mut self, section: &'static str, line: impl Into<String>) -> Self {
        self.lines.push((section, line.into()));
        self
    }

    /// Sets the heartbeat.
    #[must_use]
    pub fn with_heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = Some(heartbeat);
        self
    }
}

impl Cluster {
    /// Returns a member's configuration file.
    pub(super) fn toml(&self, own: usize, directory: &Path) -> String {
        let (options, member) = (&self.options, &self.options.members[own]);
        let mut sections: Vec<(&str, Vec<String>)> = vec![
            ("", vec![format!("data_dir = {directory:?}")]),
            ("ring", vec!["name = \"test\"".to_owned()]),
            ("member", vec![format!("id = {}", self.id(own))]),
            ("http", vec![listen(self, own, Port::Http)]),
        ];
        if let Some(heartbeat) = options.heartbeat.map(|time| time.as_millis()) {
            let lease = heartbeat * 8 / 5;
            let lines = [
                format!("heartbeat = \"{heartbeat}ms\""),
                format!("lease = \"{lease}ms\""),
            ];
            sections.push(("raft", lines.into()));
        }
        let mut mysql = member.database.toml_lines();
        if member.native {
            mysql.push("apply = \"native\"".to_owned());
        }
        let has_mysql = !mysql.is_empty();
        if has_mysql {
            sections.push(("mysql", mysql));
        }
        if options.binlog_servers || member.native {
            let lines = [
                listen(self, own, Port::Binlog),
                format!("user = {BINLOG_USER:?}"),
                format!("password = {BINLOG_PASSWORD:?}"),
            ];
            sections.push(("binlog_server", lines.into()));
        }
        for (section, line) in &options.lines {
            match sections.iter_mut().find(|(name, _)| name == section) {
                Some((_, lines)) => lines.push(line.clone()),
                None if *section == "mysql" => {}
                None => sections.push((section, vec![line.clone()])),
            }
        }
        let has_tls = sections.iter().any(|(section, _)| *section == "tls");
        if options.distance.is_some() && !has_tls {
            // The members' addresses are not on loopback.
            sections.push(("tls", vec!["plaintext = true".to_owned()]));
        }
        let mut text = String::new();
        for (section, lines) in sections {
            if !section.is_empty() {
                let _ = writeln!(text, "[{section}]");
            }
            let _ = writeln!(text, "{}\n", lines.join("\n"));
        }
        for (index, other) in options.members.iter().enumerate() {
            let _ = writeln!(
                text,
                "[[members]]\nid = {}\nname = {:?}\nregion = {:?}\nkind = {:?}\nvotes = {}\naddress = \"{}\"\n",
                self.id(index),
                other.name,
                other.region,
                other.kind(),
                other.votes,
                self.raft_address(index)
            );
        }
        text
    }
}

fn listen(cluster: &Cluster, member: usize, port: Port) -> String {
    format!("listen = \"{}\"", cluster.address(member, port))
}

impl MemberDatabase {
    /// Returns the lines of `[mysql]` in the member's configuration.
    fn toml_lines(&self) -> Vec<String> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Embedded { .. } => ["mode = \"attach\"", "apply = \"off\""]
                .map(str::to_owned)
                .into(),
            Self::Attached { socket } => vec![
                "user = \"root\"".to_owned(),
                "mode = \"attach\"".to_owned(),
                format!("socket = {socket:?}"),
            ],
            Self::Child(server) => server.toml_lines(),
        }
    }
}
