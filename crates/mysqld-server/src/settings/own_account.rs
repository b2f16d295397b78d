//! Checks whether a member can still log in to its mysqld. If a dump of all databases is loaded, it replaces the accounts on every member.
//! mysqld uses the loaded accounts until its next start or FLUSH PRIVILEGES, and existing sessions continue even after that. So a new
//! session periodically checks the login, the loaded privileges of its account, and the grant tables. It also checks the account's session
//! limit, since a member with the primary opens more sessions than a follower.

use std::collections::BTreeSet;

use mysql_link::server_code::{HOST_NOT_PRIVILEGED, TOO_MANY_USER_CONNECTIONS, USER_LIMIT_REACHED};
use mysql_link::{ConnectOptions, Connection, LinkError};

use crate::STATEMENT_LIMIT;
use crate::settings::grants::{Grants, NATIVE_RIGHTS, Privilege, native_grants, rows_grants};
use crate::settings::preflight::quoted_account;
use crate::settings::probe::{grants, unless_refused};

/// The account is locked.
const ACCOUNT_LOCKED: u16 = 3118;
/// Concurrent sessions of a member, without those that apply the log. Includes the sessions that a promotion adds.
const SESSIONS: u64 = 12;
const OWN: &str = "CONCAT(user, '@', host) = CURRENT_USER()";

/// Result of a login.
#[derive(Debug)]
pub enum Login {
    /// The login succeeded.
    In(Account),
    /// The login was refused, with the server's message.
    Refused(String),
    /// The account's session limit is reached, with the server's message.
    Full(String),
}

/// Privileges and limits of a session's account.
#[derive(Debug)]
pub struct Account {
    /// The privileges that mysqld has loaded.
    loaded: Grants,
    /// The privileges that mysqld loads at its next start; `None` if the account may not read them.
    stored: Option<Stored>,
    /// The account's limit of concurrent sessions; `None` if only the server's limit applies.
    sessions: Option<u64>,
}

/// The account's entries in the grant tables.
#[derive(Debug, PartialEq, Eq)]
enum Stored {
    Nothing,
    OtherPassword,
    /// The account's rights; `None` if some come from a role.
    Rights(Option<Grants>),
}

/// Logs in and runs the checks. A refused login is not an error.
///
/// # Errors
/// The result is unknown: mysqld is unreachable, or does not answer, for example while a statement about accounts waits for its ACK.
pub async fn log_in(connect: &ConnectOptions) -> Result<Login, LinkError> {
    let connect = connect
        .clone()
        .bounded("witness-own-account", STATEMENT_LIMIT);
    let mut connection = match Connection::open_with_own_settings(&connect).await {
        Ok(connection) => connection,
        Err(LinkError::AccessDenied { error, .. }) => return Ok(Login::Refused(error.to_string())),
        Err(LinkError::Refused { error, .. })
            if [HOST_NOT_PRIVILEGED, ACCOUNT_LOCKED].contains(&error.code) =>
        {
            return Ok(Login::Refused(error.to_string()));
        }
        Err(LinkError::Refused { error, .. })
            if [TOO_MANY_USER_CONNECTIONS, USER_LIMIT_REACHED].contains(&error.code) =>
        {
            return Ok(Login::Full(error.to_string()));
        }
        Err(error) => return Err(error),
    };
    // The account's own limit, or the server's if the account has none.
    let sessions = connection
        .query("SELECT @@SESSION.max_user_connections")
        .await?;
    let sessions = sessions.value().and_then(|value| value.parse().ok());
    let loaded = grants(&mut connection).await?;
    let stored = stored(&mut connection).await?;
    connection.close().await;
    Ok(Login::In(Account {
        loaded,
        stored,
        sessions: sessions.filter(|most| *most > 0),
    }))
}

