//! A column's type in table maps: a type byte, and up to four bytes of metadata. Together they determine the length of the values.

use crate::decode::{Cursor, DecodeError, ensure, invalid};
use crate::events::TableMap;

/// A column's type, with the parameters that determine the length of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// TINYINT, BOOL: 1 byte; all integers are little-endian.
    TinyInt,
    /// SMALLINT: 2 bytes.
    SmallInt,
    /// MEDIUMINT: 3 bytes.
    MediumInt,
    /// INT: 4 bytes.
    Int,
    /// BIGINT: 8 bytes.
    BigInt,
    /// FLOAT: 4 bytes, little-endian.
    Float,
    /// DOUBLE: 8 bytes, little-endian.
    Double,
    /// DECIMAL: big-endian, nine digits in 4 bytes; the first bit is the sign.
    Decimal {
        /// Total digits.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// BIT: big-endian, in as few bytes as possible.
    Bit {
        /// Bits of a value, 1 to 64.
        bits: u16,
    },
    /// YEAR: 1 byte.
    Year,
    /// DATE: 3 bytes.
    Date,
    /// TIME in the format before 5.6: 3 bytes.
    OldTime,
    /// DATETIME in the format before 5.6: 8 bytes.
    OldDateTime,
    /// TIMESTAMP in the format before 5.6: 4 bytes.
    OldTimestamp,
    /// TIME: 3 bytes and the fraction, big-endian.
    Time {
        /// Digits of the fraction of a second, at most 6.
        decimals: u8,
    },
    /// DATETIME: 5 bytes and the fraction, big-endian.
    DateTime {
        /// Digits of the fraction of a second, at most 6.
        decimals: u8,
    },
    /// TIMESTAMP: 4 bytes and the fraction, big-endian.
    Timestamp {
        /// Digits of the fraction of a second, at most 6.
        decimals: u8,
    },
    /// VARCHAR, VARBINARY: a length of 1 or 2 bytes, then the value.
    VarChar {
        /// The longest value in bytes.
        max_bytes: u16,
    },
    /// CHAR, BINARY; trailing spaces (CHAR) or zeros (BINARY) are not written.
    Char {
        /// The longest value in bytes.
        max_bytes: u16,
    },
    /// ENUM: the member's number.
    Enum {
        /// Bytes of a value: 1 or 2.
        bytes: u8,
    },
    /// SET: a bit for each member.
    Set {
        /// Bytes of a value: at most 8.
        bytes: u8,
    },
    /// TINYTEXT to LONGTEXT, TINYBLOB to LONGBLOB.
    Blob {
        /// Bytes of a value's length: 1 to 4.
        length_bytes: u8,
    },
    /// JSON in MySQL's binary form.
    Json {
        /// Bytes of a value's length: 1 to 4.
        length_bytes: u8,
    },
    /// GEOMETRY and its subtypes: the SRID, then WKB.
    Geometry {
        /// Bytes of a value's length: 1 to 4.
        length_bytes: u8,
    },
    /// VECTOR (9.0 and later): floats.
    Vector {
        /// Bytes of a value's length: 1 to 4.
        length_bytes: u8,
    },
    /// The hidden column of a multi-valued index: JSON in binary form.
    TypedArray,
}

// Type bytes that are used more than once. The other ones are in [`ColumnType::read`].
const VARCHAR: u8 = 15;
const TYPED_ARRAY: u8 = 20;
const ENUM: u8 = 247;
const SET: u8 = 248;
const STRING: u8 = 254;

const FIELD: &str = "column metadata";
/// Maximum digits of a DECIMAL, total and after the point.
const MAX_PRECISION: u8 = 65;
const MAX_SCALE: u8 = 30;

