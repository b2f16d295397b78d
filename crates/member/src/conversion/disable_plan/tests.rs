use mysqld_server::conversion::ReplicatesFrom;

use super::*;
use crate::protocol::MysqldAnswer;

const PRIMARY: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";

fn server(name: &str, intervals: &str, managed: bool) -> Server {
    let look = ServerLook {
        executed: format!("{PRIMARY}:{intervals}"),
        ..ServerLook::default()
    };
    Server {
        name: name.into(),
        seen: MysqldAnswer {
            look: Some(look),
            managed,
            ..MysqldAnswer::default()
        },
        follows: false,
    }
}

fn not_seen(server: &mut Server) {
    server.seen.look = None;
    server.seen.unseen = Some("refused".into());
}

fn scene() -> Scene {
    let mut primary = server("db-1", "1-100", true);
    let look = look(&mut primary);
    look.uuid = PRIMARY.parse().ok();
    look.writable = true;
    look.waits_for_acks = true;
    Scene {
        primary,
        leads: true,
        others: vec![server("db-2", "1-90", true)],
        ..Scene::default()
    }
}

fn look(server: &mut Server) -> &mut ServerLook {
    server.seen.look.as_mut().unwrap()
}

fn to_do(scene: &Scene) -> Vec<String> {
    let steps = plan_disable(scene).unwrap();
    let open = steps.iter().filter(|planned| !planned.done);
    open.map(|planned| format!("{:?}", planned.step)).collect()
}

/// When the primary is released, no follower is managed. Before that, no server replicates from it.
#[test]
fn from_the_begin_to_the_end() {
    let mut scene = scene();
    let all = [
        "ReleaseFollower(\"db-2\")",
        "ReleasePrimary",
        "Replicate(\"db-2\")",
    ];
    assert_eq!(to_do(&scene), all);
    scene.others[0].seen.managed = false;
    assert_eq!(to_do(&scene), all[1..]);
    // The primary was released, but the run was interrupted before it was opened. The same step continues.
    scene.primary.seen.managed = false;
    look(&mut scene.primary).writable = false;
    assert_eq!(to_do(&scene), all[1..]);
    look(&mut scene.primary).writable = true;
    assert_eq!(to_do(&scene), all[1..], "it would still wait for an ACK");
    look(&mut scene.primary).waits_for_acks = false;
    assert_eq!(to_do(&scene), all[2..]);
    look(&mut scene.others[0]).replicates_from = vec![ReplicatesFrom {
        uuid: PRIMARY.parse().ok(),
        receives: true,
        applies: true,
        ..ReplicatesFrom::default()
    }];
    assert!(to_do(&scene).is_empty());
}

/// A released follower is closed and unmanaged, like a drained primary. But it lacks transactions that the ring has acknowledged since.
#[test]
fn a_follower_that_was_released_is_not_released_as_the_primary() {
    type Change = fn(&mut Server);
    let others: [(Change, Option<&str>); 4] = [
        (|_| {}, None),
        (
            |other| other.seen.managed = true,
            Some("db-2: its member manages its mysqld in the ring"),
        ),
        (
            |other| look(other).writable = true,
            Some("db-2: its mysqld takes writes"),
        ),
        (
            |other| look(other).executed = format!("{PRIMARY}:1-101"),
            Some(
                "db-2: it has aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:101, which the closed mysqld of db-1 lacks",
            ),
        ),
    ];
    for (change, expected) in others {
        let mut scene = scene();
        scene.leads = false;
        scene.primary.seen.managed = false;
        look(&mut scene.primary).writable = false;
        scene.others[0].seen.managed = false;
        change(&mut scene.others[0]);
        let obstacles = plan_disable(&scene).err().unwrap_or_default();
        let words: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
        match expected {
            None => assert!(words.is_empty(), "{words:?}"),
            Some(expected) => assert!(words.join("\n").contains(expected), "{expected}: {words:?}"),
        }
    }
}

/// Between two runs, the primary's server followed another leader, and purged the transactions of that time. The ring still has them.
#[test]
fn a_follower_that_lacks_what_the_primary_has_purged_is_managed_again() {
    let mut scene = scene();
    scene.others[0].seen.managed = false;
    look(&mut scene.primary).purged = format!("{PRIMARY}:1-90");
    assert_eq!(to_do(&scene), ["ReleasePrimary", "Replicate(\"db-2\")"]);
    look(&mut scene.primary).purged = format!("{PRIMARY}:1-95");
    let again = [
        "ManageAgain(\"db-2\")",
        "ReleaseFollower(\"db-2\")",
        "ReleasePrimary",
        "Replicate(\"db-2\")",
    ];
    assert_eq!(to_do(&scene), again);
    scene.others[0].seen.managed = true;
    assert_eq!(to_do(&scene), again[1..], "letting it go waits for it");
}

#[test]
fn every_obstacle_has_its_own_words() {
    type Change = fn(&mut Scene);
    let table: [(Change, &str); 8] = [
        (
            |scene| {
                scene.others[0].seen.managed = false;
                look(&mut scene.others[0]).writable = true;
            },
            "db-2: its mysqld takes writes, and no member manages it",
        ),
        (
            |scene| scene.leads = false,
            "db-1: the primary is not at this member",
        ),
        (
            |scene| look(&mut scene.primary).writable = false,
            "db-1: the primary is not at this member, or does not take writes",
        ),
        (
            |scene| not_seen(&mut scene.primary),
            "db-1: its mysqld cannot be examined: refused",
        ),
        (
            |scene| not_seen(&mut scene.others[0]),
            "db-2: its mysqld cannot be examined: refused",
        ),
        (
            |scene| {
                scene.primary.seen.managed = false;
                scene.others[0].seen.managed = false;
                look(&mut scene.primary).purged = format!("{PRIMARY}:1-95");
            },
            "db-2: it lacks aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:91-95, which the primary has purged",
        ),
        (
            |scene| {
                scene.stock = vec![server("h:1", "1-90", false)];
                not_seen(&mut scene.stock[0]);
            },
            "h:1: its mysqld cannot be examined: refused",
        ),
        (
            |scene| {
                let mut several = server("h:1", "1-90", false);
                look(&mut several).replicates_from = vec![ReplicatesFrom::default(); 2];
                scene.stock = vec![several];
            },
            "h:1: its mysqld replicates through several channels",
        ),
    ];
    for (change, expected) in table {
        let mut scene = scene();
        change(&mut scene);
        let obstacles = plan_disable(&scene).unwrap_err();
        let words: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
        assert!(words.join("\n").contains(expected), "{expected}: {words:?}");
    }
}
