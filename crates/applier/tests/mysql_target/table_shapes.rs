//! What is found out about a target's tables.

use anyhow::Result;
use applier::backend::Backend;
use applier::keys::Fold;
use applier::mysql::MysqlBackend;
use applier::schema::{KeyPart, KeyShape, TableName, TableShape};

use crate::pair::{options, server};

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
         CREATE TABLE beside (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES child (id));
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
        // A server whose names have no case could not tell it from the first.
        TableName::new("d", "PLAIN"),
        TableName::new("x' OR '1'='1", "plain"),
    ];
    // All at once, and each by itself, is the same.
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
    // By its primary key, and by columns that are no key of it.
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
