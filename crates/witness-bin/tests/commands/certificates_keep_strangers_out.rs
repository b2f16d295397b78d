//! The certificates of `witness tls init`: a ring works with them, and rejects callers with other certificates.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::cluster::{Cluster, ClusterOptions, MemberDatabase, MemberOptions};

use crate::program::{Run, Scratch, witness};

const PATIENCE: Duration = Duration::from_secs(60);

/// A ring whose members have certificates, and the operator's directory.
struct TlsRing {
    cluster: Cluster,
    scratch: Scratch,
}

/// Returns the flags for a holder's files in a directory of `witness tls init`.
fn flags(directory: &Path, name: &str) -> Vec<String> {
    let flag = |key: &str, file: String| format!("--tls-{key}={}", directory.join(file).display());
    vec![
        flag("certificate-file", format!("{name}.crt")),
        flag("key-file", format!("{name}.key")),
        flag("ca-file", "ca.crt".to_owned()),
    ]
}

impl TlsRing {
    /// Prepares a ring of three members, which are not started.
    fn prepare() -> Self {
        let scratch = Scratch::new();
        let program = Path::new(env!("CARGO_BIN_EXE_witness"));
        let database = MemberDatabase::Embedded {
            program: program.to_owned(),
        };
        let members = vec![
            MemberOptions::new("n-1", "here", database),
            MemberOptions::new("n-2", "here", MemberDatabase::Nothing),
            MemberOptions::new("n-3", "here", MemberDatabase::Nothing),
        ];
        let options = ClusterOptions {
            folder: Some(scratch.path().to_owned()),
            ..ClusterOptions::of(members)
                .with("raft", "heartbeat = \"100ms\"\nlease = \"600ms\"")
                .with("log", "disk_reserve_bytes = 0")
                .with("mysql", "port = 1")
        };
        let cluster = Cluster::prepare(program, options).expect("the ring's files");
        fs::copy(cluster.config(0), scratch.join("witness.toml")).expect("the operator's");
        Self { cluster, scratch }
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Runs `witness tls init` with these arguments.
    fn init(&self, line: &str) -> Run {
        let run = witness(&self.scratch)
            .args(["tls", "init"])
            .args(line.split_whitespace())
            .run();
        assert_eq!(run.code, 0, "{line}: {run}");
        run
    }

    /// Copies a holder's files to the directory from which n-3 reads its certificate.
    fn put(&self, directory: &str, name: &str) {
        for end in ["crt", "key"] {
            let from = self.directory(directory).join(format!("{name}.{end}"));
            let to = self.directory("own").join(format!("n-3.{end}"));
            fs::copy(from, to).expect("a copy");
        }
    }

    fn start(&mut self, at: usize, directory: &str, further: &[&str]) {
        let flags = flags(&self.directory(directory), self.cluster.name(at));
        let words: Vec<&str> = flags.iter().map(String::as_str).collect();
        let words = [words.as_slice(), further].concat();
        let started = self.cluster.start_with(at, &words);
        started.expect("the member starts");
    }

    /// Runs a command with a holder's certificate.
    fn run_as(&self, flags: &[String], line: &str) -> Run {
        witness(&self.scratch)
            .args(line.split_whitespace())
            .args(flags)
            .run()
    }

    /// Runs a command with the certificate of an operator.
    fn run(&self, line: &str) -> Run {
        self.run_as(&flags(&self.directory("tls"), "operator-ana"), line)
    }

    /// Checks that every caller may read the ring's state, but only an operator may end the pause.
    fn obeys_operators_alone(&self) {
        let tls = self.directory("tls");
        for (name, is) in [
            (
                "n-1",
                "the certificate of `n-1` is a member's: it gives no commands",
            ),
            (
                "reader-eve",
                "the certificate of `eve` is a reader's: it only reads the ring's state",
            ),
        ] {
            let flags = flags(&tls, name);
            for read in ["status --explain", "history", "quorum show"] {
                // `status` exits with 1, because no mysqld runs.
                let expected = i32::from(read.starts_with("status"));
                let read = self.run_as(&flags, read);
                assert_eq!(read.code, expected, "{name}: {read}");
            }
            let refused = self.run_as(&flags, "resume");
            assert_eq!(refused.code, 6, "{name}: {refused}");
            for words in [is, "`witness tls init --operator NAME` makes one"] {
                assert!(refused.stderr.contains(words), "{words}: {refused}");
            }
        }
        // On a member's host, commands use the operator's certificate if the configuration names it.
        let mut both = flags(&tls, "n-1");
        for (key, file) in [("certificate", "crt"), ("key", "key")] {
            let file = tls.join(format!("operator-ana.{file}"));
            both.push(format!("--tls-operator-{key}-file={}", file.display()));
        }
        let resumed = self.run_as(&both, "resume");
        assert_eq!(resumed.code, 0, "{resumed}");
        let report = self.run("status --output json").json();
        assert_eq!(report["pause"], serde_json::Value::Null, "{report:#}");
    }

    fn wait(&self, what: &str, so: impl Fn() -> bool) {
        self.cluster
            .eventually(what, PATIENCE, so)
            .expect("it comes about");
    }

    /// Returns why a member does not answer the operator; `None` if it answers.
    fn error_of(&self, name: &str) -> Option<String> {
        let report = self.run("status --output json").json();
        let members = report["members"].as_array().expect("a list");
        let member = members.iter().find(|member| member["name"] == name);
        let error = &member.expect("a member")["error"];
        error.as_str().map(str::to_owned)
    }

    /// Waits until a member answers the operator, or until it does not, as `answers` demands.
    fn wait_for_answer(&self, name: &str, answers: bool) {
        self.wait(&format!("{name} answers: {answers}"), || {
            self.error_of(name).is_none() == answers
        });
    }
}

#[test]
fn a_ring_with_certificates_rejects_other_callers() {
    let mut ring = TlsRing::prepare();
    ring.init("--directory tls --operator ana --reader eve");
    ring.start(2, "tls", &[]);
    ring.start(1, "tls", &[]);
    ring.start(0, "tls", &["--bootstrap"]);
    ring.wait("the leader", || {
        let run = ring.run("status --output json");
        run.code <= 1 && run.json()["leader"] == 1
    });

    // Callers without a certificate of this authority are rejected.
    let without = ring.run_as(&[], "status");
    assert_eq!(without.code, 3, "{without}");
    ring.init("--directory strangers --operator ana");
    let strangers = ring.directory("strangers");
    let trusted = format!(
        "--tls-ca-file={}",
        ring.directory("tls").join("ca.crt").display()
    );
    let mut half = flags(&strangers, "operator-ana");
    half.splice(2.., [trusted.clone()]);
    let stranger = ring.run_as(&half, "status");
    assert_eq!(stranger.code, 3, "{stranger}");

    // If a member gets a new certificate of the same authority, the other members need no restart.
    let before = fs::read(ring.directory("tls/n-3.crt")).expect("a certificate");
    ring.init("--directory tls --renew n-3");
    let after = fs::read(ring.directory("tls/n-3.crt")).expect("a certificate");
    assert_ne!(before, after);
    ring.cluster.kill(2).expect("a running process");
    ring.start(2, "tls", &[]);
    ring.wait_for_answer("n-3", true);
    ring.cluster.kill(1).expect("a running process");
    ring.wait_for_answer("n-2", false);
    // Without n-2, the pause commits only with n-3. The name in SUDO_USER is only logged as a claim; the certificate's name is recorded.
    let paused = witness(&ring.scratch)
        .env("SUDO_USER", "mallory")
        .args("pause --for 10m".split(' '))
        .args(flags(&ring.directory("tls"), "operator-ana"))
        .run();
    assert_eq!(paused.code, 0, "{paused}");
    let report = ring.run("status --output json").json();
    assert_eq!(report["pause"]["by"], "ana", "{report:#}");
    let history = ring.run("history --output json");
    assert!(
        !history.stdout.contains("mallory") && history.stdout.contains("\"ana\""),
        "{history}"
    );
    let log = ring.cluster.output(0);
    let ordered = |line: &&str| line.contains("an operator orders") && line.contains("claimed");
    let line = log.lines().find(ordered).unwrap_or_else(|| panic!("{log}"));
    assert!(
        line.contains("by=\"ana\"") && line.contains("claimed=\"mallory\""),
        "{line}"
    );
    ring.obeys_operators_alone();

    // Two members with certificates of another authority, and one member without TLS.
    let mut half = flags(&strangers, "n-2");
    half.splice(2.., [trusted]);
    for words in [half, flags(&strangers, "n-2"), Vec::new()] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said_before = ring.cluster.output(1).len();
        ring.cluster.start_with(1, &words).expect("it starts");
        ring.wait("n-2 listens", || {
            ring.cluster.output(1)[said_before..].contains("listen")
        });
        ring.wait("n-2 calls without success", || {
            ring.cluster.output(1)[said_before..].contains("cannot be called")
        });
        ring.wait_for_answer("n-2", false);
        ring.cluster.kill(1).expect("a running process");
    }