async fn stored(connection: &mut Connection) -> Result<Option<Stored>, LinkError> {
    let row = format!(
        "SELECT HEX(authentication_string), CURRENT_ROLE() = 'NONE', authentication_string FROM mysql.user WHERE {OWN}"
    );
    let Some(row) = unless_refused(connection.query(row).await)? else {
        return Ok(None);
    };
    let Some(row) = row.first() else {
        return Ok(Some(Stored::Nothing));
    };
    let [digits, password] = [0, 2].map(|column| row.text_at(column).unwrap_or_default());
    // The hash is empty if another plugin authenticates the account, for example by the socket.
    if !digits.is_empty()
        && let Some(loaded) = loaded_password(connection).await?
        && !loaded.contains(digits)
        && !unescaped(&loaded).contains(&unescaped(password))
    {
        return Ok(Some(Stored::OtherPassword));
    }
    if row.text_at(1) != Some("1") {
        return Ok(Some(Stored::Rights(None)));
    }
    let Some(lines) = unless_refused(connection.query(stored_grants()).await)? else {
        return Ok(Some(Stored::Rights(None)));
    };
    let lines = lines.values();
    let rights = Grants::parse("", lines);
    Ok(Some(Stored::Rights(Some(rights))))
}

/// Returns the `CREATE USER` statement of the loaded account; `None` before 8.0.17. Its password hash is hexadecimal, or quoted if every
/// byte is printable. All `mysql_native_password` hashes are printable, and one in 400 others.
async fn loaded_password(connection: &mut Connection) -> Result<Option<String>, LinkError> {
    let in_digits = connection
        .execute("SET SESSION print_identified_with_as_hex = ON")
        .await;
    match in_digits {
        Err(LinkError::Server(_)) => return Ok(None),
        set => drop(set?),
    }
    let made = connection.query("SHOW CREATE USER CURRENT_USER()").await?;
    Ok(made.value().map(str::to_owned))
}

/// Removes escape characters and the characters that they escape. Two hashes that differ only in these are impossible.
fn unescaped(literal: &str) -> String {
    literal.replace(['\\', '\'', '"'], "")
}

/// Returns the query for the account's entries in the grant tables that a member needs, as lines of `SHOW GRANTS`.
fn stored_grants() -> String {
    let everywhere = [
        ("Select_priv", "SELECT"),
        ("Insert_priv", "INSERT"),
        ("Reload_priv", "RELOAD"),
        ("Process_priv", "PROCESS"),
        ("Super_priv", "SUPER"),
        ("Repl_slave_priv", "REPLICATION SLAVE"),
        ("Repl_client_priv", "REPLICATION CLIENT"),
        ("Create_user_priv", "CREATE USER"),
        ("Event_priv", "EVENT"),
    ];
    let everywhere =
        everywhere.map(|(column, right)| format!("IF({column} = 'Y', '{right}', NULL)"));
    let given_on = |column: &str| format!("IF({column}, ' WITH GRANT OPTION', '')");
    [
        format!("CONCAT_WS(',', {}), ' ON *.*', '' FROM mysql.user", everywhere.join(", ")),
        format!("priv, ' ON *.*', {} FROM mysql.global_grants", given_on("with_grant_option = 'Y'")),
        "IF(Select_priv = 'Y', 'SELECT', 'USAGE'), CONCAT(' ON `', db, '`.*'), '' FROM mysql.db".to_owned(),
        "table_priv, CONCAT(' ON `', db, '`.`', table_name, '`'), '' FROM mysql.tables_priv".to_owned(),
        format!("'PROXY', CONCAT(' ON `', proxied_user, '`@`', proxied_host, '`'), {} FROM mysql.proxies_priv", given_on("with_grant")),
    ]
    .map(|table| {
        let (columns, table) = table.split_once(" FROM ").unwrap_or_default();
        format!("SELECT CONCAT('GRANT ', r, o, ' TO x', g) FROM (SELECT {columns} FROM {table} WHERE {OWN}) AS t (r, o, g)")
    })
    .join(" UNION ALL ")
}

const BY_A_DUMP: &str = "A dump with --all-databases that was loaded at the primary replaces the accounts at every member. Sessions from \
     before go on, and the member cannot do its work after the next restart or failover.";

/// The state of a member's account over time. Pure.
#[derive(Debug)]
pub struct OwnAccount {
    native: bool,
    /// How many concurrent sessions the member needs.
    sessions: u64,
    /// The account's name as reported by the server; `None` before the first login.
    name: Option<String>,
    /// Required privileges that the account had at some time. A privilege that it never had was reported when the member attached.
    had: BTreeSet<Privilege>,
}

