//! The donor's part of a copy: installs the plugin, and creates an account for one copy. None of these changes is written to its binlog.

use std::fmt;
use std::str::FromStr;

use mysql_link::{ConnectOptions, Connection, LinkError, server_code};
use raft_types::MemberId;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::closed_server::AdministratorsWrite;
use crate::conversion::takes_tls;
use crate::provision::other_engines::other_engines;
use crate::provision::{At, ProvisionError};

/// The data that a recipient needs for its copy.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneOffer {
    /// The account for this one copy.
    pub account: CloneAccount,
    /// Password of that account, created for this copy.
    pub password: String,
    /// The TCP port of the donor's mysqld.
    pub port: u16,
    /// Version of the donor's mysqld.
    pub version: String,
    /// The account of the donor's member, which is copied with the data.
    pub member_account: String,
    /// Privileges of that account in the form of SHOW GRANTS; empty from a member with an earlier version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub member_grants: Vec<String>,
    /// True if the donor's data are encrypted, so that the copy is useless without a keyring.
    #[serde(default)]
    pub keyring_needed: bool,
    /// Approximate size of the donor's tables and indexes in bytes.
    pub bytes: u64,
}

impl CloneOffer {
    /// Returns the privileges that the copied account lacks for a member that applies the log itself. Such a member needs the privileges of
    /// every account in the ring.
    pub fn lacks_for_rows(&self) -> Vec<&'static str> {
        match self.member_grants.as_slice() {
            [] => Vec::new(),
            lines => applier::mysql::lacks_for_rows(lines.iter().map(String::as_str)),
        }
    }
}

impl fmt::Debug for CloneOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloneOffer")
            .field("account", &self.account)
            .field("port", &self.port)
            .field("version", &self.version)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// Creates an account for a copy, and removes the accounts of earlier copies by the same recipient. Refuses if the copy would lack rows.
