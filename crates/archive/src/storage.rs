//! Storage of an archive: object storage (Amazon S3 and compatible services, Google, Azure) or a directory.
//!
//! Written data is durable when the call returns: the services guarantee it, and a directory is synced. Every call has a timeout. Secrets
//! are removed from the error messages of a service or of the library.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes};
use futures::TryStreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;
use url::Url;

use crate::storage_settings::without_secrets;
pub use crate::storage_settings::{StorageError, StorageSettings};

/// Part size of larger objects, in bytes. An upload needs this much memory. Services allow 10,000 parts.
const PART_BYTES: usize = 8 << 20;

/// An object in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// The object's size in bytes.
    pub bytes: u64,
    /// Time of the write, by the storage's clock.
    pub written: SystemTime,
}

/// Objects by name, below the ring's folder.
pub type Listing = BTreeMap<String, Listed>;

/// The folder of one ring in a storage. Cloning is cheap.
#[derive(Clone)]
pub struct Storage {
    objects: Arc<dyn ObjectStore>,
    folder: Path,
    call_limit: Duration,
    /// Strings that no message may contain.
    secrets: Arc<Vec<String>>,
}

impl Storage {
    /// Opens the storage without a request. Only the first call shows whether the storage answers.
    ///
    /// # Errors
    /// When this program does not support the URL or an option, or the directory does not exist.
    pub fn open(settings: &StorageSettings) -> Result<Self, StorageError> {
        let (objects, folder) = settings.connect()?;
        Ok(Self {
            secrets: Arc::new(settings.secrets()),
            ..Self::over(objects, folder, settings.call_limit)
        })
    }

    /// As [`Self::open`], with further options from a file, if one is given.
    ///
    /// # Errors
    /// As [`Self::open`], and when the file cannot be read or parsed.
    pub fn open_with(
        url: Url,
        options_file: Option<&std::path::Path>,
        call_limit: Duration,
    ) -> Result<Self, StorageError> {
        Self::open(&StorageSettings::with_options_of(
            url,
            options_file,
            call_limit,
        )?)
    }

    /// A folder of an open storage.
    pub fn over(objects: Arc<dyn ObjectStore>, folder: Path, call_limit: Duration) -> Self {
        Self {
            objects,
            folder,
            call_limit,
            secrets: Arc::default(),
        }
    }

    /// Lists the objects whose names begin with this folder.
    ///
    /// # Errors
    /// When the storage cannot list them.
    pub async fn list(&self, below: &str) -> Result<Listing, StorageError> {
        let what = || format!("list {below}");
        let mut listed = self.objects.list(Some(&self.place(below)));
        let mut names = Listing::new();
        while let Some(object) = self.call(what, listed.try_next()).await? {
            if let Some(parts) = object.location.prefix_match(&self.folder) {
                let parts: Vec<_> = parts.map(|part| part.as_ref().to_owned()).collect();
                let listed = Listed {
                    bytes: object.size,
                    written: object.last_modified.into(),
                };
                names.insert(parts.join("/"), listed);
            }
        }
        Ok(names)
    }

