//! Any value of a typed view survives encoding and decoding.

use std::borrow::Cow;

use binlog_format::canonical::{canonicalise, stamp, unstamp};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventRef, RawEvent};
use binlog_format::events::{
    CommitTimestamp, Compression, EncodeEvent, EventOrigin, FormatDescription, GtidEvent,
    Heartbeat, Ignorable, LogicalClock, Query, Rotate, Rows, RowsChange, ServerVersion, TableId,
    TableMap, TransactionPayload, XaPrepare, Xid,
};
use binlog_format::gtid::{Gno, Gtid, SourceId, Tag};
use bytes::Bytes;
use proptest::prelude::*;

fn bytes(longest: usize) -> impl Strategy<Value = Cow<'static, [u8]>> {
    proptest::collection::vec(any::<u8>(), 0..=longest).prop_map(Cow::Owned)
}

fn origins() -> impl Strategy<Value = EventOrigin> {
    (any::<u32>(), any::<u32>(), any::<u16>()).prop_map(|(timestamp, server_id, flags)| {
        EventOrigin {
            timestamp,
            server_id,
            flags: EventFlags(flags),
        }
    })
}

/// Encodes and stamps an event, decodes it again, and compares it with the input. Then passes the event to `check`.
fn through_a_file(
    event: &impl EncodeEvent,
    origin: EventOrigin,
    offset: u64,
    check: impl FnOnce(EventRef<'_>) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let canonical = event.encode(origin);
    let mut stored = Vec::new();
    stamp(&canonical, offset, &mut stored).unwrap();
    prop_assert_eq!(&unstamp(&stored).unwrap(), &canonical);
    let raw = RawEvent::new(Bytes::from(stored)).unwrap();
    prop_assert_eq!(
        &canonicalise(&raw, ChecksumAlgorithm::Crc32).unwrap(),
        &canonical
    );
    let view = EventRef::new(&canonical).unwrap();
    prop_assert_eq!(EventOrigin::from(view.header()), origin);
    check(view)
}

fn tags() -> impl Strategy<Value = Tag> {
    "[a-z_][a-z0-9_]{0,31}".prop_map(|name| Tag::new(name.as_bytes()).unwrap())
}

fn commits() -> impl Strategy<Value = CommitTimestamp> {
    (0..1_u64 << 55).prop_map(CommitTimestamp)
}

fn versions() -> impl Strategy<Value = ServerVersion> {
    (0..1_u32 << 31).prop_map(ServerVersion)
}

prop_compose! {
    /// Events with all fields of the tagged form.
    fn tagged_events()(
        flags in any::<u8>(),
        source in any::<[u8; 16]>(),
        tag in prop_oneof![Just(Tag::NONE), tags()],
        gno in 1..=Gno::MAX.get(),
        last_committed in any::<i64>(),
        sequence_number in any::<i64>(),
        immediate_commit in proptest::option::of(any::<u64>()),
        original_commit in proptest::option::of(any::<u64>()),
        transaction_length in proptest::option::of(any::<u64>()),
        versions in (proptest::option::of(any::<u32>()), proptest::option::of(any::<u32>())),
        commit_group_ticket in proptest::option::of(any::<u64>()),
    ) -> GtidEvent {
        GtidEvent {
            tagged: true,
            flags,
            gtid: Gtid { source: SourceId::from_bytes(source), tag, gno: Gno::new(gno).unwrap() },
            clock: LogicalClock { last_committed, sequence_number },
            immediate_commit: immediate_commit.map(CommitTimestamp),
            original_commit: original_commit.map(CommitTimestamp),
            transaction_length,
            immediate_version: versions.0.map(ServerVersion),
            original_version: versions.1.map(ServerVersion),
            commit_group_ticket,
        }
    }
}

prop_compose! {
    /// Events with the fields that some version of MySQL writes.
    fn classic_events()(
        tagged in tagged_events(),
        pieces in 0..=4,
        immediate_commit in commits(),
        original_commit in proptest::option::of(commits()),
        transaction_length in any::<u64>(),
        immediate_version in versions(),
        original_version in proptest::option::of(versions()),
        commit_group_ticket in any::<u64>(),
    ) -> GtidEvent {
        GtidEvent {
            tagged: false,
            gtid: Gtid { tag: Tag::NONE, ..tagged.gtid },
            immediate_commit: (pieces > 0).then_some(immediate_commit),
            original_commit: original_commit.filter(|_| pieces > 0),
            transaction_length: (pieces > 1).then_some(transaction_length),
            immediate_version: (pieces > 2).then_some(immediate_version),
            original_version: original_version.filter(|_| pieces > 2),
            commit_group_ticket: (pieces > 3).then_some(commit_group_ticket),
            ..tagged
        }
    }
}

prop_compose! {
    fn rows_events()(
        kind in 0..7,
        table_id in 0..1_u64 << 48,
        flags in any::<u16>(),
        extra in bytes(20),
        columns in 0..40_usize,
        bits in proptest::collection::vec(any::<u8>(), 10),
        images in bytes(100),
    ) -> Rows<'static> {
        let (change, version_2) = match kind {
            0 => (RowsChange::Write, false),
            1 => (RowsChange::Update, false),
            2 => (RowsChange::Delete, false),
            3 => (RowsChange::Write, true),
            4 => (RowsChange::Update, true),
            5 => (RowsChange::Delete, true),
            _ => (RowsChange::PartialUpdate, true),
        };
        let bits_len = columns.div_ceil(8);
        let after = if change.has_two_images() { bits[5..5 + bits_len].to_vec() } else { Vec::new() };
        Rows {
            change,
            table_id: TableId(table_id),
            flags,
            extra_data: version_2.then_some(extra),
            column_count: columns as u64,
            columns: Cow::Owned(bits[..bits_len].to_vec()),
            columns_after: Cow::Owned(after),
            images,
        }
    }
}