    // A member that uses an operator's certificate is rejected.
    let operators = flags(&ring.directory("tls"), "operator-ana");
    let words: Vec<&str> = operators.iter().map(String::as_str).collect();
    ring.cluster.start_with(1, &words).expect("it starts");
    ring.wait("n-2 is not believed to be a member", || {
        let error = ring.error_of("n-2");
        error.is_some_and(|error| error.contains("invalid peer certificate"))
    });
    ring.cluster.kill(1).expect("a running process");
    ring.start(1, "tls", &[]);
    ring.wait_for_answer("n-2", true);
}

#[test]
fn a_reload_rejects_a_certificate_that_members_would_reject() {
    let mut ring = TlsRing::prepare();
    ring.init("--directory tls --operator ana --reader eve --days 13");
    fs::create_dir(ring.directory("own")).expect("a directory");
    let authority = ring.directory("tls").join("ca.crt");
    fs::copy(authority, ring.directory("own").join("ca.crt")).expect("a copy");
    ring.put("tls", "n-3");
    ring.start(2, "own", &[]);
    ring.start(1, "tls", &[]);
    ring.start(0, "tls", &["--bootstrap"]);
    ring.wait("the leader", || {
        let run = ring.run("status --output json");
        run.code <= 1 && run.json()["leader"] == 1
    });

    ring.init("--directory strangers");
    for (from, name, words) in [
        (
            "tls",
            "reader-eve",
            "the certificate of `eve` is a reader's",
        ),
        ("strangers", "n-3", "is not signed by an authority of"),
    ] {
        ring.put(from, name);
        let refused = ring.run("reload n-3");
        assert_eq!(refused.code, 4, "{refused}");
        for words in [words, "n-3.crt` is", "nothing was changed"] {
            assert!(refused.stderr.contains(words), "`{words}`: {refused}");
        }
    }
    // The member continues with its old certificate, which expires soon. If it starts with the rejected one, it reports the mistake.
    assert_eq!(ring.error_of("n-3"), None);
    let output = ring.cluster.output(2);
    // The certificate is valid for 13 days. After its first second, 12 full days remain.
    assert!(output.contains("n-3.crt` expires in 1"), "{output}");
    ring.cluster.kill(2).expect("a running process");
    ring.start(2, "own", &[]);
    ring.wait("the start says what is wrong", || {
        ring.cluster
            .output(2)
            .contains("is not signed by an authority of")
    });
    ring.wait_for_answer("n-3", false);
    ring.put("tls", "n-3");
    ring.cluster.kill(2).expect("a running process");
    ring.start(2, "own", &[]);
    ring.wait_for_answer("n-3", true);
}

