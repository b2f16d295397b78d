//! Whether a member can go on logging in to its mysqld. A dump of all databases replaces the accounts, at every member; mysqld goes by
//! what it has loaded until its next start or FLUSH PRIVILEGES, and sessions from before go on even behind that. So a new session is
//! asked now and then: whether it is let in, what mysqld has loaded of its account, and what its tables have. And how many sessions
//! the account may have at one time, since a member that becomes the primary's opens more of them than one that follows.

use std::collections::BTreeSet;
use std::fmt;

use mysql_link::{ConnectOptions, Connection, LinkError, server_code};

use crate::STATEMENT_LIMIT;
use crate::settings::grants::{Grants, NATIVE_RIGHTS, Privilege, native_grants, rows_grants};
use crate::settings::preflight::quoted_account;
use crate::settings::probe::{grants, unless_refused};

/// The account is locked.
const ACCOUNT_LOCKED: u16 = 3118;
/// Sessions that a member has at one time, but for those that apply the log: what looks at mysqld, and what a promotion opens besides.
const SESSIONS: u64 = 12;
const OWN: &str = "CONCAT(user, '@', host) = CURRENT_USER()";

/// What came of a login.
#[derive(Debug)]
pub enum Login {
    /// It was let in.
    In(Account),
    /// The account is not let in, in the server's words.
    Refused(String),
    /// It has as many sessions as it may have, in the server's words.
    Full(String),
}

/// What is to be known of the account of a session.
#[derive(Debug)]
pub struct Account {
    /// What mysqld has loaded.
    loaded: Grants,
    /// What the next start loads; none where the account may not look.
    stored: Option<Stored>,
    /// How many sessions it may have at one time; none where as many as the server takes.
    sessions: Option<u64>,
}

/// What the grant tables have of the account.
#[derive(Debug, PartialEq, Eq)]
enum Stored {
    Nothing,
    OtherPassword,
    /// Its rights; none where some come from a role.
    Rights(Option<Grants>),
}

/// Logs in, and looks. Not being let in is no error.
///
/// # Errors
/// Whether the account is let in is not known: mysqld cannot be reached, or does not answer, as while a statement about accounts waits.
pub async fn log_in(connect: &ConnectOptions) -> Result<Login, LinkError> {
    let connect = connect
        .clone()
        .bounded("witness-own-account", STATEMENT_LIMIT);
    let mut connection = match Connection::open_with_own_settings(&connect).await {
        Ok(connection) => connection,
        Err(LinkError::AccessDenied { error, .. }) => return Ok(Login::Refused(error.to_string())),
        Err(LinkError::Refused { error, .. })
            if [server_code::HOST_NOT_PRIVILEGED, ACCOUNT_LOCKED].contains(&error.code) =>
        {
            return Ok(Login::Refused(error.to_string()));
        }
        Err(LinkError::Refused { error, .. })
            if [
                server_code::TOO_MANY_USER_CONNECTIONS,
                server_code::USER_LIMIT_REACHED,
            ]
            .contains(&error.code) =>
        {
            return Ok(Login::Full(error.to_string()));
        }
        Err(error) => return Err(error),
    };
    // The account's own limit, or else the server's.
    let sessions = connection
        .query("SELECT @@SESSION.max_user_connections")
        .await?;
    let sessions = sessions
        .first()
        .and_then(|row| row.text_at(0)?.parse().ok());
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
    // There is none where another plugin says who it is, as by the socket.
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
    let lines = lines.rows.iter().filter_map(|row| row.text_at(0));
    let rights = Grants::parse("", lines);
    Ok(Some(Stored::Rights(Some(rights))))
}

/// The statement that made the account as mysqld has it loaded; none before 8.0.17. Its password's hash is in hexadecimal digits, or in
/// quotes where every byte of it can be printed, as of each account of `mysql_native_password` and of one in 400 others.
async fn loaded_password(connection: &mut Connection) -> Result<Option<String>, LinkError> {
    let in_digits = connection
        .execute("SET SESSION print_identified_with_as_hex = ON")
        .await;
    match in_digits {
        Err(LinkError::Server(_)) => return Ok(None),
        set => drop(set?),
    }
    let made = connection.query("SHOW CREATE USER CURRENT_USER()").await?;
    Ok(made
        .first()
        .and_then(|row| row.text_at(0))
        .map(str::to_owned))
}

/// Without what a literal escapes and escapes with. That two hashes differ in these alone cannot be.
fn unescaped(literal: &str) -> String {
    literal.replace(['\\', '\'', '"'], "")
}

/// What the grant tables say of the account, in the lines of `SHOW GRANTS`, as far as a member needs any of it.
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
     before go on, and the member cannot do its work behind the next restart or failover.";

/// What a member knows of its account by now. Pure.
#[derive(Debug)]
pub struct OwnAccount {
    native: bool,
    /// How many sessions it has to have at one time.
    sessions: u64,
    /// As the server names it; none before the first login.
    name: Option<String>,
    /// Rights that a member needs, and that it had at some time: what it never had was told where it attached.
    had: BTreeSet<Privilege>,
}

