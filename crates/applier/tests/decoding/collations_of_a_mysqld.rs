//! Compares folds with the collations of a real server: values that the server considers equal must have
//! equal folds.

use std::collections::HashMap;

use applier::keys::Fold;
use binlog_format::row_image::{CollationId, ColumnType};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::Mysqld;

const COLLATIONS: [&str; 17] = [
    "utf8mb4_0900_ai_ci",
    "utf8mb4_0900_as_cs",
    "utf8mb4_0900_as_ci",
    "utf8mb4_general_ci",
    "utf8mb4_unicode_ci",
    "utf8mb4_unicode_520_ci",
    "utf8mb3_general_ci",
    "latin1_swedish_ci",
    "latin1_general_ci",
    "latin1_general_cs",
    "ascii_general_ci",
    "utf8mb4_bin",
    "utf8mb4_0900_bin",
    "utf8mb3_bin",
    "latin1_bin",
    "ascii_bin",
    "sjis_bin",
];

fn fold(fold: Fold, text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    fold.append(text, None, &mut out).then_some(out)
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn printable_ascii_that_a_known_collation_takes_for_equal_has_equal_folds() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    let client = server.client();
    client
        .sql(
            "CREATE DATABASE d; USE d; CREATE TABLE texts (t VARBINARY(2) PRIMARY KEY); \
             INSERT INTO texts WITH RECURSIVE n AS (SELECT 32 AS c UNION ALL SELECT c + 1 FROM n WHERE c < 126) \
               SELECT CHAR(c) FROM n UNION ALL SELECT CONCAT(CHAR(a.c), CHAR(b.c)) FROM n a, n b UNION ALL SELECT '';",
        )
        .unwrap();
    for collation in COLLATIONS {
        let charset = collation.split('_').next().unwrap();
        let own = Fold::of_column("varchar", Some(collation));
        assert_ne!(own, Fold::Opaque, "{collation}");
        // Padded to three characters, as the server compares if the collation pads. For other collations
        // this makes more texts equal.
        let rows = client
            .sql(&format!(
                "SELECT HEX(t), HEX(WEIGHT_STRING(CONVERT(t USING {charset}) COLLATE {collation} AS CHAR(3))) FROM d.texts"
            ))
            .unwrap();
        assert_eq!(rows.0.len(), 1 + 95 + 95 * 95);
        let mut folds: HashMap<String, Vec<u8>> = HashMap::new();
        for row in &rows.0 {
            let text = unhex(&row[0]);
            let folded = fold(own, &text).unwrap_or_else(|| panic!("{collation}: {}", row[0]));
            let first = folds
                .entry(row[1].clone())
                .or_insert_with(|| folded.clone());
            assert_eq!(*first, folded, "{collation}: {}", text.escape_ascii());
        }
        // The folds must not all be the same.
        assert!(folds.len() > 4000, "{collation}: {}", folds.len());
    }
}

#[test]
fn text_beyond_ascii_that_equals_ascii_cannot_be_told() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    let client = server.client();
    for (collation, text, equal) in [
        ("utf8mb4_0900_ai_ci", "é", "e"),
        ("utf8mb4_0900_ai_ci", "ß", "ss"),
        ("utf8mb4_0900_ai_ci", "ａ", "a"),
        ("utf8mb4_0900_as_ci", "ﬁ", "fi"),
        ("utf8mb4_general_ci", "ß", "s"),
        ("utf8mb4_unicode_ci", "Å", "a"),
        ("latin1_swedish_ci", "ü", "y"),
        ("utf8mb4_0900_ai_ci", "a\u{ad}", "a"),
        ("utf8mb4_0900_ai_ci", "a\u{1}", "a"),
    ] {
        let charset = collation.split('_').next().unwrap();
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let is_equal = client
            .value(&format!(
                "SELECT CONVERT(CONVERT(X'{hex}' USING utf8mb4) USING {charset}) = _ascii'{equal}' COLLATE {collation}"
            ))
            .or_else(|_| {
                client.value(&format!(
                    "SELECT CONVERT(CONVERT(X'{hex}' USING utf8mb4) USING {charset}) = CONVERT('{equal}' USING {charset}) COLLATE {collation}"
                ))
            });
        assert_eq!(is_equal.unwrap(), "1", "{collation}: {text} and {equal}");
        assert_eq!(
            fold(Fold::of_column("varchar", Some(collation)), text.as_bytes()),
            None,
            "{text}"
        );
    }
}

#[test]
fn numbers_of_collations_mean_what_their_names_mean() {
    let tree = MysqlTree::require();
    let server = Mysqld::launch(&tree).unwrap();
    let rows = server
        .client()
        .sql("SELECT id, collation_name FROM information_schema.collations")
        .unwrap();
    let mut known = 0;
    for row in &rows.0 {
        let by_name = Fold::of_column("varchar", Some(&row[1]));
        let id = CollationId(row[0].parse().unwrap());
        let by_number = Fold::of_logged(ColumnType::VarChar { max_bytes: 9 }, Some(id));
        // Fewer collations are recognised by number than by name.
        if by_number != Fold::Opaque || by_name == Fold::AsciiCase {
            assert_eq!(by_number, by_name, "{}", row[1]);
            known += 1;
        }
    }
    assert_eq!(known, 11 + 6);
}
