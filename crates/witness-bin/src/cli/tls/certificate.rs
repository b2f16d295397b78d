//! The CA of a ring, the certificates that it signs, and the contents of certificate files.

use std::net::IpAddr;
use std::path::Path;

use member::settings::MemberEntry;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use time::{Duration, OffsetDateTime};
use transport::{NamedRoles, TlsError, TlsFiles, TlsMaterial};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use crate::terminal::{Attempt, Failure, word};

/// One certificate in a file.
#[derive(Debug)]
pub(crate) struct Certificate {
    der: Vec<u8>,
    pub(super) subject: String,
    pub(super) issuer: String,
    /// The subject alternative names.
    pub(super) names: Vec<String>,
    pub(super) not_before: OffsetDateTime,
    pub(crate) not_after: OffsetDateTime,
    pub(super) usage: Vec<&'static str>,
}

impl Certificate {
    /// Reads all certificates in a file, at least one.
    ///
    /// # Errors
    /// When the file cannot be read, or is invalid.
    pub(super) fn all_of(path: &Path) -> Attempt<Vec<Self>> {
        let file = path.display();
        let pem = std::fs::read(path)
            .map_err(|error| Failure::error(format!("{file} cannot be read: {error}")))?;
        Self::all_in(&pem, path)
    }

    /// Parses all certificates in a PEM text; `path` is its file, for errors.
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

    /// Returns true if the key of this CA has signed the certificate.
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

/// Checks that a key belongs to the first certificate in a file. A starting member makes the same check.
pub(super) fn check_key(certificate: &Path, key: &Path) -> Result<(), TlsError> {
    let files = TlsFiles {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        // The check needs an authority, but does not use it, so any certificate serves.
        authority: certificate.to_owned(),
        peer_name: None,
        roles: NamedRoles::default(),
    };
    TlsMaterial::load(&files).map(drop)
}

/// Formats the date of a time.
pub(crate) fn day(time: OffsetDateTime) -> String {
    time.date().to_string()
}

// Creates the CA of a ring, and signs certificates. Does not access files.

/// Validity of a CA, in days. It is long, because all members must be restarted three times to replace a CA.
const AUTHORITY_DAYS: i64 = 3650;
/// A certificate is valid from this time before its creation, because the clocks of hosts differ.
const CLOCK_SKEW: Duration = Duration::hours(1);

/// The holder of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Holder {
    pub(super) role: Role,
    pub(super) name: String,
    /// Further names in a member's certificate: the host in its address, and the configured `peer_name`.
    #[serde(skip)]
    hosts: Vec<String>,
    /// The address of a member; `None` for an operator or a reader.
    pub(super) address: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    Member,
    Operator,
    Reader,
}

impl Holder {
    /// Creates the holder for a member of the ring. If `peer_name` is configured, callers check it instead of the host.
    pub(super) fn member(entry: &MemberEntry, peer_name: Option<&str>) -> Self {
        let host = raft_types::host_and_port(&entry.address);
        let host = host.map_or(entry.address.as_str(), |(host, _)| host);
        // The brackets of an IPv6 address are removed.
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let hosts = [Some(host), peer_name].into_iter().flatten();
        Self {
            role: Role::Member,
            name: entry.name.clone(),
            hosts: hosts.map(str::to_owned).collect(),
            address: Some(entry.address.clone()),
        }
    }

    /// Creates the holder for an operator or a reader, which calls members but accepts no calls.
    pub(super) fn caller(role: Role, name: &str) -> Self {
        Self {
            role,
            name: name.to_owned(),
            hosts: Vec::new(),
            address: None,
        }
    }

    /// Returns the base name of the holder's files, without `.crt` and `.key`.
    pub(super) fn file_name(&self) -> String {
        match self.role {
            Role::Member => self.name.clone(),
            Role::Operator | Role::Reader => format!("{}-{}", word(&self.role), self.name),
        }
    }

    /// Returns the alternative names in the holder's certificate. The last name is a URI with the holder's role.
    pub(super) fn names(&self) -> Vec<String> {
        let own = Some(&self.name).filter(|_| self.role == Role::Member);
        let mut names: Vec<String> = Vec::new();
        for name in own.into_iter().chain(&self.hosts) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names.push(format!("witness:{}/{}", word(&self.role), self.name));
        names
    }
}

