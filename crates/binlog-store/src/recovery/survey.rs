//! Reads the on-disk state before interpreting it: hard state, names, index, headers.

use std::io;
use std::path::Path;
use std::sync::Arc;

use raft_types::{OpId, RingId};

use crate::error::OpenError;
use crate::file_system::{FileSystem, StorageFile, list_if_any, read_file};
use crate::format::{FileHeader, FileNumber, INDEX_NAME, INDEX_TEMPORARY_NAME, parse_index};
use crate::hard_state::{HardState, LogStage, SavedState};
use crate::recovery::decision_table::{IndexState, index_state};
use crate::scan::{Corruption, Fault, ScanError, Window, find_entry_after, scan_header};
use crate::scrub::UNFINISHED;

/// The largest accepted index: a hundred thousand files.
const MAX_INDEX_BYTES: u64 = 4 << 20;

/// A log file and its header. The file is not kept open: a log may have more files than a process may open.
pub(super) struct SurveyedFile {
    pub(super) number: FileNumber,
    pub(super) size: u64,
    pub(super) header: Result<Arc<FileHeader>, Fault>,
}

pub(super) fn open_file(
    fs: &dyn FileSystem,
    dir: &Path,
    number: FileNumber,
) -> Result<Arc<dyn StorageFile>, OpenError> {
    fs.open_read_only(&dir.join(number.name()))
        .map_err(OpenError::io(format!("reading {number}")))
}

/// The on-disk state of a log, apart from the entries in the files.
pub(super) struct Survey {
    pub(super) saved: SavedState,
    /// The log's files, in order. Only the last one may lack a good header.
    pub(super) files: Vec<SurveyedFile>,
    /// Leftover files of a purge.
    pub(super) leftovers: Vec<FileNumber>,
    pub(super) index: IndexState,
    pub(super) has_temporary_index: bool,
    /// Names of unfinished replacement files.
    pub(super) unfinished: Vec<String>,
}

/// Reads the hard state and the log directory.
pub(super) fn survey(
    fs: &dyn FileSystem,
    dir: &Path,
    hard: &HardState,
    ring: RingId,
) -> Result<Survey, OpenError> {
    let saved = hard.read().map_err(|source| match source.kind() {
        io::ErrorKind::InvalidData => OpenError::MetaDamaged(source.to_string()),
        _ => OpenError::io("reading the hard state")(source),
    })?;
    if let Some(found) = saved.log.map(|log| log.ring).filter(|found| *found != ring) {
        return Err(OpenError::ForeignRing {
            found,
            expected: ring,
        });
    }
    let names = list_if_any(fs, dir);
    let mut names = names.map_err(OpenError::io(format!("listing {}", dir.display())))?;
    if saved.start.is_some() {
        // All files will be removed, so their content does not matter.
        names.clear();
    }
    let has = |wanted: &str| names.iter().any(|name| name == wanted);
    let index = match has(INDEX_NAME) {
        true => {
            let read = read_file(fs, &dir.join(INDEX_NAME), MAX_INDEX_BYTES);
            let bytes = read.map_err(OpenError::io(format!("reading {INDEX_NAME}")))?;
            Some(parse_index(&bytes))
        }
        false => None,
    };

    let mut files = Vec::new();
    for number in FileNumber::sorted(&names) {
        let file = survey_file(fs, dir, number, files.last())?;
        files.push(file);
    }
    let floor = saved.floor.as_ref().map(|floor| floor.op_id);
    let leftovers = split_leftovers(&mut files, floor);
    check_chain(dir, &files, floor, saved.log.map(|log| log.stage))?;
    check_headers(fs, dir, &files, ring)?;

    let log: Vec<FileNumber> = files.iter().map(|file| file.number).collect();
    let index = index_state(index.as_ref(), &log);
    let index = index.map_err(|missing| OpenError::file_missing(dir, missing))?;
    let has_temporary_index = has(INDEX_TEMPORARY_NAME);
    names.retain(|name| name.ends_with(UNFINISHED));
    Ok(Survey {
        saved,
        files,
        leftovers,
        index,
        has_temporary_index,
        unfinished: names,
    })
}

