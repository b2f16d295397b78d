//! The archive's location and keys, from arguments or from the configuration of this host's member.

use std::path::PathBuf;
use std::time::Duration;

use archive::base_backup::{
    BASE_FOLDER, BASE_VERSION, BaseError, BaseForm, BaseManifest, BaseName, survey,
};
use archive::encryption::{EncryptionError, Identities, Recipients};
use archive::name::Malformed;
use archive::reading::ArchivedLog;
use archive::storage::{Storage, StorageError};
use binlog_format::gtid::GtidSet;
use member::settings::ArchiveSettings;
use member::status::MemberView;
use raft_types::{MemberId, RingId};
use url::Url;

use crate::cli::config_args::ConfigArgs;
use crate::config::{Config, FileCheck};
use crate::operator::Asker;
use crate::terminal::{Attempt, Exit, Failure};

/// The time limit of one storage call, if no configuration sets one.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// Which archive.
#[derive(Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// The location of the archive, as in `archive.url`; by default from the configuration
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
    pub(super) place: PlaceArgs,
    /// File with the identity (secret key) of a recipient of the encryption; may be given more than once
    #[arg(short, long = "identity", value_name = "FILE")]
    identities: Vec<PathBuf>,
}

/// A storage with an archive.
pub(super) struct Place {
    pub(super) url: Url,
    pub(super) storage: Storage,
    /// How long committed entries are kept in the archive; `None` without a configuration or a limit.
    pub(super) keep: Option<Duration>,
    /// How many of the newest base backups are kept; `None` without a configuration or a limit.
    pub(super) keep_base_backups: Option<usize>,
}

impl PlaceArgs {
    pub(super) fn place(&self) -> Attempt<Place> {
        if let Some(url) = &self.url {
            let file = self.options_file.as_deref();
            return Ok(Place {
                storage: Storage::open_with(url.clone(), file, CALL_LIMIT)?,
                url: url.clone(),
                keep: None,
                keep_base_backups: None,
            });
        }
        let config = ConfigArgs::of_file(self.config.clone());
        let settings = config.load(FileCheck::Nothing)?.0.member.archive;
        let settings = settings.ok_or_else(no_archive)?;
        let (url, file) = (settings.url.clone(), settings.options_file.as_deref());
        Ok(Place {
            storage: Storage::open_with(url, file, settings.call_limit)?,
            url: settings.url,
            keep: settings.keep,
            keep_base_backups: settings.keep_base_backups,
        })
    }

    /// Opens the storage, and the log in it. The log is `None` if the archive has only base backups.
    pub(super) async fn look(&self) -> Attempt<(Storage, Option<ArchivedLog>)> {
        let Place { url, storage, .. } = self.place()?;
        let Some(log) = ArchivedLog::look(storage.clone(), None).await? else {
            if storage.list(BASE_FOLDER).await?.is_empty() {
                return Err(Failure::error(format!(
                    "there is no log of a ring in the archive at {url}, and no base backup"
                )));
            }
            return Ok((storage, None));
        };
        if let Some(begins) = log.begins.filter(|_| log.runs.is_empty()) {
            return Err(Exit::Corrupt.because(
                format!(
                    "nothing is left of the archive at {url}, which should begin with {begins}"
                ),
                "",
            ));
        }
        Ok((storage, Some(log)))
    }
}

/// The failure of a command for which neither a flag nor the configuration names the archive.
pub(super) fn no_archive() -> Failure {
    Exit::Usage.because(
        "neither --url nor a configuration with `archive.url` is given",
        "say where the archive is, as in --url s3://backups/orders",
    )
}

impl ReadArgs {
    /// Reads the keys for decryption.
    pub(super) fn identities(&self) -> Attempt<Identities> {
        Ok(Identities::of_files(&self.identities)?)
    }

    /// Opens the storage, and the log in it with the keys for decryption. The log is `None` if the archive has only base backups.
    pub(super) async fn look(&self) -> Attempt<(Storage, Option<ArchivedLog>)> {
        let identities = self.identities()?;
        let (storage, log) = self.place.look().await?;
        Ok((storage, log.map(|log| log.with_identities(identities))))
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        Self::error(error)
    }
}

impl From<EncryptionError> for Failure {
    fn from(error: EncryptionError) -> Self {
        Exit::Usage.because(error, "")
    }
}

