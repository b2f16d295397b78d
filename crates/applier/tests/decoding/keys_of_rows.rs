//! Tests the keys of a row write, rule by rule.

use applier::keys::{Access, Fold, KeyAccess, KeyHash, TableKeys};
use applier::schema::{KeyPart, KeyShape, TableShape};

use crate::images::{Write, keys, keys_with};
use crate::shapes::{key, name, parent, table};

use Access::{Exclusive, Shared};

/// Returns a table with a primary key (0) and a unique key (1, 2). Column 3 is in no key.
fn account() -> TableShape {
    let columns = [
        ("id", Fold::Bytes),
        ("owner", Fold::AsciiCase),
        ("kind", Fold::Bytes),
        ("note", Fold::Opaque),
    ];
    TableShape {
        primary_key: Some(key(&[0])),
        unique_keys: vec![key(&[1, 2])],
        ..table("account", &columns)
    }
}

fn access_to(keys: &[KeyAccess], table: &str) -> Option<Access> {
    let key = KeyHash::of_table(&name(table));
    keys.iter()
        .find(|taken| taken.key == key)
        .map(|taken| taken.access)
}

/// Returns the keys without the table's key.
fn values(keys: &[KeyAccess], table: &str) -> Vec<KeyAccess> {
    let key = KeyHash::of_table(&name(table));
    keys.iter()
        .copied()
        .filter(|taken| taken.key != key)
        .collect()
}

/// Whether two writes must keep their order.
fn conflict(one: &[KeyAccess], other: &[KeyAccess]) -> bool {
    one.iter().any(|first| {
        other.iter().any(|second| {
            first.key == second.key && (first.access == Exclusive || second.access == Exclusive)
        })
    })
}

#[track_caller]
fn is_serial(shape: &TableShape, write: &Write) {
    let keys = keys(shape, write);
    assert_eq!(
        access_to(&keys, &shape.name.table),
        Some(Exclusive),
        "{keys:?}"
    );
    assert_eq!(values(&keys, &shape.name.table), [], "{write:?}");
}

#[track_caller]
fn is_parallel(shape: &TableShape, write: &Write, count: usize) {
    let keys = keys(shape, write);
    assert_eq!(
        access_to(&keys, &shape.name.table),
        Some(Shared),
        "{keys:?}"
    );
    let values = values(&keys, &shape.name.table);
    assert_eq!(values.len(), count, "{write:?}: {values:?}");
    assert!(values.iter().all(|key| key.access == Exclusive));
}

#[test]
fn a_row_takes_its_table_and_the_values_of_its_keys() {
    is_parallel(&account(), &Write::insert("1 ann x note"), 2);
    is_parallel(&account(), &Write::delete("1 ann x note"), 2);
}

#[test]
fn an_update_takes_old_and_new_values_equal_ones_once() {
    let account = account();
    is_parallel(&account, &Write::update("1 ann x a", "1 ann x b"), 2);
    is_parallel(&account, &Write::update("1 ann x a", "1 ANN x a"), 2);
    is_parallel(&account, &Write::update("1 ann x a", "1 bob x a"), 3);
    is_parallel(&account, &Write::update("1 ann x a", "2 bob x a"), 4);
}

#[test]
fn a_unique_key_with_a_null_constrains_nothing() {
    is_parallel(&account(), &Write::insert("1 NULL x note"), 1);
    is_parallel(&account(), &Write::insert("1 é NULL note"), 1);
    is_parallel(&account(), &Write::update("1 ann x a", "1 ann NULL a"), 2);
}

#[test]
fn values_that_the_database_takes_for_equal_conflict_and_others_do_not() {
    let account = account();
    let of = |words| keys(&account, &Write::insert(words));
    assert!(conflict(&of("1 ann x a"), &of("2 ANN x b")));
    assert!(conflict(&of("1 ann x a"), &of("1 bob x b")));
    assert!(!conflict(&of("1 ann x a"), &of("2 ann y b")));
    // The hash separates the parts of a key: (ab, c) differs from (a, bc).
    assert!(!conflict(&of("1 ab c a"), &of("2 a bc b")));
}

