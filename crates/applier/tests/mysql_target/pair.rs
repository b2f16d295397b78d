//! A source that writes and a target that follows.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use applier::backend::{Backend, Session, Then, Turn, WriteError};
use applier::batch::{Batch, BatchSeq, Commits};
use applier::decode::{Decoder, ReadyTables};
use applier::mysql::{MysqlBackend, MysqlOptions, MysqlSession};
use applier::schema::{TableName, TableShape};
use applier::source::{FileSource, Source};
use applier::transaction::{Body, SchemaChange, Transaction};
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use mysql_link::{ConnectOptions, Connection, Endpoint};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};

const MAX_BYTES: u64 = 1 << 30;

/// Two servers, and the state for applying from one to the other.
pub(crate) struct Pair {
    pub(crate) source: Mysqld,
    pub(crate) target: Mysqld,
    pub(crate) backend: MysqlBackend,
    pub(crate) shapes: HashMap<TableName, Arc<TableShape>>,
    /// Limit for the metadata of a transaction's rows. A transaction above it is applied as a barrier.
    pub(crate) most_bytes_of_notes: u64,
    ready: ReadyTables,
    /// The number of the last batch.
    last: BatchSeq,
}

/// The source's log; the target already has a part of it.
pub(crate) struct Missing {
    files: FileSource,
    executed: GtidSet,
}

/// How rows are applied to the target.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way {
    /// This many complete transactions in a batch, each committed separately.
    Batches(usize),
    /// This many complete transactions in a batch, committed as one.
    AsOne(usize),
    /// A few rows of a transaction per call. The commit is in the last call with rows, or in a separate
    /// one. The number is a random seed.
    Pieces(u64),
}

/// A refused transaction, and the reason.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) gtid: String,
    pub(crate) error: WriteError,
}

pub(crate) fn options(server: &Mysqld) -> MysqlOptions {
    MysqlOptions::new(connect(server, "root"))
}

pub(crate) fn connect(server: &Mysqld, user: &str) -> ConnectOptions {
    let mut options = ConnectOptions::new(Endpoint::unix(server.socket()), user, "");
    options.timeouts.statement = std::time::Duration::from_secs(60);
    options.max_packet_bytes = 512 << 20;
    options
}

pub(crate) fn server(id: u32, arguments: &[&str]) -> Result<Mysqld> {
    let options = MysqldOptions::with_server_id(id).with_arguments(arguments.iter().copied());
    Mysqld::launch_with(&MysqlTree::require(), options)
}

/// Starts a server whose data are in a folder of that disk.
pub(crate) fn server_on(disk: &Path, id: u32, arguments: &[&str]) -> Result<Mysqld> {
    let options = MysqldOptions {
        data_dir: Some(disk.join("data")),
        ..MysqldOptions::with_server_id(id).with_arguments(arguments.iter().copied())
    };
    Mysqld::launch_with(&MysqlTree::require(), options)
}

impl Pair {
    pub(crate) async fn new() -> Result<Self> {
        Self::with(&[], &[], |_| {}).await
    }

    pub(crate) async fn with(
        of_source: &[&str],
        of_target: &[&str],
        change: impl Fn(&mut MysqlOptions),
    ) -> Result<Self> {
        Self::between(of_source, server(2, of_target)?, change).await
    }

    pub(crate) async fn between(
        of_source: &[&str],
        target: Mysqld,
        change: impl Fn(&mut MysqlOptions),
    ) -> Result<Self> {
        let source = server(1, of_source)?;
        let mut options = options(&target);
        change(&mut options);
        let backend = MysqlBackend::connect(options).await?;
        Self::of(source, target, backend).await
    }

    pub(crate) async fn of(source: Mysqld, target: Mysqld, backend: MysqlBackend) -> Result<Self> {
        backend.begin().await?;
        Ok(Self {
            source,
            target,
            backend,
            shapes: HashMap::new(),
            most_bytes_of_notes: MAX_BYTES,
            ready: ReadyTables::default(),
            last: BatchSeq(0),
        })
    }

    /// Runs statements on the source.
    pub(crate) fn write(&self, statements: &str) -> Result<()> {
        self.source.client().sql(statements).map(|_| ())
    }

    /// Runs unlogged statements on the target.
    pub(crate) fn tamper(&self, statements: &str) -> Result<()> {
        let unlogged = format!("SET sql_log_bin = 0; {statements}");
        self.target.client().sql(&unlogged).map(|_| ())
    }

    /// Returns the transactions that the target lacks.
    pub(crate) async fn missing(&self) -> Result<Missing> {
        let executed = self.backend.executed().await?;
        let files = self.source.binlog_files()?;
        Ok(Missing {
            files: FileSource::open(files, Some(executed.clone()), MAX_BYTES).await?,
            executed,
        })
    }

