//! The target's foreign keys: which tables refer to which, and how far cascades reach.
//!
//! A server has no index of them by referenced table, so a query for a table's children reads all keys.
//! Therefore they are read once, and the references are resolved here, without I/O. After a change, the affected keys are read
//! again: of each named table, and of the tables that refer to it (their keys contain the names of renamed columns and tables).
//! A table that a new key refers to needs no reread: the key belongs to its child.

use std::collections::{BTreeMap, HashMap, HashSet};

use mysql_link::Row;

use crate::mysql::statement_context::text_literal;
use crate::schema::TableName;
use crate::transaction::{Changed, SchemaChange};

/// For more tables than this, all keys are read instead of those of single tables.
const MOST_AT_ONCE: usize = 256;

/// The known foreign keys, and which must be read before they are used. About 600 bytes for each.
#[derive(Debug, Default)]
pub(super) struct ForeignKeys {
    of: BTreeMap<TableName, Vec<ForeignKey>>,
    /// The tables that refer to each table, which may not exist.
    children: HashMap<TableName, Vec<TableName>>,
    unread: Unread,
}

/// A foreign key, without the table that has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ForeignKey {
    pub(super) parent: TableName,
    /// Its columns in order, with the parent's.
    pub(super) columns: Box<[(Box<str>, Box<str>)]>,
    /// True if the server itself changes rows of the table when one of the parent changes or goes.
    pub(super) cascades: bool,
}

/// The unknown keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Unread {
    #[default]
    All,
    /// Those of some tables, and of all tables of some schemas.
    Of {
        tables: HashSet<TableName>,
        schemas: HashSet<Box<str>>,
    },
}

impl Unread {
    fn nothing() -> Self {
        Self::Of {
            tables: HashSet::new(),
            schemas: HashSet::new(),
        }
    }

    /// The queries: for the columns of the keys, and for those that cascade.
    pub(super) fn sql(&self) -> [String; 2] {
        // A constraint is in the schema of its table.
        let of = |schema: &str| match self {
            Self::All => String::new(),
            Self::Of { tables, schemas } => {
                let mut by_schema: HashMap<&str, Vec<String>> = HashMap::new();
                for name in tables {
                    let tables = by_schema.entry(&name.schema).or_default();
                    tables.push(text_literal(&*name.table));
                }
                let tables = by_schema.iter().map(|(name, tables)| {
                    let (name, tables) = (text_literal(name), tables.join(", "));
                    format!("{schema} = {name} AND table_name IN ({tables})")
                });
                let schemas = schemas.iter();
                let schemas = schemas.map(|name| format!("{schema} = {}", text_literal(&**name)));
                let all: Vec<String> = tables.chain(schemas).collect();
                format!(" AND ({})", all.join(" OR "))
            }
        };
        [
            format!(
                "SELECT table_schema, table_name, constraint_name, ordinal_position, column_name, referenced_table_schema, \
                 referenced_table_name, referenced_column_name FROM information_schema.key_column_usage \
                 WHERE referenced_table_name IS NOT NULL{}",
                of("table_schema")
            ),
            format!(
                "SELECT constraint_schema, table_name, constraint_name FROM information_schema.referential_constraints \
                 WHERE (update_rule NOT IN ('NO ACTION', 'RESTRICT') OR delete_rule NOT IN ('NO ACTION', 'RESTRICT')){}",
                of("constraint_schema")
            ),
        ]
    }
}

/// A column of a foreign key, as a server lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyColumn {
    pub(super) key: KeyName,
    pub(super) place: u32,
    pub(super) column: Box<str>,
    pub(super) parent: TableName,
    pub(super) referenced: Box<str>,
}

/// A foreign key by its table and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct KeyName {
    pub(super) table: TableName,
    pub(super) constraint: Box<str>,
}

/// Reads the answer to the first question.
pub(super) fn key_columns(rows: &[Row]) -> Vec<KeyColumn> {
    let read = |row: &Row| {
        Some(KeyColumn {
            key: key_name(row)?,
            place: row.text_at(3)?.parse().ok()?,
            column: row.text_at(4)?.into(),
            parent: TableName::new(row.text_at(5)?, row.text_at(6)?),
            referenced: row.text_at(7)?.into(),
        })
    };
    rows.iter().filter_map(read).collect()
}

/// Reads the answer to the second question.
pub(super) fn cascading(rows: &[Row]) -> HashSet<KeyName> {
    rows.iter().filter_map(key_name).collect()
}

fn key_name(row: &Row) -> Option<KeyName> {
    Some(KeyName {
        table: TableName::new(row.text_at(0)?, row.text_at(1)?),
        constraint: row.text_at(2)?.into(),
    })
}

impl ForeignKeys {
    /// The keys to read before use; `None` if all are known.
    pub(super) fn unread(&self) -> Option<Unread> {
        (self.unread != Unread::nothing()).then(|| self.unread.clone())
    }

