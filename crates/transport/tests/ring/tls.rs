//! mTLS: only members with certificates of one authority communicate, and an error names the wrong file.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use consensus::log_probe::{Lane, MemberNetwork};
use openraft::network::RPCOption;
use openraft::raft::VoteRequest;
use raft_types::MemberKind::Database;
use raft_types::{MemberId, Vote};
use tokio::sync::mpsc;
use transport::{
    AdminClient, AdminError, CommandCaller, CommandSource, GrpcNetworkFactory, NamedRoles,
    NetworkOptions, Right, TlsError, TlsFiles, TlsMaterial, TransportConfig, serve,
};

use crate::support::certificates::Authority;
use crate::support::grpc_ring::{GrpcRing, PATIENCE, TIMERS, fresh_member, listener, transaction};

fn load(files: &TlsFiles) -> TlsMaterial {
    TlsMaterial::load(files).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_certificates_of_the_authority_are_accepted() {
    let authority = Authority::new();
    let member = load(&authority.sign("member", &["127.0.0.1"]));
    let ring = GrpcRing::with(&[Database; 3], TIMERS, Some(member.clone())).await;
    let last = ring.commit(transaction("one")).await;
    ring.committed_everywhere(last).await;

    let address = ring.records.values().next().unwrap().address.clone();
    let status = async |tls: Option<&TlsMaterial>| {
        let client = AdminClient::new(&address, tls, ring.config).unwrap();
        client.status().await.map_err(|error| error.to_string())
    };
    status(Some(&member)).await.unwrap();

    status(None).await.unwrap_err();
    let stranger = Authority::new();
    let unknown_authority = load(&stranger.sign("stranger", &["127.0.0.1"]));
    let words = status(Some(&unknown_authority)).await.unwrap_err();
    assert!(
        words.contains("UnknownIssuer") || words.contains("invalid peer certificate"),
        "{words}"
    );

    // This member trusts the ring's authority, but another authority signed its certificate.
    let half = load(&TlsFiles {
        authority: authority.path("authority.pem"),
        ..stranger.sign("half", &["127.0.0.1"])
    });
    status(Some(&half)).await.unwrap_err();

    let expired = load(&authority.sign_expired("expired", &["127.0.0.1"]));
    // The caller may observe the end of the connection before it reads the reason.
    let mut refusals = Vec::new();
    while !refusals
        .iter()
        .any(|words: &String| words.contains("CertificateExpired"))
    {
        assert!(refusals.len() < 100, "{refusals:?}");
        refusals.push(status(Some(&expired)).await.unwrap_err());
    }

    let elsewhere = load(&TlsFiles {
        peer_name: Some("another.example".to_owned()),
        ..authority.sign("elsewhere", &["127.0.0.1"])
    });
    let words = status(Some(&elsewhere)).await.unwrap_err();
    assert!(words.contains("not valid for"), "{words}");
}

/// Callers accept a member only while the member's certificate is valid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_certificate_is_rejected() {
    let authority = Authority::new();
    let expired = load(&authority.sign_expired("expired", &["127.0.0.1"]));
    let (listener, address) = listener().await;
    let local = fresh_member(MemberId(9));
    let config = TransportConfig::for_timers(&TIMERS);
    let _server = serve(listener, local, Some(&expired), &config).unwrap();
    let caller = load(&authority.sign("caller", &["127.0.0.1"]));
    let client = AdminClient::new(&address.to_string(), Some(&caller), config).unwrap();
    let words = client.status().await.unwrap_err().to_string();
    assert!(words.contains("certificate expired"), "{words}");
}

/// If TLS sessions were resumed, the certificate would not be checked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_with_an_expired_certificate_cannot_reconnect() {
    let authority = Authority::new();
    let own = load(&authority.sign("own", &["127.0.0.1"]));
    let (listener, address) = listener().await;
    let config = TransportConfig::for_timers(&TIMERS);
    let _server = serve(listener, fresh_member(MemberId(9)), Some(&own), &config).unwrap();
    // The end of a certificate's validity is in whole seconds.
    let end = SystemTime::now() + Duration::from_secs(3);
    let caller = load(&authority.sign_until("caller", &["127.0.0.1"], end));
    let status = async || {
        let client = AdminClient::new(&address.to_string(), Some(&caller), config).unwrap();
        client.status().await.map_err(|error| error.to_string())
    };
    status().await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    status().await.unwrap_err();
}