const UNTIL: &str = "mysqld goes by what it has loaded until its next start or FLUSH PRIVILEGES";

impl OwnAccount {
    /// Creates the state for a member that applies the log over `apply_workers` connections. With `native`, mysqld's own replica threads
    /// apply.
    pub fn new(native: bool, apply_workers: usize) -> Self {
        Self {
            native,
            sessions: SESSIONS + apply_workers as u64,
            name: None,
            had: BTreeSet::new(),
        }
    }

    /// Returns the warning for the operator after a login. An account that could never log in is reported elsewhere.
    pub fn see(&mut self, login: Login) -> Option<String> {
        if let Login::In(account) = &login {
            self.name = Some(quoted_account(&account.loaded.account));
        }
        let name = &self.name.clone()?;
        let (lost, few) = match login {
            Login::Refused(words) => {
                let fault = format!("is no longer let in: {words}");
                (Some((fault, self.made_again(name))), None)
            }
            Login::Full(words) => (None, Some(format!("gets no more sessions ({words})"))),
            Login::In(account) => {
                let few = account.sessions.filter(|most| *most < self.sessions);
                let few = few.map(|most| format!("may have {most} sessions at one time"));
                (self.lost(&account, name), few)
            }
        };
        let (fault, cause, statements) = match (lost, few) {
            (Some((fault, statements)), _) => (fault, BY_A_DUMP, statements),
            (None, few) => (
                format!("{}, and needs up to {}", few?, self.sessions),
                "max_user_connections holds for it as for clients, and the member opens more sessions where its mysqld becomes the \
                 primary: it would not open it for writes.",
                vec![format!("ALTER USER {name} WITH MAX_USER_CONNECTIONS 1000")],
            ),
        };
        Some(format!(
            "the account {name}, by which the member logs in to its mysqld, {fault}. {cause} Before that, as an administrator at each \
             server whose member says so (where super_read_only is on, it has to be off meanwhile), run: SET sql_log_bin = 0; {}",
            statements.join("; ")
        ))
    }

    /// Returns the privileges that the account lacks or will lack, and the statements that repair the account.
    fn lost(&mut self, account: &Account, name: &str) -> Option<(String, Vec<String>)> {
        let needed = NATIVE_RIGHTS.into_iter();
        let needed = needed.chain((!self.native).then_some(Privilege::Proxy));
        let needed: Vec<Privilege> = needed.collect();
        let loaded = |right: &Privilege| account.loaded.has(*right);
        self.had.extend(needed.iter().copied().filter(loaded));
        let stored = match &account.stored {
            Some(Stored::Nothing) => {
                let gone = format!("is no longer in any grant table; {UNTIL}");
                return Some((gone, self.made_again(name)));
            }
            Some(Stored::OtherPassword) => {
                let other = "has another password in the grant tables than mysqld has loaded";
                return Some((format!("{other}; {UNTIL}"), self.made_again(name)));
            }
            Some(Stored::Rights(rights)) => rights.as_ref(),
            None => None,
        };
        let has =
            |right: &Privilege| loaded(right) && stored.is_none_or(|stored| stored.has(*right));
        let had = self.had.iter().copied();
        let lost: Vec<_> = had.filter(|right| !has(right)).collect();
        let names: Vec<_> = lost.iter().map(ToString::to_string).collect();
        let fault = format!(
            "had {} and has lost it, or is without it in the grant tables; {UNTIL}",
            names.join(", ")
        );
        // mysqld does not write loaded privileges back to a table.
        let flush = std::iter::once("FLUSH PRIVILEGES".to_owned());
        let grants = flush.chain(lost.iter().map(|right| right.grant(name)));
        (!lost.is_empty()).then(|| (fault, grants.collect()))
    }

