//! A member that has lost files of its data directory takes no part in its ring, and advises the operator what to check.

use std::fs;

use crate::program::ring::Ring;

const MEMBERS: [&str; 3] = [
    "n-1 north database",
    "n-2 north witness",
    "n-3 north witness",
];

fn everybody_has_joined(ring: &Ring) {
    ring.wait("everybody has joined", || {
        let has_joined = |at: usize| {
            let identity = fs::read_to_string(ring.directory(at).join("identity"));
            identity.is_ok_and(|identity| identity.contains("log_begun"))
        };
        (0..3).all(has_joined)
    });
}

#[test]
fn a_member_that_lost_its_log_and_its_votes_takes_no_part() {
    let mut ring = Ring::launch(&MEMBERS);
    everybody_has_joined(&ring);
    ring.kill(1);
    for part in ["log", "meta"] {
        fs::remove_dir_all(ring.directory(1).join(part)).expect(part);
    }
    ring.start(1, &[]);
    assert_eq!(ring.exit_code(1), Some(7), "{}", ring.log(1));
    let said = ring.log(1);
    assert!(said.contains("no longer has a log"), "{said}");
    assert!(said.contains("under a new number"), "{said}");
}

#[test]
fn a_member_without_its_volume_reports_the_ring() {
    let mut ring = Ring::launch(&MEMBERS);
    everybody_has_joined(&ring);
    ring.kill(1);
    let volume = ring.directory(1).with_extension("volume");
    fs::create_dir(&volume).expect("a folder");
    for part in ["identity", "log", "meta"] {
        fs::rename(ring.directory(1).join(part), volume.join(part)).expect(part);
    }
    ring.start(1, &[]);
    ring.wait("it reports the ring", || {
        ring.log(1).contains("is its volume mounted?")
    });
    let order = format!("bootstrap --yes --config {}", ring.config(1).display());
    let run = ring.run(&order);
    assert_ne!(run.code, 0, "{run}");
    assert!(run.stderr.contains("belongs to ring"), "{run}");
    assert!(run.stderr.contains("is its volume mounted?"), "{run}");
    assert!(!run.stderr.contains("empty"), "{run}");
    let shown = ring.run("status");
    let expected = "`n-2` is in the ring, and its data directory is empty";
    assert!(shown.stdout.contains(expected), "{shown}");

    // When its volume is mounted again, the member takes part in the ring again.
    ring.kill(1);
    for part in ["identity", "log", "meta"] {
        let place = ring.directory(1).join(part);
        let _ = fs::remove_dir_all(&place);
        let _ = fs::remove_file(&place);
        fs::rename(volume.join(part), place).expect(part);
    }
    ring.start(1, &[]);
    ring.wait("it is no longer reported", || {
        let shown = ring.run("status");
        shown.stdout.contains("n-2") && !shown.stdout.contains("data directory is empty")
    });
}
