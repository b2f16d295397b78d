//! Makes texts for people from typed values: sentences about the ring, its members, its events and its history. Pure. No code parses
//! these texts.

pub(crate) mod differences;
pub(crate) mod event;
pub(crate) mod history;
pub(crate) mod member;
pub(crate) mod ring;
pub(crate) mod times;

use serde::Serialize;

/// The severity of a sentence or an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// A part works again, or better.
    Good,
    /// A part does not work.
    Bad,
    /// Anything else.
    Note,
}

/// A clause as a sentence, with an initial capital.
pub(crate) fn capitalized(clause: &str) -> String {
    let mut chars = clause.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

/// Returns one line for each item, with a prefix at its beginning.
pub(crate) fn lines<T: std::fmt::Display>(prefix: &str, of: impl IntoIterator<Item = T>) -> String {
    let lines = of.into_iter().map(|one| format!("{prefix}{one}\n"));
    lines.collect()
}

/// Returns the words in backticks, separated by commas.
pub(crate) fn quoted<T: std::fmt::Display>(words: impl IntoIterator<Item = T>) -> String {
    let words = words.into_iter().map(|word| format!("`{word}`"));
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
