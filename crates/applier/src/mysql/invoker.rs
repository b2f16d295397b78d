//! Writes the account that ran a statement on its source into the statement. Pure.
//!
//! Some statements depend on the session's account. mysqld logs most of them with the account in the text. It logs these as
//! the client's text, with the account in an extra field ([`SessionContext::invoker`]) for its own applier threads: `DROP
//! USER`, `RENAME USER` and `REVOKE` with CURRENT_USER(), and ALTER EVENT without a definer, which makes the invoker the
//! definer. Other clients cannot send this field. A statement that is not fully understood is refused, since it would run
//! with the applier's own account.

use std::borrow::Cow;
use std::ops::Range;

use binlog_format::events::{Invoker, SessionContext};

use crate::mysql::statement_context::append_name;

/// Why it is unknown which account a statement means.
pub(super) type Unclear = &'static str;

/// Returns the statement to run, with the account in the places that mean it.
///
/// # Errors
/// If these places are unknown.
pub(super) fn as_invoker<'a>(
    statement: &'a [u8],
    context: &SessionContext<'_>,
) -> Result<Cow<'a, [u8]>, Unclear> {
    let Some(invoker) = &context.invoker else {
        return Ok(statement.into());
    };
    let mut tokens = Tokens::of(statement, context);
    let first = tokens.next()?;
    let first = first.as_ref();
    if first.is_some_and(|first| first.kind == Kind::Executable) {
        return Err("begins with a comment that is executed");
    }
    let word = |token: Option<&Token>, words: &str| {
        token.is_some_and(|token| token.is_one_of(statement, words))
    };
    // In statements about an object with a definer, the part after the name is a body. CURRENT_USER() there means the account
    // that runs the body.
    if word(first, "CREATE ALTER")
        && let Some(head) = Head::of(tokens.clone())?
    {
        let account = || account(invoker, context);
        let alter = first.filter(|first| first.is_one_of(statement, "ALTER"));
        return match (head.meant, alter, head.object) {
            (Some(meant), ..) => Ok(replaced(statement, &[meant], &account()?).into()),
            _ if head.has_definer => Ok(statement.into()),
            (None, Some(alter), Object::Event) => {
                let definer = [b" DEFINER=", account()?.as_slice()].concat();
                let after = alter.place.end..alter.place.end;
                Ok(replaced(statement, &[after], &definer).into())
            }
            (None, Some(_), Object::Routine) => Ok(statement.into()),
            _ => Err("names no definer"),
        };
    }
    if !mentions_current_user(statement) {
        return Ok(statement.into());
    }
    let second = tokens.clone().next()?;
    let is_about_accounts = word(first, "GRANT REVOKE")
        || word(first, "CREATE ALTER DROP RENAME") && word(second.as_ref(), "USER ROLE")
        || word(first, "SET") && word(second.as_ref(), "PASSWORD DEFAULT");
    let meant = meant(tokens)?;
    if meant.is_empty() {
        Ok(statement.into())
    } else if is_about_accounts {
        Ok(replaced(statement, &meant, &account(invoker, context)?).into())
    } else {
        Err("is none of those of which it is known what CURRENT_USER means")
    }
}

/// Replaces some places of a statement, given in order, by another text.
fn replaced(statement: &[u8], places: &[Range<usize>], by: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(statement.len() + places.len() * by.len());
    let mut from = 0;
    for place in places {
        out.extend_from_slice(statement.get(from..place.start).unwrap_or_default());
        out.extend_from_slice(by);
        from = place.end;
    }
    out.extend_from_slice(statement.get(from..).unwrap_or_default());
    out
}

