//! Clients of object storage services. A build without the `cloud` feature has none, and no HTTP client for them.

use std::sync::Arc;

use object_store::{ObjectStore, ObjectStoreScheme};

use crate::storage_settings::{StorageError, StorageSettings};

/// Opens a bucket or container without a request.
///
/// # Errors
/// When the service has no such option, or this build lacks the feature.
#[cfg(not(feature = "cloud"))]
pub(crate) fn open(
    _: &ObjectStoreScheme,
    settings: &StorageSettings,
    _: &[String],
) -> Result<Arc<dyn ObjectStore>, StorageError> {
    Err(StorageError::Settings(format!(
        "this program was built without object storage and cannot use {}; use a released package, build with `--features cloud`, or name \
         a directory by file:///",
        settings.url
    )))
}

#[cfg(feature = "cloud")]
pub(crate) use with_cloud::open;

#[cfg(feature = "cloud")]
mod with_cloud {
    use std::time::Duration;

    use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
    use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
    use object_store::{BackoffConfig, ClientOptions, RetryConfig};

    use super::*;
    use crate::storage_settings::{unknown, without_secrets};

    /// Part of a call's timeout for retries while a service is busy.
    const RETRY_FOR: f64 = 0.7;
    const FIRST_BACKOFF: Duration = Duration::from_millis(100);
    const LONGEST_BACKOFF: Duration = Duration::from_secs(5);

    /// Opens a bucket or container without a request. No message contains a secret.
    ///
    /// # Errors
    /// When the service has no such option.
    pub(crate) fn open(
        scheme: &ObjectStoreScheme,
        settings: &StorageSettings,
        secrets: &[String],
    ) -> Result<Arc<dyn ObjectStore>, StorageError> {
        let wrong = |error: object_store::Error| {
            StorageError::Settings(without_secrets(&error.to_string(), secrets))
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
        // Process-wide; any earlier call installed the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The operator's endpoint URL may choose plain HTTP, for a storage in the operator's own network.
        ClientOptions::new()
            // A timeout of the whole request would limit the object's size; `call` bounds each wait.
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
