//! Reads little-endian fields from the front of a byte slice, and defines the decoding error. The bytes come from disks and other servers,
//! so every length is checked before use. No input causes a panic or an allocation.

use thiserror::Error;

use crate::event_type::EventType;

/// Why bytes could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes end before the value.
    #[error(
        "{field} needs {needed} bytes, but only {remaining} are left: the data is cut off or corrupt"
    )]
    Truncated {
        /// Name of the field or value.
        field: &'static str,
        /// Bytes that the value needs.
        needed: u64,
        /// Remaining bytes.
        remaining: u64,
    },
    /// A value that the format does not allow.
    #[error("{field} is invalid: {reason}")]
    Invalid {
        /// Name of the field or value.
        field: &'static str,
        /// The cause.
        reason: &'static str,
    },
    /// The decoder got an event of another type.
    #[error("expected a {expected} event, found {found}")]
    WrongType {
        /// The decoder's type.
        expected: EventType,
        /// The type in the event's header.
        found: EventType,
    },
    /// Bytes remain after the value.
    #[error("{count} unexpected bytes follow {field}")]
    TrailingBytes {
        /// Name of the value.
        field: &'static str,
        /// Number of remaining bytes.
        count: u64,
    },
    /// The event's CRC32 does not match its bytes.
    #[error(
        "the CRC32 of a {event_type} event is {found:08x}, but {expected:08x} is stored with it: \
         the event was damaged after the server wrote it"
    )]
    ChecksumMismatch {
        /// The event's type, from its header.
        event_type: EventType,
        /// The event's checksum field.
        expected: u32,
        /// The checksum of the event's bytes.
        found: u32,
    },
    /// A value exceeds the reader's limit.
    #[error("{field} has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// Name of the field or value.
        field: &'static str,
        /// The value's size in bytes, or a lower bound of it.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
}

impl DecodeError {
    pub(crate) fn truncated(field: &'static str, needed: u64, remaining: usize) -> Self {
        Self::Truncated {
            field,
            needed,
            remaining: remaining as u64,
        }
    }
}

pub(crate) fn invalid(field: &'static str, reason: &'static str) -> DecodeError {
    DecodeError::Invalid { field, reason }
}

/// Returns an error if the format does not allow the value.
pub(crate) fn ensure(
    is_valid: bool,
    field: &'static str,
    reason: &'static str,
) -> Result<(), DecodeError> {
    is_valid.then_some(()).ok_or(invalid(field, reason))
}

/// The unread rest of a byte slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn bytes(
        &mut self,
        field: &'static str,
        count: usize,
    ) -> Result<&'a [u8], DecodeError> {
        let taken = self.rest.split_off(..count);
        taken.ok_or_else(|| DecodeError::truncated(field, count as u64, self.rest.len()))
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(field, N)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, DecodeError> {
        Ok(i64::from_le_bytes(self.array(field)?))
    }

    /// A little-endian integer of `width` bytes, at most eight.
    pub(crate) fn uint(&mut self, field: &'static str, width: usize) -> Result<u64, DecodeError> {
        debug_assert!(width <= 8, "an integer of {width} bytes");
        let mut wide = [0; 8];
        for (to, from) in wide.iter_mut().zip(self.bytes(field, width)?) {
            *to = *from;
        }
        Ok(u64::from_le_bytes(wide))
    }

    /// An integer in MySQL's length-encoded form.
    pub(crate) fn length_encoded(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        match self.u8(field)? {
            short @ 0..=250 => Ok(u64::from(short)),
            252 => self.uint(field, 2),
            253 => self.uint(field, 3),
            254 => self.uint(field, 8),
            _ => {
                let reason = "251 and 255 do not begin a length-encoded integer";
                Err(invalid(field, reason))
            }
        }
    }

    /// A byte string with a length-encoded length.
    pub(crate) fn length_encoded_bytes(
        &mut self,
        field: &'static str,
    ) -> Result<&'a [u8], DecodeError> {
        let length = self.length_encoded(field)?;
        self.counted(field, length)
    }

    /// Reads the next field; `None` after field number 0. A field is a length-encoded number, a length-encoded length, and a value.
    pub(crate) fn numbered_field(
        &mut self,
        field: &'static str,
    ) -> Result<Option<(u64, Self)>, DecodeError> {
        match self.length_encoded(field)? {
            0 => Ok(None),
            number => Ok(Some((number, Self::new(self.length_encoded_bytes(field)?)))),
        }
    }

    /// Reads as many bytes as a length from the input requires.
    pub(crate) fn counted(
        &mut self,
        field: &'static str,
        count: u64,
    ) -> Result<&'a [u8], DecodeError> {
        match usize::try_from(count) {
            Ok(count) => self.bytes(field, count),
            Err(_) => Err(DecodeError::truncated(field, count, self.rest.len())),
        }
    }

    /// Succeeds if everything was read.
    pub(crate) fn finish(self, field: &'static str) -> Result<(), DecodeError> {
        match self.rest.len() as u64 {
            0 => Ok(()),
            count => Err(DecodeError::TrailingBytes { field, count }),
        }
    }
}

/// Appends a length-encoded integer as a field: see [`Cursor::numbered_field`].
pub(crate) fn put_numbered_field(out: &mut Vec<u8>, number: u64, value: u64) {
    let mut coded = Vec::new();
    put_length_encoded(&mut coded, value);
    put_length_encoded(out, number);
    put_length_encoded(out, coded.len() as u64);
    out.extend_from_slice(&coded);
}

