//! A configuration key (name, accepted values, default and meaning), its typed value with its place, and the macro that declares a
//! section. The macro generates the section's struct and its table of keys. The parser, flags, environment variables, example and
//! documentation derive from these tables.

use std::fmt::Display;
use std::ops::Deref;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::config::problem::{Place, Problems};
use crate::config::value::{Kind, Mistake, Node, decode, parse_value};

/// One key of the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key {
    /// Dotted name, as in `raft.heartbeat`.
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    /// The default as TOML, if no source gives a value. `None`: the configuration is invalid without a value.
    pub(crate) default: Option<&'static str>,
    /// The TOML value in the example configuration. If it is empty, the example shows the default in a comment.
    pub(crate) example: &'static str,
    /// The meaning of the key, for the documentation.
    pub(crate) meaning: &'static str,
    /// True for a secret: such a key has no flag, which a process list would show, and is never printed.
    pub(crate) secret: bool,
    /// True if a reload applies a new value to a running member. All other keys need a restart.
    pub(crate) reloaded: bool,
    /// True if the example configuration sets the key although it has a default: a database member with peers on other hosts needs it.
    pub(crate) shown: bool,
}

impl Key {
    /// A key without attributes, from which `section!` builds each key.
    pub(crate) const PLAIN: Self = Self {
        path: "",
        kind: Kind::Text,
        default: None,
        example: "",
        meaning: "",
        secret: false,
        reloaded: false,
        shown: false,
    };

    /// Returns the meaning of the key, and whether a reload applies a new value.
    pub(crate) fn explanation(&self) -> String {
        match self.reloaded {
            true => format!("{} Taken by a reload.", self.meaning),
            false => self.meaning.to_owned(),
        }
    }

    /// Returns the name of the key's section; empty for a top-level key.
    pub(crate) fn section(&self) -> &'static str {
        let parts = self.path.rsplit_once('.');
        parts.map_or("", |(section, _)| section)
    }

    /// Returns the name of the key inside its section.
    pub(crate) fn name(&self) -> &'static str {
        let parts = self.path.rsplit_once('.');
        parts.map_or(self.path, |(_, name)| name)
    }
}

/// One section of the configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section {
    /// The name of the section with a dot; empty for the keys at the top level.
    pub(crate) prefix: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) keys: &'static [Key],
}

impl Section {
    /// Returns the name of the section; empty for the keys at the top level.
    pub(crate) fn name(&self) -> &'static str {
        self.prefix.trim_end_matches('.')
    }
}

/// Returns the environment variable of a key with this dotted name.
pub(crate) fn variable_of(path: &str) -> String {
    format!("WITNESS_{}", path.replace('.', "_").to_uppercase())
}

/// Returns the flag of a key with this dotted name, without its leading dashes.
pub(crate) fn flag_of(path: &str) -> String {
    path.replace(['.', '_'], "-")
}

/// The value of a key. A missing or wrong value has already been reported as a problem. Rules skip such a key, and the type's default
/// replaces its value here.
pub(crate) struct Setting<T> {
    key: &'static Key,
    value: T,
    usable: bool,
    /// True if a source gives the value.
    pub(crate) given_by_source: bool,
    /// Where to report a problem with this key: at its value; if no source gives a value, at `set`.
    pub(crate) at: Place,
    /// The file as a whole, or the member's entry.
    pub(crate) set: Place,
}

impl<T> Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Default + PartialEq + Serialize> Setting<T> {
    /// The dotted name of the key.
    pub(crate) fn path(&self) -> &'static str {
        self.key.path
    }

    /// Returns the value; `None` if it is missing or wrong.
    pub(crate) fn usable(&self) -> Option<&T> {
        self.usable.then_some(&self.value)
    }

    /// Returns the value; `None` if it is empty, zero, missing or wrong.
    pub(crate) fn given(&self) -> Option<&T> {
        Some(&self.value).filter(|value| **value != T::default())
    }

    /// Returns true for an empty value or zero, and false for a missing or wrong value.
    pub(crate) fn is_empty(&self) -> bool {
        self.usable && self.given().is_none()
    }

    /// Reports a mistake in this value.
    pub(crate) fn error(&self, to: &mut Problems, what: impl Display, advice: impl Display) {
        to.error(&self.at, self.key.path, what, advice);
    }

    /// Reports a value that the operator probably did not intend.
    pub(crate) fn warning(&self, to: &mut Problems, what: impl Display, advice: impl Display) {
        to.warning(&self.at, self.key.path, what, advice);
    }

    /// Returns the dotted name if the value differs in the newer configuration and only a restart applies it.
    pub(crate) fn restarts(&self, newer: &Self) -> Option<&'static str> {
        (!self.key.reloaded && self.value != newer.value).then_some(self.key.path)
    }

    /// Returns this setting without its type.
    pub(crate) fn entry(&self) -> Entry<'_> {
        let json = json!(self.value);
        Entry {
            key: self.key,
            at: &self.at,
            text: json.as_str().unwrap_or_default().to_owned(),
        }
    }
}

impl Setting<String> {
    /// Returns the value as the path of a file or directory; `None` if it is empty.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.given().map(PathBuf::from)
    }
}

