//! Packets on their way out, one behind the other with their numbers.

use bytes::BytesMut;
use mysql_link::wire::encode_packet;

/// `SERVER_STATUS_AUTOCOMMIT`: there are no transactions here.
const STATUS: u16 = 2;

/// Encoded packets that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    /// The number of the next packet.
    pub(crate) sequence: u8,
}

impl Outgoing {
    /// For the answer to a packet of this number.
    pub(crate) fn answer_to(sequence: u8) -> Self {
        Self {
            bytes: Vec::new(),
            sequence: sequence.wrapping_add(1),
        }
    }

    /// Adds a packet.
    pub(crate) fn push(&mut self, payload: &[u8]) {
        self.sequence = encode_packet(self.sequence, payload, &mut self.bytes);
    }
}

/// A length-encoded integer.
fn put_integer(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0xfa => out.push(value as u8),
        0xfb..=0xffff => {
            out.push(0xfc);
            out.extend_from_slice(&(value as u16).to_le_bytes());
        }
        0x1_0000..=0xff_ffff => {
            out.push(0xfd);
            out.extend_from_slice(&(value as u32).to_le_bytes()[..3]);
        }
        _ => {
            out.push(0xfe);
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}

/// A length-encoded string.
pub(super) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_integer(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// An OK packet; `info` is shown to people. With `header` 0xfe it ends a result set.
pub(crate) fn ok_packet(header: u8, info: &str) -> Vec<u8> {
    let mut packet = vec![header, 0, 0];
    packet.extend_from_slice(&STATUS.to_le_bytes());
    packet.extend_from_slice(&0_u16.to_le_bytes());
    packet.extend_from_slice(info.as_bytes());
    packet
}

/// The older packet in the same place.
pub(crate) fn eof_packet() -> Vec<u8> {
    let mut packet = vec![0xfe, 0, 0];
    packet.extend_from_slice(&STATUS.to_le_bytes());
    packet
}

/// How many packets a result of `columns` columns begins with.
pub(super) fn count_packet(columns: usize) -> Vec<u8> {
    let mut packet = Vec::new();
    put_integer(&mut packet, columns as u64);
    packet
}

/// Events of any size as packets: a packet's length is known when it begins, its bytes may come piece by piece.
#[derive(Debug)]
pub(crate) struct EventPackets {
    bytes: BytesMut,
    sequence: u8,
    /// Bytes of the packet that are still to come.
    left: u64,
    /// Bytes of the chunk that are still to come.
    chunk_left: usize,
    /// Whether the chunk is of the largest size, so that another one follows.
    chunk_full: bool,
}

impl EventPackets {
    /// Packets from this number on.
    pub(crate) fn from(sequence: u8) -> Self {
        Self {
            bytes: BytesMut::new(),
            sequence,
            left: 0,
            chunk_left: 0,
            chunk_full: false,
        }
    }

    /// The number of the next packet.
    pub(crate) fn sequence(&self) -> u8 {
        self.sequence
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes what waits.
    pub(crate) fn take(&mut self) -> BytesMut {
        self.bytes.split()
    }

    /// Begins the packet of an event of `length` bytes.
    pub(crate) fn begin(&mut self, length: u64) {
        self.left = length + 1;
        self.chunk();
        self.put(&[0]);
    }

    /// Adds bytes of the event that was begun, at most as many as it has.
    pub(crate) fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.left > 0 {
            if self.chunk_left == 0 {
                self.chunk();
            }
            let (now, rest) = bytes.split_at(bytes.len().min(self.chunk_left));
            self.bytes.extend_from_slice(now);
            self.chunk_left -= now.len();
            self.left -= now.len() as u64;
            bytes = rest;
        }
        if self.left == 0 && self.chunk_left == 0 && self.chunk_full {
            // A packet must not end with a chunk of the largest size.
            self.chunk();
        }
    }

    /// A whole event.
    pub(crate) fn event(&mut self, event: &[u8]) {
        self.begin(event.len() as u64);
        self.put(event);
    }

    fn chunk(&mut self) {
        use mysql_link::wire::MAX_CHUNK;

        let length = usize::try_from(self.left)
            .unwrap_or(MAX_CHUNK)
            .min(MAX_CHUNK);
        let header = (length as u32).to_le_bytes();
        self.bytes
            .extend_from_slice(&[header[0], header[1], header[2], self.sequence]);
        self.sequence = self.sequence.wrapping_add(1);
        self.chunk_left = length;
        self.chunk_full = length == MAX_CHUNK;
    }
}

#[cfg(test)]
mod tests {
    use mysql_link::wire::{MAX_CHUNK, PacketDecoder};

    use super::*;

    #[test]
    fn events_of_every_size_are_whole_packets() {
        let sizes = [
            0,
            1,
            250,
            MAX_CHUNK - 2,
            MAX_CHUNK - 1,
            MAX_CHUNK,
            2 * MAX_CHUNK - 1,
            40_000_000,
        ];
        for size in sizes {
            let event: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let mut packets = EventPackets::from(250);
            packets.begin(size as u64);
            for piece in event.chunks(1_000_003) {
                packets.put(piece);
            }
            packets.event(b"next");
            let mut decoder = PacketDecoder::new(64 << 20);
            decoder.buffer_mut().extend_from_slice(&packets.take());
            let first = decoder.next_packet().unwrap().unwrap();
            assert_eq!(first.first_sequence, 250);
            assert_eq!(first.payload[0], 0);
            assert_eq!(first.payload[1..], event[..], "{size}");
            let next = decoder.next_packet().unwrap().unwrap();
            assert_eq!(next.payload[..], *b"\0next");
            assert_eq!(next.first_sequence, first.last_sequence.wrapping_add(1));
            assert!(decoder.is_empty());
        }
    }
}
