//! The kinds of values; raw values from the file, the environment and the flags, with their places; and the parsing of values within the
//! bounds of their kinds. A file with syntax errors still yields every value that can be read, so that one run reports all mistakes. Pure.

use std::time::Duration;

use parse_size::parse_size;
use raft_types::{AddressMistake, host_and_port};
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeValue};
use uuid::Uuid;

use crate::config::problem::{Place, did_you_mean, listed};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const GIB: u64 = 1 << 30;
/// One day in milliseconds.
pub(crate) const DAY: u64 = 24 * 3_600_000;

/// The values that a key accepts. Bounds are inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text, including an empty one.
    Text,
    /// A name for operators and metrics: letters, digits, `-`, `_` and `.`.
    Name,
    /// A whole number from the first number to the second.
    Integer(u64, u64),
    /// `true` or `false`.
    Bool,
    /// Text with a unit, as in `"500ms"`; bounds in milliseconds.
    Duration(u64, u64),
    /// A number of bytes, or text with a unit, as in `"64MiB"`; bounds in bytes.
    Bytes(u64, u64),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A list of texts; may be empty.
    List,
    /// The path of a file that must exist and be readable; empty for none.
    File,
    /// The path of a file that contains a secret; empty for none. It must exist and be readable; wide permissions cause a warning.
    SecretFile,
    /// The path of a directory; empty for none.
    Directory,
    /// `host:port`; empty for none.
    HostPort,
    /// A UUID; empty for none.
    Uuid,
}

impl Kind {
    /// The description of the values in the documentation and messages.
    pub(crate) fn describe(self) -> String {
        let word = match self {
            Self::Text => "text",
            Self::Name => "name",
            Self::Integer(..) => "number",
            Self::Bool => "`true` or `false`",
            Self::Duration(..) => "duration",
            Self::Bytes(..) => "size",
            Self::Choice(words) => {
                let quoted: Vec<_> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
                return quoted.join(", ");
            }
            Self::List => "list of texts",
            Self::File | Self::SecretFile => "file",
            Self::Directory => "directory",
            Self::HostPort => "`host:port`",
            Self::Uuid => "UUID",
        };
        word.to_owned()
    }
}

/// A value as written, and its place.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    pub(crate) place: Place,
    pub(crate) value: DeValue<'a>,
}

/// The name of a value's type in messages.
pub(crate) fn describe(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "`true` or `false`",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}

/// Parses a text that is not part of a TOML file, such as a flag, as one TOML value; `None` if it is not a TOML value.
pub(crate) fn parse_value(text: &str) -> Option<DeValue<'_>> {
    Some(DeValue::parse(text).ok()?.into_inner())
}

/// Converts the text of a variable or a flag, which has no quotes, to a TOML value. A list is written in brackets, or as words.
pub(crate) fn unquoted(kind: Kind, text: &str) -> DeValue<'_> {
    let trimmed = text.trim();
    let parsed = match kind {
        Kind::Integer(..) | Kind::Bool => parse_value(trimmed),
        Kind::List if trimmed.starts_with('[') => parse_value(trimmed),
        Kind::List => {
            let mut words = DeArray::new();
            for word in trimmed.split_whitespace() {
                words.push(Spanned::new(0..0, DeValue::String(word.into())));
            }
            Some(DeValue::Array(words))
        }
        _ => None,
    };
    parsed.unwrap_or_else(|| DeValue::String(text.into()))
}

/// A mistake in a value, and the correction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {advice}")]
pub(crate) struct Mistake {
    pub(crate) message: String,
    pub(crate) advice: String,
}

impl Mistake {
    pub(crate) fn new(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            advice: advice.into(),
        }
    }
}

fn mistake<T>(message: impl Into<String>, advice: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake::new(message, advice))
}

