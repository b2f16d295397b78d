//! Mistakes in a configuration: location, message and advice.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::text::{lines, quoted};

/// Where a value of the configuration came from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "source")]
pub enum Place {
    /// A position in the configuration file.
    File {
        /// The file's name as the operator wrote it.
        file: String,
        /// Line, from 1; zero for the file as a whole.
        line: usize,
        /// Column in characters, from 1; zero for the file as a whole.
        column: usize,
    },
    /// An environment variable, `WITNESS_…`.
    Environment {
        /// The variable's name.
        variable: String,
    },
    /// A flag of the command line.
    Flag {
        /// The flag's name with its leading dashes.
        flag: String,
    },
    /// The built-in default.
    #[default]
    Default,
}

impl Place {
    /// The position of a byte offset in a file's text.
    pub(crate) fn at(file: &str, text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self::File {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }

    /// A file as a whole.
    pub(crate) fn of_file(file: &str) -> Self {
        Self::File {
            file: file.to_owned(),
            line: 0,
            column: 0,
        }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line: 0, .. } => f.write_str(file),
            Self::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::Environment { variable } => f.write_str(variable),
            Self::Flag { flag } => f.write_str(flag),
            Self::Default => f.write_str("default"),
        }
    }
}

/// True if a problem prevents the use of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The member does not start with this configuration.
    Error,
    /// The member starts, but the operator probably meant another value.
    Warning,
}

/// A mistake, or a doubtful value, in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// True if the problem prevents a start.
    pub severity: Severity,
    /// The file, variable or flag that the value came from.
    pub place: Place,
    /// The dotted key; empty for a syntax error.
    pub key: String,
    /// What is wrong, in one clause.
    pub message: String,
    /// How to correct the problem.
    pub advice: String,
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{}: {severity}: {}", self.place, self.message)?;
        if self.advice.is_empty() {
            Ok(())
        } else {
            write!(f, "; {}", self.advice)
        }
    }
}

/// Every finding about one configuration, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Records a mistake that prevents a start.
    pub fn error(&mut self, place: &Place, key: &str, what: impl Display, advice: impl Display) {
        self.push(Severity::Error, place, key, &what, &advice);
    }

    /// Records a value that the operator probably did not intend.
    pub fn warning(&mut self, place: &Place, key: &str, what: impl Display, advice: impl Display) {
        self.push(Severity::Warning, place, key, &what, &advice);
    }

    fn push(
        &mut self,
        severity: Severity,
        place: &Place,
        key: &str,
        what: &dyn Display,
        advice: &dyn Display,
    ) {
        self.0.push(Problem {
            severity,
            place: place.clone(),
            key: key.to_owned(),
            message: what.to_string(),
            advice: advice.to_string(),
        });
    }

    /// Whether any finding prevents a start.
    pub fn any_error(&self) -> bool {
        self.error_count() > 0
    }

    /// How many findings prevent a start.
    pub fn error_count(&self) -> usize {
        let is_error = |problem: &&Problem| problem.severity == Severity::Error;
        self.iter().filter(is_error).count()
    }

    /// The findings in the order of the file; findings in the environment and in flags are last.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// Sorts the findings in the order of the file.
    pub(crate) fn sort(&mut self) {
        self.0.sort_by_key(|problem| match &problem.place {
            Place::File { line, column, .. } => (0, *line, *column),
            Place::Environment { .. } => (1, 0, 0),
            Place::Flag { .. } => (2, 0, 0),
            Place::Default => (3, 0, 0),
        });
    }
}

impl Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&lines("", &self.0))
    }
}

// "Did you mean": the known word nearest to an unknown one.

/// The candidate that the operator most probably meant by `word`, if one is near enough.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near_enough = 0.75;
    let scored = candidates.map(|known| (strsim::jaro_winkler(word, known), known));
    let near = scored.filter(|(similarity, _)| *similarity >= near_enough);
    let nearest = near.max_by(|(left, _), (right, _)| left.total_cmp(right));
    nearest.map(|(_, candidate)| candidate)
}

/// Asks whether the operator meant the nearest candidate; if none is near enough, returns other advice.
pub(crate) fn did_you_mean<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
    otherwise: impl FnOnce() -> String,
) -> String {
    let near = nearest(word, candidates);
    near.map_or_else(otherwise, |near| format!("did you mean `{near}`?"))
}

/// The candidates as a list in a sentence.
pub(crate) fn listed<'a>(candidates: impl Iterator<Item = &'a str>) -> String {
    quoted(candidates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let text = "# äö\ndata_dir = \"x\"\n\n[ring]\n  name = 3\n";
        for (part, expected) in [
            ("#", "f:1:1"),
            ("ö", "f:1:4"),
            ("name", "f:5:3"),
            ("3", "f:5:10"),
        ] {
            let offset = text.find(part).unwrap();
            assert_eq!(Place::at("f", text, offset).to_string(), expected, "{part}");
        }
    }

    #[test]
    fn near_words_are_suggested() {
        let known = ["heartbeat", "lease", "proposals_bytes"];
        assert_eq!(nearest("heartbeet", known.into_iter()), Some("heartbeat"));
        assert_eq!(nearest("hartbeat", known.into_iter()), Some("heartbeat"));
        assert_eq!(nearest("zzz", known.into_iter()), None);
    }
}