    /// Adds the answers for the unread keys.
    pub(super) fn take(&mut self, mut columns: Vec<KeyColumn>, cascading: &HashSet<KeyName>) {
        match std::mem::replace(&mut self.unread, Unread::nothing()) {
            Unread::All => self.of.clear(),
            Unread::Of { tables, schemas } => self
                .of
                .retain(|name, _| !tables.contains(name) && !schemas.contains(&name.schema)),
        }
        columns.sort_by(|one, other| (&one.key, one.place).cmp(&(&other.key, other.place)));
        for of_table in columns.chunk_by(|one, other| one.key.table == other.key.table) {
            let keys = of_table.chunk_by(|one, other| one.key == other.key);
            let keys = keys.map(|of_key| {
                let KeyColumn { key, parent, .. } = &of_key[0];
                let pairs = of_key.iter();
                let pairs = pairs.map(|pair| (pair.column.clone(), pair.referenced.clone()));
                ForeignKey {
                    parent: parent.clone(),
                    columns: pairs.collect(),
                    cascades: cascading.contains(key),
                }
            });
            let child = of_table[0].key.table.clone();
            self.of.insert(child, keys.collect());
        }
        self.children.clear();
        for (child, keys) in &self.of {
            for key in keys {
                let children = self.children.entry(key.parent.clone()).or_default();
                // Keys of one table are consecutive.
                if children.last() != Some(child) {
                    children.push(child.clone());
                }
            }
        }
    }

    /// Applies a change of tables.
    pub(super) fn forget(&mut self, change: &SchemaChange) {
        let changed = match change {
            SchemaChange::Nothing => return,
            SchemaChange::Anything => return *self = Self::default(),
            SchemaChange::Tables(changed) => changed,
        };
        let Unread::Of { tables, schemas } = &mut self.unread else {
            return;
        };
        let is_changed = |name: &TableName| {
            let mut changed = changed.iter();
            changed.any(|changed| !matches!(changed, Changed::Referred(_)) && changed.names(name))
        };
        for (name, keys) in &self.of {
            if is_changed(name) || keys.iter().any(|key| is_changed(&key.parent)) {
                tables.insert(name.clone());
            }
        }
        for changed in changed {
            match changed {
                Changed::Table(name) => _ = tables.insert(name.clone()),
                Changed::Schema(name) => _ = schemas.insert(name.clone()),
                Changed::Referred(_) => {}
            }
        }
        if tables.len() + schemas.len() > MOST_AT_ONCE {
            *self = Self::default();
        }
    }

    /// The foreign keys of a table.
    pub(super) fn of(&self, table: &TableName) -> &[ForeignKey] {
        self.of.get(table).map_or(&[], Vec::as_slice)
    }

    /// The foreign keys of other tables, or its own, that refer to a table, each with the table that has it.
    pub(super) fn to(&self, table: &TableName) -> impl Iterator<Item = (&TableName, &ForeignKey)> {
        let children = self.children.get(table).into_iter().flatten();
        children.flat_map(|child| {
            let keys = self.of(child).iter().filter(|key| key.parent == *table);
            keys.map(move |key| (child, key))
        })
    }

    /// The tables that cascades reach from a table, however far; itself, too, where they return.
    pub(super) fn reached_from(&self, table: &TableName) -> Vec<TableName> {
        let (mut reached, mut seen) = (vec![], HashSet::new());
        let mut next = vec![table];
        while let Some(from) = next.pop() {
            for (child, key) in self.to(from) {
                if key.cascades && seen.insert(child) {
                    reached.push(child.clone());
                    next.push(child);
                }
            }
        }
        reached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(table: &str) -> TableName {
        let (schema, table) = table.split_once('.').unwrap_or(("d", table));
        TableName::new(schema, table)
    }

    /// A foreign key of one column that is named after its parent, `child>parent`; with `=>` it cascades.
    fn server(keys: &[&str]) -> (Vec<KeyColumn>, HashSet<KeyName>) {
        let mut cascading = HashSet::new();
        let columns = keys.iter().map(|key| {
            let (child, parent) = key.split_once('>').unwrap();
            let table = child.strip_suffix('=').unwrap_or(child);
            let key = KeyName {
                table: name(table),
                constraint: format!("{table} to {parent}").into(),
            };
            if table != child {
                cascading.insert(key.clone());
            }
            KeyColumn {
                key,
                place: 1,
                column: parent.into(),
                parent: name(parent),
                referenced: "id".into(),
            }
        });
        (columns.collect(), cascading)
    }

    fn known(keys: &[&str]) -> ForeignKeys {
        let mut known = ForeignKeys::default();
        let (columns, cascading) = server(keys);
        known.take(columns, &cascading);
        known
    }

    fn change(changed: Changed) -> SchemaChange {
        SchemaChange::Tables(vec![changed])
    }

    fn table(table: &str) -> SchemaChange {
        change(Changed::Table(name(table)))
    }

    fn in_words<'a>(names: impl Iterator<Item = &'a TableName>) -> String {
        let mut names: Vec<String> = names.map(ToString::to_string).collect();
        names.sort_unstable();
        names.join(" ")
    }

