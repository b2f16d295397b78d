//! From tokens to a statement. Each shape is tried from its first word on; whatever does not fit to its end is
//! something else.

use super::expression::{Expression, Scope, VariableName};
use super::tokens::{Token, TokenKind, tokens};
use super::{Column, EventRange, Filter, MAX_STATEMENT_BYTES, Named, Names, Other, Statement};

/// Functions are called with arguments this deep at most.
const MAX_DEPTH: usize = 8;
/// More values than that are not asked for at once.
const MAX_ITEMS: usize = 256;

const STATUS_COLUMNS: &[&str] = &["Variable_name", "Value"];
const WARNING_COLUMNS: &[&str] = &["Level", "Code", "Message"];

impl Statement {
    /// Recognises a statement; never fails.
    pub(crate) fn recognise(text: &[u8]) -> Self {
        let Some(tokens) = text
            .get(..text.len().min(MAX_STATEMENT_BYTES + 1))
            .filter(|text| text.len() <= MAX_STATEMENT_BYTES)
            .and_then(tokens)
        else {
            return Self::Other(Other::Unknown);
        };
        statement(text, &tokens)
    }
}

/// The statement of these tokens of `text`.
fn statement(text: &[u8], tokens: &[Token]) -> Statement {
    let mut parser = Parser {
        text,
        tokens,
        at: 0,
    };
    while parser.symbol(b';') {}
    if parser.at_end() {
        return Statement::Empty;
    }
    if let Some(found) = parser.known()
        && parser.ends()
    {
        return found;
    }
    Statement::Other(other(tokens))
}

/// Whether the ring decides on what is not understood.
fn other(tokens: &[Token]) -> Other {
    let words: Vec<&str> = tokens
        .iter()
        .filter_map(|token| match &token.kind {
            TokenKind::Word(word) => Some(&word[..]),
            _ => None,
        })
        .take(3)
        .collect();
    let of_the_ring = match words[..] {
        ["reset" | "change", ..] => true,
        ["start" | "stop", what, ..] => {
            matches!(what, "replica" | "slave" | "group_replication")
        }
        ["set", ..] => sets_for_all(tokens),
        _ => false,
    };
    if of_the_ring {
        Other::Ring
    } else {
        Other::Unknown
    }
}

/// Whether a SET is for others than its session. Values may well be global ones.
fn sets_for_all(tokens: &[Token]) -> bool {
    let mut pairs = tokens.windows(2);
    pairs.any(|pair| match pair {
        [before, target] => (before.is_word("set") || before.is_symbol(b',')) && is_for_all(target),
        _ => false,
    })
}

fn is_for_all(token: &Token) -> bool {
    const SCOPES: [&str; 3] = ["global", "persist", "persist_only"];
    match &token.kind {
        TokenKind::Word(word) => SCOPES.contains(&&word[..]),
        TokenKind::System(name) => SCOPES.iter().any(|scope| {
            name.strip_prefix(scope)
                .is_some_and(|rest| rest.starts_with('.'))
        }),
        _ => false,
    }
}

