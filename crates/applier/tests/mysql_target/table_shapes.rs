//! Reads the shapes of a target's tables.

use anyhow::{Result, ensure};
use applier::backend::Backend;
use applier::keys::Fold;
use applier::mysql::MysqlBackend;
use applier::schema::{KeyPart, KeyShape, TableName, TableShape};

use testkit::mysqld::Mysqld;

use crate::pair::{Pair, Way, options, server};

fn columns(shape: &TableShape) -> Vec<(&str, Fold)> {
    shape
        .columns
        .iter()
        .map(|column| (&*column.name, column.fold))
        .collect()
}

#[tokio::test]
async fn a_table_of_mysqld_is_seen_with_everything_that_constrains_its_rows() -> Result<()> {
    let target = server(2, &[])?;
    target.client().sql(
        "CREATE DATABASE d; CREATE DATABASE `o``d'd \"ä.`; USE d;
         CREATE TABLE plain (b VARCHAR(20) COLLATE utf8mb4_bin, id BIGINT, f FLOAT, c CHAR(9), t TEXT CHARACTER SET sjis, PRIMARY KEY (id, b), UNIQUE one (c(3), f), UNIQUE two (t(7)));
         CREATE TABLE made (a INT, v INT AS (a + 1) VIRTUAL INVISIBLE, j JSON, z INT, UNIQUE u1 ((a * 2)), UNIQUE u2 (v), UNIQUE u3 (z, (a + 2)),
           UNIQUE u4 ((CAST(j AS UNSIGNED ARRAY))), KEY (a));
         SET sql_generate_invisible_primary_key = 1; CREATE TABLE unseen (a INT); SET sql_generate_invisible_primary_key = 0;
         SET GLOBAL show_gipk_in_create_table_and_information_schema = OFF;
         CREATE TABLE parent (x INT, ID INT PRIMARY KEY, k1 INT, k2 INT, KEY (k1, k2), UNIQUE (x));
         CREATE TABLE child (id INT PRIMARY KEY, p INT, q1 INT, q2 INT, CONSTRAINT a FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE);
         CREATE TABLE grandchild (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES child (id) ON UPDATE SET NULL);
         CREATE TABLE cousin (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES child (id));
         CREATE TABLE tree (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES tree (id) ON DELETE CASCADE);
         SET restrict_fk_on_non_standard_key = 0;
         CREATE TABLE `o``d'd \"ä.`.`c.h\\ild` (id INT PRIMARY KEY, r2 INT, r1 INT, FOREIGN KEY (r1, r2) REFERENCES d.parent (k1, k2));
         CREATE VIEW v AS SELECT 1 AS a;",
    )?;
    let backend = MysqlBackend::connect(options(&target)).await?;
    let names = [
        TableName::new("d", "plain"),
        TableName::new("d", "made"),
        TableName::new("d", "unseen"),
        TableName::new("d", "parent"),
        TableName::new("d", "child"),
        TableName::new("o`d'd \"ä.", "c.h\\ild"),
        TableName::new("d", "tree"),
        TableName::new("d", "no such"),
        // A server with case-insensitive names could not distinguish this name from the first.
        TableName::new("d", "PLAIN"),
        TableName::new("x' OR '1'='1", "plain"),
    ];
    // One query for all tables and a query for each table have the same result.
    let all = backend.tables(&names).await?;
    let shape = async |table: TableName| {
        let alone = backend.tables(std::slice::from_ref(&table)).await?;
        let place = names.iter().position(|name| *name == table).unwrap();
        assert_eq!(alone, [all[place].clone()], "{table}");
        anyhow::Ok(alone[0].clone().unwrap())
    };

    let plain = shape(TableName::new("d", "plain")).await?;
    assert_eq!(
        columns(&plain),
        [
            ("b", Fold::Trimmed),
            ("id", Fold::Bytes),
            ("f", Fold::Float),
            ("c", Fold::AsciiCase),
            ("t", Fold::Opaque)
        ]
    );
    assert_eq!(plain.primary_key, Some(KeyShape::of(&[1, 0])));
    let part = |column, prefix| KeyPart { column, prefix };
    assert_eq!(
        plain.unique_keys,
        [
            KeyShape {
                parts: vec![part(3, Some(3)), part(2, None)]
            },
            KeyShape {
                parts: vec![part(4, Some(7))]
            }
        ]
    );

    let made = shape(TableName::new("d", "made")).await?;
    assert_eq!(
        columns(&made)
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>(),
        ["a", "v", "j", "z"]
    );
    assert_eq!(
        made.unique_keys,
        [
            KeyShape::of(&[]),
            KeyShape::of(&[1]),
            KeyShape::of(&[]),
            KeyShape::of(&[])
        ]
    );
    assert_eq!(made.primary_key, None);

    let unseen = shape(TableName::new("d", "unseen")).await?;
    assert_eq!(columns(&unseen)[0].0, "my_row_id");
    assert_eq!(unseen.primary_key, Some(KeyShape::of(&[0])));

    let odd = TableName::new("o`d'd \"ä.", "c.h\\ild");
    let parent = shape(TableName::new("d", "parent")).await?;
    // By the primary key, and by columns that are no key of the table.
    assert_eq!(parent.referenced, [KeyShape::of(&[2, 3])]);
    let mut children = parent.children.clone();
    children.sort();
    assert_eq!(children, [TableName::new("d", "child"), odd.clone()]);
    let mut reached = parent.cascades_to.clone();
    reached.sort();
    assert_eq!(
        reached,
        [
            TableName::new("d", "child"),
            TableName::new("d", "grandchild")
        ]
    );

    let child = shape(TableName::new("d", "child")).await?;
    assert_eq!(child.parents.len(), 1);
    assert_eq!(child.parents[0].columns, [1]);
    assert_eq!(child.parents[0].table, TableName::new("d", "parent"));
    assert_eq!(child.parents[0].referenced[0].to_lowercase(), "id");
    assert!(child.referenced.is_empty());
    assert_eq!(child.children.len(), 2);
    assert_eq!(child.cascades_to, [TableName::new("d", "grandchild")]);

    let odd = shape(odd).await?;
    assert_eq!(odd.parents[0].columns, [2, 1]);
    assert_eq!(*odd.parents[0].referenced, ["k1".into(), "k2".into()]);
    let tree = shape(TableName::new("d", "tree")).await?;
    assert_eq!(tree.cascades_to, [TableName::new("d", "tree")]);
    assert_eq!(tree.children, [TableName::new("d", "tree")]);

    assert_eq!(all[7..], [None, None, None]);
    Ok(())
}

