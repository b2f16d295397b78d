//! The privileges of the member's account, read from `SHOW GRANTS`.

use std::collections::BTreeMap;
use std::fmt;

/// A privilege that the member needs, on `*.*` unless noted otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Privilege {
    /// Needed to attach as a replica.
    ReplicationSlave,
    /// Needed to read the binlog's status.
    ReplicationClient,
    /// Needed to set global variables, `super_read_only` among them.
    SystemVariablesAdmin,
    /// Needed to log in when all connections are taken, and to end sessions.
    ConnectionAdmin,
    /// Needed to see foreign semi-sync replicas; on `performance_schema.*`.
    SelectPerformanceSchema,
    /// Needed to install the plugins for semi-sync and for copies; on `mysql.plugin`.
    InsertMysqlPlugin,
    /// Needed to let mysqld's replica threads follow the ring.
    ReplicationSlaveAdmin,
    /// Needed to begin a new binlog file.
    Reload,
    /// Needed to remove binlog files.
    BinlogAdmin,
    /// Needed to see all sessions, and the size of the data.
    Process,
    /// Needed to keep the event scheduler off through restarts.
    PersistRoVariablesAdmin,
    /// Needed to enable replicated events.
    Event,
    /// Needed to enable replicated events whose definers are other accounts.
    SetAnyDefiner,
    /// Needed to copy another member's data.
    CloneAdmin,
    /// Needed to create an account for a copy of this server's data.
    CreateUser,
    /// Needed to grant an account for a copy its privileges; with the grant option.
    BackupAdmin,
    /// Needed to find accounts for copies, and accounts that may shut mysqld down; on `mysql.*`.
    SelectMysql,
    /// Needed to apply `GRANT PROXY` and `REVOKE PROXY` for any account; with the grant option. No other privilege includes it.
    Proxy,
}

use Privilege::{
    BackupAdmin, BinlogAdmin, CloneAdmin, ConnectionAdmin, CreateUser, Event, InsertMysqlPlugin,
    PersistRoVariablesAdmin, Process, Proxy, Reload, ReplicationClient, ReplicationSlave,
    ReplicationSlaveAdmin, SelectMysql, SelectPerformanceSchema, SetAnyDefiner,
    SystemVariablesAdmin,
};

/// All privileges of a member whose mysqld applies by its own replica threads.
pub const NATIVE_RIGHTS: [Privilege; 17] = [
    ReplicationSlave,
    ReplicationClient,
    Reload,
    Process,
    Event,
    CreateUser,
    SystemVariablesAdmin,
    PersistRoVariablesAdmin,
    ConnectionAdmin,
    ReplicationSlaveAdmin,
    BinlogAdmin,
    CloneAdmin,
    SetAnyDefiner,
    BackupAdmin,
    SelectPerformanceSchema,
    SelectMysql,
    InsertMysqlPlugin,
];

/// The statements that grant an account all privileges of a member that applies the log itself. Such a log may contain any statement of an
/// administrator. `account` is already quoted.
pub fn rows_grants(account: &str) -> Vec<String> {
    vec![
        format!("GRANT ALL PRIVILEGES ON *.* TO {account} WITH GRANT OPTION"),
        Proxy.grant(account),
    ]
}

/// The statements that grant an account all of [`NATIVE_RIGHTS`]. `account` is already quoted.
pub fn native_grants(account: &str) -> Vec<String> {
    let everywhere: Vec<&str> = NATIVE_RIGHTS
        .into_iter()
        .filter(|right| right.clause().1 == "*.*" && !matches!(right, BackupAdmin | SetAnyDefiner))
        .map(|right| right.clause().0)
        .collect();
    // Before 8.2 the privilege has another name.
    let definer = SetAnyDefiner.clause().0;
    let everywhere = everywhere.join(", ");
    let mut statements = vec![format!(
        "GRANT {everywhere} /*!80200 , {definer} */ ON *.* TO {account}"
    )];
    let others = NATIVE_RIGHTS
        .into_iter()
        .filter(|right| right.clause().1 != "*.*" || *right == BackupAdmin);
    statements.extend(others.map(|right| right.grant(account)));
    statements
}

