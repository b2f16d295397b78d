//! Corrects an input's checksums, so that the parsers do not stop at a checksum.

use binlog_format::event::HEADER_LEN;
use binlog_store::{MARKER_BODY_LEN, MARKER_MAGIC};

const CHECKSUM: usize = 4;
const SIZE: std::ops::Range<usize> = 9..13;
const POSITION: std::ops::Range<usize> = 13..17;
const TRANSACTION: u8 = 4;

/// Returns a binlog file with corrected end positions and CRC32 in all events that the sizes lead to. Markers of a ring's log are adapted
/// to the events that follow them.
pub(crate) fn binlog_file(bytes: &[u8]) -> Vec<u8> {
    let mut file = bytes.to_vec();
    let mut events = Vec::new();
    let mut at = binlog_format::MAGIC.len();
    while let Some(header) = file.get(at..at + HEADER_LEN) {
        let size = u32_at(header, SIZE.start) as usize;
        if size < HEADER_LEN + CHECKSUM || size > file.len() - at {
            break;
        }
        events.push(at..at + size);
        at += size;
    }
    for event in &events {
        let position = (event.end as u32).to_le_bytes();
        file[event.clone()][POSITION].copy_from_slice(&position);
    }
    for (place, event) in events.iter().enumerate() {
        let body = event.start + HEADER_LEN..event.end - CHECKSUM;
        if file[body.clone()].starts_with(&MARKER_MAGIC) && body.len() >= MARKER_BODY_LEN {
            let (fixed, held) = file[body.clone()].split_at(MARKER_BODY_LEN);
            let payload = match fixed[5] {
                TRANSACTION => {
                    let count = u32_at(fixed, 36) as usize;
                    let followers = events.iter().skip(place + 1).take(count);
                    followers
                        .flat_map(|event| canonical(&file[event.clone()]))
                        .collect()
                }
                _ => held.to_vec(),
            };
            let marker = &mut file[body][..MARKER_BODY_LEN];
            marker[24..32].copy_from_slice(&(payload.len() as u64).to_le_bytes());
            marker[32..36].copy_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
        }
        let (covered, checksum) = file[event.clone()].split_at_mut(event.len() - CHECKSUM);
        checksum.copy_from_slice(&crc32fast::hash(covered).to_le_bytes());
    }
    file
}

/// Returns an event in the form that payloads have: without its checksum and its position.
fn canonical(event: &[u8]) -> Vec<u8> {
    let mut event = event[..event.len() - CHECKSUM].to_vec();
    let size = (event.len() as u32).to_le_bytes();
    event[SIZE].copy_from_slice(&size);
    event[POSITION].fill(0);
    event
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    u32::from_le_bytes(four.unwrap_or_default())
}

/// Returns a hard-state record with this JSON and a correct checksum.
pub(crate) fn record(json: &[u8]) -> Vec<u8> {
    [&[1], &crc32c::crc32c(json).to_le_bytes()[..], json].concat()
}

/// Returns an event in canonical form: its header contains its size, but no position.
pub(crate) fn event(bytes: &[u8]) -> Vec<u8> {
    let mut event = bytes.to_vec();
    let size = (event.len() as u32).to_le_bytes();
    if let Some(header) = event.get_mut(..HEADER_LEN) {
        header[SIZE].copy_from_slice(&size);
        header[POSITION].fill(0);
    }
    event
}
