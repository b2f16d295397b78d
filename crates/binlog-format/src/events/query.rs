//! QUERY: a statement with its session context, or BEGIN, COMMIT and similar statements. Also the events that contain variables for the
//! next statement, and the text of statements in messages.
//!
//! ```text
//! u32 thread; u32 seconds; u8 schema length; u16 error code; u16 status variables' length;
//! status variables; schema; 0; statement
//! ```

use std::borrow::Cow;

use crate::decode::{Cursor, DecodeError, invalid};
use crate::event::EventRef;
use crate::event_type::EventType;
use crate::events::EncodeEvent;

/// A statement. Its text and schema are bytes, because statements need not be UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query<'a> {
    /// Id of the connection that ran the statement.
    pub thread_id: u32,
    /// Execution time on the source, in seconds.
    pub execution_seconds: u32,
    /// The statement's error on the source; 0 for none.
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
    /// When the event has another type or is truncated.
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
            return Err(invalid("schema", "it is not terminated"));
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
    /// XA ROLLBACK: a separate transaction, or the end of a transaction that XA START began.
    XaRollback,
    /// SAVEPOINT, which has no effect here. The server logs it in every format, but never logs RELEASE SAVEPOINT.
    Savepoint,
    /// Any other statement: a separate transaction or, after BEGIN, a part of one.
    Other,
}

impl StatementKind {
    /// Classifies a statement's text. The server itself writes BEGIN, COMMIT and XA START in capitals. Other statements may have the
    /// client's text.
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
    let head = statement.get(..words.len());
    head.is_some_and(|head| head.eq_ignore_ascii_case(words))
}

impl EncodeEvent for Query<'_> {
    const TYPE: EventType = EventType::Query;

    /// Truncates a schema or status variables that exceed their length field.
    fn encode_body(&self, out: &mut Vec<u8>) {
        let schema = self.schema.get(..usize::from(u8::MAX));
        let schema = schema.unwrap_or(&self.schema);
        let status = self.status_variables.get(..usize::from(u16::MAX));
        let status = status.unwrap_or(&self.status_variables);
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

// The session of a statement, from a QUERY event's status variables. Each variable is a code byte, then a value whose form depends on the
// code. `None` means that the server did not write it, so the session's default applies.

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

/// The session of a statement, without values that are not used here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionContext<'a> {
    /// Option bits.
    pub options: Option<SessionOptions>,
    /// `sql_mode`, as bits.
    pub sql_mode: Option<u64>,
    /// Written only if it is not 1 and 1.
    pub auto_increment: Option<AutoIncrement>,
    /// Character sets of the connection.
    pub character_sets: Option<CharacterSets>,
    /// `time_zone`; written only if the statement depends on it.
    pub time_zone: Option<&'a [u8]>,
    /// `lc_time_names`, by id; written only if it is not en_US (0).
    pub lc_time_names: Option<u16>,
    /// `collation_database`, by id.
    pub collation_database: Option<u16>,
    /// The account that CURRENT_USER refers to.
    pub invoker: Option<Invoker<'a>>,
    /// Microseconds of the statement's time. The event's header contains the seconds.
    pub microseconds: Option<u32>,
    /// `explicit_defaults_for_timestamp`.
    pub explicit_defaults_for_timestamp: Option<bool>,
    /// A DDL statement's number in the source's engines, used in crash recovery.
    pub ddl_xid: Option<u64>,
    /// `default_collation_for_utf8mb4`, by id.
    pub default_collation_for_utf8mb4: Option<u16>,
    /// `sql_require_primary_key`.
    pub sql_require_primary_key: Option<bool>,
    /// `default_table_encryption`.
    pub default_table_encryption: Option<bool>,
    /// `enable_cascade_triggers` (9.7 and later).
    pub enable_cascade_triggers: Option<bool>,
    /// The first unknown code. Later variables cannot be decoded, because the length of a value depends on its code.
    pub unknown: Option<u8>,
}

