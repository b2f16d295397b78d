//! Callers, identified by their certificates, and their rights. Pure functions. Without TLS, nothing is checked.

use thiserror::Error;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Role of a certificate's holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Makes the calls between members.
    Member,
    /// Gives commands, and reads the ring's state.
    Operator,
    /// Only reads the ring's state and activity.
    Reader,
}

/// The right that a call requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// Read the ring's state, and the reasons why a command would be refused.
    Read,
    /// Read the log, including all rows.
    ReadLog,
    /// Give a command that changes the ring or a member.
    Operate,
    /// Make the calls between members.
    SpeakAsMember,
}

/// Common names of certificates by role. A name in a list has only the role of that list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedRoles {
    /// Members. If the list is empty, all names that are neither operators nor readers are members.
    pub members: Vec<String>,
    /// Operators.
    pub operators: Vec<String>,
    /// Readers.
    pub readers: Vec<String>,
}

impl NamedRoles {
    fn role_of(&self, common: &str) -> Option<Role> {
        let is = |list: &[String]| list.iter().any(|name| name == common);
        match () {
            () if is(&self.operators) => Some(Role::Operator),
            () if is(&self.readers) => Some(Role::Reader),
            () if self.members.is_empty() || is(&self.members) => Some(Role::Member),
            () => None,
        }
    }
}

/// The holder of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// The name in the certificate.
    pub(crate) name: String,
    role: Result<Role, NoRole>,
}

/// Why a certificate gives its holder no role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoRole {
    /// The role in the certificate's URI is unknown to this version.
    Unknown,
    /// The certificate's URI has no role, and the name is in no list.
    NotListed,
    /// The role in the certificate's URI differs from the role of its name in the configured lists.
    OnlyClaimed,
}

impl NoRole {
    fn message(self) -> &'static str {
        match self {
            Self::Unknown => "says a role that this version does not know",
            Self::NotListed => {
                "says no role, and neither `tls.members` nor `tls.operators` nor `tls.readers` has its name"
            }
            Self::OnlyClaimed => {
                "says a role, and the list of that role (`tls.members`, `tls.operators`, `tls.readers`) does not have its common name"
            }
        }
    }
}

/// A call that the caller's certificate does not allow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the certificate of `{name}` {is}: it {may}, and this takes {takes}")]
pub(crate) struct NotAllowed {
    name: String,
    is: &'static str,
    may: &'static str,
    takes: &'static str,
}

/// URI scheme of a role, in the certificate's subject alternative names: `witness:operator/ana`.
const SCHEME: &str = "witness:";

