//! Tests of requests: they are split into messages and assembled again without change. Invalid messages are refused.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use consensus::log_probe::{Asked, Departure};
use openraft::raft::AppendEntriesRequest;
use proptest::prelude::*;
use prost::Message;
use raft_types::{
    AppEntry, CommittedLeaderId, Entry, EntryPayload, LogId, MAX_MESSAGE_BYTES,
    MAX_TRANSACTION_BYTES, MemberId, MemberRecord, Membership, MembershipPayload, Rotate,
    TransactionPayload, TypeConfig, Vote,
};
use spilling_bytes::{SPILLED_FROM, SpillFolder};

use crate::schema::{self, AppendPart, EntryKind};
use crate::wire::append::PART_BYTES;
use crate::wire::{Assembly, PackedRequest, Splitter, WireError};

type Request = AppendEntriesRequest<TypeConfig>;

fn log_id(index: u64) -> LogId {
    LogId {
        leader_id: CommittedLeaderId::new(7),
        index,
    }
}

fn transaction(length: usize) -> EntryPayload {
    let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
    EntryPayload::Normal(AppEntry::Transaction(TransactionPayload::seal(
        bytes.into(),
    )))
}

fn membership() -> EntryPayload {
    let voters: BTreeSet<MemberId> = [1, 2, 3].map(MemberId).into();
    let records: BTreeMap<MemberId, MemberRecord> = voters
        .iter()
        .map(|id| {
            (
                *id,
                MemberRecord {
                    name: format!("m{id}"),
                    ..MemberRecord::default()
                },
            )
        })
        .collect();
    let membership = Membership::new(vec![voters], records).unwrap();
    EntryPayload::Membership(MembershipPayload::seal(membership))
}

fn rotate() -> EntryPayload {
    EntryPayload::Normal(AppEntry::Rotate(Rotate {
        format_description: Bytes::from_static(b"a format description"),
        timestamp: 1_700_000_000,
    }))
}

fn request(previous: Option<u64>, payloads: Vec<EntryPayload>) -> Request {
    let first = previous.map_or(0, |previous| previous + 1);
    Request {
        vote: Vote::new_committed(7, MemberId(3)),
        prev_log_id: previous.map(log_id),
        leader_commit: previous.map(log_id),
        entries: (first..)
            .zip(payloads)
            .map(|(index, payload)| Entry {
                log_id: log_id(index),
                payload,
            })
            .collect(),
    }
}

/// Returns all messages of a request, and the sizes of the requests on the wire.
fn parts(request: Request) -> (Vec<AppendPart>, Vec<usize>) {
    cut(PackedRequest::from(Asked::new(request, true)))
}

fn cut(request: PackedRequest) -> (Vec<AppendPart>, Vec<usize>) {
    cut_to(request, PART_BYTES)
}

fn cut_to(request: PackedRequest, most: usize) -> (Vec<AppendPart>, Vec<usize>) {
    let mut splitter = Splitter::new(request, most);
    let mut messages = Vec::new();
    let mut sizes = Vec::new();
    while let Some(part) = splitter.next_part() {
        assert!(
            part.message.encoded_len() <= MAX_MESSAGE_BYTES,
            "{}",
            part.message.encoded_len()
        );
        assert_eq!(splitter.is_inside_entry(), part.ends_request_of.is_none());
        sizes.extend(part.ends_request_of);
        messages.push(part.message);
    }
    // One report per request is enough, however many messages it has.
    let wanted = messages.iter().filter_map(|part| part.head.as_ref());
    let wanted: Vec<_> = wanted.map(|head| head.wants_report).collect();
    assert!(
        wanted
            .iter()
            .enumerate()
            .all(|(at, wanted)| *wanted == (at == 0))
    );
    (messages, sizes)
}

/// Returns the requests that the receiver passes to its engine.
fn assembled(messages: Vec<AppendPart>) -> Result<Vec<Request>, WireError> {
    let mut assembly = Assembly::default();
    let mut requests = Vec::new();
    for message in messages {
        // Each message is encoded and decoded, as on the wire.
        let message = AppendPart::decode(Bytes::from(message.encode_to_vec())).unwrap();
        requests.extend(assembly.push(message)?);
    }
    Ok(requests)
}

fn check_round_trip(whole: Request) {
    let (messages, sizes) = parts(whole.clone());
    let requests = assembled(messages).unwrap();
    assert_eq!(requests.len(), sizes.len(), "one answer for each");
    let mut previous = whole.prev_log_id;
    let mut entries = Vec::new();
    for request in requests {
        assert_eq!(request.vote, whole.vote);
        assert_eq!(request.leader_commit, whole.leader_commit);
        assert_eq!(request.prev_log_id, previous);
        previous = request
            .entries
            .last()
            .map(|entry| entry.log_id)
            .or(previous);
        entries.extend(request.entries);
    }
    assert_eq!(entries, whole.entries);
}

