//! The archive's location, and the keys to read it.

use std::path::PathBuf;
use std::time::Duration;

use archive::base_backup::BASE_FOLDER;
use archive::encryption::Identities;
use archive::reading::ArchivedLog;
use archive::storage::{Storage, StorageError, StorageSettings};
use url::Url;

use crate::cli::config_args::ConfigArgs;
use crate::config::FileCheck;
use crate::terminal::{Exit, Failure};

/// Time limit of one storage call without a configuration.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Which archive.
#[derive(Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// Where the archive is, as in `archive.url`; without it, as the configuration says
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// File with what the storage has to know, as in `archive.options_file`
    #[arg(long, value_name = "FILE", requires = "url")]
    options_file: Option<PathBuf>,
    /// Configuration file to take them from
    #[arg(short, long, value_name = "FILE", env = "WITNESS_CONFIG")]
    config: Option<PathBuf>,
}

/// Which archive, and with what it is decrypted.
#[derive(Debug, clap::Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// File with an identity, a secret key, of one of those for whom it is encrypted; may be given more than once
    #[arg(short, long = "identity", value_name = "FILE")]
    identities: Vec<PathBuf>,
}

/// A storage with an archive.
pub(super) struct Place {
    pub(super) url: Url,
    pub(super) storage: Storage,
    /// How long committed entries are kept there, if a configuration was read.
    pub(super) keep: Option<Duration>,
    /// How many of the newest base backups are kept.
    pub(super) keep_base_backups: Option<usize>,
}

impl PlaceArgs {
    pub(super) fn place(&self) -> Result<Place, Failure> {
        let (url, file, call_limit, keep, keep_base_backups) = match &self.url {
            Some(url) => (
                url.clone(),
                self.options_file.clone(),
                CALL_LIMIT,
                None,
                None,
            ),
            None => {
                let config = ConfigArgs::of_file(self.config.clone());
                let settings = config.load(FileCheck::Nothing)?.0.member.archive;
                let settings = settings.ok_or_else(no_archive)?;
                let (url, file) = (settings.url, settings.options_file);
                (
                    url,
                    file,
                    settings.call_limit,
                    settings.keep,
                    settings.keep_base_backups,
                )
            }
        };
        let reached = StorageSettings::with_options_of(url.clone(), file.as_deref(), call_limit);
        let storage = reached.and_then(|reached| Storage::open(&reached));
        Ok(Place {
            url,
            storage: storage.map_err(|error| unreachable(&error))?,
            keep,
            keep_base_backups,
        })
    }

    /// The log's archive, from its names.
    pub(super) async fn open(&self) -> Result<ArchivedLog, Failure> {
        let (_, log) = self.look().await?;
        log.ok_or_else(|| Failure::error("there is no log of a ring in the archive"))
    }

    /// The storage and the log's archive, if any: there may be base backups only.
    pub(super) async fn look(&self) -> Result<(Storage, Option<ArchivedLog>), Failure> {
        let Place { url, storage, .. } = self.place()?;
        let log = ArchivedLog::look(storage.clone(), None).await;
        let Some(log) = log.map_err(|error| unreachable(&error))? else {
            let bases = storage.list(BASE_FOLDER).await;
            if bases.map_err(|error| unreachable(&error))?.is_empty() {
                return Err(Failure::error(format!(
                    "there is no log of a ring in the archive at {url}, and no base backup"
                )));
            }
            return Ok((storage, None));
        };
        if let Some(begins) = log.begins().filter(|_| log.runs().is_empty()) {
            return Err(Failure::new(
                Exit::Corrupt,
                format!(
                    "nothing is left of the archive at {url}, which should begin with {begins}"
                ),
                "",
            ));
        }
        Ok((storage, Some(log)))
    }
}

/// Neither a flag nor the configuration names the archive.
pub(super) fn no_archive() -> Failure {
    Failure::new(
        Exit::Usage,
        "neither --url nor a configuration with `archive.url` is given",
        "say where the archive is, as in --url s3://backups/orders",
    )
}

impl ReadArgs {
    /// The storage and its settings.
    pub(super) fn place(&self) -> Result<Place, Failure> {
        self.place.place()
    }

    /// The keys for decryption.
    pub(super) fn identities(&self) -> Result<Identities, Failure> {
        let identities = Identities::of_files(&self.identities);
        identities.map_err(|error| Failure::new(Exit::Usage, error.to_string(), ""))
    }

    /// The log's archive, from its names.
    pub(super) async fn open(&self) -> Result<ArchivedLog, Failure> {
        let identities = self.identities()?;
        Ok(self.place.open().await?.with_identities(identities))
    }

    /// The storage and the log's archive, if any.
    pub(super) async fn look(&self) -> Result<(Storage, Option<ArchivedLog>), Failure> {
        let identities = self.identities()?;
        let (storage, log) = self.place.look().await?;
        Ok((storage, log.map(|log| log.with_identities(identities))))
    }
}

pub(super) fn unreachable(error: &StorageError) -> Failure {
    Failure::error(error.to_string())
}
