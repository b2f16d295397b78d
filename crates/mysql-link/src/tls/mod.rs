//! TLS towards a mysqld, by rustls: which mode, which files, and how a handshake failure is explained.

mod client_config;
mod verifier;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

pub(crate) use client_config::{advice, connector};

/// How much of TLS is demanded; the names and meanings are those of MySQL's own `--ssl-mode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Never.
    Disabled,
    /// When the server offers it and the handshake succeeds; the certificate is not checked.
    #[default]
    Preferred,
    /// Always; the certificate is not checked.
    Required,
    /// Always; the certificate must come from the CA file.
    VerifyCa,
    /// Always; the certificate must come from the CA file and be that of the host we connect to.
    VerifyIdentity,
}

impl TlsMode {
    /// Whether a connection without TLS is out of the question.
    pub fn is_demanded(self) -> bool {
        matches!(self, Self::Required | Self::VerifyCa | Self::VerifyIdentity)
    }

    /// Whether a CA file is needed.
    pub fn needs_ca(self) -> bool {
        matches!(self, Self::VerifyCa | Self::VerifyIdentity)
    }
}

impl fmt::Display for TlsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "disabled",
            Self::Preferred => "preferred",
            Self::Required => "required",
            Self::VerifyCa => "verify_ca",
            Self::VerifyIdentity => "verify_identity",
        })
    }
}

impl FromStr for TlsMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Disabled, Self::Preferred, Self::Required, Self::VerifyCa, Self::VerifyIdentity]
            .into_iter()
            .find(|mode| mode.to_string() == text)
            .ok_or_else(|| {
                format!("`{text}` is not a TLS mode: use disabled, preferred, required, verify_ca or verify_identity")
            })
    }
}

/// A certificate of ours, for accounts that demand one (`REQUIRE X509` and its kin).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// PEM file with the certificate and what leads up to its CA.
    pub certificate_file: PathBuf,
    /// PEM file with its private key.
    pub key_file: PathBuf,
}

/// How to use TLS. The files are read at each connection, so that renewed ones take effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// How much is demanded.
    pub mode: TlsMode,
    /// PEM file with the CA's certificates; needed by the two verifying modes.
    pub ca_file: Option<PathBuf>,
    /// Our own certificate.
    pub client_certificate: Option<ClientCertificate>,
}

/// Files of ours that do not give a TLS configuration.
#[derive(Debug, Error)]
pub enum TlsConfigError {
    /// A verifying mode without something to verify against.
    #[error(
        "TLS mode `{0}` needs a CA file: name the PEM file of the CA that signed mysqld's certificate (often ca.pem in its datadir)"
    )]
    NoCaFile(TlsMode),
    /// A file cannot be read as PEM.
    #[error("cannot read the {what} from {path}: {reason}")]
    File {
        /// What should be in it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// rustls does not take them.
    #[error("the TLS configuration is not usable: {0}")]
    Rejected(String),
    /// The host is neither a name nor an address.
    #[error("`{0}` is not a host name for TLS")]
    ServerName(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_round_trip() {
        for mode in [
            "disabled",
            "preferred",
            "required",
            "verify_ca",
            "verify_identity",
        ] {
            assert_eq!(
                mode.parse::<TlsMode>().map(|mode| mode.to_string()),
                Ok(mode.to_owned())
            );
        }
        assert!("verify".parse::<TlsMode>().is_err());
    }
}
