//! The member's binlog server, which serves the committed log to stock replicas and other clients. It runs while the member takes part in
//! the ring, regardless of which member leads.

pub(crate) mod served_log;

use std::sync::Arc;

use async_trait::async_trait;
use binlog_server::{
    BinlogServer, CommandError, LogCommands, PurgeTo, ServerIdentity, ServerOptions,
};
use tokio::net::TcpListener;

use crate::binlog_serving::served_log::ServedLog;
use crate::error::MemberError;
use crate::log_keeping;
use crate::mysqld::usual_server_id;
use crate::protocol::{PurgeReport, PurgeRequest};
use crate::ring_handle::{RingHandle, RotateError, Rotated};
use crate::state::MemberState;

/// Prepares the server on an open listener, with its log. Returns `None` if the member has no binlog server.
///
/// # Errors
/// If the listener has no address.
pub(crate) fn prepare(
    state: &Arc<MemberState>,
    listener: TcpListener,
    ring: &RingHandle,
) -> Result<Option<(BinlogServer, Arc<ServedLog>)>, MemberError> {
    let (settings, credentials) = (
        &state.settings.binlog_server,
        &state.credentials.binlog_server,
    );
    let (Some(settings), Some(credentials)) = (settings, credentials) else {
        return Ok(None);
    };
    let own = &state.settings.own;
    // A member's incarnation is unique, and no mysqld has the same UUID.
    let identity = ServerIdentity {
        server_id: usual_server_id(own.id),
        server_uuid: state.book.identity().incarnation.0,
        name: own.name.clone(),
    };
    let options = ServerOptions {
        tls: credentials.tls.clone(),
        require_tls: settings.require_tls,
        max_connections: settings.max_connections,
        queue_bytes: settings.queue_bytes,
        ..ServerOptions::new(credentials.account.clone(), identity)
    };
    let log = Arc::new(ServedLog::new(&state.settings, ring.clone()));
    let orders = Arc::new(Orders {
        ring: ring.clone(),
        state: state.clone(),
    });
    let server = BinlogServer::new(listener, options, log.clone(), orders);
    let server = server.map_err(MemberError::BinlogServer)?;
    Ok(Some((server, log)))
}

/// The two file statements that clients of the binlog server may execute. They are recorded like the commands of an operator.
struct Orders {
    ring: RingHandle,
    state: Arc<MemberState>,
}

impl Orders {
    /// Returns the leader's name, for statements that only the leader can execute.
    fn leader(&self) -> String {
        let view = self.ring.member.status().ring_view;
        match view.leader.and_then(|leader| view.member(leader)) {
            Some(leader) => format!(
                "`{}` leads: send it to the binlog server there",
                leader.record.name
            ),
            None => "no leader is known: check with `witness status`".to_owned(),
        }
    }
}

#[async_trait]
impl LogCommands for Orders {
    async fn flush(&self) -> Result<String, CommandError> {
        tracing::info!(target: "audit", "a client of the binlog server orders FLUSH BINARY LOGS");
        match self.ring.rotate().await {
            Ok(Rotated { entry, .. }) => {
                Ok(format!("the log was rotated everywhere by entry {entry}"))
            }
            Err(error @ RotateError::NotServing) => {
                Err(format!("{error}; {}", self.leader()).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn purge(&self, to: PurgeTo) -> Result<String, CommandError> {
        tracing::info!(target: "audit", "a client of the binlog server orders PURGE BINARY LOGS: {to:?}");
        let request = match to {
            PurgeTo::File(name) => PurgeRequest::BeforeFile(name),
            PurgeTo::Time(time) => PurgeRequest::ClosedBefore(time),
        };
        let purged = log_keeping::purge_on_order(&self.ring, &request, &self.state, false).await;
        let report = purged.map_err(|refusal| format!("{}; {}", refusal.what, refusal.advice))?;
        Ok(purge_message(&report))
    }
}

fn purge_message(report: &PurgeReport) -> String {
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
    fn a_purge_report_names_the_kept_file_and_its_reason() {
        let report = PurgeReport {
            removed: vec!["binlog.000001".into(), "binlog.000002".into()],
            kept: Some(KeptFile {
                file: "binlog.000003".into(),
                because: "is being written to".into(),
            }),
            ..PurgeReport::default()
        };
        assert_eq!(
            purge_message(&report),
            "binlog.000001 to binlog.000002 were removed; binlog.000003 stays: it is being written to"
        );
        assert_eq!(
            purge_message(&PurgeReport::default()),
            "no file was removed"
        );
    }
}
