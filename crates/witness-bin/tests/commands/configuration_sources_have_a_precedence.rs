//! Flags have precedence over environment variables, and these over the file. The example that the
//! program prints is a valid configuration.

use crate::program::{Scratch, witness};
use witness_bin::config::{Sources, example, read};

/// The configuration file of a single witness.
const FILE: &str = r#"data_dir = "from-file"
ring.name = "from-file"
member.id = 1
raft.heartbeat = "100ms"
members = [{ id = 1, name = "a", region = "r", kind = "witness", address = "127.0.0.1:7400" }]
"#;

fn sources(environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Sources {
    let owned = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };
    Sources {
        file: Some(("witness.toml".into(), FILE.into())),
        environment: owned(environment),
        flags: owned(flags),
    }
}

#[test]
fn the_higher_source_wins_key_by_key() {
    let environment = [
        ("WITNESS_RING_NAME", "from-env"),
        ("WITNESS_DATA_DIR", "from-env"),
    ];
    let flags = [("data_dir", "from-flag")];
    let (config, problems) = read(&sources(&environment, &flags));
    let config = config.unwrap_or_else(|| panic!("{problems}")).member;
    assert_eq!(config.data_dir.to_str(), Some("from-flag"));
    assert_eq!(config.ring_name, "from-env");
    assert_eq!(config.raft.heartbeat.as_millis(), 100, "from the file");
    assert_eq!(
        config.raft.lease.as_millis(),
        160,
        "60 ms more than the heartbeat"
    );
    assert_eq!(config.raft.proposals_bytes, 64 << 20, "the default");
    assert_eq!(config.listen, "127.0.0.1:7400", "the own address");
}

