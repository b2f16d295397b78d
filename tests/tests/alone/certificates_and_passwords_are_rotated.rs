//! Certificates, their authority, and the password of the members' account at mysqld are changed under load, without a restart. No commit
//! waits longer than usual, no row is lost, and the leader does not change.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use testkit::cluster::Cluster;
use testkit::cluster::http_order;
use witness_tests::{Writers, replicaset_with};

use crate::SCENES;

const SOON: Duration = Duration::from_secs(60);
/// The certificate for commands that an operator runs on the members' hosts.
const OPERATOR: [&str; 2] = ["operator-test.crt", "operator-test.key"];
const TOKEN: &str = "reload-me-please";
/// The passwords of the members' account at mysqld, in the order of their use.
const PASSWORDS: [&str; 2] = ["secret-password-1", "secret-password-2"];
/// Longer than connections of members and mysqlds with old credentials can last.
const A_WHILE: Duration = Duration::from_secs(4);

/// The files with certificates in the members' configuration.
struct Files<'a>(&'a Path);

impl Files<'_> {
    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), text).unwrap();
    }

    /// Creates an authority, and a certificate for all members, in a separate folder.
    fn make(&self, authority: &str, days: &str) {
        let configuration = "data_dir = \"data\"\nring.name = \"test\"\nmember.id = 1\n\
             members = [{ id = 1, name = \"member\", region = \"here\", kind = \"witness\", address = \"127.0.0.1:7400\" }]\n";
        self.write("init.toml", configuration);
        let (folder, config) = (self.0.join(authority), self.0.join("init.toml"));
        let init = std::process::Command::new(
            testkit::cluster::witness_binary(testkit::cluster::Profile::Dev).unwrap(),
        )
        .args(["tls", "init", "--operator", "test", "--days", days])
        .arg("--directory")
        .arg(folder)
        .arg("--config")
        .arg(config)
        .status();
        assert!(init.unwrap().success());
    }

    fn read(&self, authority: &str, name: &str) -> String {
        fs::read_to_string(self.0.join(authority).join(name)).unwrap()
    }

    /// Switches the members and the operator to the certificates of one authority.
    fn use_certificates(&self, authority: &str) {
        for name in ["member.crt", "member.key", OPERATOR[0], OPERATOR[1]] {
            self.write(name, self.read(authority, name));
        }
    }

    /// Sets the authorities that the members and the operator trust.
    fn believe(&self, authorities: &[&str]) {
        let texts = authorities.iter().map(|one| self.read(one, "ca.crt"));
        self.write("ca.crt", texts.collect::<String>());
    }
}

/// Makes each member reload its files, in three different ways: by a signal, over HTTP, and by a command.
fn reload(set: &Cluster) {
    set.signal(0, Signal::HUP).unwrap();
    let answer = http_order(set.http(1), "/reload", TOKEN, "").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    let run = set.cli_of(2, &["reload"]).unwrap();
    assert!(run.status.success(), "{run:?}");
}

fn expiry(set: &Cluster, member: usize) -> String {
    let metrics = set.get(member, "/metrics").unwrap().body;
    let name = "witness_certificate_expiry_timestamp_seconds{";
    let mut lines = metrics.lines().filter(|line| line.starts_with(name));
    let line = lines.find(|line| line.contains("key=\"tls.certificate_file\""));
    line.unwrap().to_owned()
}

