//! Shapes of tables from `information_schema`: one query for all tables of a schema, and its rows read without I/O. What foreign
//! keys say of them is known (`foreign_keys`).
//!
//! Row images hold the columns that `information_schema.columns` lists, in its order: invisible and generated ones too, and
//! not the hidden ones of functional keys. (An invisible primary key that the server made is listed when the session asks.)
//!
//! What a query costs, it costs to be planned: for eight tables it takes hardly longer than for one.

use mysql_link::Row;

use crate::keys::Fold;
use crate::mysql::foreign_keys::ForeignKeys;
use crate::mysql::statement_context::text_literal;
use crate::schema::{
    ColumnShape, KeyPart, KeyShape, ParentShape, TableName, TableShape, same_name,
};

/// Tables of one schema that are asked for with one query.
#[derive(Debug)]
pub(super) struct ShapeQuery<'a> {
    schema: &'a str,
    tables: Vec<&'a TableName>,
    /// The same as places among all that are wanted.
    places: Vec<usize>,
}

impl<'a> ShapeQuery<'a> {
    /// The queries for some tables: one for each schema. Names that a server may take for the same go to different ones, since
    /// their rows could not be told apart.
    pub(super) fn of(names: &'a [TableName]) -> Vec<Self> {
        let mut queries: Vec<Self> = Vec::new();
        for (place, name) in names.iter().enumerate() {
            let fits = |query: &&mut Self| {
                let is_same = |other: &&TableName| same_name(&other.table, &name.table);
                query.schema == &*name.schema && !query.tables.iter().any(is_same)
            };
            match queries.iter_mut().find(fits) {
                Some(query) => {
                    query.tables.push(name);
                    query.places.push(place);
                }
                None => queries.push(Self {
                    schema: &name.schema,
                    tables: vec![name],
                    places: vec![place],
                }),
            }
        }
        queries
    }

    /// Rows of different kinds with the same columns. The first column is the table, as a number from 1 on.
    pub(super) fn sql(&self) -> String {
        let schema = text_literal(self.schema);
        let tables: Vec<String> = self
            .tables
            .iter()
            .map(|name| text_literal(&name.table))
            .collect();
        let tables = tables.join(", ");
        let this = format!("table_schema = {schema} AND table_name IN ({tables})");
        let number = format!("FIELD(table_name, {tables})");
        // The names of constraints, keys and tables have different collations.
        let text = |column: &str| format!("CONVERT({column} USING utf8mb4) COLLATE utf8mb4_bin");
        let kinds = [
            (
                "'column'",
                // The table's name, as the server writes it.
                "CONCAT(HEX(table_schema), '.', HEX(table_name))",
                "ordinal_position",
                ["column_name", "data_type", "collation_name"],
                format!("information_schema.columns WHERE {this}"),
            ),
            (
                "'key'",
                "index_name",
                "seq_in_index",
                ["column_name", "sub_part", "NULL"],
                format!("information_schema.statistics WHERE non_unique = 0 AND {this}"),
            ),
            (
                "'table'",
                "engine",
                "0",
                ["NULL", "NULL", "NULL"],
                format!("information_schema.tables WHERE {this}"),
            ),
        ];
        let selects = kinds.map(|(kind, name, place, [a, b, c], from)| {
            let (kind, name, a, b, c) = (text(kind), text(name), text(a), text(b), text(c));
            format!(
                "SELECT {number} AS number, {kind} AS kind, {name} AS name, {place} AS place, {a} AS a, {b} AS b, {c} AS c \
                 FROM {from}"
            )
        });
        selects.join(" UNION ALL ")
    }

    /// Reads the answer: the shapes of the tables that there are, each with its place among all that are wanted.
    pub(super) fn read(&self, rows: &[Row], keys: &ForeignKeys) -> Vec<(usize, TableShape)> {
        let numbered = self.tables.iter().zip(&self.places).zip(1_usize..);
        numbered
            .filter_map(|((name, place), number)| {
                let number = number.to_string();
                let own = rows
                    .iter()
                    .filter(|row| row.text("number") == Some(number.as_str()));
                Some((*place, read_shape(name, own, keys)?))
            })
            .collect()
    }
}

