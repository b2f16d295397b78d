//! Text inside a statement.

/// The text as a literal with its quotes, for a session whose `sql_mode` is without `NO_BACKSLASH_ESCAPES`.
#[must_use]
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_one_text() {
        assert_eq!(literal(r"a'b\c"), r"'a''b\\c'");
        assert_eq!(literal(""), "''");
    }
}
