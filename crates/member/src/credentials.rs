//! Certificates, keys and passwords of a member, as they were last read. Whoever uses one shares it, so that a reload renews it
//! everywhere: for whatever is connected from then on.

use binlog_server::{Account, OptionsError, ServerCertificate, ServerError, ServerTls};
use mysql_link::{ConnectOptions, Secret};
use transport::TlsMaterial;

use crate::error::MemberError;
use crate::mysqld::connect_options;
use crate::settings::{BinlogServerSettings, Settings, TlsSettings};

pub(crate) struct Credentials {
    /// Between members; none without TLS.
    pub(crate) tls: Option<TlsMaterial>,
    /// How the mysqld beside the member is connected to; none for a witness. Its certificates are read at each connection.
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

    /// Takes those that were read later. What is there at one of the two moments only needs a restart, and stays as it is.
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
        let password = password.map_err(|source| MemberError::PasswordFile {
            key: "binlog_server.password_file",
            source,
        })?;
        if password.is_empty() {
            return Err(ServerError::Options(OptionsError::Account).into());
        }
        let files = settings.certificate.clone();
        let files = files.map(|(certificate_file, key_file)| ServerCertificate {
            certificate_file,
            key_file,
        });
        let tls = files.as_ref().map(ServerTls::load).transpose();
        Ok(Self {
            account: Account {
                user: settings.user.clone(),
                password: Secret::new(password),
            },
            tls: tls.map_err(MemberError::BinlogServerTls)?,
        })
    }
}
