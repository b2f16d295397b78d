//! Logins and statements: authentication, answers, and error messages.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::memory_log::{MemoryLog, PASSWORD, Served, USER, options};
use binlog_server::{ServerOptions, ServerTls};
use mysql_link::{LinkError, Secret, TlsMode};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

async fn served() -> Served {
    let log = MemoryLog::new();
    log.transaction(1, 10);
    log.commit();
    log.transaction(2, 10);
    Served::start(log, options()).await
}

/// A self-signed certificate. Writes it to `server.pem` in the folder, for clients.
fn tls(folder: &std::path::Path) -> ServerTls {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("server.pem"), made.cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key);
    ServerTls::new(config.unwrap())
}

#[tokio::test]
async fn only_the_account_can_log_in() {
    let served = served().await;
    let connection = served.connect().await.unwrap();
    assert_eq!(connection.version_text(), "9.7.4-test");
    assert!(!connection.is_tls());
    for (user, password) in [(USER, "wrong"), (USER, ""), ("root", PASSWORD)] {
        let mut login = served.login();
        login.user = user.to_owned();
        login.password = Secret::new(password);
        let refused = mysql_link::Connection::open(&login).await;
        assert!(
            matches!(refused, Err(LinkError::AccessDenied { .. })),
            "{user}: {refused:?}"
        );
    }
}

/// Collects the server's log messages.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Load balancers and monitoring connect and disconnect without a login.
#[tokio::test]
async fn a_connection_that_sends_nothing_logs_no_warning() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let served = served().await;
    for reads_greeting in [false, true] {
        let mut probe = TcpStream::connect(("127.0.0.1", served.port))
            .await
            .unwrap();
        if reads_greeting {
            assert!(probe.read(&mut [0; 16]).await.unwrap() > 0);
        }
    }
    let mut partial = TcpStream::connect(("127.0.0.1", served.port))
        .await
        .unwrap();
    partial.write_all(&[1]).await.unwrap();
    drop(partial);
    let mut login = served.login();
    login.password = Secret::new("wrong");
    assert!(mysql_link::Connection::open(&login).await.is_err());
    drop(served);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let warnings: Vec<_> = text.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 2, "{text}");
    assert!(warnings[0].contains("it left during the login"), "{text}");
    assert!(warnings[1].contains("Access denied"), "{text}");
}

#[tokio::test]
async fn tls_is_offered_and_can_be_required() {
    let folder = tempfile::tempdir().unwrap();
    let options = ServerOptions {
        tls: Some(tls(folder.path())),
        require_tls: true,
        ..options()
    };
    let served = Served::start(MemoryLog::new(), options).await;
    let mut login = served.login();
    let refused = mysql_link::Connection::open(&login).await;
    assert!(
        matches!(&refused, Err(LinkError::Refused { error, .. }) if error.code == 3159),
        "{refused:?}"
    );
    login.tls.mode = TlsMode::Required;
    let mut connection = mysql_link::Connection::open(&login).await.unwrap();
    assert!(connection.is_tls());
    let answer = connection.query("SELECT @@server_id").await.unwrap();
    assert_eq!(answer.first().unwrap().text_at(0), Some("4000000007"));
}

#[tokio::test]
async fn new_connections_use_a_renewed_password_and_certificate() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = ServerOptions {
        tls: Some(tls(old.path())),
        ..options()
    };
    let (password, shown) = (
        options.account.password.clone(),
        options.tls.clone().unwrap(),
    );
    let served = Served::start(MemoryLog::new(), options).await;
    let login = |password: &str, folder: &tempfile::TempDir| {
        let mut login = served.login();
        login.password = Secret::new(password);
        login.tls.mode = TlsMode::VerifyCa;
        login.tls.ca_file = Some(folder.path().join("server.pem"));
        login
    };
    let mut before = mysql_link::Connection::open(&login(PASSWORD, &old))
        .await
        .unwrap();

    password.renew(&Secret::new("renewed"));
    shown.renew(&tls(new.path()));
    mysql_link::Connection::open(&login("renewed", &new))
        .await
        .unwrap();
    let with_the_old_one = mysql_link::Connection::open(&login(PASSWORD, &new)).await;
    assert!(
        matches!(with_the_old_one, Err(LinkError::AccessDenied { .. })),
        "{with_the_old_one:?}"
    );
    let with_the_old_authority = mysql_link::Connection::open(&login("renewed", &old)).await;
    assert!(
        matches!(with_the_old_authority, Err(LinkError::Tls { .. })),
        "{with_the_old_authority:?}"
    );
    before.query("SELECT @@server_id").await.unwrap();
}

/// Waits until the server closes a silent connection.
async fn ended(silent: &mut TcpStream) -> bool {
    let mut greeting = Vec::new();
    let end = silent.read_to_end(&mut greeting);
    tokio::time::timeout(Duration::from_secs(5), end)
        .await
        .is_ok()
}

