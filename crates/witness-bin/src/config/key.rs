//! What a configuration key is: its name, the values that it takes, its default and its meaning.
//! Everything that speaks of keys (reading, flags, environment, example, documentation) follows
//! from one table of these.

use std::fmt::Write;

use crate::config::keys::{KEYS, MEMBER_KEYS, MEMBERS, SECTIONS};
use crate::config::typed::default_text;

/// The values that a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A name for people and for metrics: letters, digits, `-`, `_` and `.`.
    Name,
    /// A whole number within bounds, both inclusive.
    Integer {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// `true` or `false`.
    Bool,
    /// Text with a unit, as in `"500ms"`; bounds in milliseconds, both inclusive.
    Duration {
        /// Shortest, in milliseconds.
        min: u64,
        /// Longest, in milliseconds.
        max: u64,
    },
    /// A number of bytes, or text with a unit, as in `"64MiB"`; bounds inclusive.
    Bytes {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// A list of texts.
    List,
    /// The path of a file that must exist and be readable; empty for none.
    File,
    /// The path of a directory; empty for none.
    Directory,
    /// `host:port`; empty for none.
    HostPort,
    /// A UUID; empty for none.
    Uuid,
}

impl Kind {
    /// How the documentation and messages name the values.
    pub fn describe(self) -> String {
        match self {
            Self::Text => "text".into(),
            Self::Name => "name".into(),
            Self::Integer { .. } => "number".into(),
            Self::Bool => "`true` or `false`".into(),
            Self::Duration { .. } => "duration".into(),
            Self::Bytes { .. } => "size".into(),
            Self::Choice(words) => {
                let quoted: Vec<_> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
                quoted.join(", ")
            }
            Self::List => "list of texts".into(),
            Self::File => "file".into(),
            Self::Directory => "directory".into(),
            Self::HostPort => "`host:port`".into(),
            Self::Uuid => "UUID".into(),
        }
    }
}

/// Whether a value must be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// There is no default; the configuration is invalid without it.
    Required,
    /// The default, as a TOML value.
    Value(&'static str),
}

/// One key of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Dotted name, as in `raft.heartbeat`.
    pub path: &'static str,
    /// The values that it takes.
    pub kind: Kind,
    /// What holds without it.
    pub fallback: Fallback,
    /// Whether it must not appear in a process list: it has no flag, and is never printed.
    pub secret: bool,
    /// What it means, in the words of the documentation.
    pub meaning: &'static str,
    /// What the example configuration says for it, as a TOML value; empty to show the default in a
    /// comment.
    pub example: &'static str,
}

impl Key {
    /// The section that it stands in; empty for a key of the top level.
    pub fn section(&self) -> &'static str {
        self.path
            .rsplit_once('.')
            .map_or("", |(section, _)| section)
    }

    /// Its name inside its section.
    pub fn name(&self) -> &'static str {
        self.path
            .rsplit_once('.')
            .map_or(self.path, |(_, name)| name)
    }

    /// The environment variable of the same name.
    pub fn variable(&self) -> String {
        variable_of(self.path)
    }

    /// The flag of the same name, without its dashes.
    pub fn flag(&self) -> String {
        flag_of(self.path)
    }
}

/// The environment variable of a dotted name.
pub fn variable_of(path: &str) -> String {
    format!("WITNESS_{}", path.replace('.', "_").to_uppercase())
}

/// The flag of a dotted name, without its dashes.
pub fn flag_of(path: &str) -> String {
    path.replace(['.', '_'], "-")
}

// The commented example and the reference table, both made from the table of keys, so that they
// cannot fall behind it.

/// Keys with a default that a member beside a mysqld nevertheless needs.
const SHOWN: [&str; 2] = ["mysql.datadir", "http.listen"];

/// A configuration file that validates, with every key in it; keys at their default are comments.
pub fn example() -> String {
    let mut out = String::from(
        "# Configuration of one ring member. Every key can also be given by its variable\n\
         # (data_dir: WITNESS_DATA_DIR) or its flag (--data-dir), which win over the file.\n",
    );
    for (section, meaning) in SECTIONS {
        if *section == MEMBERS {
            example_members(&mut out, meaning);
        } else {
            if !section.is_empty() {
                let _ = write!(out, "\n# {meaning}.\n[{section}]\n");
            }
            for key in KEYS.iter().filter(|key| key.section() == *section) {
                example_key(&mut out, key);
            }
        }
    }
    out
}

fn example_key(out: &mut String, key: &Key) {
    out.push('\n');
    for line in folded(key.meaning, 98) {
        let _ = writeln!(out, "# {line}");
    }
    let name = key.name();
    let _ = match (default_text(key), key.example) {
        (None, example) => writeln!(out, "{name} = {example}"),
        (Some(_), example) if SHOWN.contains(&key.path) => writeln!(out, "{name} = {example}"),
        (Some(default), "") => writeln!(out, "#{name} = {default}"),
        (Some(default), example) => writeln!(out, "#{name} = {default} # for example {example}"),
    };
}

fn example_members(out: &mut String, meaning: &str) {
    let _ = write!(out, "\n# {meaning}.\n#\n");
    for key in MEMBER_KEYS {
        let default = default_text(key)
            .map(|text| format!(" Default: {text}."))
            .unwrap_or_default();
        for line in folded(&format!("{}: {}{default}", key.name(), key.meaning), 98) {
            let _ = writeln!(out, "# {line}");
        }
    }
    let members = [
        (1, "db-1", "database"),
        (2, "witness-1", "witness"),
        (3, "witness-2", "witness"),
    ];
    for (id, name, kind) in members {
        let _ = write!(
            out,
            "\n[[members]]\nid = {id}\nname = \"{name}\"\nregion = \"north\"\n\
             kind = \"{kind}\"\naddress = \"10.0.0.{id}:7400\"\n",
        );
    }
}

/// The reference of every key as rows of Markdown, section by section.
pub fn reference() -> String {
    let mut out = String::new();
    for (section, meaning) in SECTIONS {
        let title = match *section {
            "" => "Top level".to_owned(),
            MEMBERS => "`[[members]]`".to_owned(),
            section => format!("`[{section}]`"),
        };
        let _ = write!(out, "### {title}\n\n{meaning}.\n\n");
        out.push_str("| key | values | default | meaning |\n|---|---|---|---|\n");
        for key in KEYS
            .iter()
            .chain(MEMBER_KEYS)
            .filter(|key| key.section() == *section)
        {
            let default = default_text(key).map_or("required".into(), |text| format!("`{text}`"));
            let _ = writeln!(
                out,
                "| `{}` | {} | {default} | {} |",
                key.path,
                key.kind.describe(),
                key.meaning
            );
        }
        out.push('\n');
    }
    out
}

/// Breaks a sentence into lines of at most `width` characters.
fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if lines[last].is_empty() {
            lines[last].push_str(word);
        } else if lines[last].chars().count() + 1 + word.chars().count() <= width {
            lines[last].push(' ');
            lines[last].push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}