    /// The size of an object; `None` if it does not exist.
    ///
    /// # Errors
    /// When the request fails.
    pub async fn size(&self, name: &str) -> Result<Option<u64>, StorageError> {
        let place = self.place(name);
        let told = self.call(|| format!("look for {name}"), self.objects.head(&place));
        match told.await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(StorageError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a small object.
    ///
    /// # Errors
    /// When the request fails. The object may be stored nevertheless.
    pub async fn write(&self, name: &str, bytes: Vec<u8>) -> Result<(), StorageError> {
        let place = self.place(name);
        let put = self.objects.put(&place, bytes.into());
        self.call(|| format!("store {name}"), put).await?;
        Ok(())
    }

    /// As [`Self::write`], and checks that the object is stored.
    ///
    /// # Errors
    /// As [`Self::write`] and [`Self::assert_stored`].
    pub async fn write_checked(&self, name: &str, bytes: Vec<u8>) -> Result<(), StorageError> {
        let size = bytes.len() as u64;
        self.write(name, bytes).await?;
        self.assert_stored(name, size).await
    }

    /// Checks the stored size, because a storage may acknowledge an object that it has not stored.
    ///
    /// # Errors
    /// [`StorageError::Lost`], or when the request fails.
    pub async fn assert_stored(&self, name: &str, expected: u64) -> Result<(), StorageError> {
        let found = self.size(name).await?;
        match found == Some(expected) {
            true => Ok(()),
            false => Err(StorageError::Lost {
                name: name.to_owned(),
                expected,
                found,
            }),
        }
    }

    /// Reads a small object.
    ///
    /// # Errors
    /// When it does not exist, is larger than `at_most`, or the request fails.
    pub async fn read(&self, name: &str, at_most: u64) -> Result<Bytes, StorageError> {
        let what = || format!("read {name}");
        let place = self.place(name);
        let got = self.call(what, self.objects.get(&place)).await?;
        if got.meta.size > at_most {
            return Err(StorageError::TooLarge {
                name: name.to_owned(),
                bytes: got.meta.size,
                most: at_most,
            });
        }
        self.call(what, got.bytes()).await
    }

    /// Deletes an object, if it exists.
    ///
    /// # Errors
    /// When the storage refuses.
    pub async fn delete(&self, name: &str) -> Result<(), StorageError> {
        let place = self.place(name);
        let deleted = self.call(|| format!("delete {name}"), self.objects.delete(&place));
        match deleted.await {
            Err(StorageError::NotFound(_)) => Ok(()),
            result => result,
        }
    }

    /// Stores a large object while the caller produces it in a thread that may block. `bytes_per_second` limits the rate.
    pub fn upload(&self, name: &str, runtime: Handle, bytes_per_second: Option<u64>) -> Upload {
        Upload {
            storage: self.clone(),
            name: name.to_owned(),
            runtime,
            buffer: Vec::new(),
            parts: None,
            bytes_per_second,
        }
    }

    /// Reads a large object as a stream, in a thread that may block.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn download(&self, name: &str, runtime: Handle) -> Result<Download, StorageError> {
        let place = self.place(name);
        let got = self.call(|| format!("read {name}"), self.objects.get(&place));
        Ok(Download {
            chunks: got.await?.into_stream(),
            storage: self.clone(),
            name: name.to_owned(),
            runtime,
            rest: Bytes::new(),
        })
    }

    fn place(&self, name: &str) -> Path {
        self.folder
            .parts()
            .chain(Path::from(name).parts())
            .map(|part| part.as_ref().to_owned())
            .collect()
    }

    async fn call<T>(
        &self,
        what: impl Fn() -> String,
        call: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, StorageError> {
        match tokio::time::timeout(self.call_limit, call).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(object_store::Error::NotFound { path, .. })) => {
                Err(StorageError::NotFound(path))
            }
            Ok(Err(error)) => Err(StorageError::Failed(
                what(),
                without_secrets(&with_causes(&error), &self.secrets),
            )),
            Err(_) => Err(StorageError::Silent(what(), self.call_limit)),
        }
    }
}

/// Returns the error with its causes, unless its own text contains them.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !words.contains(&said) {
            words = format!("{words}: {said}");
        }
        cause = error.source();
    }
    words
}

/// An upload of an object. If it is dropped before [`Upload::finish`], the object does not exist.
pub struct Upload {
    storage: Storage,
    name: String,
    runtime: Handle,
    buffer: Vec<u8>,
    parts: Option<Box<dyn MultipartUpload>>,
    bytes_per_second: Option<u64>,
}

impl Upload {
    /// Stores the rest. The object is durable on return.
    ///
    /// # Errors
    /// When a request fails. The object may be stored nevertheless.
    pub fn finish(mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.buffer);
        if self.parts.is_none() {
            let (storage, name) = (self.storage.clone(), self.name.clone());
            return Ok(self.runtime.block_on(storage.write(&name, rest))?);
        }
        if !rest.is_empty() {
            self.store_part(rest)?;
        }
        let Some(mut parts) = self.parts.take() else {
            return Ok(());
        };
        let what = || format!("store {}", self.name);
        let completed = self.storage.call(what, parts.complete());
        self.runtime.block_on(completed)?;
        Ok(())
    }

    fn store_part(&mut self, part: Vec<u8>) -> io::Result<()> {
        let what = || format!("store a part of {}", self.name);
        let began = std::time::Instant::now();
        let bytes = part.len() as u64;
        if self.parts.is_none() {
            let place = self.storage.place(&self.name);
            let begun = self.storage.objects.put_multipart(&place);
            self.parts = Some(self.runtime.block_on(self.storage.call(what, begun))?);
        }
        if let Some(parts) = &mut self.parts {
            let put = parts.put_part(part.into());
            self.runtime.block_on(self.storage.call(what, put))?;
        }
        if let Some(rate) = self.bytes_per_second {
            let at_least = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            std::thread::sleep(at_least.saturating_sub(began.elapsed()));
        }
        Ok(())
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PART_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == PART_BYTES {
            let part = std::mem::take(&mut self.buffer);
            self.store_part(part)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(mut parts) = self.parts.take() {
            let what = || format!("give {} up", self.name);
            // If this fails too, the service removes the incomplete upload by its own rules.
            let given_up = self.storage.call(what, parts.abort());
            let _ = self.runtime.block_on(given_up);
        }
    }
}