struct Parser<'a> {
    text: &'a [u8],
    tokens: &'a [Token],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    /// Whether nothing but semicolons is left.
    fn ends(&mut self) -> bool {
        while self.symbol(b';') {}
        self.at_end()
    }

    /// Takes a word if it comes next.
    fn word(&mut self, word: &str) -> bool {
        let there = self.peek().is_some_and(|token| token.is_word(word));
        self.at += usize::from(there);
        there
    }

    /// Takes words if all of them come next.
    fn words(&mut self, words: &[&str]) -> bool {
        let before = self.at;
        let there = words.iter().all(|word| self.word(word));
        if !there {
            self.at = before;
        }
        there
    }

    fn symbol(&mut self, symbol: u8) -> bool {
        let there = self.peek().is_some_and(|token| token.is_symbol(symbol));
        self.at += usize::from(there);
        there
    }

    fn string(&mut self) -> Option<String> {
        match &self.peek()?.kind {
            TokenKind::Text(text) => {
                let text = text.clone();
                self.at += 1;
                Some(text)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<u64> {
        match &self.peek()?.kind {
            TokenKind::Number(number) => {
                let number = number.parse().ok()?;
                self.at += 1;
                Some(number)
            }
            _ => None,
        }
    }

    fn known(&mut self) -> Option<Statement> {
        if self.word("select") {
            return self.select();
        }
        if self.word("set") {
            return self.set();
        }
        if self.word("show") {
            return self.show();
        }
        if self.word("flush") {
            let _ = self.word("no_write_to_binlog") || self.word("local");
            let _ = self.word("binary");
            return self.word("logs").then_some(Statement::FlushBinaryLogs);
        }
        if self.words(&["purge", "binary", "logs"]) || self.words(&["purge", "master", "logs"]) {
            return self.purge();
        }
        None
    }

    fn purge(&mut self) -> Option<Statement> {
        if self.word("to") {
            return self.string().map(Statement::PurgeTo);
        }
        if !self.word("before") {
            return None;
        }
        if self.word("now") {
            let called = self.symbol(b'(') && self.symbol(b')');
            return called.then_some(Statement::PurgeBefore(None));
        }
        Some(Statement::PurgeBefore(Some(self.string()?)))
    }

    fn show(&mut self) -> Option<Statement> {
        let _ = self.word("global") || self.word("session") || self.word("local");
        if self.words(&["binary", "logs"]) || self.words(&["master", "logs"]) {
            return Some(Statement::ShowBinaryLogs);
        }
        if self.words(&["binary", "log", "status"]) || self.words(&["master", "status"]) {
            return Some(Statement::ShowBinaryLogStatus);
        }
        if self.word("replicas") {
            return Some(Statement::ShowReplicas(Names::Replica));
        }
        if self.words(&["slave", "hosts"]) {
            return Some(Statement::ShowReplicas(Names::Slave));
        }
        if self.words(&["binlog", "events"]) {
            return self.event_range().map(Statement::ShowBinlogEvents);
        }
        if self.word("variables") {
            return self.filter().map(Statement::ShowVariables);
        }
        if self.word("status") {
            self.filter()?;
            return Some(Statement::ShowNothing(STATUS_COLUMNS));
        }
        let nothing = self.word("warnings") || self.word("errors");
        nothing.then_some(Statement::ShowNothing(WARNING_COLUMNS))
    }

    fn event_range(&mut self) -> Option<EventRange> {
        let mut range = EventRange::default();
        if self.word("in") {
            range.file = Some(self.string()?);
        }
        if self.word("from") {
            range.from = Some(self.number()?);
        }
        if self.word("limit") {
            let first = self.number()?;
            let second = self.symbol(b',').then(|| self.number());
            (range.skip, range.limit) = match second {
                Some(count) => (first, Some(count?)),
                None => (0, Some(first)),
            };
        }
        Some(range)
    }

    /// LIKE, or WHERE with names of variables.
    fn filter(&mut self) -> Option<Filter> {
        if self.word("like") {
            return Some(Filter::AnyOf(vec![Named::Like(
                self.string()?.to_lowercase(),
            )]));
        }
        if !self.word("where") {
            return Some(Filter::All);
        }
        let mut names = Vec::new();
        loop {
            match &self.peek()?.kind {
                TokenKind::Word(name) | TokenKind::Name(name)
                    if name.eq_ignore_ascii_case("variable_name") =>
                {
                    self.at += 1;
                }
                _ => return None,
            }
            if self.symbol(b'=') {
                names.push(Named::Is(self.string()?.to_lowercase()));
            } else if self.word("like") {
                names.push(Named::Like(self.string()?.to_lowercase()));
            } else if self.word("in") && self.symbol(b'(') {
                loop {
                    names.push(Named::Is(self.string()?.to_lowercase()));
                    if !self.symbol(b',') {
                        break;
                    }
                }
                if !self.symbol(b')') {
                    return None;
                }
            } else {
                return None;
            }
            if names.len() > MAX_ITEMS {
                return None;
            }
            if !self.word("or") {
                return Some(Filter::AnyOf(names));
            }
        }
    }

    fn select(&mut self) -> Option<Statement> {
        let mut columns = Vec::new();
        loop {
            let start = self.peek()?.start;
            let expression = self.expression(0)?;
            // A bare word would be a column, and there are no tables.
            if matches!(expression, Expression::Word(_)) {
                return None;
            }
            let end = self.tokens.get(self.at.checked_sub(1)?)?.end;
            let written = self.text.get(start..end).unwrap_or_default();
            let name = match self.alias()? {
                Some(alias) => alias,
                None => String::from_utf8_lossy(written).into_owned(),
            };
            columns.push(Column { expression, name });
            if columns.len() > MAX_ITEMS {
                return None;
            }
            if !self.symbol(b',') {
                break;
            }
        }
        let _ = self.words(&["from", "dual"]);
        if self.word("limit") {
            self.number()?;
        }
        Some(Statement::Select(columns))
    }

    /// The outer `None` is an AS without a name.
    fn alias(&mut self) -> Option<Option<String>> {
        let said = self.word("as");
        let alias = match self.peek().map(|token| &token.kind) {
            Some(TokenKind::Name(name) | TokenKind::Text(name)) => Some(name.clone()),
            Some(TokenKind::Word(word)) if said || !matches!(&word[..], "limit" | "from") => {
                let token = self.peek()?;
                let written = self.text.get(token.start..token.end).unwrap_or_default();
                Some(String::from_utf8_lossy(written).into_owned())
            }
            _ => None,
        };
        self.at += usize::from(alias.is_some());
        (alias.is_some() || !said).then_some(alias)
    }

    fn expression(&mut self, depth: usize) -> Option<Expression> {
        if depth > MAX_DEPTH {
            return None;
        }
        let negative = self.symbol(b'-');
        let kind = self.peek()?.kind.clone();
        self.at += 1;
        Some(match kind {
            TokenKind::Number(number) if negative => Expression::Number(format!("-{number}")),
            _ if negative => return None,
            TokenKind::Number(number) => Expression::Number(number),
            TokenKind::Text(text) => Expression::Text(text),
            TokenKind::User(name) => Expression::User(name),
            TokenKind::System(name) => Expression::System(variable_name(name)),
            TokenKind::Word(word) if word == "null" => Expression::Null,
            TokenKind::Word(word) if self.symbol(b'(') => {
                let mut arguments = Vec::new();
                if !self.symbol(b')') {
                    loop {
                        arguments.push(self.expression(depth + 1)?);
                        if self.symbol(b')') {
                            break;
                        }
                        if !self.symbol(b',') || arguments.len() > MAX_ITEMS {
                            return None;
                        }
                    }
                }
                Expression::Call(word, arguments)
            }
            TokenKind::Word(word) => Expression::Word(word),
            TokenKind::Name(_) | TokenKind::Symbol(_) => return None,
        })
    }

    /// Assignments of user variables are kept; those of the session are stepped over.
    fn set(&mut self) -> Option<Statement> {
        if sets_for_all(self.tokens) {
            return None;
        }
        let mut variables = Vec::new();
        loop {
            match &self.peek()?.kind {
                TokenKind::User(name) => {
                    let name = name.clone();
                    self.at += 1;
                    if !self.symbol(b'=') {
                        return None;
                    }
                    variables.push((name, self.expression(0)?));
                }
                TokenKind::Word(_) | TokenKind::System(_) | TokenKind::Name(_) => {
                    self.step_over_value()
                }
                _ => return None,
            }
            if variables.len() > MAX_ITEMS {
                return None;
            }
            if !self.symbol(b',') {
                return Some(Statement::Set(variables));
            }
        }
    }

    /// To the next comma that is not inside of brackets.
    fn step_over_value(&mut self) {
        let mut open = 0_usize;
        while let Some(token) = self.peek() {
            match token.kind {
                TokenKind::Symbol(b'(') => open += 1,
                TokenKind::Symbol(b')') => open = open.saturating_sub(1),
                TokenKind::Symbol(b',' | b';') if open == 0 => return,
                _ => {}
            }
            self.at += 1;
        }
    }
}

fn variable_name(text: String) -> VariableName {
    let (scope, name) = match text.split_once('.') {
        Some(("global", name)) => (Scope::Global, name),
        Some(("session" | "local", name)) => (Scope::Session, name),
        _ => (Scope::Default, &text[..]),
    };
    VariableName {
        scope,
        name: name.to_lowercase(),
    }
}
