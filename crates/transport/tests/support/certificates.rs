//! Temporary authorities and certificates, as files.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use tempfile::TempDir;
use transport::{NamedRoles, TlsFiles};

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    CertificateParams::new(names).unwrap()
}

/// An authority and a folder for its certificates.
pub(crate) struct Authority {
    folder: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let authority = Self {
            folder: tempfile::tempdir().unwrap(),
            issuer,
        };
        authority.write("authority.pem", &authority.issuer.pem());
        authority
    }

    /// Signs a certificate for these names, with its key. Its common name is the file name.
    pub(crate) fn sign(&self, file: &str, names: &[&str]) -> TlsFiles {
        self.sign_params(file, params(names))
    }

    /// Signs a certificate that has expired.
    pub(crate) fn sign_expired(&self, file: &str, names: &[&str]) -> TlsFiles {
        let long_ago = SystemTime::now() - Duration::from_secs(86_400);
        self.sign_until(file, names, long_ago)
    }

    /// Signs a certificate that is valid until `end`.
    pub(crate) fn sign_until(&self, file: &str, names: &[&str], end: SystemTime) -> TlsFiles {
        let mut params = params(names);
        params.not_after = end.into();
        self.sign_params(file, params)
    }

    /// Signs a certificate that is valid from `begin` on.
    pub(crate) fn sign_from(&self, file: &str, names: &[&str], begin: SystemTime) -> TlsFiles {
        let mut params = params(names);
        params.not_before = begin.into();
        self.sign_params(file, params)
    }

    /// Signs a certificate with a role in its URI.
    pub(crate) fn sign_with_role(
        &self,
        file: &str,
        names: &[&str],
        role: Option<&str>,
    ) -> TlsFiles {
        let mut params = params(names);
        if let Some(role) = role {
            let uri = format!("witness:{role}/{file}").try_into().unwrap();
            params.subject_alt_names.push(SanType::URI(uri));
        }
        self.sign_params(file, params)
    }

    fn sign_params(&self, file: &str, mut params: CertificateParams) -> TlsFiles {
        params
            .distinguished_name
            .push(DnType::CommonName, file.to_owned());
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        TlsFiles {
            certificate: self.write(&format!("{file}.pem"), &certificate.pem()),
            key: self.write(&format!("{file}.key"), &key.serialize_pem()),
            authority: self.path("authority.pem"),
            peer_name: None,
            roles: NamedRoles::default(),
        }
    }

    /// Writes a file in the folder.
    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
