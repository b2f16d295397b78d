//! Decides, event by event, whether a cut of the binlog removes a transaction completely. Pure.
//!
//! The engines' recovery rolls back prepared transactions that the binlog does not name: transactions that end with an XID, XA
//! transactions, and DDL with an XID in its event. Every other statement was complete before mysqld wrote it to the binlog. Some statements
//! with an XID have also changed files by then. `docs/mysqld-facts.md` lists the statements.

use binlog_format::DecodeError;
use binlog_format::event::{EventFlags, EventRef, EventType};
use binlog_format::events::{
    Query, SessionContext, StatementKind, TransactionPayload, shown_statement,
};
use mysql_link::ServerVersion;
use thiserror::Error;

/// Properties of the server, needed if a statement's event does not suffice for the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerFacts {
    /// The version that wrote the file.
    pub(super) version: ServerVersion,
    /// True if the data directory has, or had at its last start, tables of another engine than InnoDB.
    pub(super) other_engines: bool,
}

/// The first version whose recovery removes the directory of a schema that was not committed.
const ATOMIC_SCHEMAS: ServerVersion = ServerVersion::new(9, 1, 0);

/// The effect of a statement that remains after its event was cut off and recovery has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// None: recovery rolls the statement back.
    RolledBack,
    /// None: the statement changes no data.
    None,
    /// An effect may remain, for this reason.
    Stays(&'static str),
}

const NOT_ATOMIC: &str = "the statement is not atomic";
const CHANGES_FILES: &str = "the statement has changed the files of its table";
const LEAVES_FOLDER: &str = "before MySQL 9.1 the statement leaves a folder";

/// A change that a cut of the binlog does not undo.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotUndone {
    /// A completed statement that exceeded the binlog's cache, on a table of an engine without transactions.
    #[error("it changes something that is not in the binlog")]
    NotInBinlog,
    /// Rows of tables without transactions.
    #[error("it changes tables of an engine without transactions")]
    WithoutTransactions,
    /// The effect of this statement remains, for this reason.
    #[error("{0}: {1}")]
    Statement(&'static str, String),
    /// An event that cannot be decoded.
    #[error("it cannot be read ({0})")]
    Unreadable(DecodeError),
    /// Compressed events that cannot be decoded.
    #[error("its compressed events cannot be read ({0})")]
    UnreadablePayload(DecodeError),
}

/// Checks the events of one transaction that follow its GTID.
#[derive(Debug)]
pub(super) struct UndoCheck {
    server: ServerFacts,
    /// True after BEGIN or XA START.
    inside: bool,
    changes: bool,
}

impl UndoCheck {
    pub(super) fn new(server: ServerFacts) -> Self {
        Self {
            server,
            inside: false,
            changes: false,
        }
    }

    /// Processes the next event, which has no checksum. The error names the change that recovery does not undo. At most `limit` bytes are
    /// decompressed.
    pub(super) fn take(&mut self, event: EventRef<'_>, limit: u64) -> Result<(), NotUndone> {
        match event.event_type() {
            EventType::Query => self.statement(event),
            EventType::TransactionPayload => self.payload(event, limit),
            EventType::Xid | EventType::XaPrepare => Ok(()),
            EventType::Incident => Err(NotUndone::NotInBinlog),
            _ => {
                self.changes = true;
                Ok(())
            }
        }
    }

    fn payload(&mut self, event: EventRef<'_>, limit: u64) -> Result<(), NotUndone> {
        let payload = TransactionPayload::decode(event).map_err(NotUndone::UnreadablePayload)?;
        for event in payload
            .events(limit)
            .map_err(NotUndone::UnreadablePayload)?
        {
            let event = event.map_err(NotUndone::UnreadablePayload)?;
            self.take(event.canonical(), 0)?;
        }
        Ok(())
    }