/// Appends an integer in MySQL's length-encoded form.
pub(crate) fn put_length_encoded(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_le_bytes();
    match value {
        0..=250 => out.push(bytes[0]),
        251..=0xffff => {
            out.push(252);
            out.extend_from_slice(&bytes[..2]);
        }
        0x1_0000..=0xff_ffff => {
            out.push(253);
            out.extend_from_slice(&bytes[..3]);
        }
        _ => {
            out.push(254);
            out.extend_from_slice(&bytes);
        }
    }
}

// Variable-length integers of MySQL's serialization library. The first byte has as many trailing one bits as bytes follow, then a zero bit,
// then the value. If all its eight bits are one, a whole 64-bit value follows.

/// Appends an unsigned integer in its shortest form.
pub(crate) fn put_unsigned(out: &mut Vec<u8>, value: u64) {
    let significant = 64 - value.leading_zeros() as usize;
    // Up to eight bytes, each byte has 7 bits of the value, because one bit is used for the length.
    let length = significant.div_ceil(7).max(1);
    if length > 8 {
        out.push(0xff);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        let marked = (u128::from(value) << length) | ((1 << (length - 1)) - 1);
        out.extend(marked.to_le_bytes().iter().take(length));
    }
}

/// Appends a signed integer: the magnitude is shifted left by one, and the lowest bit is the sign.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    let sign = value >> 63;
    put_unsigned(out, (((value ^ sign) as u64) << 1) | (sign as u64 & 1));
}

/// Appends a byte string after its length.
pub(crate) fn put_string(out: &mut Vec<u8>, value: &[u8]) {
    put_unsigned(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Reads an unsigned integer of variable length: the number of trailing ones in the first byte is the number of following bytes.
pub(crate) fn unsigned(cursor: &mut Cursor<'_>, field: &'static str) -> Result<u64, DecodeError> {
    let first = cursor.u8(field)?;
    let following = first.trailing_ones() as usize;
    let rest = cursor.uint(field, following)?;
    Ok(match following {
        0..=6 => u64::from(first >> (following + 1)) | rest << (7 - following),
        _ => rest,
    })
}

/// Reads a signed integer of variable length, in zigzag encoding.
pub(crate) fn signed(cursor: &mut Cursor<'_>, field: &'static str) -> Result<i64, DecodeError> {
    let coded = unsigned(cursor, field)?;
    Ok((coded >> 1) as i64 ^ -((coded & 1) as i64))
}

/// Reads a byte string after its length.
pub(crate) fn string<'a>(
    cursor: &mut Cursor<'a>,
    field: &'static str,
) -> Result<&'a [u8], DecodeError> {
    let length = unsigned(cursor, field)?;
    cursor.counted(field, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_encoded_integers_round_trip_at_their_borders() {
        for value in [
            0,
            250,
            251,
            0xffff,
            0x1_0000,
            0xff_ffff,
            0x100_0000,
            u64::MAX,
        ] {
            let mut out = Vec::new();
            put_length_encoded(&mut out, value);
            let mut cursor = Cursor::new(&out);
            assert_eq!(cursor.length_encoded("value"), Ok(value));
            assert!(cursor.is_empty());
        }
    }

    #[test]
    fn a_length_beyond_the_data_is_refused() {
        let mut out = Vec::new();
        put_length_encoded(&mut out, u64::MAX);
        assert_eq!(
            Cursor::new(&out).length_encoded_bytes("name"),
            Err(DecodeError::Truncated {
                field: "name",
                needed: u64::MAX,
                remaining: 0
            })
        );
    }
}

#[cfg(test)]
mod varlen_tests {
    use super::*;

    #[test]
    fn unsigned_integers_round_trip_at_every_length() {
        for bits in 0..=64_u32 {
            let value = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
            for value in [value, value.saturating_sub(1)] {
                let mut out = Vec::new();
                put_unsigned(&mut out, value);
                let mut cursor = Cursor::new(&out);
                assert_eq!(unsigned(&mut cursor, "value"), Ok(value));
                assert!(cursor.is_empty());
            }
        }
    }

    #[test]
    fn the_documented_examples_hold() {
        for (value, bytes) in [
            (65535, [0xfb, 0xff, 0x07]),
            (-65535, [0xeb, 0xff, 0x0f]),
            (-65536, [0xfb, 0xff, 0x0f]),
        ] {
            let mut out = Vec::new();
            if bytes == [0xfb, 0xff, 0x07] {
                put_unsigned(&mut out, 65535);
            } else {
                put_signed(&mut out, value);
                assert_eq!(signed(&mut Cursor::new(&out), "value"), Ok(value));
            }
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn lengths_are_those_of_the_format() {
        for (value, length) in [
            (0, 1),
            (127, 1),
            (128, 2),
            ((1 << 56) - 1, 8),
            (1 << 56, 9),
            (u64::MAX, 9),
        ] {
            let mut out = Vec::new();
            put_unsigned(&mut out, value);
            assert_eq!(out.len(), length, "{value}");
        }
    }

    #[test]
    fn signed_extremes_round_trip() {
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            put_signed(&mut out, value);
            assert_eq!(signed(&mut Cursor::new(&out), "value"), Ok(value));
        }
    }
}
