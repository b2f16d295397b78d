//! Every way of authentication and of protecting the connection, against a real mysqld; and the
//! error messages of failures.

use std::time::{Duration, Instant};

use crate::certificates::Certificates;
use anyhow::Result;
use mysql_link::{
    ClientCertificate, ConnectOptions, Connection, Endpoint, LinkError, PublicKeySource, Step,
    TlsMode, TlsOptions,
};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};

const PASSWORD: &str = "p4ss wörd";

fn launch(arguments: &[&str]) -> Result<Mysqld> {
    let options = MysqldOptions::default().with_arguments(arguments.iter().copied());
    let server = Mysqld::launch_with(&MysqlTree::require(), options)?;
    server.client().sql(&format!(
        "CREATE USER w@'%' IDENTIFIED BY '{PASSWORD}'; \
         CREATE USER old@'%' IDENTIFIED WITH sha256_password BY '{PASSWORD}'; \
         CREATE USER x509@'%' IDENTIFIED BY '{PASSWORD}' REQUIRE X509; \
         CREATE USER blank@'%' IDENTIFIED BY ''"
    ))?;
    Ok(server)
}

fn over_tcp(server: &Mysqld, user: &str, mode: TlsMode) -> ConnectOptions {
    let endpoint = Endpoint::tcp("127.0.0.1", server.address().port());
    let mut options = ConnectOptions::new(endpoint, user, PASSWORD);
    options.tls.mode = mode;
    options
}

/// Connects, and checks the user name at the server.
async fn enters(options: &ConnectOptions) -> Result<Connection> {
    let mut connection = Connection::open(options).await?;
    let result = connection
        .query("SELECT SUBSTRING_INDEX(USER(), '@', 1) AS me")
        .await?;
    assert_eq!(
        result.first().and_then(|row| row.text("me")),
        Some(options.user.as_str())
    );
    Ok(connection)
}

