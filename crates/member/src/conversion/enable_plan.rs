//! The plan that makes a ring from servers with plain replication. Pure functions. The order of the steps matters:
//!
//! ```text
//!  stop managing ► create ring ► lead ► prepare ► stop waiting, stop ACKs ► leave the source ► take over the primary ► follow, one by one
//!  └ no member acts on a mysqld ────────────────────────────────────────────────────┘ └ only here clients wait
//! ```
//!
//! Replicas stop replicating from the primary before the ring takes it over. After the takeover, the primary's binlog may be trimmed to the
//! ring's log. A replica also receives transactions that wait for an ACK, so it would keep some that no other server has.
//!
//! A takeover can fail until the ring has all of the primary's transactions. If it fails, the primary is returned unchanged, and its binlog
//! is not trimmed. Only when the ring has all transactions is the primary taken over, and followers are managed.
//!
//! No follower is managed before the primary. If a managed follower's member led, it would open its server next to the plain primary.

use binlog_format::gtid::GtidSet;
use mysqld_server::conversion::{ReplicatesFrom, ServerLook};
use uuid::Uuid;

use crate::conversion::plan::{Obstacle, Plan, Planned, Scene, Server, Step};

/// Maximum number of transactions that a replica may lack. A replica that lacks more must catch up first, because it could not become the
/// primary soon.
const MOST_BEHIND: u128 = 10_000;

/// Plans the steps into a ring.
///
/// # Errors
/// All obstacles.
pub(super) fn plan_enable(scene: &Scene) -> Plan {
    let mut obstacles = of_other_rings(scene);
    obstacles.extend(of_servers(scene));
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    let mut steps = Vec::new();
    let mut plan = |step, done| steps.push(Planned { step, done });
    for Server { name, seen, .. } in scene.members() {
        let done = seen.unmanaged || seen.managed;
        plan(Step::StayUnmanaged(name.clone()), done);
    }
    plan(Step::CreateRing, scene.origin().is_some());
    plan(Step::Lead, scene.leads);
    let primary = &scene.primary;
    let begun = primary.seen.managed;
    plan(Step::Prepare, begun);
    let waits = primary.is(|look| look.waits_for_acks);
    plan(Step::StopWaiting, begun || !waits);
    for server in scene.replicas() {
        let acknowledges = server.is(|look| look.acknowledges);
        plan(Step::StopAcknowledging(server.name.clone()), !acknowledges);
    }
    for server in &scene.others {
        let replicates = server.is(|look| !look.replicates_from.is_empty());
        let left = server.seen.managed || !replicates;
        plan(Step::LeaveSource(server.name.clone()), left);
    }
    plan(Step::TakeOver, begun && !primary.seen.unmanaged);
    for server in &scene.others {
        let follows = server.seen.managed && server.follows;
        plan(Step::Follow(server.name.clone()), follows);
    }
    for server in &scene.stock {
        let there = |from: &ReplicatesFrom| {
            scene.binlog_server.as_ref() == Some(&(from.host.clone(), from.port))
        };
        let done = server.is(|look| look.replicates_from.iter().any(there));
        plan(Step::Repoint(server.name.clone()), done);
    }
    Ok(steps)
}

fn of_other_rings(scene: &Scene) -> Vec<Obstacle> {
    let Some(own) = scene.primary.seen.ring else {
        return Vec::new();
    };
    let foreign = scene.rings.iter().filter(|(_, ring)| *ring != own);
    let found = foreign.map(|(name, ring)| {
        Obstacle::new(
            name,
            format!("it belongs to ring {ring} already"),
            "start it with an empty data directory, and do not bootstrap it",
        )
    });
    found.collect()
}