/// Reports a certificate without its key, and a key without its certificate.
pub(crate) fn check_pair(
    certificate: &Setting<String>,
    key: &Setting<String>,
    problems: &mut Problems,
) {
    for (one, other) in [(certificate, key), (key, certificate)] {
        if one.given().is_some() && other.is_empty() {
            problems.error(
                &one.at,
                other.path(),
                format!("`{}` is given, but `{}` is not", one.path(), other.path()),
                "a certificate needs its key and a key its certificate",
            );
        }
    }
}

/// A setting without its type.
pub(crate) struct Entry<'a> {
    pub(crate) key: &'static Key,
    pub(crate) at: &'a Place,
    /// The value as text; empty if the value is of another type.
    pub(crate) text: String,
}

/// The values that the sources give for one set of keys: the keys of one member's entry, or all other keys.
#[derive(Debug, Default)]
pub(crate) struct Given<'a> {
    /// The file as a whole, or the member's entry.
    pub(crate) place: Place,
    pub(crate) sections: Vec<(String, Place)>,
    /// The given values; for a key with several values, the last one is used.
    pub(crate) values: Vec<(&'static Key, Node<'a>)>,
}

impl Given<'_> {
    /// Returns the value of a key, and reports a missing or wrong value.
    pub(crate) fn read<T: Default + DeserializeOwned>(
        &self,
        key: &'static Key,
        problems: &mut Problems,
    ) -> Setting<T> {
        let mut given = self.values.iter().rev();
        let given = given.find(|(known, _)| known.path == key.path);
        let given = given.map(|(_, node)| node.clone());
        let given_by_source = given.is_some();
        let default = || {
            Some(Node {
                place: Place::Default,
                value: parse_value(key.default?)?,
            })
        };
        let (at, value) = match given.or_else(default) {
            None => {
                let mut sections = self.sections.iter();
                let section = sections.find(|(name, _)| name == key.section());
                let at = section.map_or(&self.place, |(_, place)| place).clone();
                let advice = format!("add a line `{} = …`. {}", key.name(), key.meaning);
                let message = format!("`{}` is missing", key.path);
                problems.error(&at, key.path, message, advice);
                (at, None)
            }
            Some(node) => {
                let of_type = |_| Mistake::new("the value is out of bounds", "write a smaller one");
                let read = decode(key.kind, &node.value);
                let read = read.and_then(|value| serde_json::from_value(value).map_err(of_type));
                let value = match read {
                    Ok(value) => Some(value),
                    Err(mistake) => {
                        let shown = match key.secret {
                            true => "the value is not usable",
                            false => mistake.message.as_str(),
                        };
                        let message = format!("`{}`: {shown}", key.path);
                        problems.error(&node.place, key.path, message, mistake.advice);
                        None
                    }
                };
                let at = match node.place {
                    Place::Default => self.place.clone(),
                    place => place,
                };
                (at, value)
            }
        };
        Setting {
            key,
            usable: value.is_some(),
            value: value.unwrap_or_default(),
            given_by_source,
            at,
            set: self.place.clone(),
        }
    }
}

/// Declares a section: a struct with a [`Setting`] for every key, and the table of its keys. A key is a line
/// `name: type = kind, default, example`, followed by its attributes `secret`, `reloaded` and `shown` (see [`Key`]). The doc comment above
/// a key is its meaning in the documentation.
macro_rules! section {
    (
        $(#[$doc:meta])*
        $name:ident, $prefix:literal, $about:literal;
        $(
            $(#[doc = $meaning:literal])+
            $field:ident: $type:ty = $kind:expr, $default:expr, $example:literal $(, $attribute:ident)*;
        )*
    ) => {
        $(#[$doc])*
        pub(crate) struct $name {
            $(pub(crate) $field: $crate::config::key::Setting<$type>,)*
        }

        impl $name {
            const KEYS: &'static [$crate::config::key::Key; [$(stringify!($field)),*].len()] = &[$(
                $crate::config::key::Key {
                    path: concat!($prefix, stringify!($field)),
                    kind: $kind,
                    default: $default,
                    example: $example,
                    // Each line of a doc comment begins with a space, which stays between two lines and is removed from the first.
                    meaning: concat!($($meaning),+).trim_ascii_start(),
                    $($attribute: true,)*
                    ..$crate::config::key::Key::PLAIN
                },
            )*];

            pub(crate) const SECTION: $crate::config::key::Section = $crate::config::key::Section {
                prefix: $prefix,
                meaning: $about,
                keys: Self::KEYS,
            };

            pub(crate) fn read(
                given: &$crate::config::key::Given<'_>,
                problems: &mut $crate::config::problem::Problems,
            ) -> Self {
                let [$($field),*] = Self::KEYS;
                Self { $($field: given.read($field, problems),)* }
            }

            pub(crate) fn entries(&self) -> Vec<$crate::config::key::Entry<'_>> {
                vec![$(self.$field.entry(),)*]
            }

            pub(crate) fn restarts(&self, newer: &Self) -> Vec<&'static str> {
                [$(self.$field.restarts(&newer.$field),)*].into_iter().flatten().collect()
            }
        }
    };
}
pub(crate) use section;
