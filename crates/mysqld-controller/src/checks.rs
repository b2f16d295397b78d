//! Slow checks of mysqld, in addition to the watcher, each with a warning for `witness status`. One checks whether the member can log in,
//! and still will after mysqld's next start. The other checks whether the primary has transactions that never reach the ring. For example,
//! a dump loaded with `SET GTID_PURGED` and `SQL_LOG_BIN = 0`, mysqldump's defaults, is in no binlog file.

use std::sync::Arc;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use mysql_link::ConnectOptions;
use mysqld_server::settings::{OwnAccount, log_in};
use tokio::sync::watch;

use crate::apply::shortened;
use crate::ingest::IngestStatus;
use crate::ring::{Ring, RingError};
use crate::watch::WatchReport;

/// Interval between checks of the account.
const LOG_IN_EVERY: Duration = Duration::from_secs(10);
/// Interval between comparisons with the ring, as on a follower.
const COMPARE_EVERY: Duration = Duration::from_secs(20);

/// Inputs of the checks.
#[derive(Debug)]
pub struct Checks<R> {
    /// The ring with which the primary is compared.
    pub ring: Arc<R>,
    /// mysqld and the member's account.
    pub connect: ConnectOptions,
    /// The recorded state of that account.
    pub account: OwnAccount,
    /// True if the primary's transactions are received.
    pub ingest: watch::Receiver<IngestStatus>,
    /// The watcher's reports.
    pub reports: watch::Receiver<WatchReport>,
}

/// The warnings of the checks.
#[derive(Debug, Clone)]
pub struct Warnings {
    /// The problem with the member's account.
    pub account: watch::Receiver<Option<String>>,
    /// The primary's transactions that the ring never receives.
    pub never_sent: watch::Receiver<Option<String>>,
}

impl<R: Ring> Checks<R> {
    /// Returns the checks, as a future to poll, and their warnings. A failed check keeps the last warning.
    pub fn start(self) -> (impl Future<Output = ()> + Send, Warnings) {
        let (account_fault, account) = watch::channel(None);
        let (lacks, never_sent) = watch::channel(None);
        let logs_in = log_in_periodically(self.connect, self.account, account_fault);
        let compares = compare_periodically(self.ring, self.reports, self.ingest, lacks);
        let both = async move {
            tokio::join!(logs_in, compares);
        };
        let warnings = Warnings {
            account,
            never_sent,
        };
        (both, warnings)
    }
}

async fn log_in_periodically(
    connect: ConnectOptions,
    mut account: OwnAccount,
    told: watch::Sender<Option<String>>,
) {
    loop {
        match log_in(&connect).await {
            Ok(login) => tell(&told, account.see(login)),
            Err(error) => {
                tracing::debug!(%error, "whether the member's account is let in is not known for now");
            }
        }
        tokio::time::sleep(LOG_IN_EVERY).await;
    }
}

/// Compares the primary with the ring while ingest is attached.
async fn compare_periodically<R: Ring>(
    ring: Arc<R>,
    reports: watch::Receiver<WatchReport>,
    ingest: watch::Receiver<IngestStatus>,
    told: watch::Sender<Option<String>>,
) {
    loop {
        tokio::time::sleep(COMPARE_EVERY).await;
        let attached = ingest.borrow().is_attached();
        let server = reports.borrow().server.clone().filter(|_| attached);
        let purged = server.map(|server| server.purged).unwrap_or_default();
        match never_sent(&*ring, purged).await {
            Ok(lacks) => tell(&told, never_sent_warning(&lacks)),
            Err(cause) => {
                tracing::debug!(%cause, "what the primary has is not compared with the ring for now");
            }
        }
    }
}

/// Returns the transactions that the primary has purged, so that no server sends them, and that the ring's log lacks. Normally empty; not
/// empty after loading a dump with its `SET GTID_PURGED`.
///
/// # Errors
/// The log cannot be read.
pub async fn never_sent<R: Ring>(ring: &R, purged: GtidSet) -> Result<GtidSet, RingError> {
    if purged.is_empty() {
        return Ok(purged);
    }
    // Read after the primary: it purges a file only after the ACKs of all its transactions.
    let log = ring.log().await?;
    Ok(purged.difference(&log.gtids))
}

/// Sends a warning, and logs it if it has changed.
fn tell(told: &watch::Sender<Option<String>>, warning: Option<String>) {
    let changed = told.send_if_modified(|told| {
        let changed = *told != warning;
        told.clone_from(&warning);
        changed
    });
    if let Some(warning) = warning.filter(|_| changed) {
        tracing::warn!("{warning}");
    }
}

/// Returns the warning for an operator.
fn never_sent_warning(lacks: &GtidSet) -> Option<String> {
    if lacks.is_empty() {
        return None;
    }
    let gtids = shortened(lacks.to_string().replace('\n', ""));
    Some(format!(
        "{} transactions of its mysqld were loaded without the binlog, and the ring does not have them: {gtids}. The other servers \
         lack these data, and a promotion loses them. Dump the schemas with `--databases … --set-gtid-purged=OFF`, load that here, \
         then switch over and reprovision this one with --force",
        lacks.count()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_loaded_without_the_binlog_are_reported() {
        assert_eq!(never_sent_warning(&GtidSet::new()), None);
        let dump = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb:1-5000"
            .parse()
            .unwrap();
        let message = never_sent_warning(&dump).unwrap();
        assert!(
            message.starts_with("5000 transactions of its mysqld were loaded without the binlog")
                && message.contains("bbbb:1-5000. The other"),
            "{message}"
        );
    }
}
