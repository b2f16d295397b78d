//! Text queries against a real mysqld: values, errors, large answers, and abandoned statements.

use std::time::{Duration, Instant};

use anyhow::Result;
use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError, Step, TlsMode};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;

fn options(server: &Mysqld, mode: TlsMode) -> ConnectOptions {
    let mut options = ConnectOptions::new(Endpoint::unix(server.socket()), "root", "");
    if mode == TlsMode::Required {
        options.endpoint = Endpoint::tcp("127.0.0.1", server.address().port());
        options.tls.mode = mode;
    }
    options
}

#[tokio::test]
async fn values_and_errors_from_mysqld() -> Result<()> {
    let server = Mysqld::launch(&MysqlTree::require())?;
    let mut connection = Connection::open(&options(&server, TlsMode::Disabled)).await?;
    let row = connection
        .query("SELECT 'a' AS text, NULL AS nothing, '' AS blank, 7 AS number")
        .await?;
    let row = row.first().expect("a row");
    assert_eq!(row.text("text"), Some("a"));
    assert_eq!(row.text("nothing"), None);
    assert_eq!(row.text("blank"), Some(""));
    assert_eq!(row.text("number"), Some("7"));

    let error = connection
        .query("SELECT @@global.no_such_variable")
        .await
        .expect_err("no such variable");
    let LinkError::Server(error) = error else {
        panic!("{error}")
    };
    assert_eq!((error.code, error.sqlstate.as_str()), (1193, "HY000"));
    // An error between rows, after the answer began.
    let error = connection
        .query("SELECT 1 UNION ALL SELECT (SELECT 1 UNION SELECT 2)")
        .await;
    assert!(matches!(error, Err(LinkError::Server(_))), "{error:?}");
    connection.ping().await?;

    connection.execute("CREATE DATABASE d").await?;
    connection
        .execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
        .await?;
    assert_eq!(
        connection
            .execute("INSERT INTO d.t VALUES (1), (2), (3)")
            .await?,
        3
    );
    let rows = connection.query("SELECT id FROM d.t ORDER BY id").await?;
    let ids: Vec<_> = rows.rows.iter().map(|row| row.text_at(0)).collect();
    assert_eq!(ids, [Some("1"), Some("2"), Some("3")]);
    assert_eq!(
        connection
            .query("SELECT id FROM d.t WHERE id > 9")
            .await?
            .rows
            .len(),
        0
    );
    connection.close().await;
    Ok(())
}