/// Returns the account as text for a statement in this session's character set.
fn account(invoker: &Invoker<'_>, context: &SessionContext<'_>) -> Result<Vec<u8>, Unclear> {
    let is_ascii = invoker.user.is_ascii() && invoker.host.is_ascii();
    let client = context.character_sets.map(|sets| sets.client);
    // The collations of utf8mb3 and utf8mb4.
    let is_utf8 = |id| matches!(id, 33 | 45 | 46 | 76 | 83 | 192..=247 | 255..=323);
    if !is_ascii && client.is_some_and(|client| !is_utf8(client)) {
        return Err("means an account whose name its character set may lack");
    }
    let quoted = |part: &[u8]| {
        let mut out = Vec::new();
        append_name(part, &mut out);
        // Backquotes cannot enclose an empty name.
        if part.is_empty() { b"''".to_vec() } else { out }
    };
    Ok([quoted(invoker.user), quoted(invoker.host)].join(&b'@'))
}

/// True if multibyte characters of the collation's character set may contain ASCII bytes: big5, sjis, gbk, cp932, gb18030.
fn hides_ascii(collation: u16) -> bool {
    matches!(collation, 1 | 84 | 13 | 88 | 28 | 87 | 95 | 96 | 248..=250)
}

const CURRENT_USER: &str = "CURRENT_USER";

fn mentions_current_user(text: &[u8]) -> bool {
    let name = CURRENT_USER.as_bytes();
    let mut parts = text.windows(name.len());
    parts.any(|part| part.eq_ignore_ascii_case(name))
}

/// Returns the places in the rest of a statement that mean the account.
fn meant(mut tokens: Tokens<'_>) -> Result<Vec<Range<usize>>, Unclear> {
    let mut places = Vec::new();
    let mut before = None;
    while let Some(token) = tokens.next()? {
        if token.kind == Kind::Executable && mentions_current_user(token.text(tokens.text)) {
            return Err("has CURRENT_USER in a comment that is executed");
        }
        places.extend(tokens.meant_by(&token, before)?);
        before = Some(token.kind);
    }
    Ok(places)
}

// The part before the name of an object that has a definer.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Object {
    Event,
    Routine,
    /// A view or a trigger.
    Other,
}

/// The part between CREATE or ALTER and the name of an object that has a definer.
#[derive(Debug)]
struct Head {
    object: Object,
    has_definer: bool,
    /// The place of CURRENT_USER as the definer, if it is there.
    meant: Option<Range<usize>>,
}

impl Head {
    /// Returns `None` for statements about other kinds of objects.
    fn of(mut tokens: Tokens<'_>) -> Result<Option<Self>, Unclear> {
        let (mut has_definer, mut meant) = (false, None);
        let (mut before, mut after_definer) = (None, false);
        while let Some(token) = tokens.next()? {
            let is_part = matches!(before, Some(Kind::Symbol(b'=' | b'@' | b'.')));
            let is = |words: &str| token.is_one_of(tokens.text, words);
            match token.kind {
                Kind::Executable => return Err("has a comment that is executed before its object"),
                Kind::Symbol(b'=') => has_definer |= after_definer,
                Kind::Word if is(CURRENT_USER) => {
                    meant = tokens.meant_by(&token, before)?.or(meant);
                }
                Kind::Symbol(_) | Kind::Quoted => {}
                Kind::Word if is_part => {}
                Kind::Word => {
                    let object = [
                        ("EVENT", Object::Event),
                        ("PROCEDURE FUNCTION", Object::Routine),
                        ("VIEW TRIGGER", Object::Other),
                    ];
                    let found = object.into_iter().find(|(word, _)| is(word));
                    if let Some((_, object)) = found {
                        return Ok(Some(Self {
                            object,
                            has_definer,
                            meant,
                        }));
                    }
                    if !is("OR REPLACE ALGORITHM DEFINER SQL SECURITY INVOKER") {
                        return Ok(None);
                    }
                }
            }
            after_definer = is("DEFINER");
            before = Some(token.kind);
        }
        Ok(None)
    }
}

// A tokenizer for statements: it recognises words, quotes and comments.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    /// A text, or a name in quotes.
    Quoted,
    Symbol(u8),
    /// `/*! … */`, which some versions execute.
    Executable,
}

