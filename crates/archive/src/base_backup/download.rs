//! Downloads a base backup, or reads it only to verify it. Memory is bounded, whatever the objects contain.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::manifest::{BaseForm, BaseManifest, Tar};
use super::unpack::{Extent, Nowhere, Place, unpack};
use super::{BaseError, of_storage};
use crate::encryption::{Encryption, EncryptionError, Identities};
use crate::manifest::Object;
use crate::sealed::{Hashed, MOST_WINDOW_LOG};
use crate::storage::{Download, Storage};

/// Unpacks a base backup into a directory, which must not exist or must be empty. On return, every byte is verified and synced. `progress`
/// receives the number of bytes written to files; if it returns `Break`, the download stops.
///
/// # Errors
/// When a part is damaged or missing, the backup is only registered, or a write to this host's disk fails. The written files are then
/// unusable.
pub async fn download(
    storage: &Storage,
    manifest: &BaseManifest,
    identities: &Identities,
    into: &Path,
    progress: impl FnMut(u64) -> ControlFlow<()> + Send + 'static,
) -> Result<(), BaseError> {
    // Checked before any directory is created.
    tar_of(manifest)?;
    make_empty(into, DIRECTORY_MODE)?;
    let target = Target {
        into: into.to_owned(),
        made: Vec::new(),
    };
    read_all(storage, manifest, identities, target, progress).await
}

/// Reads all of a base backup and verifies every byte and entry, without writing them.
///
/// # Errors
/// When a part is damaged or missing, or the backup is only registered.
pub async fn verify(
    storage: &Storage,
    manifest: &BaseManifest,
    identities: &Identities,
    progress: impl FnMut(u64) -> ControlFlow<()> + Send + 'static,
) -> Result<(), BaseError> {
    read_all(storage, manifest, identities, Nowhere, progress).await
}

/// The tar stream of a base backup with its data in the archive.
fn tar_of(manifest: &BaseManifest) -> Result<Tar, BaseError> {
    match (&manifest.form, manifest.tar) {
        (BaseForm::Registered { tool, place }, _) => Err(BaseError::Registered {
            name: manifest.name,
            tool: tool.clone(),
            place: place.clone(),
        }),
        (BaseForm::DataDirectory, Some(tar)) => Ok(tar),
        (BaseForm::DataDirectory, None) => Err(BaseError::Damaged(
            manifest.name.manifest(),
            "it names no data".to_owned(),
        )),
    }
}

async fn read_all<P: Place + Send + 'static>(
    storage: &Storage,
    manifest: &BaseManifest,
    identities: &Identities,
    to: P,
    progress: impl FnMut(u64) -> ControlFlow<()> + Send + 'static,
) -> Result<(), BaseError> {
    let tar = tar_of(manifest)?;
    let (storage, manifest) = (storage.clone(), manifest.clone());
    let identities = identities.clone();
    let runtime = Handle::current();
    let reading = spawn_blocking(move || {
        let mut to = to;
        let mut progress = progress;
        let objects = Objects {
            storage,
            identities,
            runtime,
            left: manifest.objects.iter().cloned().collect(),
            open: None,
        };
        read_into(objects, &manifest, tar, &mut to, &mut progress)?;
        to.finish()
    });
    match reading.await {
        Ok(read) => read,
        Err(panic) => Err(BaseError::disk("reading")(io::Error::other(panic))),
    }
}

fn read_into(
    objects: Objects,
    manifest: &BaseManifest,
    tar: Tar,
    to: &mut impl Place,
    progress: &mut impl FnMut(u64) -> ControlFlow<()>,
) -> Result<(), BaseError> {
    let damaged = |what: String| BaseError::Damaged(manifest.name.folder(), what);
    // One excess byte shows that the stream differs, however long it is.
    let most = tar.bytes.saturating_add(1);
    let mut stream = Hashed::new(objects.take(most));
    let expected = Extent {
        files: manifest.files,
        bytes: manifest.unpacked_bytes,
    };
    let unpacked = unpack(&mut stream, expected, to, progress);
    // Bytes after the end of a tar stream belong to it as well.
    let read = unpacked.and_then(|()| stream.finish_reading());
    let read = read.map_err(|error| match error.downcast::<BaseError>() {
        Ok(error) => error,
        Err(error) => damaged(error.to_string()),
    });
    let (bytes, sha256) = read?;
    match (Tar { bytes, sha256 }) == tar {
        true => Ok(()),
        false => Err(damaged(
            "it unpacks to other bytes than those that were backed up".to_owned(),
        )),
    }
}

/// The mode with which mysqld creates directories.
pub(super) const DIRECTORY_MODE: u32 = 0o750;

type Decoder = zstd::stream::read::Decoder<'static, Box<dyn BufRead>>;

/// The bytes of an object. They are hashed to the object's end after the decrypting and unpacking readers are dropped.
#[derive(Clone)]
struct Stored(Rc<RefCell<Hashed<io::Take<Download>>>>);

impl Read for Stored {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(to)
    }
}

/// An object that is being read.
struct OpenObject {
    object: Object,
    stored: Stored,
    decoder: Decoder,
}

/// The objects of a base backup, unpacked in order. Each is verified at its end.
struct Objects {
    storage: Storage,
    identities: Identities,
    runtime: Handle,
    left: VecDeque<Object>,
    open: Option<OpenObject>,
}

