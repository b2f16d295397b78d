//! Properties of a table that determine which row writes conflict.

pub use binlog_format::row_image::KeyPart;
use binlog_format::row_image::{CollationId, ColumnType};
use derive_more::Display;

/// The schema of the applier's own table in a target. It is private to that target.
pub(crate) const OWN_SCHEMA: &str = "witness_applier";

/// A table by its names in the log.
#[derive(Debug, Display, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[display("{schema}.{table}")]
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

/// Returns the distinct names in the order of their first appearance.
pub(crate) fn distinct<'a>(names: impl Iterator<Item = &'a TableName>) -> Vec<TableName> {
    let mut all = Vec::new();
    for name in names {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

/// True if two names differ at most in case. Column names that differ only in case are equal, and a constraint may spell a column in
/// another case. Table names that differ only in case may be equal, depending on the server.
pub(crate) fn same_name(one: &str, other: &str) -> bool {
    fn folded(name: &str) -> impl Iterator<Item = char> {
        name.chars().flat_map(char::to_lowercase)
    }
    one.eq_ignore_ascii_case(other)
        || !(one.is_ascii() && other.is_ascii()) && folded(one).eq(folded(other))
}

/// A table's columns and the constraints on its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableShape {
    /// Schema and table.
    pub name: TableName,
    /// Its columns in the order of row images.
    pub columns: Vec<ColumnShape>,
    /// The primary key. `None`: rows cannot be distinguished, so writes of this table are applied sequentially.
    pub primary_key: Option<KeyShape>,
    /// Its unique keys other than the primary one.
    pub unique_keys: Vec<KeyShape>,
    /// Foreign keys of this table, which refer to other tables or to itself.
    pub parents: Vec<ParentShape>,
    /// Columns of this table to which foreign keys of other tables refer, if they are not a key above with the same order of columns.
    pub referenced: Vec<KeyShape>,
    /// Tables with a foreign key to this one, whatever its action. Whether a row here may be deleted depends on all of their rows.
    /// Rows that a cascade from another table deletes there are not in the log.
    pub children: Vec<TableName>,
    /// Tables whose rows the server itself deletes or changes when a row here is deleted or its referenced value changes (CASCADE, SET
    /// NULL, SET DEFAULT): children, their children, and so on. The server does not log these changes.
    pub cascades_to: Vec<TableName>,
    /// The storage engine, if it has no transactions (such as MyISAM): a rollback does not remove its writes, and a retry duplicates
    /// them.
    pub without_transactions: Option<Box<str>>,
}

impl TableShape {
    /// A table without constraints.
    pub fn new(name: TableName, columns: Vec<ColumnShape>) -> Self {
        Self {
            name,
            columns,
            ..Self::default()
        }
    }
}

/// The properties of a column that matter for keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnShape {
    /// The column's name at the target.
    pub name: Box<str>,
    /// How values of the column are compared.
    pub fold: Fold,
}

/// A key: columns whose values together are unique, or to which a foreign key refers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyShape {
    /// The key's columns, in its order. Empty for a key over an expression: row images do not contain it, so its values cannot be
    /// distinguished.
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

/// A foreign key of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParentShape {
    /// The referring columns, as indexes in [`TableShape::columns`].
    pub columns: Vec<usize>,
    /// The referenced table.
    pub table: TableName,
    /// The referenced columns, in the order of `columns`.
    pub referenced: Vec<Box<str>>,
}

// How values of a key column are compared. The rules are conservative: values that the database considers equal have equal bytes, or
// are treated as unknown. Different values may have equal bytes, which only costs parallelism.

/// How a column's values are converted for comparison: values that the database considers equal result in the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fold {
    /// Values are equal if their bytes are (numbers, times).
    Bytes,
    /// As [`Self::Bytes`], but without trailing spaces and zero bytes (binary strings, binary collations).
    Trimmed,
    /// Strings of printable ASCII are compared without case and trailing spaces. Other strings are unknown.
    AsciiCase,
    /// A floating-point number: -0 equals 0.
    Float,
    /// The comparison is unknown: all values count as equal.
    Opaque,
}

