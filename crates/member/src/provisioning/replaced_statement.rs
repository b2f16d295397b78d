//! Executes another statement in place of the transaction at which the applier of this member's mysqld is stopped.

use std::time::Duration;

use applier::source::Source;
use binlog_format::gtid::Gtid;
use mysqld_controller::CommittedLog;
use mysqld_controller::status::{Hold, RoleState, RoleStatus};
use mysqld_server::provision::{execute_instead, executed_and_applied};
use raft_types::MAX_TRANSACTION_BYTES;

use super::Provisioner;
use crate::protocol::Refusal;

/// How long it may take until the applier stops again at the transaction, which it retries repeatedly.
const STOPS: Duration = Duration::from_secs(20);
const NOTHING: &str = "nothing was executed; check with `witness status` where it is stopped";

impl Provisioner {
    /// Executes the statement under this GTID, and restarts the applier. Returns true if mysqld follows afterwards.
    ///
    /// # Errors
    /// If the applier is not stopped at exactly this transaction, or mysqld refuses the statement. Nothing is executed then.
    pub(crate) async fn replace(&self, gtid: &str, statement: &str) -> Result<bool, Refusal> {
        let not_one = |_| refused(&format!("`{gtid}` is not the GTID of one transaction"));
        let gtid: Gtid = gtid.parse().map_err(not_one)?;
        self.may_begin()?;
        let (Ok(_only), Ok(_alone)) = (self.command.try_lock(), self.busy.try_lock()) else {
            return Err(refused(
                "the data of this member's mysqld are being replaced",
            ));
        };
        let Some(mut role) = self.mysqld.role.clone() else {
            return Err(refused("nothing is applied to this member's mysqld"));
        };
        let stopped = |status: &RoleStatus| {
            matches!(status.state, RoleState::Stopped { .. }) && status.not_the_rings.is_empty()
        };
        let is_free = self.hold.borrow().is_none();
        let stops = tokio::time::timeout(STOPS, role.wait_for(stopped));
        if !is_free || !matches!(stops.await, Ok(Ok(_))) {
            return Err(refused(
                "the applier of this member is not stopped by a transaction",
            ));
        }
        let what = format!("an operator executes a statement in the place of {gtid}");
        let executed = async {
            self.hold_the_role(Hold::Working { what }).await?;
            self.execute_at(gtid, statement).await
        };
        let executed = executed.await;
        self.set(None);
        executed?;
        Ok(self.mysqld.followed().await? == RoleState::Following)
    }

    async fn execute_at(&self, gtid: Gtid, statement: &str) -> Result<(), Refusal> {
        let connect = &self.mysqld.connect;
        let executed = executed_and_applied(connect).await?;
        let mut log = self.ring.committed_log(executed, MAX_TRANSACTION_BYTES);
        let next = tokio::time::timeout(super::SOON, log.next()).await;
        let next = match next {
            Ok(Ok(Some(transaction))) => transaction.gtid,
            Ok(Ok(None)) | Err(_) => return Err(refused("this mysqld lacks nothing of the log")),
            Ok(Err(error)) => return Err(refused(&format!("the log cannot be read: {error}"))),
        };
        if next != gtid {
            let why = format!("the next transaction of the log is {next}, not {gtid}");
            return Err(refused(&why));
        }
        let logged = !self.mysqld.applies_rows;
        let done = execute_instead(connect, gtid, statement, logged).await;
        done.map_err(|error| {
            Refusal::failed(
                format!("mysqld did not execute the statement: {error}"),
                "the transaction is not executed; give another statement",
            )
        })
    }
}

fn refused(why: &str) -> Refusal {
    Refusal::refused(why, NOTHING)
}
