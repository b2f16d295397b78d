//! The privileges of a member with native replica threads. With all of them, mysqld accepts the member's statements. Without any one of
//! them, mysqld refuses some statement.

use anyhow::Result;
use mysqld_server::settings::{NATIVE_RIGHTS, Privilege, native_grants};
use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{MysqlClient, Mysqld, MysqldOptions};

const ACCOUNT: &str = "'member'@'%'";
const REFUSALS: [&str; 2] = ["Access denied", "command denied"];

/// A statement of the member that needs the privilege.
fn statement(right: Privilege) -> &'static str {
    match right {
        // This statement needs the same privilege as a dump.
        Privilege::ReplicationSlave => "SHOW REPLICAS",
        Privilege::ReplicationClient => "SHOW BINARY LOG STATUS",
        Privilege::Reload => "FLUSH BINARY LOGS",
        Privilege::Process => "SELECT COUNT(*) FROM information_schema.innodb_tablespaces",
        Privilege::Event | Privilege::SetAnyDefiner => {
            "ALTER DEFINER = ticker@`%` EVENT e.tick ENABLE"
        }
        Privilege::CreateUser => "CREATE USER copied; DROP USER copied",
        Privilege::BackupAdmin => {
            "CREATE USER copied; GRANT BACKUP_ADMIN ON *.* TO copied; DROP USER copied"
        }
        Privilege::SystemVariablesAdmin => {
            "SET GLOBAL super_read_only = ON; SET GLOBAL read_only = OFF"
        }
        Privilege::PersistRoVariablesAdmin => "SET PERSIST_ONLY event_scheduler = OFF",
        Privilege::ConnectionAdmin => "SET GLOBAL offline_mode = ON; SET GLOBAL offline_mode = OFF",
        Privilege::ReplicationSlaveAdmin => {
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = 'nowhere' FOR CHANNEL 'x'; RESET REPLICA ALL FOR CHANNEL 'x'"
        }
        Privilege::BinlogAdmin => "PURGE BINARY LOGS TO 'binlog.000001'",
        // This statement fails later, because the address is not in the list of donors.
        Privilege::CloneAdmin => "CLONE INSTANCE FROM 'x'@'127.0.0.1':1 IDENTIFIED BY 'y'",
        Privilege::SelectPerformanceSchema => "SELECT COUNT(*) FROM performance_schema.threads",
        Privilege::SelectMysql => "SELECT COUNT(*) FROM mysql.user",
        Privilege::InsertMysqlPlugin => "INSTALL PLUGIN clone SONAME 'mysql_clone.so'",
        Privilege::Proxy => "GRANT PROXY ON ticker TO ticker",
    }
}

/// Whether the server refuses the statement for lack of a privilege, whatever else it reports.
fn is_refused(member: &MysqlClient, right: Privilege) -> bool {
    let done = member.sql(statement(right));
    done.is_err_and(|error| {
        let words = format!("{error:#}");
        REFUSALS.iter().any(|refusal| words.contains(refusal))
    })
}

#[test]
fn without_any_one_of_the_rights_mysqld_refuses_something() -> Result<()> {
    let tree = MysqlTree::require();
    let server = Mysqld::launch_with(&tree, MysqldOptions::with_server_id(1))?;
    let root = server.client();
    root.sql(&format!(
        "CREATE USER {ACCOUNT} IDENTIFIED BY 'm'; CREATE USER ticker; CREATE SCHEMA e; CREATE TABLE e.t (a INT); GRANT ALL ON e.* TO ticker; \
         CREATE DEFINER = ticker EVENT e.tick ON SCHEDULE EVERY 1 DAY DO INSERT INTO e.t VALUES (1); {}",
        native_grants(ACCOUNT).join("; ")
    ))?;
    let member = MysqlClient::over_tcp(&tree, server.address(), "member", "m");
    for right in NATIVE_RIGHTS {
        assert!(!is_refused(&member, right), "with all of them: {right}");
    }
    root.sql("UNINSTALL PLUGIN clone")?;
    for right in NATIVE_RIGHTS {
        root.sql(&format!("REVOKE {right} FROM {ACCOUNT}"))?;
        assert!(is_refused(&member, right), "without {right}");
        root.sql(&format!(
            "DROP USER IF EXISTS copied; {}",
            right.grant(ACCOUNT)
        ))?;
    }
    Ok(())
}
