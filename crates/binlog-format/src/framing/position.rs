//! Positions on the source. Event headers hold their low 32 bits only; the rest is followed here.

use std::fmt;

use bytes::Bytes;

/// A place in the source's log: what a semi-sync acknowledgement names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct SourcePosition {
    /// The file's name without a directory; empty before the stream has named one.
    pub file: Bytes,
    /// The offset in it.
    pub offset: u64,
}

impl fmt::Display for SourcePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.escape_ascii(), self.offset)
    }
}

impl SourcePosition {
    /// Moves on to the next offset that has these low bits: a stream only goes forward in a file,
    /// and by less than 4 GiB from one event to the next.
    pub(super) fn advance_to_low_bits(&mut self, log_pos: u32) {
        let step = log_pos.wrapping_sub(self.offset as u32);
        self.offset = self.offset.saturating_add(u64::from(step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_go_on_beyond_four_gibibytes() {
        let mut position = SourcePosition {
            file: Bytes::from_static(b"b"),
            offset: 4,
        };
        for (log_pos, offset) in [
            (158, 158),
            (u32::MAX, 0xffff_ffff),
            (10, 0x1_0000_000a),
            (10, 0x1_0000_000a),
            (9, 0x2_0000_0009),
        ] {
            position.advance_to_low_bits(log_pos);
            assert_eq!(position.offset, offset);
        }
    }
}
