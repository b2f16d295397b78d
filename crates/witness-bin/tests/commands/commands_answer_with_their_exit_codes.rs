//! The output that scripts rely on: exit codes, JSON on standard output, and messages on standard error.

use crate::program::{Scratch, witness};

const ALONE: &str = r#"
data_dir = "d"
ring.name = "r"
member.id = 1
members = [
  { id = 1, name = "a", region = "x", kind = "database", address = "127.0.0.1:1" },
  { id = 2, name = "b", region = "x", kind = "witness", address = "127.0.0.1:2" },
  { id = 3, name = "c", region = "x", kind = "witness", address = "127.0.0.1:3" },
]
mysql.mode = "attach"
"#;

#[test]
fn usage_is_2_and_help_is_0() {
    let scratch = Scratch::new();
    let run = |args: &[&str]| witness(&scratch).args(args).run();
    for wrong in [
        &["nonsense"][..],
        &["log"],
        &["run", "--nonsense"],
        &["demo", "--pause", "x"],
        &[],
    ] {
        assert_eq!(run(wrong).code, 2, "{wrong:?}");
    }
    for right in [
        &["--help"][..],
        &["--version"],
        &["version"],
        &["log", "--help"],
        &["run", "--help"],
    ] {
        let run = run(right);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{right:?}");
    }
    // All keys are accepted as flags, but the help does not list them.
    for command in ["run", "status", "bootstrap"] {
        let (long, short) = (run(&[command, "--help"]), run(&[command, "-h"]));
        for help in [&long, &short] {
            let text = &help.stdout;
            assert!(text.lines().count() < 60, "{help}");
            assert!(
                text.contains("`witness config reference` lists them"),
                "{help}"
            );
            assert!(!text.contains("--raft-heartbeat"), "{help}");
        }
    }
    let listed = run(&["config", "reference"]);
    assert!(listed.stdout.contains("`raft.heartbeat`"), "{listed}");
    let accepted = run(&["config", "check", "--raft-heartbeat", "never"]);
    assert!(accepted.stdout.contains("--raft-heartbeat"), "{accepted}");
}

#[test]
fn without_a_configuration_only_the_searched_paths_are_named() {
    let scratch = Scratch::new();
    for line in ["status", "members list", "switchover b --yes"] {
        let run = witness(&scratch).args(line.split(' ')).run();
        assert_eq!(run.code, 2, "{line}: {run}");
        let said = "witness: no configuration file found: neither witness.toml nor /etc/witness/witness.toml exists\n";
        assert!(run.stderr.starts_with(said), "{line}: {run}");
        assert!(run.stderr.contains("--endpoints"), "{line}: {run}");
        assert_eq!(run.stderr.lines().count(), 2, "{line}: {run}");
    }
}

#[test]
fn an_unreachable_address_is_reported_once() {
    let scratch = Scratch::new();
    let run = |line: &str| witness(&scratch).args(line.split(' ')).run();
    for line in [
        "status",
        "members list",
        "quorum show",
        "switchover b --yes",
    ] {
        let gone = run(&format!("{line} --endpoints 127.0.0.1:1"));
        assert_eq!(gone.code, 3, "{line}: {gone}");
        let said = "witness: no member answers: 127.0.0.1:1: connection refused\n";
        assert!(gone.stderr.starts_with(said), "{line}: {gone}");
        assert_eq!(gone.stdout, "", "{line}: {gone}");
        let unknown = run(&format!("{line} --endpoints unknown.invalid:7400"));
        let told = unknown.stderr.matches("cannot be looked up");
        assert_eq!(told.count(), 1, "{unknown}");
        let without_a_port = run(&format!("{line} --endpoints db-1"));
        assert_eq!(without_a_port.code, 2, "{line}: {without_a_port}");
        let said = "`db-1` has no port; write \"host:port\"";
        assert!(without_a_port.stderr.contains(said), "{without_a_port}");
    }
}

#[test]
fn queries_have_a_timeout_per_member() {
    let scratch = Scratch::new();
    // A listener that accepts connections but never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    for line in ["status", "members list", "quorum show"] {
        let began = std::time::Instant::now();
        let line = format!("{line} --endpoints {address} --timeout 100ms");
        let run = witness(&scratch).args(line.split(' ')).run();
        assert_eq!(run.code, 3, "{line}: {run}");
        assert!(run.stderr.contains("no answer within 100ms"), "{run}");
        // The default timeout is two seconds.
        assert!(began.elapsed().as_secs_f64() < 1.9, "{line}");
    }
}

#[test]
fn a_ring_without_answers_has_an_unknown_quorum() {
    let scratch = Scratch::new();
    scratch.write("witness.toml", ALONE);
    let run = witness(&scratch).args(["status"]).run();
    assert_eq!(run.code, 3, "{run}");
    assert!(
        run.stdout
            .contains("Not known whether there is a quorum: no member answers.\n"),
        "{run}"
    );
    assert!(
        run.stdout.contains(
            "To fix it: start the members, or check their addresses and the TLS settings\n"
        ),
        "{run}"
    );
    assert!(
        run.stdout
            .contains("\na: no answer: connection refused. See the runbook lost-member\n"),
        "{run}"
    );
    let run = witness(&scratch).args(["status", "--output", "json"]).run();
    assert_eq!(run.code, 3, "{run}");
    let report = run.json();
    assert_eq!(report["quorum"]["ok"], false);
    assert_eq!(report["quorum_unknown"], true);
    assert_eq!(report["members"][2]["name"], "c");
    assert!(report["members"][0]["error"].is_string());
    assert_eq!(report["members"][0]["view"], serde_json::Value::Null);
}

#[test]
fn errors_are_json_with_json_output() {
    let scratch = Scratch::new();
    let run = witness(&scratch)
        .args(["log", "list", "nowhere", "--output", "json"])
        .run();
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    let error: serde_json::Value = serde_json::from_str(&run.stderr).expect("JSON");
    assert_eq!(error["exit_code"], 1);
    assert!(
        error["error"]
            .as_str()
            .is_some_and(|text| text.contains("nowhere")),
        "{run}"
    );
}
