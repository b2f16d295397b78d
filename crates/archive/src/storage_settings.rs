//! The location of an archive, the connection to it, and errors of requests. A build without the `cloud` feature has no HTTP client.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreScheme};
use url::Url;

/// The location of an archive, and how to access it.
#[derive(Clone, PartialEq, Eq)]
pub struct StorageSettings {
    /// `s3://bucket/folder`, `gs://bucket/folder`, `az://container/folder` or `file:///folder`.
    pub url: Url,
    /// Other options of the service, by the lower-case names of its environment variables, such as `aws_endpoint` and
    /// `aws_secret_access_key`. They override the environment. If neither contains credentials, the machine's role is used.
    pub options: BTreeMap<String, String>,
    /// Timeout of one call.
    pub call_limit: Duration,
}

impl StorageSettings {
    /// Adds the options from a file, if one is given.
    ///
    /// # Errors
    /// When the file cannot be read or parsed.
    pub fn with_options_of(
        url: Url,
        file: Option<&std::path::Path>,
        call_limit: Duration,
    ) -> Result<Self, StorageError> {
        let mut options = BTreeMap::new();
        if let Some(file) = file {
            let wrong = |why: &dyn fmt::Display| {
                StorageError::Settings(format!("{}: {why}", file.display()))
            };
            let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
            // The lines may contain secrets, so no message quotes them.
            options = toml::from_str(&text).map_err(|error: toml::de::Error| {
                let before = error.span().and_then(|span| text.get(..span.start));
                let line = before.map_or(0, |before| before.matches('\n').count()) + 1;
                let what = "is no `option = \"text\"`, with an option only once";
                wrong(&format_args!("line {line} {what}"))
            })?;
        }
        Ok(Self {
            url,
            options,
            call_limit,
        })
    }

    /// The strings that no message may contain.
    pub(crate) fn secrets(&self) -> Vec<String> {
        self.options.values().cloned().collect()
    }

    /// Connects without a request. Returns the object store and the ring's folder in it.
    pub(crate) fn connect(&self) -> Result<(Arc<dyn ObjectStore>, Path), StorageError> {
        let elsewhere = || {
            StorageError::Settings(format!(
                "{} is no place for an archive; it is one of s3://, gs://, az:// and file:///",
                self.url
            ))
        };
        let (scheme, mut folder) = ObjectStoreScheme::parse(&self.url).map_err(|_| elsewhere())?;
        let objects: Arc<dyn ObjectStore> = match scheme {
            ObjectStoreScheme::Local => {
                if let Some(option) = self.options.keys().next() {
                    return Err(unknown(option, "a directory"));
                }
                let directory = self.url.to_file_path().map_err(|()| {
                    StorageError::Settings(format!("{} does not name a directory", self.url))
                })?;
                folder = Path::default();
                // The directory is not created here: if its mount is missing, it would fill the wrong disk.
                let there = LocalFileSystem::new_with_prefix(&directory).map_err(|_| {
                    let shown = directory.display();
                    StorageError::Settings(format!("there is no directory {shown}; make it first"))
                })?;
                Arc::new(there.with_fsync(true).with_automatic_cleanup(true))
            }
            ObjectStoreScheme::AmazonS3
            | ObjectStoreScheme::GoogleCloudStorage
            | ObjectStoreScheme::MicrosoftAzure => open_cloud(&scheme, self)?,
            _ => return Err(elsewhere()),
        };
        Ok((objects, folder))
    }
}

/// Omits the options, which may be secret.
impl fmt::Debug for StorageSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.options.keys().collect();
        f.debug_struct("StorageSettings")
            .field("url", &self.url.as_str())
            .field("options", &names)
            .field("call_limit", &self.call_limit)
            .finish()
    }
}

/// Why a storage request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The settings are invalid.
    #[error("{0}")]
    Settings(String),
    /// The object does not exist.
    #[error("the archive has no {0}")]
    NotFound(String),
    /// The storage refused the request, or is unreachable.
    #[error("cannot {0}: {1}")]
    Failed(String, String),
    /// The storage did not answer in time.
    #[error("cannot {0}: the storage did not answer within {1:?}")]
    Silent(String, Duration),
    /// The storage acknowledged an object, but it is missing or has another size.
    #[error("the storage took {name} with {expected} bytes, and has {found:?}")]
    Lost {
        /// The object.
        name: String,
        /// Bytes uploaded.
        expected: u64,
        /// Bytes stored; `None` if the object is missing.
        found: Option<u64>,
    },
    /// The object exceeds the limit for reading into memory.
    #[error("{name} has {bytes} bytes, and at most {most} are read")]
    TooLarge {
        /// The object.
        name: String,
        /// The object's size in bytes.
        bytes: u64,
        /// The limit.
        most: u64,
    },
}