#[tokio::test]
async fn answers_and_statements_over_16_mib_with_mysqld() -> Result<()> {
    const LENGTH: usize = (16 << 20) + 100;
    let server = Mysqld::launch(&MysqlTree::require())?;
    for mode in [TlsMode::Disabled, TlsMode::Required] {
        let mut connection = Connection::open(&options(&server, mode)).await?;
        connection
            .execute("SET GLOBAL max_allowed_packet = 128 * 1024 * 1024")
            .await?;
        let mut connection = Connection::open(&options(&server, mode)).await?;
        for length in [
            LENGTH,
            (16 << 20) - 2 - "SELECT LENGTH('')".len(),
            (16 << 20) - 1,
        ] {
            let long = "x".repeat(length);
            let answer = connection
                .query(&format!("SELECT LENGTH('{long}')"))
                .await?;
            assert_eq!(
                answer.first().and_then(|row| row.text_at(0)),
                Some(length.to_string().as_str())
            );
        }
        let answer = connection
            .query(&format!("SELECT REPEAT('y', {LENGTH})"))
            .await?;
        let value = answer
            .first()
            .and_then(|row| row.text_at(0))
            .expect("a value");
        assert!(value.len() == LENGTH && value.bytes().all(|byte| byte == b'y'));

        let bounded = ConnectOptions {
            max_packet_bytes: 1 << 20,
            ..options(&server, mode)
        };
        let mut connection = Connection::open(&bounded).await?;
        let many_rows = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) \
                         SELECT REPEAT('z', 10000) FROM n";
        for too_large in [
            format!("SELECT REPEAT('y', {LENGTH})"),
            many_rows.to_owned(),
        ] {
            let error = connection.query(&too_large).await;
            assert!(matches!(error, Err(LinkError::Protocol { .. })), "{mode}");
            assert!(!connection.is_usable());
            connection = Connection::open(&bounded).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_statement_given_up_can_be_killed_in_mysqld() -> Result<()> {
    let server = Mysqld::launch(&MysqlTree::require())?;
    let options = options(&server, TlsMode::Disabled);
    let mut connection = Connection::open(&options).await?;
    let began = Instant::now();
    let error = connection
        .query_within("SELECT SLEEP(100)", Duration::from_millis(200))
        .await;
    assert!(
        matches!(
            error,
            Err(LinkError::Timeout {
                step: Step::Statement,
                ..
            })
        ),
        "{error:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(matches!(
        connection.ping().await,
        Err(LinkError::GivenUp { .. })
    ));

    let sleepers =
        "SELECT COUNT(*) FROM performance_schema.processlist WHERE info LIKE 'SELECT SLEEP%'";
    let mut other = Connection::open(&options).await?;
    assert_eq!(
        other
            .query(sleepers)
            .await?
            .first()
            .and_then(|row| row.text_at(0)),
        Some("1")
    );
    Connection::kill(&options, connection.id()).await?;
    // A second KILL is not an error.
    Connection::kill(&options, connection.id()).await?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while other
        .query(sleepers)
        .await?
        .first()
        .and_then(|row| row.text_at(0))
        != Some("0")
    {
        assert!(Instant::now() < deadline, "the statement continues");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Regression: statements of a monitoring session continued in a server that was too slow for them,
/// more with each attempt.
#[tokio::test]
async fn a_statement_given_up_in_a_session_with_its_own_settings_ends_at_mysqld() -> Result<()> {
    const LIMIT: Duration = Duration::from_millis(500);
    let server = Mysqld::launch(&MysqlTree::require())?;
    let options = options(&server, TlsMode::Disabled);
    let bounded = options.clone().bounded("witness-test", LIMIT);
    let mut other = Connection::open(&options).await?;
    let many_rows = "SELECT /* long */ COUNT(*) FROM information_schema.COLLATIONS a, information_schema.COLLATIONS b, \
         information_schema.COLLATIONS c, information_schema.COLLATIONS d";
    let lock = "LOCK /* long */ TABLES mysql.plugin WRITE";
    other.execute("LOCK TABLES mysql.plugin READ").await?;
    for (statement, dropped) in [(many_rows, true), (many_rows, false), (lock, false)] {
        let mut connection = Connection::open_with_own_settings(&bounded).await?;
        match dropped {
            // No KILL is sent.
            true => {
                let query = connection.query(statement);
                let given_up = tokio::time::timeout(LIMIT / 5, query).await;
                assert!(given_up.is_err(), "{given_up:?}");
            }
            false => {
                let given_up = connection.query(statement).await;
                let is_timeout = matches!(given_up, Err(LinkError::Timeout { .. }));
                assert!(is_timeout, "{given_up:?}");
            }
        }
        let running = "SELECT COUNT(*) FROM performance_schema.processlist \
             WHERE info LIKE '%/* long */%' AND id <> CONNECTION_ID()";
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let answer = other.query(running).await?;
            if answer.first().and_then(|row| row.text_at(0)) == Some("0") {
                break;
            }
            assert!(Instant::now() < deadline, "{statement} is still running");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_server_s_defaults_change_nothing_for_a_session_with_settings_of_its_own() -> Result<()>
{
    const SESSION: &str = "SELECT CONCAT_WS(' ', @@autocommit, @@completion_type, @@transaction_isolation, \
         @@transaction_read_only, @@max_execution_time, @@sql_select_limit, @@sql_big_selects, \
         @@sql_safe_updates, @@sql_mode)";
    const ORDINARY: &str = "1 NO_CHAIN READ-COMMITTED 0 10000 18446744073709551615 1 0 ";
    /// A query that examines more rows than the server's default allows.
    const JOIN: &str = "SELECT COUNT(*) FROM information_schema.COLLATIONS AS a, information_schema.COLLATIONS AS b";
    let server = Mysqld::launch(&MysqlTree::require())?;
    let of_root = options(&server, TlsMode::Disabled);
    // An account with SELECT alone also gets these settings; `init_connect` is run for such
    // accounts.
    let mut of_client = of_root.clone();
    of_client.user = "client".to_owned();
    server.client().sql(
        "CREATE USER client; SET GLOBAL autocommit = 0, GLOBAL completion_type = 'CHAIN', \
         GLOBAL transaction_isolation = 'SERIALIZABLE', GLOBAL transaction_read_only = 1, GLOBAL max_execution_time = 7000, \
         GLOBAL sql_select_limit = 3, GLOBAL sql_mode = 'ANSI_QUOTES', GLOBAL init_connect = 'SET sql_select_limit = 2'; \
         SET GLOBAL max_join_size = 10, GLOBAL sql_safe_updates = 1",
    )?;
    for (options, limit) in [(&of_root, 3), (&of_client, 2)] {
        let told = |answer: mysql_link::QueryResult| {
            let row = answer.first().and_then(|row| row.text_at(0));
            row.unwrap_or_default().to_owned()
        };
        let mut plain = Connection::open(options).await?;
        let of_server = format!("0 CHAIN SERIALIZABLE 1 7000 {limit} 0 1 ANSI_QUOTES");
        assert_eq!(told(plain.query(SESSION).await?), of_server);
        let refused = plain.query(JOIN).await;
        assert!(matches!(refused, Err(LinkError::Server(error)) if error.code == 1104));
        plain.close().await;
        let mut own = Connection::open_with_own_settings(options).await?;
        assert_eq!(told(own.query(SESSION).await?), ORDINARY);
        own.query(JOIN).await?;
        own.close().await;
    }
    Ok(())
}