fn of_servers(scene: &Scene) -> Vec<Obstacle> {
    let primary = &scene.primary;
    let look = match primary.look(START_IT) {
        Ok(look) => look,
        Err(unseen) => return vec![unseen],
    };
    let (Ok(executed), Ok(written)) = (look.executed(), look.written()) else {
        return vec![unreadable(primary)];
    };
    let mut found = of_settings(primary, look);
    if let Some(from) = look.replicates_from.first() {
        let stands = |from: &ReplicatesFrom| !from.receives && !from.applies;
        let was_one = look.writable && look.replicates_from.iter().all(stands);
        let advice = match was_one {
            true => "if it is the primary and was a replica once: RESET REPLICA ALL there",
            false => "run this command with the configuration of the member next to the primary",
        };
        let words = format!("its mysqld is a replica of {}:{}", from.host, from.port);
        found.push(primary.obstacle(words, advice));
    }
    if !primary.seen.managed && !look.leaves_out.is_empty() {
        let words = format!(
            "its replica threads would leave transactions out ({}) once it follows",
            look.leaves_out.join(", ")
        );
        found.push(primary.obstacle(words, NOTHING_LEFT_OUT));
    }
    if !look.writable && !primary.seen.managed && !primary.seen.was_primary {
        found.push(primary.obstacle(
            "its mysqld is read only, so it is not the primary",
            "run this command next to the primary, or SET GLOBAL read_only = OFF if clients are to write to this one",
        ));
    }
    let origin = scene.origin();
    let origin = origin.as_ref();
    if origin.is_some_and(|origin| !executed.contains_set(origin)) {
        found.push(primary.obstacle(
            "the ring's log starts after transactions that this primary does not have",
            "this is not the primary that the ring was created from; begin with empty data directories",
        ));
    }
    for server in scene.others.iter().filter(|server| !server.seen.managed) {
        found.extend(of_replica(server, look, &written, origin));
    }
    for server in &scene.stock {
        match server.look(START_IT) {
            Err(unseen) => found.push(unseen),
            Ok(seen) => {
                found.extend(errant(server, seen, &written));
                found.extend(server.several_channels(
                    "it would have to be said which one the binlog server is for: RESET REPLICA ALL FOR CHANNEL the others",
                ));
            }
        }
    }
    if !scene.stock.is_empty() && scene.binlog_server.is_none() {
        found.push(Obstacle::new(
            "--stock-replica",
            "there is no binlog server that it could follow",
            "give --binlog-server HOST:PORT, and [binlog_server] in that member's configuration",
        ));
    }
    if !primary.seen.managed {
        found.extend(strange_ackers(scene, look));
    }
    found.extend(of_one_uuid(scene));
    found
}

/// Finds servers with the same UUID: they assign the same GTIDs to different transactions.
fn of_one_uuid(scene: &Scene) -> Vec<Obstacle> {
    let mut seen: Vec<(&str, Uuid)> = Vec::new();
    let mut found = Vec::new();
    for server in scene.members().chain(&scene.stock) {
        let Some(uuid) = server.seen.look.as_ref().and_then(|look| look.uuid) else {
            continue;
        };
        match seen.iter().find(|(_, other)| *other == uuid) {
            Some((first, _)) => found.push(server.obstacle(
                format!("its mysqld has the server_uuid of {first}'s: {uuid}"),
                "stop it, remove auto.cnf from its data directory, start it and rebuild it from the primary; or correct [mysql] of one \
                 of the two, where they name the same mysqld",
            )),
            None => seen.push((&server.name, uuid)),
        }
    }
    found
}

/// The advice about a server that cannot be examined.
const START_IT: &str = "start it, and check [mysql] in that member's configuration";
/// The advice about filters and skipped errors.
const NOTHING_LEFT_OUT: &str = "CHANGE REPLICATION FILTER REPLICATE_… = () and SET GLOBAL replica_exec_mode = STRICT, and \
    take the options out of its option file; without replica_skip_errors it has to be started again";

fn unreadable(server: &Server) -> Obstacle {
    server.obstacle(
        "its gtid_executed cannot be read",
        "see SELECT @@GLOBAL.gtid_executed",
    )
}

fn of_settings(server: &Server, look: &ServerLook) -> Vec<Obstacle> {
    let found = look.obstacles.iter().map(|found| {
        let parts = found.rsplit_once("; ");
        let (found, advice) = parts.unwrap_or((found, "see docs/external-mysqld.md"));
        server.obstacle(found, advice)
    });
    found.collect()
}

fn of_replica(
    server: &Server,
    primary: &ServerLook,
    written: &GtidSet,
    origin: Option<&GtidSet>,
) -> Vec<Obstacle> {
    let look = match server.look(START_IT) {
        Ok(look) => look,
        Err(unseen) => return vec![unseen],
    };
    let Ok(own) = look.executed() else {
        return vec![unreadable(server)];
    };
    let mut found = of_settings(server, look);
    found.extend(errant(server, look, written));
    // This server has stopped replicating already. The next step gives the order to its member.
    let between = look.replicates_from.is_empty()
        && server.seen.unmanaged
        && origin.is_some_and(|origin| own.contains_set(origin));
    if !between && !look.follows(primary.uuid) {
        let mut words = "its mysqld does not replicate from the primary".to_owned();
        let error = look.replication_errors();
        if !error.is_empty() {
            words = format!("{words}: {error}");
        }
        found.push(server.obstacle(
            words,
            "make it a running replica of the primary by auto-position (from a backup or a clone of it)",
        ));
    }
    found.extend(server.several_channels(
        "a follower has one source, the ring: RESET REPLICA ALL FOR CHANNEL the others",
    ));
    // By its GTIDs, the server would look complete, and it could become the primary.
    if !look.leaves_out.is_empty() {
        found.push(server.obstacle(
            format!(
                "its replica threads leave transactions out ({}), whose rows it lacks then",
                look.leaves_out.join(", ")
            ),
            format!("{NOTHING_LEFT_OUT}; then rebuild this server from the primary"),
        ));
    }
    let lacks = written.difference(&own).count();
    // A server that has stopped replicating gets its missing transactions from the ring's log.
    if lacks > MOST_BEHIND && !between {
        found.push(server.obstacle(
            format!("it is {lacks} transactions behind"),
            format!("wait until it lacks fewer than {MOST_BEHIND}"),
        ));
    }
    found
}

