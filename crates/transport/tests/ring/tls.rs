//! mTLS: members of one authority talk; nobody else gets in, and a wrong file is named.

use raft_types::MemberKind::Database;
use transport::{AdminClient, TlsError, TlsFiles, TlsMaterial};

use crate::support::certificates::Authority;
use crate::support::grpc_ring::{GrpcRing, TIMERS, transaction};

fn load(files: &TlsFiles) -> TlsMaterial {
    TlsMaterial::load(files).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_members_of_the_authority_are_heard() {
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

    // It trusts the ring's authority and has a certificate of another one.
    let half = load(&TlsFiles {
        authority: authority.path("authority.pem"),
        ..stranger.sign("half", &["127.0.0.1"])
    });
    status(Some(&half)).await.unwrap_err();

    let elsewhere = load(&TlsFiles {
        peer_name: Some("another.example".to_owned()),
        ..authority.sign("elsewhere", &["127.0.0.1"])
    });
    let words = status(Some(&elsewhere)).await.unwrap_err();
    assert!(words.contains("not valid for"), "{words}");
}

/// First everybody believes both authorities, then come the new certificates, then the old authority goes.
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

    // Who was connected still is; and a leader calls with what it has now.
    connected.status().await.unwrap();
    let last = ring.commit(transaction("after")).await;
    ring.committed_everywhere(last).await;
}

#[test]
fn every_mistake_in_a_file_names_the_file() {
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
