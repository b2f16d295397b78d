//! Which tables may have another shape after a statement of the log.
//!
//! A wrong answer would let rows be scheduled by keys that a table no longer has. Therefore only statements that are completely
//! understood result in an exact answer. Any other statement counts as a change of all tables:
//!
//! * A name that is not plain ASCII, a comment that servers execute (`/*!`), or an unexpected word means a change of all
//!   tables.
//! * The rest of a table definition is not parsed as SQL. Further tables can be named only after REFERENCES, RENAME or
//!   EXCHANGE. These words are searched as bytes, also within comments and strings. In every client character set, ASCII words
//!   consist of ASCII bytes, so no word is missed. A match that is not a word is possible.
//! * If a name after these words has no schema, it may be in the table's schema or in the session's schema; both are reported.
//!
//! The shape of a table also depends on other tables through foreign keys. The caller must handle this: it must also forget the
//! shapes that depend on a reported table.

use crate::schema::TableName;
use crate::transaction::{Changed, SchemaChange};

/// Returns which tables may have another shape after a statement. `schema` is the session's default schema.
pub(super) fn schema_change(statement: &[u8], schema: &[u8]) -> SchemaChange {
    read(statement, schema).unwrap_or(SchemaChange::Anything)
}

/// Whether a statement creates, alters or drops a schema.
pub(super) fn is_of_a_schema(statement: &[u8]) -> bool {
    let mut words = Words {
        rest: statement,
        session: None,
    };
    let mut next_is = |known: &str| words.word().is_some_and(|word| is_one_of(word, known));
    next_is("CREATE ALTER DROP") && next_is("DATABASE SCHEMA")
}

/// Returns `None` if the statement is not fully understood.
fn read(statement: &[u8], schema: &[u8]) -> Option<SchemaChange> {
    let session = std::str::from_utf8(schema).ok();
    let mut words = Words {
        rest: statement,
        session: session.filter(|schema| schema.is_ascii() && !schema.is_empty()),
    };
    let first = words.word()?;
    let is = |known: &str| is_one_of(first, known);
    // Rows, privileges and statistics. TRUNCATE recreates a table with the same shape, and functions called by these statements
    // cannot create a table.
    if is(
        "INSERT UPDATE DELETE REPLACE WITH SELECT DO SAVEPOINT ROLLBACK RELEASE XA GRANT REVOKE TRUNCATE ANALYZE FLUSH",
    ) {
        return Some(SchemaChange::Nothing);
    }
    match first.to_ascii_uppercase().as_str() {
        "CREATE" => words.create(),
        "ALTER" => words.alter(),
        "DROP" => words.drop(),
        "RENAME" => words.rename(),
        _ => None,
    }
}

/// Kinds of objects that neither are tables nor contain any. DEFINER may precede some of them.
const NO_TABLES: &str = "VIEW TRIGGER PROCEDURE FUNCTION EVENT USER ROLE DEFINER";

/// A statement that is read word by word.
struct Words<'a> {
    rest: &'a [u8],
    /// The schema of names without a schema; `None` if there is no default schema, or its name is not plain ASCII.
    session: Option<&'a str>,
}

impl<'a> Words<'a> {
    fn create(&mut self) -> Option<SchemaChange> {
        let mut word = self.word()?;
        if same(word, "OR") {
            // The parser of some MySQL versions accepts CREATE OR REPLACE TABLE.
            self.expect("REPLACE")?;
            word = self.word()?;
            let view = is_one_of(word, "ALGORITHM SQL");
            return (view || no_tables(word)).then_some(SchemaChange::Nothing);
        }
        // A new schema has no tables. A temporary table has no rows in the log, and does not hide a table of the same name in
        // `information_schema`.
        let others = "ALGORITHM AGGREGATE DATABASE SCHEMA TEMPORARY";
        if no_tables(word) || is_one_of(word, others) {
            return Some(SchemaChange::Nothing);
        }
        if same(word, "TABLE") {
            self.skip_words("IF NOT EXISTS")?;
            return self.definition();
        }
        if is_one_of(word, "UNIQUE FULLTEXT SPATIAL") {
            word = self.word()?;
        }
        same(word, "INDEX").then_some(())?;
        self.identifier()?;
        if self.skip_words("USING")? {
            self.word()?;
        }
        self.expect("ON")?;
        self.definition()
    }

