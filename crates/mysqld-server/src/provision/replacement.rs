//! Executes an operator's statement in place of a transaction of the ring's log that no server can execute, under its GTID.
//! Nothing else applies to the server during that.

use binlog_format::gtid::Gtid;
use mysql_link::{ConnectOptions, Connection, LinkError};

use crate::closed_server::AdministratorsWrite;

/// Executes it. With `logged`, it is in the server's own binlog as well. On return the GTID is executed, also where the statement
/// changes nothing.
///
/// # Errors
/// [`LinkError`]: mysqld refuses the statement, and nothing is changed; or the connection is lost, and `gtid_executed` shows whether
/// it was executed.
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
        match answer.first().and_then(|row| row.text_at(0)) {
            Some("1") => Ok(()),
            _ => under_gtid(connect, gtid, &["BEGIN", "COMMIT"], logged).await,
        }
    };
    let executed = executed.await;
    let closed = writes.end(&mut connection).await;
    connection.close().await;
    executed.and(closed)
}

/// In a session of its own, whose end releases the GTID if it is unused.
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
