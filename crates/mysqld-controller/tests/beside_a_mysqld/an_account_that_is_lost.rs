//! The member's account after another server's grant tables have replaced it, while existing sessions continue. The statements in each
//! warning restore the account.

use anyhow::{Context, Result, ensure};
use mysql_link::{ConnectOptions, Connection, Endpoint};
use mysqld_server::settings::{OwnAccount, log_in, native_grants, rows_grants};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};

const ACCOUNT: &str = "'member'@'%'";
/// The effect of loading a dump of a server without the account.
const REPLACED: &str = "DELETE FROM mysql.user WHERE user = 'member'; DELETE FROM mysql.global_grants WHERE user = 'member'; \
     DELETE FROM mysql.db WHERE user = 'member'; DELETE FROM mysql.tables_priv WHERE user = 'member'";
const OTHER_PASSWORD: &str = "UPDATE mysql.user SET authentication_string = (SELECT * FROM (SELECT authentication_string FROM mysql.user \
     WHERE user = 'other') AS other) WHERE user = 'member'";
/// A password hash of "m" in a form that mysqld generates once in some hundred attempts.
const OF_M: &str = "$A$00A$h'*PY{(IO:ZSo;iffv%e7tA34CnbndsaFps5kGWEXC6OdWFRmgqOBQxMVDAd0V7";

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_account_is_told_of_with_what_makes_it_again() -> Result<()> {
    let server = Mysqld::launch_with(&MysqlTree::require(), MysqldOptions::with_server_id(1))?;
    let client = server.client();
    client.sql("CREATE USER other IDENTIFIED BY 'another-password'")?;
    let connect = ConnectOptions::new(Endpoint::unix(server.socket()), "member", "m");
    for native in [false, true] {
        let grants = match native {
            true => native_grants(ACCOUNT),
            false => rows_grants(ACCOUNT),
        };
        client.sql(&format!(
            "DROP USER IF EXISTS {ACCOUNT}; CREATE USER {ACCOUNT} IDENTIFIED BY 'm'; {}",
            grants.join("; ")
        ))?;
        let mut account = OwnAccount::new(native, 0);
        ensure!(account.see(log_in(&connect).await?).is_none());
        for (done, told) in [
            (REPLACED.to_owned(), "is no longer in any grant table"),
            (
                format!("{REPLACED}; FLUSH PRIVILEGES"),
                "is no longer let in: Access denied",
            ),
            (
                OTHER_PASSWORD.to_owned(),
                "has another password in the grant tables",
            ),
            (
                format!("{OTHER_PASSWORD}; FLUSH PRIVILEGES"),
                "is no longer let in: Access denied",
            ),
            (
                format!("ALTER USER {ACCOUNT} ACCOUNT LOCK"),
                "is no longer let in: Access denied",
            ),
            (
                "UPDATE mysql.user SET Repl_slave_priv = 'N' WHERE user = 'member'".to_owned(),
                "had REPLICATION SLAVE ON *.* and has lost it",
            ),
            (
                "DELETE FROM mysql.global_grants WHERE user = 'member' AND priv = 'CLONE_ADMIN'"
                    .to_owned(),
                "had CLONE_ADMIN ON *.* and has lost it",
            ),
            (
                format!("REVOKE RELOAD ON *.* FROM {ACCOUNT}"),
                "had RELOAD ON *.* and has lost it",
            ),
        ] {
            client.sql(&done)?;
            let warning = account.see(log_in(&connect).await?).context(done.clone())?;
            ensure!(warning.contains(told), "{done}: {warning}");
            let (_, statements) = warning.split_once("run: ").context("statements")?;
            client.sql(&statements.replace('…', "m"))?;
            let still = account.see(log_in(&connect).await?);
            ensure!(still.is_none(), "{done}: {still:?}");
            // The warning also appears for the privileges that the next start loads.
            client.sql("FLUSH PRIVILEGES")?;
            let still = account.see(log_in(&connect).await?);
            ensure!(still.is_none(), "{done}: {still:?}");
        }
    }
    Ok(())
}

/// mysqld shows a printable hash in quotes, whatever format is requested. This hash contains a quote.
#[tokio::test(flavor = "multi_thread")]
async fn a_hash_that_can_be_printed_is_the_one_that_is_loaded() -> Result<()> {
    let server = Mysqld::launch_with(&MysqlTree::require(), MysqldOptions::with_server_id(1))?;
    let client = server.client();
    let connect = ConnectOptions::new(Endpoint::unix(server.socket()), "member", "m");
    client.sql(&format!(
        "CREATE USER {ACCOUNT} IDENTIFIED WITH caching_sha2_password AS \"{OF_M}\"; {}; \
         CREATE USER other IDENTIFIED WITH caching_sha2_password AS \"{}\"",
        native_grants(ACCOUNT).join("; "),
        OF_M.replace("V7", "V8")
    ))?;
    let mut account = OwnAccount::new(true, 0);
    let told = account.see(log_in(&connect).await?);
    ensure!(told.is_none(), "{told:?}");
    client.sql(OTHER_PASSWORD)?;
    let told = account.see(log_in(&connect).await?).context("nothing")?;
    ensure!(told.contains("has another password"), "{told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_of_few_sessions_is_told_of_with_what_gives_it_more() -> Result<()> {
    let server = Mysqld::launch_with(&MysqlTree::require(), MysqldOptions::with_server_id(1))?;
    let client = server.client();
    client.sql(&format!(
        "CREATE USER {ACCOUNT} IDENTIFIED BY 'm'; {}",
        native_grants(ACCOUNT).join("; ")
    ))?;
    let connect = ConnectOptions::new(Endpoint::unix(server.socket()), "member", "m");
    let mut account = OwnAccount::new(true, 0);
    ensure!(account.see(log_in(&connect).await?).is_none());
    let own = |most: u64| format!("ALTER USER {ACCOUNT} WITH MAX_USER_CONNECTIONS {most}");
    for (limited, told) in [
        (
            "SET GLOBAL max_user_connections = 11".to_owned(),
            "may have 11 sessions at one time, and needs up to 12",
        ),
        (
            "SET GLOBAL max_user_connections = 2".to_owned(),
            "gets no more sessions",
        ),
        (own(2), "gets no more sessions"),
        (own(11), "may have 11 sessions at one time"),
    ] {
        client.sql(&limited)?;
        // Sessions that existed before do not count.
        let kept = [
            Connection::open(&connect).await?,
            Connection::open(&connect).await?,
        ];
        let warning = account
            .see(log_in(&connect).await?)
            .context(limited.clone())?;
        ensure!(warning.contains(told), "{limited}: {warning}");
        let (_, statements) = warning.split_once("run: ").context("statements")?;
        client.sql(statements)?;
        let still = account.see(log_in(&connect).await?);
        ensure!(still.is_none(), "{limited}: {still:?}");
        client.sql(&format!("SET GLOBAL max_user_connections = 0; {}", own(0)))?;
        for connection in kept {
            connection.close().await;
        }
    }
    Ok(())
}
