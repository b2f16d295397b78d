//! HTTP with the member's certificate, and with tokens for readers and operators.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use testkit::cluster::http_get;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::program::Scratch;
use crate::program::alone::Alone;

/// A member with certificates of `witness tls init`, which serves HTTPS.
struct Member {
    /// The member's process, which is killed at the end of the test.
    _alone: Alone,
    http: SocketAddr,
    scratch: Scratch,
}

impl Member {
    fn start(http_keys: &str) -> Self {
        let scratch = Scratch::new();
        scratch.write("operators", "orders\n");
        scratch.write("readers", "reads\n");
        let further = format!(
            r#"
http.token_file = "operators"
{http_keys}
[tls]
certificate_file = "tls/only.crt"
key_file = "tls/only.key"
ca_file = "tls/ca.crt"
"#
        );
        let inits =
            ["tls", "strangers"].map(|directory| format!("tls init --directory {directory}"));
        let inits = inits.each_ref().map(String::as_str);
        let alone = Alone::start(&scratch, &further, &inits, &["--bootstrap"]);
        alone.wait_until_ready(&scratch);
        Self {
            http: alone.http,
            _alone: alone,
            scratch,
        }
    }

    /// Returns a client that trusts the authority in a directory.
    fn agent(&self, directory: &str) -> Agent {
        let authority = fs::read(self.scratch.join(directory).join("ca.crt")).expect("a file");
        let authority = Certificate::from_pem(&authority).expect("a certificate");
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(vec![authority])))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let config = Agent::config_builder()
            .timeout_global(Some(Duration::from_secs(3)))
            .http_status_as_error(false)
            .proxy(None)
            .tls_config(tls.build());
        config.build().into()
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.http)
    }

    /// Returns the status code of an answer over HTTPS, and its `WWW-Authenticate` header.
    fn get(&self, path: &str, authorization: Option<&str>) -> (u16, Option<String>) {
        let mut request = self.agent("tls").get(self.url(path));
        if let Some(authorization) = authorization {
            request = request.header("Authorization", authorization);
        }
        let answer = request.call().expect("an answer");
        let asks = answer.headers().get("WWW-Authenticate");
        let asks = asks.map(|asks| asks.to_str().expect("text").to_owned());
        (answer.status().as_u16(), asks)
    }

    fn order(&self, token: &str) -> u16 {
        let request = self.agent("tls").post(self.url("/resume"));
        let request = request.header("Authorization", token);
        request.send_empty().expect("an answer").status().as_u16()
    }
}

#[test]
fn http_has_the_members_certificate() {
    let member = Member::start("");
    let asked = member.agent("strangers").get(member.url("/liveness"));
    let error = asked.call().expect_err("another authority's certificate");
    assert!(error.to_string().contains("certificate"), "{error}");

    // Silent clients, and a client that does not finish its handshake, do not delay other clients.
    let mut slow: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(member.http).expect("a connection"))
        .collect();
    slow[0]
        .write_all(&[22, 3])
        .expect("the begin of a handshake");
    assert_eq!(member.get("/liveness", None).0, 200);
    assert_eq!(member.get("/status", None).0, 200);

    let plain = http_get(member.http, "/liveness").expect("an answer");
    assert_eq!(plain.status, 400);
    assert!(plain.body.contains("speaks HTTPS"), "{}", plain.body);

    // The member disconnects these clients after its time limit.
    for mut stream in slow {
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).expect("a limit");
        let mut rest = Vec::new();
        assert_eq!(stream.read_to_end(&mut rest).expect("its end"), 0);
    }
}

#[test]
fn readers_and_operators_have_tokens_and_load_balancers_need_none() {
    let member = Member::start("http.read_token_file = \"readers\"");
    let basic = "Basic b3BlcmF0b3I6cmVhZHM="; // operator:reads
    for path in [
        "/", "/ring", "/status", "/cluster", "/config", "/history", "/metrics",
    ] {
        let (code, asks) = member.get(path, None);
        assert_eq!(code, 401, "{path}");
        assert!(
            asks.is_some_and(|asks| asks.starts_with("Basic ")),
            "{path}"
        );
        for allowed in ["Bearer reads", "Bearer orders", basic] {
            assert_ne!(member.get(path, Some(allowed)).0, 401, "{path} {allowed}");
        }
    }
    let open = [
        ("/liveness", 200),
        ("/readiness", 200),
        ("/health", 200),
        ("/leader", 200),
        ("/witness", 200),
        ("/primary", 503),
        ("/read-write", 503),
        ("/replica", 503),
        ("/read-only", 503),
    ];
    for (path, code) in open {
        assert_eq!(member.get(path, None).0, code, "{path}");
    }
    assert_eq!(member.order("Bearer reads"), 401);
    assert_eq!(member.order(basic), 401);
    assert_eq!(member.order("Bearer orders"), 412, "failover is not paused");
}

#[test]
fn http_can_do_without_the_certificate() {
    let member = Member::start("http.tls = false");
    let plain = http_get(member.http, "/liveness").expect("an answer");
    assert_eq!(plain.status, 200);
    let asked = member.agent("tls").get(member.url("/liveness"));
    asked.call().expect_err("no TLS");
}
