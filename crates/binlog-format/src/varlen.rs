//! The variable-length integers of MySQL's serialization library: as many trailing one bits as bytes
//! follow the first, a zero bit, then the value; eight one bits stand for a whole 64-bit value.

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;

/// Appends an unsigned integer in its shortest form.
pub(crate) fn put_unsigned(out: &mut Vec<u8>, value: u64) {
    let significant = 64 - value.leading_zeros() as usize;
    // Each byte in front of the ninth gives one bit to the length.
    let length = significant.div_ceil(7).max(1);
    if length > 8 {
        out.push(0xff);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        let marked = (u128::from(value) << length) | ((1 << (length - 1)) - 1);
        out.extend(marked.to_le_bytes().iter().take(length));
    }
}

/// Appends a signed integer: its magnitude shifted left by one, the sign in the lowest bit.
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    let sign = value >> 63;
    put_unsigned(out, (((value ^ sign) as u64) << 1) | (sign as u64 & 1));
}

/// Appends a byte string behind its length.
pub(crate) fn put_string(out: &mut Vec<u8>, value: &[u8]) {
    put_unsigned(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Reads an unsigned integer.
pub(crate) fn unsigned(cursor: &mut Cursor<'_>, field: &'static str) -> Result<u64, DecodeError> {
    let first = cursor.u8(field)?;
    let following = first.trailing_ones() as usize;
    let rest = cursor.uint(field, following)?;
    Ok(match following {
        0..=6 => u64::from(first >> (following + 1)) | rest << (7 - following),
        _ => rest,
    })
}

/// Reads a signed integer.
pub(crate) fn signed(cursor: &mut Cursor<'_>, field: &'static str) -> Result<i64, DecodeError> {
    let coded = unsigned(cursor, field)?;
    Ok((coded >> 1) as i64 ^ -((coded & 1) as i64))
}

/// Reads a byte string behind its length.
pub(crate) fn string<'a>(
    cursor: &mut Cursor<'a>,
    field: &'static str,
) -> Result<&'a [u8], DecodeError> {
    let length = unsigned(cursor, field)?;
    let remaining = cursor.remaining() as u64;
    if length > remaining {
        return Err(DecodeError::Truncated {
            field,
            needed: length,
            remaining,
        });
    }
    cursor.bytes(field, length as usize)
}

#[cfg(test)]
mod tests {
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
