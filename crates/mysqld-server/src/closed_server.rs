//! Opens a closed server for administrators only, for the few statements that `super_read_only` forbids and that are not written to the
//! binlog. Only the write fence decides about writes at a primary, and a concurrent change by the write fence stays in force.

use std::time::Duration;

use binlog_format::gtid::Gtid;
use mysql_link::{ConnectOptions, Connection, LinkError};

/// How long closing waits for statements of administrators or replica threads. Statements that begin during this wait queue after it.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Temporary write access for administrators.
#[derive(Debug)]
#[must_use = "a server that was closed is to be closed again"]
pub(crate) struct AdministratorsWrite(
    /// True if the server was closed.
    bool,
);

impl AdministratorsWrite {
    /// Lets administrators write at a closed server. `read_only` stays ON, so ordinary clients still cannot write.
    ///
    /// # Errors
    /// [`LinkError`]; nothing was changed, or the outcome is unknown.
    pub(crate) async fn begin(connection: &mut Connection) -> Result<Self, LinkError> {
        // While the write fence closes a primary, one of the two variables may already be ON. Both are ON only on a closed server.
        let answer = connection
            .query("SELECT @@GLOBAL.read_only, @@GLOBAL.super_read_only")
            .await?;
        let row = answer.first();
        let is_on = |at| row.and_then(|row| row.text_at(at)) == Some("1");
        let was_closed = is_on(0) && is_on(1);
        if was_closed {
            connection
                .execute("SET GLOBAL super_read_only = OFF")
                .await?;
        }
        Ok(Self(was_closed))
    }

    /// Closes the server again, unless the write fence has opened it in between.
    ///
    /// # Errors
    /// [`LinkError`]; administrators can still write.
    pub(crate) async fn end(self, connection: &mut Connection) -> Result<(), LinkError> {
        if self.0 {
            let seconds = LOCK_WAIT.as_secs();
            // Opening the server clears `read_only`. This statement copies that value, so it cannot close a server that was opened in
            // between.
            let close = format!(
                "SET SESSION lock_wait_timeout = {seconds}, GLOBAL super_read_only = @@GLOBAL.read_only"
            );
            connection.query_within(close, LOCK_WAIT * 2).await?;
        }
        Ok(())
    }
}

// Executes an operator's statement under the GTID of a transaction that no server can execute, in place of that transaction. No applier
// runs on the server in the meantime.

/// Executes the statement. With `logged`, the statement is also written to the server's own binlog. On return the GTID is executed, even if
/// the statement changes nothing.
///
/// # Errors
/// [`LinkError`]. If mysqld refuses the statement, nothing is changed. If the connection is lost, `gtid_executed` shows whether the
/// statement was executed.
pub async fn execute_instead(
    connect: &ConnectOptions,
    gtid: Gtid,
    statement: &str,
    logged: bool,
) -> Result<(), LinkError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    let writes = AdministratorsWrite::begin(&mut connection).await?;
    let executed = async {
        under_gtid(connect, gtid, &[statement], logged).await?;
        let is_executed = format!("SELECT GTID_SUBSET('{gtid}', @@GLOBAL.gtid_executed)");
        let answer = connection.query(is_executed).await?;
        match answer.value() {
            Some("1") => Ok(()),
            _ => under_gtid(connect, gtid, &["BEGIN", "COMMIT"], logged).await,
        }
    };
    let executed = executed.await;
    let closed = writes.end(&mut connection).await;
    connection.close().await;
    executed.and(closed)
}

/// Executes the statement in a separate session: its end releases an unused GTID.
async fn under_gtid(
    connect: &ConnectOptions,
    gtid: Gtid,
    statements: &[&str],
    logged: bool,
) -> Result<(), LinkError> {
    let mut session = Connection::open_with_own_settings(connect).await?;
    let log = u8::from(logged);
    let begin = format!("SET SESSION sql_log_bin = {log}, gtid_next = '{gtid}'");
    session.execute(begin).await?;
    for statement in statements {
        session.execute(statement).await?;
    }
    session.close().await;
    Ok(())
}