#[tokio::test]
async fn excess_clients_and_late_logins_are_disconnected() {
    let options = ServerOptions {
        max_connections: 1,
        login_limit: Duration::from_millis(300),
        ..options()
    };
    let served = Served::start(MemoryLog::new(), options).await;
    let mut silent = TcpStream::connect(("127.0.0.1", served.port))
        .await
        .unwrap();
    let mut greeting = [0; 4];
    silent.read_exact(&mut greeting).await.unwrap();
    let only = served.connect().await.unwrap();
    let refused = served.connect().await;
    assert!(
        matches!(&refused, Err(LinkError::Refused { error, .. }) if error.code == 1040),
        "{refused:?}"
    );
    assert!(ended(&mut silent).await);
    drop(only);
    let free_again = async { while served.connect().await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(5), free_again)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_flood_of_unfinished_logins_replaces_only_itself() {
    let served = served().await;
    let mut flood = Vec::new();
    for _ in 0..300 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let there = ([127, 0, 0, 1], served.port).into();
        flood.push(socket.connect(there).await.unwrap());
    }
    let limit = Duration::from_secs(2);
    let connected = tokio::time::timeout(limit, served.connect()).await;
    connected.expect("in time").unwrap();
    // The limit is a hundred connections without a login. At least the first 200 of the 300 are closed.
    for silent in &mut flood[..200] {
        assert!(ended(silent).await);
    }
}

#[tokio::test]
async fn statements_of_replicas_and_clients_are_answered() {
    let served = served().await;
    let mut connection = served.connect().await.unwrap();
    let executed = format!("{}:1", crate::memory_log::SOURCE);
    for (statement, expected) in [
        (
            "SELECT @@GLOBAL.SERVER_UUID",
            "00000000-0000-0000-0000-000000000007",
        ),
        ("SELECT @@GLOBAL.GTID_MODE", "ON"),
        ("SELECT @@GLOBAL.gtid_executed", &executed),
        ("SELECT VERSION()", "9.7.4-test"),
        ("SELECT USER()", "replication@127.0.0.1"),
        (
            "SELECT GTID_SUBTRACT('3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5', '3e11fa47-71ca-11e1-9e33-c80aa9429562:2-4')",
            "3e11fa47-71ca-11e1-9e33-c80aa9429562:1:5",
        ),
        ("SHOW BINARY LOGS", "binlog.000001"),
        ("SHOW BINARY LOG STATUS", "binlog.000001"),
        ("SHOW VARIABLES LIKE 'gtid\\_mod%'", "gtid_mode"),
    ] {
        let answer = connection.query(statement).await.unwrap();
        assert_eq!(
            answer.first().unwrap().text_at(0),
            Some(expected),
            "{statement}"
        );
    }
    connection
        .execute("SET @source_binlog_checksum = @@global.binlog_checksum")
        .await
        .unwrap();
    let answer = connection
        .query("SELECT @source_binlog_checksum AS c")
        .await
        .unwrap();
    assert_eq!(answer.first().unwrap().text_at(0), Some("CRC32"));
    connection
        .execute("PURGE BINARY LOGS TO 'binlog.000001'")
        .await
        .unwrap();
    connection.ping().await.unwrap();

    for (statement, code, words) in [
        (
            "SELECT @@global.rpl_semi_sync_source_enabled",
            1193,
            "Unknown system variable",
        ),
        ("SELECT * FROM t", 1235, "`witness-7`"),
        ("RESET BINARY LOGS AND GTIDS", 1235, "decided by the ring"),
        ("SET GLOBAL read_only = 0", 1235, "decided by the ring"),
        ("FLUSH BINARY LOGS", 1105, "only the leader"),
        (
            "PURGE BINARY LOGS TO 'binlog.000009'",
            1373,
            "SHOW BINARY LOGS",
        ),
        ("SHOW BINLOG EVENTS IN 'x'", 1220, "no such file"),
        ("", 1065, "empty"),
    ] {
        match connection.query(statement).await {
            Err(LinkError::Server(error)) => {
                assert_eq!(error.code, code, "{statement}: {error:?}");
                assert!(error.message.contains(words), "{error:?}");
            }
            other => panic!("{statement}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn only_committed_events_are_listed() {
    let served = served().await;
    let mut connection = served.connect().await.unwrap();
    let answer = connection.query("SHOW BINLOG EVENTS").await.unwrap();
    let column = |at: usize| -> Vec<String> {
        let rows = answer.rows.iter();
        rows.map(|row| row.text_at(at).unwrap_or_default().to_owned())
            .collect()
    };
    let types = [
        "FORMAT_DESCRIPTION",
        "PREVIOUS_GTIDS",
        "IGNORABLE",
        "IGNORABLE",
        "GTID",
        "QUERY",
    ];
    assert_eq!(column(2), types);
    assert_eq!(column(5)[3], "transaction");
    assert!(column(5)[4].ends_with(":1'"), "{:?}", column(5));
    let (begins, ends) = (column(1), column(4));
    assert_eq!(begins[1..], ends[..5]);
    let statement = format!(
        "SHOW BINLOG EVENTS IN 'binlog.000001' FROM {} LIMIT 1, 2",
        begins[2]
    );
    let part = connection.query(statement).await.unwrap();
    assert_eq!(part.rows.len(), 2);
    assert_eq!(part.rows[0].text_at(1), Some(&begins[3][..]));
}

#[tokio::test]
async fn bytes_that_are_no_protocol_end_their_connection_alone() {
    let served = served().await;
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 300], &[0; 64]] {
        let mut stream = TcpStream::connect(("127.0.0.1", served.port))
            .await
            .unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(15), stream.read_to_end(&mut answer));
        // The connection may be reset or closed, but must not stay open.
        drop(read.await.expect("it is ended"));
    }
    served.connect().await.unwrap();
}