#[test]
fn certificates_and_passwords_change_without_waits_or_elections() {
    let _turn = SCENES.take();
    let scratch = tempfile::tempdir().unwrap();
    let files = Files(scratch.path());
    files.make("old", "30");
    files.make("new", "60");
    files.use_certificates("old");
    files.believe(&["old"]);
    files.write("token", TOKEN);
    let path = |name: &str| format!("{:?}", scratch.path().join(name));
    let mut set = replicaset_with(2, |options| {
        options
            .with("tls", format!("certificate_file = {}", path("member.crt")))
            .with("tls", format!("key_file = {}", path("member.key")))
            .with("tls", format!("ca_file = {}", path("ca.crt")))
            .with(
                "tls",
                format!("operator_certificate_file = {}", path(OPERATOR[0])),
            )
            .with("tls", format!("operator_key_file = {}", path(OPERATOR[1])))
            .with("logging", "level = \"trace\"")
            .with("http", "tls = false")
            .with("http", format!("token_file = {}", path("token")))
    })
    .unwrap();

    // Sets a password for the account, which had none. The members are restarted with it.
    let primary = set.primary(SOON).unwrap();
    let account = "'witness'@'localhost'";
    let make = format!(
        "CREATE USER {account} IDENTIFIED BY '{}'; GRANT ALL ON *.* TO {account} WITH GRANT OPTION",
        PASSWORDS[0]
    );
    set.client(primary).sql(&make).unwrap();
    for database in set.databases() {
        let there = "SELECT COUNT(*) FROM mysql.user WHERE user = 'witness'";
        set.eventually("the account is there", SOON, || {
            set.client(database)
                .value(there)
                .is_ok_and(|count| count == "1")
        })
        .unwrap();
    }
    files.write("password", format!("{}\n", PASSWORDS[0]));
    for database in set.databases() {
        set.stop(database).unwrap();
        let config = std::fs::read_to_string(set.config(database)).unwrap();
        let mysql = format!("[mysql]\npassword_file = {}", path("password"));
        let config = config.replacen("[mysql]", &mysql, 1);
        std::fs::write(set.config(database), config).unwrap();
        set.start_with(database, &["--mysql-user=witness"]).unwrap();
        set.primary(SOON).unwrap();
    }
    let primary = set.primary(SOON).unwrap();
    let followers = set.databases().into_iter().filter(|one| *one != primary);
    for follower in followers {
        set.follows(follower, SOON).unwrap();
    }
    let term = |set: &Cluster| set.status(primary).unwrap()["term"].clone();
    let (led_in, expired_at) = (term(&set), expiry(&set, primary));

    let writers = Writers::of(&set, 4, 0);
    let go_on = |set: &Cluster| {
        thread::sleep(A_WHILE);
        writers.wait_for_more(50, SOON).unwrap();
        assert_eq!(set.primary_now(), Some(primary), "{}", set.last_words());
        assert_eq!(term(set), led_in, "{}", set.last_words());
    };
    go_on(&set);

    // A new authority in three steps: all members trust both, then the certificates change, then the old authority is removed.
    files.believe(&["old", "new"]);
    reload(&set);
    go_on(&set);
    files.use_certificates("new");
    reload(&set);
    go_on(&set);
    assert_ne!(expiry(&set, primary), expired_at);
    files.believe(&["new"]);
    reload(&set);
    go_on(&set);
    // A newly started member trusts only the new authority. It and all other members must be able to connect to each other.
    for witness in [1, 2] {
        set.kill(witness).unwrap();
        let index = |view: &serde_json::Value| view["log_end"]["index"].as_u64();
        let end = index(&set.status(primary).unwrap());
        set.start(witness).unwrap();
        set.eventually("the witness is back", SOON, || {
            let view = set.status(witness).unwrap_or_default();
            view["leader"] == set.id(primary) && index(&view) > end
        })
        .unwrap();
    }
    go_on(&set);

    // A new password: mysqld accepts the old and the new one until the members have changed.
    let retain = format!(
        "ALTER USER {account} IDENTIFIED BY '{}' RETAIN CURRENT PASSWORD",
        PASSWORDS[1]
    );
    set.client(primary).sql(&retain).unwrap();
    files.write("password", format!("{}\n", PASSWORDS[1]));
    go_on(&set);
    reload(&set);
    let discard = format!("ALTER USER {account} DISCARD OLD PASSWORD");
    set.client(primary).sql(&discard).unwrap();
    let refused = |database: usize| {
        let logins = "SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Aborted_connects'";
        set.client(database).value(logins).unwrap()
    };
    let refused_before: Vec<String> = set.databases().into_iter().map(refused).collect();
    go_on(&set);
    let refused: Vec<String> = set.databases().into_iter().map(refused).collect();
    assert_eq!(refused, refused_before, "the old password was used");
    for database in set.databases() {
        let mysql = &set.status(database).unwrap()["mysql"];
        assert_eq!(mysql["trouble"], serde_json::Value::Null, "{mysql:#}");
        assert_eq!(mysql["following"], database != primary, "{mysql:#}");
        assert_eq!(mysql["protected"], database == primary, "{mysql:#}");
    }

    // A certificate of the removed authority: nothing is changed, and the answer contains the reason.
    files.write("member.crt", files.read("old", "member.crt"));
    let refused = set.cli_of(0, &["reload"]).unwrap();
    let code = refused.status.code();
    assert_ne!(code, Some(0), "{refused:?}");
    let answer = http_order(set.http(primary), "/reload", TOKEN, "").unwrap();
    assert_eq!(answer.status, 412, "{}", answer.body);
    assert!(
        answer.body.contains("does not belong to the certificate"),
        "{}",
        answer.body
    );
    go_on(&set);

    let written = writers.finish().unwrap();
    assert_eq!(written.errors(), [], "no commit may fail");
    println!(
        "{} commits, the longest took {:?}",
        written.commits.len(),
        written.longest()
    );
    for database in set.databases() {
        set.eventually("every commit is there", SOON, || {
            written.ensure_all_are_in(&set.client(database)).is_ok()
        })
        .unwrap();
    }

    // The guard is a separate process. With the old password it could not block readers of a primary whose member hangs.
    set.signal(primary, Signal::STOP).unwrap();
    let kept_off = set.eventually("readers are rejected", SOON, || {
        let offline = set.client(primary).variable("offline_mode");
        offline.is_ok_and(|offline| offline == "1")
    });
    set.signal(primary, Signal::CONT).unwrap();
    kept_off.unwrap();
    logs_no_secret(&set);
}

/// Checks that the members' output contains no passwords, tokens or keys.
fn logs_no_secret(set: &Cluster) {
    for member in 0..set.size() {
        let said = [
            set.output(member),
            set.get(member, "/status").unwrap().body,
            set.get(member, "/cluster").unwrap().body,
            set.get(member, "/config").unwrap().body,
            set.get(member, "/metrics").unwrap().body,
        ];
        assert!(said[0].contains("TRACE"), "everything is said");
        for secret in [PASSWORDS[0], PASSWORDS[1], TOKEN, "PRIVATE KEY"] {
            for text in &said {
                let line = text.lines().find(|line| line.contains(secret));
                assert_eq!(line, None, "`{secret}` is logged");
            }
        }
    }
}
