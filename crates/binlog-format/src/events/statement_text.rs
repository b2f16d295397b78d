//! Text of statements for messages, logs and statuses: one line, shortened, without possible passwords or their hashes.

use std::borrow::Cow;

/// Replaces the text after a possible secret.
const NOT_SHOWN: &str = " … (not shown: it may hold a password)";
/// How MySQL's error messages quote the invalid part of a statement and the text after it.
const FRAGMENT: (&str, &str) = (" near '", "' at line");

/// A statement, truncated to a number of characters.
#[must_use]
pub fn shown_statement(statement: &[u8], longest: usize) -> String {
    let text = String::from_utf8_lossy(statement);
    let text = without_secrets(&text);
    let more = text.chars().nth(longest).map(|_| '…');
    let shown = text.chars().take(longest).chain(more);
    shown
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// A text that quotes statements, truncated where a password or its hash may follow (after `IDENTIFIED`, `PASSWORD`, `SOURCE_PASSWORD` and
/// similar words), regardless of quotes. A column of such a name truncates it as well.
#[must_use]
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    let Some(word_end) = secret_follows(text) else {
        return Cow::Borrowed(text);
    };
    let fragment = text.find(FRAGMENT.0).unwrap_or(word_end);
    Cow::Owned(format!("{}{NOT_SHOWN}", &text[..word_end.min(fragment)]))
}

/// A server's error message, without the quoted part of the statement if that may contain a secret.
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

/// The end of the first word that may precede a password or its hash.
fn secret_follows(text: &str) -> Option<usize> {
    let in_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let mut rest = text;
    loop {
        let word = rest.find(in_word)?;
        let length = rest[word..]
            .find(|c| !in_word(c))
            .unwrap_or(rest.len() - word);
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
