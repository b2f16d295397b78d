//! Tests of the embedded database and of the proof, on a ring of one member.

use std::path::Path;

use binlog_format::gtid::{Gno, Gtid, GtidSet, SourceId, Tag};
use uuid::Uuid;

use crate::config::{Sources, read};
use crate::demo::embedded::primary::{Primary, Transfer};
use crate::demo::embedded::stage::EmbeddedMember;
use crate::demo::proof::prove;
use crate::demo::story::Story;

const TRANSFERS: usize = 20;

fn member(data_dir: &Path) -> EmbeddedMember {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let flags = [
        ("data_dir", data_dir.display().to_string()),
        ("ring.name", "alone".into()),
        ("member.id", "1".into()),
        ("raft.heartbeat", "20ms".into()),
        ("log.disk_reserve_bytes", "0".into()),
        (
            "members",
            format!(
                "[{{ id = 1, name = \"a\", region = \"r\", kind = \"witness\", address = \"{address}\" }}]"
            ),
        ),
    ];
    let sources = Sources {
        flags: flags.map(|(key, value)| (key.to_owned(), value)).into(),
        ..Sources::default()
    };
    let (config, problems) = read(&sources);
    EmbeddedMember::new(config.unwrap_or_else(|| panic!("{problems}")).member)
}

/// Writes transfers and answers with the acknowledged GTIDs.
async fn write(data_dir: &Path) -> GtidSet {
    let member = member(data_dir);
    member.start(true).await.unwrap();
    let (primary, client, acknowledged) = Primary::new(SourceId(Uuid::new_v4()), member.ring());
    let working = tokio::spawn(primary.run());
    for turn in 0..TRANSFERS {
        let transfer = Transfer {
            from: turn,
            to: turn,
            amount: 5,
        };
        client.commit(transfer).await.unwrap();
    }
    drop(client);
    working.await.unwrap().unwrap();
    member.stop().await.unwrap();
    acknowledged.set()
}

fn story() -> Story {
    Story {
        acknowledged_total: 1,
        ..Story::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proof_finds_what_is_lost_and_what_differs() {
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().join("a");
    let acknowledged = write(&data_dir).await;
    assert!(
        acknowledged.count() > TRANSFERS as u128,
        "the transfers and what made the bank"
    );

    let mut whole = story();
    prove(
        &mut whole,
        &acknowledged,
        &[data_dir.clone(), data_dir.clone()],
    )
    .unwrap();
    assert_eq!(
        (whole.lost_total, whole.doubled_total, whole.ok),
        (0, 0, true)
    );

    let mut more = acknowledged.clone();
    more.add(Gtid {
        source: SourceId(Uuid::new_v4()),
        tag: Tag::NONE,
        gno: Gno::MIN,
    });
    let mut lost = story();
    prove(&mut lost, &more, &[data_dir.clone(), data_dir.clone()]).unwrap();
    assert_eq!(
        (lost.lost_total, lost.ok),
        (2, false),
        "one on each of two members"
    );

    let other = directory.path().join("b");
    let theirs = write(&other).await;
    let mut different = story();
    prove(&mut different, &theirs, &[other, data_dir]).unwrap();
    assert!(
        different.difference.is_some() && !different.ok,
        "{different:?}"
    );
    assert_eq!(
        different.lost_total,
        theirs.count() as u64,
        "nothing of it is in the other log"
    );
}