/// An object being read.
pub struct Download {
    chunks: BoxStream<'static, object_store::Result<Bytes>>,
    storage: Storage,
    name: String,
    runtime: Handle,
    rest: Bytes,
}

impl Read for Download {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            let what = || format!("read {}", self.name);
            let next = self.storage.call(what, self.chunks.try_next());
            match self.runtime.block_on(next)? {
                Some(chunk) => self.rest = chunk,
                None => return Ok(0),
            }
        }
        let taken = bytes.len().min(self.rest.len());
        self.rest.copy_to_slice(&mut bytes[..taken]);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str, options: &[(&str, &str)]) -> StorageSettings {
        StorageSettings {
            url: url.parse().unwrap(),
            options: options
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            call_limit: Duration::from_secs(5),
        }
    }

    fn refused(url: &str, options: &[(&str, &str)]) -> String {
        Storage::open(&settings(url, options))
            .err()
            .unwrap()
            .to_string()
    }

    #[test]
    fn unusable_settings_are_reported() {
        assert_eq!(
            refused("ftp://host/folder", &[]),
            "ftp://host/folder is no place for an archive; it is one of s3://, gs://, az:// and file:///"
        );
        assert_eq!(
            refused("file:///nowhere/at/all", &[]),
            "there is no directory /nowhere/at/all; make it first"
        );
        assert_eq!(
            refused("s3://bucket/folder", &[("aws_regoin", "eu")]),
            "Amazon S3 has no option `aws_regoin`"
        );
        assert_eq!(
            refused("file:///tmp", &[("aws_region", "eu")]),
            "a directory has no option `aws_region`"
        );
    }

    #[test]
    fn secrets_are_in_no_message() {
        let secrets = ["AbCdEfGh0123".to_owned(), "eu".to_owned()];
        assert_eq!(
            without_secrets(
                "error for https://a.blob/c/o?sig=zzz&se=1 (key AbCdEfGh0123) in europe, why?",
                &secrets
            ),
            "error for https://a.blob/c/o?… (key …) in europe, why?"
        );
        let shown = format!(
            "{:?}",
            settings("s3://b/f", &[("aws_secret_access_key", "hidden-key")])
        );
        assert!(shown.contains("aws_secret_access_key") && !shown.contains("hidden"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn directory_storage_reads_and_lists_its_objects() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}", folder.path().display());
        let storage = Storage::open(&settings(&url, &[])).unwrap();
        storage.write("log/one", b"1".to_vec()).await.unwrap();
        let large: Vec<u8> = (0..PART_BYTES as u32 * 2 + 7).map(|at| at as u8).collect();
        let (uploaded, expected) = (storage.clone(), large.clone());
        let runtime = Handle::current();
        let read = tokio::task::spawn_blocking(move || {
            let mut upload = uploaded.upload("log/a/large", runtime.clone(), None);
            upload.write_all(&large).unwrap();
            upload.finish().unwrap();
            let mut left = uploaded.upload("log/a/given-up", runtime.clone(), None);
            left.write_all(&large).unwrap();
            drop(left);
            let mut read = Vec::new();
            let download = runtime.block_on(uploaded.download("log/a/large", runtime.clone()));
            download.unwrap().read_to_end(&mut read).unwrap();
            read
        });
        assert!(read.await.unwrap() == expected);
        let listed = storage.list("log/").await.unwrap();
        let (large, small) = (expected.len() as u64, 1);
        let sizes = listed.iter().map(|(name, one)| (name.as_str(), one.bytes));
        let expected = [("log/a/large", large), ("log/one", small)];
        assert!(sizes.eq(expected), "{listed:?}");
        for listed in listed.values() {
            let age = SystemTime::now().duration_since(listed.written);
            assert!(age.unwrap_or_default() < Duration::from_secs(3600));
        }
        assert_eq!(storage.size("log/one").await, Ok(Some(1)));
        let too_large = storage.read("log/a/large", 9).await;
        assert!(matches!(
            too_large,
            Err(StorageError::TooLarge { most: 9, .. })
        ));
        for _ in 0..2 {
            storage.delete("log/one").await.unwrap();
        }
        assert_eq!(storage.size("log/one").await, Ok(None));
        let gone = storage.read("log/one", 9).await;
        assert!(matches!(gone, Err(StorageError::NotFound(_))), "{gone:?}");
        storage.delete("log/a/large").await.unwrap();
        // Empty folders are removed, except the archive's own.
        assert!(!folder.path().join("log").exists() && folder.path().exists());
    }
}