fn alternative(name: &str) -> Result<SanType, Error> {
    if name.starts_with("witness:") {
        return Ok(SanType::URI(name.try_into()?));
    }
    Ok(match name.parse::<IpAddr>() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.try_into()?),
    })
}

/// A certificate and its key, in PEM.
pub(super) struct Pair {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// The CA of the ring's certificates.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    ring: String,
    not_after: OffsetDateTime,
}

impl Authority {
    /// Creates a CA.
    pub(super) fn make(ring: &str, now: OffsetDateTime) -> Result<(Self, Pair), Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let not_after = now + Duration::days(AUTHORITY_DAYS);
        let mut params = params(now, not_after);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let subject = &mut params.distinguished_name;
        subject.push(DnType::OrganizationName, ring);
        subject.push(DnType::OrganizationalUnitName, "authority");
        subject.push(DnType::CommonName, format!("witness ring {ring}"));
        let pair = Pair {
            certificate: params.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
        };
        let authority = Self {
            issuer: Issuer::new(params, key),
            ring: ring.to_owned(),
            not_after,
        };
        Ok((authority, pair))
    }

    /// Loads a CA from its certificate and key. The certificate is valid until `not_after`.
    pub(super) fn of(pair: &Pair, ring: &str, not_after: OffsetDateTime) -> Result<Self, Error> {
        let key = KeyPair::from_pem(&pair.key)?;
        Ok(Self {
            issuer: Issuer::from_ca_cert_pem(&pair.certificate, key)?,
            ring: ring.to_owned(),
            not_after,
        })
    }

    /// Creates a key, and signs a certificate for it. The certificate expires no later than the CA.
    pub(super) fn sign(
        &self,
        holder: &Holder,
        now: OffsetDateTime,
        days: u32,
    ) -> Result<Pair, Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let not_after = (now + Duration::days(days.into())).min(self.not_after);
        let mut params = params(now, not_after);
        let names = holder.names();
        let alternatives = names.iter().map(|name| alternative(name));
        params.subject_alt_names = alternatives.collect::<Result<_, _>>()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // A member accepts calls, and also calls the other members.
        params.extended_key_usages = match holder.role {
            Role::Member => vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
            Role::Operator | Role::Reader => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        let subject = &mut params.distinguished_name;
        subject.push(DnType::OrganizationName, self.ring.as_str());
        subject.push(DnType::OrganizationalUnitName, word(&holder.role));
        subject.push(DnType::CommonName, holder.name.as_str());
        Ok(Pair {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn params(now: OffsetDateTime, not_after: OffsetDateTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = now - CLOCK_SKEW;
    params.not_after = not_after;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use raft_types::{MemberId, MemberKind, Region};

    fn member(address: &str) -> MemberEntry {
        MemberEntry {
            id: MemberId(1),
            name: "db-1".into(),
            region: Region("here".into()),
            kind: MemberKind::Witness,
            votes: true,
            priority: 1,
            address: address.into(),
        }
    }

    #[test]
    fn a_certificate_has_the_members_name_and_host() {
        for (address, peer_name, expected) in [
            ("10.0.0.1:7400", None, vec!["db-1", "10.0.0.1"]),
            ("[fd00::1]:7400", None, vec!["db-1", "fd00::1"]),
            ("db-1:7400", None, vec!["db-1"]),
            (
                "db-1.example.org:7400",
                Some("witness.example.org"),
                vec!["db-1", "db-1.example.org", "witness.example.org"],
            ),
        ] {
            let names = Holder::member(&member(address), peer_name).names();
            let (uri, hosts) = names.split_last().unwrap();
            assert_eq!(hosts, expected, "{address}");
            assert_eq!(uri, "witness:member/db-1");
        }
        for (role, uri) in [
            (Role::Operator, "witness:operator/ana"),
            (Role::Reader, "witness:reader/ana"),
        ] {
            assert_eq!(Holder::caller(role, "ana").names(), [uri]);
        }
    }

    #[test]
    fn an_address_is_no_dns_name() {
        let is_address = |name: &str| matches!(alternative(name), Ok(SanType::IpAddress(_)));
        assert!(is_address("10.0.0.1") && is_address("fd00::1"));
        assert!(matches!(alternative("db-1"), Ok(SanType::DnsName(_))));
        let uri = alternative("witness:member/db-1");
        assert!(matches!(uri, Ok(SanType::URI(_))));
    }
}
