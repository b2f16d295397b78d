//! Recognises the statements that replicas, `mysqlbinlog`, change-data consumers and `mysql` clients send to a source. Pure; accepts any
//! bytes.

mod tokens;

use crate::statement::tokens::{Token, TokenKind, tokens};

/// Maximum size of a statement. Most are short, but `GTID_SUBTRACT` of two large sets is long.
pub(crate) const MAX_STATEMENT_BYTES: usize = 4 << 20;

/// A client's SQL statement, as far as this server recognises it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Statement {
    /// A statement of only white space and comments.
    Empty,
    /// A SELECT of expressions, without a table.
    Select(Vec<Column>),
    /// Assignments of user variables, in order. Assignments of session variables have no effect here and are dropped.
    Set(Vec<(String, Expression)>),
    ShowBinaryLogs,
    ShowBinaryLogStatus,
    /// Shows the registered replicas, with these column names.
    ShowReplicas(&'static [&'static str]),
    ShowBinlogEvents(EventRange),
    /// Shows the variables that match a LIKE pattern or have one of several names.
    ShowVariables(Filter),
    /// Shows counters or warnings; there are never any.
    ShowNothing(&'static [&'static str]),
    FlushBinaryLogs,
    /// Purges all files before the file of this name.
    PurgeTo(String),
    /// Purges all files that were closed before this time, given as text; `None` for now.
    PurgeBefore(Option<String>),
    /// A statement about leadership, replication or the contents of the log: the ring decides on these.
    DecidedByRing,
    /// Any other statement: this server has no tables, accounts or settings.
    Unknown,
}

/// A value of a SELECT and its column name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) expression: Expression,
    pub(crate) name: String,
}

/// The part of a file that `SHOW BINLOG EVENTS` lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EventRange {
    pub(crate) file: Option<String>,
    pub(crate) from: Option<u64>,
    pub(crate) skip: u64,
    pub(crate) limit: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Filter {
    All,
    AnyOf(Vec<Named>),
}

/// A condition on variable names, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    Is(String),
    Like(String),
}

/// A value that a client selects or assigns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expression {
    /// A system variable: its name in lower case, without the scope.
    System(String),
    /// A user variable `@name`: its name in lower case.
    User(String),
    /// A number, as it was written.
    Number(String),
    Text(String),
    Null,
    /// A word such as ON or DEFAULT.
    Word(String),
    /// A function call: the name in lower case, and the arguments.
    Call(String, Vec<Expression>),
}

/// Maximum nesting depth of function calls.
const MAX_DEPTH: usize = 8;
/// Maximum number of values in a statement.
const MAX_ITEMS: usize = 256;

const REPLICA_COLUMNS: &[&str] = &["Server_Id", "Host", "Port", "Source_Id", "Replica_UUID"];
const SLAVE_COLUMNS: &[&str] = &["Server_id", "Host", "Port", "Master_id", "Slave_UUID"];
const STATUS_COLUMNS: &[&str] = &["Variable_name", "Value"];
const WARNING_COLUMNS: &[&str] = &["Level", "Code", "Message"];

impl Statement {
    /// Recognises a statement; never fails.
    pub(crate) fn recognise(text: &[u8]) -> Self {
        let within_limit = Some(text).filter(|text| text.len() <= MAX_STATEMENT_BYTES);
        let Some(tokens) = within_limit.and_then(tokens) else {
            return Self::Unknown;
        };
        let mut parser = Parser {
            text,
            tokens: &tokens,
            at: 0,
        };
        if parser.ends() {
            return Self::Empty;
        }
        match parser.known() {
            Some(found) if parser.ends() => found,
            _ if is_decided_by_ring(&tokens) => Self::DecidedByRing,
            _ => Self::Unknown,
        }
    }
}

/// True if an unrecognised statement is one that the ring decides on.
fn is_decided_by_ring(tokens: &[Token]) -> bool {
    let mut words = tokens.iter().filter_map(|token| match &token.kind {
        TokenKind::Word(word) => Some(&word[..]),
        _ => None,
    });
    match (words.next(), words.next()) {
        (Some("reset" | "change"), _) => true,
        (Some("start" | "stop"), Some("replica" | "slave" | "group_replication")) => true,
        (Some("set"), _) => sets_for_all(tokens),
        _ => false,
    }
}

