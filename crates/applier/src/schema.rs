//! What the applier has to know of a table to tell which row writes conflict.

use std::fmt;

use crate::keys::fold::Fold;

/// The schema that the applier makes in a target, which is that target's alone.
pub(crate) const OWN_SCHEMA: &str = "witness_applier";

/// A table by its names, as the log has them.
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

/// Whether names differ in their case at most. Column names are equal then, and constraints may write them otherwise than
/// columns do; names of tables may be.
pub(crate) fn same_name(one: &str, other: &str) -> bool {
    let folded = |name: &str| {
        name.chars()
            .flat_map(char::to_lowercase)
            .collect::<String>()
    };
    one.eq_ignore_ascii_case(other)
        || !(one.is_ascii() && other.is_ascii()) && folded(one) == folded(other)
}

/// A table's columns and what constrains its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableShape {
    /// Schema and table.
    pub name: TableName,
    /// Its columns in order, as row images count them.
    pub columns: Vec<ColumnShape>,
    /// `None`: rows are told apart by nothing, so that its writes are applied one after the other.
    pub primary_key: Option<KeyShape>,
    /// Its unique keys besides the primary one.
    pub unique_keys: Vec<KeyShape>,
    /// Where its rows refer to rows of other tables (or its own).
    pub parents: Vec<ParentShape>,
    /// The columns by which rows of other tables refer to this one, without those that are a key above, in the same order.
    pub referenced: Vec<KeyShape>,
    /// Tables with a foreign key to this one, whatever it does: whether a row here may go depends on all of their rows, and
    /// those that another table's cascade removes are not in the log.
    pub children: Vec<TableName>,
    /// Tables whose rows the server deletes or changes by itself, unseen by the log, when a row here goes or gets another
    /// referenced value (CASCADE, SET NULL, SET DEFAULT): children, their children, and so on.
    pub cascades_to: Vec<TableName>,
    /// Its storage engine, if that has no transactions (MyISAM, say): what is written stays when a transaction is rolled back, and
    /// stands twice where it is written again.
    pub without_transactions: Option<Box<str>>,
}

impl TableShape {
    /// A table that nothing constrains.
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

/// A column, as far as keys are concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnShape {
    /// The column's name, as the target has it.
    pub name: Box<str>,
    /// Which of its values are equal to a key.
    pub fold: Fold,
}

/// A key: columns whose values together are unique, or are referred to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyShape {
    /// Its columns in the key's order. Empty: it is made of something that row images do not show (an expression), so that
    /// its values cannot be told apart.
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
    /// The column's place in [`TableShape::columns`], from 0 on.
    pub column: usize,
    /// Only the first so many characters count (bytes for binary columns).
    pub prefix: Option<u32>,
}

/// A foreign key of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentShape {
    /// The referring columns, as places in [`TableShape::columns`].
    pub columns: Vec<usize>,
    /// The table that is referred to.
    pub table: TableName,
    /// Its columns, in the order of `columns`.
    pub referenced: Vec<Box<str>>,
}
