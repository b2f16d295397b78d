//! Merges the three sources of a configuration over the built-in defaults: the file, the environment and the
//! flags, in rising precedence. Reports unknown keys.

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::config::key::{Given, Key, Section, flag_of, variable_of};
use crate::config::problem::{Place, Problems, did_you_mean, listed, nearest};
use crate::config::sections::ring::MemberKeys;
use crate::config::sections::{MEMBERS, SECTIONS, keys};
use crate::config::value::{Node, describe, parse_value, unquoted};

/// Environment variables with the prefix `WITNESS_` that are not keys.
const OTHER_VARIABLES: [&str; 4] = [
    "WITNESS_CONFIG",
    "WITNESS_ENDPOINTS",
    "WITNESS_MYSQL_TREE",
    "WITNESS_QUICK_TESTS",
];

/// The raw content of the three sources.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file's name as the operator wrote it, and its text.
    pub file: Option<(String, String)>,
    /// Environment variables; those without the prefix `WITNESS_` are ignored.
    pub environment: Vec<(String, String)>,
    /// Flags of the command line: dotted key and value.
    pub flags: Vec<(String, String)>,
}

impl Sources {
    /// Returns the environment variables that may be keys: the known and the unknown ones with the prefix `WITNESS_`.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &(String, String)> {
        let named = |name: &str| name.starts_with("WITNESS_") && !OTHER_VARIABLES.contains(&name);
        self.environment.iter().filter(move |(name, _)| named(name))
    }
}

/// The values of all sources, as written.
#[derive(Debug, Default)]
pub(crate) struct Layers<'a> {
    pub(crate) whole: Given<'a>,
    pub(crate) members: Vec<Given<'a>>,
    pub(crate) members_place: Option<Place>,
}

/// Returns the place of a byte offset in the text that is being parsed.
type Locate<'l> = &'l dyn Fn(usize) -> Place;

/// Merges the sources; reports syntax errors and unknown keys.
pub(crate) fn lay<'a>(sources: &'a Sources, problems: &mut Problems) -> Layers<'a> {
    let mut layers = Layers::default();
    if let Some((name, text)) = &sources.file {
        layers.whole.place = Place::of_file(name);
        let locate = |offset| Place::at(name, text, offset);
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            let place = locate(error.span().map_or(0, |span| span.start));
            let advice = "see https://toml.io for how TOML is written";
            problems.error(&place, "", error.message().trim(), advice);
        }
        for (name, value) in table.into_inner() {
            layers.lay_top(&name, value, &locate, problems);
        }
    }
    for (variable, text) in sources.variables() {
        layers.lay_variable(variable, text, problems);
    }
    for (path, text) in &sources.flags {
        let place = Place::Flag {
            flag: format!("--{}", flag_of(path)),
        };
        layers.lay_text(path, &place, text, problems);
    }
    layers
}

impl<'a> Layers<'a> {
    fn lay_top(
        &mut self,
        name: &Spanned<DeString<'a>>,
        value: Spanned<DeValue<'a>>,
        locate: Locate<'_>,
        problems: &mut Problems,
    ) {
        let written: &str = name.get_ref();
        let node = node(value, locate);
        if written == MEMBERS {
            self.lay_members(node, locate, problems);
        } else if let Some(key) = keys().find(|key| key.path == written) {
            self.whole.values.push((key, node));
        } else if let Some(section) = SECTIONS.iter().find(|known| known.name() == written) {
            let DeValue::Table(table) = node.value else {
                problems.error(
                    &node.place,
                    written,
                    format!(
                        "`{written}` is {}, but it is a section",
                        describe(&node.value)
                    ),
                    format!("write [{written}] on a line of its own, and its keys below"),
                );
                return;
            };
            let values = known_keys(table, section, locate, problems);
            self.whole.values.extend(values);
            self.whole.sections.push((written.to_owned(), node.place));
        } else {
            let known = SECTIONS.iter().flat_map(|section| match section.name() {
                "" => section.keys.iter().map(|key| key.path).collect::<Vec<_>>(),
                name => vec![name],
            });
            unknown(name, "", &known.collect::<Vec<_>>(), locate, problems);
        }
    }

