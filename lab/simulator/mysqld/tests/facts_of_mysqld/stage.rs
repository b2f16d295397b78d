//! The servers of the scenarios, and their clients. A server is a model that listens on a unix socket, or a real mysqld.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::framing::{FramedTransaction, StreamItem, TransactionFramer};
use binlog_format::gtid::GtidSet;
use mysql_link::{
    ConnectOptions, Connection, DumpError, DumpOptions, Endpoint, LinkError, ReplicationStream,
};
use mysqld_model::{
    Account, FindServer, Mysqld as Model, MysqldOptions as ModelOptions, Rights, table_statements,
};
use mysqld_server::settings::native_grants;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld as Real, MysqldOptions as RealOptions};
use tokio::net::UnixListener;
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;

/// Time limit for a step that does not wait for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// A step that takes longer than this counts as waiting.
const A_WHILE: Duration = Duration::from_millis(400);

/// Without gap locks, appends to different lists do not conflict.
const ROW_LOCKS_ALONE: &str = "--transaction-isolation=READ-COMMITTED";

/// The options of a source at which a commit waits for its ACK indefinitely.
pub(crate) const WAITING: [&str; 6] = [
    "--plugin-load-add=semisync_source.so",
    "--rpl-semi-sync-source-enabled=ON",
    "--rpl-semi-sync-source-timeout=1000000000000000000",
    "--event-scheduler=OFF",
    "--innodb-redo-log-capacity=16M",
    ROW_LOCKS_ALONE,
];

/// The options of a source without semi-sync.
pub(crate) const PLAIN: [&str; 3] = [
    ROW_LOCKS_ALONE,
    "--event-scheduler=OFF",
    "--innodb-redo-log-capacity=16M",
];

/// The options of a server with both semi-sync plugins, which are disabled.
pub(crate) const EITHER_END: [&str; 6] = [
    "--plugin-load-add=semisync_source.so",
    "--plugin-load-add=semisync_replica.so",
    "--rpl-semi-sync-source-timeout=1000000000000000000",
    "--event-scheduler=OFF",
    "--innodb-redo-log-capacity=16M",
    ROW_LOCKS_ALONE,
];

/// Runs a scenario on the model and on a real mysqld.
pub(crate) async fn on_both<F>(arguments: &[&str], scene: impl Fn(Stage) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    scene(Stage::of_model(arguments)?)
        .await
        .context("of the model")?;
    scene(Stage::of_mysqld(arguments)?)
        .await
        .context("of mysqld")
}

/// Runs a scenario with two servers on models and on real mysqlds. The two are a clone's donor and recipient, or a source and its replica.
pub(crate) async fn on_both_pairs<F>(
    arguments: &[&str],
    scene: impl Fn(Stage, Stage) -> F,
) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let donor = OwnModel::new()?;
    let found = donor.model.clone();
    let donors: FindServer = Arc::new(move |_, port| (port == MODEL_PORT).then(|| found.clone()));
    let recipient = OwnModel::of(2, Some(donors))?;
    let donor = Stage::begin_model(donor, arguments)?;
    let recipient = Stage::begin_model(recipient, arguments)?;
    scene(donor, recipient).await.context("of the model")?;
    // A replica refuses a source with its own server id.
    let second: Vec<&str> = arguments.iter().copied().chain(["--server-id=2"]).collect();
    let (donor, recipient) = (Stage::of_mysqld(arguments)?, Stage::of_mysqld(&second)?);
    scene(donor, recipient).await.context("of mysqld")
}

/// The port that the models report.
const MODEL_PORT: u16 = 3306;

/// A server: a model or a real mysqld.
pub(crate) struct Stage {
    server: Server,
    arguments: Vec<String>,
}

enum Server {
    Model(OwnModel),
    Real(Box<Real>),
}

pub(crate) struct OwnModel {
    pub(crate) model: Model,
    home: TempDir,
    listening: JoinHandle<()>,
    replicating: JoinHandle<()>,
}

impl Drop for OwnModel {
    fn drop(&mut self) {
        self.listening.abort();
        self.replicating.abort();
    }
}

impl OwnModel {
    pub(crate) fn new() -> Result<Self> {
        Self::of(1, None)
    }