impl ColumnType {
    /// The type for a type byte. Consumes the type's part of `metadata`.
    pub(super) fn read(type_byte: u8, metadata: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(match type_byte {
            1 => Self::TinyInt,
            2 => Self::SmallInt,
            9 => Self::MediumInt,
            3 => Self::Int,
            8 => Self::BigInt,
            4 => metadata.u8(FIELD).map(|_| Self::Float)?,
            5 => metadata.u8(FIELD).map(|_| Self::Double)?,
            246 => decimal(metadata.array(FIELD)?)?,
            16 => bit(metadata.array(FIELD)?)?,
            13 => Self::Year,
            10 | 14 => Self::Date,
            11 => Self::OldTime,
            12 => Self::OldDateTime,
            7 => Self::OldTimestamp,
            19 => decimals(metadata).map(|decimals| Self::Time { decimals })?,
            18 => decimals(metadata).map(|decimals| Self::DateTime { decimals })?,
            17 => decimals(metadata).map(|decimals| Self::Timestamp { decimals })?,
            VARCHAR => (metadata.u16(FIELD)).map(|max_bytes| Self::VarChar { max_bytes })?,
            STRING | ENUM | SET => char_enum_or_set(metadata.array(FIELD)?)?,
            249..=252 => length_bytes(metadata).map(|length_bytes| Self::Blob { length_bytes })?,
            245 => length_bytes(metadata).map(|length_bytes| Self::Json { length_bytes })?,
            255 => length_bytes(metadata).map(|length_bytes| Self::Geometry { length_bytes })?,
            242 => length_bytes(metadata).map(|length_bytes| Self::Vector { length_bytes })?,
            TYPED_ARRAY => {
                skip_element_type(metadata)?;
                Self::TypedArray
            }
            _ => {
                return Err(invalid(
                    "column type",
                    "no type that MySQL 5.7 to 9.x writes; the log is of a later version, or damaged",
                ));
            }
        })
    }

    /// Reads the next value of this type; returns it without its length.
    pub(super) fn take<'a>(self, images: &mut Cursor<'a>) -> Result<&'a [u8], DecodeError> {
        let length = match self.length() {
            Length::Fixed(bytes) => u64::from(bytes),
            Length::Counted(width) => images.uint("a value's length", usize::from(width))?,
        };
        images.counted("a row's value", length)
    }

    fn length(self) -> Length {
        Length::Fixed(match self {
            Self::TinyInt | Self::Year => 1,
            Self::SmallInt => 2,
            Self::MediumInt | Self::Date | Self::OldTime => 3,
            Self::Int | Self::Float | Self::OldTimestamp => 4,
            Self::BigInt | Self::Double | Self::OldDateTime => 8,
            Self::Decimal { precision, scale } => {
                decimal_bytes(precision.saturating_sub(scale)) + decimal_bytes(scale)
            }
            Self::Bit { bits } => bits.div_ceil(8),
            Self::Time { decimals } => 3 + u16::from(decimals.div_ceil(2)),
            Self::DateTime { decimals } => 5 + u16::from(decimals.div_ceil(2)),
            Self::Timestamp { decimals } => 4 + u16::from(decimals.div_ceil(2)),
            Self::Enum { bytes } | Self::Set { bytes } => u16::from(bytes),
            Self::VarChar { max_bytes } | Self::Char { max_bytes } => {
                return Length::Counted(if max_bytes > 255 { 2 } else { 1 });
            }
            Self::Blob { length_bytes }
            | Self::Json { length_bytes }
            | Self::Geometry { length_bytes }
            | Self::Vector { length_bytes } => return Length::Counted(length_bytes),
            Self::TypedArray => return Length::Counted(4),
        })
    }

    /// True if all values have the same length, which the type determines.
    pub fn has_fixed_length(self) -> bool {
        matches!(self.length(), Length::Fixed(_))
    }

    /// True if a table map records the column's character set among those of text columns. A vector counts as a binary string there.
    pub(super) const fn is_text(self) -> bool {
        matches!(
            self,
            Self::VarChar { .. } | Self::Char { .. } | Self::Blob { .. } | Self::Vector { .. }
        )
    }

    /// True if a table map records the column's character set among those of ENUM and SET columns.
    pub(super) const fn is_enum_or_set(self) -> bool {
        matches!(self, Self::Enum { .. } | Self::Set { .. })
    }
}

enum Length {
    /// Fixed length in bytes.
    Fixed(u16),
    /// Prefixed with a length of this many bytes.
    Counted(u8),
}

/// Number of bytes for the digits on one side of the point. Nine digits take four bytes; the remaining digits take as few bytes as
/// possible.
fn decimal_bytes(digits: u8) -> u16 {
    const REST: [u16; 9] = [0, 1, 1, 2, 2, 3, 3, 4, 4];
    let rest = REST.get(usize::from(digits % 9)).copied();
    u16::from(digits / 9) * 4 + rest.unwrap_or_default()
}

