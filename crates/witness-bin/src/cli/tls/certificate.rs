//! Contents of certificate files.

use std::net::IpAddr;
use std::path::Path;

use time::OffsetDateTime;
use transport::{NamedRoles, TlsError, TlsFiles, TlsMaterial};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use crate::terminal::{Attempt, Failure};

/// One certificate of a file.
#[derive(Debug)]
pub(crate) struct Certificate {
    der: Vec<u8>,
    pub(super) subject: String,
    pub(super) issuer: String,
    /// Its alternative names.
    pub(super) names: Vec<String>,
    pub(super) not_before: OffsetDateTime,
    pub(crate) not_after: OffsetDateTime,
    pub(super) usage: Vec<&'static str>,
}

impl Certificate {
    /// All certificates of a file, at least one.
    ///
    /// # Errors
    /// When it cannot be read, or is invalid.
    pub(super) fn all_of(path: &Path) -> Attempt<Vec<Self>> {
        let file = path.display();
        let pem = std::fs::read(path)
            .map_err(|error| Failure::error(format!("{file} cannot be read: {error}")))?;
        Self::all_in(&pem, path)
    }

    /// All certificates in a file's content.
    pub(crate) fn all_in(pem: &[u8], path: &Path) -> Attempt<Vec<Self>> {
        let file = path.display();
        let damaged = |error: &dyn std::fmt::Display| {
            Failure::error(format!("{file} holds a damaged certificate: {error}"))
        };
        let mut found = Vec::new();
        for block in Pem::iter_from_buffer(pem) {
            let block = block.map_err(|error| damaged(&error))?;
            if block.label == "CERTIFICATE" {
                let parsed = block.parse_x509().map_err(|error| damaged(&error))?;
                found.push(Self::of(&parsed, &block.contents));
            }
        }
        match found.is_empty() {
            true => Err(Failure::error(format!(
                "{file} holds no certificate in PEM"
            ))),
            false => Ok(found),
        }
    }

    fn of(parsed: &X509Certificate<'_>, der: &[u8]) -> Self {
        let alternatives = parsed.subject_alternative_name().ok().flatten();
        let names = alternatives
            .iter()
            .flat_map(|extension| &extension.value.general_names);
        Self {
            der: der.to_owned(),
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            names: names.map(name).collect(),
            not_before: parsed.validity().not_before.to_datetime(),
            not_after: parsed.validity().not_after.to_datetime(),
            usage: usage(parsed),
        }
    }

    /// Whether that CA's key made its signature.
    pub(crate) fn is_signed_by(&self, authority: &Self) -> bool {
        let own = X509Certificate::from_der(&self.der);
        let other = X509Certificate::from_der(&authority.der);
        let (Ok((_, own)), Ok((_, other))) = (own, other) else {
            return false;
        };
        own.issuer() == other.subject() && own.verify_signature(Some(other.public_key())).is_ok()
    }
}

fn name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::DNSName(text) | GeneralName::URI(text) => (*text).to_owned(),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let sixteen = || <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            four.or_else(|_| sixteen())
                .map_or_else(|_| format!("{bytes:?}"), |address| address.to_string())
        }
        other => other.to_string(),
    }
}

fn usage(parsed: &X509Certificate<'_>) -> Vec<&'static str> {
    let mut words = Vec::new();
    if parsed.is_ca() {
        words.push("authority");
    }
    if let Ok(Some(purposes)) = parsed.extended_key_usage() {
        let purposes = purposes.value;
        let of_each = [
            (purposes.server_auth || purposes.any, "server"),
            (purposes.client_auth || purposes.any, "client"),
        ];
        words.extend(of_each.iter().filter(|(has, _)| *has).map(|(_, word)| word));
    }
    words
}

/// Whether a key belongs to the first certificate of a file, as a starting member checks it.
pub(super) fn check_key(certificate: &Path, key: &Path) -> Result<(), TlsError> {
    let files = TlsFiles {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        // Any certificate will do, since no call follows.
        authority: certificate.to_owned(),
        peer_name: None,
        roles: NamedRoles::default(),
    };
    TlsMaterial::load(&files).map(drop)
}

/// A date in readable form.
pub(crate) fn day(time: OffsetDateTime) -> String {
    time.date().to_string()
}