    /// Starts the model with this number. `donors` finds the other servers.
    fn of(number: u32, donors: Option<FindServer>) -> Result<Self> {
        let home = tempfile::tempdir()?;
        let began = Instant::now();
        let clock = Arc::new(move || began.elapsed());
        let uuid = Uuid::from_u128(0xaaaa_0000 + u128::from(number));
        let mut options = ModelOptions::new(home.path().join("data"), uuid, number, clock);
        options.copy_takes = Duration::from_secs(2);
        if let Some(donors) = donors {
            options.donors = donors;
        }
        options
            .accounts
            .push(Account::new("witness", "secret", Rights::Member));
        let model = Model::new(options).map_err(anyhow::Error::msg)?;
        let listener = UnixListener::bind(home.path().join("s"))?;
        let server = model.clone();
        let listening = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(server.serve(stream));
            }
        });
        let server = model.clone();
        let replicating = tokio::spawn(async move { server.run_plain_replication().await });
        Ok(Self {
            model,
            home,
            listening,
            replicating,
        })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.home.path().join("s")
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.home.path().join("data")
    }
}

impl Stage {
    fn of_model(arguments: &[&str]) -> Result<Self> {
        Self::begin_model(OwnModel::new()?, arguments)
    }

    fn begin_model(own: OwnModel, arguments: &[&str]) -> Result<Self> {
        let stage = Self {
            server: Server::Model(own),
            arguments: words(arguments),
        };
        stage.start_model()?;
        Ok(stage)
    }

    fn of_mysqld(arguments: &[&str]) -> Result<Self> {
        let options = RealOptions::default().with_arguments(arguments.iter().copied());
        let server = Real::launch_with(&MysqlTree::require(), options)?;
        let mut statements = vec!["SET sql_log_bin = 0".to_owned()];
        statements.extend(table_statements());
        statements.push("CREATE USER 'witness'@'%' IDENTIFIED BY 'secret'".to_owned());
        statements.extend(native_grants("'witness'@'%'"));
        statements.push("CREATE USER 'client'@'%' IDENTIFIED BY ''".to_owned());
        statements.push("GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO 'client'@'%'".to_owned());
        server.client().sql(&statements.join("; "))?;
        Ok(Self {
            server: Server::Real(Box::new(server)),
            arguments: words(arguments),
        })
    }

    /// The TCP port at which other servers connect.
    pub(crate) fn port(&self) -> u16 {
        match &self.server {
            Server::Model(_) => MODEL_PORT,
            Server::Real(real) => real.address().port(),
        }
    }

    fn start_model(&self) -> Result<()> {
        let Server::Model(own) = &self.server else {
            return Ok(());
        };
        let mut words = vec!["--no-defaults".to_owned()];
        words.extend(self.arguments.iter().cloned());
        own.model.start(&words).map_err(anyhow::Error::msg)
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        match &self.server {
            Server::Model(own) => own.data_dir(),
            Server::Real(real) => real.data_dir().to_owned(),
        }
    }

    fn options(&self, user: &str) -> ConnectOptions {
        let socket = match &self.server {
            Server::Model(own) => own.socket(),
            Server::Real(real) => real.socket(),
        };
        let password = if user == "witness" { "secret" } else { "" };
        ConnectOptions::new(Endpoint::unix(socket), user, password)
    }

    /// Logs in. The error is the server's error number, or 0 if the server sent none.
    pub(crate) async fn try_log_in(&self, user: &str) -> Result<Player, u16> {
        let opened = Connection::open(&self.options(user)).await;
        opened
            .map(Player)
            .map_err(|error| error.server_code().unwrap_or(0))
    }

    pub(crate) async fn log_in(&self, user: &str) -> Result<Player> {
        let opened = self.try_log_in(user).await;
        opened.map_err(|code| anyhow!("{user} is not let in: {code}"))
    }

    /// Begins a login that runs concurrently with the scenario.
    pub(crate) fn begin_log_in(&self, user: &str) -> Pending<Result<Player, u16>> {
        let options = self.options(user);
        Pending(tokio::spawn(async move {
            let opened = Connection::open(&options).await;
            opened
                .map(Player)
                .map_err(|error| error.server_code().unwrap_or(0))
        }))
    }

    /// Begins a semi-sync dump of all transactions except `have`.
    pub(crate) async fn replica(&self, have: &GtidSet) -> Result<Replica> {
        let session = self.log_in("witness").await?;
        Ok(session.dump(have, 0x4001, true).await?)
    }

