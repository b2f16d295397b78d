//! A MySQL as a target.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use binlog_format::gtid::GtidSet;
use mysql_link::{Connection, LinkError, QueryResult, ServerVersion, server_code};
use spilling_bytes::long_work;

use crate::backend::{Backend, BackendError, SessionId};
use crate::mysql::checkpoint::{Checkpoint, RIGHTS, TABLE};
use crate::mysql::for_good::Begun;
use crate::mysql::foreign_keys::{ForeignKeys, cascading, key_columns};
use crate::mysql::options::{
    FOR_ROWS, Grants, MysqlOptions, OpenSessions, grant_statement, lacking_proxy,
};
use crate::mysql::outcome::{backend_error, blockers_query, code, read_blockers};
use crate::mysql::patience::Patience;
use crate::mysql::preparation::{PacketRoom, settings};
use crate::mysql::publishing::{
    PUBLISHED_WITHIN, Publisher, is_missing, keep_quiet, let_it_tell, open, owners_end, prepare,
    take_over, take_over_if_used,
};
use crate::mysql::session::{MysqlSession, Opened};
use crate::mysql::table_shape::ShapeQuery;
use crate::schema::{TableName, TableShape};
use crate::transaction::SchemaChange;

/// A MySQL as a target of transactions.
#[derive(Debug)]
pub struct MysqlBackend {
    options: Arc<MysqlOptions>,
    /// For queries; reopened when it is lost.
    questions: tokio::sync::Mutex<Option<Connection>>,
    /// For queries about locks, which must not queue after others.
    locks: tokio::sync::Mutex<Option<Connection>>,
    open: Arc<OpenSessions>,
    foreign_keys: Mutex<ForeignKeys>,
    /// Where transactions commit as one.
    checkpoint: Option<Arc<Checkpoint>>,
    /// During a run with such commits.
    publisher: tokio::sync::Mutex<Option<Publisher>>,
    /// For rows that are larger than the target's packets.
    room: Arc<PacketRoom>,
    /// For rows that exceed their time limit.
    patience: Arc<Patience>,
    /// For rows that a rollback does not remove.
    for_good: Arc<Begun>,
}

impl MysqlBackend {
    /// Connects, and checks the target's suitability.
    ///
    /// The account needs REPLICATION_APPLIER and SESSION_VARIABLES_ADMIN (before 8.0.18, BINLOG_ADMIN and
    /// SYSTEM_VARIABLES_ADMIN); INSERT, UPDATE and DELETE on the tables that the log changes; and the privileges of the log's statements:
    /// CREATE, ALTER, DROP, INDEX, REFERENCES and others, or SUPER and all of them. `GRANT PROXY` additionally needs
    /// PROXY on `''@''` with the grant option, which all of them do not include. With `read_only` it needs
    /// CONNECTION_ADMIN; with `super_read_only` no account can apply. From 8.3 on it needs TRANSACTION_GTID_TAG, for tagged
    /// transactions. With SELECT on `performance_schema` blocking sessions are
    /// distinguished from others. With [`MysqlOptions::batches`], SYSTEM_VARIABLES_ADMIN and, on the schema
    /// `witness_applier`, CREATE, SELECT, INSERT and UPDATE let transactions commit as one; without them they do not, and a
    /// warning is logged.
    ///
    /// # Errors
    /// A missing privilege or a wrong setting, with the statement that fixes it.
    pub async fn connect(options: MysqlOptions) -> Result<Self, BackendError> {
        let mut backend = Self {
            options: Arc::new(options),
            questions: tokio::sync::Mutex::default(),
            locks: tokio::sync::Mutex::default(),
            open: Arc::default(),
            foreign_keys: Mutex::default(),
            checkpoint: None,
            publisher: tokio::sync::Mutex::default(),
            room: Arc::default(),
            patience: Arc::default(),
            for_good: Arc::default(),
        };
        let may_publish = backend.check().await?;
        if backend.options.batches && !backend.options.target_binlog {
            backend.checkpoint = backend.checkpoint(may_publish).await?;
        }
        drop(backend.open().await?);
        Ok(backend)
    }

