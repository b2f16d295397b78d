//! Shapes of tables from `information_schema`: one query for all tables of a schema, and its rows read without I/O.
//!
//! Row images hold the columns that `information_schema.columns` lists, in its order: invisible and generated ones too, and
//! not the hidden ones of functional keys. (An invisible primary key that the server made is listed when the session asks.)
//!
//! What a query costs, it costs to be planned: for eight tables it takes hardly longer than for one.

use mysql_link::Row;

use crate::keys::Fold;
use crate::mysql::statement_context::text_literal;
use crate::schema::{ColumnShape, KeyPart, KeyShape, ParentShape, TableName, TableShape};

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
                number.clone(),
                "NULL",
                "ordinal_position",
                ["column_name", "data_type", "collation_name"],
                format!("information_schema.columns WHERE {this}"),
            ),
            (
                "'key'",
                number.clone(),
                "index_name",
                "seq_in_index",
                ["column_name", "sub_part", "NULL"],
                format!("information_schema.statistics WHERE non_unique = 0 AND {this}"),
            ),
            (
                "'parent'",
                number,
                "constraint_name",
                "ordinal_position",
                [
                    "column_name",
                    "CONCAT(HEX(referenced_table_schema), '.', HEX(referenced_table_name))",
                    "referenced_column_name",
                ],
                format!(
                    "information_schema.key_column_usage WHERE referenced_table_name IS NOT NULL AND {this}"
                ),
            ),
            (
                "'child'",
                format!("FIELD(referenced_table_name, {tables})"),
                "CONCAT(HEX(table_schema), '.', HEX(table_name), '.', HEX(constraint_name))",
                "ordinal_position",
                ["referenced_column_name", "table_schema", "table_name"],
                format!(
                    "information_schema.key_column_usage WHERE referenced_table_schema = {schema} AND \
                     referenced_table_name IN ({tables})"
                ),
            ),
            (
                "'cascade'",
                "number".to_owned(),
                "NULL",
                "0",
                ["child_schema", "child", "NULL"],
                "reached".to_owned(),
            ),
        ];
        let selects = kinds.map(|(kind, number, name, place, [a, b, c], from)| {
            let (kind, name, a, b, c) = (text(kind), text(name), text(a), text(b), text(c));
            format!(
                "SELECT {number} AS number, {kind} AS kind, {name} AS name, {place} AS place, {a} AS a, {b} AS b, {c} AS c \
                 FROM {from}"
            )
        });
        format!(
            "WITH RECURSIVE constraint_rows AS (\
               SELECT constraint_schema AS child_schema, table_name AS child, unique_constraint_schema AS parent_schema, \
                 referenced_table_name AS parent, \
                 update_rule NOT IN ('NO ACTION', 'RESTRICT') OR delete_rule NOT IN ('NO ACTION', 'RESTRICT') AS cascades \
               FROM information_schema.referential_constraints), \
             reached AS (\
               SELECT FIELD(parent, {tables}) AS number, child_schema, child FROM constraint_rows \
                 WHERE cascades AND parent_schema = {schema} AND parent IN ({tables}) \
               UNION \
               SELECT reached.number, further.child_schema, further.child FROM reached JOIN constraint_rows AS further \
                 ON further.cascades AND further.parent_schema = reached.child_schema AND further.parent = reached.child) \
             {}",
            selects.join(" UNION ALL ")
        )
    }

    /// Reads the answer: the shapes of the tables that there are, each with its place among all that are wanted.
    pub(super) fn read(&self, rows: &[Row]) -> Vec<(usize, TableShape)> {
        let numbered = self.tables.iter().zip(&self.places).zip(1_usize..);
        numbered
            .filter_map(|((name, place), number)| {
                let number = number.to_string();
                let own = rows
                    .iter()
                    .filter(|row| row.text("number") == Some(number.as_str()));
                Some((*place, read_shape(name, own)?))
            })
            .collect()
    }
}

/// Reads a table's rows of the answer; `None` when there is no such table.
fn read_shape<'r>(name: &TableName, rows: impl Iterator<Item = &'r Row>) -> Option<TableShape> {
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

    let parents = listed.parents.iter().filter_map(|key| {
        let texts = |pick: fn(&Part) -> Option<&str>| {
            key.parts.iter().map(pick).collect::<Option<Vec<_>>>()
        };
        let columns = texts(|part| part.a.as_deref())?.into_iter().map(place);
        Some(ParentShape {
            columns: columns.collect::<Option<_>>()?,
            table: from_hex(key.parts.first()?.b.as_deref()?)?,
            referenced: texts(|part| part.c.as_deref())?
                .into_iter()
                .map(Box::from)
                .collect(),
        })
    });
    let parents = parents.collect();

    let (mut referenced, mut children) = (Vec::<KeyShape>::new(), Vec::new());
    for key in &listed.children {
        if let Some(Part {
            b: Some(schema),
            c: Some(table),
            ..
        }) = key.parts.first()
        {
            push_new(&mut children, TableName::new(schema, table));
        }
        let parts = key.parts.iter().map(|part| {
            Some(KeyPart {
                column: place(part.a.as_deref()?)?,
                prefix: None,
            })
        });
        if let Some(parts) = parts.collect() {
            let shape = KeyShape { parts };
            if !primary_key
                .iter()
                .chain(&unique_keys)
                .any(|key| *key == shape)
            {
                push_new(&mut referenced, shape);
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
        cascades_to: listed.cascades_to,
    })
}

/// The query's rows by their kind.
#[derive(Default)]
struct Listed {
    columns: Vec<(u32, ColumnShape)>,
    keys: Vec<Named>,
    parents: Vec<Named>,
    children: Vec<Named>,
    cascades_to: Vec<TableName>,
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
    c: Option<String>,
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
            c: text("c"),
        };
        match row.text("kind") {
            Some("column") => {
                let fold = Fold::of_column(row.text("b").unwrap_or_default(), row.text("c"));
                let name = row.text("a").unwrap_or_default().into();
                self.columns.push((place, ColumnShape { name, fold }));
            }
            Some("key") => add(&mut self.keys, row, part),
            Some("parent") => add(&mut self.parents, row, part),
            Some("child") => add(&mut self.children, row, part),
            Some("cascade") => {
                if let (Some(schema), Some(table)) = (row.text("a"), row.text("b")) {
                    push_new(&mut self.cascades_to, TableName::new(schema, table));
                }
            }
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

fn push_new<T: PartialEq>(all: &mut Vec<T>, one: T) {
    if !all.contains(&one) {
        all.push(one);
    }
}

/// Column names are equal whatever their case; constraints may write them otherwise than columns do. Names of tables may be.
fn same_name(one: &str, other: &str) -> bool {
    one == other || one.to_lowercase() == other.to_lowercase()
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
