//! The text form of GTIDs and GTID sets: `source:1-5:7:tag:1-3,source:…`. As in MySQL, input may contain white space, upper or lower case,
//! empty items, and intervals in any order.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use uuid::Uuid;

use crate::decode::{self, Cursor, DecodeError, ensure, invalid};
use crate::gtid::set::UnsortedIntervals;
use crate::gtid::{Gno, Gtid, GtidSet, Interval, SourceId, Tag};

/// Text that is not a GTID set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{item}` is not a GTID set: {reason}; write it as SOURCE-UUID:1-5:7 or SOURCE-UUID:tag:1-5"
)]
pub struct ParseGtidError {
    item: String,
    reason: &'static str,
}

impl ParseGtidError {
    fn new(item: &str, reason: &'static str) -> Self {
        const SHOWN: usize = 80;
        let mut shown: String = item.chars().take(SHOWN).collect();
        if shown.len() < item.len() {
            shown.push('…');
        }
        Self {
            item: shown,
            reason,
        }
    }
}

/// Prints the set as one line. `{:#}` prints each source on its own line, as the server does.
impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if f.alternate() { ",\n" } else { "," };
        let mut written: Option<SourceId> = None;
        for (source, tag, intervals) in self.parts() {
            if written != Some(source) {
                if written.is_some() {
                    f.write_str(separator)?;
                }
                source.fmt(f)?;
                written = Some(source);
            }
            if !tag.is_none() {
                write!(f, ":{tag}")?;
            }
            for interval in intervals {
                write!(f, ":{}", interval.first())?;
                if interval.last() != interval.first() {
                    write!(f, "-{}", interval.last())?;
                }
            }
        }
        Ok(())
    }
}

impl FromStr for GtidSet {
    type Err = ParseGtidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut intervals = UnsortedIntervals::default();
        for item in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            add_item(&mut intervals, item)?;
        }
        Ok(intervals.into_set())
    }
}

/// Parses one source with its tags and intervals. As in MySQL, a source or a tag without intervals adds nothing.
fn add_item(intervals: &mut UnsortedIntervals, item: &str) -> Result<(), ParseGtidError> {
    let refuse = |reason| ParseGtidError::new(item, reason);
    let mut fields = item.split(':').map(str::trim);
    let source = fields.next().and_then(parse_source);
    let source = source.ok_or_else(|| refuse("it does not begin with a UUID"))?;
    let mut tag = Tag::NONE;
    for field in fields {
        if field.starts_with(|c: char| c.is_ascii_digit()) {
            let interval = parse_interval(field)
                .ok_or_else(|| refuse("an interval is malformed or out of range"))?;
            if let Some(interval) = interval {
                intervals.add(source, tag, interval);
            }
        } else if field.is_empty() {
            return Err(refuse("an interval is missing after a colon"));
        } else {
            let named = Tag::new(field.as_bytes());
            tag = named.map_err(|_| refuse("a tag is too long or has a wrong character"))?;
        }
    }
    Ok(())
}

fn parse_source(text: &str) -> Option<SourceId> {
    let hexadecimal = text.starts_with(|c: char| c == '{' || c.is_ascii_hexdigit());
    let uuid = hexadecimal.then(|| Uuid::try_parse(text).ok()).flatten();
    uuid.map(SourceId)
}

/// Parses an interval. `Some(None)` is an interval that ends before it begins, which MySQL treats as empty.
fn parse_interval(text: &str) -> Option<Option<Interval>> {
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (first.trim_end(), last.trim_start()),
        None => (text, text),
    };
    let (first, last) = (Gno::new(parse_number(first)?)?, parse_number(last)?);
    match Gno::new(last) {
        Some(last) => Some(Interval::new(first, last)),
        None => (last == 0).then_some(None),
    }
}