    /// The target's version.
    ///
    /// # Errors
    /// When it cannot be reached, or is another product than MySQL.
    pub async fn version(&self) -> Result<ServerVersion, BackendError> {
        let answer = self
            .ask("SELECT @@GLOBAL.version AS version, @@GLOBAL.version_comment AS comment")
            .await?;
        let text = |column| answer.first().and_then(|row| row.text(column));
        let version = text("version").unwrap_or_default();
        let target = &self.options.connect.endpoint;
        let product = mysql_link::product(version, text("comment").unwrap_or_default());
        if let Some(product) = product.filter(|product| !product.replicates_as_mysql) {
            return Err(BackendError::Refused(format!(
                "the target {target} cannot be applied to: {}",
                mysql_link::foreign(product.name)
            )));
        }
        version.parse().map_err(|why| {
            BackendError::Refused(format!("the target {target} cannot be applied to: {why}"))
        })
    }

    /// Prepares transactions for committing as one, or logs why they do not.
    async fn checkpoint(&self, may_publish: bool) -> Result<Option<Arc<Checkpoint>>, BackendError> {
        let checkpoint = Checkpoint::new();
        let prepared = match may_publish {
            true => prepare(&self.options, checkpoint.begin()).await,
            false => Ok(()),
        };
        match prepared {
            Ok(()) if may_publish => Ok(Some(Arc::new(checkpoint))),
            lacking @ (Ok(()) | Err(LinkError::Server(_))) => {
                tracing::warn!(
                    table = TABLE,
                    why = lacking.err().map(|error| error.to_string()),
                    "transactions are not committed together, and each is forced to disk by itself; GRANT \
                     SYSTEM_VARIABLES_ADMIN ON *.* and GRANT {RIGHTS} ON witness_applier.* would let them, and batches can be \
                     switched off"
                );
                Ok(None)
            }
            Err(error) => Err(backend_error(error)),
        }
    }

    /// Checks the target. Returns whether the account may change `gtid_purged`.
    async fn check(&self) -> Result<bool, BackendError> {
        let refused = |words: String| {
            let target = &self.options.connect.endpoint;
            Err(BackendError::Refused(format!(
                "the target {target} cannot be applied to: {words}"
            )))
        };
        let answer = self
            .ask(
                "SELECT @@GLOBAL.version AS version, @@GLOBAL.gtid_mode AS gtid_mode, @@GLOBAL.read_only AS read_only, \
                 @@GLOBAL.super_read_only AS super_read_only, @@GLOBAL.log_bin AS log_bin, CURRENT_USER() AS account, \
                 CURRENT_ROLE() AS roles",
            )
            .await?;
        let Some(row) = answer.first() else {
            return refused("it does not answer".to_owned());
        };
        let text = |column| row.text(column).unwrap_or_default();
        if text("gtid_mode") != "ON" {
            return refused(format!(
                "gtid_mode is {}; turn it to ON step by step: SET GLOBAL enforce_gtid_consistency = ON, then \
                 SET GLOBAL gtid_mode = OFF_PERMISSIVE, ON_PERMISSIVE, ON",
                text("gtid_mode")
            ));
        }
        if text("super_read_only") == "1" {
            return refused(
                "super_read_only is ON, and nobody can write: SET GLOBAL super_read_only = OFF (read_only may stay ON)"
                    .to_owned(),
            );
        }
        if self.options.target_binlog && text("log_bin") != "1" {
            return refused(
                "transactions shall go into its binlog, and it has none: start it with log_bin, or set \
                 target_binlog = false"
                    .to_owned(),
            );
        }
        // A `BINLOG` statement skips them as replica threads do.
        let skips = self
            .ask(
                "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('replica_skip_errors', 'slave_skip_errors')",
            )
            .await?;
        let skipped = skips.rows.iter().find_map(|skips| {
            let (name, errors) = (skips.text_at(0)?, skips.text_at(1)?);
            (!errors.is_empty() && errors != "OFF").then(|| format!("{name}={errors}"))
        });
        if let Some(skipped) = skipped {
            return refused(format!(
                "rows that it cannot apply would be passed over without a word ({skipped}): start it without that option"
            ));
        }
        let roles = text("roles");
        let grants = match roles {
            "" | "NONE" => self.ask("SHOW GRANTS").await?,
            roles => {
                self.ask(&format!("SHOW GRANTS FOR CURRENT_USER() USING {roles}"))
                    .await?
            }
        };
        let lines = grants.rows.iter().filter_map(|row| row.text_at(0));
        if let Some(lacking) = lacking_proxy(lines.clone(), text("account")) {
            tracing::warn!(
                "a GRANT PROXY or REVOKE PROXY in the log would stop it here, for which its account lacks the right: {lacking}"
            );
        }
        let grants = Grants::parse(lines);
        let mut lacking = grants.lacks(&FOR_ROWS);
        // Rows of tagged transactions would be committed, and their GTIDs refused.
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
            return refused(format!("its account lacks rights: {grant}"));
        }
        let publishing = ["SYSTEM_VARIABLES_ADMIN", "SUPER"];
        Ok(grants.lacks(&publishing) != publishing)
    }

    fn foreign_keys(&self) -> MutexGuard<'_, ForeignKeys> {
        let known = self.foreign_keys.lock();
        known.unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the foreign keys that are unknown, or may have changed.
    async fn read_foreign_keys(&self) -> Result<(), BackendError> {
        let Some(unread) = self.foreign_keys().unread() else {
            return Ok(());
        };
        let [columns, rules] = unread.sql();
        let (columns, rules) = (self.ask(&columns).await?, self.ask(&rules).await?);
        let bytes = columns.rows.len() * BYTES_OF_A_KEY;
        long_work::run(bytes, || {
            let (columns, cascading) = (key_columns(&columns.rows), cascading(&rules.rows));
            self.foreign_keys().take(columns, &cascading);
        });
        Ok(())
    }

    async fn account(&self) -> String {
        let answer = self.ask("SELECT CURRENT_USER()").await;
        let name = answer
            .ok()
            .and_then(|answer| Some(answer.first()?.text_at(0)?.to_owned()));
        name.unwrap_or_else(|| format!("{}@%", self.options.connect.user))
    }

    /// Whether the target shows locks at all. With `performance_schema = OFF` its tables exist, and are empty.
    async fn locks_are_shown(&self) -> Result<bool, BackendError> {
        let query = "SELECT @@GLOBAL.performance_schema";
        let answer = ask(&self.locks, &self.options, query).await;
        let answer = answer.map_err(backend_error)?;
        Ok(answer.first().and_then(|row| row.text_at(0)) != Some("0"))
    }

    async fn ask(&self, query: &str) -> Result<QueryResult, BackendError> {
        ask(&self.questions, &self.options, query)
            .await
            .map_err(backend_error)
    }
}

