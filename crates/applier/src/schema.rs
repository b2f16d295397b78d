//! Properties of a table that determine which row writes conflict.

use std::fmt;

use crate::keys::fold::Fold;

/// The applier's own schema in a target, private to that target.
pub(crate) const OWN_SCHEMA: &str = "witness_applier";

/// A table by its names in the log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// Name of the schema (database).
    pub schema: Box<str>,
    /// Name of the table in that schema.
    pub table: Box<str>,
}

impl TableName {
    /// A table in a schema.
    pub fn new(schema: &str, table: &str) -> Self {
        Self {
            schema: schema.into(),
            table: table.into(),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

/// Whether names differ at most in case. Column names are equal then, and constraints may spell them differently from
/// columns; names of tables may be.
pub(crate) fn same_name(one: &str, other: &str) -> bool {
    let folded = |name: &str| {
        name.chars()
            .flat_map(char::to_lowercase)
            .collect::<String>()
    };
    one.eq_ignore_ascii_case(other)
        || !(one.is_ascii() && other.is_ascii()) && folded(one) == folded(other)
}

/// A table's columns and the constraints on its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableShape {
    /// Schema and table.
    pub name: TableName,
    /// Its columns in the order of row images.
    pub columns: Vec<ColumnShape>,
    /// `None`: rows cannot be distinguished, so that its writes are applied sequentially.
    pub primary_key: Option<KeyShape>,
    /// Its unique keys other than the primary one.
    pub unique_keys: Vec<KeyShape>,
    /// References of its rows to rows of other tables (or its own).
    pub parents: Vec<ParentShape>,
    /// The columns by which rows of other tables refer to this one, without those that are a key above, in the same order.
    pub referenced: Vec<KeyShape>,
    /// Tables with a foreign key to this one, whatever its action: whether a row here may be deleted depends on all of their rows, and
    /// those that another table's cascade removes are not in the log.
    pub children: Vec<TableName>,
    /// Tables whose rows the server itself deletes or changes, without logging, when a row here is deleted or its
    /// referenced value changes (CASCADE, SET NULL, SET DEFAULT): children, their children, and so on.
    pub cascades_to: Vec<TableName>,
    /// Its storage engine, if that has no transactions (such as MyISAM): writes stay after a rollback, and
    /// are duplicated by a retry.
    pub without_transactions: Option<Box<str>>,
}

impl TableShape {
    /// A table without constraints.
    pub fn new(name: TableName, columns: Vec<ColumnShape>) -> Self {
        Self {
            name,
            columns,
            primary_key: None,
            unique_keys: Vec::new(),
            parents: Vec::new(),
            referenced: Vec::new(),
            children: Vec::new(),
            cascades_to: Vec::new(),
            without_transactions: None,
        }
    }
}

/// A column's properties that matter for keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnShape {
    /// The column's name at the target.
    pub name: Box<str>,
    /// Which of its values are equal to a key.
    pub fold: Fold,
}

/// A key: columns whose values together are unique, or are referenced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyShape {
    /// Its columns in the key's order. Empty: it consists of an expression that row images do not contain, so that
    /// its values cannot be distinguished.
    pub parts: Vec<KeyPart>,
}

impl KeyShape {
    /// A key of whole columns.
    pub fn of(columns: &[usize]) -> Self {
        let part = |&column: &usize| KeyPart {
            column,
            prefix: None,
        };
        Self {
            parts: columns.iter().map(part).collect(),
        }
    }
}

/// A column of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPart {
    /// The column's index in [`TableShape::columns`], from 0 on.
    pub column: usize,
    /// Only this many characters count (bytes for binary columns).
    pub prefix: Option<u32>,
}

/// A foreign key of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentShape {
    /// The referring columns, as indexes in [`TableShape::columns`].
    pub columns: Vec<usize>,
    /// The referenced table.
    pub table: TableName,
    /// Its columns, in the order of `columns`.
    pub referenced: Vec<Box<str>>,
}
