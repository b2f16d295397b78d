//! The canonical and the stamped form are two views of the same event, and a synthesized file begins as a MySQL file does.

use binlog_format::canonical::{
    CanonicalEvents, canonicalise, stamp, stamp_payload, stamped_len, unstamp,
};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventFlags, EventHeader, EventRef, RawEvent};
use binlog_format::events::{
    EncodeEvent, EventOrigin, FormatDescription, Ignorable, PreviousGtids, Rotate,
};
use binlog_format::{DecodeError, MAGIC};
use bytes::Bytes;

fn payload() -> Vec<u8> {
    let mut payload = PreviousGtids::default().encode(EventOrigin::default());
    let marker = Ignorable {
        body: b"marker".as_slice().into(),
    };
    marker.encode_into(Ignorable::origin(1, 2), &mut payload);
    Rotate::to("binlog.000002").encode_into(EventOrigin::default(), &mut payload);
    payload
}

#[test]
fn stamping_writes_size_end_position_and_checksum() {
    let event = Rotate::to("binlog.000002").encode(EventOrigin::default());
    let mut stored = b"before".to_vec();
    let end = stamp(&event, 1000, &mut stored).unwrap();
    let stored = stored.split_off(6);
    assert_eq!(stored.len(), event.len() + 4);
    assert_eq!(end, 1000 + stored.len() as u64);
    let header = EventHeader::parse(&stored).unwrap();
    assert_eq!(u64::from(header.log_pos), end);
    assert_eq!(header.event_size as usize, stored.len());
    unstamp(&stored).unwrap();
}

#[test]
fn end_positions_beyond_four_gibibytes_keep_their_low_bits() {
    let event = Rotate::to("b").encode(EventOrigin::default());
    let mut stored = Vec::new();
    let end = stamp(&event, 5 << 32, &mut stored).unwrap();
    assert_eq!(end, (5 << 32) + stored.len() as u64);
    assert_eq!(EventHeader::parse(&stored).unwrap().log_pos, end as u32);
}

#[test]
fn a_payload_is_restored_from_its_stored_form() {
    let payload = payload();
    let mut stored = Vec::new();
    let end = stamp_payload(&payload, 4, &mut stored).unwrap();
    assert_eq!(end, 4 + stored.len() as u64);
    assert_eq!(stamped_len(&payload).unwrap(), stored.len() as u64);
    assert_eq!(unstamp(&stored).unwrap(), payload);

    let mut received = Bytes::from(stored);
    let mut canonical = Vec::new();
    while let Some(event) = RawEvent::split_from(&mut received).unwrap() {
        canonical.extend_from_slice(&canonicalise(&event, ChecksumAlgorithm::Crc32).unwrap());
    }
    assert_eq!(canonical, payload);
}

#[test]
fn every_flipped_bit_of_a_stored_event_is_found() {
    let mut stored = Vec::new();
    stamp(
        &Rotate::to("binlog.000002").encode(EventOrigin::default()),
        4,
        &mut stored,
    )
    .unwrap();
    for bit in 0..stored.len() * 8 {
        let mut damaged = stored.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(unstamp(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn a_damaged_event_is_named_with_its_checksums() {
    let mut stored = Vec::new();
    stamp(
        &Rotate::to("binlog.000002").encode(EventOrigin::default()),
        4,
        &mut stored,
    )
    .unwrap();
    stored[30] ^= 1;
    let error = unstamp(&stored).unwrap_err();
    assert!(matches!(error, DecodeError::ChecksumMismatch { .. }));
    assert!(error.to_string().contains("ROTATE"), "{error}");
}

#[test]
fn iteration_ends_at_a_cut_off_event() {
    let mut payload = payload();
    payload.pop();
    let events: Vec<_> = CanonicalEvents::new(payload.into()).collect();
    assert_eq!(events.len(), 3);
    assert!(events[..2].iter().all(Result::is_ok));
    assert!(matches!(events[2], Err(DecodeError::Truncated { .. })));
}

#[test]
fn a_canonical_format_description_has_no_fields_of_one_servers_file() {
    let mut received = FormatDescription::built_in("8.4.7");
    received.created = 1234;
    received.checksum = ChecksumAlgorithm::None;
    let of_one_file = EventFlags::BINLOG_IN_USE.0 | EventFlags::ARTIFICIAL.0;
    let flags = EventFlags(of_one_file | EventFlags::NO_FILTER.0);
    let event = received.encode(EventOrigin {
        timestamp: 9,
        server_id: 3,
        flags,
    });

    let canonical = FormatDescription::canonical_event(EventRef::new(&event).unwrap()).unwrap();
    let view = EventRef::new(&canonical).unwrap();
    assert_eq!(view.header().flags, EventFlags::NO_FILTER);
    assert_eq!((view.header().timestamp, view.header().server_id), (9, 3));
    assert_eq!(
        FormatDescription::decode(view).unwrap(),
        FormatDescription::built_in("8.4.7")
    );
}

#[test]
fn the_built_in_head_of_a_file_is_always_the_same() {
    let mut file = MAGIC.to_vec();
    let end = stamp(&FormatDescription::built_in_event(), 4, &mut file).unwrap();
    let gtids = PreviousGtids::default().encode(EventOrigin::default());
    stamp(&gtids, end, &mut file).unwrap();
    // 4 bytes magic number, 123 bytes format description, 31 bytes previous GTIDs: as in MySQL's own first file.
    assert_eq!(file.len(), 158);
    // If this value changes, files of two releases differ. Change it only deliberately.
    assert_eq!(crc32fast::hash(&file), 3_672_502_671);
}