#[test]
fn config_check_reports_a_certificate_that_members_would_reject() {
    let scratch = Scratch::new();
    let own = CONFIGURATION.replace("/not/on/this/host-ca.crt", "tls/ca.crt");
    scratch.write("witness.toml", &own);
    assert_eq!(init(&scratch, "--reader eve").code, 0);
    let check = |name: &str| {
        let text = own.replace("/not/on/this/host", &format!("tls/{name}"));
        scratch.write("witness.toml", &text);
        witness(&scratch).args(["config", "check"]).run()
    };
    let good = check("db-1");
    assert_eq!(good.code, 0, "{good}");
    for (name, words) in [
        ("reader-eve", "the certificate of `eve` is a reader's"),
        (
            "w-1",
            "tls/w-1.crt` is not for `10.0.0.1`, which the others look for",
        ),
    ] {
        let bad = check(name);
        assert_eq!(bad.code, 2, "{bad}");
        assert!(bad.stdout.contains(words), "{bad}");
        assert!(bad.stdout.contains("has one mistake"), "{bad}");
    }
}

const CONFIGURATION: &str = r#"
data_dir = "data"
ring.name = "prod"
member.id = 1
tls.certificate_file = "/not/on/this/host.crt"
tls.key_file = "/not/on/this/host.key"
tls.ca_file = "/not/on/this/host-ca.crt"
members = [
  { id = 1, name = "db-1", region = "here", kind = "witness", address = "10.0.0.1:7400" },
  { id = 2, name = "w-1", region = "here", kind = "witness", address = "w1.example.org:7400" },
  { id = 3, name = "w-2", region = "here", kind = "witness", address = "[fd00::1]:7400" },
]
"#;