    /// `*`: all.
    fn unread_behind(keys: &[&str], change: &SchemaChange) -> String {
        let mut known = known(keys);
        known.forget(change);
        match known.unread() {
            None => String::new(),
            Some(Unread::All) => "*".to_owned(),
            Some(Unread::Of { tables, schemas }) => {
                let mut all = in_words(tables.iter());
                for schema in schemas {
                    all += &format!(" {schema}.*");
                }
                all
            }
        }
    }

    #[test]
    fn foreign_keys_of_thousands_of_tables_are_read_once() {
        let keys: Vec<String> = (0..3000).map(|number| format!("t{number}>hub")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut known = ForeignKeys::default();
        for number in 0..3000 {
            if let Some(unread) = known.unread() {
                assert_eq!((unread, number), (Unread::All, 0), "read again");
                let (columns, cascading) = server(&keys);
                known.take(columns, &cascading);
            }
            assert_eq!(known.of(&name(&format!("t{number}"))).len(), 1);
        }
        assert_eq!(known.to(&name("hub")).count(), 3000);
        // One more of them: its own keys are read.
        known.forget(&SchemaChange::Tables(vec![
            Changed::Table(name("new")),
            Changed::Referred(name("hub")),
        ]));
        let own = format!(
            "schema = {} AND table_name IN ({}))",
            text_literal("d"),
            text_literal("new")
        );
        for question in known.unread().unwrap().sql() {
            assert!(question.ends_with(&own), "{question}");
        }
        let (columns, cascading) = server(&["new>hub"]);
        known.take(columns, &cascading);
        assert_eq!(
            (known.unread(), known.to(&name("hub")).count()),
            (None, 3001)
        );
        // Too many renamed tables: all of them are read together.
        known.forget(&table("hub"));
        assert_eq!(known.unread(), Some(Unread::All));
    }

    #[test]
    fn affected_keys_are_reread_after_a_change() {
        let keys = [
            "b>a",
            "c=>b",
            "B>a",
            "e.x>b",
            "self=>self",
            "orphan>gone",
            "e.y>e.x",
        ];
        for (change, unread) in [
            (SchemaChange::Nothing, ""),
            (SchemaChange::Anything, "*"),
            (table("other"), "d.other"),
            (table("c"), "d.c"),
            // Its children's keys have its columns' names.
            (table("a"), "d.B d.a d.b"),
            // Which of them is meant is unknown here.
            (table("b"), "d.B d.b d.c e.x"),
            (table("GONE"), "d.GONE d.orphan"),
            (table("self"), "d.self"),
            (change(Changed::Referred(name("a"))), ""),
            (change(Changed::Schema("e".into())), "e.x e.y e.*"),
            (change(Changed::Schema("f".into())), " f.*"),
        ] {
            assert_eq!(unread_behind(&keys, &change), unread, "{change:?}");
        }
    }

    #[test]
    fn reread_keys_replace_known_ones() {
        let mut known = known(&["b>a", "c>a", "c>b", "e.x>c"]);
        known.forget(&table("c"));
        // It refers to itself now, and the schema's tables are unchanged.
        let (columns, cascading) = server(&["c=>c", "e.x>c"]);
        known.take(columns, &cascading);
        assert_eq!(known.unread(), None);
        let children =
            |known: &ForeignKeys, of: &str| in_words(known.to(&name(of)).map(|(child, _)| child));
        assert_eq!(children(&known, "a"), "d.b");
        assert_eq!(children(&known, "b"), "");
        assert_eq!(children(&known, "c"), "d.c e.x");
        known.forget(&change(Changed::Schema("e".into())));
        known.take(Vec::new(), &HashSet::new());
        assert_eq!(children(&known, "c"), "d.c");
        known.forget(&SchemaChange::Anything);
        known.take(Vec::new(), &HashSet::new());
        assert_eq!((known.of.len(), known.children.len()), (0, 0));
    }

    #[test]
    fn cascades_reach_grandchildren_and_end_at_restricting_keys() {
        let known = known(&[
            "b=>a",
            "c=>b",
            "c>a",
            "d=>c",
            "d>b",
            "e>d",
            "f=>e",
            "tree=>tree",
            "one=>two",
            "two=>one",
        ]);
        for (from, reached) in [
            ("a", "d.b d.c d.d"),
            ("c", "d.d"),
            ("d", ""),
            ("e", "d.f"),
            ("tree", "d.tree"),
            ("one", "d.one d.two"),
            ("none", ""),
        ] {
            assert_eq!(in_words(known.reached_from(&name(from)).iter()), reached);
        }
    }

    #[test]
    fn columns_of_a_key_are_in_its_order() {
        let (mut columns, cascading) = server(&["b>a", "b>a", "b>c"]);
        columns[0].place = 2;
        columns[0].column = "second".into();
        columns[2].key.table = name("A");
        let mut known = ForeignKeys::default();
        known.take(columns, &cascading);
        let [key] = known.of(&name("b")) else {
            panic!("{known:?}");
        };
        let names: Vec<&str> = key.columns.iter().map(|(column, _)| &**column).collect();
        assert_eq!(names, ["a", "second"]);
        // Names that differ in their case may be of two tables.
        assert_eq!(
            (known.of(&name("A")).len(), known.of(&name("a")).len()),
            (1, 0)
        );
    }
}
