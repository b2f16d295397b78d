//! Errors: why mysqld does not follow the ring's log, or cannot become the primary.

use applier::backend::BackendError;
use applier::run::ApplyError;
use mysql_link::LinkError;
use mysqld_server::channels::StopChannelsError;
use mysqld_server::follower_binlog::FollowerBinlogError;
use mysqld_server::read_only::ReadOnlyError;
use mysqld_server::sessions::backup_lock::BackupError;
use mysqld_server::settings::StopWaitingError;
use mysqld_server::standing::StandingError;
use thiserror::Error;
use tokio::task::JoinError;

use crate::apply::catching_up::CompareError;
use crate::apply::errant::Errant;
use crate::ring::RingError;

/// Why a step to a follower or to the primary failed.
#[derive(Debug, Error)]
pub(crate) enum RoleError {
    /// The server has transactions that the ring lacks.
    #[error("{0}")]
    Errant(Errant),
    #[error(transparent)]
    Compare(#[from] CompareError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error(transparent)]
    Standing(#[from] StandingError),
    #[error(transparent)]
    StopWaiting(#[from] StopWaitingError),
    #[error(transparent)]
    StopChannels(#[from] StopChannelsError),
    #[error(transparent)]
    ReadOnly(#[from] ReadOnlyError),
    /// A running backup and its description.
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error(transparent)]
    FollowerBinlog(#[from] FollowerBinlogError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("the applier stopped: {}{}", .0, remedy(.0))]
    Applier(ApplyError),
    #[error("the applier broke: {0}")]
    ApplierBroke(JoinError),
    #[error("the ring's log ended")]
    LogEnded,
    #[error(
        "mysqld's replica threads would pass over rows that cannot be applied ({name}={errors}), and this server would come to \
         differ: start it without {name}; and have its data replaced (`witness reprovision`) if it has followed so"
    )]
    SkipsErrors { name: String, errors: String },
    #[error(
        "{0} is OFF, so that readers would see later transactions without earlier ones, and it cannot be set ({1}): \
         STOP REPLICA, and run SET GLOBAL {0} = ON"
    )]
    OutOfOrder(String, LinkError),
    #[error(transparent)]
    Threads(#[from] ThreadsEnded),
    #[error("mysqld cannot be observed: {0}")]
    ThreadsUnknown(LinkError),
    #[error("the replica threads could not be ended: {0}")]
    ThreadsRun(LinkError),
}

fn remedy(error: &ApplyError) -> &'static str {
    match error {
        // Skipping the transaction would make the server's data differ from the ring's, without any
        // later sign.
        ApplyError::Refused { .. } => {
            ". If its data are not the ring's, run `witness reprovision` for this member; do not skip the transaction. Where no \
             server can execute the statement, `witness replace-statement` executes another one in its place"
        }
        _ => "",
    }
}

/// Why mysqld's replica threads do not apply the ring's log.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum ThreadsEnded {
    /// The replica threads have these filters.
    #[error(
        "mysqld's replica threads would leave transactions out ({0}), and this server would have their GTIDs and not their rows: \
         CHANGE REPLICATION FILTER with () in the place of each rule, and take the options out of its option file; and have its data \
         replaced (`witness reprovision`) if it has followed so"
    )]
    Filtered(String),
    /// The replica threads apply this many seconds late.
    #[error(
        "mysqld's replica threads were told to apply everything {0} s late (SOURCE_DELAY), and this server would be the primary that \
         much later: the channel is created again without it. A delayed copy is a replica of its own that reads a member's binlog server"
    )]
    Delayed(String),
    #[error(
        "binlog_order_commits was set to OFF, so that readers would see later transactions without earlier ones: it is set to ON, and \
         the channel is created again"
    )]
    OutOfOrder,
    /// A replica thread failed.
    #[error("mysqld's replica threads stopped: {message} (MySQL error {code}){}", advice(.code))]
    Failed { code: String, message: String },
    /// The receiver's login was refused, with this message.
    #[error("the member's binlog server does not let mysqld's replica threads in: {0}")]
    Denied(String),
    #[error("mysqld's replica threads do not run; another session has ended them")]
    Stopped,
}

fn advice(code: &str) -> String {
    let sentence = code.parse().ok().and_then(mysql_link::not_followed);
    sentence.map_or_else(String::new, |sentence| format!(". {sentence}"))
}

#[cfg(test)]
mod tests {
    use applier::backend::Refusal;

    use super::*;

    #[test]
    fn a_follower_that_is_refused_says_to_reprovision_and_not_to_skip() {
        let refused = RoleError::Applier(ApplyError::Refused {
            gtid: "3e11fa47-71ca-11e1-9e33-c80aa9429562:5".parse().unwrap(),
            refusal: Box::new(Refusal {
                table: None,
                row: None,
                code: 1032,
                message: "Can't find record in 'orders'".to_owned(),
            }),
        });
        let message = refused.to_string();
        assert!(message.contains("run `witness reprovision`"), "{message}");
        assert!(!message.contains("empty transaction"), "{message}");
    }

    #[test]
    fn an_error_of_a_replica_thread_that_mysql_does_not_explain_is_explained() {
        let failed = ThreadsEnded::Failed {
            code: "1812".to_owned(),
            message: String::new(),
        };
        let message = failed.to_string();
        assert!(
            message.contains("(MySQL error 1812). ALTER TABLE … IMPORT TABLESPACE"),
            "{message}"
        );
    }
}