impl<'a> SessionContext<'a> {
    /// Decodes [`Query::status_variables`](crate::events::Query::status_variables), up to the first unknown variable.
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
            0 => self.options = Some(SessionOptions(cursor.u32(FIELD)?)),
            1 => self.sql_mode = Some(cursor.u64(FIELD)?),
            // The catalogue, terminated before MySQL 5.0.4; always `std`.
            2 => {
                short_bytes(cursor)?;
                cursor.u8(FIELD)?;
            }
            6 => _ = short_bytes(cursor)?,
            3 => {
                self.auto_increment = Some(AutoIncrement {
                    increment: cursor.u16(FIELD)?,
                    offset: cursor.u16(FIELD)?,
                });
            }
            4 => {
                self.character_sets = Some(CharacterSets {
                    client: cursor.u16(FIELD)?,
                    connection: cursor.u16(FIELD)?,
                    server: cursor.u16(FIELD)?,
                });
            }
            5 => self.time_zone = Some(short_bytes(cursor)?),
            7 => self.lc_time_names = Some(cursor.u16(FIELD)?),
            8 => self.collation_database = Some(cursor.u16(FIELD)?),
            // Code 9 contains the tables that a multi-table update changes; code 10 contains bytes that the source wrote.
            9 => _ = cursor.u64(FIELD)?,
            10 => _ = cursor.u32(FIELD)?,
            11 => {
                self.invoker = Some(Invoker {
                    user: short_bytes(cursor)?,
                    host: short_bytes(cursor)?,
                });
            }
            // The schemas that a statement changes: a count, and names that end with a zero byte.
            12 => {
                let count = Some(cursor.u8(FIELD)?).filter(|count| *count <= MAX_UPDATED_SCHEMAS);
                for _ in 0..count.unwrap_or_default() {
                    while cursor.u8(FIELD)? != 0 {}
                }
            }
            13 => self.microseconds = Some(cursor.uint(FIELD, 3)? as u32),
            16 => self.explicit_defaults_for_timestamp = Some(cursor.u8(FIELD)? != 0),
            17 => self.ddl_xid = Some(cursor.u64(FIELD)?),
            18 => self.default_collation_for_utf8mb4 = Some(cursor.u16(FIELD)?),
            19 => self.sql_require_primary_key = Some(cursor.u8(FIELD)? != 0),
            20 => self.default_table_encryption = Some(cursor.u8(FIELD)? != 0),
            21 => self.enable_cascade_triggers = Some(cursor.u8(FIELD)? != 0),
            unknown => self.unknown = Some(unknown),
        }
        Ok(())
    }
}

fn short_bytes<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8], DecodeError> {
    let length = cursor.u8("status variable")?;
    cursor.bytes("status variable", usize::from(length))
}

// INTVAR, RAND, USER_VAR: variables without which the next statement would not have the same effect as on the source. Only in statement
// format.

/// The variable of an INTVAR event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IntVarKind {
    /// The value of `LAST_INSERT_ID()` in the statement.
    LastInsertId,
    /// The first AUTO_INCREMENT value of the statement.
    InsertId,
}

/// An integer variable that the next statement depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntVar {
    /// The variable.
    pub kind: IntVarKind,
    /// The variable's value.
    pub value: u64,
}

impl IntVar {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When the event has another type or size, or an unknown kind.
    pub fn decode(event: EventRef<'_>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::IntVar)?);
        let kind = match cursor.u8("INTVAR kind")? {
            1 => IntVarKind::LastInsertId,
            2 => IntVarKind::InsertId,
            _ => {
                let reason = "neither 1 (LAST_INSERT_ID) nor 2 (INSERT_ID)";
                return Err(invalid("INTVAR kind", reason));
            }
        };
        let value = cursor.u64("INTVAR value")?;
        cursor.finish("the INTVAR")?;
        Ok(Self { kind, value })
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
    /// When the event has another type or size.
    pub fn decode(event: EventRef<'_>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::Rand)?);
        let seeds = Self {
            first_seed: cursor.u64("RAND seed")?,
            second_seed: cursor.u64("RAND seed")?,
        };
        cursor.finish("the RAND").map(|()| seeds)
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

/// The value of a user variable that is not NULL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserVarValue<'a> {
    /// The type of [`Self::bytes`].
    pub value_type: UserVarType,
    /// The value's collation id.
    pub collation: u32,
    /// The value's bytes, without a length.
    pub bytes: Cow<'a, [u8]>,
    /// True for an unsigned INT.
    pub unsigned: bool,
}

/// A user variable that the next statement depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserVar<'a> {
    /// The variable's name without `@`, in UTF-8.
    pub name: Cow<'a, [u8]>,
    /// The variable's value; `None` for NULL.
    pub value: Option<UserVarValue<'a>>,
}

/// Flag bit of an unsigned number.
const UNSIGNED: u8 = 1;

impl<'a> UserVar<'a> {
    /// Reads an event without its checksum.
    ///
    /// # Errors
    /// When the event has another type, is truncated, or has a value of an unknown type.
    pub fn decode(event: EventRef<'a>) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(event.body_of(EventType::UserVar)?);
        let name_len = cursor.u32("user variable's name length")?;
        let name = Cow::Borrowed(cursor.bytes("user variable's name", name_len as usize)?);
        if cursor.u8("user variable's NULL mark")? != 0 {
            return Ok(Self { name, value: None });
        }
        let value_type = match cursor.u8("USER_VAR type")? {
            0 => UserVarType::String,
            1 => UserVarType::Real,
            2 => UserVarType::Int,
            4 => UserVarType::Decimal,
            _ => {
                let reason = "neither 0 (string), 1 (real), 2 (int) nor 4 (decimal)";
                return Err(invalid("USER_VAR type", reason));
            }
        };
        let collation = cursor.u32("user variable's collation")?;
        let value_len = cursor.u32("user variable's length")?;
        let bytes = Cow::Borrowed(cursor.bytes("user variable's value", value_len as usize)?);
        // The server writes the flags only for INT.
        let flags = match cursor.is_empty() {
            true => 0,
            false => cursor.u8("user variable's flags")?,
        };
        let value = UserVarValue {
            value_type,
            collation,
            bytes,
            unsigned: value_type == UserVarType::Int && flags & UNSIGNED != 0,
        };
        let value = Some(value);
        Ok(Self { name, value })
    }
}

// Text of statements for messages, logs and statuses: one line, truncated, without possible passwords or password hashes.

/// Shown instead of text that may contain a secret.
const NOT_SHOWN: &str = " … (not shown: it may hold a password)";
/// The text around the invalid part of a statement that MySQL's error messages quote.
const FRAGMENT: (&str, &str) = (" near '", "' at line");

/// The text of a statement, truncated to a number of characters.
#[must_use]
pub fn shown_statement(statement: &[u8], longest: usize) -> String {
    let text = String::from_utf8_lossy(statement);
    let text = without_secrets(&text);
    let more = text.chars().nth(longest).map(|_| '…');
    let shown = text.chars().take(longest).chain(more);
    let one_line = shown.map(|c| if c.is_control() { ' ' } else { c });
    one_line.collect()
}

/// Truncates a text that quotes statements where a password or its hash may follow: after `IDENTIFIED`, `PASSWORD`, `SOURCE_PASSWORD` and
/// similar words, even inside quotes. A column with such a name also truncates the text.
#[must_use]
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let Some(word_end) = secret_follows(text) else {
        return Cow::Borrowed(text);
    };
    let fragment = text.find(FRAGMENT.0).unwrap_or(word_end);
    Cow::Owned(format!("{}{NOT_SHOWN}", &text[..word_end.min(fragment)]))
}