impl From<StorageError> for io::Error {
    fn from(error: StorageError) -> Self {
        let kind = match &error {
            StorageError::NotFound(_) => io::ErrorKind::NotFound,
            StorageError::Silent { .. } => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

fn unknown(option: &str, storage: &str) -> StorageError {
    StorageError::Settings(format!("{storage} has no option `{option}`"))
}

/// A service's message may quote the request. Removes all secrets, and everything after the `?` of a URL, because it may contain a
/// signature.
pub(crate) fn without_secrets(words: &str, secrets: &[String]) -> String {
    let mut shown = words.to_owned();
    for secret in secrets.iter().filter(|secret| secret.len() >= 8) {
        shown = shown.replace(secret.as_str(), "…");
    }
    let words = shown.split_inclusive(char::is_whitespace);
    let words = words.map(|word| match word.split_once('?') {
        Some((url, query)) if url.contains("://") => {
            let space = query.len() - query.trim_end().len();
            format!("{url}?…{}", &query[query.len() - space..])
        }
        _ => word.to_owned(),
    });
    words.collect()
}

/// Opens a bucket or container without a request.
///
/// # Errors
/// When the service has no such option, or this build lacks the feature.
#[cfg(not(feature = "cloud"))]
fn open_cloud(
    _: &ObjectStoreScheme,
    settings: &StorageSettings,
) -> Result<Arc<dyn ObjectStore>, StorageError> {
    Err(StorageError::Settings(format!(
        "this program was built without object storage and cannot use {}; use a released package, build with `--features cloud`, or name \
         a directory by file:///",
        settings.url
    )))
}

#[cfg(feature = "cloud")]
use with_cloud::open as open_cloud;

#[cfg(feature = "cloud")]
mod with_cloud {
    use std::time::Duration;

    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
    use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
    use object_store::{BackoffConfig, ClientOptions, RetryConfig};

    use super::*;

    /// Part of a call's timeout that is used for retries while a service is busy.
    const RETRY_FOR: f64 = 0.7;
    const FIRST_BACKOFF: Duration = Duration::from_millis(100);
    const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

    /// Opens a bucket or container without a request. No message contains a secret.
    ///
    /// # Errors
    /// When the service has no such option.
    pub(super) fn open(
        scheme: &ObjectStoreScheme,
        settings: &StorageSettings,
    ) -> Result<Arc<dyn ObjectStore>, StorageError> {
        let wrong = |error: object_store::Error| {
            StorageError::Settings(without_secrets(&error.to_string(), &settings.secrets()))
        };
        // The builders have the same methods, but no common trait.
        macro_rules! service {
            ($builder:ty, $key:ty, $name:literal $(, $setting:ident($value:expr))?) => {{
                let mut builder = <$builder>::from_env()
                    .with_url(settings.url.to_string())
                    .with_client_options(client(settings))
                    .with_retry(retry(settings))
                    $(.$setting($value))?;
                for (name, value) in &settings.options {
                    let key: $key = name.parse().map_err(|_| unknown(name, $name))?;
                    builder = builder.with_config(key, value);
                }
                Arc::new(builder.build().map_err(wrong)?)
            }};
        }
        Ok(match scheme {
            ObjectStoreScheme::GoogleCloudStorage => service!(
                GoogleCloudStorageBuilder,
                GoogleConfigKey,
                "Google Cloud Storage"
            ),
            ObjectStoreScheme::MicrosoftAzure => {
                service!(MicrosoftAzureBuilder, AzureConfigKey, "Azure")
            }
            // Objects are deleted one by one, which every S3-compatible service supports.
            _ => service!(
                AmazonS3Builder,
                AmazonS3ConfigKey,
                "Amazon S3",
                with_disable_bulk_delete(true)
            ),
        })
    }

    fn client(settings: &StorageSettings) -> ClientOptions {
        // The provider is process-wide; any earlier call installed the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The operator's endpoint URL may choose plain HTTP, for a storage in the operator's own network.
        ClientOptions::new()
            // A timeout for the whole request would limit the object's size. Instead, `call` limits each wait.
            .with_timeout_disabled()
            .with_read_timeout(settings.call_limit.mul_f64(RETRY_FOR))
            .with_connect_timeout(settings.call_limit.mul_f64(RETRY_FOR / 4.0))
            .with_allow_http(true)
    }

    fn retry(settings: &StorageSettings) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig {
                init_backoff: FIRST_BACKOFF,
                max_backoff: LONGEST_BACKOFF,
                base: 2.0,
            },
            max_retries: 10,
            retry_timeout: settings.call_limit.mul_f64(RETRY_FOR),
        }
    }
}