/// Runs a query over a kept connection, which is reopened after a loss.
async fn ask(
    kept: &tokio::sync::Mutex<Option<Connection>>,
    options: &MysqlOptions,
    query: &str,
) -> Result<QueryResult, LinkError> {
    let mut kept = kept.lock().await;
    // A connection closed by the server in the meantime is noticed on use.
    if let Some(connection) = kept.as_mut().filter(|connection| connection.is_usable()) {
        match connection.query(query).await {
            Err(LinkError::Closed { .. }) => {}
            other => return other,
        }
    }
    *kept = None;
    let mut connection = Connection::open_with_own_settings(&options.connect).await?;
    connection
        .execute("SET SESSION lock_wait_timeout = 60")
        .await?;
    if connection.version() >= INVISIBLE_PRIMARY_KEYS_FROM {
        connection
            .execute("SET SESSION show_gipk_in_create_table_and_information_schema = ON")
            .await?;
    }
    kept.insert(connection).query(query).await
}

/// The first version with tagged GTIDs, and a privilege for them.
const GTID_TAGS_FROM: ServerVersion = ServerVersion::new(8, 3, 0);

/// Approximate cost of reading one, so that many do not delay the process's other tasks.
const BYTES_OF_A_KEY: usize = 256;

/// The first version whose primary keys may be hidden from `information_schema`.
const INVISIBLE_PRIMARY_KEYS_FROM: mysql_link::ServerVersion =
    mysql_link::ServerVersion::new(8, 0, 30);

impl Backend for MysqlBackend {
    type Session = MysqlSession;

    fn commits_as_one(&self) -> bool {
        self.checkpoint.is_some()
    }

    async fn begin(&self) -> Result<GtidSet, BackendError> {
        // Tables may have changed since an earlier run.
        self.schema_changed(&SchemaChange::Anything);
        let number = match &self.checkpoint {
            Some(checkpoint) => checkpoint.begin(),
            None => Checkpoint::new().begin(),
        };
        let connection = open(&self.options).await;
        let mut connection = connection.map_err(backend_error)?;
        // Before anything is published.
        let quiet = match &self.checkpoint {
            Some(_) => keep_quiet(&mut connection).await,
            None => Ok(None),
        };
        let log_has = self.options.log_has.as_ref();
        let taken = take_over_if_used(&mut connection, number, log_has).await;
        taken.map_err(backend_error)?;
        owners_end(&mut connection).await?;
        connection.close().await;
        if let Some(checkpoint) = &self.checkpoint {
            let publisher = Publisher::start(&self.options, checkpoint, quiet);
            *self.publisher.lock().await = Some(publisher);
        }
        self.executed().await
    }

