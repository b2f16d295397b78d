//! Compares the metadata in table maps with the server's schema.

use binlog_format::event::EventType;
use binlog_format::events::TableMap;
use binlog_format::row_image::{CollationId, Columns, KeyPart, TableMetadata};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;

use super::logged_events::events;

const TABLES: &str = "
    CREATE DATABASE d CHARACTER SET utf8mb4; USE d;
    CREATE TABLE mixed (y YEAR, a INT UNSIGNED, b VARCHAR(10), e ENUM('x') CHARACTER SET latin1, c TEXT CHARACTER SET latin1,
      d DECIMAL(5,2) UNSIGNED, f BINARY(3), j JSON, g POINT, v VECTOR(2), bi BIT(3), s SET('q'), h VARCHAR(5) COLLATE utf8mb4_bin,
      k TINYINT, i INT INVISIBLE, ch CHAR(3), PRIMARY KEY (h, a));
    CREATE TABLE prefixed (a INT, b TEXT, c VARCHAR(20), d VARBINARY(9), PRIMARY KEY (c, b(7), d(4)));
    CREATE TABLE different (a VARCHAR(3) COLLATE utf8mb4_bin, b VARCHAR(3) COLLATE latin1_bin, c VARCHAR(3) COLLATE utf8mb3_bin,
      d VARBINARY(3), e ENUM('a') COLLATE utf8mb4_bin, f SET('a') COLLATE latin1_bin, g ENUM('b'));
    CREATE TABLE keyless (a BIGINT UNSIGNED, b BIGINT);
    INSERT INTO mixed (a, h) VALUES (1, 'h'); INSERT INTO prefixed VALUES (1, 'b', 'c', 'd'); INSERT INTO different VALUES ();
    INSERT INTO keyless VALUES (1, 2);";

/// The server's description of the columns: name, collation, position in the primary key, prefix length.
fn schema_of(server: &Mysqld, table: &str) -> Vec<Vec<String>> {
    server
        .client()
        .sql(&format!(
            "SELECT c.column_name, \
               COALESCE(o.id, IF(c.data_type IN ('binary', 'varbinary', 'vector'), 63, 'none')), \
               COALESCE(s.seq_in_index, 'none'), COALESCE(s.sub_part, 'none') \
             FROM information_schema.columns c \
             LEFT JOIN information_schema.collations o ON o.collation_name = c.collation_name \
             LEFT JOIN information_schema.statistics s ON s.table_schema = c.table_schema AND s.table_name = c.table_name \
               AND s.column_name = c.column_name AND s.index_name = 'PRIMARY' \
             WHERE c.table_schema = 'd' AND c.table_name = '{table}' ORDER BY c.ordinal_position"
        ))
        .unwrap()
        .0
}

#[test]
fn table_maps_agree_with_the_schema() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    let client = server.client();
    client.sql("SET GLOBAL binlog_row_metadata = FULL").unwrap();
    client.sql(TABLES).unwrap();
    let mut tables = 0;
    let (events, _) = events(&server);
    for event in events
        .iter()
        .filter(|event| event.event_type() == EventType::TableMap)
    {
        let map = TableMap::decode(event.canonical()).unwrap();
        let columns = Columns::of(&map).unwrap();
        let metadata = TableMetadata::decode(&map, &columns).unwrap();
        let table = String::from_utf8(map.table.to_vec()).unwrap();
        let schema = schema_of(&server, &table);
        assert_eq!(schema.len(), columns.len());
        assert!(metadata.is_full());
        let mut key = Vec::new();
        for (at, said) in schema.iter().enumerate() {
            let [name, collation, place, prefix] = &said[..] else {
                panic!("{said:?}");
            };
            let what = format!("{table}.{name}");
            assert_eq!(metadata.name(at).unwrap(), name.as_bytes());
            assert_eq!(
                metadata.collation(at),
                collation.parse().ok().map(CollationId),
                "{what}"
            );
            if let Ok(place) = place.parse::<usize>() {
                let prefix = prefix.parse().ok();
                key.push((place, KeyPart { column: at, prefix }));
            }
        }
        key.sort_by_key(|(place, _)| *place);
        let key: Vec<_> = key.into_iter().map(|(_, part)| part).collect();
        assert_eq!(metadata.primary_key, key, "{table}");
        tables += 1;
    }
    assert_eq!(tables, 4);
}

#[test]
fn minimal_metadata_has_collations_and_no_names() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    server.client().sql(TABLES).unwrap();
    let (events, _) = events(&server);
    let map = events
        .iter()
        .find(|event| event.event_type() == EventType::TableMap)
        .unwrap();
    let map = TableMap::decode(map.canonical()).unwrap();
    let columns = Columns::of(&map).unwrap();
    let metadata = TableMetadata::decode(&map, &columns).unwrap();
    assert_eq!(map.table, &b"mixed"[..]);
    assert!(!metadata.is_full());
    assert_eq!(metadata.name(0), None);
    assert_eq!(metadata.primary_key, []);
    assert_eq!(metadata.collation(2), Some(CollationId(255)));
    assert_eq!(metadata.collation(4), Some(CollationId(8)));
}