async fn refusal(options: &ConnectOptions) -> LinkError {
    match Connection::open(options).await {
        Ok(_) => panic!("it was let in: {options:?}"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn caching_sha2_over_plain_tcp_with_mysqld() -> Result<()> {
    let server = launch(&[])?;
    let plain = over_tcp(&server, "w", TlsMode::Disabled);
    let never = ConnectOptions {
        public_key: PublicKeySource::Never,
        ..plain.clone()
    };
    let pinned = |file: std::path::PathBuf| ConnectOptions {
        public_key: PublicKeySource::File(file),
        ..plain.clone()
    };
    let forget = || server.client().sql("FLUSH PRIVILEGES");

    // The password's digest is not in the server's cache: the password itself must be sent.
    let error = refusal(&never).await;
    assert!(matches!(error, LinkError::PublicKey { .. }), "{error}");
    enters(&plain).await?;
    // The digest is in the cache now: it suffices, and no key is needed.
    enters(&never).await?;

    forget()?;
    enters(&pinned(server.data_dir().join("public_key.pem"))).await?;
    forget()?;
    let foreign = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/keys/public_key.pem");
    let error = refusal(&pinned(foreign.into())).await;
    assert!(matches!(error, LinkError::AccessDenied { .. }), "{error}");
    let error = refusal(&pinned("/nonexistent/key.pem".into())).await;
    assert!(
        error.to_string().contains("/nonexistent/key.pem"),
        "{error}"
    );

    let empty = ConnectOptions {
        password: "".into(),
        ..over_tcp(&server, "blank", TlsMode::Disabled)
    };
    enters(&empty).await?;
    // The server switches to the account's own plugin.
    enters(&over_tcp(&server, "old", TlsMode::Disabled)).await?;
    enters(&over_tcp(&server, "old", TlsMode::Required)).await?;
    Ok(())
}

#[tokio::test]
async fn wrong_passwords_and_absent_servers_with_mysqld() -> Result<()> {
    let mut server = launch(&[])?;
    for mode in [TlsMode::Disabled, TlsMode::Required] {
        for user in ["w", "old", "absent"] {
            let wrong = ConnectOptions {
                password: "wrong".into(),
                ..over_tcp(&server, user, mode)
            };
            let error = refusal(&wrong).await;
            assert!(matches!(error, LinkError::AccessDenied { .. }), "{error}");
            assert_eq!(error.server_code(), Some(1045));
            let told = error.to_string();
            assert!(
                told.contains(&format!("'{user}'@'")),
                "the refused account is missing: {told}"
            );
            assert!(
                told.contains("Check the configured user and password"),
                "{told}"
            );
        }
    }
    let options = over_tcp(&server, "w", TlsMode::Preferred);
    server.pause()?;
    let hurried = ConnectOptions {
        timeouts: mysql_link::Timeouts {
            connect: Duration::from_millis(300),
            ..options.timeouts
        },
        ..options.clone()
    };
    let began = Instant::now();
    let error = refusal(&hurried).await;
    assert!(
        matches!(
            error,
            LinkError::Timeout {
                step: Step::Greeting,
                ..
            }
        ),
        "{error}"
    );
    assert!(began.elapsed() < Duration::from_secs(3));
    server.resume()?;
    enters(&options).await?;
    server.kill()?;
    let error = refusal(&options).await;
    assert!(matches!(error, LinkError::Unreachable { .. }), "{error}");
    let error = refusal(&ConnectOptions::new(
        Endpoint::unix(server.data_dir().join("no")),
        "w",
        "",
    ))
    .await;
    assert!(matches!(error, LinkError::Unreachable { .. }), "{error}");
    Ok(())
}

#[tokio::test]
async fn the_socket_counts_as_secure_with_mysqld() -> Result<()> {
    let server = launch(&[])?;
    for (mode, user) in [
        (TlsMode::Disabled, "w"),
        (TlsMode::VerifyIdentity, "w"),
        (TlsMode::Disabled, "old"),
    ] {
        server.client().sql("FLUSH PRIVILEGES")?;
        let mut options = ConnectOptions::new(Endpoint::unix(server.socket()), user, PASSWORD);
        options.tls.mode = mode;
        if user == "w" {
            options.public_key = PublicKeySource::Never;
        }
        let connection = enters(&options).await?;
        assert!(!connection.is_tls());
    }
    Ok(())
}

#[tokio::test]
async fn tls_modes_with_mysqld() -> Result<()> {
    let files = Certificates::make()?;
    let server = launch(
        &files
            .server_arguments()
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    )?;
    let with = |mode, ca: Option<&str>, host: &str, user: &str| {
        let mut options = over_tcp(&server, user, mode);
        options.endpoint = Endpoint::tcp(host, server.address().port());
        options.tls.ca_file = ca.map(|name| files.path(name));
        options
    };

    for (mode, ca, host) in [
        (TlsMode::Preferred, None, "127.0.0.1"),
        (TlsMode::Required, None, "127.0.0.1"),
        (TlsMode::VerifyCa, Some("ca.pem"), "127.0.0.1"),
        (TlsMode::VerifyIdentity, Some("ca.pem"), "localhost"),
    ] {
        server.client().sql("FLUSH PRIVILEGES")?;
        // With TLS, the password needs no RSA.
        let options = ConnectOptions {
            public_key: PublicKeySource::Never,
            ..with(mode, ca, host, "w")
        };
        assert!(enters(&options).await?.is_tls(), "{mode}");
    }
    assert!(
        !enters(&with(TlsMode::Disabled, None, "127.0.0.1", "w"))
            .await?
            .is_tls()
    );

    // The certificate is for `localhost`.
    let error = refusal(&with(
        TlsMode::VerifyIdentity,
        Some("ca.pem"),
        "127.0.0.1",
        "w",
    ))
    .await;
    assert!(error.to_string().contains("subjectAltName"), "{error}");
    for mode in [TlsMode::VerifyCa, TlsMode::VerifyIdentity] {
        let error = refusal(&with(mode, Some("other-ca.pem"), "localhost", "w")).await;
        assert!(error.to_string().contains("CA file is not that"), "{error}");
    }
    let error = refusal(&with(TlsMode::VerifyCa, None, "localhost", "w")).await;
    assert!(error.to_string().contains("needs a CA file"), "{error}");
    let error = refusal(&with(
        TlsMode::VerifyCa,
        Some("nothing.pem"),
        "localhost",
        "w",
    ))
    .await;
    assert!(error.to_string().contains("nothing.pem"), "{error}");

    // An account that demands a certificate.
    let error = refusal(&with(TlsMode::Required, None, "127.0.0.1", "x509")).await;
    assert!(matches!(error, LinkError::AccessDenied { .. }), "{error}");
    let mut options = with(TlsMode::VerifyCa, Some("ca.pem"), "127.0.0.1", "x509");
    options.tls.client_certificate = Some(ClientCertificate {
        certificate_file: files.path("client.pem"),
        key_file: files.path("client-key.pem"),
    });
    enters(&options).await?;
    Ok(())
}

#[tokio::test]
async fn certificates_that_mysqld_made_for_itself() -> Result<()> {
    let server = launch(&[])?;
    let mut options = over_tcp(&server, "w", TlsMode::VerifyCa);
    options.tls.ca_file = Some(server.data_dir().join("ca.pem"));
    assert!(enters(&options).await?.is_tls());
    options.tls.mode = TlsMode::VerifyIdentity;
    let error = refusal(&options).await;
    assert!(matches!(error, LinkError::Tls { .. }), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_mysqld_without_tls() -> Result<()> {
    let server = launch(&["--tls-version="])?;
    assert!(
        !enters(&over_tcp(&server, "w", TlsMode::Preferred))
            .await?
            .is_tls()
    );
    for mode in [
        TlsMode::Required,
        TlsMode::VerifyCa,
        TlsMode::VerifyIdentity,
    ] {
        let options = ConnectOptions {
            tls: TlsOptions {
                mode,
                ca_file: Some(server.data_dir().join("ca.pem")),
                client_certificate: None,
            },
            ..over_tcp(&server, "w", mode)
        };
        let error = refusal(&options).await;
        assert!(matches!(error, LinkError::TlsNotOffered { .. }), "{error}");
    }
    Ok(())
}
