//! Encodes the server's answers as MySQL packets. Pure: the callers send them.

use std::borrow::Cow;

use bytes::BytesMut;
use mysql_link::wire::{Outgoing, put_integer, put_string};
use thiserror::Error;

// Outgoing packets with their sequence numbers.

/// `SERVER_STATUS_AUTOCOMMIT`: there are no transactions here.
const STATUS: u16 = 2;

/// An OK packet with a text for users in `info`. With `header` 0xfe it ends a result set.
pub(crate) fn ok_packet(header: u8, info: &str) -> Vec<u8> {
    let mut packet = vec![header, 0, 0];
    packet.extend_from_slice(&STATUS.to_le_bytes());
    packet.extend_from_slice(&0_u16.to_le_bytes());
    packet.extend_from_slice(info.as_bytes());
    packet
}

/// The EOF packet, which older clients expect at the end of a result set.
pub(crate) fn eof_packet() -> Vec<u8> {
    let mut packet = vec![0xfe, 0, 0];
    packet.extend_from_slice(&STATUS.to_le_bytes());
    packet
}

/// Encodes events of any size as packets. A packet's length must be known when it begins; its bytes may arrive in pieces.
#[derive(Debug, Default)]
pub(crate) struct EventPackets {
    bytes: BytesMut,
    pub(crate) sequence: u8,
    /// Bytes of the current packet that are still missing.
    left: u64,
    /// Start of the last packet in `bytes`, and its sequence number; `None` after a part of it was taken.
    begun: Option<(usize, u8)>,
    /// Bytes of the current chunk that are still missing.
    chunk_left: usize,
    /// True if the current chunk has the largest size, so that another one must follow.
    chunk_full: bool,
}

impl EventPackets {
    /// Numbers the packets from `sequence` on.
    pub(crate) fn from(sequence: u8) -> Self {
        Self {
            sequence,
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn take(&mut self) -> BytesMut {
        self.begun = None;
        self.bytes.split()
    }

    /// Removes an incomplete packet. Returns false if a part of it was taken already: then only the rest of it may follow.
    pub(crate) fn take_back(&mut self) -> bool {
        if self.left == 0 {
            return true;
        }
        let Some((begin, sequence)) = self.begun else {
            return false;
        };
        self.bytes.truncate(begin);
        self.sequence = sequence;
        (self.left, self.chunk_left, self.chunk_full) = (0, 0, false);
        true
    }

    /// Begins the packet of an event of `length` bytes.
    pub(crate) fn begin(&mut self, length: u64) {
        self.left = length + 1;
        self.begun = Some((self.bytes.len(), self.sequence));
        self.chunk();
        self.put(&[0]);
    }

    /// Adds bytes of the current event, at most as many as are still missing.
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
            // A packet must not end with a chunk of the largest size, so an empty chunk follows.
            self.chunk();
        }
    }

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

// Rows with named columns, as text.

/// Number of the collation `utf8mb4_general_ci`, the same in every version.
const UTF8MB4: u16 = 45;
const BINARY: u16 = 63;
const NULL: u8 = 0xfb;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Text(Cow<'static, str>),
    Number(u64),
    /// SELECT returns 1 or 0, SHOW VARIABLES returns ON or OFF.
    Switch(bool),
}

impl Value {
    pub(crate) const fn constant(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    pub(crate) fn text(text: impl ToString) -> Self {
        Self::Text(Cow::Owned(text.to_string()))
    }

    /// The value as SELECT returns it; `None` for NULL.
    pub(crate) fn selected(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.to_string()),
            Self::Number(number) => Some(number.to_string()),
            Self::Switch(on) => Some(u8::from(*on).to_string()),
        }
    }

