//! A ring with several database members, each with a mysqld that is its child; members and mysqlds are killed together, as a
//! host is that loses its power.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError};
use rustix::process::{Pid, Signal, kill_process};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{MysqlClient, TableChecksums};
use testkit::ring::{ChildServer, ProcessRing, Profile, RingOptions, witness_binary};
use testkit::wait::{self, Look, Patience};

use crate::written_rows::MAKE_ROWS;

/// One of the members that are no database members, which are 1 and 2.
const WITNESS: usize = 1;
/// Where the database members behind the first begin.
const FIRST_MORE: usize = 3;
/// The account of clients, without any right to write where `read_only` is on.
pub const CLIENT: &str = "app";
/// Its password.
pub const CLIENT_PASSWORD: &str = "app-password";

/// A session of that account over mysqld's socket, of which each statement may take so long.
///
/// # Errors
/// When mysqld does not let it in.
pub async fn client_session(socket: &Path, limit: Duration) -> Result<Connection, LinkError> {
    let mut options = ConnectOptions::new(Endpoint::unix(socket), CLIENT, CLIENT_PASSWORD);
    options.timeouts.statement = limit;
    Connection::open(&options).await
}

/// See the module.
pub struct Replicaset {
    /// The members: 0 and 3 onwards are database members, 1 and 2 witnesses.
    pub ring: ProcessRing,
    servers: Vec<Server>,
}

/// The mysqld beside a database member.
struct Server {
    member: usize,
    mysqld: ChildServer,
}

impl Replicaset {
    /// A ring with so many database members, whose first one is the primary.
    ///
    /// # Errors
    /// When it does not come up; the message holds the members' last log lines.
    pub fn launch(databases: usize) -> Result<Self> {
        Self::launch_with(databases, |options| options)
    }

    /// The same with changed options.
    ///
    /// # Errors
    /// As [`Replicaset::launch`].
    pub fn launch_with(
        databases: usize,
        adjust: impl FnOnce(RingOptions) -> RingOptions,
    ) -> Result<Self> {
        Self::launch_in(vec![None; databases], adjust)
    }

    /// The same with a database member for each data directory: one that stays, or a temporary one.
    ///
    /// # Errors
    /// As [`Replicaset::launch`].
    pub fn launch_in(
        data_dirs: Vec<Option<PathBuf>>,
        adjust: impl FnOnce(RingOptions) -> RingOptions,
    ) -> Result<Self> {
        let tree = MysqlTree::require();
        let mut prepared = Vec::new();
        for (data_dir, server_id) in data_dirs.into_iter().zip(1..) {
            prepared.push(ChildServer::prepare(&tree, server_id, data_dir)?);
        }
        let mut beside = prepared.iter().map(ChildServer::beside);
        let first = beside.next().context("a replicaset has a database")?;
        let options = adjust(RingOptions::new(first).with_more(beside));
        let ring = ProcessRing::prepare(&witness_binary(Profile::Dev)?, &options)?;
        let servers = prepared.into_iter().enumerate().map(|(index, mysqld)| {
            let member = match index {
                0 => 0,
                more => FIRST_MORE + more - 1,
            };
            Server { member, mysqld }
        });
        let servers = servers.collect();
        let mut set = Self { ring, servers };
        for member in (1..set.ring.size()).rev() {
            set.ring.start(member)?;
        }
        set.ring.start_with(0, &["--bootstrap"])?;
        // Mostly the one that bootstrapped the ring. On a machine that is held up another one may lead by now, and what an
        // administrator writes to a replica is errant.
        let primary = set.primary(Duration::from_secs(90))?;
        let statements = format!(
            "CREATE USER {CLIENT} IDENTIFIED BY '{CLIENT_PASSWORD}'; GRANT ALL ON *.* TO {CLIENT}; \
             REVOKE SUPER, CONNECTION_ADMIN ON *.* FROM {CLIENT}; {MAKE_ROWS}"
        );
        let made = set.client(primary).sql(&statements);
        made.with_context(|| set.words())?;
        Ok(set)
    }

    /// The database members, by their place in the ring.
    #[must_use]
    pub fn databases(&self) -> Vec<usize> {
        self.servers.iter().map(|server| server.member).collect()
    }

    /// The administrator's client of a database member's mysqld.
    ///
    /// # Panics
    /// When the member is no database member.
    #[must_use]
    pub fn client(&self, member: usize) -> MysqlClient {
        self.server(member).mysqld.client()
    }

    /// The socket of a database member's mysqld.
    ///
    /// # Panics
    /// When the member is no database member.
    #[must_use]
    pub fn socket(&self, member: usize) -> PathBuf {
        self.server(member).mysqld.socket()
    }

    /// The data directory of a database member's mysqld.
    ///
    /// # Panics
    /// When the member is no database member.
    #[must_use]
    pub fn data_dir(&self, member: usize) -> PathBuf {
        self.server(member).mysqld.data_dir()
    }

    /// Where a database member's mysqld listens over TCP.
    ///
    /// # Panics
    /// When the member is no database member.
    #[must_use]
    pub fn mysql_address(&self, member: usize) -> SocketAddr {
        self.server(member).mysqld.address()
    }

    /// The sockets of all of them, with their members' places.
    #[must_use]
    pub fn sockets(&self) -> Vec<(usize, PathBuf)> {
        let socket = |server: &Server| (server.member, server.mysqld.socket());
        self.servers.iter().map(socket).collect()
    }

