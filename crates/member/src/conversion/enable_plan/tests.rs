use super::*;
use crate::protocol::MysqldAnswer;
use raft_types::RingId;

const PRIMARY: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
const REPLICA: &str = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";

fn gtids(of: &str, intervals: &str) -> String {
    format!("{of}:{intervals}")
}

fn server(name: &str, look: ServerLook) -> Server {
    Server {
        name: name.into(),
        seen: MysqldAnswer {
            look: Some(look),
            ..MysqldAnswer::default()
        },
        follows: false,
    }
}

fn primary() -> ServerLook {
    ServerLook {
        uuid: PRIMARY.parse().ok(),
        executed: gtids(PRIMARY, "1-100"),
        writable: true,
        ..ServerLook::default()
    }
}

fn replica() -> ServerLook {
    ServerLook {
        uuid: REPLICA.parse().ok(),
        executed: gtids(PRIMARY, "1-90"),
        replicates_from: vec![ReplicatesFrom {
            host: "h".into(),
            port: 3306,
            uuid: PRIMARY.parse().ok(),
            receives: true,
            applies: true,
            ..ReplicatesFrom::default()
        }],
        ..ServerLook::default()
    }
}

fn scene() -> Scene {
    Scene {
        primary: server("db-1", primary()),
        others: vec![server("db-2", replica())],
        ..Scene::default()
    }
}

fn look(server: &mut Server) -> &mut ServerLook {
    server.seen.look.as_mut().unwrap()
}

fn not_seen(server: &mut Server) {
    server.seen.look = None;
    server.seen.unseen = Some("refused".into());
}

/// Creates the ring, with a log that begins after these transactions.
fn create_ring(scene: &mut Scene, origin: String) {
    scene.primary.seen.ring = Some(RingId::default());
    scene.primary.seen.origin = origin;
}

fn to_do(scene: &Scene) -> Vec<String> {
    let steps = plan_enable(scene).unwrap();
    let open = steps.iter().filter(|planned| !planned.done);
    open.map(|planned| format!("{:?}", planned.step)).collect()
}

#[test]
fn from_the_begin_to_the_end() {
    let mut scene = scene();
    let all = [
        "StayUnmanaged(\"db-1\")",
        "StayUnmanaged(\"db-2\")",
        "CreateRing",
        "Lead",
        "Prepare",
        "LeaveSource(\"db-2\")",
        "TakeOver",
        "Follow(\"db-2\")",
    ];
    assert_eq!(to_do(&scene), all);
    // A later run executes only the remaining steps.
    scene.primary.seen.unmanaged = true;
    assert_eq!(to_do(&scene), all[1..]);
    scene.others[0].seen.unmanaged = true;
    assert_eq!(to_do(&scene), all[2..]);
    create_ring(&mut scene, gtids(PRIMARY, "1-80"));
    assert_eq!(to_do(&scene), all[3..]);
    scene.leads = true;
    assert_eq!(to_do(&scene), all[4..]);
    // The takeover is not complete: no server follows yet.
    let mut begun = scene.clone();
    begun.primary.seen.managed = true;
    assert_eq!(to_do(&begun), all[5..]);
    // This is the state after a run of an older version.
    scene.primary.seen.unmanaged = false;
    scene.primary.seen.managed = true;
    look(&mut scene.primary).waits_for_acks = true;
    assert_eq!(to_do(&scene), [all[5], all[7]]);
    // The server has stopped replicating, but its member has not received the order to follow.
    look(&mut scene.others[0]).replicates_from.clear();
    assert_eq!(to_do(&scene), all[7..]);
    // The number of transactions since then does not matter.
    look(&mut scene.primary).executed = gtids(PRIMARY, "1-20000");
    assert_eq!(to_do(&scene), all[7..]);
    scene.others[0].seen.managed = true;
    assert_eq!(to_do(&scene), all[7..], "it does not follow yet");
    scene.others[0].follows = true;
    assert!(to_do(&scene).is_empty());
}

/// If a member stopped during a takeover or a release, the primary may still be closed.
#[test]
fn a_closed_primary_is_taken_over_where_it_was_left_as_the_primary() {
    let mut scene = scene();
    look(&mut scene.primary).writable = false;
    assert!(words(&scene).contains("db-1: its mysqld is read only"));
    scene.primary.seen.was_primary = true;
    assert!(to_do(&scene).contains(&"TakeOver".to_owned()));
}

/// Some transactions wait for an ACK that no replica gives, as after a start with semi-sync in the option file.
#[test]
fn what_waits_at_the_primary_is_not_errant_at_a_replica() {
    let mut scene = scene();
    look(&mut scene.primary).waits_for_acks = true;
    look(&mut scene.primary).owned = format!("{PRIMARY}:101#7:103#9:102#8");
    look(&mut scene.others[0]).executed = gtids(PRIMARY, "1-103");
    assert!(to_do(&scene).contains(&"StopWaiting".to_owned()));
    look(&mut scene.others[0]).executed = gtids(PRIMARY, "1-104");
    assert!(words(&scene).contains("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:104"));
}

#[test]
fn no_follower_is_managed_before_the_primary() {
    let steps = plan_enable(&scene()).unwrap();
    let place = |wanted: &Step| steps.iter().position(|planned| planned.step == *wanted);
    let follow = Step::Follow("db-2".into());
    assert!(place(&Step::TakeOver).unwrap() < place(&follow).unwrap());
    assert!(
        place(&Step::StayUnmanaged("db-2".into())).unwrap() < place(&Step::CreateRing).unwrap()
    );
}