    fn statement(&mut self, event: EventRef<'_>) -> Result<(), NotUndone> {
        let query = Query::decode(event).map_err(NotUndone::Unreadable)?;
        match StatementKind::of(&query.statement) {
            StatementKind::Begin | StatementKind::XaStart => self.inside = true,
            StatementKind::Commit | StatementKind::Rollback if self.changes => {
                return Err(NotUndone::WithoutTransactions);
            }
            StatementKind::Commit | StatementKind::Rollback | StatementKind::XaRollback => {}
            StatementKind::Savepoint | StatementKind::Other if self.inside => self.changes = true,
            StatementKind::Savepoint | StatementKind::Other => {
                let statement = Alone::of(event, &query).map_err(NotUndone::Unreadable)?;
                if let Effect::Stays(why) = statement.effect(self.server) {
                    const SHOWN: usize = 60;
                    let statement = shown_statement(&query.statement, SHOWN);
                    return Err(NotUndone::Statement(why, statement));
                }
            }
        }
        Ok(())
    }
}

/// A statement that is a whole transaction.
struct Alone<'a> {
    text: &'a [u8],
    /// True if its event has the XID of an atomic DDL statement.
    has_xid: bool,
    /// True if its event is marked as dependent on its session.
    thread_specific: bool,
}

/// Objects that consist only of rows of the data dictionary. If a statement changes such an object, its event has an XID.
const ROWS_ALONE: [&str; 8] = [
    "DATABASE",
    "SCHEMA",
    "EVENT",
    "PROCEDURE",
    "FUNCTION",
    "LIBRARY",
    "TRIGGER",
    "VIEW",
];

/// True if a transaction of this single statement changes no data, as far as its event shows.
pub fn changes_no_data(event: EventRef<'_>, query: &Query<'_>) -> bool {
    let server = ServerFacts {
        version: ATOMIC_SCHEMAS,
        other_engines: true,
    };
    Alone::of(event, query).is_ok_and(|statement| statement.effect(server) == Effect::None)
}

impl<'a> Alone<'a> {
    fn of(event: EventRef<'_>, query: &'a Query<'_>) -> Result<Self, DecodeError> {
        let context = SessionContext::decode(&query.status_variables)?;
        Ok(Self {
            text: &query.statement,
            has_xid: context.ddl_xid.is_some(),
            thread_specific: event.header().flags.contains(EventFlags::THREAD_SPECIFIC),
        })
    }

    fn effect(&self, server: ServerFacts) -> Effect {
        let mut words = Words(self.text);
        let first = words.next().unwrap_or_default();
        let verb = |known: &[&str]| is(first, known);
        if self.has_xid {
            let schema = |word| is(word, &["DATABASE", "SCHEMA"]);
            return match () {
                () if (first.is_empty() || verb(&["ALTER"])) && self.changes_files() => {
                    Effect::Stays(CHANGES_FILES)
                }
                () if server.version < ATOMIC_SCHEMAS
                    && verb(&["CREATE"])
                    && words.next().is_some_and(schema) =>
                {
                    Effect::Stays(LEAVES_FOLDER)
                }
                () => Effect::RolledBack,
            };
        }
        // The log tables of the schema `mysql` are CSV on every server.
        let log_table = ["general_log", "slow_log"]
            .iter()
            .any(|name| has(self.text, name));
        let of_innodb = !server.other_engines && !log_table;
        let nothing = match () {
            // Recovery prepares the XA transaction again.
            () if verb(&["XA"]) => return Effect::RolledBack,
            () if verb(&["CREATE"]) => changes_nothing(words, of_innodb),
            // The statement may have dropped a table of another engine. The event of such a DROP is not marked as dependent on its session,
            // unless the same routine has used CONNECTION_ID() or a temporary table.
            () if verb(&["DROP"]) => changes_nothing(words, of_innodb && self.thread_specific),
            () if verb(&["ALTER"]) => self.alters_nothing(words, of_innodb),
            () => verb(&["FLUSH", "ANALYZE", "OPTIMIZE", "REPAIR"]),
        };
        match nothing {
            true => Effect::None,
            false => Effect::Stays(NOT_ATOMIC),
        }
    }

