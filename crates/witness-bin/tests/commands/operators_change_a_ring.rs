//! Operators' commands change a ring in two regions: the leadership moves to the other region and back, a member
//! is added and removed, and every refusal contains advice.

use crate::program::ring::Ring;

const MEMBERS: [&str; 6] = [
    "n-1 north database",
    "n-2 north witness",
    "n-3 north witness",
    "s-1 south database",
    "s-2 south witness",
    "s-3 south witness",
];

/// Returns the regions that decide commits in the leader's view, each with the number of its voters that answer.
fn deciding(ring: &Ring) -> Vec<(String, u64)> {
    let shown = ring.json("quorum show");
    let regions = shown["regions"].as_array().expect("a list").clone();
    let deciding = regions.iter().filter(|region| region["in_force"] == true);
    let seen = deciding.map(|region| {
        let healthy = region["healthy"].as_array().expect("a list").len();
        (
            region["region"].as_str().expect("a name").to_owned(),
            healthy as u64,
        )
    });
    seen.collect()
}

/// Checks refusals: the command, its exit code, and words on standard error.
fn refused(ring: &Ring, table: &[(&str, i32, &str)]) {
    for (line, code, expected) in table {
        let run = ring.run(line);
        assert_eq!(run.code, *code, "{line}: {run}");
        assert!(
            run.stderr.contains(expected),
            "{line}: `{expected}` is not in {run}"
        );
    }
}

#[test]
fn the_leadership_moves_and_members_come_and_go() {
    let mut ring = Ring::launch(&MEMBERS);
    ring.wait("everybody answers", || {
        deciding(&ring) == [("north".to_owned(), 3)]
    });
    refusals(&ring);
    dry_runs(&ring);
    from_elsewhere(&ring);
    promotion(&ring);
    amendments(&ring);
    newcomer(&mut ring);
}