/// Messages to another region are smaller, and a membership with a long history does not fit into one.
#[test]
fn only_transactions_are_sent_in_pieces() {
    const FAR: usize = 256 << 10;
    let one = MemberId(1);
    let record = MemberRecord {
        name: "n".repeat(2 * FAR),
        ..MemberRecord::default()
    };
    let membership =
        Membership::new(vec![BTreeSet::from([one])], BTreeMap::from([(one, record)])).unwrap();
    let membership = EntryPayload::Membership(MembershipPayload::seal(membership));
    let payloads = [
        transaction(10),
        membership,
        transaction(10),
        transaction(2 * FAR),
    ];
    let whole = request(Some(4), payloads.into());
    let (messages, _) = cut_to(PackedRequest::from(Asked::new(whole.clone(), true)), FAR);
    let requests = assembled(messages).unwrap();
    let arrived: Vec<_> = requests.into_iter().flat_map(|one| one.entries).collect();
    assert_eq!(arrived, whole.entries);
}

fn payload() -> impl Strategy<Value = EntryPayload> {
    prop_oneof![
        1 => Just(EntryPayload::Blank),
        1 => Just(rotate()),
        1 => Just(membership()),
        6 => (0..5_000usize).prop_map(transaction),
        2 => (PART_BYTES - 200..PART_BYTES + 200).prop_map(transaction),
        1 => (2 * PART_BYTES - 200..2 * PART_BYTES + 200).prop_map(transaction),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_request_arrives_as_it_was_sent(
        previous in proptest::option::of(0..1_000u64),
        payloads in proptest::collection::vec(payload(), 0..8),
    ) {
        check_round_trip(request(previous, payloads));
    }

    #[test]
    fn no_message_makes_the_receiver_panic(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        kept in any::<prop::sample::Index>(),
    ) {
        let payloads = vec![EntryPayload::Blank, membership(), rotate(), transaction(20)];
        let (messages, _) = parts(request(Some(4), payloads));
        let mut assembly = Assembly::default();
        for message in messages {
            let mut bytes = message.encode_to_vec();
            for (at, value) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            bytes.truncate(kept.index(bytes.len()) + 1);
            if let Ok(message) = AppendPart::decode(Bytes::from(bytes)) {
                let _ = assembly.push(message);
            }
        }
    }
}

#[test]
fn a_large_entry_arrives_unchanged_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let spill = SpillFolder::open(folder.path(), 0);
    let whole = request(Some(9), vec![transaction(SPILLED_FROM + 7)]);
    let mut assembly = Assembly::spilling(spill.clone());
    let (mut messages, _) = parts(whole.clone());
    let last = messages.pop().unwrap();
    for message in messages.clone() {
        assert!(assembly.push(message).unwrap().is_none());
    }
    let arrived = assembly.push(last.clone()).unwrap().unwrap();
    assert!(spill.bytes() > SPILLED_FROM as u64);
    assert!(arrived.entries == whole.entries);
    // A changed piece is detected in a file, as it is in memory.
    let mut assembly = Assembly::spilling(spill);
    for mut message in messages {
        if !message.continuation.is_empty() {
            message.continuation = vec![0; message.continuation.len()].into();
        }
        assert!(assembly.push(message).unwrap().is_none());
    }
    assert!(matches!(
        assembly.push(last),
        Err(WireError::Damaged { .. })
    ));
}

#[test]
fn many_small_entries_share_messages() {
    let whole = request(Some(9), vec![transaction(500); 5_000]);
    let (messages, sizes) = parts(whole.clone());
    assert_eq!(messages.len(), 3, "2.5 MB of entries");
    assert_eq!(sizes.len(), 3);
    check_round_trip(whole);
}

#[test]
fn a_request_without_entries_is_one_message() {
    let (messages, sizes) = parts(request(None, Vec::new()));
    assert_eq!((messages.len(), sizes), (1, vec![0]));
}

#[test]
fn a_large_entry_is_sent_alone_in_pieces() {
    let payloads = vec![
        transaction(10),
        transaction(3 * MAX_MESSAGE_BYTES),
        transaction(10),
    ];
    let (messages, sizes) = parts(request(None, payloads));
    let pieces = messages
        .iter()
        .filter(|message| message.head.is_none())
        .count();
    assert_eq!(sizes.len(), 3);
    assert_eq!((messages.len(), pieces), (6, 3));
}

