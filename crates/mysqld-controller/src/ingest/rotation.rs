//! When the ring's log begins a new file. Pure.

use binlog_format::event::HEADER_LEN;

use crate::ring::CurrentFile;

/// Why a rotate entry goes before the next transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RotationCause {
    /// The current file has reached its size.
    Size,
    /// The primary writes in another format than the current file announces.
    Format,
}

/// Whether the next transaction should begin a new file. `upstream` is the primary's canonical format
/// description event.
pub(crate) fn rotation_due(
    current: &CurrentFile,
    upstream: &[u8],
    max_file_bytes: u64,
) -> Option<RotationCause> {
    if !same_format(&current.format_description, upstream) {
        Some(RotationCause::Format)
    } else if current.size >= max_file_bytes {
        Some(RotationCause::Size)
    } else {
        None
    }
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

    fn file(size: u64) -> CurrentFile {
        CurrentFile {
            size,
            format_description: FormatDescription::built_in_event().into(),
        }
    }

    #[test]
    fn size_and_format_decide() {
        let built_in = FormatDescription::built_in_event();
        assert_eq!(rotation_due(&file(10), &built_in, 100), None);
        assert_eq!(
            rotation_due(&file(100), &built_in, 100),
            Some(RotationCause::Size)
        );
        let mut later = built_in.clone();
        later[..4].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(
            rotation_due(&file(10), &later, 100),
            None,
            "the time in the header does not matter"
        );
        *later.last_mut().unwrap() ^= 1;
        assert_eq!(
            rotation_due(&file(10), &later, 100),
            Some(RotationCause::Format)
        );
        let empty = CurrentFile {
            size: 0,
            format_description: Bytes::new(),
        };
        assert_eq!(
            rotation_due(&empty, &built_in, 100),
            Some(RotationCause::Format)
        );
    }
}
