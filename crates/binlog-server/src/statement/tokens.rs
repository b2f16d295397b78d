//! Splits a statement into tokens: words, variables, texts, numbers and single symbols. Comments and white space are dropped. The content
//! of `/*! … */` is kept, because MySQL executes it.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A bare word, in lower case.
    Word(String),
    /// A name in backquotes, unchanged.
    Name(String),
    /// `@name`, in lower case.
    User(String),
    /// A system variable: the words and dots after `@@`, in lower case.
    System(String),
    Text(String),
    Number(String),
    /// Any other byte, as a token of its own. `:=` becomes `=`.
    Symbol(u8),
}

/// A token with its start and end in the statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Token {
    /// True if the token is this word, which must be in lower case.
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, TokenKind::Word(own) if own == word)
    }

    pub(super) fn is_symbol(&self, symbol: u8) -> bool {
        self.kind == TokenKind::Symbol(symbol)
    }
}

/// Splits a text into tokens; `None` if a quote or a comment has no end.
pub(super) fn tokens(text: &[u8]) -> Option<Vec<Token>> {
    let mut scanner = Scanner { text, at: 0 };
    let mut tokens = Vec::new();
    while let Some(token) = scanner.next()? {
        tokens.push(token);
    }
    Some(tokens)
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    /// The next token. The outer `None` means an unterminated quote or comment, the inner one the end of the statement.
    fn next(&mut self) -> Option<Option<Token>> {
        self.skip_blank()?;
        let start = self.at;
        let Some(byte) = self.peek(0) else {
            return Some(None);
        };
        let kind = match byte {
            b'\'' | b'"' => TokenKind::Text(self.quoted(byte)?),
            b'`' => TokenKind::Name(self.quoted(byte)?),
            b'@' if self.peek(1) == Some(b'@') => {
                self.at += 2;
                let mut name = self.word();
                while self.peek(0) == Some(b'.') {
                    self.at += 1;
                    name.push('.');
                    name.push_str(&self.name()?);
                }
                TokenKind::System(name)
            }
            b'@' => {
                self.at += 1;
                TokenKind::User(self.name()?.to_lowercase())
            }
            b'0'..=b'9' => TokenKind::Number(self.number()),
            byte if is_word(byte) => TokenKind::Word(self.word()),
            b':' if self.peek(1) == Some(b'=') => {
                self.at += 2;
                TokenKind::Symbol(b'=')
            }
            symbol => {
                self.at += 1;
                TokenKind::Symbol(symbol)
            }
        };
        let end = self.at;
        Some(Some(Token { kind, start, end }))
    }

    fn skip_blank(&mut self) -> Option<()> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(byte), _) if byte.is_ascii_whitespace() => self.at += 1,
                (Some(b'#'), _) => self.skip_line(),
                (Some(b'-'), Some(b'-'))
                    if self.peek(2).is_none_or(|byte| byte.is_ascii_whitespace()) =>
                {
                    self.skip_line()
                }
                (Some(b'/'), Some(b'*')) if self.peek(2) == Some(b'!') => {
                    self.at += 3;
                    while self.peek(0).is_some_and(|byte| byte.is_ascii_digit()) {
                        self.at += 1;
                    }
                }
                // The end of a `/*!` comment.
                (Some(b'*'), Some(b'/')) => self.at += 2,
                (Some(b'/'), Some(b'*')) => {
                    let inside = self.text.get(self.at + 2..)?;
                    let length = inside.windows(2).position(|pair| pair == b"*/")?;
                    self.at += length + 4;
                }
                _ => return Some(()),
            }
        }
    }

    fn skip_line(&mut self) {
        while self.peek(0).is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    /// Reads the text from an opening quote to the closing one.
    fn quoted(&mut self, quote: u8) -> Option<String> {
        self.at += 1;
        let mut inside = Vec::new();
        loop {
            let byte = self.peek(0)?;
            self.at += 1;
            match byte {
                b'\\' if quote != b'`' => {
                    let escaped = self.peek(0)?;
                    self.at += 1;
                    // In a LIKE pattern, the backslash makes these characters literal, so it is kept.
                    if matches!(escaped, b'%' | b'_') {
                        inside.push(b'\\');
                    }
                    inside.push(match escaped {
                        b'n' => b'\n',
                        b't' => b'\t',
                        b'r' => b'\r',
                        b'0' => 0,
                        other => other,
                    });
                }
                byte if byte == quote && self.peek(0) == Some(quote) => {
                    self.at += 1;
                    inside.push(byte);
                }
                byte if byte == quote => {
                    return Some(String::from_utf8_lossy(&inside).into_owned());
                }
                byte => inside.push(byte),
            }
        }
    }

    /// Reads a name with or without quotes.
    fn name(&mut self) -> Option<String> {
        match self.peek(0) {
            Some(quote @ (b'`' | b'\'' | b'"')) => self.quoted(quote),
            _ => Some(self.word()),
        }
    }

    fn word(&mut self) -> String {
        let start = self.at;
        while self.peek(0).is_some_and(is_word) {
            self.at += 1;
        }
        let word = self.text.get(start..self.at).unwrap_or_default();
        String::from_utf8_lossy(word).to_lowercase()
    }

    /// Reads a number, with or without a decimal point. A word that begins with digits counts as a number, too.
    fn number(&mut self) -> String {
        let mut number = self.word();
        if self.peek(0) == Some(b'.') && self.peek(1).is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
            number.push('.');
            number.push_str(&self.word());
        }
        number
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind> {
        let tokens = tokens(text.as_bytes()).unwrap();
        tokens.into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn tokens_of_every_kind() {
        use TokenKind::Name;
        use TokenKind::Number;
        use TokenKind::Symbol;
        use TokenKind::System;
        use TokenKind::Text;
        use TokenKind::User;
        use TokenKind::Word;
        assert_eq!(
            kinds("SELECT @A, @@Global.`x`, 'it''s \\'n\\n', `b``c`, 1.5 := /*!80000 y */ -- end"),
            [
                Word("select".into()),
                User("a".into()),
                Symbol(b','),
                System("global.x".into()),
                Symbol(b','),
                Text("it's 'n\n".into()),
                Symbol(b','),
                Name("b`c".into()),
                Symbol(b','),
                Number("1.5".into()),
                Symbol(b'='),
                Word("y".into()),
            ]
        );
        for unfinished in ["'a", "/* a", "`", "'\\"] {
            assert_eq!(tokens(unfinished.as_bytes()), None, "{unfinished}");
        }
    }
}
