//! Replicas without a member: the command itself connects to them, with an account that is given on the command line.

use std::path::PathBuf;

use member::settings::PasswordSource;
use mysql_link::{ConnectOptions, Endpoint, Secret};
use mysqld_controller::conversion::{ServerLook, look};
use mysqld_controller::settings::Requirements;
use uuid::Uuid;

use crate::terminal::{Exit, Failure};

/// Which they are, and the account there.
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
}

/// One of them.
#[derive(Debug, Clone)]
pub(super) struct Stock {
    /// As it was given.
    pub(super) address: String,
    /// How to connect.
    pub(super) connect: ConnectOptions,
}

impl StockArgs {
    /// Those that were given; what was not given of the account is taken from `usual`.
    ///
    /// # Errors
    /// Exit 2 when an address or the password's file cannot be read.
    pub(super) fn read(&self, usual: &ConnectOptions) -> Result<Vec<Stock>, Failure> {
        let password = match &self.stock_password_file {
            None => usual.password.clone(),
            Some(file) => {
                let read = PasswordSource::File(file.clone()).read();
                Secret::new(read.map_err(|error| {
                    let what = format!("{} cannot be read: {error}", file.display());
                    Failure::new(Exit::Usage, what, "")
                })?)
            }
        };
        let user = self.stock_user.as_ref().unwrap_or(&usual.user);
        let stock = self.stock_replica.iter().map(|address| {
            let (host, port) = host_and_port(address)?;
            Ok(Stock {
                address: address.clone(),
                connect: ConnectOptions {
                    endpoint: Endpoint::tcp(host, port),
                    user: user.clone(),
                    password: password.clone(),
                    ..usual.clone()
                },
            })
        });
        stock.collect()
    }
}

impl Stock {
    /// What it is at the moment.
    pub(super) async fn look(&self) -> Result<ServerLook, String> {
        // Nobody attaches to it, so that the identity does not matter.
        let requirements = Requirements::new(u32::MAX, Uuid::nil());
        let seen = look(&self.connect, &requirements).await;
        seen.map_err(|error| error.to_string())
    }
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
