//! Merges the three sources of a configuration over the built-in defaults: the file, the environment and the
//! flags, in rising precedence. Reports unknown keys.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::key::{Fallback, Key, Kind, flag_of, variable_of};
use crate::config::keys::{KEYS, MEMBER_KEYS, MEMBERS};
use crate::config::problem::{Place, Problems, listed, nearest};

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
        let mut variables = self.environment.iter().map(|(name, _)| name.as_str());
        !self.flags.is_empty()
            || variables
                .any(|name| name.starts_with("WITNESS_") && !OTHER_VARIABLES.contains(&name))
    }
}

/// One raw value for every key in any source.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    /// The configuration as a whole: where a missing key is reported.
    pub(crate) whole: Option<Place>,
    sections: Vec<(String, Place)>,
    values: Vec<(&'static Key, Node)>,
    pub(crate) members: Vec<MemberLayer>,
    pub(crate) members_place: Option<Place>,
}

/// The raw values of one `[[members]]` entry.
#[derive(Debug)]
pub(crate) struct MemberLayer {
    pub(crate) place: Place,
    pub(crate) values: Vec<(&'static Key, Node)>,
}

impl Layers {
    /// The value of the highest source, or the default; `None` when there is neither.
    pub(crate) fn value(&self, key: &Key) -> Option<Node> {
        let given = self
            .values
            .iter()
            .rev()
            .find(|(known, _)| known.path == key.path);
        given
            .map(|(_, node)| node.clone())
            .or_else(|| default_of(key))
    }

    /// Where to report a key that no source gives.
    pub(crate) fn missing_from(&self, key: &Key) -> Place {
        let section = self.sections.iter().find(|(name, _)| name == key.section());
        section
            .map(|(_, place)| place.clone())
            .or_else(|| self.whole.clone())
            .unwrap_or(Place::Default)
    }
}

/// The default of a key as a node.
pub(crate) fn default_of(key: &Key) -> Option<Node> {
    match key.fallback {
        Fallback::Required => None,
        Fallback::Value(text) => parse_value(&Place::Default, text),
    }
}

/// Merges the sources; reports unknown keys.
pub(crate) fn lay(sources: &Sources, problems: &mut Problems) -> Layers {
    let mut layers = Layers::default();
    if let Some((name, text)) = &sources.file {
        layers.whole = Some(Place::File {
            file: name.clone(),
            line: 0,
            column: 0,
        });
        let fields = parse(name, text, problems);
        lay_top(&mut layers, fields, problems);
    }
    for (variable, text) in &sources.environment {
        if variable.starts_with("WITNESS_") && !OTHER_VARIABLES.contains(&variable.as_str()) {
            lay_variable(&mut layers, variable, text, problems);
        }
    }
    for (path, text) in &sources.flags {
        let place = Place::Flag {
            flag: format!("--{}", flag_of(path)),
        };
        lay_text(&mut layers, path, &place, text, problems);
    }
    layers
}

fn lay_top(layers: &mut Layers, fields: Vec<Field>, problems: &mut Problems) {
    for field in fields {
        if field.name == MEMBERS {
            lay_members(layers, field.node, problems);
        } else if let Some(key) = KEYS.iter().find(|key| key.path == field.name) {
            layers.values.push((key, field.node));
        } else if KEYS.iter().any(|key| key.section() == field.name) {
            lay_section(layers, field, problems);
        } else {
            let known = KEYS.iter().map(|key| match key.section() {
                "" => key.path,
                section => section,
            });
            unknown(&field, "", known.chain([MEMBERS]), problems);
        }
    }
}

fn lay_section(layers: &mut Layers, field: Field, problems: &mut Problems) {
    let section = field.name;
    let Raw::Table(fields) = field.node.value else {
        problems.error(
            &field.node.place,
            &section,
            format!(
                "`{section}` is {}, but it is a section",
                field.node.value.describe()
            ),
            format!("write [{section}] on a line of its own, and its keys below"),
        );
        return;
    };
    for inner in fields {
        let path = format!("{section}.{}", inner.name);
        let found = KEYS.iter().find(|key| key.path == path);
        match found {
            Some(key) => layers.values.push((key, inner.node)),
            None => {
                let known = KEYS
                    .iter()
                    .filter(|key| key.section() == section)
                    .map(Key::name);
                unknown(&inner, &section, known, problems);
            }
        }
    }
    layers.sections.push((section, field.node.place));
}

fn lay_members(layers: &mut Layers, node: Node, problems: &mut Problems) {
    let advice = "write [[members]] above each member's keys";
    layers.members.clear();
    layers.members_place = Some(node.place.clone());
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
        let mut values = Vec::new();
        for field in fields {
            match MEMBER_KEYS.iter().find(|key| key.name() == field.name) {
                Some(key) => values.push((key, field.node)),
                None => {
                    unknown(&field, MEMBERS, MEMBER_KEYS.iter().map(Key::name), problems);
                }
            }
        }
        layers.members.push(MemberLayer {
            place: item.place,
            values,
        });
    }
}