/// Returns an obstacle if a replica has transactions that the primary lacks, even among its uncommitted ones. A replica may have executed
/// transactions that wait for an ACK at the primary. They are allowed, because they are committed before any replica joins the ring.
fn errant(server: &Server, look: &ServerLook, written: &GtidSet) -> Option<Obstacle> {
    let Ok(own) = look.executed() else {
        return Some(unreadable(server));
    };
    let errant = own.difference(written);
    (!errant.is_empty()).then(|| {
        server.obstacle(
            format!("it has transactions that the primary has not (errant): {errant}"),
            "inspect them with mysqlbinlog; then rebuild this server from the primary, or apply them at the primary",
        )
    })
}

/// Finds unknown semi-sync replicas of the primary. After the takeover, their acknowledgements would let commits succeed that the ring
/// lacks.
fn strange_ackers(scene: &Scene, primary: &ServerLook) -> Vec<Obstacle> {
    let known: Vec<_> = scene
        .replicas()
        .filter_map(|server| server.seen.look.as_ref()?.uuid)
        .collect();
    let strange = primary.ackers.iter().filter(|uuid| !known.contains(uuid));
    let found = strange.map(|uuid| {
        scene.primary.obstacle(
            format!("the semi-sync replica {uuid} acknowledges its commits, and is not known here"),
            "name it with --stock-replica, or on it: SET PERSIST rpl_semi_sync_replica_enabled = OFF; STOP REPLICA \
             IO_THREAD; START REPLICA IO_THREAD",
        )
    });
    found.collect()
}

/// Returns remarks for the operator; `now_ms` is the current time.
pub(super) fn remarks(scene: &Scene, now_ms: u64) -> Vec<String> {
    // Without a report, the time is zero and is ignored.
    let distant = |&time: &u64| time != 0 && time.abs_diff(now_ms) > CLOCKS_DIFFER_MS;
    let others = scene.others.iter();
    let distant = others.filter(|server| distant(&server.seen.now_ms));
    let mut remarks: Vec<String> = distant
        .map(|server| {
            format!(
                "the clock of `{}` is more than a second off: its lag will be computed wrongly; set it by NTP",
                server.name
            )
        })
        .collect();
    let unmanaged = scene.members().filter(|server| !server.seen.managed);
    let unmanaged = unmanaged.filter_map(|server| Some((&server.name, server.seen.look.as_ref()?)));
    let primary = scene.primary.seen.look.as_ref();
    let primary = primary.filter(|_| !scene.primary.seen.managed);
    if let Some(look) = primary
        && !look.to_be_set.is_empty()
    {
        let set = look.to_be_set.join("; ");
        remarks.push(format!("the member will set at the primary: {set}"));
        let format = |found: &String| found.starts_with("binlog_format");
        if look.to_be_set.iter().any(format) {
            remarks.push(
                "sessions that began before binlog_format was ROW are closed when the primary is set up: they log statements"
                    .to_owned(),
            );
        }
    }
    for (name, look) in unmanaged.filter(|(_, look)| !look.to_be_reset.is_empty()) {
        remarks.push(format!(
            "the member will run RESET PERSIST at {name}, since its next start would be open for writes or commit without the ring: {}",
            look.to_be_reset.join("; ")
        ));
    }
    if primary.is_some_and(|look| look.waits_for_acks) {
        remarks.push(
            "during the takeover semi-sync is off, so commits wait for no acknowledgement"
                .to_owned(),
        );
    }
    let stock = scene.stock.iter();
    let stock = stock.filter_map(|server| Some((&server.name, server.seen.look.as_ref()?)));
    for (address, look) in stock.filter(|(_, look)| !look.leaves_out.is_empty()) {
        remarks.push(format!(
            "{address} leaves transactions out ({}): it follows as it is, and no member's data may be made from it",
            look.leaves_out.join(", ")
        ));
    }
    remarks
}

/// Larger differences between clocks are reported, because they distort the lag of a follower.
const CLOCKS_DIFFER_MS: u64 = 1_000;

#[cfg(test)]
mod tests;
