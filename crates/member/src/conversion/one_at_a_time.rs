//! Locks out concurrent runs: a lock in the data directory for this host, and a lock in the primary's mysqld for all others. Both end with
//! the process.

use std::fs::{File, TryLockError};
use std::path::Path;

use mysql_link::{ConnectOptions, Connection};

use crate::conversion::{ConversionFailure, FailureKind};

const FILE_NAME: &str = "conversion.lock";
const LOCK_NAME: &str = "witness.conversion";

/// Both locks.
pub(super) struct OneAtATime {
    _file: File,
    _connection: Connection,
}

impl OneAtATime {
    /// Takes both locks.
    ///
    /// # Errors
    /// Refused when another run holds one of them; an error when a lock cannot be requested.
    pub(super) async fn take(
        data_dir: &Path,
        primary: &ConnectOptions,
    ) -> Result<Self, ConversionFailure> {
        let path = data_dir.join(FILE_NAME);
        let file = File::create(&path).map_err(|error| {
            ConversionFailure::new(
                FailureKind::Error,
                format!("{} cannot be made: {error}", path.display()),
                "run this on the member's host, as the account that the member runs as",
            )
        })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(busy(&path.display().to_string())),
            Err(TryLockError::Error(error)) => {
                return Err(ConversionFailure::error(error.to_string()));
            }
        }
        let failed = |error| {
            ConversionFailure::error(format!("the primary's mysqld cannot be locked: {error}"))
        };
        let mut connection = Connection::open_with_own_settings(primary)
            .await
            .map_err(failed)?;
        let asked = format!("SELECT GET_LOCK('{LOCK_NAME}', 0)");
        let taken = connection.query(&asked).await.map_err(failed)?;
        let taken = taken.first().and_then(|row| row.text_at(0));
        if taken != Some("1") {
            return Err(busy(&format!(
                "the lock `{LOCK_NAME}` of the primary's mysqld"
            )));
        }
        Ok(Self {
            _file: file,
            _connection: connection,
        })
    }
}

fn busy(what: &str) -> ConversionFailure {
    ConversionFailure::new(
        FailureKind::Refused,
        format!("another run has {what}: `enable-raft` or `disable-raft` is under way"),
        "nothing was done; wait until that has ended",
    )
}
