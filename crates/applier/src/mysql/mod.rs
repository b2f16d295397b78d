//! The backend for a stock MySQL server, which receives transactions over ordinary connections.
//!
//! ```text
//! BINLOG '<table maps and rows in base64>' ; UPDATE witness_applier.checkpoint … ; COMMIT     a batch, as one transaction
//! SET gtid_next='…' ; BINLOG '…' ; COMMIT                                                     one by one
//! ```
//!
//! `BINLOG` uses the server's own row applier: it parses no SQL, and is exact for every type. `gtid_next` keeps the GTID. All these
//! statements are sent in one packet, because the server stops at the first failure within a packet. A COMMIT in a separate packet would
//! commit the partial result of a failed BINLOG (`docs/mysqld-facts.md`).

mod barrier;
mod blockers;
mod checkpoint;
mod culprit;
mod foreign_keys;
#[cfg(feature = "fuzzing")]
#[path = "../../../../lab/fuzz/inside/applier_mysql.rs"]
pub(crate) mod fuzzing;
mod invoker;
mod options;
mod outcome;
mod publishing;
mod row_run;
mod session;
mod shared;
mod statement_context;
mod table_shape;

use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, Mutex};

use binlog_format::gtid::GtidSet;
use mysql_link::{Connection, LinkError, QueryResult, ServerVersion, server_code};
use spilling_bytes::long_work;

use crate::backend::{Backend, BackendError, SessionId};
use crate::locked;
use crate::mysql::blockers::blockers_query;
use crate::mysql::checkpoint::{Begun, Checkpoint, RIGHTS, TABLE};
use crate::mysql::foreign_keys::{ForeignKeys, cascading, key_columns};
use crate::mysql::options::{
    FOR_ROWS, Grants, INVISIBLE_PRIMARY_KEYS_FROM, grant_statement, lacking_proxy, settings,
};
pub use crate::mysql::options::{MysqlOptions, lacks_for_rows};
use crate::mysql::outcome::backend_error;
pub use crate::mysql::publishing::complete_gtid_executed;
use crate::mysql::publishing::{
    PUBLISHED_WITHIN, Publisher, is_denied, is_missing, keep_quiet, open, owners_end, prepare,
    restore_filters, take_over,
};
pub use crate::mysql::session::MysqlSession;
use crate::mysql::shared::{PacketRoom, Shared};
use crate::mysql::table_shape::ShapeQuery;
use crate::schema::{TableName, TableShape};
use crate::transaction::SchemaChange;

/// A MySQL server as a target.
#[derive(Debug)]
pub struct MysqlBackend {
    shared: Arc<Shared>,
    /// The connection for queries; reopened after a loss.
    questions: tokio::sync::Mutex<Option<Connection>>,
    /// The connection for queries about locks, which must not wait for other queries.
    locks: tokio::sync::Mutex<Option<Connection>>,
    foreign_keys: Mutex<ForeignKeys>,
    /// Publishes transactions that commit as one, during a run.
    publisher: tokio::sync::Mutex<Option<Publisher>>,
}

impl MysqlBackend {
    /// Connects, and checks whether the target is suitable. The account needs:
    ///
    /// * REPLICATION_APPLIER and SESSION_VARIABLES_ADMIN (before 8.0.18, BINLOG_ADMIN and SYSTEM_VARIABLES_ADMIN).
    /// * INSERT, UPDATE and DELETE on the tables that the log changes.
    /// * The privileges of the log's statements: CREATE, ALTER, DROP, INDEX, REFERENCES and others, or SUPER and all of them. `GRANT
    ///   PROXY` additionally needs PROXY on `''@''` with the grant option, which ALL PRIVILEGES does not include.
    /// * CONNECTION_ADMIN if `read_only` is on. With `super_read_only` no account can apply.
    /// * From 8.3 on, TRANSACTION_GTID_TAG for tagged transactions.
    /// * Optionally SELECT on `performance_schema`, to distinguish sessions that block from other sessions.
    /// * Optionally, for [`MysqlOptions::batches`], SYSTEM_VARIABLES_ADMIN, and CREATE, SELECT, INSERT and UPDATE on the schema
    ///   `witness_applier`. Without them, transactions do not commit as one, and a warning is logged.
    ///
    /// # Errors
    /// A missing privilege or a wrong setting; the error contains the statement that fixes it.
    pub async fn connect(options: MysqlOptions) -> Result<Self, BackendError> {
        let mut backend = Self {
            shared: Arc::new(Shared {
                options,
                checkpoint: None,
                room: PacketRoom::default(),
                more_time: Mutex::default(),
                for_good: Begun::default(),
            }),
            questions: tokio::sync::Mutex::default(),
            locks: tokio::sync::Mutex::default(),
            foreign_keys: Mutex::default(),
            publisher: tokio::sync::Mutex::default(),
        };
        let may_publish = backend.check().await?;
        let options = backend.options();
        if options.batches && !options.target_binlog {
            let checkpoint = backend.checkpoint(may_publish).await?;
            if let Some(shared) = Arc::get_mut(&mut backend.shared) {
                shared.checkpoint = checkpoint;
            }
        }
        drop(backend.open().await?);
        Ok(backend)
    }