    /// Returns the next transaction, decoded with the target's current tables.
    pub(crate) async fn next(&mut self, from: &mut Missing) -> Result<Option<Arc<Transaction>>> {
        let framed = loop {
            match from.files.next().await? {
                Some(framed) if from.executed.contains(&framed.gtid) => {}
                Some(framed) => break framed,
                None => return Ok(None),
            }
        };
        let parsed = Decoder::new(self.most_bytes_of_notes).parse(&framed)?;
        let unknown = parsed
            .tables()
            .filter(|name| !self.shapes.contains_key(name));
        let unknown: Vec<TableName> = unknown.cloned().collect();
        let shapes = self.backend.tables(&unknown).await?;
        for (name, shape) in unknown.into_iter().zip(shapes) {
            let shape = shape.with_context(|| format!("the target lacks {name}"))?;
            self.shapes.insert(name, Arc::new(shape));
        }
        let shapes = &self.shapes;
        let transaction = parsed.finish_with(&mut self.ready, |name| shapes.get(name).cloned())?;
        Ok(Some(Arc::new(transaction)))
    }

    /// Forgets the target's tables, which may have changed.
    pub(crate) fn forget_shapes(&mut self) {
        self.shapes.clear();
    }

    /// Applies the missing transactions, up to the first refusal.
    pub(crate) async fn follow(&mut self, way: Way) -> Result<Result<(), Stop>> {
        let mut session = self.backend.open().await?;
        let mut from = self.missing().await?;
        self.lead(&mut session, &mut from, way).await
    }

    pub(crate) async fn lead(
        &mut self,
        session: &mut MysqlSession,
        from: &mut Missing,
        way: Way,
    ) -> Result<Result<(), Stop>> {
        let mut dice = fastrand::Rng::with_seed(match way {
            Way::Pieces(seed) => seed,
            Way::Batches(_) | Way::AsOne(_) => 0,
        });
        let mut batch: Vec<Arc<Transaction>> = Vec::new();
        loop {
            let next = self.next(from).await?;
            let full = matches!(way, Way::Batches(size) | Way::AsOne(size) if batch.len() >= size);
            let alone = next
                .as_ref()
                .is_none_or(|next| matches!(next.body, Body::Barrier(_)));
            if full || alone {
                let all = std::mem::take(&mut batch);
                if let Err(stop) = self.apply(session, all, way).await {
                    return Ok(Err(stop));
                }
            }
            let Some(next) = next else {
                return Ok(Ok(()));
            };
            let done = match &next.body {
                Body::Barrier(barrier) => {
                    let done = session.run_barrier(&next).await;
                    self.backend.schema_changed(&barrier.changes);
                    if barrier.changes != SchemaChange::Nothing {
                        self.forget_shapes();
                    }
                    done
                }
                Body::Rows(rows) => match way {
                    Way::Batches(_) | Way::AsOne(_) => {
                        batch.push(Arc::clone(&next));
                        Ok(())
                    }
                    Way::Pieces(_) => pieces(session, &next, rows.rows.len(), &mut dice).await,
                },
            };
            if let Err(error) = done {
                let gtid = next.gtid.to_string();
                return Ok(Err(Stop { gtid, error }));
            }
        }
    }

    /// Applies several complete transactions together.
    async fn apply(
        &mut self,
        session: &mut MysqlSession,
        transactions: Vec<Arc<Transaction>>,
        way: Way,
    ) -> Result<(), Stop> {
        if transactions.is_empty() {
            return Ok(());
        }
        self.last = self.last.next();
        let commits = match way {
            Way::AsOne(_) => Commits::AsOne,
            Way::Batches(_) | Way::Pieces(_) => Commits::OneByOne,
        };
        let batch = Arc::new(Batch::new(self.last, commits, transactions));
        let (committed, outcome) = match way {
            Way::AsOne(_) => {
                let rows = 0..batch.rows();
                let done = session.write(&batch, rows, Then::InTurn(Turn::First), || ());
                (0, done.await)
            }
            Way::Batches(_) | Way::Pieces(_) => session.apply(&batch, 0).await,
        };
        outcome.map_err(|error| Stop {
            gtid: batch
                .transactions()
                .get(committed)
                .map_or_else(String::new, |next| next.gtid.to_string()),
            error,
        })
    }

    /// Applies the missing transactions, and compares both servers.
    pub(crate) async fn equal_after(&mut self, way: Way, schemas: &[&str]) -> Result<()> {
        if let Err(stop) = self.follow(way).await? {
            bail!("{}: {}", stop.gtid, stop.error);
        }
        self.compare(schemas).await
    }