/// Reads the header of a file. The headers of all files stay in memory. So the parts of the previous GTIDs that are equal to the preceding
/// file's are stored only once.
fn survey_file(
    fs: &dyn FileSystem,
    dir: &Path,
    number: FileNumber,
    before: Option<&SurveyedFile>,
) -> Result<SurveyedFile, OpenError> {
    let failed = || OpenError::io(format!("reading {number}"));
    let file = open_file(fs, dir, number)?;
    let size = file.size().map_err(failed())?;
    let mut window = Window::new(&file, size, Window::LOOKUP_BYTES);
    let header = match scan_header(&mut window, Some(number)) {
        Ok(mut header) => {
            if let Some(Ok(before)) = before.map(|before| &before.header) {
                header.previous_gtids.share_with(&before.previous_gtids);
            }
            Ok(Arc::new(header))
        }
        Err(ScanError::Fault(fault)) => Err(fault),
        Err(ScanError::Io { source, .. }) => return Err(failed()(source)),
    };
    Ok(SurveyedFile {
        number,
        size,
        header,
    })
}

/// Removes the files that end at or before the purge floor.
fn split_leftovers(files: &mut Vec<SurveyedFile>, floor: Option<OpId>) -> Vec<FileNumber> {
    let begins_at_floor = |file: &SurveyedFile| {
        let before = file.header.as_ref().ok().and_then(|header| header.before);
        before
            .zip(floor)
            .is_some_and(|(before, floor)| before.index <= floor.index)
    };
    let first = files.iter().rposition(begins_at_floor).unwrap_or(0);
    files.drain(..first).map(|file| file.number).collect()
}

/// Checks that the files are consecutive, and begin at the log's start or at the purge floor.
fn check_chain(
    dir: &Path,
    files: &[SurveyedFile],
    floor: Option<OpId>,
    stage: Option<LogStage>,
) -> Result<(), OpenError> {
    for pair in files.windows(2) {
        if pair[0].number.next() != pair[1].number {
            return Err(OpenError::file_missing(dir, pair[0].number.next()));
        }
    }
    let Some(first) = files.first() else {
        return Ok(());
    };
    let complete = match &first.header {
        Ok(header) => match header.before {
            None => first.number == FileNumber::FIRST,
            Some(before) => floor.is_some_and(|floor| before.index <= floor.index),
        },
        // The recorded stage shows whether the first file ever had a complete header.
        Err(_) => stage == Some(LogStage::Creating),
    };
    if complete {
        return Ok(());
    }
    match (&first.header, FileNumber::new(first.number.get() - 1)) {
        (Ok(_), Some(before)) => Err(OpenError::file_missing(dir, before)),
        (Ok(_), None) => Err(corrupt(
            dir,
            first.number,
            Fault::wrong_header("entries before the file"),
        )),
        (Err(fault), _) => Err(corrupt(dir, first.number, fault.clone())),
    }
}

/// Only the last file may lack a good header, and only if no entry was ever written to it.
fn check_headers(
    fs: &dyn FileSystem,
    dir: &Path,
    files: &[SurveyedFile],
    ring: RingId,
) -> Result<(), OpenError> {
    for (at, file) in files.iter().enumerate() {
        match &file.header {
            Ok(header) if header.ring != ring => {
                return Err(OpenError::ForeignRing {
                    found: header.ring,
                    expected: ring,
                });
            }
            Ok(_) => {}
            Err(fault) => {
                let is_last = at + 1 == files.len();
                let open = open_file(fs, dir, file.number)?;
                let has_entries = find_entry_after(&open, file.size, file.number, 0)
                    .map_err(|error| scan_error(dir, file.number, error))?
                    .is_some();
                if !is_last || has_entries {
                    return Err(corrupt(dir, file.number, fault.clone()));
                }
            }
        }
    }
    Ok(())
}

pub(super) fn corrupt(dir: &Path, file: FileNumber, fault: Fault) -> OpenError {
    OpenError::Corrupt(dir.join(file.name()), Corruption { file, fault })
}

pub(super) fn scan_error(dir: &Path, file: FileNumber, error: ScanError) -> OpenError {
    match error {
        ScanError::Fault(fault) => corrupt(dir, file, fault),
        ScanError::Io { source, .. } => OpenError::io(format!("reading {file}"))(source),
    }
}
