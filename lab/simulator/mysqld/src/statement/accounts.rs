//! Parses account statements and `CLONE INSTANCE FROM`, which contains an account.

use crate::accounts::AccountChange;
use crate::statement::{Parser, Statement};

/// A `CLONE INSTANCE FROM` statement: the donor's address and account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyRequest {
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Parser<'_> {
    /// Parses the rest of a statement after `CREATE USER` or `DROP USER`. Ignores further options.
    pub(super) fn account(
        &mut self,
        change: fn(&mut Self) -> Option<AccountChange>,
    ) -> Option<Statement> {
        let change = change(self).unwrap_or(AccountChange::Other);
        self.rest = &[];
        Some(Statement::Accounts(change))
    }

    pub(super) fn created_account(&mut self) -> Option<AccountChange> {
        let user = self.user_of_any_host()?;
        let password = match self.words("IDENTIFIED BY") {
            true => self.text()?,
            false => String::new(),
        };
        Some(AccountChange::Create { user, password })
    }

    pub(super) fn dropped_account(&mut self) -> Option<AccountChange> {
        let if_exists = self.words("IF EXISTS");
        let user = self.user_of_any_host()?;
        Some(AccountChange::Drop { user, if_exists })
    }

    /// Parses `'name'@'%'`. Returns the name.
    fn user_of_any_host(&mut self) -> Option<String> {
        let user = self.text()?;
        (self.words("@") && self.text()? == "%").then_some(user)
    }

    /// Parses the rest of a statement after `GRANT`.
    pub(super) fn grant(&mut self) -> Option<Statement> {
        self.phrase("BACKUP_ADMIN ON * . * TO")?;
        let user = self.user_of_any_host()?;
        Some(Statement::Accounts(AccountChange::GrantBackup { user }))
    }

    /// Parses the rest of a statement after `CLONE`.
    pub(super) fn copy(&mut self) -> Option<Statement> {
        self.phrase("INSTANCE FROM")?;
        let user = self.text()?;
        self.phrase("@")?;
        let host = self.text()?;
        self.phrase(":")?;
        let port = u16::try_from(self.number()?).ok()?;
        self.phrase("IDENTIFIED BY")?;
        Some(Statement::Copy(CopyRequest {
            user,
            password: self.text()?,
            host,
            port,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_of_a_copy_are_read() {
        let user = || "witness_clone_3_ab".to_owned();
        let table = [
            (
                "CREATE USER 'witness_clone_3_ab'@'%' IDENTIFIED BY 'Aa1-x' REQUIRE NONE PASSWORD EXPIRE INTERVAL 7 DAY",
                Statement::Accounts(AccountChange::Create {
                    user: user(),
                    password: "Aa1-x".to_owned(),
                }),
            ),
            (
                "GRANT BACKUP_ADMIN ON *.* TO 'witness_clone_3_ab'@'%'",
                Statement::Accounts(AccountChange::GrantBackup { user: user() }),
            ),
            (
                "DROP USER IF EXISTS 'witness_clone_3_ab'@'%'",
                Statement::Accounts(AccountChange::Drop {
                    user: user(),
                    if_exists: true,
                }),
            ),
            (
                "SELECT COUNT(*) FROM mysql.user WHERE user = 'witness_clone_3_ab'",
                Statement::CountAccounts(user()),
            ),
            (
                r"SELECT user FROM mysql.user WHERE host = '%' AND user LIKE 'witness\\_clone\\_3\\_%'",
                Statement::AccountsLike(r"witness\_clone\_3\_%".to_owned()),
            ),
            (
                "CLONE INSTANCE FROM 'witness_clone_3_ab'@'db-2':3306 IDENTIFIED BY 'Aa1-x'",
                Statement::Copy(CopyRequest {
                    user: user(),
                    password: "Aa1-x".to_owned(),
                    host: "db-2".to_owned(),
                    port: 3306,
                }),
            ),
            (
                "CREATE USER u IDENTIFIED WITH x",
                Statement::Accounts(AccountChange::Other),
            ),
        ];
        for (text, expected) in table {
            assert_eq!(Statement::of(text), Some(expected), "{text}");
        }
    }
}