/// Parses a value, and checks it against the bounds of its kind.
pub(crate) fn decode(kind: Kind, value: &DeValue<'_>) -> Result<Value, Mistake> {
    match (value, kind) {
        (DeValue::Integer(number), Kind::Integer(min, max) | Kind::Bytes(min, max)) => {
            within(number, min, max).map(Value::from)
        }
        (DeValue::Boolean(value), Kind::Bool) => Ok(json!(value)),
        (DeValue::Array(items), Kind::List) => {
            let texts = items.iter().map(|item| match item.get_ref() {
                DeValue::String(text) => Ok(text.to_string()),
                other => mistake(
                    format!("the list holds {}", describe(other)),
                    "write every item in quotes",
                ),
            });
            texts.collect()
        }
        (DeValue::String(text), _) => decode_text(kind, text),
        (DeValue::Integer(number), Kind::Duration(..)) => mistake(
            format!("{number} has no unit"),
            format!("write \"{number}ms\" or \"{number}s\""),
        ),
        (other, _) => unexpected(kind, other),
    }
}

fn unexpected<T>(kind: Kind, value: &DeValue<'_>) -> Result<T, Mistake> {
    let (expected, found) = (kind.describe(), describe(value));
    mistake(format!("expected {expected}, found {found}"), sample(kind))
}

fn sample(kind: Kind) -> String {
    match kind {
        Kind::Integer(..) => "write a whole number without quotes".into(),
        Kind::Bool => "write true or false without quotes".into(),
        Kind::Duration(..) => "write a number and a unit, as in \"500ms\" or \"3s\"".into(),
        Kind::Bytes(..) => "write a number of bytes, or a text such as \"64MiB\"".into(),
        Kind::List => "write a list, as in [\"one\", \"two\"]".into(),
        Kind::Choice(words) => format!("write one of {}, in quotes", listed(words.iter().copied())),
        Kind::HostPort => "write \"host:port\", as in \"10.0.0.1:7400\"".into(),
        Kind::Uuid => "write a UUID in quotes".into(),
        Kind::Text | Kind::Name | Kind::File | Kind::SecretFile | Kind::Directory => {
            "write it in quotes".into()
        }
    }
}

fn decode_text(kind: Kind, text: &str) -> Result<Value, Mistake> {
    match kind {
        Kind::Text | Kind::File | Kind::SecretFile | Kind::Directory => Ok(json!(text)),
        Kind::Name => name_of(text).map(Value::from),
        Kind::Choice(words) => choice(words, text).map(Value::from),
        Kind::Duration(min, max) => duration(text, min, max).map(|duration| json!(duration)),
        Kind::Bytes(min, max) => bytes(text, min, max).map(Value::from),
        Kind::HostPort => host_port(text).map(Value::from),
        Kind::Uuid if text.is_empty() => Ok(Value::Null),
        Kind::Uuid => match Uuid::parse_str(text) {
            Ok(uuid) => Ok(json!(uuid)),
            Err(_) => mistake(
                format!("`{text}` is not a UUID"),
                "write it as in \"3e11fa47-71ca-11e1-9e33-c80aa9429562\"",
            ),
        },
        Kind::Integer(..) | Kind::Bool | Kind::List => {
            unexpected(kind, &DeValue::String(text.into()))
        }
    }
}

fn within(number: &DeInteger<'_>, min: u64, max: u64) -> Result<u64, Mistake> {
    match u64::from_str_radix(number.as_str(), number.radix()) {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ if max == u64::MAX => mistake(
            format!("{number} is out of bounds"),
            format!("write a number from {min}"),
        ),
        _ => mistake(
            format!("{number} is out of bounds"),
            format!("write a number from {min} to {max}"),
        ),
    }
}

fn choice(words: &[&str], text: &str) -> Result<String, Mistake> {
    if words.contains(&text) {
        return Ok(text.to_owned());
    }
    let all = listed(words.iter().copied());
    let other = || format!("write one of {all}");
    let advice = did_you_mean(text, words.iter().copied(), other);
    mistake(format!("`{text}` is not one of {all}"), advice)
}