/// Changes of tables in two schemas, with foreign keys in all directions. Each line is applied separately. Then the
/// cached shapes are compared with those of a new backend.
const CHANGES: &[&str] = &[
    "CREATE DATABASE a; CREATE DATABASE b; CREATE TABLE a.top (id INT PRIMARY KEY, k INT, UNIQUE (k)); \
     CREATE TABLE a.`m.id` (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES top (id) ON DELETE CASCADE); \
     CREATE TABLE b.low (id INT PRIMARY KEY, p INT, q INT, r INT, FOREIGN KEY (p) REFERENCES a.`m.id` (id) ON UPDATE SET NULL, \
       FOREIGN KEY (q) REFERENCES a.top (id), FOREIGN KEY (r) REFERENCES a.top (k) ON DELETE CASCADE); \
     CREATE TABLE b.tree (id INT PRIMARY KEY, up INT, CONSTRAINT same FOREIGN KEY (up) REFERENCES tree (id) ON DELETE CASCADE); \
     CREATE TABLE a.tree (id INT PRIMARY KEY, up INT, CONSTRAINT same FOREIGN KEY (up) REFERENCES b.tree (id)); \
     CREATE TABLE a.pair (x INT, y INT, id INT PRIMARY KEY, KEY (y, x), UNIQUE (x, y)); \
     CREATE TABLE b.Pair (d INT, c INT, id INT PRIMARY KEY, FOREIGN KEY (c, d) REFERENCES a.pair (x, y) ON UPDATE CASCADE); \
     CREATE TABLE b.pair (id INT PRIMARY KEY, d INT, CONSTRAINT other FOREIGN KEY (d) REFERENCES b.Pair (id) ON DELETE SET NULL)",
    // A change without foreign keys, then one foreign key less, then one more.
    "ALTER TABLE a.top ADD z INT",
    "ALTER TABLE b.tree DROP FOREIGN KEY same",
    "ALTER TABLE b.tree ADD FOREIGN KEY (up) REFERENCES a.top (id) ON DELETE CASCADE",
    "CREATE TABLE b.new (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES low (id) ON DELETE CASCADE)",
    // A cycle of three tables.
    "ALTER TABLE a.top ADD n INT, ADD FOREIGN KEY (n) REFERENCES b.new (id) ON UPDATE CASCADE ON DELETE SET NULL",
    // Renames that also change the keys of children.
    "ALTER TABLE a.`m.id` RENAME COLUMN id TO number",
    "ALTER TABLE a.pair CHANGE x w INT, RENAME INDEX x TO w",
    "RENAME TABLE a.pair TO b.moved, b.Pair TO a.PAIR",
    "ALTER TABLE b.low RENAME TO a.low",
    "CREATE INDEX other ON a.low (r, q)",
    // Foreign keys to tables that do not exist, or do not exist yet.
    "SET foreign_key_checks = 0; CREATE TABLE b.early (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES a.late (id) ON DELETE CASCADE)",
    "CREATE TABLE a.late (n INT, id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES b.moved (id) ON DELETE CASCADE)",
    "SET foreign_key_checks = 0; DROP TABLE b.moved",
    "CREATE TABLE b.moved (w INT, y INT, id INT PRIMARY KEY, UNIQUE (w, y))",
    "SET foreign_key_checks = 0; ALTER TABLE b.early DROP PRIMARY KEY, ADD PRIMARY KEY (p, id)",
    // Statements that the parser does not understand, so that all tables count as changed.
    "ALTER TABLE b.pair DROP FOREIGN KEY other, COMMENT 'rename'",
    "CREATE TABLE a.`ä` (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES a.late (id) ON DELETE CASCADE)",
    "ALTER TABLE a.`ä` ADD `ö` INT, ADD FOREIGN KEY (`ö`) REFERENCES a.late (id)",
    // Drops a schema whose tables have parents and children in another schema.
    "SET foreign_key_checks = 0; DROP DATABASE b",
    "CREATE DATABASE b; CREATE TABLE b.moved (w INT, y INT, id INT PRIMARY KEY, UNIQUE (w, y))",
    "SET foreign_key_checks = 0; DROP TABLE a.top, a.`m.id`; DROP DATABASE a",
];

