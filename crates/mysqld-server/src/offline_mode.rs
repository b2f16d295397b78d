//! The statements that set and clear `offline_mode`. The setting outlives the member, and is lost when mysqld restarts. mysqld records the
//! account that last set the variable (`performance_schema.variables_info`). So a restarted member recognises its own earlier setting, and
//! reverts none of an operator's.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError, QueryResult};

use crate::settings::unless_refused;

/// The result of a request to set or clear `offline_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOffline {
    /// `offline_mode` was switched.
    Changed,
    /// `offline_mode` already had the wanted value.
    AlreadySo,
    /// Another account or mysqld's configuration set `offline_mode`, so the value was not changed.
    NotOurs,
}

/// Closes the sessions of ordinary accounts and refuses new ones. Commits that wait for an ACK do not delay this call: they keep waiting,
/// and their clients lose the connection.
///
/// # Errors
/// When the server cannot be reached, or refuses.
pub async fn raise(connect: &ConnectOptions) -> Result<SetOffline, LinkError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    let done = raise_on(&mut connection).await?;
    connection.close().await;
    Ok(done)
}

/// Calls [`raise`] if mysqld's uptime is at least `ago`. With a shorter uptime, the server was never open: returns `None`.
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

/// Closes the sessions of ordinary accounts, and admits new ones immediately. Has no effect if ordinary accounts are already blocked.
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

/// Returns the owner of `offline_mode`; `None` while it is off. If the account may not query the owner, returns [`Owner::Other`].
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
