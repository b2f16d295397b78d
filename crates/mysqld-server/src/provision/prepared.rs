//! Prepared XA transactions of a server whose data are about to be removed: they outlive their sessions, and a restart. A copy first drops
//! each table, and waits for open transactions that have used it, for as long as `lock_wait_timeout`, a year by default.

use mysql_link::{ConnectOptions, LinkError, Row};

use crate::provision::ProvisionError;
use crate::provision::donor::reach;

/// The server's prepared XA transactions, named in the form of `XA ROLLBACK`.
///
/// # Errors
/// [`ProvisionError`].
pub async fn prepared_transactions(
    connect: &ConnectOptions,
) -> Result<Vec<String>, ProvisionError> {
    let mut connection = reach(connect).await?;
    let prepared = match connection.query("XA RECOVER CONVERT XID").await {
        Ok(prepared) => prepared.rows.iter().filter_map(name_of).collect(),
        // It needs XA_RECOVER_ADMIN, which an account with few rights may not have.
        Err(LinkError::Server(error)) => {
            tracing::warn!(%error, "whether XA transactions are prepared is not known; where there are, the copy waits for them: end them with XA RECOVER CONVERT XID and XA ROLLBACK");
            Vec::new()
        }
        Err(error) => {
            return Err(ProvisionError::at("which XA transactions are prepared")(
                error,
            ));
        }
    };
    connection.close().await;
    Ok(prepared)
}

/// Rolls [prepared transactions](prepared_transactions) back, and writes none of that to the binlog: from then on the server lacks
/// transactions that are in its `gtid_executed`, and must not be used before it has a copy.
///
/// # Errors
/// [`ProvisionError`]; some may be rolled back then.
pub async fn roll_back_prepared(
    connect: &ConnectOptions,
    prepared: &[String],
) -> Result<(), ProvisionError> {
    let mut connection = reach(connect).await?;
    let done = async {
        connection.execute("SET SESSION sql_log_bin = 0").await?;
        for xid in prepared {
            tracing::warn!(%xid, "a prepared XA transaction is rolled back: the data of this mysqld are replaced");
            let rollback = format!("XA ROLLBACK {xid}");
            or_say(&rollback, connection.execute(&rollback).await)?;
        }
        Ok(())
    };
    done.await.map_err(ProvisionError::at(
        "prepared XA transactions cannot be rolled back",
    ))?;
    connection.close().await;
    Ok(())
}

/// A session that has already ended is fine; one that cannot be ended, as of an account with SYSTEM_USER, is logged.
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

/// A row of `XA RECOVER CONVERT XID` in the form of `XA ROLLBACK`: two hexadecimal texts with given lengths, and a number.
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