/// Checks that a dry run reports the effect of a command, and changes nothing.
fn dry_runs(ring: &Ring) {
    let before = ring.json("members list");
    for (line, would) in [
        (
            // Without --force, this would be refused: no mysqld runs that could become the primary.
            "switchover s-1 --dry-run --force",
            "`s-1` would be made the primary",
        ),
        (
            "members remove n-3 --dry-run",
            "`n-3` would be out of the ring",
        ),
        ("reload s-2 --dry-run", "`s-2` would reload"),
    ] {
        let run = ring.run(line);
        assert_eq!(run.code, 0, "{line}: {run}");
        assert!(run.stdout.contains(would), "{line}: {run}");
    }
    let after = ring.json("members list");
    assert_eq!(before["leader"], after["leader"]);
    let names = |list: &serde_json::Value| {
        let members = list["members"].as_array().expect("a list").iter();
        members
            .map(|one| one["in_ring"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&before), names(&after));
}

/// Checks that a command needs the address of only one member: this member lists all others and the leader.
fn from_elsewhere(ring: &Ring) {
    let shown = ring.run_from_elsewhere("status --output json", 5);
    assert_eq!(shown.code, 1, "no mysqld runs: {shown}");
    let report = shown.json();
    assert_eq!(report["leader"], 1, "{shown}");
    assert_eq!(report["ring"], ring.status()["ring"]);
    assert_eq!(
        report["members"].as_array().map(Vec::len),
        Some(MEMBERS.len())
    );
    assert_eq!(report["warnings"], serde_json::json!([]), "{shown}");
    let paused = ring.run_from_elsewhere("pause --for 10m", 4);
    assert_eq!(paused.code, 0, "{paused}");
    let resumed = ring.run_from_elsewhere("resume", 3);
    assert_eq!(resumed.code, 0, "{resumed}");
    let whose = ring.run_from_elsewhere("reprovision --from --dry-run", 3);
    assert_eq!(whose.code, 2, "{whose}");
    assert!(whose.stderr.contains("name the member"), "{whose}");
    let unreachable = ring.run_from_elsewhere("status --endpoints 127.0.0.1:1,127.0.0.1:2", 3);
    assert_eq!(unreachable.code, 3, "{unreachable}");
    let again = ring.run("bootstrap --yes");
    assert_eq!(again.code, 0, "{again}");
    assert!(again.stdout.contains("exists"), "{again}");
}

fn refusals(ring: &Ring) {
    refused(
        ring,
        &[
            (
                "switchover s-2 --yes",
                4,
                "member 5 `s-2` is a witness, which cannot be the primary; choose a database member",
            ),
            (
                "switchover n-1 --yes",
                4,
                "member 1 `n-1` leads already\n  there is nothing to do",
            ),
            (
                "switchover s-2 --dry-run",
                4,
                "member 5 `s-2` is a witness, which cannot be the primary",
            ),
            ("switchover n-1 --dry-run", 4, "`n-1` leads already"),
            (
                "members remove n-1 --dry-run",
                4,
                "member 1 `n-1` leads; promote another member first",
            ),
            (
                "switchover s1 --yes",
                4,
                "the ring has no member `s1`\n  the members are `n-1` (1), `n-2` (2), `n-3` (3), `s-1` (4), `s-2` (5), `s-3` (6)",
            ),
            (
                "switchover s-1",
                4,
                "nothing was done: there is no terminal to ask on: Make `s-1` in region south the primary?",
            ),
            (
                "switchover s-1 --timeout 5",
                2,
                "`5` is not a duration; write a number and a unit",
            ),
            ("mock-election n-3", 4, "member 3 `n-3` is a witness"),
            (
                "members remove n-1 --yes",
                4,
                "member 1 `n-1` leads; promote another member first",
            ),
            (
                "members add --id 7 --name s-4 --region sout --kind witness --address 127.0.0.1:1",
                4,
                "no member of the ring runs in region `sout`\n  did you mean `south`? Give --new-region",
            ),
            (
                "members add --id 7 --name s-4 --region south --kind witness --address 127.0.0.1:1",
                4,
                "the new member does not report its identity: the member at 127.0.0.1:1 does not answer",
            ),
            (
                "quorum fix",
                4,
                "member 1 `n-1` leads, as member 1 `n-1` reports: it has a quorum, or does not answer",
            ),
            (
                "quorum fix --accept-loss 7",
                2,
                "`7` is not an op id; write it as TERM.INDEX",
            ),
        ],
    );
    let occupied = format!(
        "members add --id 7 --name s-4 --region south --kind witness --address {}",
        ring.address(4)
    );
    let wrong = format!("member 5 answers at {}, not member 7", ring.address(4));
    refused(ring, &[(&occupied, 4, &wrong)]);
}

fn promotion(ring: &Ring) {
    let mock = ring.json("mock-election s-1");
    assert_eq!(
        (&mock["won"], &mock["candidate"]),
        (&true.into(), &4.into()),
        "{mock}"
    );
    let promoted = ring.run("switchover 4 --yes --force");
    assert_eq!(promoted.code, 0, "{promoted}");
    assert!(
        promoted.stdout.starts_with("`s-1` leads in term "),
        "{promoted}"
    );
    for phase in [
        "check",
        "mock election",
        "quorum move",
        "catch-up",
        "drain",
        "transfer",
        "release",
    ] {
        assert!(
            promoted
                .stderr
                .lines()
                .any(|line| line.starts_with(phase) && line.ends_with('s')),
            "{phase} is not in {promoted}"
        );
    }
    ring.wait_for_leader(4);
    assert_eq!(deciding(ring), [("south".to_owned(), 3)]);
    assert!(
        ring.log(0)
            .contains("an operator orders the promotion of member 4"),
        "{}",
        ring.log(0)
    );

    let explained = ring.run("status --explain");
    for line in [
        "A commit waits for 2 of the 3 voters of region south (members 4 `s-1`, 5 `s-2`, 6 `s-3`)",
        "`s-1` can be elected: it leads",
        "`n-1` cannot be elected: it is outside the quorum",
    ] {
        assert!(
            explained.stdout.contains(line),
            "`{line}` is not in {explained}"
        );
    }
    let back = ring.json("switchover n-1 --yes --force");
    assert_eq!(back["name"], "n-1", "{back}");
    let phases = back["phases"].as_array().expect("a list");
    assert_eq!(phases.len(), 7, "{back}");
    assert!(
        phases
            .iter()
            .all(|phase| phase["seconds"].as_f64().is_some()),
        "{back}"
    );
    ring.wait_for_leader(1);
}

/// Checks changes of the members and the quorum. They are made in the ring's log; the configuration files have no effect.
fn amendments(ring: &Ring) {
    let said = |line: &str, expected: &[&str]| {
        let run = ring.run(line);
        // `status` exits with 1, because no mysqld runs.
        assert_eq!(run.code, i32::from(line == "status"), "{line}: {run}");
        for expected in expected {
            assert!(
                run.stdout.contains(expected),
                "{line}: `{expected}` is not in {run}"
            );
        }
    };
    let planned = ["priority: 100 -> 7", "Nothing was changed"];
    said("members update n-3 --priority 7 --dry-run", &planned);
    let done = ["priority: 100 -> 7", "Member 3 was changed by entry "];
    said("members update n-3 --priority 7 --yes", &done);
    assert_eq!(ring.json("members list")["members"][2]["priority"], 7);
    let warning = "`n-3` has priority = 7 in the ring and priority = 100 in this configuration";
    said("status", &[warning]);

    let planned = [
        "policy: single-region-dynamic -> majority",
        "voter sets: {1 2 3} -> {1 2 3 4 5 6}",
        "Nothing was changed",
    ];
    said("quorum set --policy majority --dry-run", &planned);
    assert_eq!(deciding(ring), [("north".to_owned(), 3)]);
    said("quorum set --policy majority --yes", &planned[..2]);
    ring.wait("both regions decide", || deciding(ring).len() == 2);
    let warning = "`n-1`: `quorum.policy` is single-region-dynamic in its file and majority in the ring; the ring's value is used";
    said("status", &[warning]);
    refused(
        ring,
        &[
            (
                "members update n-3 --priority 7 --yes",
                4,
                "nothing would change",
            ),
            ("members update n-3 --yes", 2, "there is nothing to change"),
            (
                "members update n-3 --region nort --yes",
                4,
                "runs in region `nort`",
            ),
            (
                "quorum set --policy majority --yes",
                4,
                "nothing would change",
            ),
            (
                "quorum set --policy regions --yes",
                2,
                "the policy `regions` needs regions",
            ),
            (
                "quorum set --expect north=9 --yes",
                4,
                "the ring has 6 of 9 expected voting members",
            ),
        ],
    );
    said("quorum set --policy single-region-dynamic --yes", &[]);
    ring.wait("one region decides", || {
        deciding(ring) == [("north".to_owned(), 3)]
    });
    said("members update n-3 --priority 100 --yes", &[]);
}

fn newcomer(ring: &mut Ring) {
    let at = ring.prepare("n-4 north witness");
    ring.configure();
    ring.start(at, &[]);
    let line = format!(
        "members add --id 7 --name {} --region north --kind witness --priority 3 --address {}",
        ring.name(at),
        ring.address(at)
    );
    ring.wait("the new member answers", || {
        let list = ring.json("members list");
        list["members"][6]["role"] == "joining"
    });
    let list = ring.run("members list");
    let warning = "Warning: `n-4` is in this configuration and not in the ring; add it with `witness members add`";
    assert!(list.stdout.contains(warning), "{list}");
    let tried = ring.json(&format!("{line} --dry-run"));
    let expected = serde_json::json!({ "member": 7, "name": "n-4", "dry_run": true });
    assert_eq!(tried, expected);
    let list = ring.json("members list");
    assert_eq!(list["members"][6]["role"], "joining", "{list}");
    let added = ring.json(&line);
    assert_eq!(
        (&added["name"], &added["state"]),
        (&"n-4".into(), &"votes".into()),
        "{added}"
    );
    assert_eq!(added["tolerates"], 1, "{added}");
    let even = "4 voters need 3 answers and tolerate 1 failure, no more than 3 do: ";
    assert!(
        added["warnings"][0]
            .as_str()
            .is_some_and(|warning| warning.starts_with(even)),
        "{added}"
    );
    let list = ring.json("members list");
    let row = &list["members"][6];
    assert_eq!(
        (&row["in_quorum"], &row["in_ring"], &row["votes"]),
        (&true.into(), &true.into(), &true.into()),
        "{list}"
    );
    let again =
        "the ring has a member 7 `n-4` already; give the new one a number that was never used";
    let tried = format!("{line} --dry-run");
    refused(ring, &[(&line, 4, again), (&tried, 4, again)]);
    let removed = ring.run("members remove n-4 --yes");
    assert_eq!(removed.code, 0, "{removed}");
    assert!(
        removed
            .stdout
            .starts_with("`n-4` is out of the ring since entry "),
        "{removed}"
    );
    ring.kill(at);
    let list = ring.json("members list");
    assert_eq!(list["members"][6]["in_ring"], false, "{list}");
}

#[test]
fn a_member_without_a_vote_only_receives_the_log() {
    let members = [
        "n-1 north database",
        "n-2 north witness",
        "n-3 north witness",
        "n-4 north database novote",
    ];
    let ring = Ring::launch(&members);
    ring.wait("it has the log", || {
        ring.json("members list")["members"][3]["behind_entries"] == 0
    });
    let list = ring.json("members list");
    let row = &list["members"][3];
    assert_eq!(
        (&row["votes"], &row["in_quorum"], &row["role"]),
        (&false.into(), &false.into(), &"learner".into()),
        "{list}"
    );
    let refused_because = "member 4 `n-4` is not a voter, so it cannot lead; choose a voter";
    refused(&ring, &[("switchover n-4 --yes", 4, refused_because)]);
    let explained = ring.run("status --explain");
    let because = "`n-4` cannot be elected: it only receives the log: it does not vote";
    assert!(explained.stdout.contains(because), "{explained}");
}