#[tokio::test]
async fn what_is_known_of_foreign_keys_is_what_a_mysqld_has_behind_every_change() -> Result<()> {
    let mut pair = Pair::new().await?;
    let tables = [
        "top", "m.id", "low", "tree", "pair", "Pair", "PAIR", "new", "early", "late", "moved", "ä",
    ];
    let names: Vec<TableName> = ["a", "b"]
        .iter()
        .flat_map(|schema| tables.map(|table| TableName::new(schema, table)))
        .collect();
    let sorted = |shapes: Vec<Option<TableShape>>| {
        let sort = |mut shape: TableShape| {
            shape.children.sort();
            shape.cascades_to.sort();
            shape
                .parents
                .sort_by(|one, other| one.columns.cmp(&other.columns));
            shape.referenced.sort_by_key(|key| format!("{key:?}"));
            shape
        };
        let all = shapes.into_iter().map(|shape| shape.map(sort));
        all.collect::<Vec<_>>()
    };
    let mut seen = Vec::new();
    for changes in CHANGES {
        pair.write(changes)?;
        if let Err(stop) = pair.follow(Way::Batches(1)).await? {
            anyhow::bail!("{changes}: {}", stop.error);
        }
        let known = sorted(pair.backend.tables(&names).await?);
        let fresh = MysqlBackend::connect(options(&pair.target)).await?;
        let found = sorted(fresh.tables(&names).await?);
        ensure!(known == found, "{changes}\n{known:#?}\n{found:#?}");
        let count = |of: fn(&TableShape) -> usize| found.iter().flatten().map(of).sum::<usize>();
        seen.push((
            count(|shape| shape.parents.len()),
            count(|shape| shape.children.len()),
            count(|shape| shape.cascades_to.len()),
        ));
    }
    // The shapes are as after one query for each table. Such queries would read all foreign keys of the server each
    // time.
    let expected = [
        (8, 7, 7),
        (8, 7, 7),
        (7, 6, 6),
        (8, 7, 7),
        (9, 8, 10),
        (10, 9, 23),
        (10, 9, 23),
        (10, 9, 23),
        (10, 9, 23),
        (10, 9, 23),
        (10, 9, 23),
        (11, 9, 23),
        (12, 11, 26),
        (12, 9, 22),
        (12, 11, 26),
        (12, 11, 26),
        (11, 10, 24),
        (12, 11, 26),
        (13, 11, 26),
        (10, 4, 4),
        (10, 6, 7),
        (0, 0, 0),
    ];
    assert_eq!(
        seen, expected,
        "parents, children and cascades of all tables"
    );
    Ok(())
}

/// Returns how many rows the server has read so far to answer queries.
fn rows_read(server: &Mysqld) -> Result<u64> {
    let counters = server
        .client()
        .sql("SHOW GLOBAL STATUS LIKE 'Handler_read%'")?;
    let counts = counters
        .0
        .iter()
        .filter_map(|row| row.get(1)?.parse::<u64>().ok());
    Ok(counts.sum())
}

#[tokio::test]
async fn a_question_about_a_table_reads_no_foreign_key_of_another_in_mysqld() -> Result<()> {
    let target = server(2, &[])?;
    target
        .client()
        .sql("CREATE DATABASE d; CREATE TABLE d.hub (id INT PRIMARY KEY)")?;
    let mut made = 0;
    let mut reads = Vec::new();
    for tables in [20, 200] {
        let statements: String = (made..tables)
            .map(|number| format!("CREATE TABLE d.t{number} (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES d.hub (id));"))
            .collect();
        target.client().sql(&statements)?;
        made = tables;
        let backend = MysqlBackend::connect(options(&target)).await?;
        let hub = backend.tables(&[TableName::new("d", "hub")]).await?;
        assert_eq!(hub[0].as_ref().unwrap().children.len(), tables);
        let before = rows_read(&target)?;
        for number in 0..20 {
            let asked = [TableName::new("d", &format!("t{number}"))];
            let answered = backend.tables(&asked).await?;
            assert_eq!(answered[0].as_ref().unwrap().parents.len(), 1);
        }
        reads.push((rows_read(&target)? - before) / 20);
    }
    let [few, many] = reads[..] else {
        panic!("{reads:?}")
    };
    println!("rows read for a question, of 20 and of 200 tables: {few}, {many}");
    ensure!(many < 2 * few, "rows read for each question: {reads:?}");
    Ok(())
}
