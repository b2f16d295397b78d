//! A configuration key: its name, the values that it accepts, its default and its meaning.
//! The parser, flags, environment, example and documentation derive from one table of keys.

/// The values that a key accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text, including an empty one.
    Text,
    /// A name for operators and metrics: letters, digits, `-`, `_` and `.`.
    Name,
    /// A whole number within bounds, both inclusive.
    Integer {
        /// The smallest accepted value.
        min: u64,
        /// The largest accepted value.
        max: u64,
    },
    /// `true` or `false`.
    Bool,
    /// Text with a unit, as in `"500ms"`; bounds in milliseconds, both inclusive.
    Duration {
        /// The shortest accepted value, in milliseconds.
        min: u64,
        /// The longest accepted value, in milliseconds.
        max: u64,
    },
    /// A number of bytes, or text with a unit, as in `"64MiB"`; bounds inclusive.
    Bytes {
        /// The smallest accepted value, in bytes.
        min: u64,
        /// The largest accepted value, in bytes.
        max: u64,
    },
    /// One of these words.
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
    /// The description of the values in the documentation and messages.
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
    /// The values that it accepts.
    pub kind: Kind,
    /// The value when no source gives one.
    pub fallback: Fallback,
    /// Whether it must not appear in a process list: it has no flag and is never printed.
    pub secret: bool,
    /// Whether a reload applies it to a running member; all other keys need a restart.
    pub reloads: bool,
    /// Its meaning, for the documentation.
    pub meaning: &'static str,
    /// The TOML value in the example configuration; empty to show the default in a comment.
    pub example: &'static str,
}

impl Key {
    /// The same key, applied by a reload.
    pub(crate) const fn reloaded(self) -> Self {
        Self {
            reloads: true,
            ..self
        }
    }

    /// Its meaning, and whether a reload applies it.
    pub(crate) fn explanation(&self) -> String {
        match self.reloads {
            true => format!("{} Taken by a reload.", self.meaning),
            false => self.meaning.to_owned(),
        }
    }

    /// Its section; empty for a top-level key.
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
