//! Compares two members' logs byte by byte. Equal logs are equal files.

use std::collections::BTreeSet;

use raft_types::OpId;

use crate::format::FileNumber;
use crate::scan::{Depth, EntryScanner, ScanError, Window};

use super::{DirectoryError, LogDirectory};

/// Bytes that are compared at once.
const PIECE: usize = 256 << 10;

/// One of the two logs that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one on which [`LogDirectory::diff`] was called.
    Left,
    /// The other one.
    Right,
}

/// How a file differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileDifference {
    /// Only one of them has it: not yet, or no more.
    OnlyIn {
        /// The file.
        file: FileNumber,
        /// Who has it.
        side: Side,
    },
    /// One of them has fewer bytes, equal as far as they go.
    Shorter {
        /// The file.
        file: FileNumber,
        /// Who has fewer.
        side: Side,
        /// How many bytes both have.
        common_bytes: u64,
    },
    /// They differ.
    Differs {
        /// The file.
        file: FileNumber,
        /// The first byte that differs.
        offset: u64,
        /// The left log's entry there; `None` in the header or where there is none.
        left: Option<OpId>,
        /// The right log's entry there.
        right: Option<OpId>,
    },
}

impl LogDirectory {
    /// How the files differ, in order; empty when they are equal.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn diff(&self, other: &Self) -> Result<Vec<FileDifference>, DirectoryError> {
        let (left, right): (BTreeSet<_>, BTreeSet<_>) = (
            self.numbers()?.into_iter().collect(),
            other.numbers()?.into_iter().collect(),
        );
        let mut differences = Vec::new();
        for file in left.union(&right).copied() {
            let difference = match (left.contains(&file), right.contains(&file)) {
                (true, false) => Some(FileDifference::OnlyIn {
                    file,
                    side: Side::Left,
                }),
                (false, _) => Some(FileDifference::OnlyIn {
                    file,
                    side: Side::Right,
                }),
                (true, true) => self.diff_file(other, file)?,
            };
            differences.extend(difference);
        }
        Ok(differences)
    }

    fn diff_file(
        &self,
        other: &Self,
        file: FileNumber,
    ) -> Result<Option<FileDifference>, DirectoryError> {
        let (left, left_size) = self.open_raw(file)?;
        let (right, right_size) = other.open_raw(file)?;
        let common_bytes = left_size.min(right_size);
        let (mut ours, mut theirs) = (
            Window::new(&left, common_bytes, PIECE),
            Window::new(&right, common_bytes, PIECE),
        );
        let mut offset = 0;
        while offset < common_bytes {
            let ours = ours
                .bytes(offset, PIECE)
                .map_err(|error| self.scan_error(file, error))?;
            let theirs = theirs
                .bytes(offset, PIECE)
                .map_err(|error| other.scan_error(file, error))?;
            if let Some(at) = ours
                .iter()
                .zip(theirs)
                .position(|(our, their)| our != their)
            {
                let offset = offset + at as u64;
                let (left, right) = (self.entry_at(file, offset)?, other.entry_at(file, offset)?);
                return Ok(Some(FileDifference::Differs {
                    file,
                    offset,
                    left,
                    right,
                }));
            }
            match ours.len().min(theirs.len()) {
                // One of them became shorter meanwhile.
                0 => break,
                equal => offset += equal as u64,
            }
        }
        Ok(match left_size.cmp(&right_size) {
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Less => Some(FileDifference::Shorter {
                file,
                side: Side::Left,
                common_bytes,
            }),
            std::cmp::Ordering::Greater => Some(FileDifference::Shorter {
                file,
                side: Side::Right,
                common_bytes,
            }),
        })
    }

    /// The entry that a byte belongs to, as far as the markers before it can be read.
    fn entry_at(&self, file: FileNumber, offset: u64) -> Result<Option<OpId>, DirectoryError> {
        let open = match self.open_file(file) {
            Ok(open) => open,
            Err(DirectoryError::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let window = Window::new(&open.file, open.size, Window::LOOKUP_BYTES);
        let mut scanner = EntryScanner::new(window, file, open.header.end, open.header.before);
        loop {
            match scanner.next(Depth::Marker) {
                Ok(Some(entry)) if entry.end <= offset => {}
                Ok(Some(entry)) if entry.offset <= offset => return Ok(Some(entry.op_id)),
                Ok(_) | Err(ScanError::Fault(_)) => return Ok(None),
                Err(error) => return Err(self.scan_error(file, error)),
            }
        }
    }
}
