//! Reads everything that a follower must have in common with its server: schemas, tables with their rows, stored
//! programs, accounts.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use testkit::mysqld::MysqlClient;

/// A server's contents, by name: definitions and sorted rows.
pub type ServerContents = BTreeMap<String, Vec<Vec<String>>>;

/// The schemas that every server has for itself.
const OWN: &str = "('mysql', 'sys', 'information_schema', 'performance_schema', 'witness_applier')";
/// Separates the results of several queries in the client's output.
const MARK: &str = "== ";
/// The system tables with accounts and other objects that statements create.
const SYSTEM_TABLES: [&str; 11] = [
    "user",
    "db",
    "tables_priv",
    "columns_priv",
    "procs_priv",
    "proxies_priv",
    "global_grants",
    "role_edges",
    "default_roles",
    "servers",
    "func",
];

/// Reads a server's contents.
///
/// # Errors
/// If a query fails.
pub fn server_contents(client: &MysqlClient) -> Result<ServerContents> {
    let questions = questions(client)?;
    let asked: Vec<String> = questions
        .iter()
        .map(|(name, sql)| format!("SELECT {};\n{sql};\n", literal(&format!("{MARK}{name}"))))
        .collect();
    let settings = "SET NAMES utf8mb4, group_concat_max_len = 1000000; SET show_gipk_in_create_table_and_information_schema = ON;\n";
    let answers = client.sql(&format!("{settings}{}", asked.concat()))?;
    let mut contents = ServerContents::new();
    let mut name = String::new();
    for row in answers.0 {
        match row.first().and_then(|first| first.strip_prefix(MARK)) {
            Some(next) => {
                name = next.to_owned();
                contents.entry(name.clone()).or_default();
            }
            None => contents.entry(name.clone()).or_default().push(row),
        }
    }
    ensure!(contents.len() == questions.len(), "answers are missing");
    contents.values_mut().for_each(|rows| rows.sort());
    for rows in contents.values_mut() {
        for value in rows.iter_mut().flatten() {
            *value = without_counter(value);
        }
    }
    Ok(contents)
}

/// Returns the first difference between two servers.
#[must_use]
pub fn difference(one: &ServerContents, other: &ServerContents) -> Option<String> {
    let names = one.keys().chain(other.keys());
    let mut differing = names.filter(|name| one.get(*name) != other.get(*name));
    differing.next().map(|name| {
        let only = |these: &ServerContents, those: &ServerContents| {
            let rows = these.get(name).cloned().unwrap_or_default();
            let others = those.get(name).cloned().unwrap_or_default();
            let mut only = rows;
            only.retain(|row| !others.contains(row));
            only.truncate(3);
            only
        };
        format!("{name}: {:?} and {:?}", only(one, other), only(other, one))
    })
}

/// Returns the queries, each with a name.
fn questions(client: &MysqlClient) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    let columns = client.sql(&format!(
        "SET group_concat_max_len = 1000000; SET show_gipk_in_create_table_and_information_schema = ON; \
         SELECT HEX(t.table_schema), HEX(t.table_name), \
         GROUP_CONCAT('IFNULL(SHA2(`', REPLACE(column_name, '`', '``'), '`, 256),0)' ORDER BY ordinal_position SEPARATOR ',') \
         FROM information_schema.tables AS t JOIN information_schema.columns AS c USING (table_schema, table_name) \
         WHERE table_type = 'BASE TABLE' AND t.table_schema NOT IN {OWN} GROUP BY t.table_schema, t.table_name"
    ))?;
    for table in columns.0 {
        let (name, columns) = (quoted(&table[0], &table[1])?, &table[2]);
        all.push((format!("{name} made"), format!("SHOW CREATE TABLE {name}")));
        all.push((
            format!("{name} rows"),
            format!("SELECT {columns} FROM {name}"),
        ));
    }
    for (what, from, condition) in [
        (
            "DATABASE",
            "schema_name, '' FROM information_schema.schemata",
            "schema_name",
        ),
        (
            "VIEW",
            "table_schema, table_name FROM information_schema.views",
            "table_schema",
        ),
        (
            "TRIGGER",
            "trigger_schema, trigger_name FROM information_schema.triggers",
            "trigger_schema",
        ),
        (
            "PROCEDURE",
            "routine_schema, routine_name FROM information_schema.routines",
            "routine_type = 'PROCEDURE' AND routine_schema",
        ),
        (
            "FUNCTION",
            "routine_schema, routine_name FROM information_schema.routines",
            "routine_type = 'FUNCTION' AND routine_schema",
        ),
    ] {
        let (first, rest) = from.split_once(", ").unwrap_or((from, ""));
        let (second, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let names = client.sql(&format!(
            "SELECT HEX({first}), HEX({second}) {rest} WHERE {condition} NOT IN {OWN}"
        ))?;
        for name in names.0 {
            let name = quoted(&name[0], &name[1])?;
            all.push((
                format!("{what} {name}"),
                format!("SHOW CREATE {what} {name}"),
            ));
        }
    }
    for table in SYSTEM_TABLES {
        all.push((
            format!("mysql.{table}"),
            format!("SELECT * FROM mysql.{table}"),
        ));
    }
    let systems =
        "SELECT * FROM information_schema.st_spatial_reference_systems WHERE srs_id > 900000";
    all.push(("reference systems".to_owned(), systems.to_owned()));
    Ok(all)
}

/// Quotes a name of one or two parts, which are given in hexadecimal.
fn quoted(first: &str, second: &str) -> Result<String> {
    let part = |hex: &str| -> Result<String> {
        let bytes: Result<Vec<u8>, _> = (0..hex.len() / 2)
            .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16))
            .collect();
        Ok(format!(
            "`{}`",
            String::from_utf8(bytes?)?.replace('`', "``")
        ))
    };
    Ok(match second {
        "" => part(first)?,
        second => format!("{}.{}", part(first)?, part(second)?),
    })
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Removes the AUTO_INCREMENT counter from a table definition: logged rows advance it at a follower by other steps.
fn without_counter(definition: &str) -> String {
    match definition.split_once(" AUTO_INCREMENT=") {
        Some((before, rest)) => {
            let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
            format!("{before}{rest}")
        }
        None => definition.to_owned(),
    }
}
