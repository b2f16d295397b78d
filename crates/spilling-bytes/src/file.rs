//! One file: written sequentially, then mapped. It has no name, and only this process ever has it open, so no other process
//! can change or truncate the mapped bytes.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::thread;

use bytes::BytesMut;
use filebuffer::FileBuffer;

use crate::folder::SpillFolder;

/// The free space is checked again after this many bytes more than announced.
const LOOK_EVERY: u64 = 64 << 20;

/// A file during writing.
#[derive(Debug)]
pub(crate) struct SpillFile {
    file: File,
    counted: Counted,
    /// The size of the payload for which the disk had room.
    room_for: u64,
}

/// Bytes of a file, counted in the folder's total.
#[derive(Debug)]
struct Counted {
    folder: SpillFolder,
    bytes: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.folder.remove(self.bytes);
    }
}

impl SpillFile {
    /// For a payload of `expected` bytes, which is also written elsewhere on the same disk.
    pub(crate) fn create(folder: &SpillFolder, expected: u64) -> io::Result<Self> {
        folder.check_room(expected, expected)?;
        let counted = Counted {
            folder: folder.clone(),
            bytes: 0,
        };
        Ok(Self {
            file: folder.file()?,
            counted,
            room_for: expected,
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.counted.bytes
    }

    /// Appends; after an error, the file is unchanged.
    pub(crate) fn write(mut self, bytes: &[u8], expected: u64) -> Result<Self, (Self, io::Error)> {
        match self.try_write(bytes, expected) {
            Ok(()) => Ok(self),
            Err(error) => Err((self, error)),
        }
    }

    fn try_write(&mut self, bytes: &[u8], expected: u64) -> io::Result<()> {
        if expected > self.room_for {
            let expected = expected + LOOK_EVERY;
            let folder = &self.counted.folder;
            folder.check_room(expected - self.counted.bytes, expected)?;
            self.room_for = expected;
        }
        self.file.write_all_at(bytes, self.counted.bytes)?;
        self.counted.bytes += bytes.len() as u64;
        self.counted.folder.add(bytes.len() as u64);
        Ok(())
    }

    /// The file's bytes, in memory.
    pub(crate) fn read_back(&self) -> io::Result<BytesMut> {
        let length = usize::try_from(self.len()).map_err(io::Error::other)?;
        let mut bytes = BytesMut::zeroed(length);
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// The file's bytes, mapped. Pages are read on use, and none is locked in memory.
    pub(crate) fn map(self) -> Result<SpilledMap, (Self, io::Error)> {
        // A file without a name can be opened by its descriptor.
        let opened = FileBuffer::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let map = opened.and_then(|map| match map.len() as u64 {
            length if length == self.len() => Ok(map),
            length => Err(io::Error::other(format!(
                "the file has {length} bytes, and {} were written",
                self.len()
            ))),
        });
        match map {
            Ok(map) => Ok(SpilledMap(Some((map, self.counted)))),
            Err(error) => Err((self, error)),
        }
    }
}

/// A mapped file, until it is dropped.
pub(crate) struct SpilledMap(Option<(FileBuffer, Counted)>);

impl AsRef<[u8]> for SpilledMap {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |(map, _)| map)
    }
}

/// Unmapping a gigabyte takes a fraction of a second, and the last user may not be able to wait.
impl Drop for SpilledMap {
    fn drop(&mut self) {
        let map = self.0.take();
        // If no thread can be created, it is dropped here.
        thread::Builder::new()
            .name("spill-drop".to_owned())
            .spawn(move || drop(map))
            .ok();
    }
}
