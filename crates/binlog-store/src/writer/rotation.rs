//! The end of one file and the begin of the next. Every step is durable before the next one, so that
//! after a crash at any of them the start finds either the old state or one that it can complete:
//! the rotate entry without its file, the file half made, the file not in the index.

use std::io;
use std::path::Path;
use std::sync::Arc;

use raft_types::{OpId, Rotate};

use crate::error::StoreError;
use crate::file_system::{FileSystem, StorageFile};
use crate::format::{
    FileHeader, FileNumber, HeaderSource, INDEX_NAME, INDEX_TEMPORARY_NAME, encode_file_header,
    render_index,
};
use crate::log::LogFile;
use crate::options::Durability;

use super::log_writer::LogWriter;

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

/// Replaces the index durably.
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

impl LogWriter {
    /// Ends the current file, whose rotate entry is staged, and begins the next one.
    pub(super) fn rotate(&mut self, rotate: &Rotate) -> Result<(), StoreError> {
        // A file that has a successor is durable whatever the configuration: a start must never find
        // a later file without the end of the one before.
        self.flush(Durability::Fsync)?;
        self.tell_waiting();
        self.begin_next(
            self.state.last,
            &rotate.format_description,
            rotate.timestamp,
        )
    }

    /// Begins the file behind the current one and makes it the current one.
    pub(super) fn begin_next(
        &mut self,
        before: Option<OpId>,
        format_description: &bytes::Bytes,
        timestamp: u32,
    ) -> Result<(), StoreError> {
        let number = self.state.header.number.next();
        let doing = |error: &io::Error| StoreError::io(format!("beginning {number}"), error);
        let index = before.map_or(0, |before| before.index);
        let membership = self.view.lock().memberships.at(index).cloned();
        let source = HeaderSource {
            number,
            ring: self.ring,
            before,
            membership: membership.as_ref(),
            previous_gtids: &self.state.gtids,
            format_description,
            timestamp,
        };
        let new = begin_file(&*self.fs, &self.dir, &source).map_err(|error| doing(&error))?;

        let files: Vec<FileNumber> = {
            let view = self.view.lock();
            view.files
                .files()
                .map(LogFile::number)
                .chain([number])
                .collect()
        };
        write_index(&*self.fs, &self.dir, files).map_err(|error| doing(&error))?;

        let mut view = self.view.lock();
        if let Some(file) = view.files.current_mut() {
            file.closed = true;
        }
        view.files.push(LogFile::begin(new.header.clone()));
        drop(view);
        self.state.space.wrote(new.header.end);
        self.state.end = new.header.end;
        self.state.file = new.file;
        self.state.header = new.header;
        Ok(())
    }
}
