//! Uploads a data directory: tar, zstd and storage in one pass of bounded memory, without a copy on disk.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use age::stream::StreamWriter;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::contents::{Entry, EntryKind, list};
use super::error::{BaseError, of_storage};
use super::manifest::{BaseManifest, Tar, data_object};
use super::name::BaseName;
use super::survey::remove_objects;
use crate::encryption::{Encryption, Recipients};
use crate::manifest::Object;
use crate::sealed::{Hashed, LEVEL};
use crate::storage::{Storage, Upload};

/// Bytes of the tar stream per object: services allow 10,000 parts of an object, and a late failure repeats less.
pub const OBJECT_BYTES: u64 = 4 << 30;
const CHUNK_BYTES: usize = 256 << 10;
/// As mysqld creates them.
const FILE_MODE: u32 = 0o640;
const DIRECTORY_MODE: u32 = 0o750;

/// How a data directory is uploaded.
#[derive(Debug, Clone)]
pub struct UploadOptions {
    /// Recipients of the encryption; `None`: not encrypted.
    pub recipients: Option<Recipients>,
    /// Network limit; `None`: unlimited.
    pub bytes_per_second: Option<u64>,
    /// [`OBJECT_BYTES`], or less in tests.
    pub object_bytes: u64,
}

impl Default for UploadOptions {
    fn default() -> Self {
        Self {
            recipients: None,
            bytes_per_second: None,
            object_bytes: OBJECT_BYTES,
        }
    }
}

/// The uploaded data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Its objects.
    pub objects: Vec<Object>,
    /// The tar stream that they unpack to.
    pub tar: Tar,
    /// Bytes of all files.
    pub unpacked_bytes: u64,
    /// Number of files.
    pub files: u64,
}

/// Uploads an unchanging data directory. The backup does not count until [`finish`] writes the manifest. `progress` receives the bytes of
/// files read, and stops the upload with `Break`. A failed upload leaves no objects, unless the storage refuses to delete them.
///
/// # Errors
/// When the directory cannot be read or changes during the upload, or the storage rejects the data.
pub async fn upload(
    storage: &Storage,
    name: BaseName,
    data_dir: &Path,
    options: UploadOptions,
    progress: impl FnMut(u64) -> ControlFlow<()> + Send + 'static,
) -> Result<Packed, BaseError> {
    let (to, from) = (storage.clone(), data_dir.to_owned());
    let runtime = Handle::current();
    let packing = spawn_blocking(move || {
        let objects = Objects {
            storage: to,
            name,
            runtime,
            options,
            open: None,
            done: Vec::new(),
        };
        pack(&from, objects, progress)
    });
    let packed = match packing.await {
        Ok(packed) => packed,
        Err(panic) => Err(BaseError::disk(data_dir)(io::Error::other(panic))),
    };
    if packed.is_err() {
        // If this fails too, the objects do not count, and this member's next backup removes them.
        let _ = remove_objects(storage, name).await;
    }
    packed
}

/// Writes the manifest of a base backup, which counts from then on. All its objects must exist.
///
/// # Errors
/// When an object is missing, the name is taken, or the storage rejects the manifest.
pub async fn finish(storage: &Storage, manifest: &BaseManifest) -> Result<(), BaseError> {
    let name = manifest.name.manifest();
    if storage.size(&name).await?.is_some() {
        return Err(BaseError::Taken(manifest.name));
    }
    for object in &manifest.objects {
        assert_stored(storage, &object.name, object.bytes).await?;
    }
    let bytes = manifest.to_bytes();
    let size = bytes.len() as u64;
    storage.write(&name, bytes).await?;
    assert_stored(storage, &name, size).await
}

async fn assert_stored(storage: &Storage, name: &str, expected: u64) -> Result<(), BaseError> {
    let found = storage.size(name).await?;
    match found == Some(expected) {
        true => Ok(()),
        false => Err(BaseError::Lost {
            name: name.to_owned(),
            expected,
            found,
        }),
    }
}

