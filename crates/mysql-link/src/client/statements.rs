//! Statements that are sent together, as the text of one packet. Kept by its owner from one call to the next, so that
//! neither the text nor the packet is copied or allocated anew.

use std::ops::Range;

use crate::wire::MAX_CHUNK;

const COM_QUERY: u8 = 0x03;
/// Room in front of the text for the packet's header and the command.
const ROOM: usize = 5;
/// Memory above this is given back when the statements are done.
const KEPT: usize = 4 << 20;

/// Statements in their order.
///
/// ```text
/// room of 5 bytes | statement ; statement ; statement
///                   starts[0]   starts[1]   starts[2]
/// ```
/// What stands before a statement is sent before it, so that the header of a packet which begins with it takes those bytes.
#[derive(Debug)]
pub struct Statements {
    text: Vec<u8>,
    starts: Vec<usize>,
}

impl Default for Statements {
    fn default() -> Self {
        Self {
            text: vec![0; ROOM],
            starts: Vec::new(),
        }
    }
}

impl Statements {
    /// A packet without statements.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of statements.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether no statement was added.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Bytes of all statements, without the packet's header.
    pub fn bytes(&self) -> usize {
        self.text.len() - ROOM
    }

    /// Adds a statement behind the others.
    pub fn push(&mut self, sql: impl AsRef<[u8]>) {
        self.begin().extend_from_slice(sql.as_ref());
    }

    /// Begins one: its text is what the caller appends. It must be one statement, without a semicolon behind it.
    pub fn begin(&mut self) -> &mut Vec<u8> {
        if !self.starts.is_empty() {
            self.text.push(b';');
        }
        self.starts.push(self.text.len());
        &mut self.text
    }

    /// Takes all of them out.
    pub fn clear(&mut self) {
        self.starts.clear();
        if self.text.capacity() > KEPT {
            self.text = vec![0; ROOM];
        } else {
            self.text.truncate(ROOM);
        }
    }

    /// Bytes of the packet that runs these statements.
    pub(crate) fn packet_bytes(&self, run: Range<usize>) -> usize {
        1 + self.place(run).len()
    }

    /// The longest run of statements from `first` on that makes a packet of at most `limit` bytes; at least one.
    pub(crate) fn run_from(&self, first: usize, limit: usize) -> Range<usize> {
        let mut end = first + 1;
        while end < self.len() && self.packet_bytes(first..end + 1) <= limit {
            end += 1;
        }
        first..end.min(self.len())
    }

    /// The command that runs these statements; a whole chunk with its header where it fits into one. Overwrites what
    /// stands in front of them.
    pub(crate) fn command(&mut self, run: Range<usize>) -> Command<'_> {
        let place = self.place(run);
        let length = place.len() + 1;
        let begin = place.start - ROOM;
        if let Some(room) = self.text.get_mut(begin..place.start) {
            let [low, middle, high, _] = (length as u32).to_le_bytes();
            room.copy_from_slice(&[low, middle, high, 0, COM_QUERY]);
        }
        if length < MAX_CHUNK {
            Command::Chunk(self.text.get(begin..place.end).unwrap_or_default())
        } else {
            Command::Payload(
                self.text
                    .get(place.start - 1..place.end)
                    .unwrap_or_default(),
            )
        }
    }

    /// Where the text of a run of statements stands, without the semicolon behind it.
    fn place(&self, run: Range<usize>) -> Range<usize> {
        let start = self.starts.get(run.start).copied().unwrap_or(ROOM);
        let end = self
            .starts
            .get(run.end)
            .map_or(self.text.len(), |next| next - 1);
        start..end
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command<'a> {
    /// A packet of one chunk, its header included; its number is 0.
    Chunk(&'a [u8]),
    /// A payload that takes more than one chunk.
    Payload(&'a [u8]),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(statements: &mut Statements, limit: usize) -> Vec<(Range<usize>, String)> {
        let (mut first, mut sent) = (0, Vec::new());
        while first < statements.len() {
            let run = statements.run_from(first, limit);
            let Command::Chunk(chunk) = statements.command(run.clone()) else {
                panic!("small");
            };
            let length = usize::from(chunk[0]) | usize::from(chunk[1]) << 8;
            assert_eq!((length, chunk[3], chunk[4]), (chunk.len() - 4, 0, 3));
            first = run.end;
            sent.push((run, String::from_utf8(chunk[5..].to_vec()).unwrap()));
        }
        sent
    }

    #[test]
    fn statements_share_a_packet_as_long_as_they_fit() {
        let mut statements = Statements::new();
        for sql in ["A1", "B22", "C", "D"] {
            statements.push(sql);
        }
        assert_eq!(statements.packet_bytes(1..2), 4);
        assert_eq!(
            texts(&mut statements, 7),
            [(0..2, "A1;B22".to_owned()), (2..4, "C;D".to_owned())]
        );
        statements.clear();
        assert!(statements.is_empty());
        statements.push("E");
        assert_eq!(texts(&mut statements, 100), [(0..1, "E".to_owned())]);
        assert_eq!(statements.bytes(), 1);
    }

    #[test]
    fn what_fills_a_chunk_is_left_to_be_cut() {
        let mut statements = Statements::new();
        statements.push(vec![b'x'; MAX_CHUNK - 2]);
        assert!(matches!(statements.command(0..1), Command::Chunk(_)));
        statements.clear();
        statements.push(vec![b'x'; MAX_CHUNK - 1]);
        let Command::Payload(payload) = statements.command(0..1) else {
            panic!("a whole chunk is followed by an empty one");
        };
        assert_eq!((payload.len(), payload[0]), (MAX_CHUNK, COM_QUERY));
    }

    proptest! {
        #[test]
        fn every_statement_is_sent_once_in_order(
            sizes in prop::collection::vec(1_usize..9, 1..20),
            limit in 1_usize..40,
        ) {
            let all: Vec<String> = sizes.iter().enumerate().map(|(at, size)| char::from(b'a' + at as u8).to_string().repeat(*size)).collect();
            let mut statements = Statements::new();
            all.iter().for_each(|sql| statements.push(sql));
            let sent = texts(&mut statements, limit);
            for (run, text) in &sent {
                prop_assert!(run.len() == 1 || text.len() < limit);
            }
            let joined: Vec<_> = sent.into_iter().map(|(_, text)| text).collect();
            prop_assert_eq!(joined.join(";"), all.join(";"));
        }
    }
}