fn duration(text: &str, min: u64, max: u64) -> Result<Duration, Mistake> {
    // For humantime, `M` is a month. The operator may mean minutes, so `M` is rejected.
    let parsed = humantime::parse_duration(text)
        .ok()
        .filter(|_| !text.contains('M'));
    let whole = |duration: &Duration| duration.subsec_nanos().is_multiple_of(1_000_000);
    let Some(duration) = parsed.filter(whole) else {
        return mistake(
            format!("`{text}` is not a duration"),
            "write a number and a unit (ms, s, m, h, d), as in \"500ms\"",
        );
    };
    let most = Duration::from_millis(max);
    if (Duration::from_millis(min)..=most).contains(&duration) {
        return Ok(duration);
    }
    mistake(
        format!("`{text}` is out of bounds"),
        format!(
            "write a duration from {min}ms to {}",
            humantime::format_duration(most)
        ),
    )
}

/// Parses a duration on the command line, from a millisecond to a day.
pub(crate) fn duration_of(text: &str) -> Result<Duration, Mistake> {
    duration(text, 1, DAY)
}

/// Parses a retention time on the command line, with the bounds of `archive.keep`.
pub(crate) fn keep_of(text: &str) -> Result<Duration, Mistake> {
    duration(text, 0, 100 * 365 * DAY)
}

/// Parses the address of a member on the command line.
pub(crate) fn address_of(text: &str) -> Result<String, Mistake> {
    match text {
        "" => mistake("the address is empty", sample(Kind::HostPort)),
        _ => host_port(text),
    }
}

/// Parses a size on the command line.
pub(crate) fn bytes_of(text: &str) -> Result<u64, Mistake> {
    bytes(text, 0, u64::MAX)
}

/// Parses a name on the command line. It may become a part of a file's name.
pub(crate) fn name_of(text: &str) -> Result<String, Mistake> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() {
        mistake(
            "the name is empty",
            "write one of letters, digits, `-`, `_` and `.`",
        )
    } else if let Some(stray) = text.chars().find(|c| !allowed(*c)) {
        mistake(
            format!("the name `{text}` holds {stray:?}"),
            "use letters, digits, `-`, `_` and `.` only",
        )
    } else {
        Ok(text.to_owned())
    }
}

fn bytes(text: &str, min: u64, max: u64) -> Result<u64, Mistake> {
    // `64M` is 64 MiB, as in mysqld's options; `64MB` is 64 decimal megabytes.
    let letter = |c: char| matches!(c.to_ascii_lowercase(), 'k' | 'm' | 'g' | 't');
    let unit = if text.trim().ends_with(letter) {
        "iB"
    } else {
        ""
    };
    match parse_size(format!("{}{unit}", text.trim())) {
        Ok(size) if (min..=max).contains(&size) => Ok(size),
        Ok(_) | Err(parse_size::Error::PosOverflow) => mistake(
            format!("`{text}` is out of bounds"),
            format!("write a size from {min} to {max} bytes"),
        ),
        Err(_) => mistake(
            format!("`{text}` is not a size"),
            sample(Kind::Bytes(min, max)),
        ),
    }
}

