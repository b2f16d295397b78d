//! The target's foreign keys: which tables refer to which tables, and how far cascades reach.
//!
//! A server has no index of foreign keys by referenced table, so a query for a table's children reads all keys. Therefore all
//! keys are read once, and references are resolved here, without I/O. After a change, the affected keys are read again: those
//! of each named table, and those of the tables that refer to it, because they contain the names of renamed columns and tables.
//! If a table is only the parent of a new key, its own keys are not read again: the key belongs to the child.

use std::collections::{BTreeMap, HashMap, HashSet};

use mysql_link::Row;

use crate::mysql::statement_context::text_literal;
use crate::schema::TableName;
use crate::transaction::{Changed, SchemaChange};

/// If more tables than this are unread, all keys are read instead of the keys of single tables.
const MOST_AT_ONCE: usize = 256;

/// The known foreign keys, and the keys that must be read before use. A key takes about 600 bytes.
#[derive(Debug, Default)]
pub(super) struct ForeignKeys {
    of: BTreeMap<TableName, Vec<ForeignKey>>,
    /// The tables that refer to each table. A referenced table may not exist.
    children: HashMap<TableName, Vec<TableName>>,
    unread: Unread,
}

/// A foreign key, without the table to which it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ForeignKey {
    pub(super) parent: TableName,
    /// The key's columns in order, each with the referenced column.
    pub(super) columns: Box<[(Box<str>, Box<str>)]>,
    /// True if the server itself changes rows of this table when a row of the parent changes or is deleted.
    pub(super) cascades: bool,
}

/// The keys that must be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Unread {
    #[default]
    All,
    /// The keys of some tables, and of all tables of some schemas.
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

    /// Returns two queries: for the columns of the keys, and for the keys that cascade.
    pub(super) fn sql(&self) -> [String; 2] {
        // A constraint is in the same schema as its table.
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

/// A column of a foreign key, from `information_schema.key_column_usage`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyColumn {
    pub(super) key: KeyName,
    pub(super) place: u32,
    pub(super) column: Box<str>,
    pub(super) parent: TableName,
    pub(super) referenced: Box<str>,
}

/// A foreign key, identified by its table and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct KeyName {
    pub(super) table: TableName,
    pub(super) constraint: Box<str>,
}

/// Reads the result of the first query.
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

/// Reads the result of the second query.
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
    /// Returns the keys that must be read before use; `None` if all are known.
    pub(super) fn unread(&self) -> Option<Unread> {
        (self.unread != Unread::nothing()).then(|| self.unread.clone())
    }

    /// Records the query results for the unread keys.
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

    /// Marks the keys as unread that a barrier may have changed.
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

    /// Returns the foreign keys that refer to a table, each with the table to which it belongs, which may be the same table.
    pub(super) fn to(&self, table: &TableName) -> impl Iterator<Item = (&TableName, &ForeignKey)> {
        let children = self.children.get(table).into_iter().flatten();
        children.flat_map(|child| {
            let keys = self.of(child).iter().filter(|key| key.parent == *table);
            keys.map(move |key| (child, key))
        })
    }

    /// Returns all tables that cascades reach from a table, directly or indirectly. The table itself is among them if the
    /// cascades form a cycle.
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

    /// Returns foreign keys of one column as a server lists them. Each is written `child>parent`, or `child=>parent` if it
    /// cascades.
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

    /// Returns the unread keys after a change; `*` for all keys.
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
        // Another child of `hub`: only the child's own keys are read.
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
        // `hub` has more children than `MOST_AT_ONCE`, so all keys are read.
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
            // The keys of the children contain the names of its columns.
            (table("a"), "d.B d.a d.b"),
            // True if `b` or `B` is meant depends on the server.
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
        // `c` now refers to itself. The tables of the schema are unchanged.
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
        // Names that differ only in case may mean two tables.
        assert_eq!(
            (known.of(&name("A")).len(), known.of(&name("a")).len()),
            (1, 0)
        );
    }
}
