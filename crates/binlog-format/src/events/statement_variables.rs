//! INTVAR, RAND, USER_VAR: variables that the next statement needs to have the same effect as on the source. Statement format only.

use std::borrow::Cow;

use crate::decode::{Cursor, DecodeError, invalid};
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::EncodeEvent;

/// The variable of an INTVAR event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IntVarKind {
    /// The statement's `LAST_INSERT_ID()`.
    LastInsertId,
    /// The statement's first AUTO_INCREMENT value.
    InsertId,
}

/// A number that the next statement depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntVar {
    /// The variable.
    pub kind: IntVarKind,
    /// Its value.
    pub value: u64,
}

impl IntVar {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type or size, or of an unknown kind.
    pub fn decode(event: EventRef<'_>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::IntVar)?);
        let kind = match cursor.u8("INTVAR kind")? {
            1 => IntVarKind::LastInsertId,
            2 => IntVarKind::InsertId,
            _ => {
                return Err(invalid(
                    "INTVAR kind",
                    "neither 1 (LAST_INSERT_ID) nor 2 (INSERT_ID)",
                ));
            }
        };
        let value = cursor.u64("INTVAR value")?;
        cursor.finish("the INTVAR")?;
        Ok(Self { kind, value })
    }
}

impl EncodeEvent for IntVar {
    fn event_type(&self) -> EventType {
        EventType::IntVar
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.push(match self.kind {
            IntVarKind::LastInsertId => 1,
            IntVarKind::InsertId => 2,
        });
        out.extend_from_slice(&self.value.to_le_bytes());
    }
}

/// The two seeds of the next statement's `RAND()`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rand {
    /// `rand_seed1`.
    pub first_seed: u64,
    /// `rand_seed2`.
    pub second_seed: u64,
}

impl Rand {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type or size.
    pub fn decode(event: EventRef<'_>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::Rand)?);
        let first_seed = cursor.u64("RAND seed")?;
        let second_seed = cursor.u64("RAND seed")?;
        cursor.finish("the RAND")?;
        Ok(Self {
            first_seed,
            second_seed,
        })
    }
}

impl EncodeEvent for Rand {
    fn event_type(&self) -> EventType {
        EventType::Rand
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.first_seed.to_le_bytes());
        out.extend_from_slice(&self.second_seed.to_le_bytes());
    }
}

/// The encoding of a user variable's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UserVarType {
    /// Text in the value's collation.
    String,
    /// A double, little-endian.
    Real,
    /// An integer of 8 bytes, little-endian.
    Int,
    /// Precision, scale, and a DECIMAL encoded as in rows.
    Decimal,
}

impl UserVarType {
    const fn code(self) -> u8 {
        match self {
            Self::String => 0,
            Self::Real => 1,
            Self::Int => 2,
            Self::Decimal => 4,
        }
    }

    fn from_code(code: u8) -> Result<Self, DecodeError> {
        match code {
            0 => Ok(Self::String),
            1 => Ok(Self::Real),
            2 => Ok(Self::Int),
            4 => Ok(Self::Decimal),
            _ => Err(invalid(
                "USER_VAR type",
                "neither 0 (string), 1 (real), 2 (int) nor 4 (decimal)",
            )),
        }
    }
}

/// The value of a user variable that is not NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserVarValue<'a> {
    /// The type of [`Self::bytes`].
    pub value_type: UserVarType,
    /// Its collation id.
    pub collation: u32,
    /// The value's bytes, without a length.
    pub bytes: Cow<'a, [u8]>,
    /// Whether an INT is unsigned.
    pub unsigned: bool,
}

/// A user variable that the next statement depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserVar<'a> {
    /// Its name without `@`, in UTF-8.
    pub name: Cow<'a, [u8]>,
    /// Its value; `None` for NULL.
    pub value: Option<UserVarValue<'a>>,
}

/// Flag bit of an unsigned number.
const UNSIGNED: u8 = 1;

impl<'a> UserVar<'a> {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type, truncated, or has a value of an unknown type.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::UserVar)?);
        let name_len = cursor.u32("user variable's name length")?;
        let name = Cow::Borrowed(cursor.bytes("user variable's name", name_len as usize)?);
        if cursor.u8("user variable's NULL mark")? != 0 {
            return Ok(Self { name, value: None });
        }
        let value_type = UserVarType::from_code(cursor.u8("USER_VAR type")?)?;
        let collation = cursor.u32("user variable's collation")?;
        let value_len = cursor.u32("user variable's length")?;
        let bytes = Cow::Borrowed(cursor.bytes("user variable's value", value_len as usize)?);
        // Written for INT only.
        let flags = match cursor.is_empty() {
            true => 0,
            false => cursor.u8("user variable's flags")?,
        };
        Ok(Self {
            name,
            value: Some(UserVarValue {
                value_type,
                collation,
                bytes,
                unsigned: value_type == UserVarType::Int && flags & UNSIGNED != 0,
            }),
        })
    }
}

impl EncodeEvent for UserVar<'_> {
    fn event_type(&self) -> EventType {
        EventType::UserVar
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        // Both are from an event of at most 1 GiB, or from a test.
        out.extend_from_slice(&(self.name.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.name);
        out.push(u8::from(self.value.is_none()));
        if let Some(value) = &self.value {
            out.push(value.value_type.code());
            out.extend_from_slice(&value.collation.to_le_bytes());
            out.extend_from_slice(&(value.bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(&value.bytes);
            if value.value_type == UserVarType::Int {
                out.push(u8::from(value.unsigned));
            }
        }
    }
}
