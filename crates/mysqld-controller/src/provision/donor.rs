//! What the donor does: has the plugin, and makes an account for one copy. Nothing of that is written to its binlog.

use mysql_link::{ConnectOptions, Connection, LinkError};
use raft_types::MemberId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::account::CloneAccount;
use super::clone_plugin::{has_plugin, install_plugin, number, value};
use super::error::ProvisionError;

/// What a recipient needs for its copy.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneOffer {
    /// The account for this one copy.
    pub account: CloneAccount,
    /// Its password.
    pub password: String,
    /// The TCP port of the donor's mysqld.
    pub port: u16,
    /// Its version.
    pub version: String,
    /// The account of its member, which comes with its data.
    pub member_account: String,
    /// Bytes of its tables and indexes, about.
    pub bytes: u64,
}

impl std::fmt::Debug for CloneOffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CloneOffer")
            .field("account", &self.account)
            .field("port", &self.port)
            .field("version", &self.version)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Makes an account for a copy, and takes those of earlier copies of the same recipient away.
///
/// # Errors
/// [`ProvisionError`]; an account that was made stays until the next offer.
pub async fn offer(
    connect: &ConnectOptions,
    recipient: MemberId,
) -> Result<CloneOffer, ProvisionError> {
    let opened = Connection::open(connect).await;
    let mut connection =
        opened.map_err(ProvisionError::at("the donor's mysqld cannot be reached"))?;
    let account = CloneAccount::random(recipient);
    // Long, and with characters of every kind that a server's policy may ask for.
    let password = format!("Aa1-{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let port = number(&mut connection, "SELECT @@GLOBAL.port", "the port").await?;
    let port = u16::try_from(port).map_err(|_| ProvisionError::Answer { what: "the port" })?;
    let version = value(&mut connection, "SELECT VERSION()", "the version").await?;
    let bytes = number(
        &mut connection,
        "SELECT CAST(IFNULL(SUM(data_length + index_length), 0) AS UNSIGNED) FROM information_schema.tables",
        "the size of the data",
    )
    .await?;
    let tls = value(
        &mut connection,
        "SELECT IFNULL(MAX(value), 'No') FROM performance_schema.tls_channel_status \
         WHERE channel = 'mysql_main' AND property = 'Enabled'",
        "whether there is TLS",
    )
    .await?;
    // Where the data can travel under TLS, they travel no other way.
    let require = if tls == "Yes" { "SSL" } else { "NONE" };
    let make = [
        format!(
            "CREATE USER '{account}'@'%' IDENTIFIED BY '{password}' REQUIRE {require} PASSWORD EXPIRE INTERVAL 7 DAY"
        ),
        format!("GRANT BACKUP_ADMIN ON *.* TO '{account}'@'%'"),
    ];
    let what = "the account for the copy cannot be made at the donor";
    let closed = ajar(&mut connection)
        .await
        .map_err(ProvisionError::at(what))?;
    let made = async {
        if !has_plugin(&mut connection).await? {
            install_plugin(&mut connection).await?;
        }
        drop_accounts(&mut connection, &CloneAccount::pattern(Some(recipient))).await?;
        for statement in &make {
            connection.execute(statement).await?;
        }
        Ok::<(), LinkError>(())
    }
    .await;
    if closed {
        let close = connection.execute("SET GLOBAL super_read_only = ON").await;
        close.map_err(ProvisionError::at("the donor cannot be closed again"))?;
    }
    made.map_err(ProvisionError::at(what))?;
    connection.close().await;
    Ok(CloneOffer {
        account,
        password,
        port,
        version,
        member_account: connect.user.clone(),
        bytes,
    })
}

/// Takes the account of a copy away.
///
/// # Errors
/// [`ProvisionError`]; the account is there still.
pub async fn withdraw(
    connect: &ConnectOptions,
    account: &CloneAccount,
) -> Result<(), ProvisionError> {
    let what = "the account of the copy cannot be removed at the donor";
    let mut connection = Connection::open(connect)
        .await
        .map_err(ProvisionError::at(what))?;
    let closed = ajar(&mut connection)
        .await
        .map_err(ProvisionError::at(what))?;
    let dropped = connection
        .execute(format!("DROP USER IF EXISTS '{account}'@'%'"))
        .await;
    if closed {
        let close = connection.execute("SET GLOBAL super_read_only = ON").await;
        close.map_err(ProvisionError::at("the donor cannot be closed again"))?;
    }
    dropped.map_err(ProvisionError::at(what))?;
    connection.close().await;
    Ok(())
}

/// Lets administrators write where nobody may, which nothing of this is possible without, and without a trace in the binlog.
/// Says whether it has to be closed again.
async fn ajar(connection: &mut Connection) -> Result<bool, LinkError> {
    connection.execute("SET SESSION sql_log_bin = 0").await?;
    let answer = connection.query("SELECT @@GLOBAL.super_read_only").await?;
    let closed = answer.first().and_then(|row| row.text_at(0)) == Some("1");
    if closed {
        // Clients stay locked out.
        connection
            .execute("SET GLOBAL read_only = ON, GLOBAL super_read_only = OFF")
            .await?;
    }
    Ok(closed)
}

/// Drops the accounts of copies whose names match.
pub(super) async fn drop_accounts(
    connection: &mut Connection,
    pattern: &str,
) -> Result<(), LinkError> {
    let found = format!("SELECT user FROM mysql.user WHERE host = '%' AND user LIKE '{pattern}'");
    let found = connection.query(found).await?;
    let names = found.rows.iter().filter_map(|row| row.text_at(0));
    let accounts = names.filter_map(|name| CloneAccount::try_from(name.to_owned()).ok());
    for account in accounts.collect::<Vec<_>>() {
        connection
            .execute(format!("DROP USER IF EXISTS '{account}'@'%'"))
            .await?;
    }
    Ok(())
}