#[derive(Debug)]
struct Token {
    kind: Kind,
    place: Range<usize>,
}

impl Token {
    fn text<'a>(&self, statement: &'a [u8]) -> &'a [u8] {
        statement.get(self.place.clone()).unwrap_or_default()
    }

    /// True if the token is one of `words`, which are separated by spaces.
    fn is_one_of(&self, text: &[u8], words: &str) -> bool {
        let own = self.text(text);
        let mut words = words.split(' ');
        self.kind == Kind::Word && words.any(|word| own.eq_ignore_ascii_case(word.as_bytes()))
    }
}

/// The tokens of a statement from an offset on.
#[derive(Debug, Clone)]
struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    backslash_escapes: bool,
    ansi_quotes: bool,
    hides_ascii: bool,
}

impl<'a> Tokens<'a> {
    fn of(text: &'a [u8], context: &SessionContext<'_>) -> Self {
        const ANSI_QUOTES: u64 = 1 << 2;
        const NO_BACKSLASH_ESCAPES: u64 = 1 << 20;
        let sql_mode = context.sql_mode.unwrap_or_default();
        let client = context.character_sets.map(|sets| sets.client);
        Self {
            text,
            at: 0,
            backslash_escapes: sql_mode & NO_BACKSLASH_ESCAPES == 0,
            ansi_quotes: sql_mode & ANSI_QUOTES != 0,
            hides_ascii: client.is_some_and(hides_ascii),
        }
    }

    /// Returns the next token, after blanks and comments.
    fn next(&mut self) -> Result<Option<Token>, Unclear> {
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let (kind, length) = match rest {
                [] => return Ok(None),
                [0..=b' ' | 0x7f, ..] => {
                    self.at += 1;
                    continue;
                }
                [b'#', ..] | [b'-', b'-'] | [b'-', b'-', 0..=b' ' | 0x7f, ..] => {
                    let end = rest.iter().position(|byte| *byte == b'\n');
                    self.at += end.map_or(rest.len(), |end| end + 1);
                    continue;
                }
                [b'/', b'*', b'!', ..] => (Kind::Executable, comment(rest)?),
                [b'/', b'*', ..] => {
                    self.at += comment(rest)?;
                    continue;
                }
                [quote @ (b'\'' | b'"' | b'`'), ..] => (Kind::Quoted, self.quoted(*quote, rest)?),
                [first, ..] if is_word(*first) => {
                    let end = rest.iter().position(|byte| !is_word(*byte));
                    (Kind::Word, end.unwrap_or(rest.len()))
                }
                [symbol, ..] => (Kind::Symbol(*symbol), 1),
            };
            let place = self.at..self.at + length;
            self.at = place.end;
            let token = Token { kind, place };
            if self.hides_ascii && !token.text(self.text).is_ascii() {
                return Err("is in a character set whose characters may look like quotes");
            }
            return Ok(Some(token));
        }
    }

    /// Returns the length in bytes of a text or a quoted name, including the quotes.
    fn quoted(&self, quote: u8, rest: &[u8]) -> Result<usize, Unclear> {
        let is_text = quote == b'\'' || quote == b'"' && !self.ansi_quotes;
        let mut at = 1;
        while let Some(byte) = rest.get(at) {
            at += match byte {
                b'\\' if is_text && self.backslash_escapes => 2,
                byte if *byte == quote => match rest.get(at + 1) {
                    Some(next) if *next == quote => 2,
                    _ => return Ok(at + 1),
                },
                _ => 1,
            };
        }
        Err("has quotes without an end")
    }

    /// Returns the place of CURRENT_USER or CURRENT_USER(), if `token`, the last one read, is this function. After a point or
    /// an `@` the word is a name or a part of one.
    fn meant_by(
        &mut self,
        token: &Token,
        before: Option<Kind>,
    ) -> Result<Option<Range<usize>>, Unclear> {
        let is_part = matches!(before, Some(Kind::Symbol(b'.' | b'@')));
        if is_part || !token.is_one_of(self.text, CURRENT_USER) {
            return Ok(None);
        }
        let mut place = token.place.clone();
        let mut ahead = self.clone();
        let is = |token: Option<Token>, symbol| {
            token.is_some_and(|token| token.kind == Kind::Symbol(symbol))
        };
        if is(ahead.next()?, b'(') {
            let closing = ahead.next()?;
            if !is(closing, b')') {
                return Err("has something between the brackets of CURRENT_USER()");
            }
            place.end = ahead.at;
            *self = ahead;
        }
        Ok(Some(place))
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii()
}