fn parse_number(text: &str) -> Option<u64> {
    // `parse` would also accept a plus sign.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

impl FromStr for Gtid {
    type Err = ParseGtidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let set: GtidSet = text.parse()?;
        let mut gtids = set.iter();
        match (gtids.next(), gtids.next()) {
            (Some(gtid), None) => Ok(gtid),
            _ => Err(ParseGtidError::new(text, "it is not exactly one GTID")),
        }
    }
}

// The binary form of GTID sets, which PREVIOUS_GTIDS events and dump requests contain.
//
// ```text
// classic  u64 sources
// tagged   u64: byte 0 and byte 7 are 1, the six bytes between are the number of (source, tag) pairs
// then for each source (or pair): 16 bytes of source; [tagged: tag length, tag];
//          u64 intervals; for each: u64 first, u64 after the last
// ```

const TAGGED_MARK: u64 = 1 << 56 | 1;

/// Which of the two binary forms to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GtidSetFormat {
    /// MySQL's choice: [`Self::Tagged`] if the set has a tag, otherwise [`Self::Classic`].
    Automatic,
    /// The form of servers before 8.3. Omits tagged GTIDs.
    Classic,
    /// The form of 8.3 and later.
    Tagged,
}

impl GtidSet {
    /// Encodes the set in a binary form. Equal sets have equal bytes.
    pub fn encode(&self, format: GtidSetFormat) -> Vec<u8> {
        let tagged = match format {
            GtidSetFormat::Automatic => self.has_tags(),
            GtidSetFormat::Classic => false,
            GtidSetFormat::Tagged => true,
        };
        let mut out = vec![0; 8];
        let mut pairs = 0_u64;
        for (source, tag, intervals) in self.parts() {
            if !tagged && !tag.is_none() {
                continue;
            }
            pairs += 1;
            out.extend_from_slice(source.as_bytes());
            if tagged {
                decode::put_string(&mut out, tag.as_bytes());
            }
            out.extend_from_slice(&(intervals.len() as u64).to_le_bytes());
            for interval in intervals {
                out.extend_from_slice(&interval.first().get().to_le_bytes());
                out.extend_from_slice(&(interval.last().get() + 1).to_le_bytes());
            }
        }
        let head = match tagged {
            true => TAGGED_MARK | pairs << 8,
            false => pairs,
        };
        out[..8].copy_from_slice(&head.to_le_bytes());
        out
    }

    /// Decodes either binary form. Memory is proportional to the input.
    ///
    /// # Errors
    /// When the bytes are truncated or continue after the set, or an interval is empty, unsorted or out of range.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut cursor = Cursor::new(bytes);
        let head = cursor.u64("GTID set head")?;
        let (tagged, pairs) = match head >> 56 {
            0 => (false, head),
            1 => (true, head << 8 >> 16),
            _ => return Err(invalid("GTID set head", "an unknown format")),
        };
        let mut intervals = UnsortedIntervals::default();
        for _ in 0..pairs {
            let source = SourceId::from_bytes(cursor.array("GTID source")?);
            let tag = match tagged {
                true => Tag::new(decode::string(&mut cursor, "GTID tag")?)?,
                false => Tag::NONE,
            };
            decode_intervals(&mut cursor, |interval| intervals.add(source, tag, interval))?;
        }
        cursor.finish("the GTID set")?;
        Ok(intervals.into_set())
    }
}

fn decode_intervals(
    cursor: &mut Cursor<'_>,
    mut each: impl FnMut(Interval),
) -> Result<(), DecodeError> {
    let count = cursor.u64("GTID interval count")?;
    // Lower bound of the next interval.
    let mut floor = 0;
    for _ in 0..count {
        let first = cursor.i64("GTID interval")?;
        let end = cursor.i64("GTID interval")?;
        let in_order = floor < first && first < end;
        let reason = "intervals are empty or not in order";
        ensure(in_order, "GTID interval", reason)?;
        floor = end;
        let interval = Interval::new(Gno::from_signed(first)?, Gno::from_signed(end - 1)?);
        each(interval.ok_or(invalid("GTID interval", "it is empty"))?);
    }
    Ok(())
}

