//! What a configuration key is: its name, the values that it takes, its default and its meaning.
//! Everything that speaks of keys (reading, flags, environment, example, documentation) follows
//! from one table of these.

/// The values that a key takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text, also an empty one.
    Text,
    /// A name for people and for metrics: letters, digits, `-`, `_` and `.`.
    Name,
    /// A whole number within bounds, both inclusive.
    Integer {
        /// The smallest value that is accepted.
        min: u64,
        /// The largest value that is accepted.
        max: u64,
    },
    /// `true` or `false`.
    Bool,
    /// Text with a unit, as in `"500ms"`; bounds in milliseconds, both inclusive.
    Duration {
        /// The shortest that is accepted, in milliseconds.
        min: u64,
        /// The longest that is accepted, in milliseconds.
        max: u64,
    },
    /// A number of bytes, or text with a unit, as in `"64MiB"`; bounds inclusive.
    Bytes {
        /// The fewest bytes that are accepted.
        min: u64,
        /// The most bytes that are accepted.
        max: u64,
    },
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// A list of texts; may be empty.
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
    /// The value of a key that nobody gives.
    pub fallback: Fallback,
    /// Whether it must not appear in a process list: it has no flag, and is never printed.
    pub secret: bool,
    /// Whether a running member takes it anew with a reload; every other one needs a restart.
    pub reloads: bool,
    /// What it means, in the words of the documentation.
    pub meaning: &'static str,
    /// What the example configuration says for it, as a TOML value; empty to show the default in a
    /// comment.
    pub example: &'static str,
}

impl Key {
    /// The same key, taken by a reload.
    pub(crate) const fn reloaded(self) -> Self {
        Self {
            reloads: true,
            ..self
        }
    }

    /// What it means, and whether a running member takes it.
    pub(crate) fn explanation(&self) -> String {
        match self.reloads {
            true => format!("{} Taken by a reload.", self.meaning),
            false => self.meaning.to_owned(),
        }
    }

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
