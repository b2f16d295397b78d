//! When the ring's log begins a new file. Pure.

use std::time::Duration;

use binlog_format::event::HEADER_LEN;

use crate::ring::CurrentFile;

/// Why a rotate entry precedes the next transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RotationCause {
    /// The current file has reached its size.
    Size,
    /// The current file has reached its age.
    Age,
    /// The primary's format differs from the one that the current file announces.
    Format,
    /// The primary restarts its sequence numbers.
    Clock,
}

/// Limits at which a file of the ring's log ends before the next transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimits {
    /// Maximum size in bytes.
    pub bytes: u64,
    /// Maximum age; `None`: unlimited.
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
    // Another leader began the file. If its clock was ahead by the limit or more, the file counts as old: otherwise it would stay young for
    // that long.
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

/// Whether the primary restarted its sequence numbers between these two, as with each binlog file. Numbers start at 1; 0 is a transaction
/// without one.
///
/// A replica uses them to find transactions that it may apply in parallel within one file, where they must rise. Gaps are harmless, as
/// after a change of the primary: the replica waits there until everything before is applied.
pub(crate) fn numbers_begin_anew(last: i64, next: i64) -> bool {
    (1..=last).contains(&next)
}

/// Whether two format description events announce the same format. Their headers (time and server) do not matter.
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
            // Without a number, it cannot decrease.
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