/// Parses `@@global.gtid_owned`: the GTIDs that sessions own and have not executed yet. In the text, `#` and thread ids follow each GTID.
///
/// # Errors
/// When the text without the thread ids is not a GTID set.
pub fn parse_gtid_owned(text: &str) -> Result<GtidSet, ParseGtidError> {
    let owners = parse_gtid_owners(text)?;
    Ok(owners.into_iter().map(|(gtid, _)| gtid).collect())
}

/// As [`parse_gtid_owned`], but returns each GTID with the thread ids of its owners.
///
/// # Errors
/// As [`parse_gtid_owned`].
pub fn parse_gtid_owners(text: &str) -> Result<Vec<(Gtid, Vec<u32>)>, ParseGtidError> {
    let mut all = Vec::new();
    for item in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        let mut fields = item.split(':').map(str::trim);
        let mut source = fields.next().unwrap_or_default().to_owned();
        for field in fields {
            if !field.starts_with(|c: char| c.is_ascii_digit()) {
                // The field is a tag, which applies to the following intervals.
                let uuid = source.split(':').next().unwrap_or_default();
                source = format!("{uuid}:{field}");
                continue;
            }
            let mut parts = field.split('#');
            let number = parts.next().unwrap_or_default();
            let owners = parts.map(|id| id.trim().parse::<u32>());
            let owners: Result<Vec<_>, _> = owners.collect();
            let owners = owners.map_err(|_| ParseGtidError::new(item, "an owner is no number"))?;
            let gtid = format!("{source}:{number}").parse::<Gtid>()?;
            all.push((gtid, owners));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_set_in_descending_order_parses_as_fast() {
        // If the intervals were added one at a time, each would move all others: 600 gigabytes in total.
        const INTERVALS: u64 = 300_000;
        let source = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let numbers = || (1..=INTERVALS).rev().map(|number| 3 * number);
        let mut text = source.to_owned();
        let mut binary = INTERVALS.to_le_bytes().to_vec();
        for number in numbers() {
            let _ = write!(text, ":{number}");
            binary.extend([0xaa; 16]);
            binary.extend([1, number, number + 1].map(u64::to_le_bytes).concat());
        }
        let began = Instant::now();
        let of_text: GtidSet = text.parse().unwrap();
        let of_binary = GtidSet::decode(&binary).unwrap();
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(of_text, of_binary);
        assert_eq!(of_text.count(), u128::from(INTERVALS));
        let first = of_text.iter().next().map(|gtid| gtid.gno.get());
        assert_eq!(first, Some(3));
    }

    #[test]
    fn owners_are_left_out() {
        let uuid = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let other = "bbbbbbbb-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
        let parse = |text: &str| parse_gtid_owned(text).map(|set| set.to_string());
        assert_eq!(parse(""), Ok(String::new()));
        assert_eq!(parse(&format!("{uuid}:7#17")), Ok(format!("{uuid}:7")));
        assert_eq!(
            parse(&format!("{uuid}:7#17#18:9#3")),
            Ok(format!("{uuid}:7:9"))
        );
        assert_eq!(
            parse(&format!("{uuid}:red:9#18,\n{other}:1#2")),
            Ok(format!("{uuid}:red:9,{other}:1"))
        );
        let owners = |text: &str| {
            let owners = parse_gtid_owners(text).unwrap().into_iter();
            owners
                .map(|(gtid, owners)| (gtid.to_string(), owners))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            owners(&format!("{uuid}:7#17#18:9#3:red:4#5,\n{other}:1#2")),
            [
                (format!("{uuid}:7"), vec![17, 18]),
                (format!("{uuid}:9"), vec![3]),
                (format!("{uuid}:red:4"), vec![5]),
                (format!("{other}:1"), vec![2]),
            ]
        );
        assert!(parse_gtid_owners(&format!("{uuid}:7#x")).is_err());
    }
}
