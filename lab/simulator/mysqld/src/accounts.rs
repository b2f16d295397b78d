//! The accounts of a server. They are data, and so survive the process.

use crate::answers::{Answer, Rows, SqlError, code};
use crate::options::{Account, Rights};
use crate::server::Server;

/// A change of an account that may log in from any host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccountChange {
    Create {
        user: String,
        password: String,
    },
    GrantBackup {
        user: String,
    },
    Drop {
        user: String,
        if_exists: bool,
    },
    /// A statement that the model does not know. It changes nothing, but its commit is logged and waits for an ACK.
    Other,
}

impl Server {
    pub(crate) fn account(&self, user: &str) -> Option<&Account> {
        self.accounts.iter().find(|account| account.user == user)
    }

    pub(crate) fn change_accounts(&mut self, change: &AccountChange) -> Result<Answer, SqlError> {
        match change {
            AccountChange::Create { user, password } => {
                if self.account(user).is_some() {
                    return Err(failed("CREATE USER", user));
                }
                let account = Account::new(user, password, Rights::Login);
                self.accounts.push(account);
            }
            AccountChange::GrantBackup { user } => {
                let mut accounts = self.accounts.iter_mut();
                let account = accounts.find(|account| account.user == *user);
                let account = account.ok_or_else(|| {
                    let message = "You are not allowed to create a user with GRANT";
                    SqlError::new(code::NO_USER_BY_GRANT, message)
                })?;
                if account.rights == Rights::Login {
                    account.rights = Rights::Backup;
                }
            }
            AccountChange::Drop { user, if_exists } => {
                if self.account(user).is_none() && !if_exists {
                    return Err(failed("DROP USER", user));
                }
                self.accounts.retain(|account| account.user != *user);
            }
            AccountChange::Other => {}
        }
        Ok(Answer::Done(0))
    }

    /// Returns the number of accounts with this name: one or none.
    pub(crate) fn accounts_named(&self, user: &str) -> Rows {
        let count = u8::from(self.account(user).is_some());
        Rows::of(&["COUNT(*)"]).row([count.to_string()])
    }

    pub(crate) fn accounts_like(&self, pattern: &str) -> Rows {
        let names = self.accounts.iter().map(|account| &account.user[..]);
        let mut names: Vec<&str> = names.filter(|name| is_like(name, pattern)).collect();
        names.sort_unstable();
        Rows::of(&["user"]).rows(names.into_iter().map(|name| [name]))
    }
}

fn failed(operation: &str, user: &str) -> SqlError {
    let message = format!("Operation {operation} failed for '{user}'@'%'");
    SqlError::new(1396, message)
}

/// Implements SQL's LIKE: `%` matches any text and `_` one character. After a `\`, both are literal.
fn is_like(name: &str, pattern: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => name.is_empty(),
        Some('%') => {
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            let mut tails = ends.filter_map(|at| name.get(at..));
            tails.any(|tail| is_like(tail, rest.as_str()))
        }
        Some(next) => {
            let wanted = match next {
                '_' => None,
                '\\' => rest.next(),
                plain => Some(plain),
            };
            let mut own = name.chars();
            let first = own.next();
            let fits = first.is_some() && (wanted.is_none() || wanted == first);
            fits && is_like(own.as_str(), rest.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_like_patterns_as_sql_has_it() {
        for (name, pattern, expected) in [
            ("witness_clone_3_ab", r"witness\_clone\_3\_%", true),
            ("witness_clone_31_ab", r"witness\_clone\_3\_%", false),
            ("witnessXclone_3_ab", r"witness\_clone\_%", false),
            ("witnessXclone", "witness_clone", true),
            ("a", "", false),
            ("", "%", true),
            ("ab", "%b", true),
            ("ab", "a_b", false),
        ] {
            assert_eq!(is_like(name, pattern), expected, "{name} {pattern}");
        }
    }
}
