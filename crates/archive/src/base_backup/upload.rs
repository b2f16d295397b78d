//! Uploads a data directory: tar, zstd and storage in one pass of bounded memory, without a copy on disk.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::SystemTime;

use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::contents::{Entry, list};
use super::download::DIRECTORY_MODE;
use super::manifest::{BaseManifest, BaseName, Tar, data_object};
use super::survey::remove_objects;
use super::{BaseError, of_storage};
use crate::encryption::{Encryption, Recipients, Sealing};
use crate::manifest::Object;
use crate::sealed::{Hashed, LEVEL};
use crate::storage::{Storage, Upload};

/// Bytes of the tar stream per object. Services allow 10,000 parts per object; with smaller objects, less is repeated after a late failure.
pub const OBJECT_BYTES: u64 = 4 << 30;
const CHUNK_BYTES: usize = 256 << 10;
/// The mode with which mysqld creates files.
const FILE_MODE: u32 = 0o640;

/// How a data directory is uploaded.
#[derive(Debug, Clone)]
pub struct UploadOptions {
    /// Recipients of the encryption; with `None`, the backup is not encrypted.
    pub recipients: Option<Recipients>,
    /// Rate limit in bytes per second; `None` for no limit.
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
    /// The objects with the data.
    pub objects: Vec<Object>,
    /// The tar stream that they unpack to.
    pub tar: Tar,
    /// Bytes of all files.
    pub unpacked_bytes: u64,
    /// Number of files.
    pub files: u64,
}

/// Uploads an unchanging data directory. The backup does not count until [`finish`] writes the manifest. `progress` receives the number of
/// bytes read from files; if it returns `Break`, the upload stops. A failed upload leaves no objects, unless the storage refuses to delete
/// them.
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
        // If the removal fails too, the objects do not count, and this member's next backup removes them.
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
        storage.assert_stored(&object.name, object.bytes).await?;
    }
    Ok(storage.write_checked(&name, manifest.to_bytes()).await?)
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
        let appended = if entry.is_directory {
            builder.append_data(&mut header, &entry.path, io::empty())
        } else {
            let reading = Reading {
                path: &path,
                file: File::open(&path).map_err(BaseError::disk(&path))?,
                left: entry.bytes,
                read: unpacked_bytes,
                progress: &mut progress,
            };
            builder.append_data(&mut header, &entry.path, reading)
        };
        appended.map_err(|error| storing(&path, error))?;
        unpacked_bytes += entry.bytes;
        files += u64::from(!entry.is_directory);
    }
    let stored = builder.into_inner().and_then(|hashed| {
        let (objects, bytes, sha256) = hashed.into_parts();
        Ok((objects.finish()?, Tar { bytes, sha256 }))
    });
    let (objects, tar) = stored.map_err(|error| storing(data_dir, error))?;
    // If a server ran on the directory during the upload, the directory has changed.
    if list(data_dir)? != entries {
        return Err(BaseError::Unfit(
            data_dir.to_owned(),
            "something in it was changed while it was read",
        ));
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
    let (kind, mode) = match entry.is_directory {
        false => (tar::EntryType::Regular, FILE_MODE),
        true => (tar::EntryType::Directory, DIRECTORY_MODE),
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

/// A file as tar reads it: exactly as many bytes as its header announces, even if the file changes.
struct Reading<'a, P> {
    path: &'a Path,
    file: File,
    left: u64,
    /// Bytes read so far, including earlier files.
    read: u64,
    progress: &'a mut P,
}

impl<P: FnMut(u64) -> ControlFlow<()>> Read for Reading<'_, P> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let most = most.min(to.len()).min(CHUNK_BYTES);
        if most == 0 {
            return Ok(0);
        }
        let read = match self.file.read(&mut to[..most]) {
            Ok(0) => {
                let unfit =
                    BaseError::Unfit(self.path.to_owned(), "it became shorter while it was read");
                return Err(unfit.into());
            }
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => return Err(BaseError::disk(self.path)(error).into()),
        };
        self.left -= read as u64;
        self.read += read as u64;
        match (self.progress)(self.read) {
            ControlFlow::Continue(()) => Ok(read),
            ControlFlow::Break(()) => Err(BaseError::Stopped.into()),
        }
    }
}

/// The objects of a base backup. Each contains a fixed number of the stream's bytes.
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
    encoder: zstd::stream::write::Encoder<'static, Sealing<Hashed<Upload>>>,
    left: u64,
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
        let to = Sealing::of(Hashed::new(upload), self.options.recipients.as_ref())?;
        let mut encoder = zstd::stream::write::Encoder::new(to, LEVEL)?;
        // The checksum is for unpacking without this program.
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
        let stored = self.storage.assert_stored(&open.name, bytes);
        self.runtime.block_on(stored)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::StorageError;

    #[test]
    fn errors_keep_their_type_through_tar() {
        let limit = std::time::Duration::from_secs(1);
        let silent = StorageError::Silent("store".to_owned(), limit);
        let error = storing(Path::new("/d"), silent.clone().into());
        assert!(matches!(error, BaseError::Storage(error) if error == silent));
        let error = storing(Path::new("/d"), BaseError::Stopped.into());
        assert!(matches!(error, BaseError::Stopped));
        let error = storing(Path::new("/d"), io::Error::other("x"));
        assert_eq!(error.to_string(), "/d: x");
    }
}
