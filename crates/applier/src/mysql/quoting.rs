//! Names and texts inside of statements, whatever characters they have. Pure.

/// Appends a name between backquotes.
pub(super) fn append_name(name: &[u8], out: &mut Vec<u8>) {
    out.push(b'`');
    for byte in name {
        out.push(*byte);
        if *byte == b'`' {
            out.push(b'`');
        }
    }
    out.push(b'`');
}

/// Appends bytes as a hexadecimal literal, which no `sql_mode` reads otherwise.
pub(super) fn append_hex(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.extend_from_slice(b"X'");
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
    out.push(b'\'');
}

/// A text as a literal.
pub(super) fn text_literal(text: &str) -> String {
    let mut out = b"_utf8mb4 ".to_vec();
    append_hex(text.as_bytes(), &mut out);
    String::from_utf8(out).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_ends_a_name_or_a_text() {
        let mut name = Vec::new();
        append_name("a`;é".as_bytes(), &mut name);
        assert_eq!(name, "`a``;é`".as_bytes());
        assert_eq!(text_literal("'\\"), "_utf8mb4 X'275c'");
    }
}
