//! The example hook for ProxySQL, with a client that writes down what it is told to say in the place of `mysql`: what ProxySQL
//! makes of it is not tested here.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let client = folder.path().join("mysql");
        let said = folder.path().join("said");
        let text = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > {}\n", said.display());
        std::fs::write(&client, text).expect("a client");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&client, executable).expect("an executable");
        Self(folder)
    }

    fn run(&self, event: &str, host: &str) -> Output {
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/examples/proxysql-hook"
        );
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new("/bin/sh")
            .args([script, "10.0.9.1:6032", "/etc/admin.cnf", "10"])
            .env("PATH", format!("{}:{path}", self.0.path().display()))
            .env("WITNESS_EVENT", event)
            .env("WITNESS_TERM", "7")
            .env("WITNESS_PRIMARY", "db-2")
            .env("WITNESS_PRIMARY_HOST", host)
            .env("WITNESS_PREVIOUS_PRIMARY_HOST", "10.0.0.1")
            .env("WITNESS_MYSQL_PORT", "3306")
            .output()
            .expect("a shell")
    }

    fn said(&self) -> String {
        let said = std::fs::read_to_string(self.0.path().join("said"));
        let said = said.unwrap_or_default();
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn the_writers_are_the_primary_alone() {
    let scene = Scene::new();
    assert!(scene.run("primary", "10.0.1.1").status.success());
    assert_eq!(
        scene.said(),
        "--defaults-extra-file=/etc/admin.cnf --host=10.0.9.1 --port=6032 --protocol=TCP --batch \
         --execute=DELETE FROM mysql_servers WHERE hostgroup_id = 10; \
         INSERT INTO mysql_servers (hostgroup_id, hostname, port, comment) VALUES (10, '10.0.1.1', 3306, 'db-2, term 7'); \
         LOAD MYSQL SERVERS TO RUNTIME; SAVE MYSQL SERVERS TO DISK;"
    );
}

#[test]
fn a_demoted_one_takes_only_itself_out() {
    let scene = Scene::new();
    assert!(scene.run("demoted", "10.0.1.1").status.success());
    assert!(scene.said().contains(
        "UPDATE mysql_servers SET status = 'OFFLINE_HARD' WHERE hostgroup_id = 10 AND hostname = '10.0.0.1' AND port = 3306;"
    ));
}

#[test]
fn nothing_else_gets_into_a_statement() {
    let scene = Scene::new();
    let refused = scene.run("primary", "x'; DROP TABLE mysql_servers; --");
    assert_eq!(refused.status.code(), Some(1));
    assert!(scene.run("primary_changed", "10.0.1.1").status.success());
    assert_eq!(scene.said(), "");
}