impl Privilege {
    /// Returns the privilege's name in `GRANT`, and the object that it is granted on.
    fn clause(self) -> (&'static str, &'static str) {
        match self {
            ReplicationSlave => ("REPLICATION SLAVE", "*.*"),
            ReplicationClient => ("REPLICATION CLIENT", "*.*"),
            SystemVariablesAdmin => ("SYSTEM_VARIABLES_ADMIN", "*.*"),
            ConnectionAdmin => ("CONNECTION_ADMIN", "*.*"),
            SelectPerformanceSchema => ("SELECT", "performance_schema.*"),
            InsertMysqlPlugin => ("INSERT", "mysql.plugin"),
            ReplicationSlaveAdmin => ("REPLICATION_SLAVE_ADMIN", "*.*"),
            Reload => ("RELOAD", "*.*"),
            BinlogAdmin => ("BINLOG_ADMIN", "*.*"),
            Process => ("PROCESS", "*.*"),
            PersistRoVariablesAdmin => ("PERSIST_RO_VARIABLES_ADMIN", "*.*"),
            Event => ("EVENT", "*.*"),
            SetAnyDefiner => ("SET_ANY_DEFINER", "*.*"),
            CloneAdmin => ("CLONE_ADMIN", "*.*"),
            CreateUser => ("CREATE USER", "*.*"),
            BackupAdmin => ("BACKUP_ADMIN", "*.*"),
            SelectMysql => ("SELECT", "mysql.*"),
            Proxy => ("PROXY", "''@''"),
        }
    }

    /// Returns what fails without the privilege.
    pub(crate) fn without(self) -> &'static str {
        match self {
            ReplicationSlave => "the member cannot attach as a replica",
            ReplicationClient => "the member cannot see whether the binlog is filtered",
            SystemVariablesAdmin => "the member cannot open and close the primary for writes",
            ConnectionAdmin => "the member cannot connect when clients have taken all connections",
            SelectPerformanceSchema => "the member cannot see who else acknowledges commits",
            InsertMysqlPlugin => {
                "the member cannot install the plugins for semi-sync and for copies"
            }
            ReplicationSlaveAdmin => "the member cannot have mysqld follow the ring",
            Reload => "the member cannot begin a new binlog file when mysqld becomes the primary",
            BinlogAdmin => "the member cannot remove binlog files that no replica may follow",
            Process => "the member cannot see what holds a switchover up",
            PersistRoVariablesAdmin => {
                "the member cannot keep the event scheduler off through restarts"
            }
            Event => "the member cannot enable events that came by replication",
            SetAnyDefiner => {
                "the member cannot enable events of other accounts that came by replication"
            }
            CloneAdmin => "the member cannot copy another member's data to this mysqld",
            CreateUser => "the member cannot make the account for a copy of this mysqld's data",
            BackupAdmin => "the member cannot give the account for a copy what it needs",
            SelectMysql => {
                "the member cannot look for accounts of copies, and for those that may shut mysqld down"
            }
            Proxy => {
                "a follower that applies the log itself stops at a GRANT PROXY or REVOKE PROXY of the primary; give it at each server \
                 by itself, since in the log it would be the first to stop them"
            }
        }
    }

    /// Returns the statement that grants the privilege to an account, which is already quoted.
    pub fn grant(self, account: &str) -> String {
        let option = match self.is_given_on() {
            true => " WITH GRANT OPTION",
            false => "",
        };
        format!("GRANT {self} TO {account}{option}")
    }

    fn is_given_on(self) -> bool {
        matches!(self, BackupAdmin | Proxy)
    }

    /// Older or wider privileges that include this one.
    fn included_in(self) -> &'static [&'static str] {
        match self {
            ReplicationClient
            | SystemVariablesAdmin
            | ConnectionAdmin
            | ReplicationSlaveAdmin
            | BinlogAdmin => &["SUPER"],
            SetAnyDefiner => &["SET_USER_ID", "SUPER"],
            _ => &[],
        }
    }
}

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, on) = self.clause();
        write!(f, "{name} ON {on}")
    }
}

/// The privileges of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// `user`@`host` as the server names it.
    pub(super) account: String,
    /// Keys: (schema or `*`, privilege), in upper case. Value: whether the account may grant the privilege to others.
    held: BTreeMap<(String, String), bool>,
}

