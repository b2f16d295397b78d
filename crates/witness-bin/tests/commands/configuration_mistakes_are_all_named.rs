//! `witness config check` reports all mistakes in a configuration, each with its place and advice, and returns
//! the exit code for mistakes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::program::{Scratch, witness, write_secret};

/// Contents of a secret's file that no member can use, with the message that is reported.
pub(crate) const UNUSABLE_SECRETS: [(&[u8], &str); 3] = [
    (b"", "its first line is empty"),
    (b"\n", "its first line is empty"),
    (b"\xff\xfe\n", "it is not UTF-8"),
];

const FIVE_MISTAKES: &str = r#"data_dir = "/var/lib/witness"

[ring]
name = "or ders"

[member]
id = 4

[log]
durabilty = "fsync"

[raft]
heartbeat = 500

[[members]]
id = 1
name = "db-1"
region = "north"
kind = "witness"
address = "localhost"

[[members]]
id = 2
name = "db-2"
region = "north"
kind = "database"
address = "127.0.0.2:7400"
"#;

#[test]
fn five_mistakes_are_named_with_their_lines() {
    let scratch = Scratch::new();
    scratch.write("witness.toml", FIVE_MISTAKES);
    let run = witness(&scratch).args(["config", "check"]).run();
    assert_eq!(run.code, 2, "{run}");
    let expected = "\
witness.toml:4:8: error: `ring.name`: the name `or ders` holds ' '; use letters, digits, `-`, `_` and `.` only
witness.toml:7:6: error: member 4 is not listed in [[members]]; add its entry, or write one of the ids that are listed: 1, 2
witness.toml:10:1: error: unknown key `durabilty` in [log]; did you mean `durability`?
witness.toml:13:13: error: `raft.heartbeat`: 500 has no unit; write \"500ms\" or \"500s\"
witness.toml:15:1: warning: two members vote, so the loss of either stops every commit; add a third voting member; a witness is enough
witness.toml:20:11: error: `members.address`: `localhost` has no port; write \"host:port\", as in \"10.0.0.1:7400\"
witness.toml has 5 mistakes
";
    assert_eq!(run.stdout, expected);
    assert_eq!(run.stderr, "");
}

#[test]
fn the_same_five_as_json() {
    let scratch = Scratch::new();
    scratch.write("witness.toml", FIVE_MISTAKES);
    let run = witness(&scratch)
        .args(["config", "check", "--output", "json"])
        .run();
    assert_eq!(run.code, 2, "{run}");
    let report = run.json();
    assert_eq!(report["valid"], false);
    let problems = report["problems"].as_array().expect("a list");
    let errors = problems
        .iter()
        .filter(|problem| problem["severity"] == "error");
    let lines: Vec<_> = errors
        .map(|problem| problem["place"]["line"].as_u64())
        .collect();
    assert_eq!(lines, [Some(4), Some(7), Some(10), Some(13), Some(20)]);
}

#[test]
fn a_member_does_not_start_with_mistakes_and_names_them_too() {
    let scratch = Scratch::new();
    scratch.write("witness.toml", FIVE_MISTAKES);
    let run = witness(&scratch).args(["run"]).run();
    assert_eq!(run.code, 2, "{run}");
    for line in ["witness.toml:4:8", ":7:6", ":10:1", ":13:13", ":20:11"] {
        assert!(run.stderr.contains(line), "{line} is not named in {run}");
    }
}

#[test]
fn mistakes_of_syntax_do_not_hide_the_others() {
    let scratch = Scratch::new();
    scratch.write("witness.toml", &FIVE_MISTAKES.replace("id = 4", "id ="));
    let run = witness(&scratch).args(["config", "check"]).run();
    assert_eq!(run.code, 2, "{run}");
    assert!(run.stdout.contains("witness.toml:7:5: error"), "{run}");
    assert!(run.stdout.contains("unknown key `durabilty`"), "{run}");
    assert!(run.stdout.contains("500 has no unit"), "{run}");
}