    /// Returns the statements that create the account again. They first remove remaining entries: mysqld creates no account that still has
    /// a row in one of the tables.
    fn made_again(&self, name: &str) -> Vec<String> {
        let rights = match self.native {
            true => native_grants(name),
            false => rows_grants(name),
        };
        let recreate = [
            format!("DROP USER IF EXISTS {name}"),
            format!("CREATE USER {name} IDENTIFIED BY '…' PASSWORD EXPIRE NEVER"),
        ];
        recreate.into_iter().chain(rights).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn let_in(loaded: &[&str], stored: Option<Stored>) -> Login {
        let loaded = Grants::parse("w@%", loaded.iter().copied());
        Login::In(Account {
            loaded,
            stored,
            sessions: None,
        })
    }

    fn rights(lines: &[&str]) -> Option<Stored> {
        let grants = Grants::parse("", lines.iter().copied());
        Some(Stored::Rights(Some(grants)))
    }

    #[test]
    fn an_account_that_is_gone_is_told_before_and_behind_its_last_login() {
        const ALL: &[&str] = &[
            "GRANT ALL PRIVILEGES ON *.* TO w WITH GRANT OPTION",
            "GRANT PROXY ON ``@`` TO w WITH GRANT OPTION",
        ];
        let sound = || let_in(ALL, rights(ALL));
        let refused = || Login::Refused("Access denied".to_owned());
        let made_again = "run: SET sql_log_bin = 0; DROP USER IF EXISTS 'w'@'%'; CREATE USER 'w'@'%' IDENTIFIED BY '…' PASSWORD \
                          EXPIRE NEVER; GRANT ALL PRIVILEGES ON *.* TO 'w'@'%' WITH GRANT OPTION; GRANT PROXY";
        let mut account = OwnAccount::new(false, 4);
        // The observer of the server reports a wrong password in the configuration.
        assert_eq!(account.see(refused()), None);
        assert_eq!(account.see(sound()), None);
        for (login, what) in [
            (
                let_in(ALL, Some(Stored::Nothing)),
                "is no longer in any grant table",
            ),
            (
                let_in(ALL, Some(Stored::OtherPassword)),
                "has another password",
            ),
            (refused(), "is no longer let in: Access denied"),
        ] {
            let told = account.see(login).unwrap();
            assert!(told.contains(what) && told.contains(made_again), "{told}");
        }
        assert_eq!(account.see(sound()), None);
        // An account that may not read the tables, or has privileges by a role, gets no warning about the unknown.
        assert_eq!(account.see(let_in(ALL, None)), None);
        assert_eq!(account.see(let_in(ALL, Some(Stored::Rights(None)))), None);
    }

    #[test]
    fn only_rights_that_were_had_are_lost() {
        const TWO: &[&str] = &["GRANT RELOAD, PROCESS ON *.* TO w"];
        const ONE: &[&str] = &["GRANT PROCESS ON *.* TO w"];
        let mut account = OwnAccount::new(true, 0);
        assert_eq!(account.see(let_in(TWO, rights(TWO))), None);
        for (loaded, stored) in [(TWO, ONE), (ONE, TWO), (ONE, ONE)] {
            let told = account.see(let_in(loaded, rights(stored))).unwrap();
            assert!(told.contains("had RELOAD ON *.* and has lost it"), "{told}");
            assert!(
                told.ends_with(
                    "run: SET sql_log_bin = 0; FLUSH PRIVILEGES; GRANT RELOAD ON *.* TO 'w'@'%'"
                ),
                "{told}"
            );
        }
        assert_eq!(account.see(let_in(TWO, rights(TWO))), None);
    }

    #[test]
    fn an_account_of_few_sessions_is_told_of_before_a_promotion_needs_them() {
        const ALL: &[&str] = &["GRANT ALL PRIVILEGES ON *.* TO w WITH GRANT OPTION"];
        let with = |most| {
            let loaded = Grants::parse("w@%", ALL.iter().copied());
            Login::In(Account {
                loaded,
                stored: rights(ALL),
                sessions: most,
            })
        };
        let mut account = OwnAccount::new(false, 4);
        for (most, enough) in [(None, true), (Some(16), true), (Some(15), false)] {
            assert_eq!(account.see(with(most)).is_none(), enough, "{most:?}");
        }
        let told = account.see(with(Some(5))).unwrap();
        assert!(
            told.contains("may have 5 sessions at one time, and needs up to 16"),
            "{told}"
        );
        let told = account
            .see(Login::Full("already has more".to_owned()))
            .unwrap();
        assert!(
            told.contains("gets no more sessions (already has more), and needs up to 16")
                && told.ends_with("ALTER USER 'w'@'%' WITH MAX_USER_CONNECTIONS 1000"),
            "{told}"
        );
    }
}
