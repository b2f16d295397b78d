use mysqld_server::conversion::ReplicatesFrom;

use crate::conversion::detach_plan::*;

const PRIMARY: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";

fn server(name: &str, intervals: &str, managed: bool) -> DetachServer {
    DetachServer {
        name: name.into(),
        look: Ok(ServerLook {
            executed: format!("{PRIMARY}:{intervals}"),
            ..ServerLook::default()
        }),
        managed,
    }
}

fn scene() -> DetachScene {
    let mut primary = server("db-1", "1-100", true);
    let look = primary.look.as_mut().unwrap();
    look.uuid = PRIMARY.parse().ok();
    look.writable = true;
    look.waits_for_acks = true;
    DetachScene {
        primary,
        leads: true,
        others: vec![server("db-2", "1-90", true)],
        stock: Vec::new(),
    }
}

fn look(server: &mut DetachServer) -> &mut ServerLook {
    server.look.as_mut().unwrap()
}

fn to_do(scene: &DetachScene) -> Vec<String> {
    let steps = plan_detach(scene).unwrap();
    let open = steps.iter().filter(|planned| !planned.done);
    open.map(|planned| format!("{:?}", planned.step)).collect()
}

/// No follower is managed when the primary is released, and no server replicates from it before.
#[test]
fn from_the_begin_to_the_end() {
    let mut scene = scene();
    let all = ["StopManaging(\"db-2\")", "Release", "Replicate(\"db-2\")"];
    assert_eq!(to_do(&scene), all);
    scene.others[0].managed = false;
    assert_eq!(to_do(&scene), all[1..]);
    // Released, and interrupted before it was opened: the same step continues.
    scene.primary.managed = false;
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

/// A released follower is closed and unmanaged, like a drained primary, but lacks what the ring has acknowledged since.
#[test]
fn a_follower_that_was_released_is_not_released_as_the_primary() {
    type Change = fn(&mut DetachServer);
    let others: [(Change, Option<&str>); 4] = [
        (|_| {}, None),
        (
            |other| other.managed = true,
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
        scene.primary.managed = false;
        look(&mut scene.primary).writable = false;
        scene.others[0].managed = false;
        change(&mut scene.others[0]);
        let obstacles = plan_detach(&scene).err().unwrap_or_default();
        let words: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
        match expected {
            None => assert!(words.is_empty(), "{words:?}"),
            Some(expected) => assert!(words.join("\n").contains(expected), "{expected}: {words:?}"),
        }
    }
}

/// The primary's server followed another leader between two runs, and has purged that time; the ring still has it.
#[test]
fn a_follower_that_lacks_what_the_primary_has_purged_is_managed_again() {
    let mut scene = scene();
    scene.others[0].managed = false;
    look(&mut scene.primary).purged = format!("{PRIMARY}:1-90");
    assert_eq!(to_do(&scene), ["Release", "Replicate(\"db-2\")"]);
    look(&mut scene.primary).purged = format!("{PRIMARY}:1-95");
    let again = [
        "ManageAgain(\"db-2\")",
        "StopManaging(\"db-2\")",
        "Release",
        "Replicate(\"db-2\")",
    ];
    assert_eq!(to_do(&scene), again);
    scene.others[0].managed = true;
    assert_eq!(to_do(&scene), again[1..], "letting it go waits for it");
}

#[test]
fn every_obstacle_has_its_own_words() {
    type Change = fn(&mut DetachScene);
    let table: [(Change, &str); 8] = [
        (
            |scene| {
                scene.others[0].managed = false;
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
            |scene| scene.primary.look = Err("refused".into()),
            "db-1: its mysqld cannot be examined: refused",
        ),
        (
            |scene| scene.others[0].look = Err("refused".into()),
            "db-2: its mysqld cannot be examined: refused",
        ),
        (
            |scene| {
                scene.primary.managed = false;
                scene.others[0].managed = false;
                look(&mut scene.primary).purged = format!("{PRIMARY}:1-95");
            },
            "db-2: it lacks aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:91-95, which the primary has purged",
        ),
        (
            |scene| scene.stock = vec![("h:1".into(), Err("refused".into()))],
            "h:1: its mysqld cannot be examined: refused",
        ),
        (
            |scene| {
                let mut several = server("h:1", "1-90", false);
                look(&mut several).replicates_from = vec![ReplicatesFrom::default(); 2];
                scene.stock = vec![("h:1".into(), several.look)];
            },
            "h:1: its mysqld replicates through several channels",
        ),
    ];
    for (change, expected) in table {
        let mut scene = scene();
        change(&mut scene);
        let obstacles = plan_detach(&scene).unwrap_err();
        let words: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
        assert!(words.join("\n").contains(expected), "{expected}: {words:?}");
    }
}