#[test]
fn a_value_that_cannot_be_told_makes_the_write_serial() {
    is_serial(&account(), &Write::insert("1 é x note"));
    is_serial(&account(), &Write::update("1 ann x note", "1 ß x note"));
    // The note is in no key, so it is not compared.
    is_parallel(&account(), &Write::insert("1 ann x é"), 2);
    // If a part is opaque, all writes have the same value of it.
    let opaque = TableShape {
        unique_keys: vec![key(&[3])],
        ..account()
    };
    let of = |words| keys(&opaque, &Write::insert(words));
    assert!(conflict(&of("1 a a é"), &of("2 b b other")));
    assert!(!conflict(&of("1 a a NULL"), &of("2 b b other")));
}

#[test]
fn a_table_without_a_primary_key_or_with_a_hidden_key_is_serial() {
    let keyless = TableShape {
        primary_key: None,
        ..account()
    };
    is_serial(&keyless, &Write::insert("1 ann x note"));
    let hidden = TableShape {
        unique_keys: vec![KeyShape { parts: Vec::new() }],
        ..account()
    };
    is_serial(&hidden, &Write::update("1 ann x a", "1 ann x b"));
}

#[test]
fn partial_images_are_enough_while_the_keys_they_do_not_show_stay_as_they_are() {
    let account = account();
    // MINIMAL images of an update of the note, an update of the unique key, and a delete.
    is_parallel(&account, &Write::update("1 - - -", "- - - b"), 1);
    is_serial(&account, &Write::update("1 - - -", "- bob - -"));
    is_serial(&account, &Write::delete("1 - - -"));
    // An update of the primary key.
    is_parallel(&account, &Write::update("1 - - -", "2 - - -"), 2);
    // An insert that omits a column; its default is not in the log.
    is_serial(&account, &Write::insert("1 - x -"));
    is_parallel(&account, &Write::insert("1 - NULL -"), 1);
    // NOBLOB omits unchanged columns that are in no key.
    is_parallel(&account, &Write::update("1 ann x -", "1 bob x -"), 3);
}

#[test]
fn prefixes_count_as_far_as_they_go() {
    let prefixed = TableShape {
        primary_key: Some(KeyShape {
            parts: vec![KeyPart {
                column: 1,
                prefix: Some(2),
            }],
        }),
        unique_keys: Vec::new(),
        ..account()
    };
    let of = |words| keys(&prefixed, &Write::insert(words));
    assert!(conflict(&of("1 anna x a"), &of("2 ANders x a")));
    assert!(!conflict(&of("1 anna x a"), &of("2 arne x a")));
    is_parallel(&prefixed, &Write::insert("1 anné x a"), 1);
    is_serial(&prefixed, &Write::insert("1 éa x a"));
}

/// Returns a table whose column 1 refers to `account (id)`, and whose columns 2 and 3 refer to
/// `account (owner, kind)`.
fn order() -> TableShape {
    let columns = [
        ("id", Fold::Bytes),
        ("account", Fold::Bytes),
        ("owner", Fold::AsciiCase),
        ("kind", Fold::Bytes),
    ];
    TableShape {
        primary_key: Some(key(&[0])),
        parents: vec![
            parent(&[1], "account", &["id"]),
            parent(&[2, 3], "ACCOUNT", &["OWNER", "kind"]),
        ],
        ..table("order", &columns)
    }
}

#[test]
fn children_go_beside_each_other_and_not_beside_their_parent() {
    let (account, order) = (account(), order());
    let parent = |words| keys(&account, &Write::insert(words));
    let child = |words| keys(&order, &Write::insert(words));
    assert!(!conflict(&child("1 7 ann x"), &child("2 7 ann x")));
    assert!(conflict(&child("1 7 NULL x"), &parent("7 bob y a")));
    assert!(conflict(&child("1 NULL Ann x"), &parent("8 aNN x a")));
    assert!(!conflict(&child("1 7 ann x"), &parent("8 bob x a")));
    // Without a reference, the order does not matter.
    assert!(!conflict(&child("1 NULL NULL x"), &parent("7 NULL x a")));
    // The update also uses the previous reference.
    let moved = keys(&order, &Write::update("1 7 ann x", "1 8 ann x"));
    assert!(conflict(&moved, &parent("7 bob y a")));
    assert!(conflict(&moved, &parent("8 bob y a")));
}