impl Objects {
    /// Returns the object that is being read, or opens the next one, if any.
    fn open(&mut self) -> Result<Option<OpenObject>, BaseError> {
        if let Some(open) = self.open.take() {
            return Ok(Some(open));
        }
        let Some(object) = self.left.pop_front() else {
            return Ok(None);
        };
        let download = (self.storage).download(&object.name, self.runtime.clone());
        let download = self.runtime.block_on(download)?;
        let from = Hashed::new(download.take(object.bytes.saturating_add(1)));
        let stored = Stored(Rc::new(RefCell::new(from)));
        let made = self.decoder(&object, stored.clone());
        let decoder = made.map_err(|error| unreadable(&object, &error))?;
        Ok(Some(OpenObject {
            object,
            stored,
            decoder,
        }))
    }

    fn decoder(&self, object: &Object, stored: Stored) -> io::Result<Decoder> {
        let stored = BufReader::new(stored);
        let packed: Box<dyn BufRead> = match object.encryption {
            None => Box::new(stored),
            Some(Encryption::Age) => self.identities.decrypt(stored)?,
        };
        let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
        decoder.window_log_max(MOST_WINDOW_LOG)?;
        Ok(decoder)
    }
}

/// Reads the unpacked bytes. If an object cannot be read, the [`io::Error`] contains a [`BaseError`].
impl Read for Objects {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        while let Some(mut open) = self.open()? {
            match open.decoder.read(to) {
                Ok(0) => open.close()?,
                Ok(read) => {
                    self.open = Some(open);
                    return Ok(read);
                }
                Err(error) => return Err(unreadable(&open.object, &error).into()),
            }
        }
        Ok(0)
    }
}

fn unreadable(object: &Object, error: &io::Error) -> BaseError {
    if let Some(error) = of_storage(error) {
        return error.into();
    }
    let name = object.name.clone();
    match EncryptionError::of_io(error) {
        Some(error @ (EncryptionError::NoIdentity | EncryptionError::OtherRecipients)) => {
            BaseError::Encryption(name, error.clone())
        }
        _ => BaseError::Damaged(name, error.to_string()),
    }
}

impl OpenObject {
    /// Verifies a completely unpacked object.
    fn close(self) -> Result<(), BaseError> {
        let Self {
            object,
            stored,
            decoder,
        } = self;
        drop(decoder);
        let stored = Rc::into_inner(stored.0).map(RefCell::into_inner);
        let stored = stored.ok_or_else(|| io::Error::other("another reader is still using it"));
        let read = stored.and_then(Hashed::finish_reading);
        let (bytes, found) = read.map_err(|error| unreadable(&object, &error))?;
        let damaged = |what| Err(BaseError::Damaged(object.name.clone(), what));
        if bytes != object.bytes {
            return damaged(format!(
                "{bytes} bytes of it were read, and it should have {}",
                object.bytes
            ));
        }
        match found == object.sha256 {
            true => Ok(()),
            false => damaged(format!("its SHA-256 is {found}, not {}", object.sha256)),
        }
    }
}

/// A directory into which a base backup is unpacked.
struct Target {
    into: PathBuf,
    /// Created directories. They are synced at the end, when their contents are complete.
    made: Vec<PathBuf>,
}

/// Creates a directory, or checks that it is empty.
///
/// # Errors
/// When the directory is not empty, or cannot be created or read.
pub fn make_empty(directory: &Path, mode: u32) -> Result<(), BaseError> {
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(mode).create(directory);
    let first = made.and_then(|()| fs::read_dir(directory)?.next().transpose());
    match first.map_err(BaseError::disk(directory))? {
        None => Ok(()),
        Some(_) => Err(BaseError::Unfit(
            directory.to_owned(),
            "it is not empty; name another directory, or an empty one",
        )),
    }
}

impl Place for Target {
    type File = File;

    fn directory(&mut self, path: &Path) -> Result<(), BaseError> {
        let path = self.into.join(path);
        let made = DirBuilder::new().mode(DIRECTORY_MODE).create(&path);
        made.map_err(BaseError::disk(&path))?;
        self.made.push(path);
        Ok(())
    }

    fn begin(&mut self, path: &Path) -> Result<File, BaseError> {
        let path = self.into.join(path);
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o640);
        options.open(&path).map_err(BaseError::disk(path))
    }

    fn end(&mut self, path: &Path, file: File) -> Result<(), BaseError> {
        let synced = file.sync_all();
        synced.map_err(BaseError::disk(self.into.join(path)))
    }

    fn finish(self) -> Result<(), BaseError> {
        let parent = self.into.parent().map(Path::to_owned);
        let above = parent.filter(|parent| !parent.as_os_str().is_empty());
        for directory in self.made.iter().rev().chain([&self.into]).chain(&above) {
            let synced = File::open(directory).and_then(|directory| directory.sync_all());
            synced.map_err(BaseError::disk(directory))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn restored_directory_is_private_and_must_be_empty() {
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join("restored/data");
        make_empty(&data, 0o700).unwrap();
        make_empty(&data, 0o700).unwrap();
        let mode = fs::metadata(&data).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(data.join("ibdata1"), "").unwrap();
        let refused = make_empty(&data, 0o700).unwrap_err();
        assert!(matches!(refused, BaseError::Unfit { .. }), "{refused}");
    }
}
