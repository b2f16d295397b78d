//! QUERY: a statement with its session context, or BEGIN, COMMIT and similar statements.
//!
//! ```text
//! u32 thread; u32 seconds; u8 schema length; u16 error code; u16 status variables' length;
//! status variables; schema; 0; statement
//! ```

use std::borrow::Cow;

use crate::cursor::Cursor;
use crate::decode_error::DecodeError;
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::EncodeEvent;

/// A statement. Its fields are bytes: statements need not be UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query<'a> {
    /// The connection that ran it.
    pub thread_id: u32,
    /// Execution time on the source, in seconds.
    pub execution_seconds: u32,
    /// Its error on the source; 0 for none.
    pub error_code: u16,
    /// Session variables in MySQL's encoding, decoded by [`SessionContext`]; at most 65,535 bytes.
    pub status_variables: Cow<'a, [u8]>,
    /// The default schema; at most 255 bytes.
    pub schema: Cow<'a, [u8]>,
    /// The statement's text.
    pub statement: Cow<'a, [u8]>,
}

impl<'a> Query<'a> {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When it is of another type or truncated.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::Query)?);
        let thread_id = cursor.u32("thread id")?;
        let execution_seconds = cursor.u32("execution time")?;
        let schema_len = cursor.u8("schema length")?;
        let error_code = cursor.u16("error code")?;
        let status_len = cursor.u16("status variables' length")?;
        let status_variables = cursor.bytes("status variables", usize::from(status_len))?;
        let schema = cursor.bytes("schema", usize::from(schema_len))?;
        if cursor.u8("schema's end")? != 0 {
            return Err(DecodeError::invalid("schema", "it is not terminated"));
        }
        Ok(Self {
            thread_id,
            execution_seconds,
            error_code,
            status_variables: Cow::Borrowed(status_variables),
            schema: Cow::Borrowed(schema),
            statement: Cow::Borrowed(cursor.take_rest()),
        })
    }
}

/// A statement's role in its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatementKind {
    /// BEGIN.
    Begin,
    /// XA START.
    XaStart,
    /// COMMIT.
    Commit,
    /// ROLLBACK of the whole transaction.
    Rollback,
    /// XA ROLLBACK: a transaction of its own, or the end of one that XA START began.
    XaRollback,
    /// SAVEPOINT: no effect of its own. The server writes it in every format, and never RELEASE SAVEPOINT.
    Savepoint,
    /// Any other: a transaction of its own, or after BEGIN a part of one.
    Other,
}

impl StatementKind {
    /// Classifies a statement's text. The server itself writes BEGIN, COMMIT and XA START, in capitals; others may be a client's text.
    pub fn of(statement: &[u8]) -> Self {
        if statement == b"BEGIN" {
            Self::Begin
        } else if statement.starts_with(b"XA START") {
            Self::XaStart
        } else if statement == b"COMMIT" {
            Self::Commit
        } else if begins_with(statement, b"ROLLBACK") && !begins_with(statement, b"ROLLBACK TO ") {
            Self::Rollback
        } else if begins_with(statement, b"XA ROLLBACK") {
            Self::XaRollback
        } else if begins_with(statement, b"SAVEPOINT ") {
            Self::Savepoint
        } else {
            Self::Other
        }
    }
}

fn begins_with(statement: &[u8], words: &[u8]) -> bool {
    statement
        .get(..words.len())
        .is_some_and(|head| head.eq_ignore_ascii_case(words))
}

impl EncodeEvent for Query<'_> {
    fn event_type(&self) -> EventType {
        EventType::Query
    }

    /// Truncates a schema or status variables that exceed their length field.
    fn encode_body(&self, out: &mut Vec<u8>) {
        let schema = self
            .schema
            .get(..usize::from(u8::MAX))
            .unwrap_or(&self.schema);
        let status = self
            .status_variables
            .get(..usize::from(u16::MAX))
            .unwrap_or(&self.status_variables);
        out.extend_from_slice(&self.thread_id.to_le_bytes());
        out.extend_from_slice(&self.execution_seconds.to_le_bytes());
        out.push(schema.len() as u8);
        out.extend_from_slice(&self.error_code.to_le_bytes());
        out.extend_from_slice(&(status.len() as u16).to_le_bytes());
        out.extend_from_slice(status);
        out.extend_from_slice(schema);
        out.push(0);
        out.extend_from_slice(&self.statement);
    }
}

// A statement's session, from a QUERY event's status variables: a code byte, then a value whose form depends on the code. `None` means that
// the server did not write it: the session's default applies.