impl Grants {
    /// Reads the lines of `SHOW GRANTS`. Grants of roles are skipped:
    /// the privileges of active roles have lines of their own.
    pub fn parse<'a>(account: &str, lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut held = BTreeMap::new();
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
                .replace(['`', '\''], "");
            let schema = target.split('.').next().unwrap_or_default().to_lowercase();
            for privilege in privileges.split(',') {
                let privilege = (schema.clone(), privilege.trim().to_uppercase());
                *held.entry(privilege).or_default() |= rest.ends_with(" WITH GRANT OPTION");
            }
        }
        let account = account.to_owned();
        Self { account, held }
    }

    /// True if the account has a privilege.
    pub fn has(&self, privilege: Privilege) -> bool {
        let (name, on) = privilege.clause();
        let holds = |schema: &str, name: &str| {
            let given_on = self.held.get(&(schema.to_owned(), name.to_owned()));
            given_on.is_some_and(|given_on| *given_on || !privilege.is_given_on())
        };
        if privilege == Proxy {
            return holds("@", name);
        }
        let schemas = ["*"].into_iter().chain(on.split('.').next());
        let names = [name, "ALL PRIVILEGES", "ALL"].into_iter();
        let mut names = names.chain(privilege.included_in().iter().copied());
        names.any(|name| schemas.clone().any(|schema| holds(schema, name)))
    }

    /// True if `SET GLOBAL` proceeds while a statement about accounts waits for its ACK. For SUPER, mysqld does not read the list of
    /// dynamic privileges, which that statement has locked (8.0.40: `check_priv` in `sql/set_var.cc`).
    pub fn sets_variables_at_any_time(&self) -> bool {
        ["SUPER", "ALL PRIVILEGES", "ALL"].iter().any(|name| {
            self.held
                .contains_key(&("*".to_owned(), (*name).to_owned()))
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
        assert!(grants.has(Privilege::Proxy));
    }

    #[test]
    fn all_privileges_are_without_proxy() {
        let parse = |lines: &[&str]| Grants::parse("w@%", lines.iter().copied());
        let all = "GRANT ALL PRIVILEGES ON *.* TO `w`@`%` WITH GRANT OPTION";
        assert!(!parse(&[all]).has(Proxy));
        // A PROXY privilege for one account only, and one without the grant option.
        for less in [
            "GRANT PROXY ON `a`@`b` TO `w`@`%` WITH GRANT OPTION",
            "GRANT PROXY ON ``@`` TO `w`@`%`",
        ] {
            assert!(!parse(&[all, less]).has(Proxy), "{less}");
        }
        let lines = rows_grants("'w'@'%'");
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let rows = parse(&lines);
        assert!(rows.has(Proxy) && rows.has(BackupAdmin));
    }

    #[test]
    fn what_is_granted_is_found() {
        let account = "'w'@'%'";
        let lines = native_grants(account);
        let lines = lines.iter().map(|line| {
            // The grant as the server lists it.
            line.replace(" /*!80200 ,", ",").replace(" */", "")
        });
        let lines: Vec<String> = lines.collect();
        let all = Grants::parse("w@%", lines.iter().map(String::as_str));
        for right in NATIVE_RIGHTS {
            assert!(all.has(right), "{right}");
            let single = right.grant(account);
            assert!(Grants::parse("w@%", [&*single]).has(right), "{single}");
        }
        let not_given_on = Grants::parse("w@%", ["GRANT BACKUP_ADMIN ON *.* TO `w`@`%`"]);
        assert!(!not_given_on.has(BackupAdmin));
    }

    #[test]
    fn the_page_lists_these_rights_and_no_others() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/roles.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, section) = page.split_once("## The member's account").unwrap();
        let (_, block) = section.split_once("```sql\n").unwrap();
        let (block, _) = block.split_once("```").unwrap();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut statements = vec![
            "CREATE USER witness@localhost IDENTIFIED BY '…' PASSWORD EXPIRE NEVER".to_owned(),
        ];
        statements.extend(native_grants("witness@localhost"));
        let statements: String = statements
            .iter()
            .map(|statement| {
                format!(
                    "{};\n",
                    statement.replace(" /*!80200 ,", ",").replace(" */", "")
                )
            })
            .collect();
        assert_eq!(words(block), words(&statements));
        for right in NATIVE_RIGHTS {
            let (name, on) = right.clause();
            let row = match on {
                "*.*" => format!("| `{name}` |"),
                on => format!("| `{name}` on `{on}` |"),
            };
            assert!(section.contains(&row), "{row}");
        }
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
