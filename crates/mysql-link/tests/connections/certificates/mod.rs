//! Temporary certificates: a CA, a server's for `localhost`, a client's, and another CA that signed none of them.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

/// The certificate files, which are deleted with this value.
pub(crate) struct Certificates {
    folder: TempDir,
}

impl Certificates {
    pub(crate) fn make() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let ca = authority("ca of the test")?;
        let other = authority("another ca")?;
        fs::write(folder.path().join("ca.pem"), ca.pem())?;
        fs::write(folder.path().join("other-ca.pem"), other.pem())?;
        for (name, subject) in [("server", "localhost"), ("client", "client")] {
            let key = KeyPair::generate()?;
            let certificate = CertificateParams::new([subject.to_owned()])?.signed_by(&key, &ca)?;
            fs::write(folder.path().join(format!("{name}.pem")), certificate.pem())?;
            fs::write(
                folder.path().join(format!("{name}-key.pem")),
                key.serialize_pem(),
            )?;
        }
        Ok(Self { folder })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn server_arguments(&self) -> Vec<String> {
        [
            ("ssl-ca", "ca.pem"),
            ("ssl-cert", "server.pem"),
            ("ssl-key", "server-key.pem"),
        ]
        .map(|(option, name)| format!("--{option}={}", self.path(name).display()))
        .to_vec()
    }
}

fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
}