    #[expect(
        clippy::expect_used,
        reason = "a test that asks a witness for its mysqld is wrong"
    )]
    fn server(&self, member: usize) -> &Server {
        let mut servers = self.servers.iter();
        servers
            .find(|server| server.member == member)
            .expect("a database member")
    }

    /// Waits until a look finds something.
    ///
    /// # Errors
    /// When none does; with what every database member says of itself.
    pub fn eventually<L: Look>(
        &self,
        what: &str,
        patience: impl Into<Patience>,
        look: impl FnMut() -> L,
    ) -> Result<L::Found> {
        wait::eventually(what, patience, look).with_context(|| self.words())
    }

    /// Waits until somebody says that it is the primary, and who.
    ///
    /// # Errors
    /// When nobody does within the limit.
    pub fn primary(&self, limit: Duration) -> Result<usize> {
        self.eventually("somebody is the primary", limit, || {
            self.databases().into_iter().find(|member| {
                let answer = self.ring.get(*member, "/primary");
                answer.is_ok_and(|answer| answer.status == 200)
            })
        })
    }

    /// Moves the primary to the member of that name. An order that is refused is given again: just after a start a mysqld is
    /// looked at anew, and just after an election there may be nobody to carry it out. One that was not answered in time may have
    /// been carried out all the same.
    ///
    /// # Errors
    /// With the last refusal, when the limit passes.
    pub fn promote(&self, name: &str, limit: Duration) -> Result<()> {
        let config = self.ring.config(WITNESS).display().to_string();
        let patience = Patience::every(Duration::from_millis(200), limit);
        self.eventually(&format!("{name} is promoted"), patience, || {
            let arguments = ["switchover", name, "--yes", "--config", &config];
            let done = self.ring.cli(&arguments)?;
            let told = String::from_utf8_lossy(&done.stderr);
            let led = done.status.success() || told.contains("leads already");
            ensure!(led, "{told}");
            Ok(())
        })
    }

    /// Waits until a member's mysqld follows and is hardly behind.
    ///
    /// # Errors
    /// When it does not within the limit.
    pub fn follows(&self, member: usize, limit: Duration) -> Result<()> {
        self.eventually(&format!("member {member} follows"), limit, || {
            let answer = self.ring.get(member, "/replica?lag=200ms");
            answer.is_ok_and(|answer| answer.status == 200)
        })
    }

    /// What every database member says of itself.
    #[must_use]
    pub fn words(&self) -> String {
        let say = |member: usize| {
            let status = match self.ring.get(member, "/status") {
                Ok(answer) => match answer.json() {
                    Ok(view) => format!(
                        "role {} leader {} serving {} mysql {}",
                        view["role"], view["leader"], view["serving"], view["mysql"]
                    ),
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            let output = self.ring.output(member);
            let last: Vec<&str> = output.lines().rev().take(12).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            format!("member {member}: {status}\n{}\n", last.join("\n"))
        };
        self.databases().into_iter().map(say).collect()
    }

    /// Kills a database member and its mysqld, as a host dies.
    ///
    /// # Errors
    /// When the member does not run.
    pub fn kill_host(&mut self, member: usize) -> Result<()> {
        // The member first: it would start its mysqld again.
        self.ring.kill(member)?;
        self.kill_mysqld(member)
    }

    /// Kills a database member's mysqld.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill_mysqld(&self, member: usize) -> Result<()> {
        self.server(member).mysqld.kill()
    }

    /// Makes the first database the primary, wherever an election has put it while the ring was made, and the others follow.
    ///
    /// # Errors
    /// When it does not come to that within the limit of a step.
    pub fn begins_at_the_first(&self, limit: Duration) -> Result<()> {
        if self.primary(limit)? != 0 {
            self.follows(0, limit)?;
            self.promote("db-1", limit)?;
        }
        let others = self.databases().into_iter().filter(|member| *member != 0);
        others
            .into_iter()
            .try_for_each(|member| self.follows(member, limit))
    }

    /// Sends a signal to a member's process.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn signal_member(&self, member: usize, signal: Signal) -> Result<()> {
        let id = self.ring.process_id(member).context("it does not run")?;
        let id = Pid::from_raw(i32::try_from(id)?).context("no process has the number 0")?;
        Ok(kill_process(id, signal)?)
    }

    /// Sends a signal to a database member's mysqld.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn signal_mysqld(&self, member: usize, signal: Signal) -> Result<()> {
        self.server(member).mysqld.signal(signal).map(drop)
    }

    /// Waits until all mysqlds have executed the same transactions, and compares their tables.
    ///
    /// # Errors
    /// When they do not, with what differs.
    pub fn equal(&self, schema: &str, limit: Duration) -> Result<TableChecksums> {
        self.eventually("the mysqlds have executed the same", limit, || {
            let databases = self.databases().into_iter();
            let executed = databases.map(|member| self.client(member).gtid_executed());
            let sets: Vec<String> = executed.collect::<Result<_>>()?;
            ensure!(sets.iter().all(|set| *set == sets[0]), "{sets:?}");
            Ok(())
        })?;
        let first = self.client(0).table_checksums(schema)?;
        for member in self.databases() {
            let other = self.client(member).table_checksums(schema)?;
            ensure!(first == other, "member {member}'s tables differ");
        }
        Ok(first)
    }
}

impl Drop for Replicaset {
    fn drop(&mut self) {
        for server in &self.servers {
            // The member may have ended already. Its mysqld goes with its fixture, behind it.
            let _ = self.ring.kill(server.member);
        }
    }
}