fn pack(
    data_dir: &Path,
    objects: Objects,
    mut progress: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<Packed, BaseError> {
    let entries = list(data_dir)?;
    let mut builder = tar::Builder::new(Hashed::new(objects));
    let (mut unpacked_bytes, mut files) = (0, 0);
    for entry in &entries {
        let path = data_dir.join(&entry.path);
        let mut header = header(entry);
        let mut reading = Reading::of(entry, &path, unpacked_bytes, &mut progress)?;
        let appended = builder.append_data(&mut header, &entry.path, &mut reading);
        reading.outcome(appended)?;
        unpacked_bytes += entry.bytes;
        files += u64::from(entry.kind == EntryKind::File);
    }
    let stored = builder.into_inner().and_then(|hashed| {
        let (objects, bytes, sha256) = hashed.into_parts();
        Ok((objects.finish()?, Tar { bytes, sha256 }))
    });
    let (objects, tar) = stored.map_err(|error| storing(data_dir, error))?;
    // A server that ran on the directory in the meantime has changed it.
    if list(data_dir)? != entries {
        return Err(BaseError::Unfit {
            path: data_dir.to_owned(),
            what: "something in it was changed while it was read",
        });
    }
    Ok(Packed {
        objects,
        tar,
        unpacked_bytes,
        files,
    })
}

fn header(entry: &Entry) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    let since_1970 = entry.modified.duration_since(SystemTime::UNIX_EPOCH);
    header.set_mtime(since_1970.unwrap_or_default().as_secs());
    header.set_size(entry.bytes);
    let (kind, mode) = match entry.kind {
        EntryKind::File => (tar::EntryType::Regular, FILE_MODE),
        EntryKind::Directory => (tar::EntryType::Directory, DIRECTORY_MODE),
    };
    header.set_entry_type(kind);
    header.set_mode(mode);
    header
}

/// Classifies an error of writing into the archive.
fn storing(what: &Path, error: io::Error) -> BaseError {
    match of_storage(&error) {
        Some(error) => BaseError::Storage(error),
        None => match error.downcast::<BaseError>() {
            Ok(error) => error,
            Err(error) => BaseError::disk(what)(error),
        },
    }
}

/// A file as tar reads it: exactly the bytes that its header announces, even if the file changes.
struct Reading<'a, P> {
    path: PathBuf,
    /// `None` for a directory.
    file: Option<File>,
    left: u64,
    before: u64,
    read: u64,
    progress: &'a mut P,
    failed: Option<BaseError>,
}

impl<'a, P: FnMut(u64) -> ControlFlow<()>> Reading<'a, P> {
    fn of(entry: &Entry, path: &Path, before: u64, progress: &'a mut P) -> Result<Self, BaseError> {
        let file = match entry.kind {
            EntryKind::File => Some(File::open(path).map_err(BaseError::disk(path))?),
            EntryKind::Directory => None,
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            left: entry.bytes,
            before,
            read: 0,
            progress,
            failed: None,
        })
    }

    fn fail(&mut self, error: BaseError) -> io::Error {
        self.failed = Some(error);
        io::Error::other("it could not be read")
    }

    /// Whether the file was stored.
    fn outcome(self, appended: io::Result<()>) -> Result<(), BaseError> {
        match (self.failed, appended) {
            (Some(error), _) => Err(error),
            (None, Err(error)) => Err(storing(&self.path, error)),
            (None, Ok(())) => Ok(()),
        }
    }
}

impl<P: FnMut(u64) -> ControlFlow<()>> Read for Reading<'_, P> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let Some(file) = &mut self.file else {
            return Ok(0);
        };
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let most = most.min(to.len()).min(CHUNK_BYTES);
        if most == 0 {
            return Ok(0);
        }
        let read = match file.read(&mut to[..most]) {
            Ok(0) => {
                let path = self.path.clone();
                return Err(self.fail(BaseError::Unfit {
                    path,
                    what: "it became shorter while it was read",
                }));
            }
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => {
                let failed = BaseError::disk(&self.path)(error);
                return Err(self.fail(failed));
            }
        };
        self.left -= read as u64;
        self.read += read as u64;
        match (self.progress)(self.before + self.read) {
            ControlFlow::Continue(()) => Ok(read),
            ControlFlow::Break(()) => Err(self.fail(BaseError::Stopped)),
        }
    }
}

