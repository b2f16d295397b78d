//! The privileges of the member's account, read from `SHOW GRANTS`.

use std::collections::BTreeSet;
use std::fmt;

/// A privilege that the member needs for something, on `*.*` unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Privilege {
    /// To attach as a replica.
    ReplicationSlave,
    /// To read the binlog's status.
    ReplicationClient,
    /// To set global variables, `super_read_only` among them.
    SystemVariablesAdmin,
    /// To get in when all connections are taken.
    ConnectionAdmin,
    /// To see who else acknowledges; on `performance_schema.*`.
    SelectPerformanceSchema,
    /// To install the semi-sync plugin; on `mysql.plugin`.
    InsertMysqlPlugin,
}

impl Privilege {
    /// How `GRANT` names it, with what it is granted on.
    pub fn clause(self) -> &'static str {
        match self {
            Self::ReplicationSlave => "REPLICATION SLAVE ON *.*",
            Self::ReplicationClient => "REPLICATION CLIENT ON *.*",
            Self::SystemVariablesAdmin => "SYSTEM_VARIABLES_ADMIN ON *.*",
            Self::ConnectionAdmin => "CONNECTION_ADMIN ON *.*",
            Self::SelectPerformanceSchema => "SELECT ON performance_schema.*",
            Self::InsertMysqlPlugin => "INSERT ON mysql.plugin",
        }
    }

    /// The privilege's name, the schema that suffices, and older or wider privileges that include it.
    fn accepted(self) -> (&'static str, Option<&'static str>, &'static [&'static str]) {
        match self {
            Self::ReplicationSlave => ("REPLICATION SLAVE", None, &[]),
            Self::ReplicationClient => ("REPLICATION CLIENT", None, &["SUPER"]),
            Self::SystemVariablesAdmin => ("SYSTEM_VARIABLES_ADMIN", None, &["SUPER"]),
            Self::ConnectionAdmin => ("CONNECTION_ADMIN", None, &["SUPER"]),
            Self::SelectPerformanceSchema => ("SELECT", Some("performance_schema"), &[]),
            Self::InsertMysqlPlugin => ("INSERT", Some("mysql"), &[]),
        }
    }
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.clause())
    }
}

/// The privileges of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// `user`@`host` as the server names it.
    account: String,
    /// (schema or `*`, privilege), upper case.
    held: BTreeSet<(String, String)>,
}

impl Grants {
    /// Reads the lines of `SHOW GRANTS`. What is no grant of privileges (roles, proxies) is passed over:
    /// the privileges of active roles are in lines of their own.
    pub fn parse<'a>(account: &str, lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut held = BTreeSet::new();
        for line in lines {
            let Some((privileges, rest)) = line
                .strip_prefix("GRANT ")
                .and_then(|line| line.split_once(" ON "))
            else {
                continue;
            };
            let target = rest
                .split(" TO ")
                .next()
                .unwrap_or_default()
                .replace('`', "");
            let schema = target.split('.').next().unwrap_or_default().to_lowercase();
            for privilege in privileges.split(',') {
                held.insert((schema.clone(), privilege.trim().to_uppercase()));
            }
        }
        Self {
            account: account.to_owned(),
            held,
        }
    }

    /// The account whose privileges these are.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// Whether the account has a privilege.
    pub fn has(&self, privilege: Privilege) -> bool {
        let (name, schema, wider) = privilege.accepted();
        let names = || {
            [name, "ALL PRIVILEGES", "ALL"]
                .into_iter()
                .chain(wider.iter().copied())
        };
        ["*"].into_iter().chain(schema).any(|schema| {
            names().any(|name| self.held.contains(&(schema.to_owned(), name.to_owned())))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_of_both_kinds_are_found() {
        let grants = Grants::parse(
            "w@%",
            [
                "GRANT SELECT (`a`), REPLICATION SLAVE ON *.* TO `w`@`%`",
                "GRANT SYSTEM_VARIABLES_ADMIN,CONNECTION_ADMIN ON *.* TO `w`@`%` WITH GRANT OPTION",
                "GRANT SELECT ON `performance_schema`.* TO `w`@`%`",
                "GRANT `a_role`@`%` TO `w`@`%`",
                "GRANT PROXY ON ``@`` TO `root`@`localhost` WITH GRANT OPTION",
            ],
        );
        assert!(grants.has(Privilege::ReplicationSlave));
        assert!(grants.has(Privilege::SystemVariablesAdmin));
        assert!(grants.has(Privilege::ConnectionAdmin));
        assert!(grants.has(Privilege::SelectPerformanceSchema));
        assert!(!grants.has(Privilege::ReplicationClient));
        assert!(!grants.has(Privilege::InsertMysqlPlugin));
    }

    #[test]
    fn all_privileges_and_super_are_understood() {
        let all = Grants::parse(
            "root@localhost",
            ["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost`"],
        );
        assert!(all.has(Privilege::ReplicationSlave) && all.has(Privilege::InsertMysqlPlugin));
        let old = Grants::parse("old@%", ["GRANT SUPER ON *.* TO `old`@`%`"]);
        assert!(old.has(Privilege::SystemVariablesAdmin) && !old.has(Privilege::ReplicationSlave));
        let elsewhere = Grants::parse("x@%", ["GRANT ALL PRIVILEGES ON `app`.* TO `x`@`%`"]);
        assert!(!elsewhere.has(Privilege::ReplicationSlave));
    }
}