#[test]
fn lists_and_members_come_from_the_environment_too() {
    let members =
        r#"[{ id = 7, name = "x", region = "r", kind = "database", address = "localhost:1" }]"#;
    let environment = [
        ("WITNESS_MEMBERS", members),
        ("WITNESS_MEMBER_ID", "7"),
        ("WITNESS_MYSQL_MYSQLD", "/lib/ld.so /usr/sbin/mysqld"),
        ("WITNESS_MYSQL_EXTRA_ARGS", r#"["--port=1", "--x=a b"]"#),
        ("WITNESS_MYSQL_DATADIR", "d"),
        ("WITNESS_MYSQL_PASSWORD", "very secret"),
    ];
    let (config, problems) = read(&sources(&environment, &[]));
    let config = config.unwrap_or_else(|| panic!("{problems}")).member;
    assert_eq!(config.own.id.0, 7);
    let shown = format!("{config:?}");
    assert!(!shown.contains("very secret"), "{shown}");
    let mysql = config.mysql.expect("a database member");
    assert_eq!(mysql.mysqld, ["/lib/ld.so", "/usr/sbin/mysqld"]);
    assert_eq!(mysql.extra_args, ["--port=1", "--x=a b"]);
    assert_eq!(mysql.password.read().expect("given"), "very secret");
}

#[test]
fn a_mistake_in_a_variable_or_a_flag_names_it() {
    let environment = [
        ("WITNESS_RAFT_HEARTBEAT", "fast"),
        ("WITNESS_RING_NAM", "x"),
    ];
    let (config, problems) = read(&sources(&environment, &[("member.id", "one")]));
    assert!(config.is_none());
    let text = problems.to_string();
    assert!(
        text.contains("WITNESS_RAFT_HEARTBEAT: error: `raft.heartbeat`"),
        "{text}"
    );
    assert!(
        text.contains("--member-id: error: `member.id`: expected number, found a text"),
        "{text}"
    );
    assert!(
        text.contains("warning: no key has the variable `WITNESS_RING_NAM`"),
        "{text}"
    );
    assert!(text.contains("did you mean `WITNESS_RING_NAME`?"), "{text}");
}

#[test]
fn the_binary_reads_all_three() {
    let scratch = Scratch::new();
    scratch.write("witness.toml", FILE);
    let run = witness(&scratch)
        .env("WITNESS_RING_NAME", "from-env")
        .args(["config", "check", "--member-id", "2"])
        .run();
    assert_eq!(run.code, 2, "{run}");
    assert!(
        run.stdout
            .contains("--member-id: error: member 2 is not listed"),
        "{run}"
    );
    let run = witness(&scratch)
        .env("WITNESS_RING_NAME", "from-env")
        .args(["config", "check"])
        .run();
    assert_eq!(run.code, 0, "{run}");
    let verdict = "witness.toml is valid: member 1 `a` of ring `from-env`\n";
    assert!(run.stdout.contains(verdict), "{run}");
}

#[test]
fn no_flag_takes_a_secret() {
    let scratch = Scratch::new();
    let run = witness(&scratch)
        .args(["config", "check", "--mysql-password", "x"])
        .run();
    assert_eq!(run.code, 2, "{run}");
    assert!(run.stderr.contains("--mysql-password"), "{run}");
}

#[test]
fn the_example_validates_with_certificates() {
    let scratch = Scratch::new();
    let printed = witness(&scratch).args(["config", "init"]).run();
    assert_eq!(printed.code, 0, "{printed}");
    assert_eq!(printed.stdout, example());
    scratch.write("witness.toml", &printed.stdout);
    let without = witness(&scratch).args(["config", "check"]).run();
    assert_eq!(without.code, 2, "{without}");
    for key in ["certificate_file", "key_file", "ca_file"] {
        let words = format!("error: `tls.{key}`: /etc/witness/tls/");
        assert!(without.stdout.contains(&words), "{without}");
    }
    assert!(without.stdout.contains("has 3 mistakes"), "{without}");

    let made = witness(&scratch)
        .args(["tls", "init", "--directory", "tls"])
        .run();
    assert_eq!(made.code, 0, "{made}");
    let here = printed
        .stdout
        .replace("/etc/witness/tls/member", "tls/db-1");
    let here = here.replace("/etc/witness/tls/", "tls/");
    scratch.write("witness.toml", &here);
    let run = witness(&scratch).args(["config", "check"]).run();
    assert_eq!(run.code, 0, "{run}");
    assert!(!run.stdout.contains("warning"), "{run}");
}

#[test]
fn a_binlog_server_with_a_certificate_requires_tls_by_default() {
    const SERVER: &str =
        "binlog_server.listen = \"127.0.0.1:3307\"\nbinlog_server.password = \"x\"\n";
    let scratch = Scratch::new();
    scratch.write("witness.toml", FILE);
    let made = witness(&scratch)
        .args(["tls", "init", "--directory", "tls"])
        .run();
    assert_eq!(made.code, 0, "{made}");
    let file = |name: &str| scratch.join(&format!("tls/{name}"));
    let pair = |section: &str, prefix: &str| {
        let (certificate, key) = (file("a.crt"), file("a.key"));
        format!(
            "{section}.{prefix}certificate_file = {certificate:?}\n{section}.{prefix}key_file = {key:?}\n"
        )
    };
    let of_the_member = pair("tls", "") + &format!("tls.ca_file = {:?}\n", file("ca.crt"));
    let its_own = pair("binlog_server", "tls_");
    for (keys, demands) in [
        (String::new(), false),
        (of_the_member.clone(), true),
        (its_own, true),
        (of_the_member + "binlog_server.require_tls = false\n", false),
    ] {
        let mut sources = sources(&[], &[]);
        sources.file = Some(("witness.toml".into(), format!("{FILE}{SERVER}{keys}")));
        let (config, problems) = read(&sources);
        let config = config.unwrap_or_else(|| panic!("{problems}")).member;
        let server = config.binlog_server.expect("a binlog server");
        assert_eq!(server.require_tls, demands, "{keys}");
    }
}