/// Reads a table's rows of the answer; `None` when there is no such table.
fn read_shape<'r>(
    name: &TableName,
    rows: impl Iterator<Item = &'r Row>,
    foreign_keys: &ForeignKeys,
) -> Option<TableShape> {
    let mut listed = Listed::default();
    for row in rows {
        listed.take(row);
    }
    listed.columns.sort_by_key(|(place, _)| *place);
    let columns: Vec<ColumnShape> = listed
        .columns
        .into_iter()
        .map(|(_, column)| column)
        .collect();
    if columns.is_empty() {
        return None;
    }
    let place = |name: &str| {
        columns
            .iter()
            .position(|column| same_name(&column.name, name))
    };

    let (mut primary_key, mut unique_keys) = (None, Vec::new());
    for key in &listed.keys {
        // A part without a column is an expression.
        let parts: Option<Vec<KeyPart>> = key
            .parts
            .iter()
            .map(|part| {
                Some(KeyPart {
                    column: place(part.a.as_deref()?)?,
                    prefix: part.b.as_deref().and_then(|length| length.parse().ok()),
                })
            })
            .collect();
        let shape = KeyShape {
            parts: parts.unwrap_or_default(),
        };
        match key.name.as_str() {
            "PRIMARY" => primary_key = Some(shape),
            _ => unique_keys.push(shape),
        }
    }

    let in_server = listed.name.as_ref().unwrap_or(name);
    let parents = foreign_keys.of(in_server).iter().filter_map(|key| {
        let columns = key.columns.iter().map(|(column, _)| place(column));
        let referenced = key.columns.iter().map(|(_, referenced)| referenced);
        Some(ParentShape {
            columns: columns.collect::<Option<_>>()?,
            table: (*key.parent).clone(),
            referenced: referenced.cloned().collect(),
        })
    });
    let parents = parents.collect();

    let (mut referenced, mut children) = (Vec::<KeyShape>::new(), Vec::new());
    for (child, key) in foreign_keys.to(in_server) {
        // Those of one child come one after the other.
        if children.last() != Some(child) {
            children.push(child.clone());
        }
        let parts = key.columns.iter().map(|(_, referenced)| {
            Some(KeyPart {
                column: place(referenced)?,
                prefix: None,
            })
        });
        if let Some(parts) = parts.collect() {
            let shape = KeyShape { parts };
            let mut own = primary_key.iter().chain(&unique_keys).chain(&referenced);
            if !own.any(|key| *key == shape) {
                referenced.push(shape);
            }
        }
    }
    Some(TableShape {
        name: name.clone(),
        columns,
        primary_key,
        unique_keys,
        parents,
        referenced,
        children,
        cascades_to: foreign_keys.reached_from(in_server),
        without_transactions: listed.engine.filter(|engine| !rolls_back(engine)),
    })
}

/// Whether a storage engine leaves nothing behind of a transaction that is rolled back: it has transactions, or no rows.
pub(super) fn rolls_back(engine: &str) -> bool {
    let all = ["InnoDB", "ndbcluster", "ROCKSDB", "BLACKHOLE"];
    all.iter().any(|one| one.eq_ignore_ascii_case(engine))
}

/// The query's rows by their kind.
#[derive(Default)]
struct Listed {
    /// The table's name, as the server writes it.
    name: Option<TableName>,
    columns: Vec<(u32, ColumnShape)>,
    keys: Vec<Named>,
    engine: Option<Box<str>>,
}

/// Parts of one name, in their order.
struct Named {
    name: String,
    parts: Vec<Part>,
}

struct Part {
    place: u32,
    a: Option<String>,
    b: Option<String>,
}

impl Listed {
    fn take(&mut self, row: &Row) {
        let text = |column| row.text(column).map(str::to_owned);
        let place = row
            .text("place")
            .and_then(|place| place.parse().ok())
            .unwrap_or(0);
        let part = Part {
            place,
            a: text("a"),
            b: text("b"),
        };
        match row.text("kind") {
            Some("column") => {
                let fold = Fold::of_column(row.text("b").unwrap_or_default(), row.text("c"));
                let name = row.text("a").unwrap_or_default().into();
                self.columns.push((place, ColumnShape { name, fold }));
                self.name = row.text("name").and_then(from_hex);
            }
            Some("key") => add(&mut self.keys, row, part),
            Some("table") => self.engine = row.text("name").map(Box::from),
            _ => {}
        }
    }
}

fn add(all: &mut Vec<Named>, row: &Row, part: Part) {
    let name = row.text("name").unwrap_or_default();
    let at = all.iter().position(|named| named.name == name);
    let at = at.unwrap_or_else(|| {
        all.push(Named {
            name: name.to_owned(),
            parts: Vec::new(),
        });
        all.len() - 1
    });
    if let Some(named) = all.get_mut(at) {
        named.parts.push(part);
        named.parts.sort_by_key(|part| part.place);
    }
}

/// Two names in hexadecimal with a point between them, which names may have themselves.
fn from_hex(text: &str) -> Option<TableName> {
    let (schema, table) = text.split_once('.')?;
    let decoded = |hex: &str| {
        let bytes: Option<Vec<u8>> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(hex.get(at * 2..at * 2 + 2)?, 16).ok())
            .collect();
        String::from_utf8(bytes?).ok()
    };
    Some(TableName::new(&decoded(schema)?, &decoded(table)?))
}
