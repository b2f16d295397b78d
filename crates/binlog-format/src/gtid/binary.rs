//! The binary form of GTID sets, as PREVIOUS_GTIDS events and dump requests carry it.
//!
//! ```text
//! classic  u64 sources
//! tagged   u64: byte 0 and byte 7 are 1, the six bytes between are the number of (source, tag) pairs
//! then for each source (or pair): 16 bytes of source; [tagged: tag length, tag];
//!          u64 intervals; for each: u64 first, u64 behind the last
//! ```

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::gtid::{Gno, GtidSet, Interval, SourceId, Tag};
use crate::varlen;

const TAGGED_MARK: u64 = 1 << 56 | 1;

/// Which of the two binary forms to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GtidSetFormat {
    /// As MySQL chooses: [`Self::Tagged`] when a tag is there, else [`Self::Classic`].
    Automatic,
    /// The form of servers before 8.3. Leaves tagged GTIDs out.
    Classic,
    /// The form of 8.3 and later.
    Tagged,
}

impl GtidSet {
    /// The binary form. Equal sets give equal bytes.
    pub fn encode(&self, format: GtidSetFormat) -> Vec<u8> {
        let tagged = match format {
            GtidSetFormat::Automatic => self.has_tags(),
            GtidSetFormat::Classic => false,
            GtidSetFormat::Tagged => true,
        };
        let mut out = vec![0; 8];
        let mut pairs = 0_u64;
        for (source, tag, intervals) in self.parts() {
            if !tagged && !tag.is_none() {
                continue;
            }
            pairs += 1;
            out.extend_from_slice(source.as_bytes());
            if tagged {
                varlen::put_string(&mut out, tag.as_bytes());
            }
            out.extend_from_slice(&(intervals.len() as u64).to_le_bytes());
            for interval in intervals {
                out.extend_from_slice(&interval.first().get().to_le_bytes());
                out.extend_from_slice(&(interval.last().get() + 1).to_le_bytes());
            }
        }
        let head = if tagged {
            TAGGED_MARK | pairs << 8
        } else {
            pairs
        };
        out[..8].copy_from_slice(&head.to_le_bytes());
        out
    }

    /// Reads either binary form. Memory stays in proportion to the input.
    ///
    /// # Errors
    /// When the bytes are cut off, go on behind the set, or hold intervals that are empty, unsorted or out of range.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let head = cursor.u64("GTID set head")?;
        let (tagged, pairs) = match head >> 56 {
            0 => (false, head),
            1 => (true, head << 8 >> 16),
            _ => return Err(DecodeError::invalid("GTID set head", "an unknown format")),
        };
        let mut set = Self::new();
        for _ in 0..pairs {
            let source = SourceId::from_bytes(cursor.array("GTID source")?);
            let tag = if tagged {
                Tag::new(varlen::string(&mut cursor, "GTID tag")?)?
            } else {
                Tag::NONE
            };
            decode_intervals(&mut cursor, |interval| {
                set.add_interval(source, tag, interval);
            })?;
        }
        cursor.finish("the GTID set")?;
        Ok(set)
    }
}

fn decode_intervals(
    cursor: &mut Cursor<'_>,
    mut each: impl FnMut(Interval),
) -> Result<(), DecodeError> {
    let count = cursor.u64("GTID interval count")?;
    // Where the next interval may begin at the earliest.
    let mut floor = 0;
    for _ in 0..count {
        let first = cursor.i64("GTID interval")?;
        let behind = cursor.i64("GTID interval")?;
        if first <= floor || behind <= first {
            return Err(DecodeError::invalid(
                "GTID interval",
                "intervals are empty or not in order",
            ));
        }
        floor = behind;
        let interval = Interval::new(Gno::from_signed(first)?, Gno::from_signed(behind - 1)?);
        each(interval.ok_or(DecodeError::invalid("GTID interval", "it is empty"))?);
    }
    Ok(())
}
