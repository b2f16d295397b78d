//! SIGHUP, `witness reload` and `POST /reload`: a member reloads its configuration. If the configuration has a mistake, the member reports
//! it and changes nothing.

use std::fs;

use testkit::cluster::http_order;

use crate::configuration_mistakes_are_all_named::UNUSABLE_SECRETS;
use crate::program::ring::Ring;
use crate::program::write_secret;

const MEMBERS: [&str; 3] = ["n-1 here database", "n-2 here witness", "n-3 here witness"];

fn rewrite(ring: &Ring, at: usize, change: impl FnOnce(String) -> String) {
    let file = ring.config(at);
    let text = fs::read_to_string(&file).expect("a configuration");
    fs::write(&file, change(text)).expect("a configuration");
}

/// Waits until a member has logged these words after the first `said_before` bytes of its log.
fn wait_for_words(ring: &Ring, at: usize, said_before: usize, words: &str) {
    ring.wait(words, || ring.log(at)[said_before..].contains(words));
}

#[test]
fn reloaded_keys_take_effect_and_restart_keys_are_named() {
    let ring = Ring::launch(&MEMBERS);
    let token = ring.config(1).with_file_name("token");
    write_secret(&token, b"first\n");
    let order = |token: &str| http_order(ring.http(1), "/reload", token, "").expect("an answer");
    assert_eq!(order("first").status, 403);

    rewrite(&ring, 1, |text| {
        let http = format!("[http]\ntoken_file = {token:?}");
        let text = text.replace("[http]", &http);
        let text = text.replace("heartbeat = \"100ms\"", "heartbeat = \"90ms\"");
        format!("{text}\n[logging]\nlevel = \"trace\"\n")
    });
    let said_before = ring.log(1).len();
    assert!(!ring.log(1).contains("TRACE"), "{}", ring.log(1));
    ring.hang_up(1);
    wait_for_words(&ring, 1, said_before, "needs a restart: `raft.heartbeat`");
    wait_for_words(&ring, 1, said_before, "TRACE");

    let answer = order("first");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let expected =
        serde_json::json!({ "ok": true, "needs_restart": ["raft.heartbeat"], "warnings": [] });
    assert_eq!(answer.json().expect("JSON"), expected);
    write_secret(&token, b"second\n");
    assert_eq!(order("first").status, 200, "the old one until the reload");
    assert_eq!(order("first").status, 401);
    assert_eq!(order("second").status, 200);

    let run = ring.run("reload");
    assert_eq!(run.code, 0, "{run}");
    let expected = "`n-1` has reloaded its configuration\n\
                    `n-2` has reloaded its configuration\n  needs a restart: `raft.heartbeat`\n\
                    `n-3` has reloaded its configuration\n";
    assert_eq!(run.stdout, expected);
    let one = ring.json("reload n-2");
    assert_eq!(one[0]["name"], "n-2");
    assert_eq!(
        one[0]["needs_restart"],
        serde_json::json!(["raft.heartbeat"])
    );
}

#[test]
fn a_bad_configuration_changes_nothing_and_every_mistake_is_named() {
    let ring = Ring::launch(&MEMBERS);
    let token = ring.config(1).with_file_name("token");
    write_secret(&token, b"secret\n");
    rewrite(&ring, 1, |text| {
        text.replace("[http]", &format!("[http]\ntoken_file = {token:?}"))
    });
    let run = ring.run("reload n-2");
    assert_eq!(run.code, 0, "{run}");

    let good = fs::read_to_string(ring.config(1)).expect("a configuration");
    let further = "\n[logging]\nlevel = \"trace\"\n[hooks]\ntimeout = \"soon\"\nwhen = 1\n";
    rewrite(&ring, 1, |text| format!("{text}{further}"));
    let said_before = ring.log(1).len();
    ring.hang_up(1);
    wait_for_words(&ring, 1, said_before, "the configuration was not taken");
    for mistake in ["`soon` is not a duration", "unknown key `when` in [hooks]"] {
        let run = ring.run("reload n-2");
        assert_eq!(run.code, 4, "{run}");
        assert!(run.stderr.contains(mistake), "`{mistake}`: {run}");
        let answer = http_order(ring.http(1), "/reload", "secret", "").expect("an answer");
        assert_eq!(answer.status, 412, "{}", answer.body);
        let reason = answer.json().expect("JSON")["reason"].to_string();
        assert!(reason.contains(mistake), "`{mistake}`: {reason}");
    }
    // The refusal of n-2 does not prevent the reload of the other members.
    let all = ring.run("reload");
    assert_eq!(all.code, 4, "{all}");
    assert!(all.stdout.contains("`n-3` has reloaded"), "{all}");

    // If one file of a secret cannot be used, no other value takes effect either.
    let unusable = token.with_file_name("unusable");
    let bad_token = good.replace("[http]", &format!("[http]\nread_token_file = {unusable:?}"));
    fs::write(
        ring.config(1),
        format!("{bad_token}\n[logging]\nlevel = \"trace\"\n"),
    )
    .expect("a configuration");
    for (bytes, why) in UNUSABLE_SECRETS {
        write_secret(&unusable, bytes);
        let run = ring.run("reload n-2");
        assert_eq!(run.code, 4, "{run}");
        let expected = format!("`http.read_token_file`: {}: {why}", unusable.display());
        assert!(run.stderr.contains(&expected), "{run}");
    }
    assert!(!ring.log(1).contains("TRACE"), "{}", ring.log(1));
    assert_eq!(ring.status()["quorum"]["ok"], true);
}
