//! Parses the SQL statements of members, clients and tests of the model. Pure.

mod accounts;
mod replication;
mod tokens;

use crate::accounts::AccountChange;
pub(crate) use crate::statement::accounts::CopyRequest;
pub(crate) use crate::statement::replication::SourceChange;
use crate::statement::tokens::{Token, tokens};

/// A session's statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Statement {
    Set(Vec<Assignment>),
    ResetPersist(String),
    /// A SELECT of values without a table.
    Select(Vec<Value>),
    ShowVariables(Filter),
    ShowStatus(Filter),
    ShowGrants,
    ShowProcesslist,
    ShowBinaryLogs,
    ShowBinaryLogStatus,
    ShowReplicaStatus,
    FlushBinaryLogs,
    PurgeTo(String),
    Kill {
        query: bool,
        session: u32,
    },
    InstallPlugin(String),
    ChangeSource(SourceChange),
    /// The first value is true if only the receiver starts. The second is the channel's name; without a name, all channels. `StopReplica`
    /// has the same values.
    StartReplica(bool, Option<String>),
    StopReplica(bool, Option<String>),
    /// The first value is true for `ALL`, which removes the channel; otherwise only the relay log is removed. The second is the channel's
    /// name.
    ResetReplica(bool, Option<String>),
    /// `SELECT GET_LOCK('name', 0)`.
    GetLock(String),
    Begin,
    Commit,
    Rollback,
    Append {
        list: u64,
        value: u64,
    },
    ReadList(u64),
    /// An account statement. It holds the account lock until its commit.
    Accounts(AccountChange),
    /// The query for the number of accounts with this name.
    CountAccounts(String),
    /// The query for the accounts with names that match this pattern.
    AccountsLike(String),
    /// A `CLONE INSTANCE FROM` statement.
    Copy(CopyRequest),
    Shutdown,
    /// One of the long queries that members send.
    Look(Look),
}

