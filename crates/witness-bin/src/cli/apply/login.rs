//! Where a mysqld is and as whom to log in there, as the command line gives it.

use std::path::{Path, PathBuf};

use mysql_link::{ConnectOptions, Endpoint, Secret, TlsMode, TlsOptions};

use crate::terminal::{Exit, Failure};

/// The mysqld that transactions are applied to.
#[derive(Debug, clap::Args)]
pub(super) struct TargetLogin {
    /// The mysqld to apply to: HOST:PORT, or the path of its socket
    #[arg(long, value_name = "ADDRESS")]
    to: Endpoint,
    /// Account there
    #[arg(long, value_name = "NAME", default_value = "witness")]
    to_user: String,
    /// File with its password; without one, $WITNESS_TO_PASSWORD
    #[arg(long, value_name = "FILE")]
    to_password_file: Option<PathBuf>,
    /// TLS: disabled, preferred, required, verify_ca or verify_identity
    #[arg(long, value_name = "MODE", default_value = "preferred")]
    to_tls: TlsMode,
    /// Authorities that may have signed its certificate, PEM
    #[arg(long, value_name = "FILE")]
    to_tls_ca_file: Option<PathBuf>,
}

/// The mysqld whose binlog is applied.
#[derive(Debug, clap::Args)]
pub(super) struct SourceLogin {
    /// Account there, with REPLICATION SLAVE
    #[arg(long, value_name = "NAME", default_value = "witness")]
    from_user: String,
    /// File with its password; without one, $WITNESS_FROM_PASSWORD
    #[arg(long, value_name = "FILE")]
    from_password_file: Option<PathBuf>,
    /// TLS: disabled, preferred, required, verify_ca or verify_identity
    #[arg(long, value_name = "MODE", default_value = "preferred")]
    from_tls: TlsMode,
    /// Authorities that may have signed its certificate, PEM
    #[arg(long, value_name = "FILE")]
    from_tls_ca_file: Option<PathBuf>,
}

impl TargetLogin {
    pub(super) fn options(&self) -> Result<ConnectOptions, Failure> {
        let password = password(self.to_password_file.as_deref(), "WITNESS_TO_PASSWORD")?;
        let mut options = ConnectOptions::new(self.to.clone(), &self.to_user, password);
        options.tls = tls(self.to_tls, self.to_tls_ca_file.as_deref());
        Ok(options)
    }
}

impl SourceLogin {
    pub(super) fn options(&self, from: &Endpoint) -> Result<ConnectOptions, Failure> {
        let password = password(self.from_password_file.as_deref(), "WITNESS_FROM_PASSWORD")?;
        let mut options = ConnectOptions::new(from.clone(), &self.from_user, password);
        options.tls = tls(self.from_tls, self.from_tls_ca_file.as_deref());
        Ok(options)
    }
}

fn tls(mode: TlsMode, ca_file: Option<&Path>) -> TlsOptions {
    TlsOptions {
        mode,
        ca_file: ca_file.map(Path::to_owned),
        ..TlsOptions::default()
    }
}

fn password(file: Option<&Path>, variable: &str) -> Result<Secret, Failure> {
    let Some(file) = file else {
        return Ok(Secret::new(std::env::var(variable).unwrap_or_default()));
    };
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Secret::new(text.trim_end_matches(['\r', '\n']))),
        Err(error) => Err(Failure::new(
            Exit::Usage,
            format!(
                "the password file {} cannot be read: {error}",
                file.display()
            ),
            format!("name another, or give the password in ${variable}"),
        )),
    }
}
