//! Checks each key on its own: parses a raw value as the key's kind, within its bounds (`rules` checks combinations). Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use parse_size::parse_size;
use raft_types::{AddressMistake, host_and_port};
use uuid::Uuid;

use crate::config::key::{Fallback, Key, Kind};
use crate::config::keys::{KEYS, MEMBER_KEYS, MEMBERS};
use crate::config::layers::{Layers, Node, Raw, default_of};
use crate::config::problem::{Place, Problems, listed, nearest};

/// A value of one of the kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Typed {
    Text(String),
    Number(u64),
    Bool(bool),
    Duration(Duration),
    List(Vec<String>),
    Uuid(Option<Uuid>),
}

/// A mistake in a value, and the correction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) message: String,
    pub(crate) advice: String,
}

fn mistake<T>(message: impl Into<String>, advice: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake {
        message: message.into(),
        advice: advice.into(),
    })
}

/// Parses a value as the kind demands. Values from the environment or a flag have no quotes.
pub(crate) fn decode(kind: Kind, node: &Node) -> Result<Typed, Mistake> {
    let unquoted = !matches!(node.place, Place::File { .. } | Place::Default);
    match (&node.value, kind) {
        (Raw::Text(text), Kind::Integer { .. } | Kind::Bool | Kind::List) if unquoted => {
            decode_unquoted(kind, text)
        }
        (Raw::Integer(number), Kind::Integer { min, max } | Kind::Bytes { min, max }) => {
            within(*number, min, max).map(Typed::Number)
        }
        (Raw::Bool(value), Kind::Bool) => Ok(Typed::Bool(*value)),
        (Raw::Array(items), Kind::List) => {
            let text = |item: &Node| match &item.value {
                Raw::Text(text) => Ok(text.clone()),
                other => mistake(
                    format!("the list holds {}", other.describe()),
                    "write every item in quotes",
                ),
            };
            items
                .iter()
                .map(text)
                .collect::<Result<_, _>>()
                .map(Typed::List)
        }
        (Raw::Text(text), _) => decode_text(kind, text),
        (Raw::Integer(number), Kind::Duration { .. }) => mistake(
            format!("{number} has no unit"),
            format!("write \"{number}ms\" or \"{number}s\""),
        ),
        (other, _) => mistake(
            format!(
                "{} stands where {} is expected",
                other.describe(),
                expected(kind)
            ),
            sample(kind),
        ),
    }
}

fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Integer { .. } => "a number",
        Kind::Bool => "`true` or `false`",
        Kind::Duration { .. } => "a duration",
        Kind::Bytes { .. } => "a size",
        Kind::List => "a list of texts",
        _ => "a text",
    }
}

fn sample(kind: Kind) -> String {
    match kind {
        Kind::Integer { .. } => "write a whole number without quotes".into(),
        Kind::Bool => "write true or false without quotes".into(),
        Kind::Duration { .. } => "write a number and a unit, as in \"500ms\" or \"3s\"".into(),
        Kind::Bytes { .. } => "write a number of bytes, or a text such as \"64MiB\"".into(),
        Kind::List => "write a list, as in [\"one\", \"two\"]".into(),
        Kind::Choice(words) => format!("write one of {}, in quotes", listed(words.iter().copied())),
        Kind::HostPort => "write \"host:port\", as in \"10.0.0.1:7400\"".into(),
        Kind::Uuid => "write a UUID in quotes".into(),
        Kind::Text | Kind::Name | Kind::File | Kind::Directory => "write it in quotes".into(),
    }
}

fn decode_unquoted(kind: Kind, text: &str) -> Result<Typed, Mistake> {
    match kind {
        Kind::Integer { min, max } => match text.trim().parse() {
            Ok(number) => within(number, min, max).map(Typed::Number),
            Err(_) => mistake(format!("`{text}` is not a number"), "write a whole number"),
        },
        Kind::Bool => match text.trim() {
            "true" => Ok(Typed::Bool(true)),
            "false" => Ok(Typed::Bool(false)),
            _ => mistake(
                format!("`{text}` is neither true nor false"),
                "write true or false",
            ),
        },
        _ => Ok(Typed::List(
            text.split_whitespace().map(str::to_owned).collect(),
        )),
    }
}

