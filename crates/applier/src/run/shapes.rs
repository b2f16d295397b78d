//! The known shapes of the target's tables.
//!
//! A shape is valid from the moment of the query until a barrier changes its table; nothing is decoded in
//! between (the reader waits until a barrier is committed). After a change, shapes of the named tables are
//! forgotten, and those that depend on them: a shape contains the tables its foreign keys refer to, those that refer to it, and
//! those its cascades reach, however far. A new or dropped foreign key connects two tables. The statement names both, or it
//! names the child, on which the shapes of the parent and of all tables whose cascades reached the child depend. A new key extends
//! cascades only for tables whose cascades reach its parent, which is named. So no outdated shape stays. The
//! other children of a new key's parent, and its own parents, are unchanged.

use std::collections::HashMap;
use std::sync::Arc;

use crate::schema::{TableName, TableShape};
use crate::transaction::{Changed, SchemaChange};

/// Limit of tables per query, where some are currently missing: the cost is mostly per
/// query, not per table.
const MOST_AT_ONCE: usize = 64;

/// The shapes that are known, by table.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    known: HashMap<TableName, Arc<TableShape>>,
    /// Forgotten, and not asked for since: likely to be wanted again.
    forgotten: Vec<TableName>,
}

impl Shapes {
    /// A table's shape, if known.
    pub(super) fn get(&self, name: &TableName) -> Option<Arc<TableShape>> {
        self.known.get(name).cloned()
    }

    /// The tables to query when these are wanted: none if all are known; else the unknown ones, and with them some that
    /// were forgotten.
    pub(super) fn missing<'a>(
        &self,
        wanted: impl Iterator<Item = &'a TableName>,
    ) -> Vec<TableName> {
        let mut missing: Vec<TableName> = Vec::new();
        for name in wanted.filter(|name| !self.known.contains_key(name)) {
            if !missing.contains(name) {
                missing.push(name.clone());
            }
        }
        if missing.is_empty() {
            return missing;
        }
        for name in &self.forgotten {
            if missing.len() >= MOST_AT_ONCE {
                break;
            }
            if !missing.contains(name) {
                missing.push(name.clone());
            }
        }
        missing
    }

    /// Adds the target's answer for a table.
    pub(super) fn put(&mut self, name: TableName, shape: Option<TableShape>) {
        self.forgotten.retain(|forgotten| *forgotten != name);
        if let Some(shape) = shape {
            self.known.insert(name, Arc::new(shape));
        }
    }

    /// Applies a change of tables.
    pub(super) fn forget(&mut self, change: &SchemaChange) {
        // Any: `None`.
        let changed = match change {
            SchemaChange::Nothing => return,
            SchemaChange::Anything => None,
            SchemaChange::Tables(changed) => Some(changed),
        };
        let is_gone = |name: &TableName, shape: &TableShape| {
            changed.is_none_or(|changed| {
                changed.iter().any(|changed| {
                    let mut reached = std::iter::once(name).chain(&shape.cascades_to);
                    let parents = shape.parents.iter().map(|parent| &parent.table);
                    let mut tied = parents.chain(&shape.children);
                    reached.any(|name| changed.names(name))
                        || !matches!(changed, Changed::Referred(_))
                            && tied.any(|name| changed.names(name))
                })
            })
        };
        let forgotten = &mut self.forgotten;
        self.known.retain(|name, shape| {
            let gone = is_gone(name, shape);
            if gone {
                forgotten.push(name.clone());
            }
            !gone
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ParentShape;

    fn name(table: &str) -> TableName {
        TableName::new("d", table)
    }

    /// `grandparent <- parent <- child`, with cascades; `beside` is unrelated to them.
    fn family() -> Shapes {
        let shape =
            |table: &str, parents: &[&str], children: &[&str], cascades: &[&str]| TableShape {
                parents: parents
                    .iter()
                    .map(|parent| ParentShape {
                        columns: Vec::new(),
                        table: name(parent),
                        referenced: Vec::new(),
                    })
                    .collect(),
                children: children.iter().map(|child| name(child)).collect(),
                cascades_to: cascades.iter().map(|child| name(child)).collect(),
                ..TableShape::new(name(table), Vec::new())
            };
        let mut shapes = Shapes::default();
        for shape in [
            shape("grandparent", &[], &["parent"], &["parent", "child"]),
            shape("parent", &["grandparent"], &["child"], &["child"]),
            shape("child", &["parent"], &[], &[]),
            shape("beside", &[], &[], &[]),
        ] {
            shapes.put(shape.name.clone(), Some(shape));
        }
        shapes
    }

    fn kept_behind(change: &SchemaChange) -> String {
        let mut shapes = family();
        shapes.forget(change);
        let mut kept: Vec<&str> = shapes.known.keys().map(|name| &*name.table).collect();
        kept.sort_unstable();
        kept.join(" ")
    }

    #[test]
    fn what_a_change_does_not_touch_is_not_forgotten() {
        let tables = |names: &[&str]| {
            let changed = names.iter().map(|table| Changed::Table(name(table)));
            SchemaChange::Tables(changed.collect())
        };
        let new_child_of = |parent: &str| {
            let child = Changed::Table(name("new"));
            SchemaChange::Tables(vec![child, Changed::Referred(name(parent))])
        };
        for (change, kept) in [
            (SchemaChange::Nothing, "beside child grandparent parent"),
            (SchemaChange::Anything, ""),
            (tables(&["new"]), "beside child grandparent parent"),
            (tables(&["beside"]), "child grandparent parent"),
            // Its parent, and all tables whose cascades reach it.
            (tables(&["child"]), "beside"),
            (tables(&["PARENT"]), "beside"),
            // The child's shape does not depend on its parent's parent.
            (tables(&["grandparent"]), "beside child"),
            // A new child of the child: cascades extend further from all of them.
            (tables(&["new", "child"]), "beside"),
            (new_child_of("child"), "beside"),
            // The shapes of the parent's children do not depend on each other.
            (new_child_of("GRANDPARENT"), "beside child parent"),
            (
                SchemaChange::Tables(vec![Changed::Table(TableName::new("e", "child"))]),
                "beside child grandparent parent",
            ),
            (
                SchemaChange::Tables(vec![Changed::Schema("e".into())]),
                "beside child grandparent parent",
            ),
            (SchemaChange::Tables(vec![Changed::Schema("D".into())]), ""),
        ] {
            assert_eq!(kept_behind(&change), kept, "{change:?}");
        }
    }

    #[test]
    fn what_was_forgotten_is_asked_for_with_the_first_that_is_missing() {
        let mut shapes = family();
        assert!(shapes.missing([&name("child")].into_iter()).is_empty());
        shapes.forget(&SchemaChange::Tables(vec![Changed::Table(name("child"))]));
        assert!(shapes.missing([&name("beside")].into_iter()).is_empty());
        let mut missing = shapes.missing([&name("child"), &name("child")].into_iter());
        assert_eq!(missing[0], name("child"));
        missing.sort();
        assert_eq!(
            missing,
            [name("child"), name("grandparent"), name("parent")]
        );
        // The target no longer has it: it is not queried again without need.
        for name in missing {
            shapes.put(name, None);
        }
        assert_eq!(
            shapes.missing([&name("parent")].into_iter()),
            [name("parent")]
        );
    }
}