fn decimal([precision, scale]: [u8; 2]) -> Result<ColumnType, DecodeError> {
    let fits = precision <= MAX_PRECISION && scale <= MAX_SCALE && scale <= precision;
    let reason =
        "a DECIMAL with more than 65 digits, 30 after the point, or more there than in total";
    ensure(fits, FIELD, reason).map(|()| ColumnType::Decimal { precision, scale })
}

fn bit([odd_bits, whole_bytes]: [u8; 2]) -> Result<ColumnType, DecodeError> {
    let fits = odd_bits <= 7 && whole_bytes <= 8;
    let bits = u16::from(whole_bytes) * 8 + u16::from(odd_bits);
    ensure(fits, FIELD, "a BIT with more than 64 bits").map(|()| ColumnType::Bit { bits })
}

fn decimals(metadata: &mut Cursor<'_>) -> Result<u8, DecodeError> {
    let decimals = metadata.u8(FIELD)?;
    let reason = "a time with more than 6 digits of a second's fraction";
    ensure(decimals <= 6, FIELD, reason).map(|()| decimals)
}

fn length_bytes(metadata: &mut Cursor<'_>) -> Result<u8, DecodeError> {
    let length_bytes = metadata.u8(FIELD)?;
    let fits = (1..=4).contains(&length_bytes);
    let reason = "a BLOB whose length has other than 1 to 4 bytes";
    ensure(fits, FIELD, reason).map(|()| length_bytes)
}

/// CHAR, ENUM and SET share a type byte; the first metadata byte is the real type. For a CHAR of more than 255 bytes, two bits of that byte
/// are the inverted bits 8 and 9 of the length.
fn char_enum_or_set([real_type, length]: [u8; 2]) -> Result<ColumnType, DecodeError> {
    const HIGH_LENGTH: u8 = 0x30;
    match (real_type, length) {
        (ENUM, bytes @ 1..=2) => return Ok(ColumnType::Enum { bytes }),
        (SET, bytes @ 1..=8) => return Ok(ColumnType::Set { bytes }),
        _ => {}
    }
    let is_char = real_type | HIGH_LENGTH == STRING;
    ensure(is_char, FIELD, "neither a CHAR, an ENUM nor a SET")?;
    let high = u16::from(!real_type & HIGH_LENGTH) << 4;
    Ok(ColumnType::Char {
        max_bytes: high | u16::from(length),
    })
}

/// Skips the element type of a typed array and its metadata. For texts, the length has three bytes here.
fn skip_element_type(metadata: &mut Cursor<'_>) -> Result<(), DecodeError> {
    match metadata.u8(FIELD)? {
        VARCHAR => metadata.bytes(FIELD, 3).map(|_| ()),
        TYPED_ARRAY => Err(invalid(FIELD, "an array of arrays")),
        other => ColumnType::read(other, metadata).map(|_| ()),
    }
}

// The columns of a table map.

/// The types of a table's columns, in order. They apply to all rows events of the same table map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    types: Box<[ColumnType]>,
    /// Number of JSON columns. An image with differences has a bit for each of them.
    pub(super) json: usize,
}

impl Columns {
    /// Maximum columns of a MySQL table.
    pub const MAX: usize = 4096;

    /// Decodes the columns of a table map. Takes a few bytes of memory for each column.
    ///
    /// # Errors
    /// When a type is not one of MySQL 5.7 to 9.x, the metadata does not match the types, or there are more than [`Self::MAX`] columns.
    pub fn of(map: &TableMap<'_>) -> Result<Self, DecodeError> {
        let fits = map.column_types.len() <= Self::MAX;
        let reason = "it has more columns than a MySQL table may have (4,096)";
        ensure(fits, "table map", reason)?;
        let mut metadata = Cursor::new(&map.metadata);
        let types = map.column_types.iter();
        let types = types.map(|type_byte| ColumnType::read(*type_byte, &mut metadata));
        let types = types.collect::<Result<Box<[_]>, _>>()?;
        metadata.finish("column metadata")?;
        let is_json = |column: &&ColumnType| matches!(column, ColumnType::Json { .. });
        let json = types.iter().filter(is_json).count();
        Ok(Self { types, json })
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// True if there are no columns.
    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    /// The columns' types, in table order.
    pub fn iter(&self) -> impl Iterator<Item = ColumnType> + '_ {
        self.types.iter().copied()
    }
}