fn host_port(text: &str) -> Result<String, Mistake> {
    match host_and_port(text) {
        _ if text.is_empty() => Ok(String::new()),
        Ok(_) => Ok(text.to_owned()),
        Err(no_port @ AddressMistake::NotAPort(_)) => mistake(
            no_port.to_string(),
            "write a number from 1 to 65535 after the colon",
        ),
        Err(other) => mistake(other.to_string(), sample(Kind::HostPort)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a TOML value, as it is written in a file.
    fn from_file(kind: Kind, value: &str) -> Result<Value, Mistake> {
        decode(kind, &parse_value(value).expect("a TOML value"))
    }

    fn quoted(kind: Kind, text: &str) -> Result<Value, Mistake> {
        from_file(kind, &format!("{text:?}"))
    }

    #[test]
    fn durations_have_units_and_bounds() {
        let kind = Kind::Duration(10, 60_000);
        let ok = |text: &str| quoted(kind, text);
        assert_eq!(ok("500ms"), Ok(json!(Duration::from_millis(500))));
        assert_eq!(ok("2 s"), Ok(json!(Duration::from_secs(2))));
        assert_eq!(ok("1m"), Ok(json!(Duration::from_secs(60))));
        for wrong in [
            "",
            "ms",
            "500",
            "1.5ms",
            "1M",
            "9ms",
            "2m",
            "99999999999999999999s",
            "-1s",
        ] {
            assert!(ok(wrong).is_err(), "{wrong}");
        }
        let bare = from_file(kind, "500").expect_err("a unit is missing");
        assert!(bare.advice.contains("500ms"), "{}", bare.advice);
    }

    #[test]
    fn sizes_are_numbers_or_have_units() {
        let kind = Kind::Bytes(0, 1 << 40);
        let size = |text: &str| quoted(kind, text);
        assert_eq!(size("64MiB"), Ok(json!(64 << 20)));
        assert_eq!(size("64M"), Ok(json!(64 << 20)));
        assert_eq!(size("1gb"), Ok(json!(1_000_000_000)));
        assert_eq!(from_file(kind, "4096"), Ok(json!(4096)));
        for wrong in ["-1", "1099511627777", "99999999999999999999"] {
            assert!(from_file(kind, wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "MiB", "-1", "2TiB", "1 stone", "18446744073709551615k"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_spelling_of_a_duration_and_a_size_is_accepted() {
        for (text, millis) in [
            ("0s", 0),
            ("500ms", 500),
            ("500 ms", 500),
            (" 2s ", 2_000),
            ("2\ts", 2_000),
            ("007s", 7_000),
            ("1.5s", 1_500),
            ("3m", 180_000),
            ("3min", 180_000),
            ("4h", 14_400_000),
            ("30d", 2_592_000_000),
        ] {
            let expected = Duration::from_millis(millis);
            assert_eq!(duration(text, 0, u64::MAX), Ok(expected), "{text}");
        }
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            (" 4096 ", 4096),
            ("4096b", 4096),
            ("4096 B", 4096),
            ("1k", 1 << 10),
            ("1K", 1 << 10),
            ("1kib", 1 << 10),
            ("1KiB", 1 << 10),
            ("64m", 64 << 20),
            ("64 M", 64 << 20),
            ("64MIB", 64 << 20),
            ("2g", 2 << 30),
            ("2GiB", 2 << 30),
            ("3T", 3 << 40),
            ("3 tib", 3 << 40),
            ("5kb", 5_000),
            ("5KB", 5_000),
            ("5MB", 5_000_000),
            ("5 gb", 5_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(bytes(text, 0, u64::MAX), Ok(size), "{text}");
        }
    }

    #[test]
    fn addresses_need_host_and_port() {
        let address = |text: &str| quoted(Kind::HostPort, text);
        for right in [
            "",
            "a:1",
            "10.0.0.1:7400",
            "[::1]:7400",
            "db-1.example.org:65535",
        ] {
            assert!(address(right).is_ok(), "{right}");
        }
        for wrong in ["a", ":7400", "a:", "a:65536", "::1:7400", "a:x"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn variables_and_flags_need_no_quotes() {
        let value = |kind, text: &str| decode(kind, &unquoted(kind, text));
        assert_eq!(value(Kind::Integer(1, 9), "3"), Ok(json!(3)));
        assert_eq!(value(Kind::Bool, "false"), Ok(json!(false)));
        assert_eq!(value(Kind::Text, "3"), Ok(json!("3")));
        let words = vec!["ld.so".to_owned(), "mysqld".to_owned()];
        for list in ["ld.so mysqld", " [\"ld.so\", \"mysqld\"]"] {
            assert_eq!(value(Kind::List, list), Ok(json!(words)));
        }
        for wrong in [
            (Kind::Integer(1, 9), "10"),
            (Kind::Integer(1, 9), "one"),
            (Kind::Bool, "yes"),
            (Kind::List, "[1, 2"),
        ] {
            assert!(value(wrong.0, wrong.1).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_unknown_word_gets_the_nearest_one_as_advice() {
        let kind = Kind::Choice(&["fsync", "os"]);
        let wrong = quoted(kind, "fsinc").expect_err("not a word");
        assert_eq!(wrong.advice, "did you mean `fsync`?");
    }
}
