//! A member's certificates, keys and passwords, as last read. All users share them, so that a reload renews them for all later connections.

use std::io;

use archive::encryption::{Identities, Recipients};
use archive::storage::StorageSettings;
use binlog_server::{Account, ServerTls};
use mysql_link::{ConnectOptions, Secret};
use transport::{TlsMaterial, server_tls};

use crate::error::MemberError;
use crate::mysqld::connect_options;
use crate::settings::{BinlogServerSettings, Settings, TlsSettings};

/// A configured secret or certificate that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableFile {
    /// The key that names the file.
    pub key: &'static str,
    /// The file and its fault.
    pub why: String,
}

/// Reads each secret and certificate as the running member does, and returns all that cannot be used. Does not check their expiry.
#[must_use]
pub fn unusable_files(settings: &Settings) -> Vec<UnusableFile> {
    let mut unusable = Vec::new();
    let mut check = |key: &'static str, why: Option<String>| {
        unusable.extend(why.map(|why| UnusableFile { key, why }));
    };
    if let Some(tls) = &settings.tls
        && let Err(error) = tls.load()
    {
        let file = error.file();
        let key = match () {
            () if file == tls.key_file => "tls.key_file",
            () if file == tls.ca_file => "tls.ca_file",
            () => "tls.certificate_file",
        };
        check(key, Some(error.to_string()));
    }
    if let Some(mysql) = &settings.mysql {
        match connect_options(mysql) {
            Err(error) => check("mysql.password_file", Some(error.to_string())),
            Ok(options) => {
                if let Err(error) = options.tls.check() {
                    let pair = mysql.tls_certificate.as_ref();
                    let key = match error.file() {
                        Some(file) if pair.is_some_and(|(_, key)| file == key) => {
                            "mysql.tls_key_file"
                        }
                        Some(file) if mysql.tls_ca_file.as_deref() == Some(file) => {
                            "mysql.tls_ca_file"
                        }
                        _ => "mysql.tls_certificate_file",
                    };
                    check(key, Some(error.to_string()));
                }
                let key = options
                    .public_key
                    .read()
                    .err()
                    .map(|error| error.to_string());
                check("mysql.public_key_file", key);
            }
        }
    }
    if let Some(server) = &settings.binlog_server {
        let why = match BinlogServerCredentials::read(server) {
            Err(MemberError::BinlogServerTls(error)) => {
                let own_key = server.certificate.as_ref().map(|(_, key)| key.as_path());
                let key = match own_key == Some(error.file()) {
                    true => "binlog_server.tls_key_file",
                    false => "binlog_server.tls_certificate_file",
                };
                check(key, Some(error.to_string()));
                None
            }
            read => read.err().map(|error| error.to_string()),
        };
        check("binlog_server.password_file", why);
    }
    if let Some(archive) = &settings.archive {
        let (url, file) = (archive.url.clone(), archive.options_file.as_deref());
        let options = StorageSettings::with_options_of(url, file, archive.call_limit).err();
        check(
            "archive.options_file",
            options.map(|error| error.to_string()),
        );
        let recipients = archive.recipients_file.as_deref().map(Recipients::of_file);
        let recipients = recipients.and_then(Result::err);
        check(
            "archive.recipients_file",
            recipients.map(|error| error.to_string()),
        );
        let identity = archive
            .identity_file
            .as_deref()
            .map(Identities::of_private_file);
        let identity = identity.and_then(Result::err);
        check(
            "archive.identity_file",
            identity.map(|error| error.to_string()),
        );
    }
    unusable
}

pub(crate) struct Credentials {
    /// For TLS between members; none without TLS.
    pub(crate) tls: Option<TlsMaterial>,
    /// Connection to the member's mysqld; none for a witness. Its certificates are read at each connection.
    pub(crate) mysqld: Option<ConnectOptions>,
    pub(crate) binlog_server: Option<BinlogServerCredentials>,
}

pub(crate) struct BinlogServerCredentials {
    pub(crate) account: Account,
    pub(crate) tls: Option<ServerTls>,
}

impl Credentials {
    /// Reads all of them.
    ///
    /// # Errors
    /// Which one cannot be used, and why.
    pub(crate) fn read(settings: &Settings) -> Result<Self, MemberError> {
        let mysqld = settings.mysql.as_ref().map(connect_options).transpose();
        let server = settings.binlog_server.as_ref();
        Ok(Self {
            tls: settings.tls.as_ref().map(TlsSettings::load).transpose()?,
            mysqld: mysqld.map_err(|source| MemberError::PasswordFile {
                key: "mysql.password_file",
                source,
            })?,
            binlog_server: server.map(BinlogServerCredentials::read).transpose()?,
        })
    }

    /// Takes newer values. A value that exists in only one of both needs a restart, and stays unchanged.
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
        let password = settings.password.read();
        let password =
            password
                .and_then(not_empty)
                .map_err(|source| MemberError::PasswordFile {
                    key: "binlog_server.password_file",
                    source,
                })?;
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

/// Without a password, any client could read every row.
fn not_empty(password: String) -> io::Result<String> {
    match password.is_empty() {
        true => Err(io::Error::other("it is empty")),
        false => Ok(password),
    }
}
