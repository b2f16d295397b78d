//! Transactions of a server whose data are about to be removed. A copy drops each table first, and waits for whoever has used it in a
//! transaction that is not over, for as long as `lock_wait_timeout` says, a year by default.

use mysql_link::{Connection, LinkError, Row};

/// Sessions that use no table of a client.
const OF_THE_SERVER: [&str; 2] = ["system user", "event_scheduler"];

/// Ends the sessions of all but `own`, the member's account, and rolls back what XA has prepared, which outlives its session and a
/// restart. Nothing of that is written to the binlog where the session has it off.
pub(super) async fn end_transactions(
    connection: &mut Connection,
    own: &str,
) -> Result<(), LinkError> {
    let sessions = connection.query("SHOW PROCESSLIST").await?;
    for session in &sessions.rows {
        let text = |column: &str| session.text(column).unwrap_or_default();
        let user = text("User");
        if user == own || OF_THE_SERVER.contains(&user) || text("Command") == "Daemon" {
            continue;
        }
        let kill = format!("KILL {}", text("Id"));
        or_say(&kill, connection.execute(&kill).await)?;
    }
    let prepared = match connection.query("XA RECOVER CONVERT XID").await {
        Ok(prepared) => prepared,
        // It needs XA_RECOVER_ADMIN, which an account with few rights may not have.
        Err(LinkError::Server(error)) => {
            tracing::warn!(%error, "whether XA transactions are prepared is not known; where there are, the copy waits for them: end them with XA RECOVER CONVERT XID and XA ROLLBACK");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    for xid in prepared.rows.iter().filter_map(name_of) {
        tracing::warn!(%xid, "a prepared XA transaction is rolled back: the data of this mysqld are replaced");
        let rollback = format!("XA ROLLBACK {xid}");
        or_say(&rollback, connection.execute(&rollback).await)?;
    }
    Ok(())
}

/// What has ended meanwhile needs no end, and what cannot be ended, as a session of an account with SYSTEM_USER, is said.
fn or_say(statement: &str, done: Result<u64, LinkError>) -> Result<(), LinkError> {
    match done {
        Ok(_) => Ok(()),
        Err(LinkError::Server(error)) => {
            tracing::warn!(%error, statement, "not done before the data of this mysqld are replaced");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// As `XA ROLLBACK` takes it, of a row of `XA RECOVER CONVERT XID`: two texts in hexadecimal, of which lengths are told, and a number.
fn name_of(row: &Row) -> Option<String> {
    let number = |place| row.text_at(place)?.parse::<usize>().ok();
    let (format, gtrid, bqual) = (number(0)?, number(1)?, number(2)?);
    let both = row.text_at(3)?.strip_prefix("0x")?;
    let (gtrid, bqual) = (
        both.get(..2 * gtrid)?,
        both.get(2 * gtrid..2 * (gtrid + bqual))?,
    );
    Some(format!("X'{gtrid}', X'{bqual}', {format}"))
}
