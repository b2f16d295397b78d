//! The example hook for ProxySQL. A script replaces the `mysql` client of the hook. It runs the statements in a real mysqld, on
//! a table with ProxySQL's columns, and omits the statements that only ProxySQL has. ProxySQL itself is not tested here.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use testkit::mysql_tree::MysqlTree;
use testkit::mysqld::{Mysqld, MysqldOptions};

/// Runs the hook as the member at `member` does. The `mysql` client is the script in `folder`.
fn hook(folder: &Path, event: &str, member: &str, term: u64) -> Output {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/examples/proxysql-hook"
    );
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new("/bin/sh")
        .args([script, "10.0.9.1:6032", "/etc/admin.cnf", "10"])
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("WITNESS_EVENT", event)
        .env("WITNESS_TERM", term.to_string())
        .env("WITNESS_PRIMARY_HOST", member)
        .env("WITNESS_PREVIOUS_PRIMARY_HOST", member)
        .env("WITNESS_MYSQL_PORT", "3306")
        .output()
        .expect("a shell")
}

fn client(folder: &Path, script: &str) {
    let client = folder.join("mysql");
    std::fs::write(&client, format!("#!/bin/sh\n{script}\n")).expect("a client");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&client, executable).expect("an executable");
}

struct Registry {
    server: Mysqld,
    folder: tempfile::TempDir,
}

impl Registry {
    fn new() -> Self {
        let server = Mysqld::launch_with(&MysqlTree::require(), MysqldOptions::default());
        let server = server.expect("a mysqld");
        let table = "CREATE DATABASE proxysql; USE proxysql;
            CREATE TABLE mysql_servers (
                hostgroup_id INT NOT NULL, hostname VARCHAR(255) NOT NULL, port INT NOT NULL,
                status VARCHAR(20) NOT NULL DEFAULT 'ONLINE', comment VARCHAR(255) NOT NULL DEFAULT '',
                PRIMARY KEY (hostgroup_id, hostname, port));";
        server.client().sql(table).expect("a table");
        let folder = tempfile::tempdir().expect("a folder");
        let words = server.client().command_line().expect("a client");
        let words: Vec<_> = words.iter().map(quoted).collect();
        let script = format!(
            "for last; do :; done\n\
             printf '%s\\n' \"${{last#--execute=}}\" | sed '/^LOAD /d; /^SAVE /d' | {} proxysql",
            words.join(" ")
        );
        client(folder.path(), &script);
        Self { server, folder }
    }

    fn hook(&self, event: &str, member: &str, term: u64) -> Output {
        hook(self.folder.path(), event, member, term)
    }

    /// Returns the online servers of the writers' hostgroup.
    fn writers(&self) -> Vec<String> {
        let query = "SELECT hostname FROM proxysql.mysql_servers WHERE hostgroup_id = 10 AND status = 'ONLINE'";
        let rows = self.server.client().sql(query).expect("rows");
        rows.0.into_iter().flatten().collect()
    }
}

fn quoted(word: &OsString) -> String {
    format!("'{}'", word.to_string_lossy())
}

#[test]
fn an_older_term_never_replaces_a_newer_one() {
    let registry = Registry::new();
    let others = "INSERT INTO proxysql.mysql_servers (hostgroup_id, hostname, port) VALUES
        (10, 'by-hand', 3306), (20, 'a-reader', 3306)";
    registry.server.client().sql(others).expect("two servers");
    let succeeds = |event, member, term| {
        let output = registry.hook(event, member, term);
        assert!(output.status.success(), "{output:?}");
    };
    succeeds("primary", "10.0.0.1", 9);
    assert_eq!(registry.writers(), ["10.0.0.1"]);
    succeeds("primary", "10.0.1.1", 10);
    assert_eq!(registry.writers(), ["10.0.1.1"]);

    // The hook of the old primary runs late.
    let late = registry.hook("primary", "10.0.0.1", 9);
    assert_eq!(late.status.code(), Some(1), "{late:?}");
    let why = String::from_utf8_lossy(&late.stderr).into_owned();
    assert!(why.contains("a newer term is registered"), "{why}");
    assert_eq!(registry.writers(), ["10.0.1.1"]);
    succeeds("demoted", "10.0.0.1", 10);
    assert_eq!(registry.writers(), ["10.0.1.1"]);

    // After the demotion of the newest primary, an older primary cannot register.
    succeeds("demoted", "10.0.1.1", 11);
    assert_eq!(registry.writers(), [""; 0]);
    assert!(!registry.hook("primary", "10.0.0.1", 9).status.success());
    assert_eq!(registry.writers(), [""; 0]);
    // A late demotion does not remove a later registration of the same member.
    succeeds("primary", "10.0.1.1", 12);
    succeeds("demoted", "10.0.1.1", 11);
    assert_eq!(registry.writers(), ["10.0.1.1"]);
    let readers = "SELECT COUNT(*) FROM proxysql.mysql_servers WHERE hostgroup_id = 20";
    let readers = registry.server.client().value(readers);
    assert_eq!(readers.expect("a count"), "1");
}

#[test]
fn nothing_but_names_and_numbers_gets_into_a_statement() {
    let folder = tempfile::tempdir().expect("a folder");
    let ran = folder.path().join("ran");
    client(folder.path(), &format!("touch '{}'", ran.display()));
    let refused = hook(
        folder.path(),
        "primary",
        "x'; DROP TABLE mysql_servers; --",
        7,
    );
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        hook(folder.path(), "primary_changed", "10.0.1.1", 7)
            .status
            .success()
    );
    assert!(!ran.exists());
    assert!(
        hook(folder.path(), "primary", "10.0.1.1", 7)
            .status
            .success()
    );
    assert!(ran.exists());
}
