//! The statements. Their settings outlive the member, and are lost when mysqld restarts. mysqld itself records the
//! account that set the variable last (`performance_schema.variables_info`). So a restarted member recognises its own earlier
//! settings, and reverts none of an operator's.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError, QueryResult};

use crate::settings::unless_refused;

/// Result of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOffline {
    /// `offline_mode` was switched.
    Changed,
    /// It already had the wanted value.
    AlreadySo,
    /// Another account or mysqld's configuration set it, and it stays.
    NotOurs,
}

/// Closes the sessions of ordinary accounts and refuses new ones. Waiting commits do not delay it: they keep waiting, and
/// their clients lose the connection.
///
/// # Errors
/// When the server cannot be reached, or refuses.
pub async fn raise(connect: &ConnectOptions) -> Result<SetOffline, LinkError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    let done = raise_on(&mut connection).await?;
    connection.close().await;
    Ok(done)
}

/// [`raise`], unless the server was started within this time: such a server was never open. Then it does nothing.
///
/// # Errors
/// As [`raise`].
pub async fn raise_in_start_before(
    connect: &ConnectOptions,
    ago: Duration,
) -> Result<Option<SetOffline>, LinkError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    let answer = connection.query(UPTIME).await?;
    let up: Option<u64> = answer.value().and_then(|seconds| seconds.parse().ok());
    // mysqld reports whole seconds, so one second is uncertain.
    let is_new = up.is_some_and(|up| Duration::from_secs(up + 1) < ago);
    let done = match is_new {
        true => None,
        false => Some(raise_on(&mut connection).await?),
    };
    connection.close().await;
    Ok(done)
}

async fn raise_on(connection: &mut Connection) -> Result<SetOffline, LinkError> {
    let found = look(connection).await?;
    Ok(match found {
        Some(Owner::Us) => SetOffline::AlreadySo,
        Some(Owner::Other) => SetOffline::NotOurs,
        None => {
            connection.execute("SET GLOBAL offline_mode = ON").await?;
            SetOffline::Changed
        }
    })
}

/// Admits ordinary accounts again, if this account blocked them.
///
/// # Errors
/// When the server cannot be reached, or refuses.
pub async fn lower(connect: &ConnectOptions) -> Result<SetOffline, LinkError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    let found = look(&mut connection).await?;
    let done = match found {
        None => SetOffline::AlreadySo,
        Some(Owner::Other) => SetOffline::NotOurs,
        Some(Owner::Us) => {
            connection.execute("SET GLOBAL offline_mode = OFF").await?;
            SetOffline::Changed
        }
    };
    connection.close().await;
    Ok(done)
}

/// Closes the sessions of ordinary accounts, and admits them again immediately. Without effect if they are already blocked.
///
/// # Errors
/// When the server cannot be reached, or refuses.
pub async fn close_sessions(connect: &ConnectOptions) -> Result<(), LinkError> {
    if raise(connect).await? == SetOffline::Changed {
        lower(connect).await?;
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// This account, by a statement.
    Us,
    /// Another account, or an option of the server.
    Other,
}

const UPTIME: &str =
    "SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Uptime'";

const WHO: &str = "SELECT variable_source = 'DYNAMIC' AND set_user = SUBSTRING_INDEX(USER(), '@', 1) \
     FROM performance_schema.variables_info WHERE variable_name = 'offline_mode'";

/// `None` while it is off. An account without the privilege to query the owner assumes another account.
async fn look(connection: &mut Connection) -> Result<Option<Owner>, LinkError> {
    let on = connection.query("SELECT @@GLOBAL.offline_mode").await?;
    if on.value() != Some("1") {
        return Ok(None);
    }
    let who = unless_refused(connection.query(WHO).await)?;
    Ok(Some(match who.as_ref().and_then(QueryResult::value) {
        Some("1") => Owner::Us,
        _ => Owner::Other,
    }))
}