#[test]
fn invalid_messages_are_refused() {
    let (large, _) = parts(request(None, vec![transaction(2 * MAX_MESSAGE_BYTES)]));
    let (small, _) = parts(request(None, vec![transaction(10), transaction(20)]));
    let first_entry = |change: fn(&mut schema::Entry)| {
        let mut message = small[0].clone();
        change(&mut message.entries[0]);
        vec![message]
    };
    let without_vote = AppendPart {
        head: Some(schema::AppendHead::default()),
        ..AppendPart::default()
    };
    let cases = [
        (vec![without_vote], "has no vote"),
        (vec![large[1].clone()], "a continuation without an entry"),
        (
            vec![large[0].clone(), small[0].clone()],
            "a request inside an entry",
        ),
        (
            vec![
                large[0].clone(),
                large[1].clone(),
                large[1].clone(),
                large[1].clone(),
            ],
            "does not fit its entry",
        ),
        (
            vec![large[0].clone(), AppendPart::default()],
            "does not fit its entry",
        ),
        (first_entry(|entry| entry.kind = 99), "entry of kind 99"),
        (first_entry(|entry| entry.kind = 0), "has no kind"),
        (
            first_entry(|entry| entry.crc32c ^= 1),
            "was damaged on its way",
        ),
        (
            first_entry(|entry| entry.index = 5),
            "a gap between two entries",
        ),
        (
            first_entry(|entry| entry.body_length = 99),
            "an incomplete entry before another",
        ),
        (
            first_entry(|entry| entry.kind = EntryKind::Membership.into()),
            "cannot be read",
        ),
    ];
    for (messages, message) in cases {
        let error = assembled(messages).unwrap_err().to_string();
        assert!(error.contains(message), "{message}: {error}");
    }
}

#[test]
fn an_announced_length_is_bounded() {
    let (mut large, _) = parts(request(None, vec![transaction(2 * MAX_MESSAGE_BYTES)]));
    large[0].entries[0].body_length = MAX_TRANSACTION_BYTES + 1;
    let error = assembled(vec![large.remove(0)]).unwrap_err().to_string();
    assert!(error.contains("more than the 2147483647"), "{error}");
}

#[test]
fn a_damaged_piece_is_detected_once_the_entry_is_complete() {
    let (mut large, _) = parts(request(None, vec![transaction(2 * MAX_MESSAGE_BYTES)]));
    let mut piece = large[1].continuation.to_vec();
    piece[12_345] ^= 1;
    large[1].continuation = piece.into();
    let error = assembled(large).unwrap_err().to_string();
    assert!(
        error.contains("entry 7.0 was damaged on its way"),
        "{error}"
    );
}

#[test]
fn packed_payloads_arrive_unpacked() {
    // Noise cannot be compressed, so the first payload arrives in pieces.
    let mut state = 1_u32;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    });
    let noise = TransactionPayload::seal(noise.take(3 << 20).collect());
    let mut payloads = vec![EntryPayload::Normal(AppEntry::Transaction(noise))];
    payloads.extend([2000, 100, 300 << 10].map(transaction));
    let whole = request(Some(9), payloads);
    let packed = whole.entries.iter().map(|entry| match &entry.payload {
        EntryPayload::Normal(AppEntry::Transaction(payload)) if payload.bytes().len() > 100 => {
            zstd::bulk::compress(payload.bytes(), 1)
                .ok()
                .map(Bytes::from)
        }
        _ => None,
    });
    let packed: Vec<_> = packed.collect();
    assert!(
        packed[0]
            .as_ref()
            .is_some_and(|packed| packed.len() > 2 * MAX_MESSAGE_BYTES)
    );
    let asked = Asked::new(whole.clone(), true);
    let (messages, _) = cut(PackedRequest { asked, packed });
    assert!(messages.len() > 3, "{} messages", messages.len());
    let entries: Vec<_> = assembled(messages.clone())
        .unwrap()
        .into_iter()
        .flat_map(|request| request.entries)
        .collect();
    assert_eq!(entries, whole.entries);
    let mut damaged = messages;
    let body = &mut damaged.last_mut().unwrap().entries.last_mut().unwrap().body;
    *body = body.iter().map(|byte| byte ^ 0x55).collect();
    let refused = assembled(damaged).unwrap_err();
    assert!(
        refused.to_string().contains("damaged on its way"),
        "{refused}"
    );
}

#[test]
fn a_request_reports_its_sent_pieces() {
    let payloads = vec![transaction(10), transaction(3 * PART_BYTES)];
    let mut asked = Asked::new(request(Some(4), payloads), true);
    asked.departure = Departure::watched();
    let departure = asked.departure.clone();
    let mut splitter = Splitter::new(asked.into(), PART_BYTES);
    let mut pieces = 0;
    loop {
        assert_eq!(departure.pieces(), pieces);
        let ended = departure.is_over();
        let next = splitter.next_part();
        assert_eq!(next.is_none(), ended, "after {pieces} pieces");
        if ended {
            break;
        }
        pieces += 1;
    }
    assert_eq!(pieces, 5);
}