prop_compose! {
    fn table_maps()(
        table_id in 0..1_u64 << 48,
        flags in any::<u16>(),
        schema in bytes(70),
        table in bytes(300),
        column_types in bytes(300),
        metadata in bytes(300),
        bits in proptest::collection::vec(any::<u8>(), 38),
        optional_metadata in bytes(50),
    ) -> TableMap<'static> {
        let nullable = Cow::Owned(bits[..column_types.len().div_ceil(8)].to_vec());
        TableMap { table_id: TableId(table_id), flags, schema, table, column_types, metadata, nullable, optional_metadata }
    }
}

proptest! {
    #[test]
    fn gtid_events(event in prop_oneof![tagged_events(), classic_events()], origin in origins(), offset in any::<u32>()) {
        through_a_file(&event, origin, u64::from(offset), |view| {
            prop_assert_eq!(GtidEvent::decode(view).unwrap(), event.clone());
            Ok(())
        })?;
    }

    #[test]
    fn rows(event in rows_events(), origin in origins(), offset in any::<u64>()) {
        through_a_file(&event, origin, offset, |view| {
            prop_assert_eq!(Rows::decode(view).unwrap(), event.clone());
            Ok(())
        })?;
    }

    #[test]
    fn maps_of_tables(event in table_maps(), origin in origins()) {
        through_a_file(&event, origin, 4, |view| {
            prop_assert_eq!(TableMap::decode(view).unwrap(), event.clone());
            Ok(())
        })?;
    }

    #[test]
    fn statements(
        numbers in (any::<u32>(), any::<u32>(), any::<u16>()),
        status_variables in bytes(300),
        schema in bytes(255),
        statement in bytes(300),
        origin in origins(),
    ) {
        let (thread_id, execution_seconds, error_code) = numbers;
        let event = Query { thread_id, execution_seconds, error_code, status_variables, schema, statement };
        through_a_file(&event, origin, 4, |view| {
            prop_assert_eq!(Query::decode(view).unwrap(), event.clone());
            Ok(())
        })?;
    }

    #[test]
    fn ends_of_transactions(
        xid in any::<u64>(),
        one_phase in any::<bool>(),
        format_id in any::<u32>(),
        global_id in bytes(64),
        branch in bytes(64),
        origin in origins(),
    ) {
        through_a_file(&Xid { xid }, origin, 4, |view| {
            prop_assert_eq!(Xid::decode(view).unwrap(), Xid { xid });
            Ok(())
        })?;
        let prepare = XaPrepare { one_phase, format_id, global_id, branch };
        through_a_file(&prepare, origin, 4, |view| {
            prop_assert_eq!(XaPrepare::decode(view).unwrap(), prepare.clone());
            Ok(())
        })?;
    }

    #[test]
    fn events_around_transactions(
        position in any::<u64>(),
        file in bytes(300),
        created in any::<u32>(),
        version in "[0-9]\\.[0-9]\\.[0-9]{1,2}[a-z-]{0,44}",
        lengths in bytes(60),
        protected in any::<bool>(),
        origin in origins(),
    ) {
        let rotate = Rotate { position, next_file: file.clone() };
        through_a_file(&rotate, origin, 4, |view| {
            prop_assert_eq!(Rotate::decode(view).unwrap(), rotate.clone());
            Ok(())
        })?;
        let heartbeat = Heartbeat { version_2: true, file: file.clone(), position };
        through_a_file(&heartbeat, origin, 4, |view| {
            prop_assert_eq!(Heartbeat::decode(view).unwrap(), heartbeat.clone());
            Ok(())
        })?;
        let first_form = Heartbeat { version_2: false, file: file.clone(), position: 0 };
        through_a_file(&first_form, origin, 4, |view| {
            prop_assert_eq!(Heartbeat::decode(view).unwrap(), first_form.clone());
            Ok(())
        })?;
        let ignorable = Ignorable { body: file };
        through_a_file(&ignorable, origin, 4, |view| {
            prop_assert_eq!(Ignorable::decode(view).unwrap(), ignorable.clone());
            Ok(())
        })?;
        let description = FormatDescription {
            server_version: version.as_bytes().into(),
            created,
            post_header_lengths: lengths,
            checksum: if protected { ChecksumAlgorithm::Crc32 } else { ChecksumAlgorithm::None },
        };
        through_a_file(&description, origin, 4, |view| {
            prop_assert_eq!(FormatDescription::decode(view).unwrap(), description.clone());
            Ok(())
        })?;
    }

    #[test]
    fn payloads(
        block in bytes(300),
        compressed in any::<bool>(),
        uncompressed_size in proptest::option::of(any::<u64>()),
        origin in origins(),
    ) {
        let compression = if compressed { Compression::Zstd } else { Compression::None };
        let event = TransactionPayload { compression, uncompressed_size, block };
        through_a_file(&event, origin, 4, |view| {
            prop_assert_eq!(TransactionPayload::decode(view).unwrap(), event.clone());
            Ok(())
        })?;
    }

    #[test]
    fn compressed_blocks_come_back(content in proptest::collection::vec(0..4_u8, 0..5000), level in 1..20) {
        let event = TransactionPayload {
            compression: Compression::Zstd,
            uncompressed_size: Some(content.len() as u64),
            block: zstd::bulk::compress(&content, level).unwrap().into(),
        };
        prop_assert_eq!(event.decompress(content.len() as u64).unwrap(), content);
    }
}
