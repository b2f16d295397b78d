//! Removes changes to the applier's own schema from a transaction.
//!
//! The checkpoint row describes *this* target and is never logged. A log may nevertheless contain the checkpoint row of another
//! server, if a dump of that server was loaded at the source. If that row were applied, it would count as the target's own, and
//! its GTIDs as executed there.
//!
//! Only changes that are known to affect this schema alone are removed: whole statements in row format, and DDL. A statement that
//! also changes other tables is kept. If nothing is left of a transaction, it becomes an empty transaction.

use binlog_format::event::{EventType, HEADER_LEN, RawEvent};
use binlog_format::events::{Query, Rows, is_rows};

use crate::decode::failure::DecodeCause;
use crate::decode::schema_change::{is_of_a_schema, schema_change};
use crate::schema::{OWN_SCHEMA, TableName};
use crate::transaction::{Changed, SchemaChange};

/// Checks a transaction's events in order.
#[derive(Debug, Default)]
pub(super) struct OwnSchema {
    at: At,
    /// True if a change was removed.
    pub(super) left_out: bool,
    /// Table maps of the current statement, while all of them are of the own schema and no rows have followed yet.
    held: Vec<RawEvent>,
    /// The events that are left.
    pub(super) kept: Vec<RawEvent>,
}

/// Position within the row statements.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum At {
    #[default]
    Between,
    /// Within a statement that is removed.
    Own,
    /// Within a statement that is kept.
    Others,
}

impl OwnSchema {
    /// Processes the next event. It is kept, removed, or held until later events decide.
    pub(super) fn take(&mut self, event: RawEvent) -> Result<(), DecodeCause> {
        let own = match event.event_type() {
            // All maps of a statement come before its rows.
            EventType::TableMap => {
                let own = schema_of(&event) == Some(OWN_SCHEMA.as_bytes());
                if own && self.at == At::Between {
                    self.held.push(event);
                    return Ok(());
                }
                self.at = At::Others;
                self.kept.append(&mut self.held);
                false
            }
            EventType::Query => {
                self.at = At::Between;
                self.held.clear();
                let query = Query::decode(event.canonical())?;
                is_own(&query.statement, &query.schema)
            }
            rows if is_rows(rows) => self.rows(&event),
            _ => false,
        };
        match own {
            true => self.left_out = true,
            false => self.kept.push(event),
        }
        Ok(())
    }

    /// True if these rows are removed.
    fn rows(&mut self, event: &RawEvent) -> bool {
        let own = !self.held.is_empty() || self.at == At::Own;
        self.held.clear();
        self.at = match (ends_statement(event.bytes()), own) {
            (true, _) => At::Between,
            (false, true) => At::Own,
            (false, false) => At::Others,
        };
        own
    }
}

/// Length in bytes of the table's number in rows events and table maps.
const TABLE_ID: usize = 6;

/// Returns the schema of a table map. Every statement has table maps, so for speed only the schema is parsed.
fn schema_of(map: &RawEvent) -> Option<&[u8]> {
    let length_at = HEADER_LEN + TABLE_ID + 2;
    let (&length, rest) = map.bytes().get(length_at..)?.split_first()?;
    rest.get(..usize::from(length))
}

/// Whether a rows event ends its statement.
pub(super) fn ends_statement(rows: &[u8]) -> bool {
    let flags = rows.get(HEADER_LEN + TABLE_ID..HEADER_LEN + TABLE_ID + 2);
    let flags = flags.and_then(|flags| flags.try_into().ok());
    flags.is_none_or(|flags| u16::from_le_bytes(flags) & Rows::END_OF_STATEMENT != 0)
}

/// True if a logged statement is DDL of the own schema, or of its tables alone.
fn is_own(statement: &[u8], schema: &[u8]) -> bool {
    let statement = without_version_comment(statement);
    if !starts_ddl(statement) {
        return false;
    }
    // The server logs DDL of a schema with that schema as the session's default.
    if is_of_a_schema(statement) {
        return schema == OWN_SCHEMA.as_bytes();
    }
    match schema_change(statement, schema) {
        SchemaChange::Tables(tables) => tables.iter().all(|changed| match changed {
            Changed::Table(TableName { schema, .. })
            | Changed::Referred(TableName { schema, .. })
            | Changed::Schema(schema) => &**schema == OWN_SCHEMA,
        }),
        SchemaChange::Nothing | SchemaChange::Anything => false,
    }
}

/// Fast path: excludes most statements, such as BEGIN, by their first letter.
fn starts_ddl(statement: &[u8]) -> bool {
    let first = statement.trim_ascii_start().first();
    first.is_some_and(|first| b"cdar".contains(&first.to_ascii_lowercase()))
}

/// Returns the statement inside `/*!40000 … */`, which dumps put around whole statements. The statement was logged, so its server
/// has executed it.
fn without_version_comment(statement: &[u8]) -> &[u8] {
    let inner = statement.trim_ascii().strip_prefix(b"/*!");
    let inner = inner.and_then(|inner| inner.strip_suffix(b"*/"));
    match inner {
        Some(inner) if !inner.windows(2).any(|two| two == b"*/") => {
            let digits = inner.iter().take_while(|byte| byte.is_ascii_digit());
            inner.get(digits.count()..).unwrap_or_default()
        }
        _ => statement,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_about_the_own_schema_and_no_others() {
        let table: [(&str, &str, bool); 18] = [
            (
                "DROP TABLE IF EXISTS `checkpoint` /* generated by server */",
                OWN_SCHEMA,
                true,
            ),
            (
                "DROP TABLE IF EXISTS `checkpoint` /* generated by server */",
                "d",
                false,
            ),
            (
                "CREATE TABLE `checkpoint` (\n id tinyint) COMMENT='x'",
                OWN_SCHEMA,
                true,
            ),
            (
                "CREATE TABLE witness_applier.checkpoint (id INT)",
                "d",
                true,
            ),
            ("CREATE TABLE d.t (id INT)", OWN_SCHEMA, false),
            (
                "/*!40000 ALTER TABLE `checkpoint` DISABLE KEYS */",
                OWN_SCHEMA,
                true,
            ),
            ("/*!40000 ALTER TABLE `t` DISABLE KEYS */", "d", false),
            (
                "CREATE DATABASE /*!32312 IF NOT EXISTS*/ `witness_applier` /*!40100 DEFAULT CHARACTER SET latin1 */",
                OWN_SCHEMA,
                true,
            ),
            ("drop schema if exists witness_applier", OWN_SCHEMA, true),
            ("DROP DATABASE d", "d", false),
            ("RENAME TABLE witness_applier.checkpoint TO d.c", "", false),
            (
                "DROP TABLE `witness_applier`.`checkpoint`,`d`.`t`",
                "",
                false,
            ),
            ("BEGIN", OWN_SCHEMA, false),
            ("COMMIT", OWN_SCHEMA, false),
            ("CREATE USER a@b", OWN_SCHEMA, false),
            ("DROP VIEW v", OWN_SCHEMA, false),
            ("ANALYZE TABLE d.t", OWN_SCHEMA, false),
            (
                "/*!1 DROP TABLE checkpoint */ /*!1 , d.t */",
                OWN_SCHEMA,
                false,
            ),
        ];
        for (statement, schema, own) in table {
            assert_eq!(
                is_own(statement.as_bytes(), schema.as_bytes()),
                own,
                "{statement} in {schema}"
            );
        }
    }
}