/// Defines the long queries of members. Each line has a name, whether the query waits for an account statement, and characteristic parts of
/// its text.
macro_rules! looks {
    (waits) => { true };
    (answers) => { false };
    ($($(#[$doc:meta])* $name:ident, $behaviour:ident: $($part:literal)|+;)*) => {
        /// The members' long queries.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Look { $($(#[$doc])* $name,)* }

        /// A characteristic part of each query's text. The first match counts.
        const LOOKS: &[(&str, Look)] = &[$($(($part, Look::$name),)+)*];

        impl Look {
            /// Returns whether the query reads tables that block while an account statement waits.
            pub(crate) fn is_of_performance_schema(self) -> bool {
                match self { $(Self::$name => looks!($behaviour),)* }
            }
        }
    };
}

looks! {
    SemiSyncDumps, waits: "performance_schema.user_variables_by_thread";
    Committing, waits: "WHERE processlist_state = 'waiting for handler commit'";
    Committed, waits: "performance_schema.file_summary_by_event_name";
    RefusedForRoom, waits: "performance_schema.events_errors_summary_global_by_error";
    OwnTimer, waits: "performance_schema.events_statements_current WHERE thread_id = PS_CURRENT_THREAD_ID()";
    SchedulerPersisted, waits: "performance_schema.persisted_variables WHERE variable_name = 'event_scheduler'";
    Persisted, waits: "variable_value FROM performance_schema.persisted_variables";
    PasswordLifetime, answers: "@@GLOBAL.default_password_lifetime) FROM mysql.user";
    StoredAccount, answers: "SELECT HEX(authentication_string)";
    ChannelCount, waits: "COUNT(*) FROM performance_schema.replication_connection_configuration";
    ReplicaThreads, waits: "performance_schema.replication_applier_status_by_worker";
    ForeignChannels, waits: "performance_schema.replication_connection_configuration AS other_channel";
    HoldersOfApplier, waits: "performance_schema.data_lock_waits" | "performance_schema.threads AS t WHERE t.PROCESSLIST_ID IN (";
    HoldersOfBackupLock, waits: "held.OBJECT_TYPE = 'BACKUP LOCK'";
    DumpsOfOthers, waits: "WHERE t.PROCESSLIST_COMMAND LIKE 'Binlog Dump%'";
    HoldersOfGlobalLock, waits: "performance_schema.metadata_locks AS held";
    WhoSetOfflineMode, waits: "performance_schema.variables_info WHERE variable_name = 'offline_mode'";
    BootedOpen, waits: "performance_schema.variables_info WHERE variable_name = 'super_read_only'";
    Uptime, waits: "performance_schema.global_status WHERE variable_name = 'Uptime'";
    MayShutDown, answers: "information_schema.user_privileges WHERE privilege_type = 'SHUTDOWN'";
    Events, answers: "SELECT event_schema, event_name, definer FROM information_schema.events WHERE";
    ClonePlugin, answers: "information_schema.plugins WHERE plugin_name = 'clone'";
    CopyStatus, waits: "FROM performance_schema.clone_status";
    CopyStages, waits: "FROM performance_schema.clone_progress";
    Encrypted, waits: "innodb_tablespaces WHERE encryption = 'Y'";
    DataSize, answers: "FROM information_schema.innodb_tablespaces";
    SchemaSizes, answers: "FROM information_schema.schemata s LEFT JOIN information_schema.tables";
    TlsEnabled, waits: "FROM performance_schema.tls_channel_status";
    OtherEngines, answers: "FROM information_schema.tables WHERE engine = 'MEMORY'" | "AND engine NOT IN ('InnoDB'";
    PreparedXa, answers: "XA RECOVER CONVERT XID";
    /// The table that a member's own applier would leave.
    ApplierTable, answers: "table_schema = 'witness_applier' AND table_name = 'checkpoint'";
    GlobalFilters, waits: "performance_schema.replication_applier_global_filters";
    StatementLogging, waits: "performance_schema.events_statements_summary_by_digest" | "performance_schema.variables_by_thread";
}

/// One assignment of a SET statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) scope: Scope,
    pub(crate) name: String,
    pub(crate) value: Value,
}

/// Scope of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    User,
    Session,
    Global,
    Persist,
    PersistOnly,
}

/// A value in a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u64),
    Text(String),
    /// A word without quotes, such as ON.
    Word(String),
    User(String),
    Session(String),
    Global(String),
    Version,
    CurrentUser,
    ConnectionId,
}

/// The filter of SHOW VARIABLES or SHOW STATUS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filter {
    All,
    /// A name with `%` wildcards.
    Like(String),
    In(Vec<String>),
}

impl Filter {
    pub(crate) fn takes(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::In(names) => names.iter().any(|own| own.eq_ignore_ascii_case(name)),
            Self::Like(pattern) => match pattern.split_once('%') {
                None => pattern.eq_ignore_ascii_case(name),
                Some((begin, _)) => name
                    .get(..begin.len())
                    .is_some_and(|own| own.eq_ignore_ascii_case(begin)),
            },
        }
    }
}

impl Statement {
    /// Parses a statement. `None`: the model does not support it.
    pub(crate) fn of(text: &str) -> Option<Self> {
        if let Some((_, look)) = LOOKS.iter().find(|(piece, _)| text.contains(piece)) {
            return Some(Self::Look(*look));
        }
        let all = tokens(text)?;
        let mut rest = Parser { rest: &all };
        let statement = rest.statement()?;
        rest.words(";");
        rest.rest.is_empty().then_some(statement)
    }
}

struct Parser<'a> {
    rest: &'a [Token],
}

