//! Options for applying to a MySQL.

use std::time::Duration;

use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, literal};

/// Time limit for a statement of a barrier, such as an ALTER TABLE.
pub(super) const STATEMENT_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Options for applying to a MySQL.
#[derive(Debug, Clone)]
pub struct MysqlOptions {
    /// Its address, and the account; see the privileges in [`MysqlBackend::connect`](crate::mysql::MysqlBackend::connect).
    pub connect: ConnectOptions,
    /// Whether transactions go into the target's binlog. Without it, a target with a binlog logs them as empty transactions
    /// with their GTIDs only: such files must not be served to a replica.
    pub target_binlog: bool,
    /// Whether consecutive transactions may commit as one, and sessions pass on the turn to do so, by the row of
    /// `witness_applier.checkpoint`, which is created if missing. Not done with [`Self::target_binlog`].
    pub batches: bool,
    /// All transactions of the log, where known when a run begins: entries in the row beyond them are of another
    /// log, and ignored. `None`: the whole row counts.
    pub log_has: Option<GtidSet>,
    /// Timeout for a row or a table lock, after which the transaction is rolled back and retried. Whole seconds.
    pub lock_wait: Duration,
    /// Time limit for one packet of rows. Exceeding it counts as a lost connection, and a retry gets twice the time,
    /// up to that of a statement.
    pub rows_limit: Duration,
}

impl MysqlOptions {
    /// The defaults for everything but the connection.
    pub fn new(connect: ConnectOptions) -> Self {
        Self {
            connect,
            target_binlog: false,
            batches: true,
            log_has: None,
            lock_wait: Duration::from_secs(10),
            rows_limit: Duration::from_secs(600),
        }
    }

    /// The lock wait in the server's unit: at least one second.
    pub(super) fn lock_wait_seconds(&self) -> u64 {
        self.lock_wait.as_secs().max(1)
    }
}

// An account's privileges, from the lines of SHOW GRANTS. Pure.

/// Privileges on any object, without distinguishing which.
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

    /// Those privileges that it has on no object.
    pub(super) fn lacks<'a>(&self, wanted: &[&'a str]) -> Vec<&'a str> {
        let all = ["ALL PRIVILEGES", "ALL"].iter().any(|all| self.has(all));
        let missing = wanted.iter().filter(|one| !all && !self.has(one));
        missing.copied().collect()
    }

    fn has(&self, privilege: &str) -> bool {
        self.held.iter().any(|held| held == privilege)
    }
}

/// The privileges for rows of all tables.
pub(super) const FOR_ROWS: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];

/// The privileges for rows that an account lacks for a run, by the lines of SHOW GRANTS.
pub fn lacks_for_rows<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<&'static str> {
    Grants::parse(lines).lacks(&FOR_ROWS)
}

/// The grant for an account that may create accounts and not grant PROXY: it stops at the log's first
/// `GRANT PROXY` or `REVOKE PROXY`. `lines` are those of SHOW GRANTS, `account` is the result of CURRENT_USER(). ALL PRIVILEGES do
/// not include it.
pub(super) fn lacking_proxy<'a>(
    mut lines: impl Iterator<Item = &'a str> + Clone,
    account: &str,
) -> Option<String> {
    let grants = Grants::parse(lines.clone());
    let of_all = lines.any(|line| {
        let line = line.replace('`', "'");
        line.starts_with("GRANT PROXY ON ''@'' TO ") && line.ends_with(" WITH GRANT OPTION")
    });
    let lacks = !of_all && grants.lacks(&["CREATE USER"]).is_empty();
    lacks.then(|| {
        let account = quoted(account);
        // In the log it would be the first to stop members that lack it.
        format!("SET sql_log_bin = 0; GRANT PROXY ON ''@'' TO {account} WITH GRANT OPTION")
    })
}

/// The statement that grants the missing privileges. `account` is the result of CURRENT_USER(): user@host.
pub(super) fn grant_statement(privileges: &[&str], account: &str) -> String {
    let account = quoted(account);
    format!("GRANT {} ON *.* TO {account}", privileges.join(", "))
}

fn quoted(account: &str) -> String {
    let (user, host) = account.rsplit_once('@').unwrap_or((account, "%"));
    format!("{}@{}", literal(user), literal(host))
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

    #[test]
    fn who_may_make_accounts_is_to_have_proxy_which_all_privileges_are_without() {
        let lacking = |lines: &[&str]| lacking_proxy(lines.iter().copied(), "w@localhost");
        let all = "GRANT SELECT, CREATE USER ON *.* TO `w`@`localhost` WITH GRANT OPTION";
        let told = Some(
            "SET sql_log_bin = 0; GRANT PROXY ON ''@'' TO 'w'@'localhost' WITH GRANT OPTION"
                .to_owned(),
        );
        assert_eq!(lacking(&[all]), told);
        let of_one = "GRANT PROXY ON `a`@`b` TO `w`@`localhost` WITH GRANT OPTION";
        assert_eq!(lacking(&[all, of_one]), told);
        // Names are quoted in either way.
        for of_all in ["``@``", "''@''"] {
            let grant = format!("GRANT PROXY ON {of_all} TO `w`@`localhost` WITH GRANT OPTION");
            assert_eq!(lacking(&[all, &grant]), None);
        }
        assert_eq!(lacking(&["GRANT SELECT ON *.* TO `w`@`localhost`"]), None);
    }
}
