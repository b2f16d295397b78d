//! Expiry of the certificates that the member has loaded. Their files are read at a start and at a reload, together with the
//! certificates themselves.

use std::fmt::Error;
use std::path::Path;
use std::sync::Arc;

use member::settings::Settings;
use tokio::sync::watch;
use x509_parser::pem::Pem;

use crate::openmetrics::MetricWriter;

/// A configured file of certificates, and the first expiry in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The key of the configuration that names the file.
    key: &'static str,
    /// Seconds since 1970.
    seconds: i64,
}

impl Expiry {
    /// The first expiry in the file that a key names, in seconds since 1970.
    pub fn new(key: &'static str, seconds: i64) -> Self {
        Self { key, seconds }
    }
}

/// The expiries of the certificates in use. Clones share them.
#[derive(Clone)]
pub struct Expiries(Arc<watch::Sender<Vec<Expiry>>>);

impl Expiries {
    /// For all configured files.
    pub fn of(settings: &Settings) -> Self {
        expiries(settings).into()
    }

    /// Replaces them with those of these settings.
    pub fn renew(&self, settings: &Settings) {
        self.0.send_replace(expiries(settings));
    }
}

impl From<Vec<Expiry>> for Expiries {
    fn from(expiries: Vec<Expiry>) -> Self {
        Self(Arc::new(watch::Sender::new(expiries)))
    }
}

/// For all configured files. An unreadable file is left out: its user reports it.
fn expiries(settings: &Settings) -> Vec<Expiry> {
    let mut files = Vec::new();
    if let Some(tls) = &settings.tls {
        files.push(("tls.certificate_file", &tls.certificate_file));
        files.push(("tls.ca_file", &tls.ca_file));
    }
    if let Some(mysql) = &settings.mysql {
        let certificate = mysql.tls_certificate.as_ref();
        files.extend(certificate.map(|(file, _)| ("mysql.tls_certificate_file", file)));
        files.extend(
            mysql
                .tls_ca_file
                .as_ref()
                .map(|file| ("mysql.tls_ca_file", file)),
        );
    }
    if let Some(server) = &settings.binlog_server {
        let certificate = server.certificate.as_ref();
        files.extend(certificate.map(|(file, _)| ("binlog_server.tls_certificate_file", file)));
    }
    let known = files
        .into_iter()
        .filter_map(|(key, file)| Some(Expiry::new(key, first_expiry(file)?)));
    known.collect()
}

/// The first expiry of a file's certificates.
fn first_expiry(file: &Path) -> Option<i64> {
    first_expiry_in(&std::fs::read(file).ok()?)
}

/// The first expiry in a file's content.
pub(crate) fn first_expiry_in(pem: &[u8]) -> Option<i64> {
    let certificates = Pem::iter_from_buffer(pem).filter_map(|block| {
        let block = block.ok()?;
        let certificate = block.parse_x509().ok()?;
        Some(certificate.validity().not_after.timestamp())
    });
    certificates.min()
}

/// Writes them; none without TLS.
pub(super) fn write(writer: &mut MetricWriter<'_, '_>, expiries: &Expiries) -> Result<(), Error> {
    let expiries = expiries.0.borrow();
    let of_each = expiries.iter();
    let of_each = of_each.map(|expiry| ([("key", expiry.key)], expiry.seconds as f64));
    writer.gauges(
        "certificate_expiry_timestamp_seconds",
        "When the first certificate of the file that the key names expires, since 1970",
        of_each,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that expires at the start of a year.
    fn certificate(year: i32) -> String {
        let mut params = rcgen::CertificateParams::new(vec!["db-1".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn the_first_to_expire_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("chain.pem");
        std::fs::write(&file, certificate(2031) + &certificate(2030)).unwrap();
        let expected = rcgen::date_time_ymd(2030, 1, 1).unix_timestamp();
        assert_eq!(first_expiry(&file), Some(expected));
    }

    #[test]
    fn a_file_without_a_certificate_has_no_expiry() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("none.pem");
        assert_eq!(first_expiry(&file), None);
        std::fs::write(&file, "no certificate").unwrap();
        assert_eq!(first_expiry(&file), None);
    }
}
