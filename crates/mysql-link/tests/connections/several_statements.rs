//! Several statements in one packet against a real mysqld: executed ones are counted, and none is run after a failure.

use std::time::Duration;

use anyhow::Result;
use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError, Ran, Statements};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;

const LIMIT: Duration = Duration::from_secs(20);

async fn connect(server: &Mysqld, several_statements: bool) -> Result<Connection> {
    let mut options = ConnectOptions::new(Endpoint::unix(server.socket()), "root", "");
    options.several_statements = several_statements;
    Ok(Connection::open(&options).await?)
}

fn list<S: AsRef<[u8]>>(statements: impl IntoIterator<Item = S>) -> Statements {
    let mut list = Statements::default();
    statements.into_iter().for_each(|sql| list.push(sql));
    list
}

fn server() -> Result<Mysqld> {
    let server = Mysqld::launch(&MysqlTree::require())?;
    server
        .client()
        .sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v LONGTEXT)")?;
    Ok(server)
}

#[tokio::test]
async fn what_was_run_is_counted_and_a_failure_stops_the_rest_in_mysqld() -> Result<()> {
    let server = server()?;
    for several in [true, false] {
        let mut connection = connect(&server, several).await?;
        let mut statements = list([
            "DELETE FROM d.t",
            "INSERT INTO d.t VALUES (1, 'a;b')",
            "INSERT INTO d.t VALUES (2, '')",
        ]);
        assert_eq!(
            connection
                .run_all(&mut statements, LIMIT, |_, _| ())
                .await?,
            Ran {
                done: 3,
                error: None
            }
        );
        assert!(statements.is_empty());

        let mut statements = list([
            "INSERT INTO d.t VALUES (3, '')",
            "INSERT INTO d.t VALUES (1, '')",
            "DELETE FROM d.t",
        ]);
        let ran = connection
            .run_all(&mut statements, LIMIT, |_, _| ())
            .await?;
        assert_eq!(
            (ran.done, ran.error.map(|error| error.code)),
            (1, Some(1062))
        );
        let left = connection.query("SELECT COUNT(*) FROM d.t").await?;
        assert_eq!(left.first().and_then(|row| row.text_at(0)), Some("3"));
    }
    Ok(())
}

#[tokio::test]
async fn more_than_mysqld_takes_goes_in_several_packets() -> Result<()> {
    let server = server()?;
    server
        .client()
        .sql("SET GLOBAL max_allowed_packet = 40960")?;
    let mut connection = connect(&server, true).await?;
    let insert = |id: usize| format!("INSERT INTO d.t VALUES ({id}, '{}')", "x".repeat(9000));
    let mut statements = list((0..100).map(insert));
    let ran = connection
        .run_all(&mut statements, LIMIT, |_, _| ())
        .await?;
    assert_eq!((ran.done, ran.error), (100, None));
    // A failure in one packet prevents the later packets.
    let mut statements = list((150..160).chain([5]).chain(200..220).map(insert));
    let ran = connection
        .run_all(&mut statements, LIMIT, |_, _| ())
        .await?;
    assert_eq!(
        (ran.done, ran.error.map(|error| error.code)),
        (10, Some(1062))
    );
    assert_eq!(server.client().value("SELECT COUNT(*) FROM d.t")?, "110");

    let mut statements = list([
        "INSERT INTO d.t VALUES (300, '')".to_owned(),
        "x".repeat(41_000),
        "DELETE FROM d.t".to_owned(),
    ]);
    let ran = connection
        .run_all(&mut statements, LIMIT, |_, _| ())
        .await?;
    let error = ran.error.expect("too large");
    assert_eq!((ran.done, error.code), (1, 1153));
    assert!(
        error.message.contains("max_allowed_packet = 41984"),
        "{error}"
    );
    assert!(connection.is_usable() && statements.is_empty());
    assert_eq!(server.client().value("SELECT COUNT(*) FROM d.t")?, "111");
    Ok(())
}

#[tokio::test]
async fn mysqld_takes_several_statements_only_from_who_asked() -> Result<()> {
    let server = server()?;
    let two = "INSERT INTO d.t VALUES (1, ''); INSERT INTO d.t VALUES (2, '')";
    let mut connection = connect(&server, false).await?;
    let refused = connection.execute(two).await;
    assert!(matches!(&refused, Err(LinkError::Server(error)) if error.code == 1064));
    // Even with several statements allowed, `execute` accepts only one statement.
    let mut connection = connect(&server, true).await?;
    let refused = connection.execute(two).await;
    assert!(
        matches!(refused, Err(LinkError::Protocol { .. })),
        "{refused:?}"
    );
    assert!(!connection.is_usable());
    Ok(())
}

#[tokio::test]
async fn a_list_that_was_given_up_ends_the_connection_to_mysqld() -> Result<()> {
    let server = server()?;
    let mut connection = connect(&server, true).await?;
    let mut statements = list(["DO 1", "DO SLEEP(3)", "DELETE FROM d.t"]);
    let given_up = connection
        .run_all(&mut statements, Duration::from_millis(100), |_, _| ())
        .await;
    assert!(matches!(given_up, Err(LinkError::Timeout { .. })));
    let again = connection
        .run_all(&mut list(["DO 1"]), LIMIT, |_, _| ())
        .await;
    assert!(matches!(again, Err(LinkError::GivenUp { .. })));

    let mut connection = connect(&server, true).await?;
    let mut statements = list(["DO 1", "SELECT 1"]);
    let rows = connection.run_all(&mut statements, LIMIT, |_, _| ()).await;
    assert!(matches!(rows, Err(LinkError::Protocol { .. })));
    assert!(!connection.is_usable());
    Ok(())
}