fn lay_variable(layers: &mut Layers, variable: &str, text: &str, problems: &mut Problems) {
    let place = Place::Environment {
        variable: variable.to_owned(),
    };
    let paths = KEYS.iter().map(|key| key.path).chain([MEMBERS]);
    if let Some(path) = paths.clone().find(|path| variable_of(path) == variable) {
        lay_text(layers, path, &place, text, problems);
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
fn lay_text(layers: &mut Layers, path: &str, place: &Place, text: &str, problems: &mut Problems) {
    let bracketed = text.trim_start().starts_with('[');
    if path == MEMBERS {
        match parse_value(place, text) {
            Some(node) => lay_members(layers, node, problems),
            None => problems.error(
                place,
                MEMBERS,
                "the value is not a TOML list",
                "write it as in [{ id = 1, name = \"a\", … }, { id = 2, … }]",
            ),
        }
    } else if let Some(key) = KEYS.iter().find(|key| key.path == path) {
        let list = (key.kind == Kind::List && bracketed)
            .then(|| parse_value(place, text))
            .flatten();
        let node = list.unwrap_or_else(|| Node {
            place: place.clone(),
            value: Raw::Text(text.to_owned()),
        });
        layers.values.push((key, node));
    }
}

fn unknown<'a>(
    field: &Field,
    section: &str,
    known: impl Iterator<Item = &'a str> + Clone,
    problems: &mut Problems,
) {
    let (key, place) = match section {
        "" => (field.name.clone(), String::from("at the top level")),
        MEMBERS => (
            format!("{MEMBERS}.{}", field.name),
            String::from("in [[members]]"),
        ),
        section => (
            format!("{section}.{}", field.name),
            format!("in [{section}]"),
        ),
    };
    let advice = match nearest(&field.name, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => match elsewhere(&field.name) {
            Some(path) => format!("did you mean `{path}`?"),
            None => {
                let mut known: Vec<_> = known.collect();
                known.dedup();
                format!("known here: {}", listed(known.into_iter()))
            }
        },
    };
    problems.error(
        &field.place,
        &key,
        format!("unknown key `{}` {place}", field.name),
        advice,
    );
}

/// The key of the same name in another section.
fn elsewhere(name: &str) -> Option<&'static str> {
    KEYS.iter()
        .chain(MEMBER_KEYS)
        .find(|key| key.name() == name)
        .map(|key| key.path)
}

// Raw values with their places: the content of the file, the environment and the flags before
// validation. A file with syntax errors still yields every value that can be read, so that one
// run reports all mistakes.

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Raw,
}

/// A value as written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Raw {
    Text(String),
    Integer(i128),
    Bool(bool),
    Array(Vec<Node>),
    Table(Vec<Field>),
    /// A float or a date, which no key accepts; with its name.
    Other(&'static str),
}

/// One key of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// The place of the key itself.
    pub(crate) place: Place,
    pub(crate) node: Node,
}

impl Raw {
    /// The name of the value's type in messages.
    pub(crate) fn describe(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(_) => "a number",
            Self::Bool(_) => "`true` or `false`",
            Self::Array(_) => "a list",
            Self::Table(_) => "a section",
            Self::Other(word) => word,
        }
    }
}

/// Parses the text of a configuration file; reports syntax errors.
pub(crate) fn parse(file: &str, text: &str, problems: &mut Problems) -> Vec<Field> {
    let locate = |offset: usize| at(file, text, offset);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let place = locate(error.span().map_or(0, |span| span.start));
        problems.error(
            &place,
            "",
            error.message().trim(),
            "see https://toml.io for how TOML is written",
        );
    }
    members(table.get_ref(), &locate)
}

/// Parses one TOML value from outside a file; `None` when it is not one.
pub(crate) fn parse_value(place: &Place, text: &str) -> Option<Node> {
    let value = DeValue::parse(text).ok()?;
    Some(Node {
        place: place.clone(),
        value: raw(value.get_ref(), &|_| place.clone()),
    })
}

/// Line and column, from 1, of a byte offset.
fn at(file: &str, text: &str, offset: usize) -> Place {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Place::File {
        file: file.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

fn members(table: &DeTable<'_>, locate: &dyn Fn(usize) -> Place) -> Vec<Field> {
    let one = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = key.get_ref();
        Field {
            name: name.to_string(),
            place: locate(key.span().start),
            node: node(value, locate),
        }
    };
    table.iter().map(one).collect()
}

fn node(value: &Spanned<DeValue<'_>>, locate: &dyn Fn(usize) -> Place) -> Node {
    Node {
        place: locate(value.span().start),
        value: raw(value.get_ref(), locate),
    }
}

fn raw(value: &DeValue<'_>, locate: &dyn Fn(usize) -> Place) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map_or(Raw::Other("a number too large to count with"), Raw::Integer),
        DeValue::Boolean(value) => Raw::Bool(*value),
        DeValue::Float(_) => Raw::Other("a fraction"),
        DeValue::Datetime(_) => Raw::Other("a date"),
        DeValue::Array(items) => Raw::Array(items.iter().map(|item| node(item, locate)).collect()),
        DeValue::Table(table) => Raw::Table(members(table, locate)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let mut problems = Problems::default();
        let text = "# äö\ndata_dir = \"x\"\n\n[ring]\n  name = 3\n[[members]]\nid = 1\n";
        let read = parse("f", text, &mut problems);
        assert!(!problems.any_error(), "{problems}");
        let place = |line, column| Place::File {
            file: "f".into(),
            line,
            column,
        };
        let ring = read
            .iter()
            .find(|member| member.name == "ring")
            .expect("the section");
        let Raw::Table(keys) = &ring.node.value else {
            panic!("a section")
        };
        assert_eq!(keys[0].place, place(5, 3));
        assert_eq!(keys[0].node.place, place(5, 10));
        assert_eq!(ring.node.place, place(4, 1));
        let list = read
            .iter()
            .find(|member| member.name == "members")
            .expect("the list");
        let Raw::Array(items) = &list.node.value else {
            panic!("a list")
        };
        assert_eq!(items[0].place, place(6, 1));
    }

    #[test]
    fn values_beside_a_syntax_error_are_still_read() {
        let mut problems = Problems::default();
        let read = parse("f", "data_dir = \n[ring]\nname = \"a\"\n", &mut problems);
        assert_eq!(problems.error_count(), 1);
        assert!(read.iter().any(|member| member.name == "ring"));
    }
}