/// Only members can request votes, only operators can give commands, and readers can only read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_certificate_has_exactly_the_rights_of_its_role() {
    let authority = Authority::new();
    let member = TlsFiles {
        roles: NamedRoles {
            operators: vec!["ben".to_owned(), "ana".to_owned()],
            readers: vec!["dashboard".to_owned(), "grafana".to_owned()],
            ..NamedRoles::default()
        },
        ..authority.sign_with_role("n-1", &["127.0.0.1"], Some("member"))
    };
    let tls = load(&member);
    let ring = GrpcRing::with(&[Database; 3], TIMERS, Some(tls.clone())).await;
    // The members accept each other's calls.
    let last = ring.commit(transaction("one")).await;
    ring.committed_everywhere(last).await;
    let second = MemberId(2);
    let record = ring.records[&second].clone();

    let (listener, address) = listener().await;
    let local = fresh_member(MemberId(9));
    let _ = local.commands.set(Arc::new(Taker));
    let _server = serve(listener, local, Some(&tls), &ring.config).unwrap();

    // The tested rights: reading, commands, a question between members, and a Raft call.
    let allowed = async |files: &TlsFiles| {
        let tls = load(files);
        let client = AdminClient::new(&address.to_string(), Some(&tls), ring.config).unwrap();
        match client.identify().await {
            Ok(_) | Err(AdminError::NotAllowed { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        let command = async |word: &'static [u8]| match client.command(word.into()).await {
            Ok(_) => true,
            Err(AdminError::NotAllowed { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        let (reads, orders) = (command(b"read").await, command(b"order").await);
        let member_asks = command(b"member").await;
        let log = client.read_log(String::new(), 1).await.unwrap_err();
        let reads_log = !matches!(log, AdminError::NotAllowed { .. });
        let options = NetworkOptions {
            tls: Some(tls),
            config: ring.config,
            ..NetworkOptions::default()
        };
        let factory = GrpcNetworkFactory::new(ring.book(MemberId(1)), options);
        let mut caller = factory.client(Lane::Entries, second, &record);
        let request = VoteRequest::new(Vote::new(0, MemberId(1)), None);
        let asked = caller.vote(request, true, RPCOption::new(PATIENCE)).await;
        if let Err(error) = &asked {
            let words = error.to_string();
            assert!(words.contains("this takes a member's"), "{words}");
        }
        [reads, reads_log, orders, member_asks, asked.is_ok()]
    };
    let of = |name, role| authority.sign_with_role(name, &[], role);
    let a_member = [true, true, false, true, true];
    let an_operator = [true, true, true, false, false];
    let a_reader = [true, false, false, false, false];
    for (name, role, rights) in [
        ("n-1", Some("member"), a_member),
        ("ana", Some("operator"), an_operator),
        ("grafana", Some("reader"), a_reader),
        // These certificates are from an authority that signs no roles.
        ("db-1", None, a_member),
        ("ben", None, an_operator),
        ("dashboard", None, a_reader),
        // These certificates are from an authority that signs any URI.
        ("eve", Some("operator"), [false; 5]),
        ("eve", Some("reader"), [false; 5]),
        ("ben", Some("member"), [false; 5]),
    ] {
        assert_eq!(allowed(&of(name, role)).await, rights, "{name} {role:?}");
    }

    // After a reload, new operators are accepted on existing connections too.
    let ben = load(&of("ben", None));
    let client = AdminClient::new(&address.to_string(), Some(&ben), ring.config).unwrap();
    client.command(b"order"[..].into()).await.unwrap();
    tls.renew(&load(&TlsFiles {
        roles: NamedRoles::default(),
        ..member
    }));
    let refused = client.command(b"order"[..].into()).await.unwrap_err();
    let words = refused.to_string();
    assert!(
        words.contains("the certificate of `ben` is a member's: it gives no commands"),
        "{words}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_tls_names_the_missing_flags() {
    let authority = Authority::new();
    let member = load(&authority.sign("member", &["127.0.0.1"]));
    let ring = GrpcRing::with(&[Database], TIMERS, Some(member)).await;
    let address = ring.records.values().next().unwrap().address.clone();
    let client = AdminClient::new(&address, None, ring.config).unwrap();
    let error = client.status().await.unwrap_err().to_string();
    assert!(error.contains("give --tls-certificate-file"), "{error}");
    assert!(!error.contains("http2") && !error.contains("h2"), "{error}");
}

/// Accepts every command. The command's first letter determines the required right.
struct Taker;

impl CommandSource for Taker {
    fn right(&self, json: &[u8]) -> Right {
        match json.first() {
            Some(b'r') => Right::Read,
            Some(b'm') => Right::SpeakAsMember,
            _ => Right::Operate,
        }
    }

    fn command(&self, _: CommandCaller, _: Bytes) -> mpsc::Receiver<Bytes> {
        mpsc::channel(1).1
    }
}

/// A rotation: first all members trust both authorities, then the certificates change, then the old authority is removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authority_and_certificates_are_renewed_while_the_ring_commits() {
    let (old, new) = (Authority::new(), Authority::new());
    let both = std::fs::read_to_string(old.path("authority.pem")).unwrap()
        + &std::fs::read_to_string(new.path("authority.pem")).unwrap();
    let both = old.write("both.pem", &both);
    let before = old.sign("before", &["127.0.0.1"]);
    let after = new.sign("after", &["127.0.0.1"]);
    let member = load(&before);
    let ring = GrpcRing::with(&[Database; 3], TIMERS, Some(member.clone())).await;
    ring.commit(transaction("before")).await;

    let address = ring.records.values().next().unwrap().address.clone();
    let status = async |files: &TlsFiles| {
        let client = AdminClient::new(&address, Some(&load(files)), ring.config).unwrap();
        client.status().await.map_err(|error| error.to_string())
    };
    let believing_both = |files: &TlsFiles| TlsFiles {
        authority: both.clone(),
        ..files.clone()
    };
    let connected = AdminClient::new(&address, Some(&member), ring.config).unwrap();
    connected.status().await.unwrap();

    member.renew(&load(&believing_both(&before)));
    status(&before).await.unwrap();
    member.renew(&load(&believing_both(&after)));
    status(&believing_both(&before)).await.unwrap();
    status(&before).await.unwrap_err();
    member.renew(&load(&after));
    status(&after).await.unwrap();
    status(&believing_both(&before)).await.unwrap_err();

    // Existing connections continue. A leader's new calls use its new certificate.
    connected.status().await.unwrap();
    let last = ring.commit(transaction("after")).await;
    ring.committed_everywhere(last).await;
}

#[test]
fn every_invalid_tls_file_is_named() {
    let authority = Authority::new();
    let good = authority.sign("good", &["127.0.0.1"]);
    let other = authority.sign("other", &["127.0.0.1"]);
    load(&good);

    let broken =
        "-----BEGIN CERTIFICATE-----\nbm90IGEgY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n";
    let cases: [(TlsFiles, &str); 6] = [
        (
            TlsFiles {
                certificate: authority.path("nowhere.pem"),
                ..good.clone()
            },
            "nowhere.pem` cannot be read",
        ),
        (
            TlsFiles {
                certificate: good.key.clone(),
                ..good.clone()
            },
            "good.key` has no CERTIFICATE block",
        ),
        (
            TlsFiles {
                key: good.certificate.clone(),
                ..good.clone()
            },
            "good.pem` has no PRIVATE KEY block",
        ),
        (
            TlsFiles {
                key: other.key.clone(),
                ..good.clone()
            },
            "other.key` does not belong to the certificate",
        ),
        (
            TlsFiles {
                authority: authority.write("broken-authority.pem", broken),
                ..good.clone()
            },
            "broken-authority.pem` is damaged",
        ),
        (
            TlsFiles {
                certificate: authority.write("broken.pem", broken),
                ..good.clone()
            },
            "broken.pem` is damaged",
        ),
    ];
    for (files, words) in cases {
        let error: TlsError = TlsMaterial::load(&files).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// A certificate that other members would reject is detected before it is used.
#[test]
fn a_certificate_that_others_reject_is_reported_with_the_reason() {
    let authority = Authority::new();
    let stranger = Authority::new();
    let now = SystemTime::now();
    let day = Duration::from_secs(86_400);
    let host = "127.0.0.1";
    let check = |files: &TlsFiles, host| {
        let checked = load(files).check(host, now);
        checked.map_err(|error| error.to_string())
    };

    let own = |name, role| authority.sign_with_role(name, &[host], role);
    for role in [None, Some("member")] {
        let left = check(&own("db-1", role), host).unwrap().left;
        assert!(left > day * 365, "{left:?}");
    }
    let soon = authority.sign_until("soon", &[host], now + day * 3);
    assert!((day * 2..=day * 3).contains(&check(&soon, host).unwrap().left));
    let shared = TlsFiles {
        peer_name: Some("ring.example".to_owned()),
        ..authority.sign("shared", &["ring.example"])
    };
    check(&shared, host).unwrap();

    let listed = |members: &[&str]| TlsFiles {
        roles: NamedRoles {
            members: members.iter().map(|&name| name.to_owned()).collect(),
            ..NamedRoles::default()
        },
        ..own("db-1", None)
    };
    check(&listed(&["db-1"]), host).unwrap();
    let half = TlsFiles {
        authority: authority.path("authority.pem"),
        ..stranger.sign("half", &[host])
    };
    for (files, words) in [
        (
            authority.sign_expired("old", &[host]),
            "old.pem` expired on 20",
        ),
        (
            authority.sign_from("early", &[host], now + day),
            "early.pem` is not valid before 20",
        ),
        (half, "half.pem` is not signed by an authority of `"),
        (
            authority.sign_with_role("db-2", &["10.0.0.2"], Some("member")),
            "db-2.pem` is not for `127.0.0.1`, which the others look for",
        ),
        (
            TlsFiles {
                peer_name: Some("ring.example".to_owned()),
                ..own("unnamed", None)
            },
            "is not for `ring.example`",
        ),
        (
            own("eve", Some("reader")),
            "the certificate of `eve` is a reader's",
        ),
        (
            own("ana", Some("operator")),
            "the certificate of `ana` is an operator's",
        ),
        (listed(&["db-2"]), "the certificate of `db-1` says no role"),
    ] {
        let error = check(&files, host).unwrap_err();
        assert!(error.contains(words), "`{words}`: {error}");
        assert!(
            error.contains("do not talk to a member that shows it; "),
            "{error}"
        );
    }
}

/// Without new connections, a refused member would use its old certificate forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_refused_for_its_certificate_is_accepted_with_a_new_one() {
    let authority = Authority::new();
    let ring_own = load(&authority.sign_with_role("n-1", &["127.0.0.1"], Some("member")));
    let ring = GrpcRing::with(&[Database; 3], TIMERS, Some(ring_own)).await;
    let last = ring.commit(transaction("one")).await;
    ring.committed_everywhere(last).await;

    let second = MemberId(2);
    let record = ring.records[&second].clone();
    let wrong = authority.sign_with_role("db-1", &["127.0.0.1"], Some("reader"));
    let tls = load(&wrong);
    let book = ring.book(MemberId(1));
    let options = NetworkOptions {
        tls: Some(tls.clone()),
        config: ring.config,
        ..NetworkOptions::default()
    };
    let factory = GrpcNetworkFactory::new(book, options);
    let mut caller = factory.client(Lane::Entries, second, &record);
    let mut asked = async || {
        let request = VoteRequest::new(Vote::new(0, MemberId(1)), None);
        caller.vote(request, true, RPCOption::new(PATIENCE)).await
    };
    for _ in 0..20 {
        let words = asked().await.unwrap_err().to_string();
        assert!(
            words.contains("the certificate of `db-1` is a reader's"),
            "{words}"
        );
    }
    let trouble = factory.troubles().remove(&second).unwrap();
    assert!(trouble.message.contains("is a reader's"), "{trouble:?}");

    // The right files replace the wrong ones, and are reloaded.
    authority.sign_with_role("db-1", &["127.0.0.1"], Some("member"));
    tls.renew(&load(&wrong));
    let begin = Instant::now();
    while let Err(error) = asked().await {
        assert!(begin.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(factory.troubles().is_empty(), "{:?}", factory.troubles());
}
