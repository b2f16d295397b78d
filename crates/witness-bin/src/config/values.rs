//! Every key's value after it was checked on its own: right kind, within bounds, not missing. What
//! keys mean together is for [`super::rules`]; a key whose value is wrong has none here, so that a
//! rule about it stays silent.

use std::collections::BTreeMap;
use std::time::Duration;

use uuid::Uuid;

use super::document::Node;
use super::key::{Fallback, Key};
use super::keys::{KEYS, MEMBER_KEYS, MEMBERS};
use super::layers::{Layers, default_of};
use super::problem::{Place, Problems};
use super::typed::{Typed, decode};

/// The values of one set of keys: those that stand once, or those of one member.
#[derive(Debug)]
pub(crate) struct Values {
    /// Where the set stands.
    pub(crate) place: Place,
    known: BTreeMap<&'static str, (Option<Typed>, Place)>,
}

macro_rules! getter {
    ($(#[$doc:meta])* $name:ident, $variant:ident, $type:ty) => {
        $(#[$doc])*
        pub(crate) fn $name(&self, path: &str) -> Option<$type> {
            match self.known.get(path) {
                Some((Some(Typed::$variant(value)), _)) => Some(value.clone()),
                _ => None,
            }
        }
    };
}

impl Values {
    getter! {
        /// The text of a key.
        text, Text, String
    }
    getter! {
        /// The number of a key.
        number, Number, u64
    }
    getter! {
        /// Yes or no.
        bool, Bool, bool
    }
    getter! {
        /// The duration of a key.
        duration, Duration, Duration
    }
    getter! {
        /// The list of a key.
        list, List, Vec<String>
    }
    getter! {
        /// The UUID of a key; the inner `None` is an empty one.
        uuid, Uuid, Option<Uuid>
    }

    /// Where the value of a key came from.
    pub(crate) fn place_of(&self, path: &str) -> &Place {
        self.known.get(path).map_or(&self.place, |(_, place)| place)
    }

    /// Where to report something about a key: its value, or the set when nobody gave it.
    pub(crate) fn report_at(&self, path: &str) -> &Place {
        match self.place_of(path) {
            Place::Default => &self.place,
            place => place,
        }
    }

    fn take(
        &mut self,
        key: &'static Key,
        node: Option<Node>,
        missing: Place,
        problems: &mut Problems,
    ) {
        let Some(node) = node else {
            let advice = format!("add a line `{} = …`. {}", key.name(), key.meaning);
            problems.error(
                &missing,
                key.path,
                format!("`{}` is missing", key.path),
                advice,
            );
            self.known.insert(key.path, (None, missing));
            return;
        };
        let value = match decode(key.kind, &node) {
            Ok(value) => Some(value),
            Err(mistake) => {
                let shown = if key.secret {
                    "the value is not usable"
                } else {
                    &mistake.message
                };
                problems.error(
                    &node.place,
                    key.path,
                    format!("`{}`: {shown}", key.path),
                    mistake.advice,
                );
                None
            }
        };
        self.known.insert(key.path, (value, node.place));
    }
}

/// Every key's value, checked on its own.
pub(crate) fn check(layers: &Layers, problems: &mut Problems) -> (Values, Vec<Values>) {
    let whole = layers.whole.clone().unwrap_or(Place::Default);
    let mut values = Values {
        place: whole.clone(),
        known: BTreeMap::new(),
    };
    for key in KEYS {
        values.take(key, layers.value(key), layers.missing_from(key), problems);
    }
    let mut members = Vec::new();
    for layer in &layers.members {
        let mut member = Values {
            place: layer.place.clone(),
            known: BTreeMap::new(),
        };
        for key in MEMBER_KEYS {
            let given = layer
                .values
                .iter()
                .find(|(known, _)| known.path == key.path);
            let node = given
                .map(|(_, node)| node.clone())
                .or_else(|| default_of(key));
            member.take(key, node, layer.place.clone(), problems);
        }
        members.push(member);
    }
    if layers.members.is_empty() {
        let place = layers.members_place.clone().unwrap_or(whole);
        problems.error(
            &place,
            MEMBERS,
            "no member is listed",
            "add a [[members]] entry for every member of the ring, this one included",
        );
    }
    (values, members)
}

/// The default of a key as the documentation shows it; `None` when it must be given.
pub(crate) fn default_text(key: &Key) -> Option<&'static str> {
    match key.fallback {
        Fallback::Required => None,
        Fallback::Value(text) => Some(text),
    }
}
