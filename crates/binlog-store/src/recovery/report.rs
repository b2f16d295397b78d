//! What opening a log found and did.

use std::fmt;

use raft_types::OpId;

use crate::format::FileNumber;

/// A torn tail that was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailCut {
    /// The file.
    pub file: FileNumber,
    /// Where it ends now.
    pub offset: u64,
    /// Bytes that were cut off.
    pub bytes: u64,
    /// Whether something of them may have been acknowledged.
    pub doubted: bool,
}

/// What opening a log found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The rows of the recovery table that were met, in order; the last one ends with an open log.
    pub cases: Vec<&'static str>,
    /// The row of the index table.
    pub index_case: &'static str,
    /// Files of the log.
    pub files: usize,
    /// The first and the last entry.
    pub bounds: Option<(OpId, OpId)>,
    /// The purge floor.
    pub floor: Option<OpId>,
    /// Entries that were read and verified.
    pub verified_entries: u64,
    /// Bytes that were read and verified.
    pub verified_bytes: u64,
    /// The tail that was cut off.
    pub cut: Option<TailCut>,
    /// The file that was made.
    pub made_file: Option<FileNumber>,
    /// Bytes were cut off, now or at an earlier start, that may have been acknowledged, and that is not settled yet.
    pub doubted: bool,
    /// Files that were left over from a purge and are gone now.
    pub removed_files: Vec<FileNumber>,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}; ", self.cases.join(", then "), self.index_case)?;
        match self.bounds {
            Some((first, last)) => write!(f, "entries {first} to {last} in {} files", self.files)?,
            None => write!(f, "no entries, {} files", self.files)?,
        }
        write!(
            f,
            "; verified {} entries, {} bytes",
            self.verified_entries, self.verified_bytes
        )?;
        if let Some(cut) = self.cut {
            write!(
                f,
                "; cut {} bytes off {} at {}",
                cut.bytes, cut.file, cut.offset
            )?;
            if cut.doubted {
                f.write_str(", which may have been acknowledged")?;
            }
        }
        if self.doubted && self.cut.is_none() {
            f.write_str("; an earlier start cut bytes off which may have been acknowledged")?;
        }
        if let Some(file) = self.made_file {
            write!(f, "; made {file}")?;
        }
        for file in &self.removed_files {
            write!(f, "; removed {file}")?;
        }
        Ok(())
    }
}