    /// The value as SHOW VARIABLES returns it.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Switch(true) => "ON".to_owned(),
            Self::Switch(false) => "OFF".to_owned(),
            other => other.selected().unwrap_or_default(),
        }
    }

    fn kind(&self) -> ColumnKind {
        match self {
            Self::Number(_) | Self::Switch(_) => ColumnKind::Number,
            Self::Null | Self::Text(_) => ColumnKind::Text,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    Text,
    Number,
}

/// Encodes a result set: columns, then rows, then the end.
#[derive(Debug)]
pub(crate) struct ResultSet {
    /// True if the client supports results that end with an OK packet.
    deprecate_eof: bool,
}

impl ResultSet {
    /// Writes the number of columns and their definitions.
    pub(crate) fn begin<'a>(
        out: &mut Outgoing,
        deprecate_eof: bool,
        columns: impl ExactSizeIterator<Item = (&'a str, ColumnKind)>,
    ) -> Self {
        let mut count = Vec::new();
        put_integer(&mut count, columns.len() as u64);
        out.push(&count);
        for (name, kind) in columns {
            out.push(&column_packet(name, kind));
        }
        if !deprecate_eof {
            out.push(&eof_packet());
        }
        Self { deprecate_eof }
    }

    pub(crate) fn row(&self, out: &mut Outgoing, values: &[Value]) {
        let mut row = Vec::new();
        for value in values {
            match value.selected() {
                None => row.push(NULL),
                Some(text) => put_string(&mut row, text.as_bytes()),
            }
        }
        out.push(&row);
    }

    pub(crate) fn end(self, out: &mut Outgoing) {
        if self.deprecate_eof {
            out.push(&ok_packet(0xfe, ""));
        } else {
            out.push(&eof_packet());
        }
    }

    /// Writes a whole result set of text columns.
    pub(crate) fn of(out: &mut Outgoing, deprecate_eof: bool, names: &[&str], rows: &[Vec<Value>]) {
        let kinds = names.iter().enumerate().map(|(at, name)| {
            let value = rows.first().and_then(|row| row.get(at));
            (*name, value.map_or(ColumnKind::Text, Value::kind))
        });
        let result = Self::begin(out, deprecate_eof, kinds);
        for row in rows {
            result.row(out, row);
        }
        result.end(out);
    }
}

fn column_packet(name: &str, kind: ColumnKind) -> Vec<u8> {
    let mut packet = Vec::new();
    put_string(&mut packet, b"def");
    for part in ["", "", "", name, ""] {
        put_string(&mut packet, part.as_bytes());
    }
    packet.push(0x0c);
    let (charset, length, code, flags) = match kind {
        ColumnKind::Text => (UTF8MB4, 1 << 20, 0xfd, 0_u16),
        // Flags: not null, binary, number, unsigned.
        ColumnKind::Number => (BINARY, 21_u32, 0x08, 0x80a1),
    };
    packet.extend_from_slice(&charset.to_le_bytes());
    packet.extend_from_slice(&length.to_le_bytes());
    packet.push(code);
    packet.extend_from_slice(&flags.to_le_bytes());
    packet.extend_from_slice(&[0, 0, 0]);
    packet
}

// Errors with MySQL's numbers, so that clients handle them like errors of any source.

/// The error numbers that this server sends.
pub(crate) mod code {
    pub(crate) const TOO_MANY_CONNECTIONS: u16 = 1040;
    /// A packet of the login is invalid.
    pub(crate) const HANDSHAKE: u16 = 1043;
    pub(crate) const ACCESS_DENIED: u16 = 1045;
    /// The command is unknown.
    pub(crate) const UNKNOWN_COMMAND: u16 = 1047;
    /// The packet contains no statement.
    pub(crate) const EMPTY_QUERY: u16 = 1065;
    /// Any other error; a replica reconnects after it.
    pub(crate) const UNKNOWN: u16 = 1105;
    /// The system variable is unknown.
    pub(crate) const UNKNOWN_VARIABLE: u16 = 1193;
    pub(crate) const SHOW_BINLOG_EVENTS: u16 = 1220;
    pub(crate) const NOT_SUPPORTED: u16 = 1235;
    /// The dump cannot continue, and a retry would fail, too.
    pub(crate) const FATAL_READING_BINLOG: u16 = 1236;
    /// A value in a statement is invalid.
    pub(crate) const WRONG_VALUE: u16 = 1525;
    /// PURGE names a file that does not exist.
    pub(crate) const UNKNOWN_FILE: u16 = 1373;
    /// The packet ends too early.
    pub(crate) const MALFORMED_PACKET: u16 = 1835;
    pub(crate) const INSECURE_TRANSPORT: u16 = 3159;
}

/// Maximum length of a message in bytes, the same as in MySQL.
const MAX_MESSAGE: usize = 511;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub(crate) struct ErrorAnswer {
    pub(crate) code: u16,
    pub(crate) message: String,
}

impl ErrorAnswer {
    pub(crate) fn new(code: u16, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// An error after which a replica does not reconnect.
    pub(crate) fn fatal(message: impl Into<String>) -> Self {
        Self::new(code::FATAL_READING_BINLOG, message)
    }

    fn sqlstate(&self) -> &'static [u8; 5] {
        match self.code {
            code::ACCESS_DENIED => b"28000",
            code::TOO_MANY_CONNECTIONS => b"08004",
            code::HANDSHAKE | code::UNKNOWN_COMMAND => b"08S01",
            code::EMPTY_QUERY | code::NOT_SUPPORTED => b"42000",
            _ => b"HY000",
        }
    }

    /// Encodes the error as a packet's payload. A message that is too long is truncated between two characters.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0xff];
        packet.extend_from_slice(&self.code.to_le_bytes());
        packet.push(b'#');
        packet.extend_from_slice(self.sqlstate());
        let end = self.message.floor_char_boundary(MAX_MESSAGE);
        packet.extend_from_slice(&self.message.as_bytes()[..end]);
        packet
    }
}

#[cfg(test)]
mod tests {
    use mysql_link::wire::MAX_CHUNK;
    use mysql_link::wire::PacketDecoder;

    use super::*;

    #[test]
    fn events_of_every_size_are_complete_packets() {
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

    #[test]
    fn an_incomplete_packet_is_removed_unless_partly_sent() {
        let mut packets = EventPackets::from(7);
        packets.event(b"first");
        packets.begin(MAX_CHUNK as u64);
        packets.put(b"half of it");
        assert!(packets.take_back());
        packets.event(b"next");
        assert!(packets.take_back(), "nothing is under way");
        let mut decoder = PacketDecoder::new(1 << 20);
        decoder.buffer_mut().extend_from_slice(&packets.take());
        for (sequence, event) in [(7, "\0first"), (8, "\0next")] {
            let packet = decoder.next_packet().unwrap().unwrap();
            let expected = (sequence, event.as_bytes());
            assert_eq!((packet.first_sequence, &packet.payload[..]), expected);
        }
        assert!(decoder.is_empty());

        packets.begin(10);
        packets.put(b"half");
        packets.take();
        assert!(!packets.take_back());
    }
}

#[cfg(test)]
mod errors_tests {
    use super::*;

    #[test]
    fn messages_are_cut_between_characters() {
        let error = ErrorAnswer::new(code::UNKNOWN, "é".repeat(400));
        let packet = error.packet();
        assert_eq!(packet.len(), 9 + 510);
        assert!(std::str::from_utf8(&packet[9..]).is_ok());
    }
}
