//! Events that are in no file: the rotate that names the file at hand, heartbeats, and file events that must differ
//! from what the file has. Pure.

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::event::EventFlags;
use binlog_format::events::{EncodeEvent, EventOrigin, Heartbeat, Rotate};

/// Where the fields that are rewritten stand in an event.
const SERVER_ID: std::ops::Range<usize> = 5..9;
const SIZE: std::ops::Range<usize> = 9..13;
const LOG_POS: std::ops::Range<usize> = 13..17;
const CRC_LEN: usize = 4;

/// Tells the consumer in which file, and where in it, it is.
pub(super) fn rotate(
    file: &str,
    offset: u64,
    server_id: u32,
    checksum: ChecksumAlgorithm,
) -> Vec<u8> {
    let origin = EventOrigin {
        timestamp: 0,
        server_id,
        flags: EventFlags::ARTIFICIAL,
    };
    let rotate = Rotate {
        position: offset,
        ..Rotate::to(file)
    };
    finished(rotate.encode(origin), 0, checksum)
}

/// Tells it that nothing has happened, and where it is.
pub(super) fn heartbeat(version_2: bool, file: &str, offset: u64, server_id: u32) -> Vec<u8> {
    let origin = EventOrigin {
        timestamp: 0,
        server_id,
        flags: EventFlags::NONE,
    };
    let heartbeat = Heartbeat {
        version_2,
        file: file.as_bytes().into(),
        position: offset,
    };
    finished(
        heartbeat.encode(origin),
        offset as u32,
        ChecksumAlgorithm::Crc32,
    )
}

fn finished(mut event: Vec<u8>, log_pos: u32, checksum: ChecksumAlgorithm) -> Vec<u8> {
    let size = event.len() + checksum.event_overhead();
    put(&mut event, SIZE, size as u32);
    put(&mut event, LOG_POS, log_pos);
    if checksum == ChecksumAlgorithm::Crc32 {
        let crc = crc32fast::hash(&event);
        event.extend_from_slice(&crc.to_le_bytes());
    }
    event
}

/// A file's format description for a consumer that does not begin at the file's begin: it must not count it.
pub(super) fn out_of_place(stored: &[u8]) -> Vec<u8> {
    rewritten(stored, LOG_POS, 0)
}

/// A stored event as if the consumer had made it itself: it counts its bytes, and does nothing else with it.
pub(super) fn as_own_of(server_id: u32, stored: &[u8]) -> Vec<u8> {
    rewritten(stored, SERVER_ID, server_id)
}

fn rewritten(stored: &[u8], field: std::ops::Range<usize>, value: u32) -> Vec<u8> {
    let mut event = stored.to_vec();
    put(&mut event, field, value);
    let body = event.len().saturating_sub(CRC_LEN);
    let crc = crc32fast::hash(event.get(..body).unwrap_or_default());
    put(&mut event, body..body + CRC_LEN, crc);
    event
}

fn put(event: &mut [u8], field: std::ops::Range<usize>, value: u32) {
    if let Some(place) = event.get_mut(field) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use binlog_format::event::{EventRef, EventType};
    use binlog_format::events::FormatDescription;

    use super::*;

    #[test]
    fn made_up_events_are_whole_and_say_what_they_mean() {
        for checksum in [ChecksumAlgorithm::None, ChecksumAlgorithm::Crc32] {
            let event = rotate("binlog.000003", 4, 9, checksum);
            let event = EventRef::new(&event).unwrap().verified(checksum).unwrap();
            assert_eq!(event.header().log_pos, 0);
            assert_eq!(event.header().server_id, 9);
            let rotate = Rotate::decode(event).unwrap();
            assert_eq!(
                (rotate.position, &*rotate.next_file),
                (4, &b"binlog.000003"[..])
            );
        }
        let far = (5 << 32) + 7;
        for (version_2, event_type, position) in [
            (false, EventType::Heartbeat, 7),
            (true, EventType::HeartbeatV2, far),
        ] {
            let event = heartbeat(version_2, "binlog.000003", far, 9);
            let event = EventRef::new(&event).unwrap();
            let event = event.verified(ChecksumAlgorithm::Crc32).unwrap();
            assert_eq!(event.event_type(), event_type);
            assert_eq!(Heartbeat::decode(event).unwrap().position, position);
        }
    }

    #[test]
    fn rewritten_events_have_the_right_checksum() {
        let mut stored = Vec::new();
        let canonical = FormatDescription::built_in_event();
        binlog_format::canonical::stamp(&canonical, 4, &mut stored).unwrap();
        let moved = out_of_place(&stored);
        let event = EventRef::new(&moved).unwrap();
        let event = event.verified(ChecksumAlgorithm::Crc32).unwrap();
        assert_eq!(event.header().log_pos, 0);
        let own = as_own_of(77, &stored);
        let event = EventRef::new(&own).unwrap();
        let event = event.verified(ChecksumAlgorithm::Crc32).unwrap();
        assert_eq!(event.header().server_id, 77);
    }
}