///
/// # Errors
/// [`ProvisionError`]. A created account is kept until the next offer.
pub async fn offer(
    connect: &ConnectOptions,
    recipient: MemberId,
) -> Result<CloneOffer, ProvisionError> {
    let opened = Connection::open_with_own_settings(connect).await;
    let mut connection = opened.at("the donor's mysqld cannot be reached")?;
    let others = other_engines(&mut connection).await;
    let others = others.at("which engines tables have")?;
    if !others.is_empty() {
        return Err(ProvisionError::OtherEngines(others.join(", ")));
    }
    let encrypted = is_encrypted(&mut connection).await;
    let keyring_needed = encrypted.at("whether data are encrypted")?;
    let grants = connection.query("SHOW GRANTS").await;
    let grants = grants.at("what the member's account may")?;
    let account = CloneAccount::random(recipient);
    // The password is long, and has characters of every kind that a server's policy may require.
    let password = format!("Aa1-{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let port = parsed(&mut connection, "SELECT @@GLOBAL.port", "the port").await?;
    let version = value(&mut connection, "SELECT VERSION()", "the version").await?;
    let bytes = tablespace_bytes(&mut connection).await?;
    let tls = takes_tls(&mut connection).await;
    // If TLS is available, the copy must use TLS.
    let require = match tls.at("whether there is TLS")? {
        true => "SSL",
        false => "NONE",
    };
    let make = [
        format!(
            "CREATE USER '{account}'@'%' IDENTIFIED BY '{password}' REQUIRE {require} PASSWORD EXPIRE INTERVAL 7 DAY"
        ),
        format!("GRANT BACKUP_ADMIN ON *.* TO '{account}'@'%'"),
    ];
    let what = "the account for the copy cannot be made at the donor";
    let open = unlogged(&mut connection).await.at(what)?;
    let made = async {
        install_plugin(&mut connection).await?;
        drop_accounts(&mut connection, &CloneAccount::pattern(Some(recipient))).await?;
        for statement in &make {
            connection.execute(statement).await?;
        }
        Ok::<(), LinkError>(())
    };
    let made = made.await;
    let closed = open.end(&mut connection).await;
    closed.at("the donor cannot be closed again")?;
    made.at(what)?;
    connection.close().await;
    Ok(CloneOffer {
        account,
        password,
        port,
        version,
        member_account: connect.user.clone(),
        member_grants: grants.values().map(str::to_owned).collect(),
        keyring_needed,
        bytes,
    })
}

/// Removes the account of a copy.
///
/// # Errors
/// [`ProvisionError`]; the account may still exist.
pub async fn withdraw(
    connect: &ConnectOptions,
    account: &CloneAccount,
) -> Result<(), ProvisionError> {
    let what = "the account of the copy cannot be removed at the donor";
    let opened = Connection::open_with_own_settings(connect).await;
    let mut connection = opened.at(what)?;
    let open = unlogged(&mut connection).await.at(what)?;
    let drop = format!("DROP USER IF EXISTS '{account}'@'%'");
    let dropped = connection.execute(drop).await;
    let closed = open.end(&mut connection).await;
    closed.at("the donor cannot be closed again")?;
    dropped.at(what)?;
    connection.close().await;
    Ok(())
}

/// Lets this session write to a closed server without writing to its binlog.
async fn unlogged(connection: &mut Connection) -> Result<AdministratorsWrite, LinkError> {
    connection.execute("SET SESSION sql_log_bin = 0").await?;
    AdministratorsWrite::begin(connection).await
}

/// Drops the accounts for copies whose names match the pattern.
pub(super) async fn drop_accounts(
    connection: &mut Connection,
    pattern: &str,
) -> Result<(), LinkError> {
    let found = format!("SELECT user FROM mysql.user WHERE host = '%' AND user LIKE '{pattern}'");
    let found = connection.query(found).await?;
    let names = found.values();
    let accounts = names.filter_map(|name| CloneAccount::try_from(name.to_owned()).ok());
    for account in accounts.collect::<Vec<_>>() {
        let drop = format!("DROP USER IF EXISTS '{account}'@'%'");
        connection.execute(drop).await?;
    }
    Ok(())
}

// The account that a donor creates for one copy. Only such accounts have names of this form. So a name from another member is safe in a
// statement, and its removal never affects another account.

const PREFIX: &str = "witness_clone_";
/// MySQL's limit for the name of an account, in characters.
const LONGEST: usize = 32;

/// The name of such an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct CloneAccount(String);

impl CloneAccount {
    /// Creates a new, unused name for this recipient.
    pub fn random(recipient: MemberId) -> Self {
        let random = Uuid::new_v4().simple().to_string();
        // Larger numbers share only the beginning of the name.
        let number = recipient.0 % 1_000_000;
        Self(format!("{PREFIX}{number}_{}", &random[..10]))
    }

    /// Returns the `LIKE` pattern for such accounts of one recipient, or of all recipients.
    pub(super) fn pattern(recipient: Option<MemberId>) -> String {
        let escaped = PREFIX.replace('_', "\\\\_");
        match recipient {
            Some(recipient) => format!("{escaped}{}\\\\_%", recipient.0 % 1_000_000),
            None => format!("{escaped}%"),
        }
    }

    /// User name of the account, as in `witness_clone_…`.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// The error for the name of any other account.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no account of a provisioning")]
pub struct NoCloneAccount(String);

impl TryFrom<String> for CloneAccount {
    type Error = NoCloneAccount;

    fn try_from(name: String) -> Result<Self, NoCloneAccount> {
        let plain = |rest: &str| {
            let mut bytes = rest.bytes();
            bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let rest = name.strip_prefix(PREFIX);
        if name.len() <= LONGEST && rest.is_some_and(plain) {
            Ok(Self(name))
        } else {
            Err(NoCloneAccount(name))
        }
    }
}

impl fmt::Display for CloneAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// Queries at both ends of a copy, and the plugin that both need.

pub(super) async fn has_plugin(connection: &mut Connection) -> Result<bool, LinkError> {
    let plugin = "SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name = 'clone' AND plugin_status = 'ACTIVE'";
    asked(connection, plugin).await
}

/// Installs the plugin if mysqld lacks it.
pub(super) async fn install_plugin(connection: &mut Connection) -> Result<(), LinkError> {
    if has_plugin(connection).await? {
        return Ok(());
    }
    let installed = connection
        .execute("INSTALL PLUGIN clone SONAME 'mysql_clone.so'")
        .await;
    match installed {
        // Another session installed the plugin in between.
        Err(LinkError::Server(error)) if error.code == server_code::PLUGIN_EXISTS => Ok(()),
        other => other.map(drop),
    }
}

pub(super) async fn reach(connect: &ConnectOptions) -> Result<Connection, ProvisionError> {
    let opened = Connection::open_with_own_settings(connect).await;
    opened.at("mysqld cannot be reached")
}

pub(super) async fn value(
    connection: &mut Connection,
    query: &str,
    what: &'static str,
) -> Result<String, ProvisionError> {
    let answer = connection.query(query).await.at(what)?;
    let text = answer.value().map(str::to_owned);
    text.ok_or(ProvisionError::Answer { what })
}

pub(super) async fn parsed<T: FromStr>(
    connection: &mut Connection,
    query: &str,
    what: &'static str,
) -> Result<T, ProvisionError> {
    let text = value(connection, query, what).await?;
    text.parse().map_err(|_| ProvisionError::Answer { what })
}

/// Returns the size of tables and indexes in bytes. Uses InnoDB's files, because tables are listed only to accounts that may read them.
pub(super) async fn tablespace_bytes(connection: &mut Connection) -> Result<u64, ProvisionError> {
    let query = "SELECT CAST(IFNULL(SUM(file_size), 0) AS UNSIGNED) FROM information_schema.innodb_tablespaces";
    parsed(connection, query, "the size of the data").await
}

// Encryption at rest. A copy of encrypted files needs a keyring, and MySQL detects a missing keyring only after it has removed all data of
// the recipient.

/// True if existing data or new writes are encrypted: tablespaces, the redo log, or the undo log.
pub(super) async fn is_encrypted(connection: &mut Connection) -> Result<bool, LinkError> {
    asked(
        connection,
        "SELECT (SELECT COUNT(*) FROM information_schema.innodb_tablespaces WHERE encryption = 'Y') \
         OR @@GLOBAL.innodb_redo_log_encrypt OR @@GLOBAL.innodb_undo_log_encrypt",
    )
    .await
}

/// True if the server has an active keyring, a component or, before 9.0, a plugin.
pub(super) async fn has_keyring(connection: &mut Connection) -> Result<bool, LinkError> {
    asked(
        connection,
        "SELECT (SELECT COUNT(*) FROM performance_schema.keyring_component_status \
         WHERE status_key = 'Component_status' AND status_value = 'Active') \
         OR (SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_name LIKE 'keyring%' AND plugin_status = 'ACTIVE')",
    )
    .await
}

async fn asked(connection: &mut Connection, question: &str) -> Result<bool, LinkError> {
    let answer = connection.query(question).await?;
    Ok(answer.value() == Some("1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_new_and_fits() {
        let most = CloneAccount::random(MemberId(u64::MAX));
        assert!(most.name().len() <= LONGEST, "{most}");
        assert_ne!(most, CloneAccount::random(MemberId(u64::MAX)));
        assert_eq!(CloneAccount::try_from(most.0.clone()), Ok(most));
        assert!(
            CloneAccount::random(MemberId(3))
                .name()
                .starts_with("witness_clone_3_")
        );
        assert_eq!(
            CloneAccount::pattern(Some(MemberId(3))),
            r"witness\\_clone\\_3\\_%"
        );
    }

    #[test]
    fn no_other_account_has_such_a_name() {
        for name in [
            "root",
            "witness",
            "witness_clone_'; DROP USER x; --",
            "witness_clone_0123456789_0123456789",
        ] {
            assert!(CloneAccount::try_from(name.to_owned()).is_err(), "{name}");
        }
    }
}
