//! The statements that are understood: what replicas, `mysqlbinlog`, change-data consumers and people with a `mysql`
//! client send to a source. Pure. Everything else is recognised as something else, whatever its bytes are.

mod expression;
mod parser;
mod tokens;

pub(crate) use crate::statement::expression::Expression;

/// The longest statement that is looked into. Those of clients are short; `GTID_SUBTRACT` of two large sets is not.
pub(crate) const MAX_STATEMENT_BYTES: usize = 4 << 20;

/// What a client asks for in SQL, as far as this server recognises it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Statement {
    /// Nothing but white space and comments.
    Empty,
    /// Expressions without a table.
    Select(Vec<Column>),
    /// User variables, in order; what else was set is of the session and changes nothing here.
    Set(Vec<(String, Expression)>),
    ShowBinaryLogs,
    ShowBinaryLogStatus,
    ShowReplicas(Names),
    ShowBinlogEvents(EventRange),
    /// Variables, by a LIKE pattern or by names.
    ShowVariables(Filter),
    /// Counters and warnings, of which there are none.
    ShowNothing(&'static [&'static str]),
    FlushBinaryLogs,
    /// All files before the one of this name.
    PurgeTo(String),
    /// All files closed before a time, as it was written; `None` for now.
    PurgeBefore(Option<String>),
    /// A statement about data, or one that the ring decides on.
    Other(Other),
}

/// One value of a SELECT and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) expression: Expression,
    pub(crate) name: String,
}

/// Which generation of names the columns have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    Replica,
    Slave,
}

/// What of a file `SHOW BINLOG EVENTS` shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EventRange {
    pub(crate) file: Option<String>,
    pub(crate) from: Option<u64>,
    pub(crate) skip: u64,
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filter {
    All,
    AnyOf(Vec<Named>),
}

/// Which variables a condition means, in small letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    Is(String),
    Like(String),
}

