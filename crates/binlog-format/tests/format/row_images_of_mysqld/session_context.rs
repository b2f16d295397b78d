//! Compares the session in QUERY, INTVAR, RAND and USER_VAR events with the variables that were set.

use binlog_format::event::EventType;
use binlog_format::events::{
    AutoIncrement, IntVar, IntVarKind, Query, Rand, SessionContext, UserVar, UserVarType,
};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;

use super::logged_events::events;

const STATEMENTS: &str = "
    CREATE DATABASE d; CREATE DATABASE e; USE d; CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a DOUBLE, b TEXT, c DATETIME(6) DEFAULT NOW(6));
    SET binlog_format = STATEMENT, sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES', time_zone = '+03:00', lc_time_names = 'de_DE',
      auto_increment_increment = 7, auto_increment_offset = 3, foreign_key_checks = 0, unique_checks = 0, sql_auto_is_null = 1,
      explicit_defaults_for_timestamp = 0, sql_require_primary_key = 1, default_table_encryption = 0,
      collation_connection = latin1_german1_ci, timestamp = 1700000000.25;
    SET @text = 'it''s', @number = 5, @real = 1.5e0, @decimal = 2.50, @nothing = NULL, rand_seed1 = 11, rand_seed2 = 22;
    INSERT INTO t (a, b) VALUES (RAND() + @number + @real + @decimal, CONCAT(@text, @nothing, NOW(6), FROM_UNIXTIME(5), DAYNAME('2020-01-01')));
    INSERT INTO t (a) VALUES (LAST_INSERT_ID());
    CREATE DEFINER = CURRENT_USER PROCEDURE p () SELECT 1;
    CREATE TABLE e.u (id INT PRIMARY KEY, at TIMESTAMP);
    SET default_table_encryption = 1; CREATE DATABASE encrypted;";

#[test]
fn logged_session_contexts_equal_the_session() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    server.client().sql(STATEMENTS).unwrap();
    let (events, _) = events(&server);
    let queries: Vec<Query<'_>> = events
        .iter()
        .filter(|event| event.event_type() == EventType::Query)
        .map(|event| Query::decode(event.canonical()).unwrap())
        .collect();
    let context_of = |text: &str| {
        let query = queries
            .iter()
            .find(|query| String::from_utf8_lossy(&query.statement).starts_with(text))
            .unwrap();
        let context = SessionContext::decode(&query.status_variables).unwrap();
        assert_eq!(context.unknown, None);
        context
    };

    let insert = context_of("INSERT INTO t (a, b)");
    let options = insert.options.unwrap();
    assert!(!options.foreign_key_checks() && !options.unique_checks());
    assert!(options.sql_auto_is_null());
    // The SQL modes ANSI_QUOTES and STRICT_ALL_TABLES.
    assert_eq!(insert.sql_mode, Some(1 << 2 | 1 << 22));
    assert_eq!(
        insert.auto_increment,
        Some(AutoIncrement {
            increment: 7,
            offset: 3
        })
    );
    assert_eq!(insert.time_zone, Some(&b"+03:00"[..]));
    assert_eq!(insert.microseconds, Some(250_000));
    assert!(insert.lc_time_names.is_some());
    let sets = insert.character_sets.unwrap();
    assert_eq!((sets.client, sets.connection, sets.server), (255, 5, 255));
    assert_eq!(insert.default_collation_for_utf8mb4, Some(255));

    let procedure = context_of("CREATE DEFINER");
    let invoker = procedure.invoker.unwrap();
    assert_eq!(
        (invoker.user, invoker.host),
        (&b"root"[..], &b"localhost"[..])
    );
    assert!(procedure.ddl_xid.is_some());

    let table = context_of("CREATE TABLE e.u");
    assert_eq!(table.explicit_defaults_for_timestamp, Some(false));
    assert_eq!(table.sql_require_primary_key, Some(true));
    let schema = context_of("CREATE DATABASE encrypted");
    assert_eq!(schema.default_table_encryption, Some(true));

    let first = context_of("CREATE DATABASE d");
    let options = first.options.unwrap();
    assert!(options.foreign_key_checks() && options.unique_checks() && !options.sql_auto_is_null());
    assert_eq!(first.default_table_encryption, Some(false));
    assert_eq!(first.auto_increment, None);
}

#[test]
fn logged_variables_equal_the_used_values() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    server.client().sql(STATEMENTS).unwrap();
    let (events, _) = events(&server);
    let numbers: Vec<IntVar> = events
        .iter()
        .filter_map(|event| IntVar::decode(event.canonical()).ok())
        .collect();
    let is = |kind, value| IntVar { kind, value };
    assert!(
        numbers.contains(&is(IntVarKind::InsertId, 3)),
        "{numbers:?}"
    );
    assert!(
        numbers.contains(&is(IntVarKind::LastInsertId, 3)),
        "{numbers:?}"
    );
    let rand = events
        .iter()
        .find_map(|event| Rand::decode(event.canonical()).ok())
        .unwrap();
    assert_eq!((rand.first_seed, rand.second_seed), (11, 22));

    let variable = |name: &str| {
        let found = events
            .iter()
            .filter_map(|event| UserVar::decode(event.canonical()).ok())
            .find(|variable| variable.name == name.as_bytes());
        found.unwrap().value
    };
    let text = variable("text").unwrap();
    assert_eq!(
        (text.value_type, &*text.bytes),
        (UserVarType::String, &b"it's"[..])
    );
    let number = variable("number").unwrap();
    assert_eq!(
        (number.value_type, &*number.bytes),
        (UserVarType::Int, &5_u64.to_le_bytes()[..])
    );
    assert!(!number.unsigned);
    let real = variable("real").unwrap();
    assert_eq!(
        (real.value_type, &*real.bytes),
        (UserVarType::Real, &1.5_f64.to_le_bytes()[..])
    );
    let decimal = variable("decimal").unwrap();
    assert_eq!(
        (decimal.value_type, &*decimal.bytes),
        (UserVarType::Decimal, &[3, 2, 0x82, 50][..])
    );
    assert_eq!(variable("nothing"), None);
}