    /// True for ALTER TABLE … DISCARD and IMPORT … TABLESPACE, and for ALTER TABLESPACE … ENCRYPTION. The search does not parse the
    /// statement: a comment with these words also matches, and then requires an unnecessary copy.
    fn changes_files(&self) -> bool {
        let change = ["DISCARD", "IMPORT", "ENCRYPTION"];
        has(self.text, "TABLESPACE") && change.iter().any(|word| has(self.text, word))
    }

    /// True for ALTER INSTANCE, and for ALTER TABLE that leaves its table unchanged. If ALTER TABLE changes an InnoDB table, its event has
    /// an XID. It has none for a table of another engine, or a table that was converted from another engine.
    fn alters_nothing(&self, mut words: Words<'_>, of_innodb: bool) -> bool {
        let kind = words.next().unwrap_or_default();
        let kept = || of_innodb && !has(self.text, "ENGINE");
        is(kind, &["INSTANCE"]) || is(kind, &["TABLE"]) && kept()
    }
}

/// True for CREATE … IF NOT EXISTS of an existing object, for DROP … IF EXISTS of a missing object, and for temporary tables, which end
/// with mysqld. `of_tables` is true if that is known for tables. `words` follow CREATE or DROP.
fn changes_nothing(words: Words<'_>, of_tables: bool) -> bool {
    /// The most words before the kind: OR REPLACE, DEFINER = name @ host, SQL SECURITY DEFINER and similar.
    const MOST: usize = 20;
    let mut kind: &[u8] = &[];
    for word in words.take(MOST) {
        match () {
            // At any later position, the word may be a name.
            () if kind.is_empty() && is(word, &["TEMPORARY"]) => return true,
            () if !is(word, &["IF"]) => kind = word,
            () if is(kind, &["TABLE", "TABLES"]) => return of_tables,
            () => return is(kind, &ROWS_ALONE),
        }
    }
    false
}

fn is(word: &[u8], known: &[&str]) -> bool {
    known
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

/// True if the word occurs in the text. ASCII words have these bytes in every character set of a client.
fn has(text: &[u8], word: &str) -> bool {
    text.windows(word.len())
        .any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

/// The words of a statement from its beginning, without comments. Each symbol and each quoted name is one word. The iterator ends before
/// the first part that it cannot parse.
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.skip_comments()?;
        let first = *self.0.first()?;
        let length = match first {
            b'`' | b'\'' | b'"' => {
                let inside = self.0[1..].iter().position(|byte| *byte == first)?;
                let plain = |byte: &u8| byte.is_ascii() && *byte != b'\\';
                self.0[1..=inside].iter().all(plain).then_some(inside + 2)?
            }
            _ if is_of_a_word(&first) => {
                self.0.iter().take_while(|byte| is_of_a_word(byte)).count()
            }
            _ if first.is_ascii() => 1,
            _ => return None,
        };
        let (word, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(word)
    }
}

impl Words<'_> {
    /// Skips blanks and comments; of executable comments (`/*!40005 … */`) only the marks.
    fn skip_comments(&mut self) -> Option<()> {
        loop {
            let text = self.0.trim_ascii_start();
            let rest_after = |end: &[u8]| {
                let at = text.windows(end.len()).position(|part| part == end)?;
                text.get(at + end.len()..)
            };
            self.0 = match text {
                [b'/', b'*', b'!', rest @ ..] => {
                    let version = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                    &rest[version..]
                }
                [b'/', b'*', ..] => rest_after(b"*/")?,
                [b'*', b'/', rest @ ..] => rest,
                [b'#', ..] | [b'-', b'-', ..] => rest_after(b"\n")?,
                _ => {
                    self.0 = text;
                    return Some(());
                }
            };
        }
    }
}

