//! Where an archive is, and why a request to it failed.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use url::Url;

/// Where an archive is, and how to access it.
#[derive(Clone, PartialEq, Eq)]
pub struct StorageSettings {
    /// `s3://bucket/folder`, `gs://bucket/folder`, `az://container/folder` or `file:///folder`.
    pub url: Url,
    /// Other options of the service, by the lower-case names of its environment variables, as `aws_endpoint` and `aws_secret_access_key`.
    /// They override the environment; without either, the machine's role applies.
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
            let wrong = |why: String| StorageError::Settings(format!("{}: {why}", file.display()));
            let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
            options = options_in(&text).map_err(wrong)?;
        }
        Ok(Self {
            url,
            options,
            call_limit,
        })
    }
}

/// Parses lines as `aws_endpoint = "https://…"`. They may be secret, so that no message quotes them.
fn options_in(text: &str) -> Result<BTreeMap<String, String>, String> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(0, |before| before.matches('\n').count()) + 1;
        format!("line {line} is no `option = \"text\"`, with an option only once")
    })
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
    /// The storage refused, or is unreachable.
    #[error("cannot {what}: {why}")]
    Failed {
        /// The request.
        what: String,
        /// The storage's message.
        why: String,
    },
    /// The storage did not answer in time.
    #[error("cannot {what}: the storage did not answer within {limit:?}")]
    Silent {
        /// The request.
        what: String,
        /// The timeout.
        limit: Duration,
    },
    /// The object exceeds the limit for reading into memory.
    #[error("{name} has {bytes} bytes, and at most {most} are read")]
    TooLarge {
        /// The object.
        name: String,
        /// Its size.
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

pub(crate) fn unknown(option: &str, storage: &str) -> StorageError {
    StorageError::Settings(format!("{storage} has no option `{option}`"))
}

/// A service's message may quote the request. Removes secrets anywhere, and everything after the `?` of a URL, which may contain a
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