impl Holder {
    /// Returns the holder of a DER certificate.
    pub(crate) fn of(certificate: &[u8], named: &NamedRoles) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
            return Self {
                name: String::new(),
                role: Err(NoRole::NotListed),
            };
        };
        let common = certificate.subject().iter_common_name().next();
        let common = common.and_then(|name| name.as_str().ok());
        let alternatives = certificate.subject_alternative_name().ok().flatten();
        let names = alternatives
            .iter()
            .flat_map(|extension| &extension.value.general_names);
        let mut claim = names.filter_map(|name| match name {
            GeneralName::URI(text) => text.strip_prefix(SCHEME),
            _ => None,
        });
        Self::with_claim(claim.next(), common.unwrap_or_default(), named)
    }

    /// Determines the holder from the role in a certificate's URI. If the configuration lists names, this role must also be the role of the
    /// common name in the lists, because the CA may sign any URI.
    fn with_claim(claim: Option<&str>, common: &str, named: &NamedRoles) -> Self {
        let (claim, name) = match claim {
            Some(claim) => {
                let (role, name) = claim.split_once('/').unwrap_or((claim, common));
                (Some(role), name)
            }
            None => (None, common),
        };
        let claim = claim.map(|role| match role {
            "member" => Ok(Role::Member),
            "operator" => Ok(Role::Operator),
            "reader" => Ok(Role::Reader),
            _ => Err(NoRole::Unknown),
        });
        let role = match claim {
            None => named.role_of(common).ok_or(NoRole::NotListed),
            Some(Ok(role))
                if *named != NamedRoles::default() && named.role_of(common) != Some(role) =>
            {
                Err(NoRole::OnlyClaimed)
            }
            Some(role) => role,
        };
        Self {
            name: name.to_owned(),
            role,
        }
    }

    /// Checks that the holder may make a call that requires `right`.
    ///
    /// # Errors
    /// The reason of the refusal, and the required right.
    pub(crate) fn may(&self, right: Right) -> Result<(), NotAllowed> {
        use Role::{Member, Operator, Reader};
        let allowed = match right {
            Right::Read => self.role.is_ok(),
            Right::ReadLog => matches!(self.role, Ok(Member | Operator)),
            Right::Operate => self.role == Ok(Operator),
            Right::SpeakAsMember => self.role == Ok(Member),
        };
        if allowed {
            return Ok(());
        }
        let (is, may) = match self.role {
            Ok(Member) => ("is a member's", "gives no commands"),
            Ok(Operator) => ("is an operator's", "does not speak for a member"),
            Ok(Reader) => ("is a reader's", "only reads the ring's state"),
            Err(why) => (why.message(), "may do nothing"),
        };
        let takes = match right {
            Right::Operate | Right::ReadLog => {
                "an operator's: `witness tls init --operator NAME` makes one, and `tls.operator_certificate_file` names it on a member's host"
            }
            Right::SpeakAsMember => {
                "a member's: `witness tls init` makes one for each, and `tls.certificate_file` names it"
            }
            Right::Read => "a member's, an operator's or a reader's",
        };
        Err(NotAllowed {
            name: self.name.clone(),
            is,
            may,
            takes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(claim: Option<&str>, common: &str) -> Holder {
        let named = NamedRoles {
            members: Vec::new(),
            operators: vec!["ana".into()],
            readers: vec!["dashboard".into()],
        };
        Holder::with_claim(claim, common, &named)
    }

    #[test]
    fn the_certificate_or_the_configuration_determines_the_role() {
        for (claim, common, role, name) in [
            (Some("member/db-1"), "db-1", Ok(Role::Member), "db-1"),
            (Some("operator/ana"), "ana", Ok(Role::Operator), "ana"),
            (Some("operator/ana"), "x", Err(NoRole::OnlyClaimed), "ana"),
            (
                Some("reader/grafana"),
                "ana",
                Err(NoRole::OnlyClaimed),
                "grafana",
            ),
            (Some("member/db-1"), "ana", Err(NoRole::OnlyClaimed), "db-1"),
            (Some("auditor/bob"), "ana", Err(NoRole::Unknown), "bob"),
            (Some("member"), "db-1", Ok(Role::Member), "db-1"),
            (None, "ana", Ok(Role::Operator), "ana"),
            (None, "dashboard", Ok(Role::Reader), "dashboard"),
            (
                None,
                "db-1.example.org",
                Ok(Role::Member),
                "db-1.example.org",
            ),
            (None, "", Ok(Role::Member), ""),
        ] {
            let found = holder(claim, common);
            assert_eq!(
                (found.role, &*found.name),
                (role, name),
                "{claim:?} {common}"
            );
        }
        let none = Holder::of(b"no certificate", &NamedRoles::default());
        assert_eq!(none.role, Err(NoRole::NotListed));
    }

    #[test]
    fn only_listed_members_are_members() {
        let named = NamedRoles {
            members: vec!["db-1".into()],
            operators: vec!["ana".into()],
            readers: Vec::new(),
        };
        let role = |claim, common| Holder::with_claim(claim, common, &named).role;
        assert_eq!(role(None, "db-1"), Ok(Role::Member));
        assert_eq!(role(None, "ana"), Ok(Role::Operator));
        assert_eq!(role(None, "web-7"), Err(NoRole::NotListed));
        // A certificate may claim any role in its URI.
        for claim in ["member/db-2", "member/db-1", "operator/ana", "reader/x"] {
            assert_eq!(
                role(Some(claim), "db-2"),
                Err(NoRole::OnlyClaimed),
                "{claim}"
            );
        }
        assert_eq!(role(Some("member/db-1"), "db-1"), Ok(Role::Member));
        assert_eq!(role(Some("operator/ana"), "ana"), Ok(Role::Operator));
        assert_eq!(role(Some("reader/db-1"), "db-1"), Err(NoRole::OnlyClaimed));
        let refusal = Holder::with_claim(None, "web-7", &named).may(Right::Read);
        let message = refusal.unwrap_err().to_string();
        assert!(
            message.contains("`web-7` says no role, and neither `tls.members`"),
            "{message}"
        );
    }

    #[test]
    fn each_role_has_its_rights_and_no_others() {
        use Right::{Operate, Read, ReadLog, SpeakAsMember};
        let rights = |claim| {
            let all = [Read, ReadLog, Operate, SpeakAsMember];
            let holder = Holder::with_claim(Some(claim), "", &NamedRoles::default());
            all.map(|right| holder.may(right).is_ok())
        };
        assert_eq!(rights("member/a"), [true, true, false, true]);
        assert_eq!(rights("operator/a"), [true, true, true, false]);
        assert_eq!(rights("reader/a"), [true, false, false, false]);
        assert_eq!(rights("auditor/a"), [false; 4]);
    }

    #[test]
    fn a_refusal_names_the_holder_and_the_required_certificate() {
        let holder = |claim| Holder::with_claim(Some(claim), "", &NamedRoles::default());
        let refusal = |claim, right| holder(claim).may(right).unwrap_err().to_string();
        assert_eq!(
            refusal("member/db-1", Right::Operate),
            "the certificate of `db-1` is a member's: it gives no commands, and this takes an operator's: `witness tls init --operator NAME` \
             makes one, and `tls.operator_certificate_file` names it on a member's host"
        );
        assert_eq!(
            refusal("operator/ana", Right::SpeakAsMember),
            "the certificate of `ana` is an operator's: it does not speak for a member, and this takes a member's: `witness tls init` makes \
             one for each, and `tls.certificate_file` names it"
        );
    }
}