/// A server's error message. If the quoted part of the statement may contain a secret, the part is removed.
#[must_use]
pub fn refusal_of_statement<'a>(message: &'a str, statement: &[u8]) -> Cow<'a, str> {
    if secret_follows(&String::from_utf8_lossy(statement)).is_none() {
        return Cow::Borrowed(message);
    }
    match (message.find(FRAGMENT.0), message.rfind(FRAGMENT.1)) {
        (Some(begin), Some(end)) if begin < end => {
            Cow::Owned(format!("{} near '…{}", &message[..begin], &message[end..]))
        }
        _ => without_secrets(message),
    }
}

/// The end of the first word after which a password or its hash may follow.
fn secret_follows(text: &str) -> Option<usize> {
    let in_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let mut rest = text;
    loop {
        let word = rest.find(in_word)?;
        let length = rest[word..].find(|c| !in_word(c));
        let length = length.unwrap_or(rest.len() - word);
        let end = text.len() - rest.len() + word + length;
        let name = rest[word..word + length].to_ascii_uppercase();
        if name == "IDENTIFIED" || name == "PASSWORD" || name.ends_with("_PASSWORD") {
            return Some(end);
        }
        rest = &text[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "$A$005$k1|9";

    #[test]
    fn statements_are_shown_without_passwords_and_hashes() {
        let table = [
            (
                format!("CREATE USER 'a'@'%' IDENTIFIED WITH 'caching_sha2_password' AS '{HASH}'"),
                "CREATE USER 'a'@'%' IDENTIFIED",
            ),
            (
                format!("alter user a identified by '{HASH}' replace '{HASH}'"),
                "alter user a identified",
            ),
            (format!("SET PASSWORD FOR a = '{HASH}'"), "SET PASSWORD"),
            (
                format!(
                    "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'u', PASSWORD '{HASH}')"
                ),
                "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'u', PASSWORD",
            ),
            (
                format!("CHANGE REPLICATION SOURCE TO SOURCE_PASSWORD='{HASH}'"),
                "CHANGE REPLICATION SOURCE TO SOURCE_PASSWORD",
            ),
        ];
        for (statement, shown) in table {
            assert_eq!(
                shown_statement(statement.as_bytes(), 500),
                format!("{shown}{NOT_SHOWN}")
            );
            let message = format!(
                "Error 'You have an error near ''{HASH}' at line 1' on query. Query: '{statement}'"
            );
            assert!(!without_secrets(&message).contains("$A$"), "{message}");
            let message = format!("an error in your SQL syntax near ''{HASH}'' at line 1 (1064)");
            let shown = refusal_of_statement(&message, statement.as_bytes());
            assert_eq!(
                shown,
                "an error in your SQL syntax near '…' at line 1 (1064)"
            );
        }
    }

    #[test]
    fn other_statements_are_shown_on_one_line_up_to_their_limit() {
        let statement = b"ALTER TABLE d.passwords\n\tADD c INT";
        assert_eq!(
            shown_statement(statement, 500),
            "ALTER TABLE d.passwords  ADD c INT"
        );
        assert_eq!(shown_statement(statement, 11), "ALTER TABLE…");
        let message = "an error near 'TABLE' at line 1";
        assert_eq!(refusal_of_statement(message, statement), message);
    }
}