fn is_of_a_word(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use binlog_format::events::{Compression, EncodeEvent, EventOrigin};

    use super::*;

    const DDL_XID: u8 = 17;
    const SERVER: ServerFacts = ServerFacts {
        version: ServerVersion::new(9, 7, 4),
        other_engines: false,
    };

    fn query(statement: &str, ddl_xid: Option<u64>) -> Vec<u8> {
        let mut status_variables = Vec::new();
        if let Some(xid) = ddl_xid {
            status_variables.push(DDL_XID);
            status_variables.extend(xid.to_le_bytes());
        }
        let query = Query {
            status_variables: Cow::Owned(status_variables),
            statement: Cow::Borrowed(statement.as_bytes()),
            ..Query::default()
        };
        query.encode(EventOrigin::default())
    }

    fn judge(events: &[Vec<u8>]) -> Result<(), NotUndone> {
        let mut check = UndoCheck::new(SERVER);
        events
            .iter()
            .try_for_each(|event| check.take(EventRef::new(event).unwrap(), 1 << 20))
    }

    #[test]
    fn what_the_engines_prepare_is_undone() {
        let begin = || query("BEGIN", None);
        let undone = [
            vec![begin(), query("COMMIT", None)],
            vec![query("CREATE TABLE t (a INT)", Some(7))],
            vec![query("XA COMMIT X'31',X'',1", None)],
            vec![query("XA ROLLBACK X'31',X'',1", None)],
            vec![query("flush tables", None)],
            vec![begin(), query("INSERT INTO t VALUES (1)", None)],
        ];
        for events in undone {
            assert_eq!(judge(&events), Ok(()));
        }
        let stays = [
            vec![query("CREATE TABLE t (a INT) ENGINE=MyISAM", None)],
            vec![
                begin(),
                query("INSERT INTO t VALUES (1)", None),
                query("COMMIT", None),
            ],
            vec![
                begin(),
                query("UPDATE t SET a = 1", None),
                query("ROLLBACK", None),
            ],
        ];
        for events in stays {
            assert!(judge(&events).is_err());
        }
    }

    fn in_one_event(events: &[Vec<u8>]) -> Vec<u8> {
        let payload = TransactionPayload {
            compression: Compression::None,
            uncompressed_size: None,
            block: events.concat().into(),
        };
        payload.encode(EventOrigin::default())
    }

    #[test]
    fn a_transaction_that_is_one_compressed_event_is_looked_into() {
        let update = || query("UPDATE t SET a = 1", None);
        let undone = [query("BEGIN", None), update()];
        assert_eq!(judge(&[in_one_event(&undone)]), Ok(()));
        let stays = [query("BEGIN", None), update(), query("COMMIT", None)];
        let found = judge(&[in_one_event(&stays)]);
        assert_eq!(found, Err(NotUndone::WithoutTransactions));
        let large = in_one_event(&[query("BEGIN", None), query(&"x".repeat(1 << 20), None)]);
        let found = judge(&[large]);
        assert!(
            matches!(found, Err(NotUndone::UnreadablePayload(_))),
            "{found:?}"
        );
    }

    fn effect(text: &str, has_xid: bool, thread_specific: bool, server: ServerFacts) -> Effect {
        let statement = Alone {
            text: text.as_bytes(),
            has_xid,
            thread_specific,
        };
        statement.effect(server)
    }

    const WITH_OTHER_ENGINES: ServerFacts = ServerFacts {
        other_engines: true,
        ..SERVER
    };

    /// Statements in the form that mysqld 9.7.4 writes.
    #[test]
    fn statements_that_changed_nothing_are_not_in_the_way_of_a_cut() {
        for text in [
            "CREATE DATABASE IF NOT EXISTS d",
            "create schema if not exists d",
            "DROP DATABASE IF EXISTS nodb",
            "CREATE DEFINER=`root`@`localhost` EVENT IF NOT EXISTS d.ev ON SCHEDULE EVERY 1 DAY DO SELECT 1",
            "CREATE DEFINER=`root`@`localhost` PROCEDURE IF NOT EXISTS `d`.`proc`()\nSELECT 1",
            "/* app */ CREATE /*!50003 DEFINER=`a`@`%`*/ FUNCTION IF NOT EXISTS f() RETURNS INT RETURN 1",
            "CREATE ALGORITHM=UNDEFINED DEFINER=`a`@`%` SQL SECURITY DEFINER VIEW IF NOT EXISTS `d`.`v` AS SELECT 1",
            "DROP EVENT IF EXISTS d.nev",
            "DROP VIEW IF EXISTS d.nv",
            "DROP TRIGGER IF EXISTS d.ntr",
            "CREATE LIBRARY IF NOT EXISTS `d`.`lib`\n    LANGUAGE JAVASCRIPT\nAS $$$$",
            "DROP TEMPORARY TABLE IF EXISTS `d`.`tt` /* generated by server */",
            "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `tt`",
            "ALTER INSTANCE ROTATE INNODB MASTER KEY",
            "-- by cron\n# nightly\nflush slow logs",
            "ANALYZE TABLE d.x UPDATE HISTOGRAM ON v",
        ] {
            for server in [SERVER, WITH_OTHER_ENGINES] {
                assert_eq!(effect(text, false, false, server), Effect::None, "{text}");
            }
        }
        for (text, thread_specific) in [
            ("CREATE TABLE IF NOT EXISTS d.x (id INT PRIMARY KEY)", false),
            (
                "DROP TABLE IF EXISTS `d`.`missing` /* generated by server */",
                true,
            ),
            ("ALTER TABLE d.x", false),
            ("ALTER TABLE d.x RENAME TO d.x", false),
            ("ALTER TABLE d.p ANALYZE PARTITION p0", false),
        ] {
            let found = |server| effect(text, false, thread_specific, server);
            assert_eq!(found(SERVER), Effect::None, "{text}");
            let stays = Effect::Stays(NOT_ATOMIC);
            assert_eq!(found(WITH_OTHER_ENGINES), stays, "{text}");
        }
    }

    #[test]
    fn statements_of_other_engines_stay_and_so_do_unknown_ones() {
        for text in [
            "CREATE TABLE d.m (id INT) ENGINE=MyISAM",
            "CREATE TABLE d.m (temporary INT) ENGINE=MyISAM",
            // A table of MyISAM. The event of a DROP of a missing table depends on its session.
            "DROP TABLE IF EXISTS `d`.`my` /* generated by server */",
            "ALTER TABLE d.my ENGINE=InnoDB",
            "ALTER TABLE d.my /*!40101 engine = InnoDB */",
            "ALTER TABLE mysql.slow_log COMMENT 'a'",
            "TRUNCATE d.my",
            "RENAME TABLE d.my TO d.my9",
            "CREATE DEFINER=`\u{540d}`@`%` PROCEDURE IF NOT EXISTS p() SELECT 1",
            r"CREATE DEFINER='a\' IF'@'%' PROCEDURE IF NOT EXISTS p() SELECT 1",
            "CREATE INDEX i ON d.my (id)",
            "INSTALL COMPONENT 'file://component_query_attributes'",
            "/* it does not end",
            "",
        ] {
            let stays = Effect::Stays(NOT_ATOMIC);
            assert_eq!(effect(text, false, false, SERVER), stays, "{text}");
        }
    }

    #[test]
    fn statements_that_change_files_before_the_binlog_stay() {
        for text in [
            "ALTER TABLE d.x DISCARD TABLESPACE",
            "/* by hand */ alter table d.p discard partition p0 tablespace",
            "ALTER TABLE d.x IMPORT TABLESPACE",
            "ALTER TABLE d.p IMPORT PARTITION ALL TABLESPACE",
            "ALTER TABLESPACE ts ENCRYPTION='Y'",
        ] {
            let stays = Effect::Stays(CHANGES_FILES);
            assert_eq!(effect(text, true, false, SERVER), stays, "{text}");
        }
        for text in [
            "ALTER TABLE d.x TABLESPACE ts",
            "DROP TABLESPACE ts",
            "TRUNCATE d.x",
        ] {
            let found = effect(text, true, false, SERVER);
            assert_eq!(found, Effect::RolledBack, "{text}");
        }
        let old = ServerFacts {
            version: ServerVersion::new(8, 4, 3),
            ..SERVER
        };
        let text = "CREATE DATABASE d";
        assert_eq!(effect(text, true, false, SERVER), Effect::RolledBack);
        assert_eq!(effect(text, true, false, old), Effect::Stays(LEAVES_FOLDER));
    }
}
