//! The disk steps that create a log file and list it in the index. Each is durable on return.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::file_system::{FileSystem, StorageFile, write_file};
use crate::format::{
    FileHeader, FileNumber, INDEX_NAME, INDEX_TEMPORARY_NAME, encode_file_header, render_index,
};
use crate::hard_state::{COMMITTED, DURABLE, FLOOR, HardState, PurgeFloor, START};
use crate::scan::ReceivedStart;

/// A file that has just been created, with its header.
pub(crate) type NewFile = (Arc<dyn StorageFile>, Arc<FileHeader>);

/// Creates a file with its header, durable together with its name.
pub(crate) fn begin_file(
    fs: &dyn FileSystem,
    dir: &Path,
    mut header: FileHeader,
) -> io::Result<NewFile> {
    let bytes = encode_file_header(&mut header);
    let file = write_file(fs, &dir.join(header.number.name()), &bytes)?;
    fs.sync_dir(dir)?;
    Ok((file, Arc::new(header)))
}

/// Replaces the index by a list of these files; the new one is durable before it replaces the old one.
pub(crate) fn write_index(
    fs: &dyn FileSystem,
    dir: &Path,
    files: impl IntoIterator<Item = FileNumber>,
) -> io::Result<()> {
    let temporary = dir.join(INDEX_TEMPORARY_NAME);
    write_file(fs, &temporary, &render_index(files))?;
    fs.rename(&temporary, &dir.join(INDEX_NAME))?;
    fs.sync_dir(dir)
}

impl ReceivedStart {
    /// The floor of a log with this start.
    pub(crate) fn floor(&self) -> PurgeFloor {
        PurgeFloor {
            op_id: self.before,
            membership: self.header.membership.clone(),
        }
    }
}

// Restarts a log with another member's file, in place of all its content. First the new start is recorded in the hard state. From then on
// the old files are ignored. Every start of the member repeats all steps until the record is removed, so a crash during any step does no
// harm.

/// Performs all steps after the record: removes the old files, creates the new one, updates the hard state, and removes the record last.
pub(crate) fn start_over(
    fs: &dyn FileSystem,
    dir: &Path,
    hard: &HardState,
    start: &ReceivedStart,
) -> io::Result<NewFile> {
    for name in fs.list(dir)? {
        let of_the_log = FileNumber::from_name(&name).is_some()
            || name == INDEX_NAME
            || name == INDEX_TEMPORARY_NAME;
        if of_the_log {
            fs.remove(&dir.join(name))?;
        }
    }
    fs.sync_dir(dir)?;
    let number = start.header.number;
    let file = write_file(fs, &dir.join(number.name()), &start.bytes)?;
    fs.sync_dir(dir)?;
    write_index(fs, dir, [number])?;

    hard.put(FLOOR, Some(&start.floor()))?;
    hard.put(COMMITTED, Some(&start.before))?;
    hard.put(DURABLE, None)?;
    hard.store(START, None)?;
    Ok((file, Arc::new(start.header.clone())))
}