    async fn settle(&self) {
        let Some(publisher) = self.publisher.lock().await.take() else {
            return;
        };
        // Where mysqld refuses it every time, `take_over` fails as well, and its error is logged.
        let _ = tokio::time::timeout(PUBLISHED_WITHIN, publisher.checkpoint.all_published()).await;
        let settled = async {
            let mut connection = open(&self.options).await?;
            // Including commits of a lost session.
            take_over(&mut connection, publisher.checkpoint.begin(), None).await?;
            if let Some(quiet) = publisher.quiet() {
                let_it_tell(&mut connection, quiet).await?;
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
        let mut connect = self.options.connect.clone();
        connect.several_statements = true;
        let with_room = self.room.is_asked();
        let opened = match with_room {
            true => self.room.open(&connect).await,
            false => Connection::open(&connect).await,
        };
        let mut connection = opened.map_err(backend_error)?;
        let packet_limit = connection.packet_limit().await.map_err(backend_error)?;
        for setting in settings(connection.version(), connection.id(), &self.options) {
            match connection.execute(&setting.sql).await {
                Ok(_) => {}
                Err(LinkError::Server(error))
                    if error.code == server_code::SPECIFIC_ACCESS_DENIED =>
                {
                    let grant = grant_statement(&[setting.privilege], &self.account().await);
                    let target = &self.options.connect.endpoint;
                    return Err(BackendError::Refused(format!(
                        "the target {target} cannot be applied to: its account lacks a right: {grant} ({error})"
                    )));
                }
                Err(error) => return Err(backend_error(error)),
            }
        }
        let opened = Opened {
            connection,
            packet_limit,
            with_room,
        };
        Ok(MysqlSession::new(
            opened,
            Arc::clone(&self.options),
            Arc::clone(&self.open),
            self.checkpoint.clone(),
            Arc::clone(&self.room),
            Arc::clone(&self.patience),
            Arc::clone(&self.for_good),
        ))
    }

    async fn executed(&self) -> Result<GtidSet, BackendError> {
        let mut executed = GtidSet::new();
        // In this order: a GTID in the row and not yet in the variable may move to the variable a moment later.
        // The lock waits for a commit in progress.
        let row = format!("SELECT gtids, n FROM {TABLE} WHERE id = 1 FOR SHARE");
        let row = self.checkpoint.as_ref().map(|_| row);
        for query in row
            .as_deref()
            .into_iter()
            .chain(["SELECT @@GLOBAL.gtid_executed"])
        {
            let answer = match ask(&self.questions, &self.options, query).await {
                // An operator who drops the row requests transactions one by one.
                Err(error) if is_missing(&error) => continue,
                answer => answer.map_err(backend_error)?,
            };
            let text = answer.first().and_then(|row| row.text_at(0));
            let number = answer.first().and_then(|row| row.text_at(1)?.parse().ok());
            if let (Some(checkpoint), Some(number)) = (&self.checkpoint, number) {
                checkpoint.found(number);
            }
            let some: GtidSet = text.unwrap_or_default().parse().map_err(|error| {
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
            for (place, shape) in query.read(&answer.rows, &self.foreign_keys()) {
                if let Some(place) = shapes.get_mut(place) {
                    *place = Some(shape);
                }
            }
        }
        Ok(shapes)
    }

    fn schema_changed(&self, change: &SchemaChange) {
        self.foreign_keys().forget(change);
    }

    async fn blockers(&self, waiting: SessionId) -> Result<Vec<SessionId>, BackendError> {
        let query = blockers_query(waiting);
        match ask(&self.locks, &self.options, &query).await {
            Ok(answer) => match read_blockers(&answer) {
                none if none.is_empty() && !self.locks_are_shown().await? => {
                    Ok(self.open.but(waiting))
                }
                some => Ok(some),
            },
            // Without the privilege, every other session is a candidate.
            Err(LinkError::Server(error))
                if error.code == server_code::TABLE_ACCESS_DENIED
                    || error.code == code::SCHEMA_ACCESS_DENIED =>
            {
                Ok(self.open.but(waiting))
            }
            Err(error) => Err(backend_error(error)),
        }
    }
}
