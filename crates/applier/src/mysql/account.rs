//! What an account may, from the lines of SHOW GRANTS. Pure.

use mysql_link::literal;

/// Privileges on everything or on something, without telling which.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Grants {
    held: Vec<String>,
}

impl Grants {
    /// Reads the lines of SHOW GRANTS.
    pub(super) fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut held = Vec::new();
        for line in lines {
            let list = line
                .strip_prefix("GRANT ")
                .and_then(|rest| rest.split_once(" ON "));
            if let Some((list, _)) = list {
                held.extend(list.split(',').map(|word| word.trim().to_uppercase()));
            }
        }
        Self { held }
    }

    /// Which of some privileges it has nowhere.
    pub(super) fn lacks<'a>(&self, wanted: &[&'a str]) -> Vec<&'a str> {
        let all = ["ALL PRIVILEGES", "ALL"].iter().any(|all| self.has(all));
        let missing = wanted.iter().filter(|one| !all && !self.has(one));
        missing.copied().collect()
    }

    fn has(&self, privilege: &str) -> bool {
        self.held.iter().any(|held| held == privilege)
    }
}

/// The statement that gives an account what it lacks. `account` is as CURRENT_USER() says it: user@host.
pub(super) fn grant_statement(privileges: &[&str], account: &str) -> String {
    let (user, host) = account.rsplit_once('@').unwrap_or((account, "%"));
    let (user, host) = (literal(user), literal(host));
    format!("GRANT {} ON *.* TO {user}@{host}", privileges.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_told_as_a_statement() {
        let grants = Grants::parse([
            "GRANT SELECT, INSERT ON *.* TO `w`@`%`",
            "GRANT CONNECTION_ADMIN,REPLICATION_APPLIER ON *.* TO `w`@`%`",
            "GRANT UPDATE ON `app`.* TO `w`@`%`",
            "GRANT `role`@`%` TO `w`@`%`",
        ]);
        let lacking = grants.lacks(&["INSERT", "UPDATE", "DELETE", "CONNECTION_ADMIN"]);
        assert_eq!(lacking, ["DELETE"]);
        assert_eq!(
            grant_statement(&lacking, "o'w@%"),
            "GRANT DELETE ON *.* TO 'o''w'@'%'"
        );
        let root = Grants::parse(["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost`"]);
        assert!(root.lacks(&["DELETE", "CONNECTION_ADMIN"]).is_empty());
    }
}
