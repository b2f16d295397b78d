//! A member's certificates, keys and passwords, as they were last read. All users share them, so a reload renews them for all later
//! connections.

use std::fmt::Display;
use std::io;

use archive::encryption::{Identities, Recipients};
use archive::storage::StorageSettings;
use binlog_server::{Account, ServerTls};
use mysql_link::{ConnectOptions, Secret};
use transport::{TlsMaterial, server_tls};

use crate::error::MemberError;
use crate::mysqld::connect_options;
use crate::protocol::{Refusal, Reloaded};
use crate::settings::{BinlogServerSettings, HookSettings, Settings, TlsSettings};

/// A configured secret or certificate that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableFile {
    /// The configuration key that names the file.
    pub key: &'static str,
    /// The file and the fault, as text.
    pub why: String,
}

/// Reads each secret and certificate as the running member does. Returns all that cannot be used. Does not check when certificates expire.
#[must_use]
pub fn unusable_files(settings: &Settings) -> Vec<UnusableFile> {
    let mut unusable = Vec::new();
    let mut add = |key, error: &dyn Display| {
        let why = error.to_string();
        unusable.push(UnusableFile { key, why });
    };
    if let Some(tls) = &settings.tls
        && let Err(error) = tls.load()
    {
        let key = match error.file() {
            file if file == tls.key_file => "tls.key_file",
            file if file == tls.ca_file => "tls.ca_file",
            _ => "tls.certificate_file",
        };
        add(key, &error);
    }
    if let Some(mysql) = &settings.mysql {
        match connect_options(mysql) {
            Err(error) => add("mysql.password_file", &error),
            Ok(options) => {
                if let Err(error) = options.tls.check() {
                    let own_key = mysql.tls_certificate.as_ref().map(|(_, key)| key.as_path());
                    let key = match error.file() {
                        None => "mysql.tls_certificate_file",
                        file if file == own_key => "mysql.tls_key_file",
                        file if file == mysql.tls_ca_file.as_deref() => "mysql.tls_ca_file",
                        Some(_) => "mysql.tls_certificate_file",
                    };
                    add(key, &error);
                }
                if let Err(error) = options.public_key.read() {
                    add("mysql.public_key_file", &error);
                }
            }
        }
    }
    if let Some(server) = &settings.binlog_server {
        match BinlogServerCredentials::read(server) {
            Ok(_) => {}
            Err(MemberError::BinlogServerTls(error)) => {
                let own_key = server.certificate.as_ref().map(|(_, key)| key.as_path());
                let key = match own_key == Some(error.file()) {
                    true => "binlog_server.tls_key_file",
                    false => "binlog_server.tls_certificate_file",
                };
                add(key, &error);
            }
            Err(error) => add("binlog_server.password_file", &error),
        }
    }
    if let Some(archive) = &settings.archive {
        let (url, file) = (archive.url.clone(), archive.options_file.as_deref());
        if let Err(error) = StorageSettings::with_options_of(url, file, archive.call_limit) {
            add("archive.options_file", &error);
        }
        let recipients = archive.recipients_file.as_deref().map(Recipients::of_file);
        if let Some(Err(error)) = recipients {
            add("archive.recipients_file", &error);
        }
        let identity = archive.identity_file.as_deref();
        if let Some(Err(error)) = identity.map(Identities::of_private_file) {
            add("archive.identity_file", &error);
        }
    }
    unusable
}

pub(crate) struct Credentials {
    /// For TLS between members; none without TLS.
    pub(crate) tls: Option<TlsMaterial>,
    /// Connection to the member's mysqld; `None` for a witness. The connection's certificates are read at each connect.
    pub(crate) mysqld: Option<ConnectOptions>,
    pub(crate) binlog_server: Option<BinlogServerCredentials>,
}

pub(crate) struct BinlogServerCredentials {
    pub(crate) account: Account,
    pub(crate) tls: Option<ServerTls>,
}

impl Credentials {
    /// Reads all secrets and certificates.
    ///
    /// # Errors
    /// The one that cannot be used, and why.
    pub(crate) fn read(settings: &Settings) -> Result<Self, MemberError> {
        let mysqld = settings.mysql.as_ref().map(connect_options).transpose();
        let server = settings.binlog_server.as_ref();
        Ok(Self {
            tls: settings.tls.as_ref().map(TlsSettings::load).transpose()?,
            mysqld: mysqld.map_err(MemberError::password_file("mysql.password_file"))?,
            binlog_server: server.map(BinlogServerCredentials::read).transpose()?,
        })
    }

    /// Replaces the values by newer ones. If a value exists only before or only after, it stays unchanged, because the change needs a
    /// restart.
    pub(crate) fn renew(&self, newer: &Self) {
        if let (Some(own), Some(newer)) = (&self.tls, &newer.tls) {
            own.renew(newer);
        }
        if let (Some(own), Some(newer)) = (&self.mysqld, &newer.mysqld) {
            own.password.renew(&newer.password);
        }
        let servers = (&self.binlog_server, &newer.binlog_server);
        if let (Some(own), Some(newer)) = servers {
            own.account.password.renew(&newer.account.password);
            if let (Some(own), Some(newer)) = (&own.tls, &newer.tls) {
                own.renew(newer);
            }
        }
    }
}

impl BinlogServerCredentials {
    fn read(settings: &BinlogServerSettings) -> Result<Self, MemberError> {
        let password = settings.password.read().and_then(not_empty);
        let unusable = MemberError::password_file("binlog_server.password_file");
        let password = password.map_err(unusable)?;
        let files = settings.certificate.as_ref();
        let tls = files.map(|(certificate, key)| server_tls(certificate, key));
        let tls = tls.transpose().map_err(MemberError::BinlogServerTls)?;
        Ok(Self {
            account: Account {
                user: settings.user.clone(),
                password: Secret::new(password),
            },
            tls: tls.map(ServerTls::new),
        })
    }
}

/// Refuses an empty password, with which any client could read all rows.
fn not_empty(password: String) -> io::Result<String> {
    match password.is_empty() {
        true => Err(io::Error::other("it is empty")),
        false => Ok(password),
    }
}

// Reload of the configuration while the member runs. The program reads the configuration ([`Reload`]). The member first reads and checks
// all files ([`Renewed::read`]). Using the new values then cannot fail.

/// The program's part of a reload.
pub trait Reload: Send + Sync + 'static {
    /// Reloads the configuration, as far as possible while the member runs. A dry run changes nothing.
    ///
    /// # Errors
    /// All faults of the configuration. Nothing was changed.
    fn reload(&self, dry_run: bool) -> Result<Reloaded, Refusal>;
}

/// Certificates, passwords and hooks of a configuration, which a running member can use.
pub struct Renewed {
    pub(crate) credentials: Credentials,
    pub(crate) hooks: HookSettings,
}

impl Renewed {
    /// Reads and checks every file. The member's own certificate is checked as the other members will check it.
    ///
    /// # Errors
    /// The file that cannot be used, and why.
    pub fn read(settings: &Settings) -> Result<Self, MemberError> {
        let credentials = Credentials::read(settings)?;
        if let Some(tls) = &credentials.tls {
            settings.check_shown(tls)?;
        }
        Ok(Self {
            credentials,
            hooks: settings.hooks.clone(),
        })
    }
}
