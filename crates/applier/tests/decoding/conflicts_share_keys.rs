//! If two writes conflict by the meaning of the schema, they must have a key in common, which at least one of them uses
//! exclusively.

use std::collections::BTreeSet;

use applier::keys::{Access, Fold};
use applier::schema::TableShape;
use proptest::prelude::*;

use crate::images::{Cell, Write, keys};
use crate::shapes::{key, name, parent, table};

/// Column 0 is the primary key, and (1, 2) is a unique key. Column 3 refers to the parent's column 0, column 1 to the
/// parent's column 2.
fn child() -> TableShape {
    let columns = [
        ("id", Fold::AsciiCase),
        ("a", Fold::AsciiCase),
        ("b", Fold::Trimmed),
        ("p", Fold::AsciiCase),
    ];
    TableShape {
        primary_key: Some(key(&[0])),
        unique_keys: vec![key(&[1, 2])],
        parents: vec![
            parent(&[3], "parent", &["id"]),
            parent(&[1], "parent", &["c"]),
        ],
        ..table("child", &columns)
    }
}

fn parent_table() -> TableShape {
    let columns = [
        ("id", Fold::AsciiCase),
        ("x", Fold::Opaque),
        ("c", Fold::AsciiCase),
        ("y", Fold::Bytes),
    ];
    TableShape {
        primary_key: Some(key(&[0])),
        unique_keys: vec![key(&[2])],
        children: vec![name("child")],
        ..table("parent", &columns)
    }
}

/// Few values; some of them are equal in a usual collation.
fn cell() -> impl Strategy<Value = Cell> {
    prop_oneof![
        1 => Just(Cell::Null),
        8 => prop::sample::select(vec!["a", "A", "a ", "b", "e", "é", "E\u{301}", ""])
            .prop_map(|text| Cell::Text(text.as_bytes().to_vec())),
    ]
}

fn row() -> impl Strategy<Value = Vec<Cell>> {
    let not_null = cell().prop_filter("a primary key", |cell| *cell != Cell::Null);
    (not_null, proptest::collection::vec(cell(), 3))
        .prop_map(|(first, rest)| [vec![first], rest].concat())
}

/// A write with complete images, and the same write with the images that the log may contain.
fn write() -> impl Strategy<Value = (Write, Write)> {
    (
        row(),
        row(),
        0..3_u8,
        any::<bool>(),
        proptest::collection::vec(any::<bool>(), 4),
    )
        .prop_map(|(before, after, kind, minimal, changed)| {
            let after: Vec<Cell> = match kind {
                // An update changes some columns.
                1 => (0..4)
                    .map(|at| {
                        if changed[at] {
                            after[at].clone()
                        } else {
                            before[at].clone()
                        }
                    })
                    .collect(),
                _ => after,
            };
            let whole = Write {
                before: (kind != 0).then(|| before.clone()),
                after: (kind != 2).then(|| after.clone()),
            };
            if !minimal {
                return (whole.clone(), whole);
            }
            let only = |row: &[Cell], keep: &dyn Fn(usize) -> bool| -> Vec<Cell> {
                let cell = |at: usize| {
                    if keep(at) {
                        row[at].clone()
                    } else {
                        Cell::Absent
                    }
                };
                (0..4).map(cell).collect()
            };
            let logged = match kind {
                0 => Write {
                    before: None,
                    // Columns without a value in the statement are missing; they have their default, NULL.
                    after: Some(only(&after, &|at| after[at] != Cell::Null)),
                },
                1 => Write {
                    before: Some(only(&before, &|at| at == 0)),
                    after: Some(only(&after, &|at| changed[at])),
                },
                _ => Write {
                    before: Some(only(&before, &|at| at == 0)),
                    after: None,
                },
            };
            (whole, logged)
        })
}

/// Returns what the database compares: texts without accents, case and trailing spaces; column 2 of the child is binary.
/// `None` if a value is NULL.
fn weight(cells: &[&Cell], is_binary: &[bool]) -> Option<Vec<String>> {
    let weight = |(cell, is_binary): (&&Cell, &bool)| match cell {
        Cell::Text(text) => {
            let text = String::from_utf8(text.clone()).unwrap();
            let text = match is_binary {
                true => text,
                false => text.to_lowercase().replace('\u{301}', "").replace('é', "e"),
            };
            Some(text.trim_end().to_owned())
        }
        _ => None,
    };
    cells.iter().zip(is_binary).map(weight).collect()
}

/// The values that a write takes, and the values to which it refers, as (key's name, value).
type Uses = BTreeSet<(&'static str, Vec<String>)>;

fn uses(write: &Write, is_child: bool) -> (Uses, Uses) {
    let (mut taken, mut referred) = (Uses::new(), Uses::new());
    let is_update = write.before.is_some() && write.after.is_some();
    for row in write.before.iter().chain(&write.after) {
        let put = |uses: &mut Uses, key, cells: &[&Cell]| {
            uses.extend(weight(cells, &[false, true]).map(|value| (key, value)));
        };
        if is_child {
            put(&mut taken, "child.id", &[&row[0]]);
            put(&mut taken, "child.ab", &[&row[1], &row[2]]);
            put(&mut referred, "parent.id", &[&row[3]]);
            put(&mut referred, "parent.c", &[&row[1]]);
        } else {
            put(&mut taken, "parent.id", &[&row[0]]);
            put(&mut taken, "parent.c", &[&row[2]]);
        }
    }
    if is_update {
        // An unchanged value is neither taken nor released. The primary key is an exception, because it identifies the
        // row.
        let (Some(before), Some(after)) = (&write.before, &write.after) else {
            return (taken, referred);
        };
        for (key, columns) in [("child.ab", &[1, 2][..]), ("parent.c", &[2])] {
            let stays = columns.iter().all(|at| before[*at] == after[*at]);
            taken.retain(|(taken, _)| !(stays && *taken == key));
        }
        for (key, column) in [("parent.id", 3), ("parent.c", 1)] {
            referred.retain(|(referred, _)| !(before[column] == after[column] && *referred == key));
        }
    }
    (taken, referred)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn writes_that_conflict_have_a_key_in_common(
        one in write(),
        other in write(),
        one_is_child in any::<bool>(),
        other_is_child in any::<bool>(),
    ) {
        let (one_takes, one_refers) = uses(&one.0, one_is_child);
        let (other_takes, other_refers) = uses(&other.0, other_is_child);
        let conflict = !one_takes.is_disjoint(&other_takes)
            || !one_takes.is_disjoint(&other_refers)
            || !other_takes.is_disjoint(&one_refers);
        let keys_of = |write: &Write, is_child| {
            keys(&if is_child { child() } else { parent_table() }, write)
        };
        let one_keys = keys_of(&one.1, one_is_child);
        let other_keys = keys_of(&other.1, other_is_child);
        let meet = one_keys.iter().any(|first| other_keys.iter().any(|second| {
            first.key == second.key && first.access.max(second.access) == Access::Exclusive
        }));
        prop_assert!(meet || !conflict, "{:?} and {:?}: {:?} and {:?}", one, other, one_keys, other_keys);
        for keys in [&one_keys, &other_keys] {
            let distinct: BTreeSet<_> = keys.iter().map(|key| key.key).collect();
            prop_assert_eq!(distinct.len(), keys.len());
        }
    }
}
