//! The account that a donor makes for one copy. Its name is of a form that nothing else has, so that a name that comes
//! from another member can be put into a statement, and never takes an account of somebody else away.

use std::fmt;

use raft_types::MemberId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

const PREFIX: &str = "witness_clone_";
/// MySQL's bound for the name of an account, in characters.
const LONGEST: usize = 32;

/// The name of such an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CloneAccount(String);

impl CloneAccount {
    /// One that was never used before, for this recipient.
    pub fn random(recipient: MemberId) -> Self {
        let random = Uuid::new_v4().simple().to_string();
        // Larger numbers than these only share their names' beginning.
        let number = recipient.0 % 1_000_000;
        Self(format!("{PREFIX}{number}_{}", &random[..10]))
    }

    /// What the names of all such accounts of one recipient, or of every one, match (`LIKE`).
    pub(super) fn pattern(recipient: Option<MemberId>) -> String {
        let escaped = PREFIX.replace('_', "\\\\_");
        match recipient {
            Some(recipient) => format!("{escaped}{}\\\\_%", recipient.0 % 1_000_000),
            None => format!("{escaped}%"),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CloneAccount {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let plain = |rest: &str| {
            let mut bytes = rest.bytes();
            bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        let rest = name.strip_prefix(PREFIX);
        if name.len() <= LONGEST && rest.is_some_and(plain) {
            Ok(Self(name))
        } else {
            Err(format!("`{name}` is no account of a provisioning"))
        }
    }
}

impl From<CloneAccount> for String {
    fn from(account: CloneAccount) -> Self {
        account.0
    }
}

impl fmt::Display for CloneAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_new_and_fits() {
        let most = CloneAccount::random(MemberId(u64::MAX));
        assert!(most.name().len() <= LONGEST, "{most}");
        assert_ne!(most, CloneAccount::random(MemberId(u64::MAX)));
        assert_eq!(CloneAccount::try_from(most.0.clone()), Ok(most));
        assert!(
            CloneAccount::random(MemberId(3))
                .name()
                .starts_with("witness_clone_3_")
        );
        assert_eq!(
            CloneAccount::pattern(Some(MemberId(3))),
            r"witness\\_clone\\_3\\_%"
        );
    }

    #[test]
    fn no_other_account_has_such_a_name() {
        for name in [
            "root",
            "witness",
            "witness_clone_'; DROP USER x; --",
            "witness_clone_0123456789_0123456789",
        ] {
            assert!(CloneAccount::try_from(name.to_owned()).is_err(), "{name}");
        }
    }
}