    fn options(&self) -> &MysqlOptions {
        &self.shared.options
    }

    /// Returns the error for a target that cannot be used.
    fn unsuitable(&self, reason: impl std::fmt::Display) -> BackendError {
        let target = &self.options().connect.endpoint;
        BackendError::Refused(format!(
            "the target {target} cannot be applied to: {reason}"
        ))
    }

    /// Returns the target's version.
    ///
    /// # Errors
    /// If the target is unreachable, or is not MySQL.
    pub async fn version(&self) -> Result<ServerVersion, BackendError> {
        let query = "SELECT @@GLOBAL.version AS version, @@GLOBAL.version_comment AS comment";
        let answer = self.ask(query).await?;
        let text = |column| answer.first().and_then(|row| row.text(column));
        let version = text("version").unwrap_or_default();
        let product = mysql_link::product(version, text("comment").unwrap_or_default());
        if let Some(product) = product.filter(|product| !product.replicates_as_mysql) {
            return Err(self.unsuitable(mysql_link::foreign(product.name)));
        }
        let version = version.parse::<ServerVersion>();
        version.map_err(|error| self.unsuitable(error))
    }

    /// Prepares the checkpoint for committing transactions as one. If that is impossible, logs the reason and returns `None`.
    async fn checkpoint(&self, may_publish: bool) -> Result<Option<Arc<Checkpoint>>, BackendError> {
        let checkpoint = Checkpoint::new();
        let lacking = match may_publish {
            true => prepare(self.options(), checkpoint.begin()).await.err(),
            false => None,
        };
        match lacking {
            None if may_publish => Ok(Some(Arc::new(checkpoint))),
            None | Some(LinkError::Server(_)) => {
                tracing::warn!(
                    table = TABLE,
                    why = lacking.map(|error| error.to_string()),
                    "transactions are not committed together, and each is forced to disk by itself; GRANT \
                     SYSTEM_VARIABLES_ADMIN ON *.* and GRANT {RIGHTS} ON witness_applier.* would let them, and batches can be \
                     switched off"
                );
                Ok(None)
            }
            Some(error) => Err(backend_error(error)),
        }
    }

    /// Checks whether the target is suitable. Returns whether the account may change `gtid_purged`.
    async fn check(&self) -> Result<bool, BackendError> {
        let refused = |reason: &str| Err(self.unsuitable(reason));
        let answer = self
            .ask(
                "SELECT @@GLOBAL.version AS version, @@GLOBAL.gtid_mode AS gtid_mode, @@GLOBAL.read_only AS read_only, \
                 @@GLOBAL.super_read_only AS super_read_only, @@GLOBAL.log_bin AS log_bin, CURRENT_USER() AS account, \
                 CURRENT_ROLE() AS roles",
            )
            .await?;
        let Some(row) = answer.first() else {
            return refused("it does not answer");
        };
        let text = |column| row.text(column).unwrap_or_default();
        if text("gtid_mode") != "ON" {
            return refused(&format!(
                "gtid_mode is {}; turn it to ON step by step: SET GLOBAL enforce_gtid_consistency = ON, then \
                 SET GLOBAL gtid_mode = OFF_PERMISSIVE, ON_PERMISSIVE, ON",
                text("gtid_mode")
            ));
        }
        if text("super_read_only") == "1" {
            return refused(
                "super_read_only is ON, and nobody can write: SET GLOBAL super_read_only = OFF (read_only may stay ON)",
            );
        }
        if self.options().target_binlog && text("log_bin") != "1" {
            return refused(
                "transactions shall go into its binlog, and it has none: start it with log_bin, or set \
                 target_binlog = false",
            );
        }
        // With `replica_skip_errors`, `BINLOG` statements skip these errors, as applier threads do.
        let skips = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('replica_skip_errors', 'slave_skip_errors')";
        let skips = self.ask(skips).await?;
        let skipped = skips.rows.iter().find_map(|skips| {
            let (name, errors) = (skips.text_at(0)?, skips.text_at(1)?);
            (!errors.is_empty() && errors != "OFF").then(|| format!("{name}={errors}"))
        });
        if let Some(skipped) = skipped {
            return refused(&format!(
                "rows that it cannot apply would be passed over without a word ({skipped}): start it without that option"
            ));
        }
        let grants = match text("roles") {
            "" | "NONE" => "SHOW GRANTS".to_owned(),
            roles => format!("SHOW GRANTS FOR CURRENT_USER() USING {roles}"),
        };
        let grants = self.ask(&grants).await?;
        let lines = grants.rows.iter().filter_map(|row| row.text_at(0));
        if let Some(lacking) = lacking_proxy(lines.clone(), text("account")) {
            tracing::warn!(
                "a GRANT PROXY or REVOKE PROXY in the log would stop it here, for which its account lacks the right: {lacking}"
            );
        }
        let grants = Grants::parse(lines);
        let mut lacking = grants.lacks(&FOR_ROWS);
        // Without this privilege, rows of tagged transactions would be committed, but their GTIDs refused.
        let version = text("version").parse::<ServerVersion>();
        if version.is_ok_and(|version| version >= GTID_TAGS_FROM) {
            lacking.extend(grants.lacks(&["TRANSACTION_GTID_TAG"]));
        }
        let closed = ["CONNECTION_ADMIN", "SUPER"];
        if text("read_only") == "1" && grants.lacks(&closed) == closed {
            lacking.push("CONNECTION_ADMIN");
        }
        if !lacking.is_empty() {
            let grant = grant_statement(&lacking, text("account"));
            return refused(&format!("its account lacks rights: {grant}"));
        }
        let publishing = ["SYSTEM_VARIABLES_ADMIN", "SUPER"];
        Ok(grants.lacks(&publishing) != publishing)
    }

