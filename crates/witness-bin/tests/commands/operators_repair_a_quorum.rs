//! Two of three voters are permanently lost. The quorum is repaired only if the operator accepts the possible loss
//! explicitly. Then the ring commits again.

use testkit::documentation::witness_commands;

use crate::program::ring::Ring;

#[test]
fn a_shattered_quorum_is_repaired_when_the_loss_is_accepted() {
    let members = ["a-1 here database", "a-2 here witness", "a-3 here witness"];
    let mut ring = Ring::launch(&members);
    ring.kill(1);
    ring.kill(2);
    ring.wait("the quorum is lost", || ring.run("status").code == 3);

    let shown = ring.run("quorum show");
    assert_eq!(shown.code, 3, "{shown}");
    assert!(
        shown
            .stdout
            .contains("1 of 3 voters answer and 2 are needed. Commits wait."),
        "{shown}"
    );
    let led = ring.run("switchover a-2 --yes");
    assert_eq!(led.code, 3, "{led}");
    assert!(
        led.stderr
            .contains("no member leads with a quorum: 1 of 3 voters"),
        "{led}"
    );

    // Without `--accept-loss`, the repair is refused.
    let refused = || ring.run("quorum fix --apply --yes");
    ring.wait("no leader is known", || {
        refused().stderr.contains("it cannot be proven")
    });
    let run = refused();
    assert_eq!(run.code, 4, "{run}");
    assert!(
        run.stdout.contains("Plan: `a-1` continues alone, in term "),
        "{run}"
    );
    assert!(
        run.stdout
            .contains("Lost: the quorum of `a-1`, `a-2`, `a-3`."),
        "{run}"
    );
    let (_, accept) = run
        .stderr
        .split_once("with `--accept-loss ")
        .expect("what to say");
    let end = accept.split('`').next().expect("an op id").to_owned();
    let other = ring.run("quorum fix --accept-loss 999.1");
    assert_eq!(other.code, 4, "{other}");
    assert!(
        other.stderr.contains(&format!(
            "entries after {end} may be lost, not those after 999.1"
        )),
        "{other}"
    );

    // The first command is a dry run. The repair then uses the plan that the dry run has shown.
    let dry = ring.run(&format!("quorum fix --accept-loss {end}"));
    assert_eq!(dry.code, 0, "{dry}");
    assert!(
        dry.stdout
            .contains("Nothing was done. To carry it out: witness quorum fix --apply --plan "),
        "{dry}"
    );
    let (_, command) = dry
        .stdout
        .split_once("To carry it out: witness ")
        .expect("the command");
    let stale = ring.run(&format!(
        "quorum fix --apply --yes --accept-loss {end} --plan 00000000"
    ));
    assert_eq!(stale.code, 4, "{stale}");
    assert!(
        stale.stderr.contains("now, not 00000000; nothing was done"),
        "{stale}"
    );
    assert_eq!(ring.run("status").code, 3);

    let fixed = ring.run(&format!("{} --yes", command.trim()));
    assert_eq!(fixed.code, 0, "{fixed}");
    assert!(
        fixed.stdout.contains("`a-1` leads, and commits continue."),
        "{fixed}"
    );
    assert!(
        ring.log(0)
            .contains("an operator orders the repair of the quorum with member 1")
    );
    ring.wait_for_leader(1);
    for gone in ["a-2", "a-3"] {
        let run = ring.run(&format!("members remove {gone} --yes"));
        assert_eq!(run.code, 0, "{run}");
    }
    let again = ring.run("quorum fix");
    assert_eq!(again.code, 4, "{again}");
    assert!(
        again.stderr.contains("there is nothing to repair"),
        "{again}"
    );
}