/// Returns the length of a comment in bytes, including its delimiters.
fn comment(rest: &[u8]) -> Result<usize, Unclear> {
    const HEAD: usize = 2;
    let inside = rest.get(HEAD..).unwrap_or_default();
    let end = inside.windows(2).position(|two| two == b"*/");
    let length = end.map(|end| HEAD + end + 2);
    length.ok_or("has a comment without an end")
}

#[cfg(test)]
mod tests {
    use binlog_format::events::CharacterSets;

    use super::*;

    const SJIS: u16 = 13;
    const LATIN1: u16 = 8;
    const UTF8MB4: u16 = 255;

    fn context(sql_mode: u64, client: u16) -> SessionContext<'static> {
        SessionContext {
            sql_mode: Some(sql_mode),
            character_sets: Some(CharacterSets {
                client,
                connection: 255,
                server: 255,
            }),
            invoker: Some(Invoker {
                user: b"o`w",
                host: b"%",
            }),
            ..SessionContext::default()
        }
    }

    fn run_as(statement: &str, context: &SessionContext<'_>) -> Result<String, Unclear> {
        let run = as_invoker(statement.as_bytes(), context)?;
        Ok(String::from_utf8(run.into_owned()).unwrap())
    }

    #[test]
    fn the_account_replaces_current_user() {
        for (statement, expected) in [
            ("drop user current_user()", "drop user @"),
            ("DROP USER a@b, Current_User", "DROP USER a@b, @"),
            (
                "rename user current_user ( /* x */ ) to 'n'@'h'",
                "rename user @ to 'n'@'h'",
            ),
            (
                "revoke all privileges, grant option from current_user()#\n",
                "revoke all privileges, grant option from @#\n",
            ),
            (
                "REVOKE SELECT ON d.current_user FROM x@current_user, CURRENT_USER()",
                "REVOKE SELECT ON d.current_user FROM x@current_user, @",
            ),
            (
                "grant `current_user` to 'current_user'@\"current_user\", current_user -- current_user\n",
                "grant `current_user` to 'current_user'@\"current_user\", @ -- current_user\n",
            ),
            (
                r"alter user current_user() identified by 'it\'s current_user' /* current_user */",
                r"alter user @ identified by 'it\'s current_user' /* current_user */",
            ),
            (
                "set default role all to current_user",
                "set default role all to @",
            ),
            (
                "drop user current_users, current_user",
                "drop user current_users, @",
            ),
            (
                "/* by hand */ drop user current_user",
                "/* by hand */ drop user @",
            ),
            ("alter event e disable", "alter DEFINER=@ event e disable"),
            (
                "ALTER\nEVENT `event` ON SCHEDULE EVERY 1 DAY DO DROP USER CURRENT_USER()",
                "ALTER DEFINER=@\nEVENT `event` ON SCHEDULE EVERY 1 DAY DO DROP USER CURRENT_USER()",
            ),
            (
                "alter definer = current_user() event e comment 'x'",
                "alter definer = @ event e comment 'x'",
            ),
        ] {
            let run = run_as(statement, &context(0, UTF8MB4));
            let expected = expected
                .replace(", @", ", `o``w`@`%`")
                .replace(" @", " `o``w`@`%`")
                .replace("=@", "=`o``w`@`%`");
            assert_eq!(run, Ok(expected), "{statement}");
        }
    }

    #[test]
    fn statements_with_explicit_accounts_are_unchanged() {
        for statement in [
            "CREATE DEFINER=`a`@`b` EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT CURRENT_USER()",
            "CREATE ALGORITHM=UNDEFINED DEFINER=`a`@`b` SQL SECURITY DEFINER VIEW `v` AS SELECT CURRENT_USER() AS `c`",
            "CREATE OR REPLACE DEFINER=view@event PROCEDURE p() SELECT 'never ends",
            "ALTER DEFINER=a@10.0.0.1 EVENT e DO SELECT CURRENT_USER",
            "ALTER PROCEDURE p COMMENT 'x'",
            "GRANT SELECT ON d.* TO 'a'@'b'",
            "ALTER TABLE t ADD COLUMN event INT /*! COMMENT 'x' */",
            "DROP TABLE t /* never ends",
            "DROP TABLE `current_user`",
        ] {
            assert_eq!(
                run_as(statement, &context(0, UTF8MB4)).as_deref(),
                Ok(statement)
            );
        }
        let without_invoker = SessionContext::default();
        let statement = "drop user current_user()";
        assert_eq!(
            run_as(statement, &without_invoker).as_deref(),
            Ok(statement)
        );
    }

    #[test]
    fn ambiguous_statements_are_refused() {
        for statement in [
            "/*!50106 ALTER */ EVENT e DISABLE",
            "ALTER /*!50106 EVENT e DISABLE */",
            "DROP USER a, /*! current_user() */",
            "DROP USER current_user(1)",
            "DROP USER current_user, 'a",
            "DROP USER current_user /* a",
            "INSERT INTO t VALUES (CURRENT_USER())",
            "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
            "ALTER SQL SECURITY DEFINER VIEW v AS SELECT 1",
        ] {
            let run = run_as(statement, &context(0, UTF8MB4));
            assert!(run.is_err(), "{statement}: {run:?}");
        }
    }

    #[test]
    fn quotes_follow_the_session_sql_mode() {
        const ANSI_QUOTES: u64 = 4;
        const NO_BACKSLASH_ESCAPES: u64 = 0x10_0000;
        for (sql_mode, statement, is_meant) in [
            (0, r"drop user 'a\', current_user, \'b'", false),
            (
                NO_BACKSLASH_ESCAPES,
                r"drop user 'a\', current_user, \'b'",
                true,
            ),
            (0, r#"drop user "a\", current_user, \"b""#, false),
            (ANSI_QUOTES, r#"drop user "a\", current_user, \"b""#, true),
            (0, r"drop user `a\`, current_user, `b`", true),
            (0, "drop user 'a'', current_user, ''b'", false),
        ] {
            let run = run_as(statement, &context(sql_mode, UTF8MB4)).unwrap();
            assert_eq!(run != statement, is_meant, "{sql_mode} {statement}");
        }
    }

    #[test]
    fn unclear_character_sets_are_refused() {
        let grant = "grant `\u{e4}` to current_user";
        assert!(run_as(grant, &context(0, UTF8MB4)).is_ok());
        assert!(run_as(grant, &context(0, SJIS)).is_err());
        assert!(run_as("drop user current_user", &context(0, SJIS)).is_ok());
        let invoker = Some(Invoker {
            user: "\u{e4}".as_bytes(),
            host: b"",
        });
        for (client, expected) in [(UTF8MB4, Ok("drop user `\u{e4}`@''")), (LATIN1, Err(()))] {
            let context = SessionContext {
                invoker,
                ..context(0, client)
            };
            let run = run_as("drop user current_user", &context);
            assert_eq!(run.as_deref().map_err(|_| ()), expected);
        }
    }
}