    /// Checks that both servers have the same rows and checksums, and executed the same GTIDs.
    pub(crate) async fn compare(&self, schemas: &[&str]) -> Result<()> {
        self.backend.settle().await;
        let (source, target) = (self.source.client(), self.target.client());
        ensure!(
            source.gtid_executed()? == target.gtid_executed()?,
            "executed: {} and {}",
            source.gtid_executed()?,
            target.gtid_executed()?
        );
        for schema in schemas {
            let (source, target) = tokio::try_join!(
                contents(&self.source, schema),
                contents(&self.target, schema)
            )?;
            let names = |tables: &Contents| tables.keys().cloned().collect::<Vec<_>>();
            ensure!(names(&source) == names(&target), "{source:?} {target:?}");
            for (name, source) in &source {
                let target = &target[name];
                ensure!(
                    source.definition == target.definition,
                    "{source:?} {target:?}"
                );
                ensure!(
                    source.rows.len() == target.rows.len(),
                    "{name}: {} and {} rows",
                    source.rows.len(),
                    target.rows.len()
                );
                let differing = source
                    .rows
                    .iter()
                    .zip(&target.rows)
                    .find(|(one, other)| one != other);
                ensure!(differing.is_none(), "{name}: {differing:?}");
                ensure!(
                    source.checksum == target.checksum,
                    "{name}: CHECKSUM TABLE differs"
                );
            }
        }
        Ok(())
    }
}

/// The tables of a schema.
type Contents = BTreeMap<String, Table>;

#[derive(Debug)]
struct Table {
    definition: String,
    /// The rows with all columns, sorted.
    rows: Vec<Vec<Option<Bytes>>>,
    /// `None` for a table with hidden columns: CHECKSUM TABLE then returns another value each time.
    checksum: Option<String>,
}

async fn contents(server: &Mysqld, schema: &str) -> Result<Contents> {
    let mut connection = Connection::open_with_own_settings(&connect(server, "root")).await?;
    connection
        .execute(
            "SET NAMES utf8mb4, character_set_results = binary, group_concat_max_len = 1000000",
        )
        .await?;
    let tables = connection
        .query(format!(
            "SELECT table_name AS name, (SELECT GROUP_CONCAT('`', REPLACE(column_name, '`', '``'), '`' ORDER BY ordinal_position) \
             FROM information_schema.columns AS c WHERE c.table_schema = t.table_schema AND c.table_name = t.table_name) AS columns, \
             (SELECT COUNT(expression) FROM information_schema.statistics AS s WHERE s.table_schema = t.table_schema AND \
             s.table_name = t.table_name) AS hidden \
             FROM information_schema.tables AS t WHERE table_schema = '{schema}' AND table_type = 'BASE TABLE'"
        ))
        .await?;
    let mut contents = Contents::new();
    for table in &tables.rows {
        let name = table.text("name").unwrap();
        let quoted = [schema, name]
            .map(|name| format!("`{}`", name.replace('`', "``")))
            .join(".");
        let definition = connection
            .query(format!("SHOW CREATE TABLE {quoted}"))
            .await?;
        let definition = without_counter(definition.first().unwrap().text_at(1).unwrap());
        let columns = table.text("columns").unwrap();
        let rows = connection
            .query(format!("SELECT {columns} FROM {quoted}"))
            .await?;
        let mut rows: Vec<_> = rows.rows.iter().map(|row| row.values().to_vec()).collect();
        rows.sort();
        let mut checksum = None;
        if table.text("hidden") == Some("0") {
            let answer = connection.query(format!("CHECKSUM TABLE {quoted}")).await?;
            checksum = answer.first().unwrap().text_at(1).map(str::to_owned);
        }
        contents.insert(
            name.to_owned(),
            Table {
                definition,
                rows,
                checksum,
            },
        );
    }
    Ok(contents)
}

/// Removes the AUTO_INCREMENT counter from a table definition. Rows that a transaction did not insert
/// itself do not move the counter.
fn without_counter(definition: &str) -> String {
    match definition.split_once(" AUTO_INCREMENT=") {
        Some((before, after)) => {
            let after = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
            format!("{before}{after}")
        }
        None => definition.to_owned(),
    }
}

/// Returns a transaction as a batch of its own.
pub(crate) fn alone(transaction: &Arc<Transaction>) -> Arc<Batch> {
    let alone = vec![Arc::clone(transaction)];
    Arc::new(Batch::new(BatchSeq(0), Commits::OneByOne, alone))
}

async fn pieces(
    session: &mut MysqlSession,
    transaction: &Arc<Transaction>,
    rows: usize,
    dice: &mut fastrand::Rng,
) -> Result<(), WriteError> {
    let batch = alone(transaction);
    let mut at = 0;
    while at < rows {
        let end = (at + 1 + dice.usize(..1 + rows / 3)).min(rows);
        let with_commit = end == rows && dice.bool();
        let then = if with_commit {
            Then::Commit
        } else {
            Then::StayOpen
        };
        session.write(&batch, at..end, then, || ()).await?;
        if with_commit {
            return Ok(());
        }
        at = end;
    }
    session.write(&batch, 0..0, Then::Commit, || ()).await
}
