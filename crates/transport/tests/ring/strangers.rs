//! Calls with a wrong envelope are refused with specific messages. The envelope names another ring, the wrong recipient, or a data
//! directory that the ring does not have.

use std::sync::Arc;

use consensus::log_probe::{Lane, MemberNetwork};
use openraft::errors::RPCError;
use openraft::network::RPCOption;
use openraft::raft::VoteRequest;
use raft_types::MemberKind::Database;
use raft_types::{FormatRange, Incarnation, MemberId, MemberRecord, RingId, Vote};
use ring_admin::{Identity, IdentityBook, LogOrigin, RingState};
use transport::{GrpcNetworkFactory, NetworkOptions};

use crate::support::grpc_ring::{GrpcRing, NoFile, PATIENCE, transaction};

/// Requests a member's vote, and returns the refusal and its message.
async fn refused(
    ring: &GrpcRing,
    own: Identity,
    to: MemberId,
    record: &MemberRecord,
) -> (String, String) {
    refused_for(ring, own, FormatRange::OF_THIS_PROGRAM, to, record).await
}

/// Requests a vote as a member whose program supports other formats, and returns the refusal.
async fn refused_for(
    ring: &GrpcRing,
    own: Identity,
    speaks: FormatRange,
    to: MemberId,
    record: &MemberRecord,
) -> (String, String) {
    let book = IdentityBook::new(own, LogOrigin::default(), Box::new(NoFile));
    let book = Arc::new(book.speaking(speaks, speaks.oldest(), false));
    let options = NetworkOptions {
        config: ring.config,
        ..NetworkOptions::default()
    };
    let factory = GrpcNetworkFactory::new(book, options);
    let mut client = factory.client(Lane::Entries, to, record);
    // Every member would vote for a candidate with this term and log.
    let request = VoteRequest::new(Vote::new(1_000, own.member), None);
    let answer = client.vote(request, true, RPCOption::new(PATIENCE)).await;
    let Err(RPCError::Unreachable(error)) = answer else {
        panic!("{answer:?}");
    };
    let trouble = factory.troubles().remove(&to).unwrap();
    assert!(error.to_string().contains(&trouble.message), "{error}");
    (trouble.refusal.unwrap_or_default(), trouble.message)
}

#[tokio::test]
async fn each_kind_of_stranger_receives_the_reason() {
    let ring = GrpcRing::of(&[Database; 3]).await;
    let committed = ring.commit(transaction("one")).await;
    ring.committed_everywhere(committed).await;
    let (leader, term) = ring.serving().await;
    let member = |id| ring.nodes[&MemberId(id)].book.identity();
    let record = ring.records[&MemberId(2)].clone();

    let own = Identity {
        ring: RingState::Belongs {
            ring: RingId::random(),
        },
        ..member(1)
    };
    let (code, words) = refused(&ring, own, MemberId(2), &record).await;
    assert_eq!(code, "foreign-ring");
    assert!(
        words.contains("member 1 calls from ring")
            && words.contains("but this is member 2 of ring"),
        "{words}"
    );

    let (code, words) = refused(&ring, member(1), MemberId(3), &record).await;
    assert_eq!(code, "wrong-member");
    assert!(
        words.contains("the call is for member 3, but this is member 2"),
        "{words}"
    );

    let wiped = MemberRecord {
        incarnation: Incarnation::random(),
        ..record.clone()
    };
    let (code, words) = refused(&ring, member(1), MemberId(2), &wiped).await;
    assert_eq!(code, "wiped-here");
    assert!(words.contains("it was wiped or replaced"), "{words}");

    let own = Identity {
        incarnation: Incarnation::random(),
        ..member(1)
    };
    let (code, words) = refused(&ring, own, MemberId(2), &record).await;
    assert_eq!(code, "wiped-caller");
    assert!(
        words.contains("member 1 calls with data directory"),
        "{words}"
    );

    let later = "2-3".parse().unwrap();
    let (code, words) = refused_for(&ring, member(1), later, MemberId(2), &record).await;
    assert_eq!(code, "format");
    assert!(
        words.contains("member 1 calls in format 2 of those that it speaks (2-3), and member 2 speaks 1: install a later version of witness at member 2"),
        "{words}"
    );

    let (code, words) = refused(&ring, member(2), MemberId(2), &record).await;
    assert_eq!(code, "same-member");
    assert!(
        words.contains("two processes use the same number"),
        "{words}"
    );

    assert_eq!(
        ring.serving().await,
        (leader, term),
        "the ring was not disturbed"
    );
}

#[tokio::test]
async fn an_invalid_address_is_named() {
    let ring = GrpcRing::of(&[Database]).await;
    let own = ring.nodes[&MemberId(1)].book.identity();
    let record = MemberRecord {
        address: "not an address".to_owned(),
        ..ring.records[&MemberId(1)].clone()
    };
    let (_, words) = refused(&ring, own, MemberId(2), &record).await;
    assert!(
        words.contains("`not an address` is not an address that can be called"),
        "{words}"
    );
    let unknown = MemberRecord {
        address: "127.0.0.1:1".to_owned(),
        ..record
    };
    let (_, words) = refused(&ring, own, MemberId(2), &unknown).await;
    assert!(words.contains("refused"), "{words}");
}