/// True if a SET assigns a global or persisted variable. Global variables in the assigned values do not count.
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
        TokenKind::System(name) => {
            let scoped = name.split_once('.');
            scoped.is_some_and(|(scope, _)| SCOPES.contains(&scope))
        }
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

    /// True if only semicolons are left.
    fn ends(&mut self) -> bool {
        while self.symbol(b';') {}
        self.at >= self.tokens.len()
    }

    /// Consumes the word if it is the next token.
    fn word(&mut self, word: &str) -> bool {
        let there = self.peek().is_some_and(|token| token.is_word(word));
        self.at += usize::from(there);
        there
    }

    /// Consumes the words if they are the next tokens.
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

    /// Consumes the next token if `read` returns a value for it.
    fn take<T>(&mut self, read: impl FnOnce(&TokenKind) -> Option<T>) -> Option<T> {
        let value = read(&self.peek()?.kind)?;
        self.at += 1;
        Some(value)
    }

    fn string(&mut self) -> Option<String> {
        self.take(|kind| match kind {
            TokenKind::Text(text) => Some(text.clone()),
            _ => None,
        })
    }

    fn number(&mut self) -> Option<u64> {
        self.take(|kind| match kind {
            TokenKind::Number(number) => number.parse().ok(),
            _ => None,
        })
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
            return Some(Statement::ShowReplicas(REPLICA_COLUMNS));
        }
        if self.words(&["slave", "hosts"]) {
            return Some(Statement::ShowReplicas(SLAVE_COLUMNS));
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

    /// Parses LIKE, or WHERE with variable names.
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
            self.take(|kind| match kind {
                TokenKind::Word(name) | TokenKind::Name(name) => {
                    name.eq_ignore_ascii_case("variable_name").then_some(())
                }
                _ => None,
            })?;
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
            // A word alone would be a column, but there are no tables.
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

    /// Parses an optional alias. The outer `None` means an AS without a name.
    fn alias(&mut self) -> Option<Option<String>> {
        let has_as = self.word("as");
        let alias = match self.peek().map(|token| &token.kind) {
            Some(TokenKind::Name(name) | TokenKind::Text(name)) => Some(name.clone()),
            Some(TokenKind::Word(word)) if has_as || !matches!(&word[..], "limit" | "from") => {
                let token = self.peek()?;
                let written = self.text.get(token.start..token.end).unwrap_or_default();
                Some(String::from_utf8_lossy(written).into_owned())
            }
            _ => None,
        };
        self.at += usize::from(alias.is_some());
        (alias.is_some() || !has_as).then_some(alias)
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
            TokenKind::System(name) => Expression::System(unscoped(&name)),
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

    /// Parses assignments. Keeps those of user variables, and skips those of session variables.
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

    /// Skips tokens up to the next comma outside of parentheses.
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

/// The name of a system variable without its scope.
fn unscoped(written: &str) -> String {
    let scoped = written.split_once('.');
    let name = scoped.filter(|(scope, _)| matches!(*scope, "global" | "session" | "local"));
    name.map_or(written, |(_, name)| name).to_lowercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recognise(text: &str) -> Statement {
        Statement::recognise(text.as_bytes())
    }

    fn system(name: &str) -> Expression {
        Expression::System(name.to_owned())
    }

    #[test]
    fn statements_of_replicas_and_mysqlbinlog_are_recognised() {
        let select = |text: &str| match recognise(text) {
            Statement::Select(columns) => columns,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(
            select("SELECT UNIX_TIMESTAMP()"),
            [Column {
                expression: Expression::Call("unix_timestamp".into(), vec![]),
                name: "UNIX_TIMESTAMP()".into()
            }]
        );
        for name in [
            "SERVER_ID",
            "SERVER_UUID",
            "GTID_MODE",
            "COLLATION_SERVER",
            "TIME_ZONE",
            "rpl_semi_sync_source_enabled",
        ] {
            let columns = select(&format!("SELECT @@GLOBAL.{name}"));
            assert_eq!(columns[0].expression, system(&name.to_lowercase()));
            assert_eq!(columns[0].name, format!("@@GLOBAL.{name}"));
        }
        assert_eq!(
            select("SELECT @source_binlog_checksum")[0].expression,
            Expression::User("source_binlog_checksum".into())
        );
        assert_eq!(
            recognise("SET @slave_uuid = 'a', @replica_uuid = 'b'"),
            Statement::Set(vec![
                ("slave_uuid".into(), Expression::Text("a".into())),
                ("replica_uuid".into(), Expression::Text("b".into())),
            ])
        );
        assert_eq!(
            recognise("SET @master_binlog_checksum= @@global.binlog_checksum"),
            Statement::Set(vec![(
                "master_binlog_checksum".into(),
                system("binlog_checksum")
            )])
        );
        assert_eq!(
            recognise("SET @source_heartbeat_period = 30000000000"),
            Statement::Set(vec![(
                "source_heartbeat_period".into(),
                Expression::Number("30000000000".into())
            )])
        );
    }

    #[test]
    fn statements_of_clients_and_drivers_are_recognised() {
        for (text, expected) in [
            ("show binary logs;", Statement::ShowBinaryLogs),
            ("SHOW MASTER LOGS", Statement::ShowBinaryLogs),
            ("SHOW BINARY LOG STATUS", Statement::ShowBinaryLogStatus),
            (
                "/* hi */ show master status -- x",
                Statement::ShowBinaryLogStatus,
            ),
            ("SHOW REPLICAS", Statement::ShowReplicas(REPLICA_COLUMNS)),
            ("SHOW SLAVE HOSTS", Statement::ShowReplicas(SLAVE_COLUMNS)),
            ("FLUSH BINARY LOGS", Statement::FlushBinaryLogs),
            ("FLUSH LOCAL LOGS", Statement::FlushBinaryLogs),
            (
                "PURGE BINARY LOGS TO 'binlog.000007'",
                Statement::PurgeTo("binlog.000007".into()),
            ),
            (
                "PURGE MASTER LOGS BEFORE '2026-01-02 03:04:05'",
                Statement::PurgeBefore(Some("2026-01-02 03:04:05".into())),
            ),
            (
                "PURGE BINARY LOGS BEFORE NOW()",
                Statement::PurgeBefore(None),
            ),
            (
                "SHOW BINLOG EVENTS IN 'binlog.000001' FROM 4 LIMIT 2, 5",
                Statement::ShowBinlogEvents(EventRange {
                    file: Some("binlog.000001".into()),
                    from: Some(4),
                    skip: 2,
                    limit: Some(5),
                }),
            ),
            (
                "show global variables like 'binlog_checksum'",
                Statement::ShowVariables(Filter::AnyOf(vec![Named::Like(
                    "binlog_checksum".into(),
                )])),
            ),
            (
                "SHOW VARIABLES WHERE Variable_name = 'log_bin' OR variable_name in ('a', 'b') OR variable_name LIKE 'GTID%'",
                Statement::ShowVariables(Filter::AnyOf(vec![
                    Named::Is("log_bin".into()),
                    Named::Is("a".into()),
                    Named::Is("b".into()),
                    Named::Like("gtid%".into()),
                ])),
            ),
            (
                "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
                Statement::Set(vec![]),
            ),
            (
                "SET autocommit=1, @x := NULL",
                Statement::Set(vec![("x".into(), Expression::Null)]),
            ),
            ("SET SESSION TRANSACTION READ ONLY", Statement::Set(vec![])),
            (
                "SET sql_mode=CONCAT(@@sql_mode, ',STRICT')",
                Statement::Set(vec![]),
            ),
            // From the error, a stock client detects that dollar quoting is not supported.
            ("SELECT $$", Statement::Unknown),
            ("  ;", Statement::Empty),
            ("SELECT 1 FROM t", Statement::Unknown),
            ("INSERT INTO t VALUES (1)", Statement::Unknown),
            ("SHOW BINARY LOGS LIKE 'x'", Statement::Unknown),
        ] {
            assert_eq!(recognise(text), expected, "{text}");
        }
    }

    #[test]
    fn statements_about_the_ring_are_recognised() {
        for text in [
            "RESET BINARY LOGS AND GTIDS",
            "RESET MASTER",
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='x'",
            "START GROUP_REPLICATION",
            "STOP REPLICA",
            "SET GLOBAL gtid_purged = 'x'",
            "set @@global.read_only = 0",
            "SET PERSIST server_id = 3",
            "SET autocommit = 1, GLOBAL server_id = 4",
        ] {
            assert_eq!(recognise(text), Statement::DecidedByRing, "{text}");
        }
    }

    #[test]
    fn drivers_select_many_values() {
        let text = "/* driver */ SELECT  @@session.auto_increment_increment AS auto_increment_increment, \
                    @@character_set_client AS `client`, @@version_comment c LIMIT 1";
        let Statement::Select(columns) = recognise(text) else {
            panic!("{text}");
        };
        let names: Vec<_> = columns.iter().map(|column| &column.name[..]).collect();
        assert_eq!(names, ["auto_increment_increment", "client", "c"]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
            Statement::recognise(&text);
        }

        #[test]
        fn no_words_make_it_panic(words in prop::collection::vec(prop::sample::select(vec![
            "SELECT", "SET", "SHOW", "@", "@@", "@@global.", "x", "'", "\"", "`", "(", ")", ",", "=", ":=", "/*", "*/",
            "--", "#", "\n", "LIMIT", "1", "BINLOG", "EVENTS", "IN", "FROM", "LIKE", "VARIABLES", "WHERE", "NULL", "é", "\\",
            "PURGE", "BINARY", "LOGS", "TO", "BEFORE", "NOW", "GLOBAL", "NAMES", "AS", ";", "-", ".", "Variable_name",
        ]), 0..24)) {
            Statement::recognise(words.join(" ").as_bytes());
            Statement::recognise(words.concat().as_bytes());
        }

        #[test]
        fn nesting_is_bounded(depth in 0_usize..100_000) {
            Statement::recognise(format!("SELECT {}1{}", "f(".repeat(depth), ")".repeat(depth)).as_bytes());
        }
    }
}
