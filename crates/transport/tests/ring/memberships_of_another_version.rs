//! A membership of a later version passes through a ring of this version unchanged.

use raft_types::{Entry, EntryPayload, MemberId, MemberKind, MembershipPayload, OpId, Vote};
use serde_json::{Value, json};

use crate::support::grpc_ring::{GrpcRing, listener, record, transaction, within};
use crate::support::memory_log::MemoryDisk;

/// Returns the bytes of all memberships in a log.
fn memberships(disk: &MemoryDisk) -> Vec<String> {
    let payloads = disk.all().into_iter().map(|entry| entry.payload);
    let memberships = payloads.filter_map(|payload| match payload {
        EntryPayload::Membership(payload) => {
            Some(String::from_utf8(payload.json().to_vec()).unwrap())
        }
        _ => None,
    });
    memberships.collect()
}

#[tokio::test]
async fn all_logs_have_its_bytes_and_what_follows_keeps_its_fields() {
    let mut ring = GrpcRing::of(&[
        MemberKind::Database,
        MemberKind::Witness,
        MemberKind::Witness,
    ])
    .await;
    let last = ring.commit(transaction("before")).await;
    ring.committed_everywhere(last).await;
    let ids: Vec<MemberId> = ring.records.keys().copied().collect();
    let mut disks = Vec::new();
    for id in &ids {
        disks.push(ring.stop(*id).await);
    }

    // Member 1 led with a later version, and wrote this membership before all members stopped.
    let mut later: Value = serde_json::from_str(&memberships(&disks[0])[0]).unwrap();
    later["written_by"] = json!("2.0");
    later["nodes"]["1"]["rack"] = json!({"row": "b7"});
    let later = format!("{later:#}");
    let index = disks[0].all().last().unwrap().log_id.index + 1;
    let payload = MembershipPayload::read(later.clone().into()).unwrap();
    let entry = Entry {
        log_id: OpId::new(50, index).into(),
        payload: EntryPayload::Membership(payload),
    };
    disks[0].preload(Vote::new(50, MemberId(1)), [entry]);
    for (id, disk) in ids.iter().zip(disks) {
        ring.restart(*id, disk).await;
    }

    // The leader, which has this version, adds a member to that membership.
    ring.commit(transaction("under the later one's membership"))
        .await;
    let (leader, _) = ring.serving().await;
    let newcomer = MemberId(4);
    let (_, address) = listener().await;
    let newcomers = record(newcomer, MemberKind::Witness, address);
    let added = within(
        "the joining",
        ring.member(leader)
            .add_member(newcomer, newcomers, None, "anna"),
    )
    .await;
    ring.committed_everywhere(added.unwrap()).await;

    let logs: Vec<Vec<String>> = ids
        .iter()
        .map(|id| memberships(&ring.nodes[id].disk))
        .collect();
    for (id, log) in ids.iter().zip(&logs) {
        assert_eq!(
            *log, logs[0],
            "the log of member {id} is not that of member 1"
        );
        assert!(log.contains(&later), "member {id} has {log:#?}");
        let derived: Value = serde_json::from_str(log.last().unwrap()).unwrap();
        assert_eq!(derived["nodes"]["1"]["rack"]["row"], "b7", "{derived:#}");
        assert_eq!(derived["nodes"]["4"]["name"], "member-4");
    }
}
