//! Messages between a ring's members, and the log's records about them.

use bytes::Bytes;
use raft_types::MembershipPayload;
use transport::fuzzing;

use crate::{Target, is_written_the_same};

/// A reservation for a payload that comes in pieces, and the largest zstd frame that is unpacked in one piece.
const PAYLOAD: usize = 16 << 20;

pub(crate) const TARGETS: &[Target] = &[
    // A leader's entries, in messages, whole and in pieces, packed or not.
    Target::new("append-stream", append_stream).within(PAYLOAD, 128),
    // Votes, transfers, heartbeats, reports, questions and their answers, and identities.
    Target::new("ring-message", ring_message),
    // What a leader asks of a proxy in a session.
    Target::new("proxy-requests", |bytes| fuzzing::proxy_requests(bytes) > 0),
    // What a proxy answers in a session.
    Target::new("proxy-answers", |bytes| fuzzing::proxy_answers(bytes) > 0),
    // The metadata of a call, with ring, caller and addressed member.
    Target::new("call-metadata", fuzzing::call_metadata),
    // A caller's certificate, which says what it may do.
    Target::new("certificate", fuzzing::certificate),
    // The membership of an entry, with all that its records carry for the ring.
    Target::new("membership", membership),
];

fn append_stream(bytes: &[u8]) -> bool {
    let requests = fuzzing::append_stream(bytes, false);
    requests.max(fuzzing::append_stream(bytes, true)) > 0
}

fn ring_message(bytes: &[u8]) -> bool {
    is_written_the_same(bytes, fuzzing::message)
}

fn membership(bytes: &[u8]) -> bool {
    is_written_the_same(bytes, |json| {
        let read = MembershipPayload::read(Bytes::copy_from_slice(json)).ok()?;
        assert_eq!(read.json(), json);
        ring_admin::fuzzing::carried(read.membership());
        let sealed = MembershipPayload::seal(read.membership().clone());
        Some(sealed.json().to_vec())
    })
}