    fn lay_members(&mut self, node: Node<'a>, locate: Locate<'_>, problems: &mut Problems) {
        let advice = "write [[members]] above each member's keys";
        self.members.clear();
        self.members_place = Some(node.place.clone());
        let DeValue::Array(items) = node.value else {
            let message = format!("`members` is {}, but it is a list", describe(&node.value));
            problems.error(&node.place, MEMBERS, message, advice);
            return;
        };
        for item in items.iter() {
            let place = locate(item.span().start);
            let DeValue::Table(table) = item.get_ref() else {
                let what = describe(item.get_ref());
                let message = format!("a member is {what}, but it is a section");
                problems.error(&place, MEMBERS, message, advice);
                continue;
            };
            self.members.push(Given {
                place,
                sections: Vec::new(),
                values: known_keys(table.clone(), &MemberKeys::SECTION, locate, problems),
            });
        }
    }

    fn lay_variable(&mut self, variable: &str, text: &'a str, problems: &mut Problems) {
        let place = Place::Environment {
            variable: variable.to_owned(),
        };
        let paths = keys().map(|key| key.path).chain([MEMBERS]);
        if let Some(path) = paths.clone().find(|path| variable_of(path) == variable) {
            self.lay_text(path, &place, text, problems);
            return;
        }
        // An orchestrator may set variables with the service's name as prefix (Kubernetes does), so
        // an unknown variable must not prevent a start.
        let variables: Vec<_> = paths.map(variable_of).collect();
        let known = variables.iter().map(String::as_str);
        let advice = did_you_mean(variable, known, || "it is ignored".to_owned());
        let message = format!("no key has the variable `{variable}`");
        problems.warning(&place, "", message, advice);
    }

    /// Adds the value of an environment variable or a flag, which has no TOML quotes.
    fn lay_text(&mut self, path: &str, place: &Place, text: &'a str, problems: &mut Problems) {
        let node = |value| Node {
            place: place.clone(),
            value,
        };
        if let Some(key) = keys().find(|key| key.path == path) {
            let value = unquoted(key.kind, text);
            self.whole.values.push((key, node(value)));
        } else if let Some(value) = parse_value(text) {
            self.lay_members(node(value), &|_| place.clone(), problems);
        } else {
            problems.error(
                place,
                MEMBERS,
                "the value is not a TOML list",
                "write it as in [{ id = 1, name = \"a\", … }, { id = 2, … }]",
            );
        }
    }
}

fn node<'a>(value: Spanned<DeValue<'a>>, locate: Locate<'_>) -> Node<'a> {
    Node {
        place: locate(value.span().start),
        value: value.into_inner(),
    }
}

/// Returns the values of a table with their keys, and reports unknown keys.
fn known_keys<'a>(
    table: DeTable<'a>,
    section: &Section,
    locate: Locate<'_>,
    problems: &mut Problems,
) -> Vec<(&'static Key, Node<'a>)> {
    let keys = section.keys;
    let mut values = Vec::new();
    for (name, value) in table {
        match keys.iter().find(|key| key.name() == *name.get_ref()) {
            Some(key) => values.push((key, node(value, locate))),
            None => {
                let known: Vec<_> = keys.iter().map(Key::name).collect();
                unknown(&name, section.prefix, &known, locate, problems);
            }
        }
    }
    values
}

fn unknown(
    name: &Spanned<DeString<'_>>,
    prefix: &str,
    known: &[&str],
    locate: Locate<'_>,
    problems: &mut Problems,
) {
    let within = match prefix.trim_end_matches('.') {
        "" => "at the top level".to_owned(),
        MEMBERS => "in [[members]]".to_owned(),
        section => format!("in [{section}]"),
    };
    let place = locate(name.span().start);
    let name: &str = name.get_ref();
    // A key with the same name in another section, for the advice.
    let elsewhere = || {
        let mut keys = SECTIONS.iter().flat_map(|section| section.keys);
        keys.find(|key| key.name() == name).map(|key| key.path)
    };
    let advice = match nearest(name, known.iter().copied()).or_else(elsewhere) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known here: {}", listed(known.iter().copied())),
    };
    let message = format!("unknown key `{name}` {within}");
    problems.error(&place, &format!("{prefix}{name}"), message, advice);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_values_are_read_despite_a_syntax_error() {
        let text = "data_dir = \n[ring]\nname = \"a\"\n";
        let sources = Sources {
            file: Some(("f".to_owned(), text.to_owned())),
            ..Sources::default()
        };
        let mut problems = Problems::default();
        let layers = lay(&sources, &mut problems);
        assert_eq!(problems.error_count(), 1);
        let mut values = layers.whole.values.iter();
        let (_, name) = values.find(|(key, _)| key.path == "ring.name").unwrap();
        assert_eq!(name.place.to_string(), "f:3:8");
    }
}