/// Collations in which strings of printable ASCII are equal only up to case and spaces at the end.
const ASCII_CASE: [(&str, u32); 12] = [
    ("utf8mb4_0900_ai_ci", 255),
    ("utf8mb4_0900_as_cs", 278),
    ("utf8mb4_0900_as_ci", 305),
    ("utf8mb4_general_ci", 45),
    ("utf8mb4_unicode_ci", 224),
    ("utf8mb4_unicode_520_ci", 246),
    ("utf8mb3_general_ci", 33),
    // The name of utf8mb3_general_ci before 8.0.30.
    ("utf8_general_ci", 33),
    ("latin1_swedish_ci", 8),
    ("latin1_general_ci", 48),
    ("latin1_general_cs", 49),
    ("ascii_general_ci", 11),
];

/// Collations that compare bytes, up to padding. Table maps contain only their numbers.
const BINARY: [u32; 6] = [63, 46, 309, 83, 47, 65];

impl Fold {
    /// The fold of a column by `data_type` and `collation_name` in `information_schema.columns`; a NULL there is `None`.
    pub fn of_column(data_type: &str, collation: Option<&str>) -> Self {
        match data_type.to_ascii_lowercase().as_str() {
            "tinyint" | "smallint" | "mediumint" | "int" | "integer" | "bigint" | "decimal"
            | "numeric" | "bit" | "year" | "date" | "time" | "datetime" | "timestamp" | "enum"
            | "set" => Self::Bytes,
            "float" | "double" | "real" => Self::Float,
            "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => {
                Self::Trimmed
            }
            "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => match collation
            {
                Some(name) if name == "binary" || name.ends_with("_bin") => Self::Trimmed,
                Some(name) if ASCII_CASE.iter().any(|(known, _)| *known == name) => Self::AsciiCase,
                _ => Self::Opaque,
            },
            _ => Self::Opaque,
        }
    }

    /// The fold of a column by its type and collation in a table map.
    pub fn of_logged(column: ColumnType, collation: Option<CollationId>) -> Self {
        match column {
            ColumnType::Float | ColumnType::Double => Self::Float,
            ColumnType::VarChar { .. } | ColumnType::Char { .. } | ColumnType::Blob { .. } => {
                let is_ascii_case = |id| ASCII_CASE.iter().any(|(_, known)| *known == id);
                match collation {
                    Some(CollationId(id)) if BINARY.contains(&id) => Self::Trimmed,
                    Some(CollationId(id)) if is_ascii_case(id) => Self::AsciiCase,
                    _ => Self::Opaque,
                }
            }
            // Numbers, times, bits, enumerations and sets.
            _ if column.has_fixed_length() => Self::Bytes,
            // JSON, geometries, vectors and arrays.
            _ => Self::Opaque,
        }
    }

    /// Appends the bytes for comparing `value` in a key over at most the first `prefix` characters: values that the database considers
    /// equal result in the same bytes. Returns false, and appends nothing, if the comparison is unknown for this value.
    #[must_use]
    pub fn append(self, value: &[u8], prefix: Option<u32>, out: &mut Vec<u8>) -> bool {
        // A character has at least one byte, so `prefix` bytes contain at most `prefix` characters.
        let prefix = prefix.and_then(|characters| value.get(..characters as usize));
        let value = prefix.unwrap_or(value);
        match self {
            Self::Opaque => {}
            Self::Bytes => out.extend_from_slice(value),
            Self::Trimmed => out.extend_from_slice(trimmed(value, |byte| matches!(byte, b' ' | 0))),
            Self::AsciiCase => {
                if !value.iter().all(|byte| matches!(byte, b' '..=b'~')) {
                    return false;
                }
                let value = trimmed(value, |byte| byte == b' ');
                out.extend(value.iter().map(u8::to_ascii_lowercase));
            }
            Self::Float => {
                let is_zero = value.split_last().is_some_and(|(sign, rest)| {
                    sign & 0x7f == 0 && rest.iter().all(|byte| *byte == 0)
                });
                if !is_zero {
                    out.extend_from_slice(value);
                }
            }
        }
        true
    }
}

