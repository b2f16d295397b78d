//! Shared parts of the commands that add base backups to the archive of this host's member.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use archive::base_backup::{BaseError, survey};
use archive::encryption::Recipients;
use archive::reading::ArchivedLog;
use archive::storage::{Storage, StorageSettings};
use binlog_format::gtid::GtidSet;
use member::settings::ArchiveSettings;
use member::status::MemberView;
use raft_types::{MemberId, RingId};

use super::conditions::refused;
use super::copying::stopped;
use super::place::{no_archive, unreachable};
use crate::cli::config_args::ConfigArgs;
use crate::config::{Config, FileCheck};
use crate::operator::Asker;
use crate::terminal::{Exit, Failure};

/// The archive of a configured member.
pub(super) struct OwnArchive {
    pub(super) storage: Storage,
    pub(super) member: MemberId,
    pub(super) settings: ArchiveSettings,
    /// Recipients of the encryption.
    pub(super) recipients: Option<Recipients>,
    pub(super) config: Config,
}

impl OwnArchive {
    /// Reads the configuration, without access to the storage.
    ///
    /// # Errors
    /// Exit 2 where the configuration is wrong or names no archive.
    pub(super) fn open(config: Option<PathBuf>) -> Result<Self, Failure> {
        let (config, _) = ConfigArgs::of_file(config).load(FileCheck::Readable)?;
        let settings = config.member.archive.clone().ok_or_else(no_archive)?;
        let file = settings.options_file.as_deref();
        let reached =
            StorageSettings::with_options_of(settings.url.clone(), file, settings.call_limit);
        let storage = reached.and_then(|reached| Storage::open(&reached));
        let recipients = settings.recipients_file.as_deref();
        let recipients = recipients.map(Recipients::of_file).transpose();
        let recipients =
            recipients.map_err(|error| Failure::new(Exit::Usage, error.to_string(), ""))?;
        Ok(Self {
            recipients,
            storage: storage.map_err(|error| unreachable(&error))?,
            member: config.member.own.id,
            settings,
            config,
        })
    }

    /// The view of this host's member.
    ///
    /// # Errors
    /// Exit 4 where it does not answer.
    pub(super) async fn view(&self) -> Result<MemberView, Failure> {
        let asker = Asker::new(&self.config.member);
        let asker = asker.map_err(|error| Failure::error(error.to_string()))?;
        let own = &self.config.member.own;
        asker.ask(own).await.map_err(|error| {
            refused(
                format!(
                    "member `{}` does not say what its mysqld is: {}",
                    own.name, error.why
                ),
                "start it: a backup of data that are not the ring's would be of no use",
            )
        })
    }

    /// The archive's ring: from the member, or else from the archive.
    ///
    /// # Errors
    /// Exit 4 where neither knows it.
    pub(super) async fn ring(&self) -> Result<RingId, Failure> {
        if let Ok(view) = self.view().await
            && let Some(ring) = view.ring.id
        {
            return Ok(ring);
        }
        let log = ArchivedLog::look(self.storage.clone(), None).await;
        if let Some(mut log) = log.map_err(|error| unreachable(&error))? {
            let first = log
                .runs()
                .first()
                .and_then(|run| run.pieces.first())
                .copied();
            if let Some(piece) = first
                && let Ok(manifest) = log.manifest(piece).await
            {
                return Ok(manifest.ring);
            }
        }
        let known = survey(&self.storage, None).await;
        let known = known.map_err(|error| unreachable(&error))?;
        let base = known.bases.last().map(|base| base.ring);
        base.ok_or_else(|| {
            refused(
                "neither the member of this host nor the archive says which ring it is",
                "start the member",
            )
        })
    }
}

/// GTIDs of a backup.
pub(super) fn gtids(text: &str) -> Result<GtidSet, String> {
    match text.parse::<GtidSet>() {
        Ok(gtids) if !gtids.is_empty() => Ok(gtids),
        Ok(_) => Err("it is an empty set".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Current time, in seconds since 1970.
pub(super) fn now() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    since_1970.unwrap_or_default().as_secs()
}

/// The command's failure.
pub(super) fn base_failure(error: &BaseError) -> Failure {
    match error {
        BaseError::Stopped => stopped(),
        BaseError::Unfit { .. } => refused(error.to_string(), ""),
        error if error.is_damage() => Failure::new(Exit::Corrupt, error.to_string(), ""),
        error => Failure::error(error.to_string()),
    }
}