#[test]
fn rules_between_keys_are_checked() {
    let cases = [
        (
            "heartbeat = 500",
            "lease = \"700ms\"",
            "a `raft.lease` of 700 ms does not go with a `raft.heartbeat` of 500 ms",
        ),
        (
            "heartbeat = 500",
            "heartbeat = \"1ms\"",
            "write a duration from 10ms to 10s",
        ),
        (
            "id = 2\n",
            "id = 1\n",
            "`members.id` 1 is taken already, at witness.toml:16:6",
        ),
        (
            "\"db-2\"",
            "\"db-1\"",
            "`members.name` db-1 is taken already",
        ),
        ("127.0.0.2:7400", "0.0.0.0:7400", "names no host"),
        (
            "127.0.0.2:7400",
            "127.0.0.2:0",
            "cannot be reached by the other members",
        ),
        ("127.0.0.2:7400", "127.0.0.2:70000", "`70000` is not a port"),
        ("id = 4", "id = 2", "`mysql.datadir` is missing"),
        (
            "id = 4",
            "id = 2\n[mysql]\nmode = \"attach\"\ntls = \"verify_ca\"",
            "`mysql.tls_ca_file` is not given",
        ),
        (
            "id = 4",
            "id = 2\n[mysql]\nmode = \"external\"\ndatadir = \"d\"",
            "`mysql.kill_command` is empty",
        ),
        (
            "id = 4",
            "id = 2\n[mysql]\nmode = \"external\"\nkill_command = [\"x\"]",
            "`mysql.datadir` is missing",
        ),
        (
            "id = 4",
            "id = 2\n[mysql]\ndatadir = \"d\"\nmysqld = []",
            "`mysql.mysqld` is empty",
        ),
        (
            "id = 4",
            "id = 2\n[mysql]\ndatadir = \"d\"\nmysqld = [\"/usr/bin/mysqld_safe\"]",
            "runs mysqld_safe, which starts mysqld again",
        ),
        (
            "id = 4",
            "id = 1\n[tls]\nca_file = \"witness.toml\"",
            "`tls.key_file` is not",
        ),
        (
            "id = 4",
            "id = 1\n[tls]\nca_file = \"none.pem\"",
            "none.pem cannot be read",
        ),
        ("/var/lib/witness", "witness.toml", "is not a directory"),
        (
            "id = 4",
            "id = 2\n[mysql]\ndatadir = \"d\"\nsocket = \"/a/very/long/path/to/a/unix/socket/that/no/operating/\
             system/takes/because/there/are/more/than/one/hundred/and/seven/bytes\"",
            "is too long",
        ),
        (
            "id = 4",
            "id = 2\n[mysql]\ndatadir = \"d\"\npassword = \"x\"\npassword_file = \"witness.toml\"",
            "are both given",
        ),
        (
            "id = 4",
            "id = 2\n[mysql]\ndatadir = \"d\"\ntls_key_file = \"witness.toml\"",
            "`mysql.tls_certificate_file` is not",
        ),
        (
            "id = 4",
            "id = 2\n[mysql]\ndatadir = \"d\"\napply = \"native\"",
            "`mysql.apply` is \"native\", but the member has no binlog server",
        ),
        (
            "id = 4",
            "id = 1\n[binlog_server]\nlisten = \"0.0.0.0:3307\"",
            "has neither `binlog_server.password` nor `binlog_server.password_file`",
        ),
        (
            "id = 4",
            "id = 1\n[binlog_server]\nlisten = \"0.0.0.0:3307\"\npassword = \"x\"\npassword_file = \"witness.toml\"",
            "`binlog_server.password` and `binlog_server.password_file` are both given",
        ),
        (
            "id = 4",
            "id = 1\n[binlog_server]\nlisten = \"0.0.0.0:3307\"\npassword = \"x\"\nrequire_tls = true",
            "`binlog_server.require_tls` is set, but there is no certificate",
        ),
        (
            "id = 4",
            "id = 1\n[binlog_server]\nlisten = \"0.0.0.0:3307\"\npassword = \"x\"\ntls_key_file = \"witness.toml\"",
            "`binlog_server.tls_certificate_file` is not",
        ),
        (
            "id = 4",
            "id = 1\n[http]\nlisten = \"0.0.0.0:7480\"\n[binlog_server]\nlisten = \"0.0.0.0:7480\"\npassword = \"x\"",
            "where HTTP is served",
        ),
        (
            "id = 4",
            "id = 1\n[http]\nlisten = \"127.0.0.9:7480\"\n[binlog_server]\nlisten = \"0.0.0.0:7480\"\npassword = \"x\"",
            "where HTTP is served",
        ),
        (
            "id = 4",
            "id = 1\nlisten = \"0.0.0.0:0\"",
            "`member.listen` is 0.0.0.0:0, a port that the other members do not know",
        ),
        (
            "durabilty = \"fsync\"",
            "disk_limit_bytes = 1",
            "less than one file of the log has",
        ),
        (
            "durabilty = \"fsync\"",
            "keep_for = \"1ms\"",
            "with a `log.keep_for` of 1 ms files go as soon as they are closed",
        ),
        (
            "id = 4",
            "id = 1\n[tls]\nca_file = \"witness.toml\"\nplaintext = true",
            "`tls.plaintext` is set, and so is `tls.ca_file`; keep one of them",
        ),
        (
            "[member]",
            "[http]\nlisten = \"127.0.0.2:7400\"\n[member]\n",
            "taken in",
        ),
    ];
    for (from, to, expected) in cases {
        let scratch = Scratch::new();
        let text = if expected == "taken in" {
            FIVE_MISTAKES.replace("id = 4", "id = 2")
        } else {
            FIVE_MISTAKES.to_owned()
        };
        scratch.write("witness.toml", &text.replace(from, to));
        let run = witness(&scratch).args(["config", "check"]).run();
        assert_eq!(run.code, 2, "{run}");
        assert!(
            run.stdout.contains(expected),
            "`{expected}` is not in {run}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_of_its_own() {
    let scratch = Scratch::new();
    let run = witness(&scratch)
        .args(["config", "check", "--config", "nowhere.toml"])
        .run();
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.contains("nowhere.toml cannot be read"), "{run}");
}

#[test]
fn without_a_file_the_searched_paths_are_named() {
    let scratch = Scratch::new();
    let run = witness(&scratch).args(["status"]).run();
    assert_eq!(run.code, 2, "{run}");
    let looked = "neither witness.toml nor /etc/witness/witness.toml exists";
    assert!(run.stderr.contains(looked), "{run}");
    assert!(run.stderr.contains("witness config init"), "{run}");
}

const THREE_REGIONS: &str = r#"data_dir = "/var/lib/witness"
ring.name = "orders"
member.id = 3
members = [
  { id = 1, name = "db-1", region = "north", kind = "database", address = "127.0.0.1:7400" },
  { id = 2, name = "witness-1", region = "north", kind = "witness", address = "127.0.0.2:7400" },
  { id = 3, name = "witness-2", region = "north", kind = "witness", address = "127.0.0.3:7400" },
  { id = 4, name = "db-2", region = "south", kind = "database", address = "127.0.1.1:7400" },
  { id = 5, name = "witness-3", region = "south", kind = "witness", address = "127.0.1.2:7400" },
  { id = 6, name = "log-1", region = "east", kind = "witness", address = "127.0.2.1:7400", votes = false },
]
"#;

/// Combinations of `[quorum]` and the members' regions, each with the exit code of `witness config check`.
#[test]
fn quorum_and_regions_are_checked_together() {
    let cases = [
        (
            "",
            0,
            "witness.toml:8:3: warning: region `south` has two voting members, so either's loss stops every commit while that region leads; let three vote there, a witness is enough; or give its database member the priority 0",
        ),
        (
            "quorum.policy = \"majorty\"",
            2,
            "`quorum.policy`: `majorty` is not one of `single-region-dynamic`, `majority`, `regions`; did you mean `majority`?",
        ),
        (
            "quorum.policy = \"regions\"",
            2,
            "witness.toml:12:17: error: `quorum.policy` is `regions`, but `quorum.regions` names none; list the regions of which every commit needs a majority, or choose another policy",
        ),
        (
            "quorum = { policy = \"regions\", regions = [\"north\", \"sout\"] }",
            2,
            "error: `quorum.regions` names `sout`, and no member runs there; did you mean `south`?",
        ),
        (
            "quorum = { policy = \"regions\", regions = [\"north\", \"zzz\"] }",
            2,
            "error: `quorum.regions` names `zzz`, and no member runs there; the members' regions are `east`, `north`, `south`",
        ),
        (
            "quorum = { policy = \"regions\", regions = [\"north\", \"east\"] }",
            2,
            "error: `quorum.regions` names `east`, and no member there votes; let members there vote, better three, or remove the region from the list",
        ),
        (
            "quorum = { policy = \"regions\", regions = [\"north\", \"north\"] }",
            2,
            "error: `quorum.regions` names `north` twice; name every region once",
        ),
        (
            "quorum = { policy = \"regions\", regions = [\"north\", \"south\"] }",
            0,
            "witness.toml is valid",
        ),
        (
            "quorum.regions = [\"north\"]",
            0,
            "warning: `quorum.regions` is not used with the policy `single-region-dynamic`; set `quorum.policy` to \"regions\", or remove the line",
        ),
        (
            "quorum.region_preference = [\"south\", \"nort\"]",
            0,
            "warning: `quorum.region_preference` names `nort`, and no member runs there; did you mean `north`?",
        ),
    ];
    for (line, code, expected) in cases {
        let scratch = Scratch::new();
        scratch.write("witness.toml", &format!("{THREE_REGIONS}{line}\n"));
        let run = witness(&scratch).args(["config", "check"]).run();
        assert_eq!(run.code, code, "{line}: {run}");
        assert!(
            run.stdout.contains(expected),
            "`{expected}` is not in {run}"
        );
    }
    let scratch = Scratch::new();
    let modest = THREE_REGIONS.replace("\"127.0.1.1:7400\"", "\"127.0.1.1:7400\", priority = 0");
    scratch.write("witness.toml", &modest);
    let run = witness(&scratch).args(["config", "check"]).run();
    assert_eq!(
        (run.code, run.stdout.contains("warning")),
        (0, false),
        "{run}"
    );
}

#[test]
fn a_mysqld_that_applies_nothing_causes_a_warning() {
    let beside_a_mysqld = THREE_REGIONS.replace("member.id = 3", "member.id = 1");
    let alone = beside_a_mysqld.replace(
        "\"db-2\", region = \"south\", kind = \"database\"",
        "\"log-2\", region = \"south\", kind = \"witness\"",
    );
    assert_ne!(alone, beside_a_mysqld);
    let never = |key: &str, advice: &str| {
        format!(
            "with this `{key}` the ring's log is not applied to this member's mysqld: once another one was the primary it lacks what \
             was written there, and can never be the primary again; {advice}; or, where no mysqld is to follow, make this member a witness"
        )
    };
    for (line, expected) in [
        (
            "mysql.apply = \"off\"",
            never("mysql.apply", "set it to \"rows\" or \"native\""),
        ),
        (
            "mysql.manage_settings = false",
            never("mysql.manage_settings", "set it to true"),
        ),
    ] {
        for (members, warned) in [(&beside_a_mysqld, true), (&alone, false)] {
            let scratch = Scratch::new();
            scratch.write(
                "witness.toml",
                &format!("{members}mysql.mode = \"attach\"\n{line}\n"),
            );
            let run = witness(&scratch).args(["config", "check"]).run();
            assert_eq!(
                (run.code, run.stdout.contains(&expected)),
                (0, warned),
                "{run}"
            );
        }
    }
}

fn with_edges(edges: [&str; 3]) -> String {
    let mut text = "data_dir = \"d\"\n[ring]\nname = \"orders\"\n[member]\nid = 1\n[regions]\nproxy = \"edges\"\n".to_owned();
    for (id, from) in (1..).zip(edges) {
        text.push_str(&format!(
            "[[members]]\nid = {id}\nname = \"w-{id}\"\nregion = \"north\"\nkind = \"witness\"\n\
             address = \"127.0.0.{id}:7400\"\nproxy_from = \"{from}\"\n"
        ));
    }
    text
}

#[test]
fn edges_lead_from_a_member_to_a_member_and_not_in_a_circle() {
    let scratch = Scratch::new();
    let check = |text: &str| {
        scratch.write("witness.toml", text);
        witness(&scratch).args(["config", "check"]).run()
    };
    let fine = check(&with_edges(["", "w-1", "w-2"]));
    assert_eq!(fine.code, 0, "{fine}");
    for (edges, words) in [
        (
            ["", "w-l", ""],
            "`proxy_from` names `w-l`, and no member has that name; did you mean `w-",
        ),
        (["w-3", "w-1", "w-2"], "would get its entries from itself"),
    ] {
        let run = check(&with_edges(edges));
        assert_eq!(run.code, 2, "{run}");
        assert!(run.stdout.contains(words), "{words} is not in {run}");
    }
    let without = check(&with_edges(["", "", ""]));
    assert!(
        without
            .stdout
            .contains("warning: `regions.proxy` is `edges`"),
        "{without}"
    );
    let unused = with_edges(["", "w-1", ""]).replace("\"edges\"", "\"region\"");
    let unused = check(&unused);
    assert!(
        unused.stdout.contains("`proxy_from` is not used"),
        "{unused}"
    );
}

#[test]
fn an_operators_certificate_needs_its_key() {
    let scratch = Scratch::new();
    scratch.write("witness.toml", ON_LOOPBACK);
    let made = witness(&scratch)
        .args(["tls", "init", "--directory", "tls"])
        .run();
    assert_eq!(made.code, 0, "{made}");
    let check = |keys: &str| {
        let files = "certificate_file = \"tls/w-1.crt\", key_file = \"tls/w-1.key\", ca_file = \"tls/ca.crt\"";
        let text = format!("tls = {{ {files}, {keys} }}\n{ON_LOOPBACK}");
        scratch.write("witness.toml", &text);
        witness(&scratch).args(["config", "check"]).run()
    };
    let certificate = "operator_certificate_file = \"/root/operator-ana.crt\"";
    let half = check(certificate);
    assert_eq!(half.code, 2, "{half}");
    let words = "`tls.operator_certificate_file` is given, but `tls.operator_key_file` is not";
    assert!(half.stdout.contains(words), "{half}");
    let both = check(&format!(
        "{certificate}, operator_key_file = \"/root/operator-ana.key\""
    ));
    assert_eq!(both.code, 0, "{both}");
}

const ON_LOOPBACK: &str = r#"data_dir = "d"
ring.name = "orders"
member.id = 1
members = [
  { id = 1, name = "w-1", region = "north", kind = "witness", address = "localhost:7400" },
  { id = 2, name = "w-2", region = "north", kind = "witness", address = "127.0.0.2:7400" },
  { id = 3, name = "w-3", region = "north", kind = "witness", address = "[::1]:7400" },
]
"#;

#[test]
fn addresses_beyond_loopback_need_tls_or_plaintext() {
    let scratch = Scratch::new();
    let run = |command: &str, text: &str| {
        scratch.write("witness.toml", text);
        let words = command.split_whitespace().collect::<Vec<_>>();
        witness(&scratch).args(words).run()
    };
    let inside = run("config check", ON_LOOPBACK);
    assert_eq!(inside.code, 0, "{inside}");
    let somewhere = |from: &str, to: &str| ON_LOOPBACK.replace(from, to);
    let line = |text: &str| format!("{text}\n{ON_LOOPBACK}");
    let beyond = [
        (somewhere("[::1]", "10.0.0.3"), "members.address", 7),
        (somewhere("[::1]", "[fd00::3]"), "members.address", 7),
        (
            somewhere("localhost", "w-1.example.org"),
            "members.address",
            5,
        ),
        (line("member.listen = \"0.0.0.0:7400\""), "member.listen", 1),
        (line("http.listen = \"[::]:7480\""), "http.listen", 1),
        (
            line("binlog_server = { listen = \"10.0.0.1:3307\", password = \"x\" }"),
            "binlog_server.listen",
            1,
        ),
    ];
    for (text, key, at) in beyond {
        let refused = run("config check", &text);
        assert_eq!(refused.code, 2, "{text}{refused}");
        let words = [
            &format!("witness.toml:{at}:"),
            &format!("error: `{key}` "),
            "is beyond loopback, and `[tls]` has no certificate; make certificates with `witness tls init` and name them in `[tls]`, or set \
             `tls.plaintext = true` to do without TLS",
            "witness.toml has one mistake",
        ];
        for words in words {
            assert!(
                refused.stdout.contains(words),
                "{words} is not in {refused}"
            );
        }
        let started = run("run", &text);
        assert_eq!(started.code, 2, "{started}");
        assert!(started.stderr.contains("is beyond loopback"), "{started}");
        // `witness tls init` accepts a configuration whose certificates do not exist yet.
        let made = run("tls init --directory tls", &text);
        assert_eq!(made.code, 0, "{made}");

        let plain = run("config check", &format!("tls.plaintext = true\n{text}"));
        assert_eq!(plain.code, 0, "{plain}");
        let certified = "tls = { certificate_file = \"tls/w-1.crt\", key_file = \"tls/w-1.key\", ca_file = \"tls/ca.crt\" }";
        let certified = run("config check", &format!("{certified}\n{text}"));
        assert_eq!(certified.code, 0, "{certified}");
        std::fs::remove_dir_all(scratch.join("tls")).expect("a directory");
    }
}

/// This test covers a check and a start. A reload uses the same function (see `a_reload_takes_all_or_nothing`).
#[test]
fn secrets_and_certificates_that_no_member_could_use_are_named_with_key_and_path() {
    let scratch = Scratch::new();
    let outcomes = |text: &str| {
        scratch.write("witness.toml", text);
        ["config check", "run"].map(|command| {
            let run = witness(&scratch).args(command.split(' ')).run();
            (run.code, run.stdout.clone() + &run.stderr)
        })
    };
    let keys = [
        ("http.token_file", "http.listen = \"127.0.0.1:0\""),
        ("http.read_token_file", "http.listen = \"127.0.0.1:0\""),
        (
            "binlog_server.password_file",
            "binlog_server.listen = \"127.0.0.1:0\"",
        ),
    ];
    for (key, line) in keys {
        let text = format!("{line}\n{key} = \"secret\"\n{ON_LOOPBACK}");
        for (bytes, why) in UNUSABLE_SECRETS {
            write_secret(&scratch.join("secret"), bytes);
            for (code, output) in outcomes(&text) {
                assert_eq!(code, 2, "{key} {output}");
                let expected = "witness.toml:2:";
                assert!(output.contains(expected), "{key} {output}");
                assert!(output.contains(&format!("`{key}`")), "{key} {output}");
                assert!(output.contains(&format!("secret: {why}")), "{key} {output}");
            }
        }
    }
    let database = ON_LOOPBACK.replacen("witness", "database", 1);
    let database = format!("mysql.password_file = \"secret\"\nmysql.mode = \"attach\"\n{database}");
    write_secret(&scratch.join("secret"), b"\n");
    for (code, output) in outcomes(&database) {
        assert_eq!(code, 2, "{output}");
        assert!(
            output.contains("`mysql.password_file`: secret: its first line is empty"),
            "{output}"
        );
    }
    for key in ["certificate_file", "key_file", "ca_file"] {
        let files = ["certificate_file", "key_file", "ca_file"].map(|name| {
            let suffix = if name == key { "wrong" } else { "right" };
            format!("{name} = \"{name}.{suffix}\"")
        });
        let made = witness(&scratch).args(["tls", "init", "--directory", "tls"]);
        if !scratch.join("tls").exists() {
            scratch.write("witness.toml", ON_LOOPBACK);
            assert_eq!(made.run().code, 0);
        }
        for (from, to) in [
            ("w-1.crt", "certificate_file"),
            ("w-1.key", "key_file"),
            ("ca.crt", "ca_file"),
        ] {
            fs::copy(
                scratch.join("tls").join(from),
                scratch.join(&format!("{to}.right")),
            )
            .expect("a copy");
        }
        write_secret(&scratch.join(&format!("{key}.wrong")), b"no PEM\n");
        for (code, output) in outcomes(&format!("tls = {{ {} }}\n{ON_LOOPBACK}", files.join(", ")))
        {
            assert_eq!(code, 2, "{output}");
            assert!(output.contains(&format!("`tls.{key}`: ")), "{key} {output}");
            assert!(output.contains(&format!("{key}.wrong")), "{key} {output}");
        }
    }
}

#[test]
fn a_secret_is_a_regular_file_that_others_cannot_read() {
    let scratch = Scratch::new();
    let text = format!("http.listen = \"127.0.0.1:0\"\nhttp.token_file = \"token\"\n{ON_LOOPBACK}");
    scratch.write("witness.toml", &text);
    let check = || witness(&scratch).args(["config", "check"]).run();
    let made = std::process::Command::new("mkfifo")
        .arg(scratch.join("token"))
        .status();
    assert!(made.expect("mkfifo").success());
    let refused = check();
    assert_eq!(refused.code, 2, "{refused}");
    assert!(
        refused
            .stdout
            .contains("`http.token_file`: token is not a regular file"),
        "{refused}"
    );
    fs::remove_file(scratch.join("token")).expect("it is there");
    write_secret(&scratch.join("token"), b"secret\n");
    for (mode, is_wide) in [(0o600, false), (0o640, false), (0o644, true), (0o660, true)] {
        fs::set_permissions(scratch.join("token"), Permissions::from_mode(mode)).expect("its mode");
        let run = check();
        assert_eq!(run.code, 0, "{run}");
        let warned = run
            .stdout
            .contains(&format!("token has mode {mode:04o}, wider than 0640"));
        assert_eq!(warned, is_wide, "{run}");
    }
}
