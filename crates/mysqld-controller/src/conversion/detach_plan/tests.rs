use crate::conversion::detach_plan::*;
use crate::conversion::server_probe::ReplicatesFrom;

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

/// No follower is managed when the primary is let go, and nobody replicates from it before.
#[test]
fn from_the_begin_to_the_end() {
    let mut scene = scene();
    let all = ["StopManaging(\"db-2\")", "Release", "Replicate(\"db-2\")"];
    assert_eq!(to_do(&scene), all);
    scene.others[0].managed = false;
    assert_eq!(to_do(&scene), all[1..]);
    // Let go, and stopped before it was opened: the same step goes on.
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

#[test]
fn every_obstacle_has_its_own_words() {
    type Change = fn(&mut DetachScene);
    let table: [(Change, &str); 6] = [
        (
            |scene| scene.leads = false,
            "db-1: the primary is not beside this member",
        ),
        (
            |scene| look(&mut scene.primary).writable = false,
            "db-1: the primary is not beside this member, or does not take writes",
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
            |scene| look(&mut scene.primary).purged = format!("{PRIMARY}:1-95"),
            "db-2: it lacks aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:91-95, which the primary has purged",
        ),
        (
            |scene| scene.stock = vec![("h:1".into(), Err("refused".into()))],
            "h:1: its mysqld cannot be examined: refused",
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
