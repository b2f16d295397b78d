//! Targets for messages between members, and for records about members in the log.

use bytes::Bytes;
use raft_types::MembershipPayload;
use transport::fuzzing;

use crate::{Target, is_written_the_same};

/// Memory for a payload that arrives in several parts, and for the largest zstd frame that is unpacked at a time.
const PAYLOAD: usize = 16 << 20;

pub(crate) const TARGETS: &[Target] = &[
    // A leader's messages with entries. Entries arrive whole or in parts, compressed or uncompressed.
    Target::new("append-stream", append_stream).within(PAYLOAD, 128),
    // Small messages: votes, transfers, heartbeats, reports, requests with their answers, and identities.
    Target::new("ring-message", ring_message),
    // A leader's requests to a proxy in one session.
    Target::new("proxy-requests", |bytes| fuzzing::proxy_requests(bytes) > 0),
    // A proxy's answers in one session.
    Target::new("proxy-answers", |bytes| fuzzing::proxy_answers(bytes) > 0),
    // The metadata of a call: the ring, the caller and the addressed member.
    Target::new("call-metadata", fuzzing::call_metadata),
    // A caller's certificate, which determines the caller's rights.
    Target::new("certificate", fuzzing::certificate),
    // A membership entry, with all records about the ring that it contains.
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