#[test]
fn members_that_come_back_after_a_repair_cut_their_logs_and_are_members_again() {
    let members = [
        "a-1 a database",
        "a-2 a database",
        "a-3 a witness",
        "b-1 b database",
        "b-2 b witness",
        "b-3 b witness",
    ];
    let mut ring = Ring::launch(&members);
    let (region_a, region_b) = (0..3, 3..6);
    ring.wait("everybody has caught up", || {
        let status = ring.status();
        let members = status["members"].as_array().expect("a list");
        members.iter().all(|member| member["lag_entries"] == 0)
    });
    // Two elections in region a commit entries that region b never receives.
    region_b.clone().for_each(|at| ring.freeze(at));
    for to in ["a-2", "a-1"] {
        let run = ring.run(&format!("switchover {to} --yes --force"));
        assert_eq!(run.code, 0, "{run}");
    }
    region_a.clone().for_each(|at| ring.kill(at));
    region_b.clone().for_each(|at| ring.thaw(at));

    let attempt = || ring.run("quorum fix --apply --yes");
    ring.wait("no leader is known", || {
        attempt().stderr.contains("it cannot be proven")
    });
    let refused = attempt();
    let (_, accept) = refused
        .stderr
        .split_once("with `--accept-loss ")
        .expect("what to say");
    let end = accept.split('`').next().expect("an op id");
    let fixed = ring.run(&format!("quorum fix --apply --yes --accept-loss {end}"));
    assert_eq!(fixed.code, 0, "{fixed}");
    ring.wait_for_leader(4);

    for at in region_a.clone() {
        ring.start(at, &[]);
    }
    ring.wait("the members of region a have what the others have", || {
        let status = ring.status();
        let members = status["members"].as_array().expect("a list");
        members.iter().all(|member| member["lag_entries"] == 0)
    });
    for at in region_a {
        let log = ring.log(at);
        assert!(log.contains("the log was cut back"), "{log}");
        let difference = ring.run(&format!("log diff {} {}", ring.name(at), ring.name(3)));
        assert_eq!(difference.code, 0, "{difference}");
    }
    assert_eq!(ring.status()["leader"], 4);
}

/// Regression test: a leader without a quorum sends heartbeats to the members that it reaches. While it answered, the plan of the runbook
/// was refused. If the operator stopped that leader, the plan lacked the longest log.
#[test]
fn the_runbook_repairs_a_quorum_while_its_last_leader_answers() {
    let members = [
        "a-1 a database",
        "a-2 a witness",
        "a-3 a witness",
        "b-1 b database",
        "b-2 b witness",
        "b-3 b witness",
    ];
    let mut ring = Ring::launch(&members);
    ring.kill(1);
    ring.kill(2);
    ring.wait("the quorum is lost", || ring.run("status").code == 3);

    let commands = witness_commands().expect("the pages can be read");
    let of_the_page = commands
        .into_iter()
        .filter(|command| command.page.ends_with("runbooks/lost-quorum.md"));
    let (mut end, mut ran) = (None, 0);
    for command in of_the_page {
        let mut line = command.words[1..].join(" ");
        let expected = match line.as_str() {
            _ if line.starts_with("members update") => continue,
            "quorum fix" => 4,
            _ if line.starts_with("quorum fix --apply") => {
                let end: &String = end.as_ref().expect("the plan names an entry");
                line = format!("quorum fix --apply --yes --accept-loss {end}");
                0
            }
            _ => 3,
        };
        let run = ring.run(&line);
        assert_eq!(run.code, expected, "{line}: {run}");
        if line == "quorum fix" {
            let says = [
                "Plan: `a-1` continues alone, in term ",
                "Missing: `a-2`, `a-3`. ",
                "Logs that answer and are not used: `b-1`, `b-2`, `b-3`; they end ",
            ];
            assert!(says.iter().all(|says| run.stdout.contains(says)), "{run}");
            let (_, accept) = run
                .stderr
                .split_once("with `--accept-loss ")
                .expect("an entry");
            end = accept.split('`').next().map(str::to_owned);
        }
        ran += 1;
    }
    assert_eq!(ran, 4, "the commands of the page have changed");
    ring.wait("the quorum answers", || ring.run("status").code <= 1);
}
