//! When the ring's log begins a new file. Pure.

use std::time::Duration;

use binlog_format::event::HEADER_LEN;

use crate::ring::CurrentFile;

/// Why a rotate entry goes before the next transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RotationCause {
    /// The current file has reached its size.
    Size,
    /// The current file has reached its age.
    Age,
    /// The primary writes in another format than the current file announces.
    Format,
    /// The primary numbers its transactions anew.
    Clock,
}

/// When a file of the ring's log ends for a transaction that comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimits {
    /// It has so many bytes.
    pub bytes: u64,
    /// It was begun so long ago; `None`: that does not matter.
    pub age: Option<Duration>,
}

/// Whether the next transaction should begin a new file. `upstream` is the primary's canonical format
/// description event, and `now` is in seconds since 1970.
pub(crate) fn rotation_due(
    current: &CurrentFile,
    upstream: &[u8],
    limits: FileLimits,
    now: u32,
) -> Option<RotationCause> {
    // Another leader began the file. If its clock was ahead, the file is old once that is as far away as the limit: it would stay
    // young for as long otherwise.
    let age = Duration::from_secs(now.abs_diff(current.begun).into());
    if !same_format(&current.format_description, upstream) {
        Some(RotationCause::Format)
    } else if current.size >= limits.bytes {
        Some(RotationCause::Size)
    } else if limits.age.is_some_and(|limit| age >= limit) {
        Some(RotationCause::Age)
    } else {
        None
    }
}

/// Whether the primary has begun to number its transactions anew, as with each file of its binlog, between one and the next. Numbers
/// are from 1 on; 0 is a transaction without one.
///
/// By these numbers a replica tells what it may apply side by side, within one file: in which they must rise. That they leave some
/// out, as where another primary goes on, does not matter: it waits there until all before is applied.
pub(crate) fn numbers_begin_anew(last: i64, next: i64) -> bool {
    (1..=last).contains(&next)
}

/// Whether two format description events announce the same. Their headers (time and server) do not matter.
fn same_format(ours: &[u8], theirs: &[u8]) -> bool {
    ours.get(HEADER_LEN..) == theirs.get(HEADER_LEN..)
}

#[cfg(test)]
mod tests {
    use binlog_format::events::FormatDescription;
    use bytes::Bytes;

    use super::*;

    const LIMITS: FileLimits = FileLimits {
        bytes: 100,
        age: Some(Duration::from_secs(60)),
    };
    const NOW: u32 = 10_000;

    fn file(size: u64) -> CurrentFile {
        CurrentFile {
            size,
            begun: NOW,
            format_description: FormatDescription::built_in_event().into(),
        }
    }

    fn due(current: &CurrentFile, upstream: &[u8]) -> Option<RotationCause> {
        rotation_due(current, upstream, LIMITS, NOW)
    }

    #[test]
    fn size_and_format_decide() {
        let built_in = FormatDescription::built_in_event();
        assert_eq!(due(&file(10), &built_in), None);
        assert_eq!(due(&file(100), &built_in), Some(RotationCause::Size));
        let mut later = built_in.clone();
        later[..4].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(
            due(&file(10), &later),
            None,
            "the time in the header does not matter"
        );
        *later.last_mut().unwrap() ^= 1;
        assert_eq!(due(&file(10), &later), Some(RotationCause::Format));
        let empty = CurrentFile {
            format_description: Bytes::new(),
            ..file(0)
        };
        assert_eq!(due(&empty, &built_in), Some(RotationCause::Format));
    }

    #[test]
    fn a_file_ends_where_the_primary_numbers_anew() {
        for (last, next, anew) in [
            (0, 1, false),
            (1, 2, false),
            (7, 50, false),
            (1, 1, true),
            (50, 1, true),
            (50, 50, true),
            // Without a number there is none that it could go back behind.
            (50, 0, false),
            (0, 0, false),
            (0, 50, false),
        ] {
            assert_eq!(numbers_begin_anew(last, next), anew, "{last} {next}");
        }
    }

    #[test]
    fn a_file_ends_with_its_age_also_where_a_clock_was_ahead() {
        let built_in = FormatDescription::built_in_event();
        let begun = |begun| CurrentFile { begun, ..file(10) };
        for young in [NOW - 59, NOW, NOW + 59] {
            assert_eq!(due(&begun(young), &built_in), None, "{young}");
        }
        for old in [0, NOW - 60, NOW + 60, u32::MAX] {
            let cause = due(&begun(old), &built_in);
            assert_eq!(cause, Some(RotationCause::Age), "{old}");
        }
        let ageless = FileLimits {
            age: None,
            ..LIMITS
        };
        assert_eq!(rotation_due(&begun(0), &built_in, ageless, NOW), None);
    }
}
