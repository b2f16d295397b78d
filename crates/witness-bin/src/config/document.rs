//! Raw values with their places: what the file, the environment and the flags say before anybody
//! asks whether it makes sense. A file with syntax errors still gives every value that could be
//! read, so that one run names all mistakes.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Place, Problems};

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Raw,
}

/// A value as it was written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Raw {
    Text(String),
    Integer(i128),
    Bool(bool),
    Array(Vec<Node>),
    Table(Vec<Field>),
    /// A float or a date, which no key takes; the word for it.
    Other(&'static str),
}

/// One key of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// Where the key itself stands.
    pub(crate) place: Place,
    pub(crate) node: Node,
}

impl Raw {
    /// How a message names what was found.
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

/// Reads the text of a configuration file; mistakes of syntax are recorded.
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

/// Reads one TOML value that stands outside a file; `None` when it is not one.
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
