//! Which values of a column are equal to a key of it.

/// How a column's values are made comparable: what the database takes for equal becomes the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fold {
    /// Equal bytes, and no others (numbers, times, binary collations without padding).
    Bytes,
    /// Equal up to spaces or zero bytes at the end.
    Trimmed,
    /// Printable ASCII is equal up to case and spaces at the end; nothing is known of other text.
    AsciiCase,
    /// A floating-point number: -0 equals 0.
    Float,
    /// Nothing is known: all values count as equal.
    Opaque,
}