mod code {
    pub(super) const OPTIONS: u8 = 0;
    pub(super) const SQL_MODE: u8 = 1;
    pub(super) const TERMINATED_CATALOG: u8 = 2;
    pub(super) const AUTO_INCREMENT: u8 = 3;
    pub(super) const CHARACTER_SETS: u8 = 4;
    pub(super) const TIME_ZONE: u8 = 5;
    pub(super) const CATALOG: u8 = 6;
    pub(super) const LC_TIME_NAMES: u8 = 7;
    pub(super) const COLLATION_DATABASE: u8 = 8;
    pub(super) const TABLES_FOR_UPDATE: u8 = 9;
    pub(super) const SOURCE_DATA_WRITTEN: u8 = 10;
    pub(super) const INVOKER: u8 = 11;
    pub(super) const UPDATED_SCHEMAS: u8 = 12;
    pub(super) const MICROSECONDS: u8 = 13;
    pub(super) const EXPLICIT_DEFAULTS_FOR_TIMESTAMP: u8 = 16;
    pub(super) const DDL_XID: u8 = 17;
    pub(super) const DEFAULT_COLLATION_FOR_UTF8MB4: u8 = 18;
    pub(super) const SQL_REQUIRE_PRIMARY_KEY: u8 = 19;
    pub(super) const DEFAULT_TABLE_ENCRYPTION: u8 = 20;
    pub(super) const ENABLE_CASCADE_TRIGGERS: u8 = 21;
}

/// Maximum number of schema names that a server writes; a greater count means "many", without names.
const MAX_UPDATED_SCHEMAS: u8 = 16;

/// Option bits of the source's session (`flags2`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SessionOptions(pub u32);

impl SessionOptions {
    /// `sql_auto_is_null`.
    pub const fn sql_auto_is_null(self) -> bool {
        self.0 & 1 << 14 != 0
    }

    /// `autocommit`.
    pub const fn autocommit(self) -> bool {
        self.0 & 1 << 19 == 0
    }

    /// `foreign_key_checks`.
    pub const fn foreign_key_checks(self) -> bool {
        self.0 & 1 << 26 == 0
    }

    /// `unique_checks`.
    pub const fn unique_checks(self) -> bool {
        self.0 & 1 << 27 == 0
    }
}

/// `auto_increment_increment` and `auto_increment_offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AutoIncrement {
    /// `auto_increment_increment`.
    pub increment: u16,
    /// `auto_increment_offset`.
    pub offset: u16,
}

/// Collation ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CharacterSets {
    /// `character_set_client`, by the id of its default collation.
    pub client: u16,
    /// `collation_connection`.
    pub connection: u16,
    /// `collation_server`.
    pub server: u16,
}

/// The account that defines a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Invoker<'a> {
    /// User name of the account.
    pub user: &'a [u8],
    /// Host of the account.
    pub host: &'a [u8],
}

/// Schemas that a statement changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UpdatedSchemas<'a> {
    /// These.
    Named(Vec<&'a [u8]>),
    /// More than a server names.
    Many,
}

/// The session of a statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionContext<'a> {
    /// Option bits.
    pub options: Option<SessionOptions>,
    /// `sql_mode`, as bits.
    pub sql_mode: Option<u64>,
    /// The catalogue; always `std`.
    pub catalog: Option<&'a [u8]>,
    /// Written when it is not 1 and 1.
    pub auto_increment: Option<AutoIncrement>,
    /// Character sets of the connection.
    pub character_sets: Option<CharacterSets>,
    /// `time_zone`; written if the statement depends on it.
    pub time_zone: Option<&'a [u8]>,
    /// `lc_time_names`, by id; written if it is not en_US (0).
    pub lc_time_names: Option<u16>,
    /// `collation_database`, by id.
    pub collation_database: Option<u16>,
    /// The tables that a multi-table update changes, as bits.
    pub tables_for_update: Option<u64>,
    /// The account meant by CURRENT_USER.
    pub invoker: Option<Invoker<'a>>,
    /// The schemas that it changes.
    pub updated_schemas: Option<UpdatedSchemas<'a>>,
    /// Microseconds of the statement's time, whose seconds are in the header.
    pub microseconds: Option<u32>,
    /// `explicit_defaults_for_timestamp`.
    pub explicit_defaults_for_timestamp: Option<bool>,
    /// A DDL statement's number in the source's engines, used in recovery.
    pub ddl_xid: Option<u64>,
    /// `default_collation_for_utf8mb4`, by id.
    pub default_collation_for_utf8mb4: Option<u16>,
    /// `sql_require_primary_key`.
    pub sql_require_primary_key: Option<bool>,
    /// `default_table_encryption`.
    pub default_table_encryption: Option<bool>,
    /// `enable_cascade_triggers` (9.7 and later).
    pub enable_cascade_triggers: Option<bool>,
    /// The first unknown code. Nothing after it can be decoded, because the code determines a value's length.
    pub unknown: Option<u8>,
}