/// What is wrong with the account.
#[derive(Debug, PartialEq, Eq)]
enum Lost {
    /// It is not let in any more, in the server's words.
    Refused(String),
    /// It is let in, and will not be by the grant tables.
    Gone,
    OtherPassword,
    /// It is let in, and lacks these or will lack them.
    Rights(Vec<Privilege>),
    /// It may have too few sessions at one time, in these words.
    Sessions(String),
}

impl OwnAccount {
    /// Of a member that applies the log over so many connections; of one whose mysqld applies by its own replica threads, none.
    pub fn new(native: bool, apply_workers: usize) -> Self {
        Self {
            native,
            sessions: SESSIONS + apply_workers as u64,
            name: None,
            had: BTreeSet::new(),
        }
    }

    /// What an operator should know behind a login. An account that never was let in is told of elsewhere.
    pub fn see(&mut self, login: Login) -> Option<String> {
        let lost = match login {
            Login::Refused(words) => Some(Lost::Refused(words)),
            Login::Full(words) => Some(self.too_few(&format!("gets no more sessions ({words})"))),
            Login::In(account) => {
                self.name = Some(quoted_account(account.loaded.account()));
                let few = account.sessions.filter(|most| *most < self.sessions);
                let few =
                    few.map(|most| self.too_few(&format!("may have {most} sessions at one time")));
                self.lost(&account).or(few)
            }
        };
        let (name, lost) = (self.name.as_ref()?, lost?);
        let (cause, statements) = match &lost {
            // What mysqld has loaded it does not write into a table again.
            Lost::Rights(rights) => (
                BY_A_DUMP,
                std::iter::once("FLUSH PRIVILEGES".to_owned())
                    .chain(rights.iter().map(|right| right.grant(name)))
                    .collect(),
            ),
            Lost::Sessions(_) => (
                "max_user_connections holds for it as for clients, and the member opens more sessions where its mysqld becomes the \
                 primary: it would not open it for writes.",
                vec![format!("ALTER USER {name} WITH MAX_USER_CONNECTIONS 1000")],
            ),
            _ => (BY_A_DUMP, self.made_again(name)),
        };
        Some(format!(
            "the account {name}, by which the member logs in to its mysqld, {lost}. {cause} Before that, as an administrator at each \
             server whose member says so (where super_read_only is on, it has to be off meanwhile), run: SET sql_log_bin = 0; {}",
            statements.join("; ")
        ))
    }

    fn too_few(&self, what: &str) -> Lost {
        Lost::Sessions(format!("{what}, and needs up to {}", self.sessions))
    }

    fn lost(&mut self, account: &Account) -> Option<Lost> {
        let needed = NATIVE_RIGHTS.into_iter();
        let needed = needed.chain((!self.native).then_some(Privilege::Proxy));
        let needed: Vec<Privilege> = needed.collect();
        let loaded = |right: &Privilege| account.loaded.has(*right);
        self.had.extend(needed.iter().copied().filter(loaded));
        let stored = match &account.stored {
            Some(Stored::Nothing) => return Some(Lost::Gone),
            Some(Stored::OtherPassword) => return Some(Lost::OtherPassword),
            Some(Stored::Rights(rights)) => rights.as_ref(),
            None => None,
        };
        let has =
            |right: &Privilege| loaded(right) && stored.is_none_or(|stored| stored.has(*right));
        let lost: Vec<_> = self
            .had
            .iter()
            .copied()
            .filter(|right| !has(right))
            .collect();
        (!lost.is_empty()).then_some(Lost::Rights(lost))
    }

    /// Whatever is left of it goes first: mysqld makes no account of which a table still has something.
    fn made_again(&self, name: &str) -> Vec<String> {
        let rights = match self.native {
            true => native_grants(name),
            false => rows_grants(name),
        };
        let anew = [
            format!("DROP USER IF EXISTS {name}"),
            format!("CREATE USER {name} IDENTIFIED BY '…' PASSWORD EXPIRE NEVER"),
        ];
        anew.into_iter().chain(rights).collect()
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNTIL: &str =
            "mysqld goes by what it has loaded until its next start or FLUSH PRIVILEGES";
        match self {
            Self::Refused(words) => write!(f, "is not let in any more: {words}"),
            Self::Sessions(words) => f.write_str(words),
            Self::Gone => write!(f, "is in no grant table any more; {UNTIL}"),
            Self::OtherPassword => write!(
                f,
                "has another password in the grant tables than mysqld has loaded; {UNTIL}"
            ),
            Self::Rights(rights) => {
                let rights: Vec<_> = rights.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "had {} and has lost it, or is without it in the grant tables; {UNTIL}",
                    rights.join(", ")
                )
            }
        }
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
        // A wrong password in the configuration is told of by whoever looks for the server.
        assert_eq!(account.see(refused()), None);
        assert_eq!(account.see(sound()), None);
        for (login, what) in [
            (let_in(ALL, Some(Stored::Nothing)), "is in no grant table"),
            (
                let_in(ALL, Some(Stored::OtherPassword)),
                "has another password",
            ),
            (refused(), "is not let in any more: Access denied"),
        ] {
            let told = account.see(login).unwrap();
            assert!(told.contains(what) && told.contains(made_again), "{told}");
        }
        assert_eq!(account.see(sound()), None);
        // Who may not look, or has rights by a role, is not told what is not known.
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
