//! The two statements about files that clients of the binlog server may order. They are recorded like any operator's.

use async_trait::async_trait;
use binlog_server::{LogCommands, PurgeTo};
use mysql_link::ConnectOptions;

use crate::log_keeping::purge_order;
use crate::mysqld::connect_options;
use crate::protocol::{PurgeReport, PurgeWish};
use crate::ring_handle::{RingHandle, RotateError, Rotated};
use crate::settings::{LogSettings, MysqlSettings, Settings};

/// See the module.
pub(crate) struct Orders {
    ring: RingHandle,
    log: LogSettings,
    mysql: Option<MysqlSettings>,
}

impl Orders {
    pub(crate) fn new(config: &Settings, ring: RingHandle) -> Self {
        Self {
            ring,
            log: config.log,
            mysql: config.mysql.clone(),
        }
    }

    fn mysqld(&self) -> Result<Option<ConnectOptions>, String> {
        let options = self.mysql.as_ref().map(connect_options).transpose();
        options
            .map_err(|error| format!("the file of `mysql.password_file` cannot be read: {error}"))
    }

    /// Who else could carry out what only the leader can.
    fn leader(&self) -> String {
        let status = self.ring.member.status();
        match status
            .ring_view
            .leader
            .and_then(|leader| status.ring_view.member(leader))
        {
            Some(leader) => format!(
                "`{}` leads: send it to the binlog server there",
                leader.record.name
            ),
            None => "no leader is known: look with `witness status`".to_owned(),
        }
    }
}

#[async_trait]
impl LogCommands for Orders {
    async fn flush(&self) -> Result<String, String> {
        tracing::info!(target: "audit", "a client of the binlog server orders FLUSH BINARY LOGS");
        match self.ring.rotate().await {
            Ok(Rotated { entry, .. }) => {
                Ok(format!("the log was rotated everywhere by entry {entry}"))
            }
            Err(error @ RotateError::NotServing) => Err(format!("{error}; {}", self.leader())),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn purge(&self, to: PurgeTo) -> Result<String, String> {
        tracing::info!(target: "audit", "a client of the binlog server orders PURGE BINARY LOGS: {to:?}");
        let wish = match to {
            PurgeTo::File(name) => PurgeWish::BeforeFile(name),
            PurgeTo::Time(time) => PurgeWish::ClosedBefore(time),
        };
        let mysqld = self.mysqld()?;
        let absent_after = self.log.absent_after;
        let purged =
            purge_order::carry_out(&self.ring, &wish, absent_after, mysqld.as_ref(), false).await;
        let report = purged.map_err(|refusal| format!("{}; {}", refusal.what, refusal.advice))?;
        Ok(words(&report))
    }
}

fn words(report: &PurgeReport) -> String {
    let removed = match &report.removed[..] {
        [] => "no file was removed".to_owned(),
        [only] => format!("{only} was removed"),
        [first, .., last] => format!("{first} to {last} were removed"),
    };
    match &report.kept {
        Some(kept) => format!("{removed}; {} stays: it {}", kept.file, kept.because),
        None => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::KeptFile;

    #[test]
    fn what_stays_says_why() {
        let report = PurgeReport {
            removed: vec!["binlog.000001".into(), "binlog.000002".into()],
            kept: Some(KeptFile {
                file: "binlog.000003".into(),
                because: "is being written to".into(),
            }),
            ..PurgeReport::default()
        };
        assert_eq!(
            words(&report),
            "binlog.000001 to binlog.000002 were removed; binlog.000003 stays: it is being written to"
        );
        assert_eq!(words(&PurgeReport::default()), "no file was removed");
    }
}
