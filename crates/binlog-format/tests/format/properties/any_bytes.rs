//! No input causes a panic in a reader: neither arbitrary bytes nor altered golden events.

use std::sync::LazyLock;

use binlog_format::canonical::{stamp_payload, unstamp};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::{EventType, RawEvent};
use binlog_format::events::{EncodeEvent, EventOrigin, FormatDescription};
use binlog_format::fuzzing::{read_as_everything, read_as_stream, read_through_views};
use proptest::prelude::*;

use crate::golden_events::golden_events;

static GOLDEN: LazyLock<Vec<RawEvent>> = LazyLock::new(golden_events);

/// One change in a byte string.
#[derive(Debug, Clone)]
enum Damage {
    Overwrite(prop::sample::Index, u8),
    /// Overwrites as many bytes as a length field has.
    OverwriteWide(prop::sample::Index, u64),
    Remove(prop::sample::Index),
    Insert(prop::sample::Index, u8),
    Cut(prop::sample::Index),
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let at = any::<prop::sample::Index>;
    let damage = prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Overwrite(at, byte)),
        2 => (at(), prop_oneof![Just(u64::MAX), Just(1 << 40), any::<u64>()])
            .prop_map(|(at, wide)| Damage::OverwriteWide(at, wide)),
        1 => at().prop_map(Damage::Remove),
        1 => (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        1 => at().prop_map(Damage::Cut),
    ];
    proptest::collection::vec(damage, 1..5)
}

fn damaged(bytes: &[u8], damages: &[Damage]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for damage in damages {
        if bytes.is_empty() {
            break;
        }
        let len = bytes.len();
        match damage {
            Damage::Overwrite(at, byte) => bytes[at.index(len)] = *byte,
            Damage::OverwriteWide(at, wide) => {
                for (to, from) in bytes.iter_mut().skip(at.index(len)).zip(wide.to_le_bytes()) {
                    *to = from;
                }
            }
            Damage::Remove(at) => {
                bytes.remove(at.index(len));
            }
            Damage::Insert(at, byte) => bytes.insert(at.index(len), *byte),
            Damage::Cut(at) => bytes.truncate(at.index(len)),
        }
    }
    bytes
}

/// Sets the size in the header to the number of bytes, so that readers do not refuse it.
fn with_right_size(mut event: Vec<u8>) -> Vec<u8> {
    let size = event.len() as u32;
    if let Some(field) = event.get_mut(9..13) {
        field.copy_from_slice(&size.to_le_bytes());
    }
    event
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        read_as_everything(&bytes);
    }

    #[test]
    fn damaged_golden_bodies_are_read_or_refused(at in any::<prop::sample::Index>(), damages in damages()) {
        let event = &GOLDEN[at.index(GOLDEN.len())];
        read_as_everything(&damaged(event.canonical().body(), &damages));
        let bytes = with_right_size(damaged(event.bytes(), &damages));
        if let Ok(event) = RawEvent::new(bytes.into()) {
            read_through_views(event.canonical());
        }
    }

    #[test]
    fn damaged_golden_streams_are_framed_or_refused(
        from in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        damages in damages(),
    ) {
        // The events have no checksums, so that damage is not detected by them.
        let mut description = FormatDescription::built_in("9.7.4");
        description.checksum = ChecksumAlgorithm::None;
        let mut stream = Vec::new();
        stamp_payload(&description.encode(EventOrigin::default()), 4, &mut stream).unwrap();
        let from = from.index(GOLDEN.len());
        let window = &GOLDEN[from..GOLDEN.len().min(from + 30)];
        let at = at.index(window.len());
        for (number, event) in window.iter().enumerate() {
            if number == at {
                stream.extend(with_right_size(damaged(event.bytes(), &damages)));
            } else {
                stream.extend_from_slice(event.bytes());
            }
        }
        read_as_stream(&stream, ChecksumAlgorithm::Crc32);
        read_as_stream(&damaged(&stream, &damages), ChecksumAlgorithm::Crc32);
    }

    #[test]
    fn damage_to_stored_events_is_always_detected(
        at in any::<prop::sample::Index>(),
        offset in 0..1_u64 << 40,
        damages in damages(),
    ) {
        let event = &GOLDEN[at.index(GOLDEN.len())];
        // In a format description, no checksum covers the in-use flag.
        prop_assume!(event.event_type() != EventType::FormatDescription);
        let mut stored = Vec::new();
        stamp_payload(event.bytes(), offset, &mut stored).unwrap();
        prop_assert_eq!(&unstamp(&stored).unwrap(), event.bytes());
        let broken = damaged(&stored, &damages);
        // Without any bytes, there are no events, which is valid.
        if broken != stored && !broken.is_empty() {
            prop_assert!(unstamp(&broken).is_err());
        }
    }
}