fn trimmed(value: &[u8], is_padding: impl Fn(u8) -> bool) -> &[u8] {
    let end = value.iter().rposition(|byte| !is_padding(*byte));
    end.and_then(|last| value.get(..=last)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(fold: Fold, value: &[u8], prefix: Option<u32>) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        fold.append(value, prefix, &mut out).then_some(out)
    }

    #[test]
    fn equal_values_have_equal_folds() {
        for (fold, one, other) in [
            (Fold::Trimmed, &b"a"[..], &b"a \0"[..]),
            (Fold::Trimmed, b"", b"  "),
            (Fold::AsciiCase, b"Street", b"sTREET  "),
            (
                Fold::Float,
                &0.0_f64.to_le_bytes(),
                &(-0.0_f64).to_le_bytes(),
            ),
            (
                Fold::Float,
                &0.0_f32.to_le_bytes(),
                &(-0.0_f32).to_le_bytes(),
            ),
            (Fold::Opaque, b"one", b"other"),
        ] {
            assert_eq!(
                folded(fold, one, None),
                folded(fold, other, None),
                "{fold:?}"
            );
        }
    }

    #[test]
    fn other_values_have_other_folds() {
        for (fold, one, other) in [
            (Fold::Bytes, &b"a"[..], &b"A"[..]),
            (Fold::Bytes, b"a", b"a "),
            (Fold::Trimmed, b"a", b"A"),
            (Fold::AsciiCase, b"ab", b"ac"),
            (Fold::AsciiCase, b" a", b"a"),
            (
                Fold::Float,
                &1.0_f64.to_le_bytes(),
                &(-1.0_f64).to_le_bytes(),
            ),
            (
                Fold::Float,
                &0.0_f32.to_le_bytes(),
                &f32::MIN_POSITIVE.to_le_bytes(),
            ),
        ] {
            assert_ne!(
                folded(fold, one, None),
                folded(fold, other, None),
                "{fold:?}"
            );
        }
    }

    #[test]
    fn only_printable_ascii_prefixes_are_folded() {
        for text in ["é", "ß", "a\u{301}", "a\tb", "\u{7f}"] {
            assert_eq!(
                folded(Fold::AsciiCase, text.as_bytes(), None),
                None,
                "{text}"
            );
        }
        assert_eq!(
            folded(Fold::AsciiCase, "Abé".as_bytes(), Some(2)).unwrap(),
            b"ab"
        );
        assert_eq!(folded(Fold::AsciiCase, "Abé".as_bytes(), Some(3)), None);
        assert_eq!(folded(Fold::Bytes, b"abc", Some(2)).unwrap(), b"ab");
        assert_eq!(folded(Fold::Bytes, b"abc", Some(9)).unwrap(), b"abc");
    }

    #[test]
    fn folds_by_schema_and_by_log_are_equal() {
        let of_logged = |id| {
            let column = ColumnType::VarChar { max_bytes: 9 };
            Fold::of_logged(column, Some(CollationId(id)))
        };
        for (name, id) in ASCII_CASE {
            assert_eq!(Fold::of_column("varchar", Some(name)), Fold::AsciiCase);
            assert_eq!(of_logged(id), Fold::AsciiCase);
        }
        for id in BINARY {
            assert_eq!(of_logged(id), Fold::Trimmed, "{id}");
        }
        let utf8mb4_de_pb_0900_ai_ci = 256;
        assert_eq!(of_logged(utf8mb4_de_pb_0900_ai_ci), Fold::Opaque);
        for (data_type, collation, expected) in [
            ("BIGINT", None, Fold::Bytes),
            ("double", None, Fold::Float),
            ("enum", Some("utf8mb4_0900_ai_ci"), Fold::Bytes),
            ("char", Some("utf8mb4_bin"), Fold::Trimmed),
            ("varbinary", None, Fold::Trimmed),
            ("text", Some("utf8mb4_de_pb_0900_ai_ci"), Fold::Opaque),
            ("varchar", None, Fold::Opaque),
            ("json", None, Fold::Opaque),
            ("geometry", None, Fold::Opaque),
            ("a type of later times", None, Fold::Opaque),
        ] {
            assert_eq!(
                Fold::of_column(data_type, collation),
                expected,
                "{data_type}"
            );
        }
    }
}