fn decode_text(kind: Kind, text: &str) -> Result<Typed, Mistake> {
    match kind {
        Kind::Text | Kind::File | Kind::Directory => Ok(Typed::Text(text.to_owned())),
        Kind::Name => name(text),
        Kind::Choice(words) => choice(words, text),
        Kind::Duration { min, max } => duration(text, min, max),
        Kind::Bytes { min, max } => bytes(text, min, max),
        Kind::HostPort => host_port(text),
        Kind::Uuid if text.is_empty() => Ok(Typed::Uuid(None)),
        Kind::Uuid => match Uuid::parse_str(text) {
            Ok(uuid) => Ok(Typed::Uuid(Some(uuid))),
            Err(_) => mistake(
                format!("`{text}` is not a UUID"),
                "write it as in \"3e11fa47-71ca-11e1-9e33-c80aa9429562\"",
            ),
        },
        Kind::Integer { .. } | Kind::Bool | Kind::List => mistake(
            format!("a text stands where {} is expected", expected(kind)),
            sample(kind),
        ),
    }
}

fn within(number: i128, min: u64, max: u64) -> Result<u64, Mistake> {
    match u64::try_from(number) {
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

fn name(text: &str) -> Result<Typed, Mistake> {
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
        Ok(Typed::Text(text.to_owned()))
    }
}

fn choice(words: &[&str], text: &str) -> Result<Typed, Mistake> {
    if words.contains(&text) {
        return Ok(Typed::Text(text.to_owned()));
    }
    let advice = match nearest(text, words.iter().copied()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("write one of {}", listed(words.iter().copied())),
    };
    mistake(
        format!("`{text}` is not one of {}", listed(words.iter().copied())),
        advice,
    )
}

fn duration(text: &str, min: u64, max: u64) -> Result<Typed, Mistake> {
    // For humantime, `M` is a month, but the operator may well mean minutes.
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
    if (u128::from(min)..=u128::from(max)).contains(&duration.as_millis()) {
        return Ok(Typed::Duration(duration));
    }
    mistake(
        format!("`{text}` is out of bounds"),
        format!("write a duration from {min}ms to {}", long_form(max)),
    )
}

/// Parses a duration on the command line, from a millisecond to a day.
pub(crate) fn duration_of(text: &str) -> Result<Duration, String> {
    match duration(text, 1, 86_400_000) {
        Ok(Typed::Duration(duration)) => Ok(duration),
        Ok(_) => Err(format!("`{text}` is not a duration")),
        Err(mistake) => Err(format!("{}; {}", mistake.message, mistake.advice)),
    }
}

/// Parses a retention time on the command line, with the bounds of `archive.keep`.
pub(crate) fn keep_of(text: &str) -> Result<Duration, String> {
    match duration(text, 0, 100 * 365 * 86_400_000) {
        Ok(Typed::Duration(duration)) => Ok(duration),
        Ok(_) => Err(format!("`{text}` is not a duration")),
        Err(mistake) => Err(format!("{}; {}", mistake.message, mistake.advice)),
    }
}

/// Parses the address of a member on the command line.
pub(crate) fn address_of(text: &str) -> Result<String, String> {
    match host_port(text) {
        Ok(_) if text.is_empty() => Err("the address is empty".to_owned()),
        Ok(_) => Ok(text.to_owned()),
        Err(mistake) => Err(format!("{}; {}", mistake.message, mistake.advice)),
    }
}

/// Parses a size on the command line.
pub(crate) fn bytes_of(text: &str) -> Result<u64, String> {
    match bytes(text, 0, u64::MAX) {
        Ok(Typed::Number(size)) => Ok(size),
        Ok(_) => Err(format!("`{text}` is not a size")),
        Err(mistake) => Err(format!("{}; {}", mistake.message, mistake.advice)),
    }
}

fn long_form(millis: u64) -> String {
    if millis.is_multiple_of(60_000) && millis > 0 {
        format!("{}m", millis / 60_000)
    } else if millis.is_multiple_of(1_000) && millis > 0 {
        format!("{}s", millis / 1_000)
    } else {
        format!("{millis}ms")
    }
}

fn bytes(text: &str, min: u64, max: u64) -> Result<Typed, Mistake> {
    // `64M` is 64 MiB, as in mysqld's options; `64MB` is 64 decimal megabytes.
    let letter = |c: char| matches!(c.to_ascii_lowercase(), 'k' | 'm' | 'g' | 't');
    let unit = if text.trim().ends_with(letter) {
        "iB"
    } else {
        ""
    };
    match parse_size(format!("{}{unit}", text.trim())) {
        Ok(size) if (min..=max).contains(&size) => Ok(Typed::Number(size)),
        Ok(_) | Err(parse_size::Error::PosOverflow) => mistake(
            format!("`{text}` is out of bounds"),
            format!("write a size from {min} to {max} bytes"),
        ),
        Err(_) => mistake(
            format!("`{text}` is not a size"),
            sample(Kind::Bytes { min, max }),
        ),
    }
}

fn host_port(text: &str) -> Result<Typed, Mistake> {
    if text.is_empty() {
        return Ok(Typed::Text(String::new()));
    }
    match host_and_port(text) {
        Ok(_) => Ok(Typed::Text(text.to_owned())),
        Err(no_port @ AddressMistake::NotAPort(_)) => mistake(
            no_port.to_string(),
            "write a number from 1 to 65535 after the colon",
        ),
        Err(other) => mistake(other.to_string(), sample(Kind::HostPort)),
    }
}

// Every key's value after its own check: right kind, within bounds, not missing. [`super::rules`]
// checks combinations of keys. A key with a wrong value has none here, so the rules about it are
// skipped.

/// The values of one set of keys: the single keys, or those of one member.
#[derive(Debug)]
pub(crate) struct Values {
    /// Where to report a missing key of this set.
    pub(crate) place: Place,
    known: BTreeMap<&'static str, (Option<Typed>, Place)>,
}

macro_rules! getter {
    ($(#[$doc:meta])* $name:ident, $variant:ident, $type:ty) => {
        $(#[$doc])*
        pub(crate) fn $name(&self, path: &str) -> Option<$type> {
            match self.known.get(path) {
                Some((Some(Typed::$variant(value)), _)) => Some(value.clone()),
                _ => None,
            }
        }
    };
}

impl Values {
    getter! {
        /// The text of a key.
        text, Text, String
    }
    getter! {
        /// The number of a key.
        number, Number, u64
    }
    getter! {
        /// The flag of a key.
        bool, Bool, bool
    }
    getter! {
        /// The duration of a key.
        duration, Duration, Duration
    }
    getter! {
        /// The list of a key.
        list, List, Vec<String>
    }
    getter! {
        /// The UUID of a key; the inner `None` is an empty one.
        uuid, Uuid, Option<Uuid>
    }

    /// Where the value of a key came from.
    pub(crate) fn place_of(&self, path: &str) -> &Place {
        self.known.get(path).map_or(&self.place, |(_, place)| place)
    }

    /// Where to report a problem with a key: at its value, or at the set when no source gives one.
    pub(crate) fn report_at(&self, path: &str) -> &Place {
        match self.place_of(path) {
            Place::Default => &self.place,
            place => place,
        }
    }

    /// All values, without their places.
    pub(super) fn typed(&self) -> BTreeMap<&'static str, Option<Typed>> {
        let known = self.known.iter();
        known
            .map(|(path, (value, _))| (*path, value.clone()))
            .collect()
    }

    fn take(
        &mut self,
        key: &'static Key,
        node: Option<Node>,
        missing: Place,
        problems: &mut Problems,
    ) {
        let Some(node) = node else {
            let advice = format!("add a line `{} = …`. {}", key.name(), key.meaning);
            problems.error(
                &missing,
                key.path,
                format!("`{}` is missing", key.path),
                advice,
            );
            self.known.insert(key.path, (None, missing));
            return;
        };
        let value = match decode(key.kind, &node) {
            Ok(value) => Some(value),
            Err(mistake) => {
                let shown = if key.secret {
                    "the value is not usable"
                } else {
                    &mistake.message
                };
                problems.error(
                    &node.place,
                    key.path,
                    format!("`{}`: {shown}", key.path),
                    mistake.advice,
                );
                None
            }
        };
        self.known.insert(key.path, (value, node.place));
    }
}

/// Every key's value, checked on its own.
pub(crate) fn check(layers: &Layers, problems: &mut Problems) -> (Values, Vec<Values>) {
    let whole = layers.whole.clone().unwrap_or(Place::Default);
    let mut values = Values {
        place: whole.clone(),
        known: BTreeMap::new(),
    };
    for key in KEYS {
        values.take(key, layers.value(key), layers.missing_from(key), problems);
    }
    let mut members = Vec::new();
    for layer in &layers.members {
        let mut member = Values {
            place: layer.place.clone(),
            known: BTreeMap::new(),
        };
        for key in MEMBER_KEYS {
            let given = layer
                .values
                .iter()
                .find(|(known, _)| known.path == key.path);
            let node = given
                .map(|(_, node)| node.clone())
                .or_else(|| default_of(key));
            member.take(key, node, layer.place.clone(), problems);
        }
        members.push(member);
    }
    if layers.members.is_empty() {
        let place = layers.members_place.clone().unwrap_or(whole);
        problems.error(
            &place,
            MEMBERS,
            "no member is listed",
            "add a [[members]] entry for every member of the ring, this one included",
        );
    }
    (values, members)
}

/// The default of a key as the documentation shows it; `None` when it must be given.
pub(crate) fn default_text(key: &Key) -> Option<&'static str> {
    match key.fallback {
        Fallback::Required => None,
        Fallback::Value(text) => Some(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_file(kind: Kind, value: Raw) -> Result<Typed, Mistake> {
        decode(
            kind,
            &Node {
                place: Place::Default,
                value,
            },
        )
    }

    #[test]
    fn durations_have_units_and_bounds() {
        let kind = Kind::Duration {
            min: 10,
            max: 60_000,
        };
        let ok = |text: &str| from_file(kind, Raw::Text(text.into()));
        assert_eq!(ok("500ms"), Ok(Typed::Duration(Duration::from_millis(500))));
        assert_eq!(ok("2 s"), Ok(Typed::Duration(Duration::from_secs(2))));
        assert_eq!(ok("1m"), Ok(Typed::Duration(Duration::from_secs(60))));
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
        let bare = from_file(kind, Raw::Integer(500)).expect_err("a unit is missing");
        assert!(bare.advice.contains("500ms"), "{}", bare.advice);
    }

    #[test]
    fn sizes_are_numbers_or_have_units() {
        let kind = Kind::Bytes {
            min: 0,
            max: 1 << 40,
        };
        let size = |text: &str| from_file(kind, Raw::Text(text.into()));
        assert_eq!(size("64MiB"), Ok(Typed::Number(64 << 20)));
        assert_eq!(size("64M"), Ok(Typed::Number(64 << 20)));
        assert_eq!(size("1gb"), Ok(Typed::Number(1_000_000_000)));
        assert_eq!(from_file(kind, Raw::Integer(4096)), Ok(Typed::Number(4096)));
        for wrong in ["", "MiB", "-1", "2TiB", "1 stone", "18446744073709551615k"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_spelling_of_a_duration_and_a_size_is_taken() {
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
            assert_eq!(
                duration(text, 0, u64::MAX),
                Ok(Typed::Duration(expected)),
                "{text}"
            );
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
            assert_eq!(bytes(text, 0, u64::MAX), Ok(Typed::Number(size)), "{text}");
        }
    }

    #[test]
    fn addresses_need_host_and_port() {
        let address = |text: &str| from_file(Kind::HostPort, Raw::Text(text.into()));
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
    fn the_environment_needs_no_quotes() {
        let place = Place::Environment {
            variable: "X".into(),
        };
        let value = |kind, text: &str| {
            decode(
                kind,
                &Node {
                    place: place.clone(),
                    value: Raw::Text(text.into()),
                },
            )
        };
        assert_eq!(
            value(Kind::Integer { min: 1, max: 9 }, "3"),
            Ok(Typed::Number(3))
        );
        assert_eq!(value(Kind::Bool, "false"), Ok(Typed::Bool(false)));
        assert_eq!(
            value(Kind::List, "ld.so mysqld"),
            Ok(Typed::List(vec!["ld.so".into(), "mysqld".into()]))
        );
        assert!(value(Kind::Integer { min: 1, max: 9 }, "10").is_err());
        assert!(value(Kind::Bool, "yes").is_err());
    }

    #[test]
    fn a_word_that_is_not_offered_gets_the_nearest_one() {
        let kind = Kind::Choice(&["fsync", "os"]);
        let wrong = from_file(kind, Raw::Text("fsinc".into())).expect_err("not a word");
        assert_eq!(wrong.advice, "did you mean `fsync`?");
    }
}