    /// Reads the foreign keys that are unknown or may have changed.
    async fn read_foreign_keys(&self) -> Result<(), BackendError> {
        let Some(unread) = locked(&self.foreign_keys).unread() else {
            return Ok(());
        };
        let [columns, rules] = unread.sql();
        let (columns, rules) = (self.ask(&columns).await?, self.ask(&rules).await?);
        long_work::run(columns.rows.len() * BYTES_OF_A_KEY, || {
            let (columns, cascading) = (key_columns(&columns.rows), cascading(&rules.rows));
            locked(&self.foreign_keys).take(columns, &cascading);
        });
        Ok(())
    }

    async fn ask(&self, query: &str) -> Result<QueryResult, BackendError> {
        let answer = ask(&self.questions, self.options(), query).await;
        answer.map_err(backend_error)
    }
}

/// Runs a query over a kept connection, which is reopened after a loss.
async fn ask(
    kept: &tokio::sync::Mutex<Option<Connection>>,
    options: &MysqlOptions,
    query: &str,
) -> Result<QueryResult, LinkError> {
    let mut kept = kept.lock().await;
    // If the server has closed the connection in the meantime, its use reports that.
    if let Some(connection) = kept.as_mut().filter(|connection| connection.is_usable()) {
        match connection.query(query).await {
            Err(LinkError::Closed { .. }) => {}
            other => return other,
        }
    }
    *kept = None;
    let mut connection = Connection::open_with_own_settings(&options.connect).await?;
    let mut set = "SET SESSION lock_wait_timeout = 60".to_owned();
    if connection.version() >= INVISIBLE_PRIMARY_KEYS_FROM {
        set.push_str(", show_gipk_in_create_table_and_information_schema = ON");
    }
    connection.execute(set).await?;
    kept.insert(connection).query(query).await
}

/// The first version with tagged GTIDs, and with a privilege for them.
const GTID_TAGS_FROM: ServerVersion = ServerVersion::new(8, 3, 0);

/// Approximate cost of reading one key, in bytes, so that many keys do not delay the process's other tasks.
const BYTES_OF_A_KEY: usize = 256;

impl Backend for MysqlBackend {
    type Session = MysqlSession;

    fn commits_as_one(&self) -> bool {
        self.shared.checkpoint.is_some()
    }

    async fn begin(&self) -> Result<GtidSet, BackendError> {
        // Tables may have changed after an earlier run.
        self.schema_changed(&SchemaChange::Anything);
        let checkpoint = self.shared.checkpoint.as_ref();
        let number = checkpoint.map_or_else(|| Checkpoint::new().begin(), |one| one.begin());
        let connection = open(self.options()).await;
        let mut connection = connection.map_err(backend_error)?;
        // Suppress the log lines before the first transaction is published.
        let quiet = match checkpoint {
            Some(_) => keep_quiet(&mut connection).await,
            None => Ok(None),
        };
        let log_has = self.options().log_has.as_ref();
        let taken = take_over(&mut connection, number, log_has).await;
        taken.map_err(backend_error)?;
        owners_end(&mut connection).await?;
        connection.close().await;
        *self.publisher.lock().await =
            checkpoint.map(|checkpoint| Publisher::start(&self.shared, checkpoint, quiet));
        self.executed().await
    }

