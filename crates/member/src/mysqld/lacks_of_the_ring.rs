//! Periodically checks whether the primary has transactions that never reach the ring. A dump loaded with `SET GTID_PURGED` and
//! `SQL_LOG_BIN = 0`, mysqldump's defaults, is in no binlog file.

use std::sync::Arc;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use mysql_link::ConnectOptions;
use mysqld_controller::apply::never_sent;
use mysqld_controller::ingest::IngestStatus;
use tokio::sync::watch;

use super::tell;
use crate::ring_handle::RingHandle;

/// Interval between checks, as at a follower.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// Checks indefinitely while attached to the primary; sends the warning to `told`.
pub(super) async fn look(
    ring: Arc<RingHandle>,
    connect: ConnectOptions,
    ingest: watch::Receiver<IngestStatus>,
    told: watch::Sender<Option<String>>,
) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let attached = ingest.borrow().is_attached();
        let warning = match attached {
            true => never_sent(&*ring, &connect).await,
            false => Ok(GtidSet::new()),
        };
        match warning.map(|lacks| words(&lacks)) {
            Ok(warning) => tell(&told, warning),
            Err(cause) => {
                tracing::debug!(%cause, "what the primary has is not compared with the ring for now");
            }
        }
    }
}

/// The warning for an operator.
fn words(lacks: &GtidSet) -> Option<String> {
    const SHOWN: usize = 300;
    if lacks.is_empty() {
        return None;
    }
    let mut gtids = lacks.to_string().replace('\n', "");
    if gtids.len() > SHOWN {
        gtids = gtids.chars().take(SHOWN).chain(['…']).collect();
    }
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
    fn what_the_ring_never_gets_is_said_in_words() {
        assert_eq!(words(&GtidSet::new()), None);
        let dump = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb:1-5000"
            .parse()
            .unwrap();
        let said = words(&dump).unwrap();
        assert!(
            said.starts_with("5000 transactions of its mysqld were loaded without the binlog")
                && said.contains("bbbb:1-5000. The other"),
            "{said}"
        );
    }
}