#[test]
fn a_reference_that_cannot_be_told_waits_for_the_whole_parent() {
    let (account, order) = (account(), order());
    let some_parent = keys(&account, &Write::insert("7 bob y a"));
    for write in [
        Write::insert("1 - ann x"),
        Write::insert("1 7 é x"),
        Write::delete("1 - - -"),
        Write::update("1 - - -", "- 9 - -"),
    ] {
        let keys = keys(&order, &write);
        assert_eq!(access_to(&keys, "account"), Some(Exclusive), "{write:?}");
        assert!(conflict(&keys, &some_parent));
        assert_eq!(access_to(&keys, "order"), Some(Shared));
    }
    // The references are unchanged.
    let note = keys(&order, &Write::update("1 - - -", "1 - - -"));
    assert_eq!(access_to(&note, "account"), None);
    // A write of a parent with an unknown value conflicts with every child.
    let untold = keys(&account, &Write::insert("7 é y a"));
    assert!(conflict(
        &untold,
        &keys(&order, &Write::insert("1 NULL ann x"))
    ));
}

#[test]
fn a_parent_that_goes_takes_what_goes_with_it() {
    let account = TableShape {
        children: vec![name("order"), name("tag")],
        cascades_to: vec![name("order"), name("line")],
        ..account()
    };
    let uses = |write: &Write, logged| {
        let keys = keys_with(&account, write, logged);
        ["order", "tag", "line"].map(|child| access_to(&keys, child))
    };
    let gone = [Some(Exclusive), Some(Shared), Some(Exclusive)];
    assert_eq!(uses(&Write::delete("7 ann x a"), false), gone);
    assert_eq!(uses(&Write::delete("7 é x a"), false), gone);
    assert_eq!(uses(&Write::update("7 ann x a", "8 ann x a"), false), gone);
    // If the bytes change, the value counts as removed even if the database considers both values
    // equal: the cascade writes the new bytes into the children.
    assert_eq!(uses(&Write::update("7 ann x a", "7 Ann x a"), false), gone);
    assert_eq!(uses(&Write::update("7 - - -", "- bob - -"), false), gone);
    assert_eq!(uses(&Write::insert("7 ann x a"), false), [None; 3]);
    assert_eq!(
        uses(&Write::update("7 ann x a", "7 ann x b"), false),
        [None; 3]
    );
    assert_eq!(
        uses(&Write::update("7 NULL x a", "7 ann x a"), false),
        [None; 3]
    );
    // If the log contains the children's rows, the tables reached by cascades are not used as a
    // whole.
    let logged = [Some(Shared), Some(Shared), None];
    assert_eq!(uses(&Write::delete("7 ann x a"), true), logged);
}

#[test]
fn referenced_columns_that_are_no_key_count_like_one() {
    let account = TableShape {
        referenced: vec![key(&[2])],
        ..account()
    };
    let child = TableShape {
        primary_key: Some(key(&[0])),
        parents: vec![parent(&[1], "account", &["kind"])],
        ..table("child", &[("id", Fold::Bytes), ("kind", Fold::Bytes)])
    };
    let parent = keys(&account, &Write::delete("1 ann x a"));
    assert!(conflict(&parent, &keys(&child, &Write::insert("1 x"))));
    assert!(!conflict(&parent, &keys(&child, &Write::insert("1 y"))));
}

#[test]
fn rows_that_refer_to_rows_of_their_own_table_have_each_key_once() {
    let tree = TableShape {
        primary_key: Some(key(&[0])),
        parents: vec![parent(&[1], "tree", &["id"])],
        ..table("tree", &[("id", Fold::Bytes), ("up", Fold::Bytes)])
    };
    let own_parent = keys(&tree, &Write::insert("1 1"));
    assert_eq!(own_parent.len(), 2);
    assert_eq!(values(&own_parent, "tree")[0].access, Exclusive);
    assert_eq!(keys(&tree, &Write::insert("1 2")).len(), 3);
}

#[test]
fn a_key_column_that_the_log_has_not_is_named() {
    let missing = TableKeys::of(&account(), 2).unwrap_err();
    assert_eq!((missing.column.as_str(), missing.in_log), ("kind", 2));
    let missing = TableKeys::of(&order(), 3).unwrap_err();
    assert_eq!(missing.column, "kind");
    let beyond = TableShape {
        unique_keys: vec![key(&[9])],
        ..account()
    };
    assert_eq!(TableKeys::of(&beyond, 12).unwrap_err().column, "10");
    // The log may have more columns than the target's table, or fewer if the missing ones are in no
    // key.
    assert!(TableKeys::of(&account(), 12).is_ok());
    assert!(TableKeys::of(&account(), 3).is_ok());
}
