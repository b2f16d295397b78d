//! Entries for tests and benches of the log: transactions of a wanted size that are valid binlog
//! events, rotations, memberships, blanks.

use binlog_format::event::EventFlags;
use binlog_format::events::{
    EncodeEvent, EventOrigin, FormatDescription, GtidEvent, GtidForm, LogicalClock, Query, RowsQuery, Xid,
};
use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};
use raft_types::{
    AppEntry, Entry, EntryPayload, LogId, MemberId, MemberRecord, Membership, OpId, Rotate, TransactionPayload,
};

/// The server on which the transactions seem to originate.
const SERVER_ID: u32 = 11;

fn origin(timestamp: u32) -> EventOrigin {
    EventOrigin { timestamp, server_id: SERVER_ID, flags: EventFlags::NONE }
}

/// The GTID of the transaction that [`transaction_events`] makes for a number.
#[must_use]
pub fn gtid(number: u64) -> Gtid {
    Gtid { source: SourceId::from_bytes([0xaa; 16]), tag: Tag::NONE, gno: Gno::new(number + 1).unwrap_or(Gno::MAX) }
}

/// The canonical events of a transaction with about `bytes` bytes of text in it: GTID, BEGIN, the
/// text as a comment, and XID.
#[must_use]
pub fn transaction_events(number: u64, bytes: usize) -> Vec<u8> {
    let text: Vec<u8> = (0..bytes).map(|at| b'a' + ((number as usize + at) % 26) as u8).collect();
    let timestamp = 1_700_000_000 + number as u32;
    let gtid = GtidEvent {
        form: GtidForm::Classic,
        flags: 0,
        gtid: gtid(number),
        clock: LogicalClock { last_committed: number as i64, sequence_number: number as i64 + 1 },
        immediate_commit: None,
        original_commit: None,
        transaction_length: None,
        immediate_version: None,
        original_version: None,
        commit_group_ticket: None,
    };
    let begin = Query { thread_id: 7, statement: b"BEGIN".into(), ..Query::default() };
    let mut events = Vec::with_capacity(bytes + 200);
    gtid.encode_into(origin(timestamp), &mut events);
    begin.encode_into(origin(timestamp), &mut events);
    RowsQuery { unread_length: 0, statement: text.into() }.encode_into(
        EventOrigin { flags: EventFlags::IGNORABLE, ..origin(timestamp) },
        &mut events,
    );
    Xid { xid: number }.encode_into(origin(timestamp), &mut events);
    events
}

/// A transaction entry.
#[must_use]
pub fn transaction(op_id: OpId, bytes: usize) -> Entry {
    let payload = TransactionPayload::seal(transaction_events(op_id.index, bytes).into());
    entry(op_id, EntryPayload::Normal(AppEntry::Transaction(payload)))
}

/// A blank entry.
#[must_use]
pub fn blank(op_id: OpId) -> Entry {
    entry(op_id, EntryPayload::Blank)
}

/// A rotate entry.
#[must_use]
pub fn rotate(op_id: OpId) -> Entry {
    let format_description = FormatDescription::built_in("8.4.3").encode(origin(0)).into();
    let rotate = Rotate { format_description, timestamp: 1_700_000_000 + op_id.index as u32 };
    entry(op_id, EntryPayload::Normal(AppEntry::Rotate(rotate)))
}

/// A membership entry with these voters.
#[must_use]
pub fn membership(op_id: OpId, voters: &[u64]) -> Entry {
    let ids = voters.iter().copied().map(MemberId);
    let nodes = ids.clone().map(|id| (id, MemberRecord { name: format!("member-{id}"), ..MemberRecord::default() }));
    let membership = Membership::new_with_defaults(vec![ids.collect()], []);
    let membership = Membership::new(
        membership.get_joint_config().clone(),
        nodes.collect::<std::collections::BTreeMap<_, _>>(),
    )
    .unwrap_or(membership);
    entry(op_id, EntryPayload::Membership(membership))
}

fn entry(op_id: OpId, payload: EntryPayload) -> Entry {
    Entry { log_id: LogId::from(op_id), payload }
}