    fn alter(&mut self) -> Option<SchemaChange> {
        let word = self.word()?;
        if no_tables(word) || same(word, "ALGORITHM") {
            return Some(SchemaChange::Nothing);
        }
        same(word, "TABLE").then_some(())?;
        self.definition()
    }

    fn drop(&mut self) -> Option<SchemaChange> {
        // The spelling in statements that the server has generated.
        const TEMPORARY: &[u8] = b"/*!40005 TEMPORARY */";
        self.skip_blanks();
        if self.rest.starts_with(TEMPORARY) {
            return Some(SchemaChange::Nothing);
        }
        let word = self.word()?;
        if no_tables(word) || same(word, "TEMPORARY") {
            return Some(SchemaChange::Nothing);
        }
        if same(word, "INDEX") {
            self.identifier()?;
            self.expect("ON")?;
            return self.definition();
        }
        if is_one_of(word, "DATABASE SCHEMA") {
            self.skip_words("IF EXISTS")?;
            let schema = Changed::Schema(self.identifier()?.into());
            return self.at_end().then(|| SchemaChange::Tables(vec![schema]));
        }
        is_one_of(word, "TABLE TABLES").then_some(())?;
        self.skip_words("IF EXISTS")?;
        let mut tables = vec![Changed::Table(self.name()?)];
        while self.symbol(b',') {
            tables.push(Changed::Table(self.name()?));
        }
        if !self.at_end() {
            let word = self.word()?;
            is_one_of(word, "RESTRICT CASCADE").then_some(())?;
        }
        self.at_end().then_some(SchemaChange::Tables(tables))
    }

    fn rename(&mut self) -> Option<SchemaChange> {
        let word = self.word()?;
        if same(word, "USER") {
            return Some(SchemaChange::Nothing);
        }
        is_one_of(word, "TABLE TABLES").then_some(())?;
        let mut tables = Vec::new();
        while tables.is_empty() || self.symbol(b',') {
            tables.push(Changed::Table(self.name()?));
            self.expect("TO")?;
            tables.push(Changed::Table(self.name()?));
        }
        self.at_end().then_some(SchemaChange::Tables(tables))
    }

    /// Reads a table's name and definition. Returns this table and the tables named in the definition.
    fn definition(&mut self) -> Option<SchemaChange> {
        let table = self.name()?;
        let mut tables = vec![Changed::Table(table.clone())];
        let mut at = self.rest;
        while let Some(further) = find_further(&mut at) {
            let mut words = Words {
                rest: at,
                session: self.session,
            };
            match further {
                EXCHANGE => return None,
                // Renames a column or a key, not a table.
                RENAME if words.skip_any("COLUMN INDEX KEY") => continue,
                // RENAME b, RENAME TO b, RENAME AS b, RENAME = b.
                RENAME => _ = words.skip_any("TO AS") || words.symbol(b'='),
                _ => {}
            }
            let (own, name) = words.qualified()?;
            let schemas = match own {
                Some(schema) => vec![schema],
                None => vec![table.schema.to_string(), self.session?.to_owned()],
            };
            tables.extend(schemas.iter().map(|schema| {
                let name = TableName::new(schema, &name);
                match further {
                    REFERENCES => Changed::Referred(name),
                    _ => Changed::Table(name),
                }
            }));
        }
        Some(SchemaChange::Tables(tables))
    }

    /// Reads a table's name and returns it with its schema.
    fn name(&mut self) -> Option<TableName> {
        let (schema, name) = self.qualified()?;
        let schema = schema.as_deref().or(self.session)?;
        Some(TableName::new(schema, &name))
    }

    fn qualified(&mut self) -> Option<(Option<String>, String)> {
        let first = self.identifier()?;
        match self.symbol(b'.') {
            true => Some((Some(first), self.identifier()?)),
            false => Some((None, first)),
        }
    }

    /// Reads one identifier, with or without quotes. Both kinds of quotes are accepted, because a string cannot be in the place
    /// of a name.
    fn identifier(&mut self) -> Option<String> {
        self.skip_blanks();
        let quote = match self.rest.first()? {
            &quote @ (b'`' | b'"') => quote,
            _ => return Some(self.word()?.to_owned()),
        };
        let mut name = String::new();
        let mut rest = self.rest.get(1..)?;
        loop {
            let (&byte, after) = rest.split_first()?;
            rest = after;
            if byte == quote {
                match rest.split_first() {
                    Some((&next, after)) if next == quote => rest = after,
                    _ => break,
                }
            }
            byte.is_ascii().then(|| name.push(char::from(byte)))?;
        }
        self.rest = rest;
        (!name.is_empty()).then_some(name)
    }

