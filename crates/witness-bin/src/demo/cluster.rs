//! Three members on loopback, the first one with a database.

use std::fmt::Write;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use member::settings::Settings;
use member::status::Question;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toml::Value;

use crate::config::{Sources, read};
use crate::demo::clients::{self, Writer};
use crate::demo::members::{EmbeddedMember, MemberProcess};
use crate::demo::mysqld::Mysqld;
use crate::demo::scoreboard::Scoreboard;
use crate::operator::Asker;
use crate::terminal::{Attempt, Failure};

/// The member with the database.
pub(crate) const DATABASE: usize = 0;
pub(crate) const WITNESS_1: usize = 1;
pub(crate) const WITNESS_2: usize = 2;
pub(crate) const MEMBERS: usize = 3;
const NAMES: [&str; MEMBERS] = ["db-1", "witness-1", "witness-2"];

pub(crate) enum Cluster {
    /// Members in this process, and a writer that proposes to the first one.
    Embedded(Vec<EmbeddedMember>),
    /// Processes, and the mysqld of the first one. It is dropped after its member, which would restart it.
    Processes(Vec<MemberProcess>, Mysqld),
}

/// The clients at work.
pub(crate) struct Load {
    stop: CancellationToken,
    writing: JoinHandle<Attempt<GtidSet>>,
}

impl Cluster {
    /// Three members with their files below `directory`, none of which runs yet, and an asker of their
    /// ring.
    pub(crate) fn prepare(directory: &Path, mysqld: Option<Mysqld>) -> Attempt<(Self, Asker)> {
        let mysql = match &mysqld {
            Some(mysqld) => mysqld.section(),
            // The writer takes the place of this mysqld.
            None => "mode = \"attach\"\napply = \"off\"".to_owned(),
        };
        let addresses = free_addresses()?;
        let configs = [DATABASE, WITNESS_1, WITNESS_2];
        let configs = configs.map(|own| config(own, directory, &addresses, &mysql));
        let settings = configs.iter().map(|toml| settings(toml.clone()));
        let settings = settings.collect::<Result<Vec<_>, _>>()?;
        let asker = Asker::new(&settings[DATABASE]).map_err(Failure::error)?;
        let cluster = match mysqld {
            None => {
                let without_mysqld = settings.into_iter().map(|settings| Settings {
                    mysql: None,
                    ..settings
                });
                Self::Embedded(without_mysqld.map(EmbeddedMember::new).collect())
            }
            Some(mysqld) => {
                let named = NAMES.into_iter().zip(&configs);
                let members = named.map(|(name, toml)| MemberProcess::new(directory, name, toml));
                Self::Processes(members.collect::<Result<_, _>>()?, mysqld)
            }
        };
        Ok((cluster, asker))
    }

    pub(crate) fn start(&mut self, at: usize, bootstrap: bool) -> Attempt {
        match self {
            Self::Embedded(members) => members[at].start(bootstrap),
            Self::Processes(members, _) => members[at].start(bootstrap),
        }
    }

    pub(crate) fn crash(&mut self, at: usize) -> Attempt {
        match self {
            Self::Embedded(members) => members[at].crash(),
            Self::Processes(members, _) => Ok(members[at].crash()?),
        }
    }

    /// Stops a member cleanly, the first one with its mysqld.
    pub(crate) async fn stop(&mut self, at: usize) -> Attempt {
        match self {
            Self::Embedded(members) => members[at].stop().await,
            Self::Processes(members, _) => members[at].stop().await,
        }
    }

    /// The message of a member that has ended by itself.
    pub(crate) fn ended(&mut self) -> Option<String> {
        match self {
            Self::Embedded(members) => members.iter_mut().find_map(EmbeddedMember::ended),
            Self::Processes(members, _) => members.iter_mut().find_map(MemberProcess::ended),
        }
    }

    /// The end of each member's log output, where it has one.
    pub(crate) fn last_lines(&self) -> String {
        match self {
            Self::Embedded(_) => String::new(),
            Self::Processes(members, _) => members.iter().map(MemberProcess::last_lines).collect(),
        }
    }

    /// What the first member answers with yes when clients can write.
    pub(crate) fn writable(&self) -> Question {
        match self {
            Self::Embedded(_) => Question::Leader,
            Self::Processes(..) => Question::Primary,
        }
    }

    /// The number of rows that a reader sees, where there is a database to read from.
    pub(crate) async fn visible_rows(&self) -> Attempt<Option<u64>> {
        match self {
            Self::Embedded(_) => Ok(None),
            Self::Processes(_, mysqld) => clients::visible_rows(&mysqld.account()).await.map(Some),
        }
    }

    /// Starts the clients.
    pub(crate) async fn start_load(&self, board: &Arc<Scoreboard>) -> Attempt<Load> {
        let (board, stop) = (board.clone(), CancellationToken::new());
        let writing = match self {
            Self::Embedded(members) => {
                let writer = Writer::new(members[DATABASE].ring(), board, stop.clone());
                tokio::spawn(writer.run())
            }
            Self::Processes(_, mysqld) => {
                clients::prepare_table(&mysqld.account()).await?;
                tokio::spawn(clients::insert(mysqld.account(), board, stop.clone()))
            }
        };
        Ok(Load { stop, writing })
    }
}

impl Load {
    /// Stops the clients after their current transactions; returns the acknowledged transactions.
    pub(crate) async fn finish(self) -> Attempt<GtidSet> {
        self.stop.cancel();
        self.writing.await.map_err(Failure::error)?
    }
}

/// Each member's data directory.
pub(crate) fn data_dirs(directory: &Path) -> [PathBuf; MEMBERS] {
    NAMES.map(|name| directory.join(name))
}

/// Addresses whose ports are free. Members keep theirs over crashes.
fn free_addresses() -> io::Result<Vec<SocketAddr>> {
    // All are open at the same time, so that no two are equal.
    let listeners = NAMES
        .iter()
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}

/// A member's configuration file: with a short heartbeat for short elections, and a log file size that the
/// scenario does not reach.
fn config(own: usize, directory: &Path, addresses: &[SocketAddr], mysql: &str) -> String {
    let data_dir = directory.join(NAMES[own]).display().to_string();
    let mut toml = format!(
        "data_dir = {}\nring.name = \"demo\"\nmember.id = {}\nraft.heartbeat = \"100ms\"\n\
         log.max_file_bytes = \"256MiB\"\nlog.disk_reserve_bytes = \"16MiB\"\n",
        Value::from(data_dir),
        own + 1
    );
    if own == DATABASE {
        let _ = writeln!(toml, "\n[mysql]\n{mysql}");
    }
    for (at, (name, address)) in NAMES.iter().zip(addresses).enumerate() {
        let id = at + 1;
        let kind = if at == DATABASE {
            "database"
        } else {
            "witness"
        };
        let _ = writeln!(
            toml,
            "\n[[members]]\nid = {id}\nname = \"{name}\"\nregion = \"here\"\nkind = \"{kind}\"\naddress = \"{address}\""
        );
    }
    toml
}

/// The settings of a configuration file.
pub(crate) fn settings(toml: String) -> Attempt<Settings> {
    let (config, problems) = read(&Sources {
        file: Some(("demo".to_owned(), toml)),
        ..Sources::default()
    });
    Ok(config.ok_or_else(|| Failure::error(problems))?.member)
}