fn init(scratch: &Scratch, line: &str) -> Run {
    witness(scratch)
        .args(["tls", "init", "--directory", "tls"])
        .args(line.split_whitespace())
        .run()
}

fn contents(scratch: &Scratch) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(scratch.join("tls")).expect("a directory");
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, fs::read(entry.path()).expect("a file"))
    };
    entries.map(read).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

#[test]
fn a_second_run_makes_only_what_is_missing() {
    let scratch = Scratch::new();
    scratch.write("witness.toml", CONFIGURATION);
    let first = init(&scratch, "");
    assert_eq!(first.code, 0, "{first}");
    let made = contents(&scratch);
    let names: Vec<_> = made.keys().map(String::as_str).collect();
    let expected = [
        "ca.crt", "ca.key", "db-1.crt", "db-1.key", "w-1.crt", "w-1.key", "w-2.crt", "w-2.key",
    ];
    assert_eq!(names, expected);
    assert_eq!(mode(&scratch.join("tls")), 0o700);
    assert_eq!(mode(&scratch.join("tls/ca.key")), 0o600);
    assert_eq!(mode(&scratch.join("tls/db-1.key")), 0o600);
    assert_eq!(mode(&scratch.join("tls/db-1.crt")), 0o644);

    let second = init(&scratch, "--operator ana --reader grafana --output json");
    assert_eq!(second.code, 0, "{second}");
    let report = second.json();
    assert_eq!(report["authority"]["outcome"], "kept", "{second}");
    let lines = report["certificates"].as_array().expect("a list");
    let outcomes: Vec<_> = lines.iter().map(|line| &line["outcome"]).collect();
    assert_eq!(
        outcomes,
        ["kept", "kept", "kept", "made", "made"],
        "{second}"
    );
    assert_eq!(
        lines[4]["names"],
        serde_json::json!(["witness:reader/grafana"])
    );
    assert_eq!(report["warnings"], serde_json::json!([]), "{second}");
    let names = &lines[2]["names"];
    assert_eq!(
        names,
        &serde_json::json!(["w-2", "fd00::1", "witness:member/w-2"])
    );
    let now = contents(&scratch);
    assert!(made.iter().all(|(name, bytes)| now[name] == *bytes));

    let renewed = init(&scratch, "--renew w-1");
    assert_eq!(renewed.code, 0, "{renewed}");
    let other = contents(&scratch);
    assert_eq!(now.len(), other.len());
    let changed = other.iter().filter(|(name, bytes)| now[*name] != **bytes);
    let changed: Vec<_> = changed.map(|(name, _)| name.as_str()).collect();
    assert_eq!(changed, ["w-1.crt", "w-1.key"]);
}

