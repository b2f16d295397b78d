//! Fields inside a packet: read with every length checked, and written.

use bytes::{Buf, Bytes};

use crate::error::ProtocolError;

/// Reads fields off the front of a packet's payload; values share the packet's memory.
#[derive(Debug)]
pub struct FieldReader {
    rest: Bytes,
    what: &'static str,
}

impl FieldReader {
    /// A reader of `payload`; `what` names it in errors.
    pub fn new(payload: Bytes, what: &'static str) -> Self {
        Self {
            rest: payload,
            what,
        }
    }

    /// Whether all bytes were taken.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `length` bytes.
    ///
    /// # Errors
    /// When fewer are left.
    pub fn bytes(&mut self, length: usize) -> Result<Bytes, ProtocolError> {
        if self.rest.len() < length {
            return Err(ProtocolError::malformed(
                self.what,
                format_args!(
                    "a field of {length} bytes, but only {} are left",
                    self.rest.len()
                ),
            ));
        }
        Ok(self.rest.split_to(length))
    }

    /// One byte.
    ///
    /// # Errors
    /// At the end.
    pub fn byte(&mut self) -> Result<u8, ProtocolError> {
        Ok(self.bytes(1)?[0])
    }

    /// A length-encoded integer.
    ///
    /// # Errors
    /// When it is cut off, or is the NULL marker.
    pub fn integer(&mut self) -> Result<u64, ProtocolError> {
        self.integer_or_null()?
            .ok_or_else(|| ProtocolError::malformed(self.what, "NULL where a number is due"))
    }

    /// A length-encoded string, or `None` for NULL.
    ///
    /// # Errors
    /// When it is cut off.
    pub fn string_or_null(&mut self) -> Result<Option<Bytes>, ProtocolError> {
        match self.integer_or_null()? {
            None => Ok(None),
            Some(length) => {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                self.bytes(length).map(Some)
            }
        }
    }

    /// A length-encoded string.
    ///
    /// # Errors
    /// When it is cut off or NULL.
    pub fn string(&mut self) -> Result<Bytes, ProtocolError> {
        self.string_or_null()?
            .ok_or_else(|| ProtocolError::malformed(self.what, "NULL where a string is due"))
    }

    fn integer_or_null(&mut self) -> Result<Option<u64>, ProtocolError> {
        let width = match self.byte()? {
            0xfb => return Ok(None),
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            0xff => return Err(ProtocolError::malformed(self.what, "0xff is no length")),
            small => return Ok(Some(u64::from(small))),
        };
        Ok(Some(self.bytes(width)?.get_uint_le(width)))
    }
}

/// Appends a length-encoded integer.
pub fn put_integer(out: &mut Vec<u8>, value: u64) {
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

/// Appends a length-encoded string.
pub fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    put_integer(out, text.len() as u64);
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reader(bytes: &[u8]) -> FieldReader {
        FieldReader::new(Bytes::copy_from_slice(bytes), "test")
    }

    #[test]
    fn integers_of_every_width() {
        assert_eq!(reader(&[0xfa]).integer(), Ok(0xfa));
        assert_eq!(reader(&[0xfc, 1, 2]).integer(), Ok(0x0201));
        assert_eq!(reader(&[0xfd, 1, 2, 3]).integer(), Ok(0x03_0201));
        assert_eq!(
            reader(&[0xfe, 1, 2, 3, 4, 5, 6, 7, 8]).integer(),
            Ok(0x0807_0605_0403_0201)
        );
        assert!(reader(&[0xfb]).integer().is_err());
        assert!(reader(&[0xff]).integer().is_err());
        assert!(reader(&[0xfc, 1]).integer().is_err());
    }

    #[test]
    fn strings_and_nulls() {
        let mut fields = reader(&[2, b'a', b'b', 0xfb, 0]);
        assert_eq!(fields.string_or_null(), Ok(Some(Bytes::from_static(b"ab"))));
        assert_eq!(fields.string_or_null(), Ok(None));
        assert_eq!(fields.string(), Ok(Bytes::new()));
        assert!(fields.is_empty());
        assert!(reader(&[3, b'a']).string().is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(number in any::<u64>(), bits in 0..64_u32, text in ".{0,300}") {
            let mut out = Vec::new();
            put_integer(&mut out, number >> bits);
            put_string(&mut out, text.as_bytes());
            let mut fields = reader(&out);
            prop_assert_eq!(fields.integer(), Ok(number >> bits));
            prop_assert_eq!(fields.string(), Ok(Bytes::from(text)));
            prop_assert!(fields.is_empty());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut fields = reader(&bytes);
            while !fields.is_empty() && fields.string_or_null().is_ok() {}
        }
    }
}
