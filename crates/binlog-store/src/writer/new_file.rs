//! The steps on the disk that make a file of the log and name it in the index. Each is durable when it returns.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::file_system::{FileSystem, StorageFile};
use crate::format::{
    FileHeader, FileNumber, HeaderSource, INDEX_NAME, INDEX_TEMPORARY_NAME, encode_file_header,
    render_index,
};
use crate::meta::hard_state::{HardState, PurgeFloor};
use crate::scan::ReceivedStart;

/// A file that has just been begun.
pub(crate) struct NewFile {
    pub(crate) file: Arc<dyn StorageFile>,
    pub(crate) header: Arc<FileHeader>,
}

/// Creates a file with its header, durable together with its name.
pub(crate) fn begin_file(
    fs: &dyn FileSystem,
    dir: &Path,
    source: &HeaderSource<'_>,
) -> io::Result<NewFile> {
    let (bytes, header) = encode_file_header(source);
    let file = fs.create(&dir.join(header.number.name()))?;
    file.write_at(&bytes, 0)?;
    file.sync_data()?;
    fs.sync_dir(dir)?;
    Ok(NewFile {
        file,
        header: Arc::new(header),
    })
}

/// Replaces the index by a list of these files; the new one is durable before it takes the old one's place.
pub(crate) fn write_index(
    fs: &dyn FileSystem,
    dir: &Path,
    files: impl IntoIterator<Item = FileNumber>,
) -> io::Result<()> {
    let temporary = dir.join(INDEX_TEMPORARY_NAME);
    let file = fs.create(&temporary)?;
    file.write_at(&render_index(files), 0)?;
    file.sync_data()?;
    fs.rename(&temporary, &dir.join(INDEX_NAME))?;
    fs.sync_dir(dir)
}

impl ReceivedStart {
    /// The floor of a log that begins so.
    pub(crate) fn floor(&self) -> PurgeFloor {
        PurgeFloor {
            op_id: self.before,
            membership: self.header.membership.clone(),
        }
    }
}

// A log that begins with a file that another member has, in place of all that it had: first the new start is noted in the
// hard state; from then on the old files count for nothing, and every start of the member does all steps again until the note
// is gone. So it does not matter in which of them a crash comes, nor what the files look like then.

/// Does everything that comes after the note: the old files go, the new one is made, the hard state is
/// set to it, and the note goes last.
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
    let file = fs.create(&dir.join(number.name()))?;
    file.write_at(&start.bytes, 0)?;
    file.sync_data()?;
    fs.sync_dir(dir)?;
    write_index(fs, dir, [number])?;

    hard.put_floor(&start.floor())?;
    hard.put_committed(Some(start.before))?;
    hard.put_durable(None)?;
    hard.put_start(None)?;
    hard.flush()?;
    Ok(NewFile {
        file,
        header: Arc::new(start.header.clone()),
    })
}