#[test]
fn files_that_do_not_fit_together_stay_as_they_are() {
    let scratch = Scratch::new();
    scratch.write("witness.toml", CONFIGURATION);
    assert_eq!(init(&scratch, "").code, 0);
    let refused = |line: &str, code: i32, expected: &str| {
        let before = contents(&scratch);
        let run = init(&scratch, line);
        assert_eq!(run.code, code, "{run}");
        assert!(run.stderr.contains(expected), "`{expected}`: {run}");
        assert_eq!(before, contents(&scratch));
    };
    refused("--renew db-9", 2, "the ring has no member `db-9`");
    refused("--operator ../ana", 2, "use letters, digits");
    let configuration = CONFIGURATION.replace("w-2", "operator-ana");
    scratch.write("witness.toml", &configuration);
    let two = "two files would be called operator-ana.crt";
    refused("--operator ana", 4, two);
    scratch.write("witness.toml", CONFIGURATION);

    let file = |name: &str| scratch.join(&format!("tls/{name}"));
    fs::rename(file("w-1.key"), scratch.join("away")).expect("a file");
    refused("", 4, "tls/w-1.crt is there, but not tls/w-1.key");
    fs::rename(scratch.join("away"), file("w-1.key")).expect("a file");
    fs::rename(file("ca.key"), scratch.join("away")).expect("a file");
    refused("--renew all", 4, "tls/ca.crt is there, but not tls/ca.key");
    fs::remove_file(file("ca.crt")).expect("a file");
    refused(
        "",
        4,
        "tls/db-1.crt is there, but neither ca.crt nor ca.key",
    );
}

#[test]
fn a_member_that_moved_needs_another_certificate() {
    let scratch = Scratch::new();
    scratch.write("witness.toml", CONFIGURATION);
    assert_eq!(init(&scratch, "").code, 0);
    scratch.write(
        "witness.toml",
        &CONFIGURATION.replace("10.0.0.1", "10.0.0.9"),
    );
    let run = init(&scratch, "");
    assert_eq!(run.code, 0, "{run}");
    let expected = "tls/db-1.crt is not for 10.0.0.9; make it again with --renew db-1";
    assert!(run.stdout.contains(expected), "{run}");
    let run = init(&scratch, "--renew db-1");
    assert!(!run.stdout.contains("warning"), "{run}");
}

#[test]
fn tls_show_reports_problems() {
    let scratch = Scratch::new();
    scratch.write("witness.toml", CONFIGURATION);
    assert_eq!(init(&scratch, "").code, 0);
    let show = |words: &[&str]| witness(&scratch).args(["tls", "show"]).args(words).run();
    let good = show(&["tls/ca.crt", "tls/db-1.crt", "-o", "json"]);
    assert_eq!(good.code, 0, "{good}");
    let shown = good.json();
    assert_eq!(shown[0]["usage"], serde_json::json!(["authority"]));
    assert_eq!(shown[1]["subject"], "O=prod, OU=member, CN=db-1");
    assert_eq!(shown[1]["signed_by"], shown[0]["subject"]);
    assert_eq!(shown[1]["usage"], serde_json::json!(["server", "client"]));
    assert_eq!(shown[1]["days_left"], 824);

    fs::copy(scratch.join("tls/w-1.key"), scratch.join("tls/db-1.key")).expect("a copy");
    let wrong_key = show(&["tls/db-1.crt"]);
    assert_eq!(wrong_key.code, 1, "{wrong_key}");
    let expected = "`tls/db-1.key` does not belong to the certificate `tls/db-1.crt`";
    assert!(wrong_key.stdout.contains(expected), "{wrong_key}");

    let mut expired = rcgen::CertificateParams::new(vec!["db-1".to_owned()]).expect("a name");
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let key = rcgen::KeyPair::generate().expect("a key");
    let expired = expired.self_signed(&key).expect("a certificate");
    scratch.write("tls/old.crt", &expired.pem());
    let old = show(&["tls/old.crt"]);
    assert_eq!(old.code, 1, "{old}");
    assert!(old.stdout.contains("expired on 2020-01-01"), "{old}");
    assert!(old.stdout.contains("not signed by tls/ca.crt"), "{old}");

    let nothing = show(&["tls/db-1.key"]);
    assert_eq!(nothing.code, 1, "{nothing}");
    let expected = "tls/db-1.key holds no certificate in PEM";
    assert!(nothing.stderr.contains(expected), "{nothing}");
}