/// The objects of a base backup, each with a fixed number of the stream's bytes.
struct Objects {
    storage: Storage,
    name: BaseName,
    runtime: Handle,
    options: UploadOptions,
    open: Option<OpenObject>,
    done: Vec<Object>,
}

struct OpenObject {
    name: String,
    encoder: zstd::stream::write::Encoder<'static, Sealing>,
    left: u64,
}

/// Destination of an object's compressed bytes.
enum Sealing {
    Plain(Hashed<Upload>),
    Encrypted(StreamWriter<Hashed<Upload>>),
}

impl Sealing {
    fn finish(self) -> io::Result<Hashed<Upload>> {
        match self {
            Self::Plain(to) => Ok(to),
            Self::Encrypted(to) => to.finish(),
        }
    }
}

impl Write for Sealing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(to) => to.write(bytes),
            Self::Encrypted(to) => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(to) => to.flush(),
            Self::Encrypted(to) => to.flush(),
        }
    }
}

impl Objects {
    fn encryption(&self) -> Option<Encryption> {
        self.options.recipients.as_ref().map(|_| Encryption::Age)
    }

    fn open(&mut self) -> io::Result<OpenObject> {
        if let Some(open) = self.open.take() {
            return Ok(open);
        }
        let name = data_object(&self.name, self.done.len() + 1, self.encryption());
        let runtime = self.runtime.clone();
        let upload = (self.storage).upload(&name, runtime, self.options.bytes_per_second);
        let to = match &self.options.recipients {
            None => Sealing::Plain(Hashed::new(upload)),
            Some(recipients) => Sealing::Encrypted(recipients.encrypt(Hashed::new(upload))?),
        };
        let mut encoder = zstd::stream::write::Encoder::new(to, LEVEL)?;
        // For unpacking without this program.
        encoder.include_checksum(true)?;
        Ok(OpenObject {
            name,
            encoder,
            left: self.options.object_bytes.max(1),
        })
    }

    fn close(&mut self, open: OpenObject) -> io::Result<()> {
        let (upload, bytes, sha256) = open.encoder.finish()?.finish()?.into_parts();
        upload.finish()?;
        let stored = assert_stored(&self.storage, &open.name, bytes);
        self.runtime.block_on(stored).map_err(|error| match error {
            BaseError::Storage(error) => error.into(),
            error => io::Error::other(error),
        })?;
        let encryption = self.encryption();
        self.done.push(Object {
            name: open.name,
            bytes,
            sha256,
            encryption,
        });
        Ok(())
    }

    fn finish(mut self) -> io::Result<Vec<Object>> {
        if let Some(open) = self.open.take() {
            self.close(open)?;
        }
        Ok(self.done)
    }
}

impl Write for Objects {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut open = self.open()?;
        let most = usize::try_from(open.left).unwrap_or(usize::MAX);
        let written = open.encoder.write(&bytes[..bytes.len().min(most)])?;
        open.left -= written as u64;
        match open.left {
            0 => self.close(open)?,
            _ => self.open = Some(open),
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl From<BaseError> for io::Error {
    fn from(error: BaseError) -> Self {
        match error {
            BaseError::Storage(error) => error.into(),
            BaseError::Disk { error, .. } => error,
            error => Self::other(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::StorageError;

    #[test]
    fn what_an_error_was_is_not_lost_on_its_way_through_tar() {
        let limit = std::time::Duration::from_secs(1);
        let silent = StorageError::Silent {
            what: "store".to_owned(),
            limit,
        };
        let error = storing(Path::new("/d"), silent.clone().into());
        assert!(matches!(error, BaseError::Storage(error) if error == silent));
        let error = storing(Path::new("/d"), BaseError::Stopped.into());
        assert!(matches!(error, BaseError::Stopped));
        let error = storing(Path::new("/d"), io::Error::other("x"));
        assert_eq!(error.to_string(), "/d: x");
    }
}