    pub(crate) fn kill(&mut self) -> Result<()> {
        match &mut self.server {
            Server::Model(own) => own.model.kill(),
            Server::Real(real) => real.kill()?,
        }
        Ok(())
    }

    pub(crate) fn pause(&self) -> Result<()> {
        match &self.server {
            Server::Model(own) => own.model.pause(),
            Server::Real(real) => real.pause()?,
        }
        Ok(())
    }

    pub(crate) fn resume(&self) -> Result<()> {
        match &self.server {
            Server::Model(own) => own.model.resume(),
            Server::Real(real) => real.resume()?,
        }
        Ok(())
    }

    /// Sends SIGTERM to the server.
    pub(crate) fn terminate(&self) -> Result<()> {
        match &self.server {
            Server::Model(own) => own.model.terminate(),
            Server::Real(real) => {
                let id = real.process_id().context("it runs")?;
                let id = Pid::from_raw(i32::try_from(id)?).context("a process")?;
                kill_process(id, Signal::TERM)?;
            }
        }
        Ok(())
    }

    /// Waits until the process has ended.
    pub(crate) async fn ends(&mut self) -> Result<()> {
        let began = Instant::now();
        loop {
            let runs = match &mut self.server {
                Server::Model(own) => own.model.is_running(),
                Server::Real(real) => real.is_running(),
            };
            if !runs {
                if let Server::Real(real) = &mut self.server {
                    // This makes the fixture record that the process has ended.
                    real.kill()?;
                }
                return Ok(());
            }
            ensure!(began.elapsed() < LIMIT, "it continues");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts the server again.
    pub(crate) fn start(&mut self) -> Result<()> {
        match &mut self.server {
            Server::Model(_) => self.start_model(),
            Server::Real(real) => real.start(),
        }
    }

    /// Returns the binlog files in order.
    pub(crate) fn binlog_files(&self) -> Result<Vec<PathBuf>> {
        let folder = self.data_dir();
        let index = std::fs::read_to_string(folder.join("binlog.index"))?;
        Ok(index.lines().map(|line| folder.join(line)).collect())
    }

    /// Reads a list in a new session.
    pub(crate) async fn list(&self, list: u64) -> Result<Vec<String>> {
        let mut reader = self.log_in("root").await?;
        let found = reader.run(&read(list)).await;
        let found = found.map_err(|code| anyhow!("reading: {code}"))?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Returns the value of a global variable.
    pub(crate) async fn variable(&self, name: &str) -> Result<String> {
        let mut session = self.log_in("root").await?;
        session.value(&format!("SELECT @@GLOBAL.{name}")).await
    }

    pub(crate) async fn status(&self, name: &str) -> Result<String> {
        let mut session = self.log_in("root").await?;
        session
            .second(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))
            .await
    }

    /// Waits until a global variable has this value.
    pub(crate) async fn until_variable(&self, name: &str, value: &str) -> Result<()> {
        until(async || self.variable(name).await, name, value).await
    }

    pub(crate) async fn until_status(&self, name: &str, value: &str) -> Result<()> {
        until(async || self.status(name).await, name, value).await
    }

    /// Waits until this many sessions have this state in the process list.
    pub(crate) async fn until_processes(&self, state: &str, count: usize) -> Result<()> {
        let mut looks = self.log_in("root").await?;
        let began = Instant::now();
        loop {
            let processes = looks.run("SHOW PROCESSLIST").await;
            let processes = processes.map_err(|code| anyhow!("SHOW PROCESSLIST: {code}"))?;
            if processes.iter().filter(|row| row[6] == state).count() == count {
                return Ok(());
            }
            ensure!(
                began.elapsed() < LIMIT,
                "not {count} with {state:?}: {processes:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Begins an append, and waits until its commit waits for an ACK.
    pub(crate) async fn waiting_append(&self, list: u64, value: u64) -> Result<Pending<Told>> {
        let waiting = self.log_in("client").await?.begin(&append(list, value));
        self.until_status("Rpl_semi_sync_source_wait_sessions", "1")
            .await?;
        Ok(waiting)
    }
}

/// Waits until `look` returns `value`.
async fn until(look: impl AsyncFn() -> Result<String>, name: &str, value: &str) -> Result<()> {
    let began = Instant::now();
    while look().await? != value {
        ensure!(began.elapsed() < LIMIT, "{name} is not {value}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Returns a statement that appends a value to a list.
pub(crate) fn append(list: u64, value: u64) -> String {
    format!(
        "INSERT INTO sim.lists SELECT {list}, COUNT(*) + 1, {value} FROM sim.lists WHERE id = {list} FOR UPDATE"
    )
}

/// Returns a statement that reads a list.
pub(crate) fn read(list: u64) -> String {
    format!("SELECT value FROM sim.lists WHERE id = {list} ORDER BY position")
}

/// The rows of a result, or the number of an error. The number is 0 if the connection was lost.
pub(crate) type Told = Result<Vec<Vec<String>>, u16>;

fn text_of(value: &Option<bytes::Bytes>) -> String {
    match value {
        None => "NULL".to_owned(),
        Some(value) => String::from_utf8_lossy(value).into_owned(),
    }
}

/// A session of the scenario.
pub(crate) struct Player(Connection);

impl Player {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) async fn run(&mut self, statement: &str) -> Told {
        let told = self.0.query_within(statement, LIMIT).await;
        match told {
            Ok(answer) => {
                let row = |row: &mysql_link::Row| row.values().iter().map(text_of).collect();
                Ok(answer.rows.iter().map(row).collect())
            }
            Err(LinkError::Server(error)) => Err(error.code),
            Err(_) => Err(0),
        }
    }

    /// Returns the values of these columns in the first row. `None`: there is no row.
    pub(crate) async fn named(
        &mut self,
        statement: &str,
        columns: &[&str],
    ) -> Result<Option<Vec<String>>> {
        let answer = self.0.query_within(statement, LIMIT).await?;
        let text = |row: &mysql_link::Row, column: &str| row.text(column).map(str::to_owned);
        Ok(answer.first().map(|row| {
            let values = columns.iter().map(|column| text(row, column));
            values.map(Option::unwrap_or_default).collect()
        }))
    }

    /// Returns the first value of the first row.
    pub(crate) async fn value(&mut self, statement: &str) -> Result<String> {
        self.at(statement, 0).await
    }

    pub(crate) async fn second(&mut self, statement: &str) -> Result<String> {
        self.at(statement, 1).await
    }

    async fn at(&mut self, statement: &str, column: usize) -> Result<String> {
        let answer = self.0.query_within(statement, LIMIT).await;
        let answer = answer.with_context(|| statement.to_owned())?;
        let row = answer.rows.first();
        let value = row.and_then(|row| row.values().get(column));
        let value = value.with_context(|| format!("{statement}: no rows"))?;
        Ok(text_of(value))
    }

    /// Begins a statement that runs concurrently with the scenario.
    pub(crate) fn begin(mut self, statement: &str) -> Pending<Told> {
        let statement = statement.to_owned();
        Pending(tokio::spawn(async move { self.run(&statement).await }))
    }

    pub(crate) async fn ping(&mut self) -> bool {
        self.answers_within(LIMIT).await
    }

    /// Returns whether a ping has no answer within `A_WHILE`. The session is unusable afterwards.
    pub(crate) async fn is_silent(&mut self) -> bool {
        !self.answers_within(A_WHILE).await
    }

    async fn answers_within(&mut self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.0.ping())
            .await
            .is_ok_and(|told| told.is_ok())
    }

    /// Begins a dump on the session's connection.
    pub(crate) async fn dump(
        self,
        have: &GtidSet,
        uuid: u128,
        register: bool,
    ) -> Result<Replica, DumpError> {
        let options = DumpOptions {
            register,
            ..dump_options(uuid, have)
        };
        self.begin_dump(&options).await
    }

    /// Begins a dump without semi-sync.
    pub(crate) async fn plain_dump(self, have: &GtidSet) -> Result<Replica, DumpError> {
        let options = DumpOptions {
            semi_sync: false,
            ..dump_options(0x4002, have)
        };
        self.begin_dump(&options).await
    }

    async fn begin_dump(self, options: &DumpOptions) -> Result<Replica, DumpError> {
        Ok(Replica {
            stream: ReplicationStream::start(self.0, options).await?,
            framer: TransactionFramer::new(ChecksumAlgorithm::Crc32, 1 << 20),
        })
    }
}

fn dump_options(uuid: u128, have: &GtidSet) -> DumpOptions {
    DumpOptions {
        heartbeat: Duration::from_millis(100),
        ..DumpOptions::new(4001, Uuid::from_u128(uuid), have.clone())
    }
}

/// Returns the first transactions of a model's binlog, as a member receives them.
pub(crate) async fn log_of(own: &OwnModel, count: usize) -> Result<Vec<bytes::Bytes>> {
    let options = ConnectOptions::new(Endpoint::unix(own.socket()), "witness", "secret");
    let session = Player(Connection::open(&options).await?);
    let mut replica = session.plain_dump(&GtidSet::new()).await?;
    let mut payloads = Vec::new();
    while payloads.len() < count {
        payloads.push(replica.transaction().await?.0.payload);
    }
    Ok(payloads)
}

/// An operation that runs concurrently with the scenario.
pub(crate) struct Pending<T>(JoinHandle<T>);

impl<T> Pending<T> {
    /// Checks that the operation does not end within `A_WHILE`.
    pub(crate) async fn waits(&mut self) -> Result<()> {
        tokio::time::sleep(A_WHILE).await;
        ensure!(!self.0.is_finished(), "it does not wait");
        Ok(())
    }

    /// Aborts the operation.
    pub(crate) fn abandon(self) {
        self.0.abort();
    }

    pub(crate) async fn finish(self) -> Result<T> {
        let ended = tokio::time::timeout(LIMIT, self.0).await;
        Ok(ended.context("it continues to wait")??)
    }
}

impl Pending<Told> {
    /// Checks that the operation succeeds.
    pub(crate) async fn succeeds(self) -> Result<()> {
        let told = self.finish().await?;
        told.map(drop).map_err(|code| anyhow!("it fails: {code}"))
    }

    /// Checks that the operation fails with this error number.
    pub(crate) async fn fails(self, code: u16) -> Result<()> {
        let told = self.finish().await?;
        ensure!(told == Err(code), "not {code}: {told:?}");
        Ok(())
    }
}

/// A semi-sync replica that sends ACKs only when the scenario calls for them.
pub(crate) struct Replica {
    stream: ReplicationStream,
    framer: TransactionFramer,
}

/// An item that a replica received.
pub(crate) enum Received {
    /// A transaction, and whether its last event requested an ACK.
    Transaction(Box<FramedTransaction>, bool),
    Heartbeat,
    Other,
}

impl Replica {
    pub(crate) async fn next(&mut self) -> Result<Received, DumpError> {
        loop {
            let event = self.stream.next().await?;
            match self
                .framer
                .push(&event.event)
                .expect("events as they must be")
            {
                None => {}
                Some(StreamItem::Transaction(framed)) => {
                    return Ok(Received::Transaction(Box::new(framed), event.ack_wanted));
                }
                Some(StreamItem::Heartbeat(_)) => return Ok(Received::Heartbeat),
                Some(_) => return Ok(Received::Other),
            }
        }
    }

    /// Returns the kind of the next item of the stream.
    pub(crate) async fn item(&mut self) -> Result<&'static str, DumpError> {
        loop {
            let event = self.stream.next().await?.event;
            let item = self.framer.push(&event).expect("events as they must be");
            return Ok(match item {
                None => continue,
                Some(StreamItem::Transaction(_)) => "a transaction",
                Some(StreamItem::FormatDescription { .. }) => "a format description",
                Some(StreamItem::Rotate { artificial, .. }) if artificial => "a made-up rotate",
                Some(StreamItem::Rotate { .. }) => "a rotate",
                Some(StreamItem::Heartbeat(_)) => "a heartbeat",
                Some(StreamItem::PreviousGtids(_)) => "previous GTIDs",
                Some(StreamItem::Ignored(_)) => "something else",
            });
        }
    }

    /// Returns the next transaction, and whether its last event requested an ACK.
    pub(crate) async fn transaction(&mut self) -> Result<(FramedTransaction, bool)> {
        let next = async {
            loop {
                if let Received::Transaction(framed, wanted) = self.next().await? {
                    return Ok::<_, DumpError>((*framed, wanted));
                }
            }
        };
        Ok(tokio::time::timeout(LIMIT, next)
            .await
            .context("no transaction comes")??)
    }

    pub(crate) async fn ack(&mut self, framed: &FramedTransaction) -> Result<()> {
        Ok(self.stream.ack(&framed.end_position).await?)
    }

    /// Returns how the dump ends.
    pub(crate) async fn end(&mut self) -> DumpError {
        loop {
            if let Err(error) = self.next().await {
                return error;
            }
        }
    }
}