    /// Reads the next word; `None` for any other token, or for a word that is not plain ASCII.
    fn word(&mut self) -> Option<&'a str> {
        self.skip_blanks();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
        let length = self.rest.iter().take_while(|byte| is_part(byte)).count();
        let (word, rest) = self.rest.split_at_checked(length)?;
        if word.is_empty() || rest.first().is_some_and(|byte| !byte.is_ascii()) {
            return None;
        }
        self.rest = rest;
        std::str::from_utf8(word).ok()
    }

    /// Skips this sequence of words. Returns whether it was there; `None` if only its beginning was there.
    fn skip_words(&mut self, words: &str) -> Option<bool> {
        let mut words = words.split(' ');
        if !self.skip_any(words.next()?) {
            return Some(false);
        }
        words.try_for_each(|word| self.expect(word))?;
        Some(true)
    }

    /// Skips the next word if it is one of these. Returns whether it was.
    fn skip_any(&mut self, words: &str) -> bool {
        let before = self.rest;
        let found = self.word().is_some_and(|word| is_one_of(word, words));
        if !found {
            self.rest = before;
        }
        found
    }

    fn expect(&mut self, word: &str) -> Option<()> {
        same(self.word()?, word).then_some(())
    }

    fn symbol(&mut self, symbol: u8) -> bool {
        self.skip_blanks();
        match self.rest.split_first() {
            Some((&next, rest)) if next == symbol => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn at_end(&mut self) -> bool {
        self.skip_blanks();
        self.rest.is_empty()
    }

    /// Skips white space and comments. Executable comments are not skipped, so that no word follows.
    fn skip_blanks(&mut self) {
        loop {
            self.rest = self.rest.trim_ascii_start();
            let plain = self.rest.starts_with(b"/*")
                && !matches!(self.rest.get(2), None | Some(b'!' | b'+' | b'M'));
            if !plain {
                return;
            }
            let Some(end) = self.rest.windows(2).skip(2).position(|two| two == b"*/") else {
                return;
            };
            self.rest = self.rest.get(end + 4..).unwrap_or_default();
        }
    }
}

/// The words after which a definition names another table.
const REFERENCES: &str = "REFERENCES";
const RENAME: &str = "RENAME";
const EXCHANGE: &str = "EXCHANGE";

/// Finds the first of these words at any position, and sets `text` to the rest after it.
fn find_further(text: &mut &[u8]) -> Option<&'static str> {
    while let Some((_, after)) = text.split_first() {
        for word in [REFERENCES, RENAME, EXCHANGE] {
            if let Some((head, rest)) = text.split_at_checked(word.len())
                && head.eq_ignore_ascii_case(word.as_bytes())
            {
                *text = rest;
                return Some(word);
            }
        }
        *text = after;
    }
    None
}

fn no_tables(word: &str) -> bool {
    is_one_of(word, NO_TABLES)
}

/// True if a word is one of `all`, which are separated by spaces.
fn is_one_of(word: &str, all: &str) -> bool {
    all.split(' ').any(|known| same(word, known))
}