impl<'a> SessionContext<'a> {
    /// Decodes [`Query::status_variables`](crate::events::Query::status_variables), up to the first unknown one.
    ///
    /// # Errors
    /// When a value is truncated.
    pub fn decode(status_variables: &'a [u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(status_variables);
        let mut context = Self::default();
        while !cursor.is_empty() && context.unknown.is_none() {
            let code = cursor.u8("status variable")?;
            context.take(code, &mut cursor)?;
        }
        Ok(context)
    }

    fn take(&mut self, code: u8, cursor: &mut Cursor<'a>) -> Result<(), DecodeError> {
        const FIELD: &str = "status variable";
        match code {
            code::OPTIONS => self.options = Some(SessionOptions(cursor.u32(FIELD)?)),
            code::SQL_MODE => self.sql_mode = Some(cursor.u64(FIELD)?),
            code::TERMINATED_CATALOG => {
                self.catalog = Some(short_bytes(cursor)?);
                cursor.u8(FIELD)?;
            }
            code::CATALOG => self.catalog = Some(short_bytes(cursor)?),
            code::AUTO_INCREMENT => {
                self.auto_increment = Some(AutoIncrement {
                    increment: cursor.u16(FIELD)?,
                    offset: cursor.u16(FIELD)?,
                });
            }
            code::CHARACTER_SETS => {
                self.character_sets = Some(CharacterSets {
                    client: cursor.u16(FIELD)?,
                    connection: cursor.u16(FIELD)?,
                    server: cursor.u16(FIELD)?,
                });
            }
            code::TIME_ZONE => self.time_zone = Some(short_bytes(cursor)?),
            code::LC_TIME_NAMES => self.lc_time_names = Some(cursor.u16(FIELD)?),
            code::COLLATION_DATABASE => self.collation_database = Some(cursor.u16(FIELD)?),
            code::TABLES_FOR_UPDATE => self.tables_for_update = Some(cursor.u64(FIELD)?),
            code::SOURCE_DATA_WRITTEN => {
                cursor.u32(FIELD)?;
            }
            code::INVOKER => {
                self.invoker = Some(Invoker {
                    user: short_bytes(cursor)?,
                    host: short_bytes(cursor)?,
                });
            }
            code::UPDATED_SCHEMAS => self.updated_schemas = Some(updated_schemas(cursor)?),
            code::MICROSECONDS => self.microseconds = Some(cursor.uint(FIELD, 3)? as u32),
            code::EXPLICIT_DEFAULTS_FOR_TIMESTAMP => {
                self.explicit_defaults_for_timestamp = Some(cursor.u8(FIELD)? != 0);
            }
            code::DDL_XID => self.ddl_xid = Some(cursor.u64(FIELD)?),
            code::DEFAULT_COLLATION_FOR_UTF8MB4 => {
                self.default_collation_for_utf8mb4 = Some(cursor.u16(FIELD)?);
            }
            code::SQL_REQUIRE_PRIMARY_KEY => {
                self.sql_require_primary_key = Some(cursor.u8(FIELD)? != 0);
            }
            code::DEFAULT_TABLE_ENCRYPTION => {
                self.default_table_encryption = Some(cursor.u8(FIELD)? != 0);
            }
            code::ENABLE_CASCADE_TRIGGERS => {
                self.enable_cascade_triggers = Some(cursor.u8(FIELD)? != 0);
            }
            unknown => self.unknown = Some(unknown),
        }
        Ok(())
    }
}

fn short_bytes<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], DecodeError> {
    let length = cursor.u8("status variable")?;
    cursor.bytes("status variable", usize::from(length))
}

fn updated_schemas<'a>(cursor: &mut Cursor<'a>) -> Result<UpdatedSchemas<'a>, DecodeError> {
    let count = cursor.u8("updated schemas")?;
    if count > MAX_UPDATED_SCHEMAS {
        return Ok(UpdatedSchemas::Many);
    }
    let mut names = Vec::new();
    for _ in 0..count {
        let mut ahead = *cursor;
        let rest = ahead.take_rest();
        let length = rest
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(DecodeError::invalid(
                "updated schemas",
                "a name is not terminated",
            ))?;
        names.push(cursor.bytes("updated schemas", length)?);
        cursor.u8("updated schemas")?;
    }
    Ok(UpdatedSchemas::Named(names))
}