impl From<BaseError> for Failure {
    fn from(error: BaseError) -> Self {
        let exit = match &error {
            BaseError::Stopped => return stopped(),
            BaseError::Unfit { .. } => Exit::Refused,
            error if error.is_damage() => Exit::Corrupt,
            _ => Exit::Error,
        };
        exit.because(error, "")
    }
}

/// The failure of a command that a signal has stopped.
pub(super) fn stopped() -> Failure {
    Failure::error("it was stopped, and left nothing")
}

/// The archive of a configured member.
pub(super) struct OwnArchive {
    pub(super) storage: Storage,
    pub(super) member: MemberId,
    pub(super) settings: ArchiveSettings,
    /// The public keys for which objects are encrypted; `None` without encryption.
    pub(super) recipients: Option<Recipients>,
    pub(super) config: Config,
}

impl OwnArchive {
    /// Reads the configuration, without access to the storage.
    ///
    /// # Errors
    /// Exit 2 if the configuration is wrong or names no archive.
    pub(super) fn open(config: Option<PathBuf>) -> Attempt<Self> {
        let (config, _) = ConfigArgs::of_file(config).load(FileCheck::Readable)?;
        let settings = config.member.archive.clone().ok_or_else(no_archive)?;
        let (url, file) = (settings.url.clone(), settings.options_file.as_deref());
        let storage = Storage::open_with(url, file, settings.call_limit);
        let recipients = settings.recipients_file.as_deref();
        Ok(Self {
            recipients: recipients.map(Recipients::of_file).transpose()?,
            storage: storage?,
            member: config.member.own.id,
            settings,
            config,
        })
    }

    /// Requests the view of this host's member.
    ///
    /// # Errors
    /// Exit 4 if the member does not answer.
    pub(super) async fn view(&self) -> Attempt<MemberView> {
        let asker = Asker::new(&self.config.member);
        let asker = asker.map_err(Failure::error)?;
        let own = &self.config.member.own;
        asker.ask(own).await.map_err(|error| {
            Exit::Refused.because(
                format!(
                    "member `{}` does not say what its mysqld is: {}",
                    own.name, error.why
                ),
                "start it: a backup of data that are not the ring's would be of no use",
            )
        })
    }

    /// Returns the manifest of a base backup of a data directory, before any data is stored.
    pub(super) fn base(&self, ring: RingId, name: BaseName, began_at: u64) -> BaseManifest {
        BaseManifest {
            version: BASE_VERSION,
            ring,
            name,
            form: BaseForm::DataDirectory,
            gtids_at_least: GtidSet::new(),
            gtids_at_most: GtidSet::new(),
            committed: None,
            began_at,
            ended_at: began_at,
            mysqld_version: None,
            server_uuid: None,
            keyring_needed: None,
            objects: Vec::new(),
            tar: None,
            unpacked_bytes: 0,
            files: 0,
            taken_by: self.member,
        }
    }

    /// Returns the ring of the archive, as the member reports it; if the member does not, as the archive records it.
    ///
    /// # Errors
    /// Exit 4 if neither has a ring.
    pub(super) async fn ring(&self) -> Attempt<RingId> {
        if let Ok(view) = self.view().await
            && let Some(ring) = view.ring.id
        {
            return Ok(ring);
        }
        let mut log = ArchivedLog::look(self.storage.clone(), None).await?;
        let first = log.as_ref().and_then(|log| log.pieces().next());
        if let (Some(log), Some(piece)) = (&mut log, first)
            && let Ok(manifest) = log.manifest(piece).await
        {
            return Ok(manifest.ring);
        }
        let known = survey(&self.storage, None).await?;
        let base = known.bases.last().map(|base| base.ring);
        base.ok_or_else(|| {
            Exit::Refused.because(
                "neither the member of this host nor the archive says which ring it is",
                "start the member",
            )
        })
    }
}

/// Parses the GTID set of a backup.
pub(super) fn gtids(text: &str) -> Result<GtidSet, Malformed> {
    let gtids = text
        .parse()
        .ok()
        .filter(|gtids: &GtidSet| !gtids.is_empty());
    gtids.ok_or_else(|| Malformed::new(text, "a set of GTIDs such as UUID:1-77"))
}