impl Parser<'_> {
    fn statement(&mut self) -> Option<Statement> {
        let Token::Word(first) = self.next()? else {
            return None;
        };
        match &first.to_ascii_uppercase()[..] {
            "SELECT" => self.select(),
            "SET" => self.set(),
            "SHOW" => self.show(),
            "RESET" => self.reset(),
            "FLUSH" => self
                .words("BINARY LOGS")
                .then_some(Statement::FlushBinaryLogs),
            "PURGE" => {
                self.phrase("BINARY LOGS TO")?;
                Some(Statement::PurgeTo(self.text()?))
            }
            "KILL" => {
                let query = self.words("QUERY");
                let _ = !query && self.words("CONNECTION");
                let session = u32::try_from(self.number()?).ok()?;
                Some(Statement::Kill { query, session })
            }
            "INSTALL" => {
                self.phrase("PLUGIN")?;
                let name = self.word()?;
                self.phrase("SONAME")?;
                self.text()?;
                Some(Statement::InstallPlugin(name))
            }
            "CHANGE" => self.change_source(),
            "START" if self.words("TRANSACTION") => Some(Statement::Begin),
            "START" => {
                let (receiver_only, channel) = self.replica_threads()?;
                Some(Statement::StartReplica(receiver_only, channel))
            }
            "STOP" => {
                let (receiver_only, channel) = self.replica_threads()?;
                Some(Statement::StopReplica(receiver_only, channel))
            }
            "BEGIN" => Some(Statement::Begin),
            "COMMIT" => Some(Statement::Commit),
            "ROLLBACK" => Some(Statement::Rollback),
            "SHUTDOWN" => Some(Statement::Shutdown),
            "INSERT" => self.append(),
            "CREATE" if self.words("USER") => self.account(Self::created_account),
            "DROP" if self.words("USER") => self.account(Self::dropped_account),
            "GRANT" => self.grant(),
            "CLONE" => self.copy(),
            _ => None,
        }
    }

    /// Parses `SELECT value FROM sim.lists WHERE id = 1 ORDER BY position`, or a SELECT of values without a table.
    fn select(&mut self) -> Option<Statement> {
        if self.words("value FROM sim . lists WHERE id =") {
            let list = self.number()?;
            self.phrase("ORDER BY position")?;
            return Some(Statement::ReadList(list));
        }
        if self.words("COUNT ( * ) FROM mysql . user WHERE user =") {
            return Some(Statement::CountAccounts(self.text()?));
        }
        if self.words("user FROM mysql . user WHERE host =") {
            (self.text()? == "%" && self.words("AND user LIKE")).then_some(())?;
            return Some(Statement::AccountsLike(self.text()?));
        }
        if self.words("GET_LOCK (") {
            let name = self.text()?;
            // The model supports only a timeout of 0.
            self.phrase(", 0 )")?;
            return Some(Statement::GetLock(name));
        }
        Some(Statement::Select(self.listed(Self::value)?))
    }

    /// Parses `INSERT INTO sim.lists SELECT 1, COUNT(*) + 1, 5 FROM sim.lists WHERE id = 1 FOR UPDATE`, which appends 5 to list 1.
    fn append(&mut self) -> Option<Statement> {
        self.phrase("INTO sim . lists SELECT")?;
        let list = self.number()?;
        self.phrase(", COUNT ( * ) + 1 ,")?;
        let value = self.number()?;
        self.phrase("FROM sim . lists WHERE id =")?;
        (self.number()? == list && self.words("FOR UPDATE")).then_some(())?;
        Some(Statement::Append { list, value })
    }

    fn set(&mut self) -> Option<Statement> {
        let mut scope = Scope::Session;
        let assignments = self.listed(|this| {
            // A scope keyword applies to all assignments up to the next keyword.
            scope = this.scope().unwrap_or(scope);
            let (scope, name) = match this.words("@") {
                false => (scope, this.word()?),
                true if this.words("@") => this.system_variable()?,
                true => (Scope::User, this.word()?),
            };
            this.words(":");
            this.phrase("=")?;
            Some(Assignment {
                scope,
                name: name.to_lowercase(),
                value: this.value()?,
            })
        });
        Some(Statement::Set(assignments?))
    }

    /// Parses a system variable after `@@`.
    fn system_variable(&mut self) -> Option<(Scope, String)> {
        let scope = self.scope();
        let _ = scope.is_some() && self.words(".");
        Some((scope.unwrap_or(Scope::Session), self.word()?))
    }

    fn scope(&mut self) -> Option<Scope> {
        const SCOPES: [(&str, Scope); 5] = [
            ("GLOBAL", Scope::Global),
            ("SESSION", Scope::Session),
            ("LOCAL", Scope::Session),
            ("PERSIST", Scope::Persist),
            ("PERSIST_ONLY", Scope::PersistOnly),
        ];
        let scope = SCOPES.iter().find(|(word, _)| self.words(word));
        scope.map(|(_, scope)| *scope)
    }

    fn value(&mut self) -> Option<Value> {
        match self.next()? {
            Token::Number(number) => Some(Value::Number(number)),
            Token::Text(text) => Some(Value::Text(text)),
            Token::Sign('@') if self.words("@") => Some(match self.system_variable()? {
                (Scope::Global, name) => Value::Global(name.to_lowercase()),
                (_, name) => Value::Session(name.to_lowercase()),
            }),
            Token::Sign('@') => Some(Value::User(self.word()?.to_lowercase())),
            Token::Word(word) => {
                if !self.words("( )") {
                    return Some(Value::Word(word));
                }
                match &word.to_ascii_uppercase()[..] {
                    "VERSION" => Some(Value::Version),
                    "CURRENT_USER" | "USER" => Some(Value::CurrentUser),
                    "CONNECTION_ID" => Some(Value::ConnectionId),
                    _ => None,
                }
            }
            Token::Sign(_) => None,
        }
    }

    fn show(&mut self) -> Option<Statement> {
        let plain = [
            ("GRANTS", Statement::ShowGrants),
            ("PROCESSLIST", Statement::ShowProcesslist),
            ("FULL PROCESSLIST", Statement::ShowProcesslist),
            ("BINARY LOGS", Statement::ShowBinaryLogs),
            ("BINARY LOG STATUS", Statement::ShowBinaryLogStatus),
            ("REPLICA STATUS", Statement::ShowReplicaStatus),
        ];
        if let Some((_, statement)) = plain.into_iter().find(|(words, _)| self.words(words)) {
            return Some(statement);
        }
        self.words("GLOBAL");
        if self.words("VARIABLES") {
            return Some(Statement::ShowVariables(self.filter()?));
        }
        self.phrase("STATUS")?;
        Some(Statement::ShowStatus(self.filter()?))
    }

    fn filter(&mut self) -> Option<Filter> {
        if self.rest.is_empty() {
            return Some(Filter::All);
        }
        if self.words("LIKE") {
            return Some(Filter::Like(self.text()?));
        }
        self.phrase("WHERE Variable_name")?;
        if self.words("=") {
            return Some(Filter::In(vec![self.text()?]));
        }
        self.phrase("IN (")?;
        let names = self.listed(Self::text)?;
        self.words(")").then_some(Filter::In(names))
    }

    fn reset(&mut self) -> Option<Statement> {
        if self.words("PERSIST") {
            self.words("IF EXISTS");
            return Some(Statement::ResetPersist(self.word()?.to_lowercase()));
        }
        self.phrase("REPLICA")?;
        Some(Statement::ResetReplica(self.words("ALL"), self.channel()?))
    }

    fn next(&mut self) -> Option<Token> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first.clone())
    }

    /// Parses items that are separated by commas.
    fn listed<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.words(",") {
            items.push(item(self)?);
        }
        Some(items)
    }

    /// Consumes these words. Fails if the next tokens differ.
    fn phrase(&mut self, words: &str) -> Option<()> {
        self.words(words).then_some(())
    }

    /// Consumes these words, numbers and signs if they are next. Returns whether they were.
    fn words(&mut self, words: &str) -> bool {
        let mut rest = self.rest;
        for word in words.split(' ') {
            match rest.split_first() {
                Some((first, after)) if first.is(word) => rest = after,
                _ => return false,
            }
        }
        self.rest = rest;
        true
    }

    fn word(&mut self) -> Option<String> {
        match self.next()? {
            Token::Word(word) => Some(word),
            _ => None,
        }
    }

    fn text(&mut self) -> Option<String> {
        match self.next()? {
            Token::Text(text) => Some(text),
            _ => None,
        }
    }

    fn number(&mut self) -> Option<u64> {
        match self.next()? {
            Token::Number(number) => Some(number),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_read() {
        let set = |scope, name: &str, value| Assignment {
            scope,
            name: name.to_owned(),
            value,
        };
        let on = || Value::Word("ON".to_owned());
        let table = [
            (
                "SET SESSION lock_wait_timeout = 1, GLOBAL super_read_only = ON",
                Statement::Set(vec![
                    set(Scope::Session, "lock_wait_timeout", Value::Number(1)),
                    set(Scope::Global, "super_read_only", on()),
                ]),
            ),
            (
                "SET @replica_uuid = 'a', @source_binlog_checksum = @@global.binlog_checksum",
                Statement::Set(vec![
                    set(Scope::User, "replica_uuid", Value::Text("a".to_owned())),
                    set(
                        Scope::User,
                        "source_binlog_checksum",
                        Value::Global("binlog_checksum".to_owned()),
                    ),
                ]),
            ),
            (
                "SELECT @@GLOBAL.gtid_executed, @@max_allowed_packet",
                Statement::Select(vec![
                    Value::Global("gtid_executed".to_owned()),
                    Value::Session("max_allowed_packet".to_owned()),
                ]),
            ),
            (
                "SHOW GLOBAL STATUS WHERE Variable_name IN ('a', 'b')",
                Statement::ShowStatus(Filter::In(vec!["a".to_owned(), "b".to_owned()])),
            ),
            (
                "INSERT INTO sim.lists SELECT 1, COUNT(*) + 1, 5 FROM sim.lists WHERE id = 1 FOR UPDATE",
                Statement::Append { list: 1, value: 5 },
            ),
            (
                "SELECT value FROM sim.lists WHERE id = 3 ORDER BY position",
                Statement::ReadList(3),
            ),
            (
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'h', SOURCE_PORT = 1 FOR CHANNEL 'witness'",
                Statement::ChangeSource(SourceChange {
                    channel: "witness".to_owned(),
                    options: vec![
                        ("SOURCE_HOST".to_owned(), Value::Text("h".to_owned())),
                        ("SOURCE_PORT".to_owned(), Value::Number(1)),
                    ],
                }),
            ),
            ("STOP REPLICA IO_THREAD", Statement::StopReplica(true, None)),
            (
                "START REPLICA FOR CHANNEL 'witness'",
                Statement::StartReplica(false, Some("witness".to_owned())),
            ),
            (
                "SELECT GET_LOCK('x', 0)",
                Statement::GetLock("x".to_owned()),
            ),
            (
                "KILL CONNECTION 7",
                Statement::Kill {
                    query: false,
                    session: 7,
                },
            ),
        ];
        for (text, expected) in table {
            assert_eq!(Statement::of(text), Some(expected), "{text}");
        }
        for unknown in [
            "",
            "SELECT 1 FROM t",
            "SHOW MASTER STATUS",
            "SET x",
            "COMMIT x",
            "SELECT 'a",
            "START REPLICA SQL_THREAD",
            "SELECT GET_LOCK('x', 1)",
        ] {
            assert_eq!(Statement::of(unknown), None, "{unknown}");
        }
    }
}