fn same(word: &str, known: &str) -> bool {
    word.eq_ignore_ascii_case(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `*` for any table, an empty text for none.
    fn in_words(change: SchemaChange) -> String {
        match change {
            SchemaChange::Nothing => String::new(),
            SchemaChange::Anything => "*".to_owned(),
            SchemaChange::Tables(tables) => {
                let names = tables.iter().map(|changed| match changed {
                    Changed::Table(name) => name.to_string(),
                    Changed::Referred(name) => format!("->{name}"),
                    Changed::Schema(schema) => format!("{schema}.*"),
                });
                names.collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn statements_change_their_named_tables_and_unknown_ones_any() {
        for (statement, expected) in [
            // Rows, privileges, and objects other than tables.
            ("insert into t values (1)", ""),
            ("/* who */ /**/ UPDATE t SET a = 1", ""),
            ("XA COMMIT X'31',X'',1", ""),
            ("XA END X'31',X'',1", ""),
            ("SAVEPOINT `s`", ""),
            ("TRUNCATE TABLE t", ""),
            ("CREATE USER u", ""),
            ("ALTER USER u IDENTIFIED BY 'DROP TABLE t'", ""),
            (
                "CREATE DEFINER=`root`@`%` TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET @a = 1",
                "",
            ),
            ("CREATE OR REPLACE ALGORITHM=MERGE VIEW v AS SELECT 1", ""),
            ("DROP PROCEDURE p", ""),
            ("CREATE DATABASE e", ""),
            ("CREATE TEMPORARY TABLE t (a INT)", ""),
            ("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`", ""),
            // Tables by name.
            ("CREATE TABLE t (a INT)", "d.t"),
            ("create table if not exists e . t(a INT)", "e.t"),
            ("CREATE TABLE `a``b` (a INT) START TRANSACTION", "d.a`b"),
            ("CREATE TABLE \"a b\" LIKE t", "d.a b"),
            ("CREATE TABLE t (note TEXT COMMENT 'ä')", "d.t"),
            (
                "DROP TABLE IF EXISTS `t`,`e`.`u` /* generated by server */",
                "d.t e.u",
            ),
            ("DROP TABLES t RESTRICT", "d.t"),
            ("RENAME TABLE a TO e.a, b TO a", "d.a e.a d.b d.a"),
            ("ALTER TABLE t ADD COLUMN b INT, DROP FOREIGN KEY f", "d.t"),
            ("ALTER TABLE/* which? */t/* that */ADD UNIQUE (b)", "d.t"),
            ("CREATE UNIQUE INDEX i USING BTREE ON e.t (a)", "e.t"),
            ("DROP INDEX `on` ON t ALGORITHM=INPLACE", "d.t"),
            // Statements that name further tables.
            (
                "ALTER TABLE t RENAME COLUMN a TO b, RENAME KEY k TO l",
                "d.t",
            ),
            ("ALTER TABLE e.t ADD KEY (a), RENAME TO u", "e.t e.u d.u"),
            ("ALTER TABLE t RENAME = e.u", "d.t e.u"),
            ("ALTER TABLE t RENAME u", "d.t d.u d.u"),
            (
                "CREATE TABLE c (p INT REFERENCES e.p (id), q INT, FOREIGN KEY (q) references`q`(a))",
                "d.c ->e.p ->d.q ->d.q",
            ),
            ("ALTER TABLE t ADD renamed_at INT", "d.t d.d_at d.d_at"),
            // Not fully understood.
            ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", "*"),
            ("ALTER TABLE t COMMENT 'rename'", "*"),
            (
                "CREATE TABLE c (p INT REFERENCES /*!80000 e. */ p (id))",
                "*",
            ),
            ("/*!80000 DROP TABLE t */", "*"),
            ("DROP TABLE t /*!80000 , u */", "*"),
            ("ALTER /*M! x */ TABLE t ADD a INT", "*"),
            ("/* never ends UPDATE", "*"),
            ("CREATE TABLE ä (a INT)", "*"),
            ("CREATE TABLE aä (a INT)", "*"),
            ("CREATE TABLE `ä` (a INT)", "*"),
            ("CREATE TABLE `t", "*"),
            ("DROP TABLE t, u v", "*"),
            ("RENAME TABLE a TO b c", "*"),
            ("CREATE OR REPLACE TABLE t (a INT)", "*"),
            ("DROP DATABASE e", "e.*"),
            ("drop schema if exists `a``b` /* all */", "a`b.*"),
            ("DROP DATABASE `ä`", "*"),
            ("DROP DATABASE e f", "*"),
            ("ALTER DATABASE d CHARACTER SET latin1", "*"),
            ("IMPORT TABLE FROM 'x.sdi'", "*"),
            ("INSERTED", "*"),
            ("SET PASSWORD = 'x'", "*"),
            ("", "*"),
        ] {
            let change = schema_change(statement.as_bytes(), b"d");
            assert_eq!(in_words(change), expected, "{statement}");
        }
    }

    #[test]
    fn a_name_without_a_schema_may_be_any() {
        for schema in ["", "ä"] {
            let change =
                |statement: &str| in_words(schema_change(statement.as_bytes(), schema.as_bytes()));
            assert_eq!(change("CREATE TABLE t (a INT)"), "*");
            assert_eq!(change("CREATE TABLE e.t (a INT)"), "e.t");
            // RENAME may refer to a table of the session's schema. A schema's name that is not plain ASCII counts as unknown.
            assert_eq!(change("ALTER TABLE e.t RENAME u"), "*");
            assert_eq!(change("INSERT INTO t VALUES (1)"), "");
        }
    }
}
