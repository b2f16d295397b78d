//! Splits a statement into tokens.

use std::iter::Peekable;
use std::str::Chars;

/// A word, a number, a quoted text or a sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A word or a quoted name, as written.
    Word(String),
    Number(u64),
    Text(String),
    Sign(char),
}

impl Token {
    /// Returns whether the token is this word, number or sign.
    pub(super) fn is(&self, piece: &str) -> bool {
        match self {
            Self::Word(own) => own.eq_ignore_ascii_case(piece),
            Self::Number(own) => piece == own.to_string(),
            Self::Sign(own) => piece == own.to_string(),
            Self::Text(_) => false,
        }
    }
}

/// Returns the tokens of a statement. `None`: a quote is not terminated.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut rest = text.chars().peekable();
    let mut found = Vec::new();
    while let Some(next) = rest.peek().copied() {
        match next {
            ' ' | '\t' | '\n' | '\r' => {
                rest.next();
            }
            '\'' | '"' => found.push(Token::Text(quoted(&mut rest)?)),
            '`' => found.push(Token::Word(quoted(&mut rest)?)),
            '0'..='9' => {
                let digits = taken(&mut rest, |next| next.is_ascii_digit());
                found.push(Token::Number(digits.parse().ok()?));
            }
            next if is_of_word(next) => found.push(Token::Word(taken(&mut rest, is_of_word))),
            sign => {
                rest.next();
                found.push(Token::Sign(sign));
            }
        }
    }
    Some(found)
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || character == '$'
}

fn taken(rest: &mut Peekable<Chars<'_>>, wanted: impl Fn(char) -> bool) -> String {
    let mut text = String::new();
    while let Some(next) = rest.next_if(|next| wanted(*next)) {
        text.push(next);
    }
    text
}

/// Reads a quoted text, with doubled or escaped quotes.
fn quoted(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    let quote = rest.next()?;
    let mut text = String::new();
    loop {
        match rest.next()? {
            next if next == quote => match rest.next_if_eq(&quote) {
                Some(_) => text.push(quote),
                None => return Some(text),
            },
            '\\' if quote != '`' => text.push(rest.next()?),
            next => text.push(next),
        }
    }
}