/// What is not done here, by who would do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Other {
    /// The ring decides who leads, who follows and what is in the log.
    Ring,
    /// There are no tables, accounts or settings here.
    Unknown,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::statement::expression::Scope;
    use crate::statement::expression::VariableName;

    fn recognise(text: &str) -> Statement {
        Statement::recognise(text.as_bytes())
    }

    fn system(name: &str) -> Expression {
        Expression::System(VariableName {
            scope: Scope::Global,
            name: name.to_owned(),
        })
    }

    #[test]
    fn what_replicas_and_mysqlbinlog_send() {
        let select = |text: &str| match recognise(text) {
            Statement::Select(columns) => columns,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(
            select("SELECT UNIX_TIMESTAMP()"),
            [Column {
                expression: Expression::Call("unix_timestamp".into(), vec![]),
                name: "UNIX_TIMESTAMP()".into()
            }]
        );
        for name in [
            "SERVER_ID",
            "SERVER_UUID",
            "GTID_MODE",
            "COLLATION_SERVER",
            "TIME_ZONE",
            "rpl_semi_sync_source_enabled",
        ] {
            let columns = select(&format!("SELECT @@GLOBAL.{name}"));
            assert_eq!(columns[0].expression, system(&name.to_lowercase()));
            assert_eq!(columns[0].name, format!("@@GLOBAL.{name}"));
        }
        assert_eq!(
            select("SELECT @source_binlog_checksum")[0].expression,
            Expression::User("source_binlog_checksum".into())
        );
        assert_eq!(
            recognise("SET @slave_uuid = 'a', @replica_uuid = 'b'"),
            Statement::Set(vec![
                ("slave_uuid".into(), Expression::Text("a".into())),
                ("replica_uuid".into(), Expression::Text("b".into())),
            ])
        );
        assert_eq!(
            recognise("SET @master_binlog_checksum= @@global.binlog_checksum"),
            Statement::Set(vec![(
                "master_binlog_checksum".into(),
                system("binlog_checksum")
            )])
        );
        assert_eq!(
            recognise("SET @source_heartbeat_period = 30000000000"),
            Statement::Set(vec![(
                "source_heartbeat_period".into(),
                Expression::Number("30000000000".into())
            )])
        );
    }

    #[test]
    fn what_people_and_drivers_send() {
        for (text, expected) in [
            ("show binary logs;", Statement::ShowBinaryLogs),
            ("SHOW MASTER LOGS", Statement::ShowBinaryLogs),
            ("SHOW BINARY LOG STATUS", Statement::ShowBinaryLogStatus),
            (
                "/* hi */ show master status -- x",
                Statement::ShowBinaryLogStatus,
            ),
            ("SHOW REPLICAS", Statement::ShowReplicas(Names::Replica)),
            ("SHOW SLAVE HOSTS", Statement::ShowReplicas(Names::Slave)),
            ("FLUSH BINARY LOGS", Statement::FlushBinaryLogs),
            ("FLUSH LOCAL LOGS", Statement::FlushBinaryLogs),
            (
                "PURGE BINARY LOGS TO 'binlog.000007'",
                Statement::PurgeTo("binlog.000007".into()),
            ),
            (
                "PURGE MASTER LOGS BEFORE '2026-01-02 03:04:05'",
                Statement::PurgeBefore(Some("2026-01-02 03:04:05".into())),
            ),
            (
                "PURGE BINARY LOGS BEFORE NOW()",
                Statement::PurgeBefore(None),
            ),
            (
                "SHOW BINLOG EVENTS IN 'binlog.000001' FROM 4 LIMIT 2, 5",
                Statement::ShowBinlogEvents(EventRange {
                    file: Some("binlog.000001".into()),
                    from: Some(4),
                    skip: 2,
                    limit: Some(5),
                }),
            ),
            (
                "show global variables like 'binlog_checksum'",
                Statement::ShowVariables(Filter::AnyOf(vec![Named::Like(
                    "binlog_checksum".into(),
                )])),
            ),
            (
                "SHOW VARIABLES WHERE Variable_name = 'log_bin' OR variable_name in ('a', 'b') OR variable_name LIKE 'GTID%'",
                Statement::ShowVariables(Filter::AnyOf(vec![
                    Named::Is("log_bin".into()),
                    Named::Is("a".into()),
                    Named::Is("b".into()),
                    Named::Like("gtid%".into()),
                ])),
            ),
            (
                "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
                Statement::Set(vec![]),
            ),
            (
                "SET autocommit=1, @x := NULL",
                Statement::Set(vec![("x".into(), Expression::Null)]),
            ),
            ("SET SESSION TRANSACTION READ ONLY", Statement::Set(vec![])),
            (
                "SET sql_mode=CONCAT(@@sql_mode, ',STRICT')",
                Statement::Set(vec![]),
            ),
            // A stock client tells by the error that dollars quote nothing here.
            ("SELECT $$", Statement::Other(Other::Unknown)),
            ("  ;", Statement::Empty),
            ("SELECT 1 FROM t", Statement::Other(Other::Unknown)),
            ("INSERT INTO t VALUES (1)", Statement::Other(Other::Unknown)),
            (
                "SHOW BINARY LOGS LIKE 'x'",
                Statement::Other(Other::Unknown),
            ),
        ] {
            assert_eq!(recognise(text), expected, "{text}");
        }
    }

    #[test]
    fn what_the_ring_decides_is_told_apart() {
        for text in [
            "RESET BINARY LOGS AND GTIDS",
            "RESET MASTER",
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='x'",
            "START GROUP_REPLICATION",
            "STOP REPLICA",
            "SET GLOBAL gtid_purged = 'x'",
            "set @@global.read_only = 0",
            "SET PERSIST server_id = 3",
            "SET autocommit = 1, GLOBAL server_id = 4",
        ] {
            assert_eq!(recognise(text), Statement::Other(Other::Ring), "{text}");
        }
    }

    #[test]
    fn drivers_ask_for_many_values_at_once() {
        let text = "/* driver */ SELECT  @@session.auto_increment_increment AS auto_increment_increment, \
                    @@character_set_client AS `client`, @@version_comment c LIMIT 1";
        let Statement::Select(columns) = recognise(text) else {
            panic!("{text}");
        };
        let names: Vec<_> = columns.iter().map(|column| &column.name[..]).collect();
        assert_eq!(names, ["auto_increment_increment", "client", "c"]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
            Statement::recognise(&text);
        }

        #[test]
        fn no_words_make_it_panic(words in prop::collection::vec(prop::sample::select(vec![
            "SELECT", "SET", "SHOW", "@", "@@", "@@global.", "x", "'", "\"", "`", "(", ")", ",", "=", ":=", "/*", "*/",
            "--", "#", "\n", "LIMIT", "1", "BINLOG", "EVENTS", "IN", "FROM", "LIKE", "VARIABLES", "WHERE", "NULL", "é", "\\",
            "PURGE", "BINARY", "LOGS", "TO", "BEFORE", "NOW", "GLOBAL", "NAMES", "AS", ";", "-", ".", "Variable_name",
        ]), 0..24)) {
            Statement::recognise(words.join(" ").as_bytes());
            Statement::recognise(words.concat().as_bytes());
        }

        #[test]
        fn nesting_is_bounded(depth in 0_usize..100_000) {
            Statement::recognise(format!("SELECT {}1{}", "f(".repeat(depth), ")".repeat(depth)).as_bytes());
        }
    }
}