/// The ring may trim the primary's binlog to its own log. By then, no replica may have more transactions.
#[test]
fn no_replica_gets_what_the_ring_has_not() {
    let steps = plan_enable(&scene()).unwrap();
    let place = |wanted: &Step| steps.iter().position(|planned| planned.step == *wanted);
    let leave = Step::LeaveSource("db-2".into());
    assert!(place(&Step::CreateRing).unwrap() < place(&leave).unwrap());
    assert!(place(&leave).unwrap() < place(&Step::TakeOver).unwrap());
}

#[test]
fn semi_sync_ends_at_the_source_before_it_ends_at_the_replicas() {
    let mut scene = scene();
    look(&mut scene.primary).waits_for_acks = true;
    look(&mut scene.primary).ackers = vec![REPLICA.parse().unwrap()];
    look(&mut scene.others[0]).acknowledges = true;
    let steps = to_do(&scene);
    let semi_sync = &steps[5..8];
    assert_eq!(
        semi_sync,
        [
            "StopWaiting",
            "StopAcknowledging(\"db-2\")",
            "LeaveSource(\"db-2\")"
        ]
    );
    // After the takeover, commits wait for the ring, and no step changes that.
    scene.primary.seen.managed = true;
    assert!(!to_do(&scene).contains(&"StopWaiting".to_owned()));
}

#[test]
fn a_replica_without_a_member_may_follow_a_binlog_server() {
    let mut scene = scene();
    let stock = ServerLook {
        uuid: "cccccccc-cccc-cccc-cccc-cccccccccccc".parse().ok(),
        ..replica()
    };
    scene.stock = vec![server("h:1", stock)];
    assert!(words(&scene).contains("--binlog-server"));
    scene.binlog_server = Some(("w".into(), 3307));
    assert_eq!(to_do(&scene).last().unwrap(), "Repoint(\"h:1\")");
    let seen = look(&mut scene.stock[0]);
    seen.replicates_from[0] = ReplicatesFrom {
        host: "w".into(),
        port: 3307,
        ..ReplicatesFrom::default()
    };
    assert_eq!(to_do(&scene).last().unwrap(), "Follow(\"db-2\")");
}

fn words(scene: &Scene) -> String {
    let obstacles = plan_enable(scene).unwrap_err();
    let words: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
    words.join("\n")
}

#[test]
fn every_obstacle_has_its_own_words() {
    type Change = fn(&mut Scene);
    let table: [(Change, &str); 18] = [
        (
            |scene| {
                create_ring(scene, gtids(PRIMARY, "1-80"));
                scene.rings = vec![("db-2".into(), RingId::random())];
            },
            "db-2: it belongs to ring ",
        ),
        (
            |scene| not_seen(&mut scene.primary),
            "db-1: its mysqld cannot be examined: refused",
        ),
        (
            |scene| look(&mut scene.primary).writable = false,
            "db-1: its mysqld is read only",
        ),
        (
            |scene| look(&mut scene.primary).replicates_from = replica().replicates_from,
            "db-1: its mysqld is a replica of h:3306; run this command",
        ),
        (
            |scene| {
                look(&mut scene.primary).replicates_from = vec![ReplicatesFrom::default()];
            },
            "RESET REPLICA ALL there",
        ),
        (
            |scene| look(&mut scene.primary).leaves_out = vec!["replica_skip_errors=1032".into()],
            "db-1: its replica threads would leave transactions out (replica_skip_errors=1032) once it follows",
        ),
        (
            |scene| {
                look(&mut scene.others[0]).leaves_out =
                    vec!["replicate-wild-ignore-table=shop.%".into()];
            },
            "then rebuild this server from the primary",
        ),
        (
            |scene| {
                let mut several = replica();
                several.replicates_from.push(ReplicatesFrom::default());
                scene.stock = vec![server("h:1", several)];
            },
            "h:1: its mysqld replicates through several channels",
        ),
        (
            |scene| {
                look(&mut scene.primary).obstacles =
                    vec!["gtid_mode is OFF: why; run: SET x".into()];
            },
            "db-1: gtid_mode is OFF: why; run: SET x",
        ),
        (
            |scene| {
                look(&mut scene.primary).ackers =
                    vec!["cccccccc-cccc-cccc-cccc-cccccccccccc".parse().unwrap()]
            },
            "the semi-sync replica cccccccc-cccc-cccc-cccc-cccccccccccc acknowledges",
        ),
        (
            |scene| create_ring(scene, gtids(REPLICA, "1")),
            "the ring's log starts after transactions that this primary does not have",
        ),
        (
            |scene| not_seen(&mut scene.others[0]),
            "db-2: its mysqld cannot be examined: refused",
        ),
        (
            |scene| look(&mut scene.others[0]).replicates_from[0].applies = false,
            "db-2: its mysqld does not replicate from the primary",
        ),
        (
            |scene| look(&mut scene.others[0]).replicates_from.clear(),
            "db-2: its mysqld does not replicate from the primary",
        ),
        (
            |scene| look(&mut scene.others[0]).executed = gtids(PRIMARY, "1-101"),
            "db-2: it has transactions that the primary has not (errant): aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:101",
        ),
        (
            |scene| {
                look(&mut scene.primary).executed = gtids(PRIMARY, "1-20000");
            },
            "db-2: it is 19910 transactions behind; wait until it lacks fewer than 10000",
        ),
        (
            |scene| look(&mut scene.others[0]).uuid = PRIMARY.parse().ok(),
            "db-2: its mysqld has the server_uuid of db-1's: aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
        ),
        (
            |scene| {
                scene.stock = vec![server("h:1", replica())];
                not_seen(&mut scene.stock[0]);
            },
            "h:1: its mysqld cannot be examined: refused",
        ),
    ];
    for (change, expected) in table {
        let mut scene = scene();
        change(&mut scene);
        let words = words(&scene);
        assert!(words.contains(expected), "{expected}: {words}");
    }
}
