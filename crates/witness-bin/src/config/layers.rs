//! Merges the three sources of a configuration over the built-in defaults: the file, the environment and the
//! flags, in rising precedence. Reports unknown keys.

use crate::config::key::{Given, Key, Section, flag_of, variable_of};
use crate::config::problem::{Place, Problems, listed, nearest};
use crate::config::sections::ring::MemberKeys;
use crate::config::sections::{MEMBERS, SECTIONS, keys};
use crate::config::value::{Field, Node, Raw, parse, parse_value, unquoted};

/// Environment variables for the program, which are not keys.
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
    /// Whether a variable or a flag sets a key.
    pub(crate) fn say_something(&self) -> bool {
        !self.flags.is_empty() || self.variables().next().is_some()
    }

    /// The variables that may be keys.
    fn variables(&self) -> impl Iterator<Item = &(String, String)> {
        let named = |name: &str| name.starts_with("WITNESS_") && !OTHER_VARIABLES.contains(&name);
        self.environment.iter().filter(move |(name, _)| named(name))
    }
}

/// The raw values of all sources.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub(crate) whole: Given,
    pub(crate) members: Vec<Given>,
    pub(crate) members_place: Option<Place>,
}

/// Merges the sources; reports unknown keys.
pub(crate) fn lay(sources: &Sources, problems: &mut Problems) -> Layers {
    let mut layers = Layers::default();
    if let Some((name, text)) = &sources.file {
        layers.whole.place = Place::of_file(name);
        for field in parse(name, text, problems) {
            layers.lay_top(field, problems);
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

impl Layers {
    fn lay_top(&mut self, field: Field, problems: &mut Problems) {
        if field.name == MEMBERS {
            self.lay_members(field.node, problems);
        } else if let Some(key) = keys().find(|key| key.path == field.name) {
            self.whole.values.push((key, field.node));
        } else if let Some(section) = SECTIONS.iter().find(|known| known.name() == field.name) {
            self.lay_section(section, field.node, problems);
        } else {
            let known = SECTIONS.iter().flat_map(|section| match section.name() {
                "" => section.keys.iter().map(|key| key.path).collect::<Vec<_>>(),
                name => vec![name],
            });
            unknown(&field, "", &known.collect::<Vec<_>>(), problems);
        }
    }

    fn lay_section(&mut self, section: &Section, node: Node, problems: &mut Problems) {
        let name = section.name();
        let Raw::Table(fields) = node.value else {
            problems.error(
                &node.place,
                name,
                format!("`{name}` is {}, but it is a section", node.value.describe()),
                format!("write [{name}] on a line of its own, and its keys below"),
            );
            return;
        };
        let values = known_keys(fields, section, problems);
        self.whole.values.extend(values);
        self.whole.sections.push((name.to_owned(), node.place));
    }

    fn lay_members(&mut self, node: Node, problems: &mut Problems) {
        let advice = "write [[members]] above each member's keys";
        self.members.clear();
        self.members_place = Some(node.place.clone());
        let Raw::Array(items) = node.value else {
            let message = format!("`members` is {}, but it is a list", node.value.describe());
            problems.error(&node.place, MEMBERS, message, advice);
            return;
        };
        for item in items {
            let Raw::Table(fields) = item.value else {
                let message = format!("a member is {}, but it is a section", item.value.describe());
                problems.error(&item.place, MEMBERS, message, advice);
                continue;
            };
            self.members.push(Given {
                place: item.place,
                sections: Vec::new(),
                values: known_keys(fields, &MemberKeys::SECTION, problems),
            });
        }
    }

    fn lay_variable(&mut self, variable: &str, text: &str, problems: &mut Problems) {
        let place = Place::Environment {
            variable: variable.to_owned(),
        };
        let paths = keys().map(|key| key.path).chain([MEMBERS]);
        if let Some(path) = paths.clone().find(|path| variable_of(path) == variable) {
            self.lay_text(path, &place, text, problems);
            return;
        }
        // A scheduler may set variables with the service's name as prefix, so an unknown
        // one must not prevent a start.
        let variables: Vec<_> = paths.map(variable_of).collect();
        let advice = nearest(variable, variables.iter().map(String::as_str)).map_or_else(
            || "it is not looked at".to_owned(),
            |near| format!("did you mean `{near}`?"),
        );
        problems.warning(
            &place,
            "",
            format!("no key has the variable `{variable}`"),
            advice,
        );
    }

    /// Adds a value that has no TOML quotes.
    fn lay_text(&mut self, path: &str, place: &Place, text: &str, problems: &mut Problems) {
        if path == MEMBERS {
            match parse_value(place, text) {
                Some(node) => self.lay_members(node, problems),
                None => problems.error(
                    place,
                    MEMBERS,
                    "the value is not a TOML list",
                    "write it as in [{ id = 1, name = \"a\", … }, { id = 2, … }]",
                ),
            }
        } else if let Some(key) = keys().find(|key| key.path == path) {
            let node = unquoted(key.kind, place, text);
            self.whole.values.push((key, node));
        }
    }
}

/// The values of a table by their keys; reports unknown keys.
fn known_keys(
    fields: Vec<Field>,
    section: &Section,
    problems: &mut Problems,
) -> Vec<(&'static Key, Node)> {
    let keys = section.keys;
    let mut values = Vec::new();
    for field in fields {
        match keys.iter().find(|key| key.name() == field.name) {
            Some(key) => values.push((key, field.node)),
            None => {
                let known: Vec<_> = keys.iter().map(Key::name).collect();
                unknown(&field, section.prefix, &known, problems);
            }
        }
    }
    values
}

fn unknown(field: &Field, prefix: &str, known: &[&str], problems: &mut Problems) {
    let place = match prefix.trim_end_matches('.') {
        "" => "at the top level".to_owned(),
        MEMBERS => "in [[members]]".to_owned(),
        section => format!("in [{section}]"),
    };
    // The key of the same name in another section.
    let elsewhere = || {
        let mut keys = SECTIONS.iter().flat_map(|section| section.keys);
        keys.find(|key| key.name() == field.name)
            .map(|key| key.path)
    };
    let advice = match nearest(&field.name, known.iter().copied()).or_else(elsewhere) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known here: {}", listed(known.iter().copied())),
    };
    problems.error(
        &field.place,
        &format!("{prefix}{}", field.name),
        format!("unknown key `{}` {place}", field.name),
        advice,
    );
}
