//! Arguments of both commands: the configuration, replicas without a member, and the timeout.

use std::path::{Path, PathBuf};
use std::time::Duration;

use member::connect_options;
use member::conversion::{BinlogAccount, Conversion, ConversionMembers, Direction, StockReplica};
use member::settings::{BinlogServerSettings, MysqlSettings, PasswordSource, Settings};
use mysql_link::{ConnectOptions, Endpoint, Secret};
use mysqld_server::SourceTls;
use tokio::time::Instant;

use crate::cli::conversion::asked_members::AskedMembers;
use crate::operator::{Asker, Operator};
use crate::terminal::{Exit, Failure};

/// A run without its deadline.
pub(super) struct Given {
    settings: Settings,
    connect: ConnectOptions,
    stock: Vec<StockReplica>,
}

impl Given {
    /// For the database member of this configuration.
    ///
    /// # Errors
    /// Exit 2 when it is a witness, or an argument cannot be read.
    pub(super) fn new(settings: Settings, stock: &StockArgs) -> Result<Self, Failure> {
        let mysql = settings.mysql.as_ref().ok_or_else(|| witness(&settings))?;
        let connect = account(mysql)?;
        Ok(Self {
            stock: stock.read(&connect, &settings)?,
            connect,
            settings,
        })
    }

    /// A client for the configured members.
    ///
    /// # Errors
    /// Exit 2 when its files for TLS cannot be used.
    pub(super) fn members(&self) -> Result<AskedMembers, Failure> {
        let asker = Asker::new(&self.settings)
            .map_err(|error| Failure::new(Exit::Usage, error.to_string(), ""))?;
        Ok(AskedMembers::new(Operator::new(asker)))
    }

    /// The run, from now on.
    pub(super) fn conversion<'a>(
        &self,
        direction: Direction,
        members: &'a dyn ConversionMembers,
        timeout: Duration,
    ) -> Conversion<'a> {
        let settings = &self.settings;
        Conversion {
            direction,
            members,
            own: settings.own.id,
            name: settings.own.name.clone(),
            data_dir: settings.data_dir.clone(),
            connect: self.connect.clone(),
            stock: self.stock.clone(),
            binlog_account: settings.binlog_server.as_ref().map(binlog_account),
            source_tls: self.source_tls(),
            until: Instant::now() + timeout,
        }
    }

    fn source_tls(&self) -> SourceTls {
        let settings = self.settings.mysql.as_ref().zip(self.settings.tls.as_ref());
        settings.map_or(SourceTls::Off, |(mysql, tls)| {
            mysql.source_tls(&tls.ca_file)
        })
    }

    /// The ring's name in the configuration.
    pub(super) fn ring_name(&self) -> &str {
        &self.settings.ring_name
    }

    /// The member's name.
    pub(super) fn own_name(&self) -> &str {
        &self.settings.own.name
    }
}

fn binlog_account(server: &BinlogServerSettings) -> BinlogAccount {
    let password = server.password.read();
    BinlogAccount {
        user: server.user.clone(),
        password: password.map(Secret::new).map_err(|error| error.to_string()),
        tls: server.certificate.is_some(),
    }
}

fn witness(settings: &Settings) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("`{}` is a witness", settings.own.name),
        "run this with the configuration of the database member beside the primary, on its host",
    )
}

fn account(settings: &MysqlSettings) -> Result<ConnectOptions, Failure> {
    let mut connect = connect_options(settings).map_err(|error| {
        let what = format!("the file of `mysql.password_file` cannot be read: {error}");
        Failure::new(Exit::Usage, what, "")
    })?;
    connect.program_name = "witness-conversion".to_owned();
    Ok(connect)
}

// Replicas without a member: the command itself connects to them, with an account from the command line.

/// Their addresses and account.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct StockArgs {
    /// A replica without a member that is to change its source as well; may be given more than once
    #[arg(long, value_name = "HOST:PORT")]
    stock_replica: Vec<String>,
    /// The account on those replicas; without it that of the `mysql` section
    #[arg(long, value_name = "USER")]
    stock_user: Option<String>,
    /// The file whose first line is that account's password
    #[arg(long, value_name = "FILE")]
    stock_password_file: Option<PathBuf>,
    /// The file on the hosts of those replicas with the CA of the ring's certificates, by which they verify their source; their mysqld
    /// reads it. Needed where the ring has TLS
    #[arg(long, value_name = "FILE")]
    stock_ca_file: Option<PathBuf>,
}

impl StockArgs {
    /// The given replicas; missing parts of the account come from `usual`.
    ///
    /// # Errors
    /// Exit 2 when an address or the password's file cannot be read.
    fn read(
        &self,
        usual: &ConnectOptions,
        settings: &Settings,
    ) -> Result<Vec<StockReplica>, Failure> {
        let password = match &self.stock_password_file {
            None => usual.password.clone(),
            Some(file) => password_in(file)?,
        };
        let server = settings.binlog_server.as_ref();
        let has_tls =
            settings.tls.is_some() || server.is_some_and(|server| server.certificate.is_some());
        if has_tls && !self.stock_replica.is_empty() && self.stock_ca_file.is_none() {
            return Err(Failure::new(
                Exit::Usage,
                "a replica without a member could not verify its source",
                "copy the CA file of the ring (`tls.ca_file`) to its host, and name the path there with --stock-ca-file",
            ));
        }
        let user = self.stock_user.as_ref().unwrap_or(&usual.user);
        let stock = self.stock_replica.iter().map(|address| {
            let (host, port) = host_and_port(address)?;
            Ok(StockReplica {
                address: address.clone(),
                connect: ConnectOptions {
                    endpoint: Endpoint::tcp(host, port),
                    user: user.clone(),
                    password: password.clone(),
                    ..usual.clone()
                },
                ca_file: self.stock_ca_file.clone(),
            })
        });
        stock.collect()
    }
}

/// The password in the first line of a file.
///
/// # Errors
/// Exit 2 when it cannot be read.
pub(super) fn password_in(file: &Path) -> Result<Secret, Failure> {
    let read = PasswordSource::File(file.to_owned()).read();
    read.map(Secret::new).map_err(|error| {
        let what = format!("cannot read the password file {error}");
        Failure::new(Exit::Usage, what, "")
    })
}

/// Reads `host:port`.
///
/// # Errors
/// Exit 2.
pub(super) fn host_and_port(text: &str) -> Result<(String, u16), Failure> {
    let parts = text.rsplit_once(':');
    let parts = parts.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    parts.filter(|(host, _)| !host.is_empty()).ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            format!("`{text}` is no HOST:PORT"),
            "for example 10.0.0.7:3306",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        assert_eq!(host_and_port("h:3306").unwrap(), ("h".to_owned(), 3306));
        assert_eq!(host_and_port("[::1]:1").unwrap(), ("[::1]".to_owned(), 1));
        for bad in ["", "h", ":1", "h:", "h:x", "h:99999"] {
            assert_eq!(host_and_port(bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
    }
}