    async fn settle(&self) {
        let Some(publisher) = self.publisher.lock().await.take() else {
            return;
        };
        // If this times out because mysqld refuses every attempt, `take_over` fails as well, and its error is logged.
        let _ = tokio::time::timeout(PUBLISHED_WITHIN, publisher.checkpoint.all_published()).await;
        let settled = async {
            let mut connection = open(self.options()).await?;
            // This also publishes commits of a lost session.
            take_over(&mut connection, publisher.checkpoint.begin(), None).await?;
            if let Some(quiet) = &publisher.quiet {
                restore_filters(&mut connection, quiet).await?;
            }
            connection.close().await;
            Ok::<(), LinkError>(())
        };
        if let Err(error) = settled.await {
            tracing::warn!(
                %error,
                "gtid_executed may lack transactions that are in the tables, which the next run adds when the cause is gone, and the \
                 error log's filters may be as they were set for the applier"
            );
        }
    }

    async fn open(&self) -> Result<MysqlSession, BackendError> {
        let options = self.options();
        let mut connect = options.connect.clone();
        connect.several_statements = true;
        let with_room = self.shared.room.asked.load(Acquire);
        let opened = match with_room {
            true => self.shared.room.open(&connect).await,
            false => Connection::open(&connect).await,
        };
        let mut connection = opened.map_err(backend_error)?;
        let packet_limit = connection.packet_limit().await.map_err(backend_error)?;
        for (sql, privilege) in settings(connection.version(), connection.id(), options) {
            match connection.execute(&sql).await {
                Ok(_) => {}
                Err(LinkError::Server(error))
                    if error.code == server_code::SPECIFIC_ACCESS_DENIED =>
                {
                    let account = self.ask("SELECT CURRENT_USER()").await?;
                    let grant = grant_statement(&[privilege], account.value().unwrap_or_default());
                    let reason = format!("its account lacks a right: {grant} ({error})");
                    return Err(self.unsuitable(reason));
                }
                Err(error) => return Err(backend_error(error)),
            }
        }
        let shared = Arc::clone(&self.shared);
        Ok(MysqlSession::new(
            connection,
            packet_limit,
            with_room,
            shared,
        ))
    }

    async fn executed(&self) -> Result<GtidSet, BackendError> {
        let mut executed = GtidSet::new();
        // The row is read before the variable, because a GTID may move from the row to the variable in between. The shared lock waits for
        // a commit in progress.
        let checkpoint = self.shared.checkpoint.as_ref();
        let row =
            checkpoint.map(|_| format!("SELECT gtids, n FROM {TABLE} WHERE id = 1 FOR SHARE"));
        let row = row.as_deref().into_iter();
        for query in row.chain(["SELECT @@GLOBAL.gtid_executed"]) {
            let answer = match ask(&self.questions, self.options(), query).await {
                // The row is missing: an operator who drops it requests that transactions are committed one by one.
                Err(error) if is_missing(&error) => continue,
                answer => answer.map_err(backend_error)?,
            };
            let text = answer.value().unwrap_or_default();
            let number = answer.first().and_then(|row| row.text_at(1)?.parse().ok());
            if let (Some(checkpoint), Some(number)) = (checkpoint, number) {
                checkpoint.found(number);
            }
            let some: GtidSet = text.parse().map_err(|error| {
                BackendError::Refused(format!(
                    "the target's executed GTIDs cannot be read from `{query}`: {error}"
                ))
            })?;
            executed.union_with(&some);
        }
        Ok(executed)
    }

    async fn tables(&self, names: &[TableName]) -> Result<Vec<Option<TableShape>>, BackendError> {
        self.read_foreign_keys().await?;
        let mut shapes = vec![None; names.len()];
        for query in ShapeQuery::of(names) {
            let answer = self.ask(&query.sql()).await?;
            for (place, shape) in query.read(&answer.rows, &locked(&self.foreign_keys)) {
                if let Some(place) = shapes.get_mut(place) {
                    *place = Some(shape);
                }
            }
        }
        Ok(shapes)
    }

    fn schema_changed(&self, change: &SchemaChange) {
        locked(&self.foreign_keys).forget(change);
    }

    async fn blockers(&self, waiting: SessionId) -> Result<Option<Vec<SessionId>>, BackendError> {
        let query = blockers_query(waiting);
        let answer = match ask(&self.locks, self.options(), &query).await {
            Err(error) if is_denied(&error) => return Ok(None),
            answer => answer.map_err(backend_error)?,
        };
        let ids = answer.values().filter_map(|id| id.parse().ok());
        let blockers: Vec<SessionId> = ids.map(SessionId).collect();
        if !blockers.is_empty() {
            return Ok(Some(blockers));
        }
        // With `performance_schema = OFF` the tables exist, but are empty.
        let shown = "SELECT @@GLOBAL.performance_schema";
        let shown = ask(&self.locks, self.options(), shown).await;
        let is_off = shown.map_err(backend_error)?.value() == Some("0");
        Ok((!is_off).then_some(blockers))
    }
}
