//! The plan that makes a ring over servers with plain replication, pure. The order matters:
//!
//! ```text
//!  stop managing ► create ring ► lead ► prepare ► stop waiting, stop ACKs ► leave the source ► take over the primary ► follow, one by one
//!  └ no member acts on a mysqld ────────────────────────────────────────────────────┘ └ only here clients wait
//! ```
//!
//! Replicas leave the primary before the ring takes it over. From then on its binlog may be trimmed to the ring's log. A replica also
//! receives transactions that wait for an ACK, and would keep some that no other server has.
//!
//! Until the ring has all of the primary's transactions, a takeover can fail. The primary is then returned unchanged: its binlog is not
//! trimmed. Only afterwards is it taken over, and followers are managed.
//!
//! No follower is managed before the primary: a managed one with a leading member would open its server next to the plain primary.

#[cfg(test)]
mod tests;

use std::fmt;

use binlog_format::gtid::GtidSet;
use mysqld_server::conversion::{ReplicatesFrom, ServerLook};
use uuid::Uuid;

use crate::conversion::{Obstacle, Planned};

/// Maximum number of transactions that a replica may lack. With more it has to catch up first, since it could not take over.
pub const MOST_BEHIND: u128 = 10_000;

/// One database member and its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnableServer {
    /// Name of the server's member.
    pub name: String,
    /// The observation, or why it failed.
    pub look: Result<ServerLook, String>,
    /// True if the member is instructed not to manage it.
    pub unmanaged: bool,
    /// Whether the member manages it. With `unmanaged` as well, it is taking a primary over.
    pub managed: bool,
    /// True if it was the primary when its member stopped managing it: it may be closed since.
    pub was_primary: bool,
    /// True if the ring's log is applied to it.
    pub follows: bool,
}

/// Everything that the plan depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnableScene {
    /// The primary and its member. Observed after all others, so that they have nothing that it lacked.
    pub primary: EnableServer,
    /// All other database members of the ring.
    pub others: Vec<EnableServer>,
    /// Replicas without a member, by their address, that are to follow a binlog server.
    pub stock: Vec<(String, Result<ServerLook, String>)>,
    /// Address of the binlog server that they are to follow.
    pub binlog_server: Option<(String, u16)>,
    /// The transactions before the start of the ring's log, if there is a ring.
    pub origin: Option<GtidSet>,
    /// Whether the primary's member leads it.
    pub leads: bool,
}

/// A step into a ring, in execution order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnableStep {
    /// Instruct this member not to manage its server until further notice.
    StopManaging(String),
    /// Create the ring; its log starts after the primary's transactions.
    CreateRing,
    /// Make the primary's member the leader.
    Lead,
    /// Change the primary's settings as required.
    Prepare,
    /// Stop commits on the primary from waiting for ACKs, temporarily.
    StopWaiting,
    /// Make this server stop acknowledging.
    StopAcknowledging(String),
    /// Make this server stop replicating from the primary, once it has the transactions before the start of the ring's log.
    LeaveSource(String),
    /// Make the primary's member manage it: from then on it belongs to the ring.
    TakeOver,
    /// Make this server's member let it follow.
    Follow(String),
    /// Make this server follow the binlog server.
    Repoint(String),
}

impl fmt::Display for EnableStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StopManaging(name) => write!(f, "stop managing the mysqld of {name}"),
            Self::CreateRing => {
                f.write_str("create the ring, its log starting where the primary's ends")
            }
            Self::Lead => f.write_str("let the primary's member lead"),
            Self::Prepare => f.write_str("set the primary up"),
            Self::StopWaiting => {
                f.write_str("turn semi-sync off at the primary until the takeover")
            }
            Self::StopAcknowledging(name) => write!(f, "turn semi-sync off at {name}"),
            Self::LeaveSource(name) => write!(f, "{name} stops replicating from the primary"),
            Self::TakeOver => f.write_str("take the primary over (writes pause)"),
            Self::Follow(name) => write!(f, "{name} follows the ring"),
            Self::Repoint(name) => write!(f, "{name} follows the binlog server"),
        }
    }
}

/// The steps in order, completed ones included.
///
/// # Errors
/// All obstacles.
pub fn plan_enable(scene: &EnableScene) -> Result<Vec<Planned<EnableStep>>, Vec<Obstacle>> {
    let obstacles = obstacles(scene);
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    let mut steps = Vec::new();
    let mut plan = |step, done| steps.push(Planned { step, done });
    let all = || std::iter::once(&scene.primary).chain(&scene.others);
    for server in all() {
        let done = server.unmanaged || server.managed;
        plan(EnableStep::StopManaging(server.name.clone()), done);
    }
    plan(EnableStep::CreateRing, scene.origin.is_some());
    plan(EnableStep::Lead, scene.leads);
    let begun = scene.primary.managed;
    plan(EnableStep::Prepare, begun);
    let waits = |server: &EnableServer| server.look.as_ref().is_ok_and(|look| look.waits_for_acks);
    plan(EnableStep::StopWaiting, begun || !waits(&scene.primary));
    let members = scene
        .others
        .iter()
        .map(|server| (&server.name, &server.look));
    let stock = scene.stock.iter().map(|(address, look)| (address, look));
    for (name, look) in members.chain(stock) {
        let acknowledges = look.as_ref().is_ok_and(|look| look.acknowledges);
        plan(EnableStep::StopAcknowledging(name.clone()), !acknowledges);
    }
    for server in &scene.others {
        let replicates = |look: &ServerLook| !look.replicates_from.is_empty();
        let left = server.managed || !server.look.as_ref().is_ok_and(replicates);
        plan(EnableStep::LeaveSource(server.name.clone()), left);
    }
    plan(EnableStep::TakeOver, begun && !scene.primary.unmanaged);
    for server in &scene.others {
        let follows = server.managed && server.follows;
        plan(EnableStep::Follow(server.name.clone()), follows);
    }
    for (address, look) in &scene.stock {
        let there = |from: &ReplicatesFrom| {
            scene.binlog_server.as_ref() == Some(&(from.host.clone(), from.port))
        };
        let done = look
            .as_ref()
            .is_ok_and(|look| look.replicates_from.iter().any(there));
        plan(EnableStep::Repoint(address.clone()), done);
    }
    Ok(steps)
}

fn obstacles(scene: &EnableScene) -> Vec<Obstacle> {
    let mut found = Vec::new();
    let primary = &scene.primary;
    let look = match &primary.look {
        Ok(look) => look,
        Err(cause) => return vec![unreachable(&primary.name, cause)],
    };
    let (Ok(executed), Ok(written)) = (look.executed(), look.written()) else {
        return vec![unreadable(&primary.name)];
    };
    found.extend(of_settings(&primary.name, look));
    if let Some(from) = look.replicates_from.first() {
        let stands = |from: &ReplicatesFrom| !from.receives && !from.applies;
        let was_one = look.writable && look.replicates_from.iter().all(stands);
        let advice = match was_one {
            true => "if it is the primary and was a replica once: RESET REPLICA ALL there",
            false => "run this command with the configuration of the member beside the primary",
        };
        let words = format!("its mysqld is a replica of {}:{}", from.host, from.port);
        found.push(Obstacle::new(&primary.name, words, advice));
    }
    if !primary.managed && !look.leaves_out.is_empty() {
        let words = format!(
            "its replica threads would leave transactions out ({}) once it follows",
            look.leaves_out.join(", ")
        );
        found.push(Obstacle::new(&primary.name, words, NOTHING_LEFT_OUT));
    }
    if !look.writable && !primary.managed && !primary.was_primary {
        found.push(Obstacle::new(
            &primary.name,
            "its mysqld is read only, so it is not the primary",
            "run this command beside the primary, or SET GLOBAL read_only = OFF if clients are to write to this one",
        ));
    }
    if let Some(origin) = &scene.origin
        && !executed.contains_set(origin)
    {
        found.push(Obstacle::new(
            &primary.name,
            "the ring's log starts after transactions that this primary does not have",
            "this is not the primary that the ring was created from; begin with empty data directories",
        ));
    }
    for server in &scene.others {
        found.extend(of_replica(server, look, &written, scene.origin.as_ref()));
    }
    for (address, seen) in &scene.stock {
        match seen {
            Err(cause) => found.push(unreachable(address, cause)),
            Ok(seen) => {
                found.extend(errant(address, seen, &written));
                found.extend(several_channels(
                    address,
                    seen,
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
    if !primary.managed {
        found.extend(strange_ackers(scene, look));
    }
    found.extend(of_one_uuid(scene));
    found
}

/// Servers that assign the same GTIDs to different transactions.
fn of_one_uuid(scene: &EnableScene) -> Vec<Obstacle> {
    let members = std::iter::once(&scene.primary).chain(&scene.others);
    let members = members.map(|server| (&server.name, &server.look));
    let stock = scene.stock.iter().map(|(address, look)| (address, look));
    let mut seen: Vec<(&str, Uuid)> = Vec::new();
    let mut found = Vec::new();
    for (place, look) in members.chain(stock) {
        let Some(uuid) = look.as_ref().ok().and_then(|look| look.uuid) else {
            continue;
        };
        match seen.iter().find(|(_, other)| *other == uuid) {
            Some((first, _)) => found.push(Obstacle::new(
                place,
                format!("its mysqld has the server_uuid of {first}'s: {uuid}"),
                "stop it, remove auto.cnf from its data directory, start it and rebuild it from the primary; or correct [mysql] of one \
                 of the two, where they name the same mysqld",
            )),
            None => seen.push((place, uuid)),
        }
    }
    found
}

/// The advice about filters and skipped errors.
const NOTHING_LEFT_OUT: &str = "CHANGE REPLICATION FILTER REPLICATE_… = () and SET GLOBAL replica_exec_mode = STRICT at once, and \
    take the options out of its option file; without replica_skip_errors it has to be started again";

fn unreachable(place: &str, cause: &str) -> Obstacle {
    Obstacle::new(
        place,
        format!("its mysqld cannot be examined: {cause}"),
        "start it, and check [mysql] in that member's configuration",
    )
}

fn unreadable(place: &str) -> Obstacle {
    Obstacle::new(
        place,
        "its gtid_executed cannot be read",
        "look at SELECT @@GLOBAL.gtid_executed",
    )
}

fn of_settings<'a>(name: &'a str, look: &'a ServerLook) -> impl Iterator<Item = Obstacle> + 'a {
    let found = look.obstacles.iter();
    found.map(move |found| {
        let (found, advice) = found
            .rsplit_once("; ")
            .unwrap_or((found, "see docs/external-mysqld.md"));
        Obstacle::new(name, found, advice)
    })
}

fn of_replica(
    server: &EnableServer,
    primary: &ServerLook,
    written: &GtidSet,
    origin: Option<&GtidSet>,
) -> Vec<Obstacle> {
    if server.managed {
        return Vec::new();
    }
    let name = &server.name;
    let look = match &server.look {
        Ok(look) => look,
        Err(cause) => return vec![unreachable(name, cause)],
    };
    let Ok(own) = look.executed() else {
        return vec![unreadable(name)];
    };
    let mut found: Vec<Obstacle> = of_settings(name, look).collect();
    found.extend(errant(name, look, written));
    // It has left the source already; the next step instructs its member.
    let between = look.replicates_from.is_empty()
        && server.unmanaged
        && origin.is_some_and(|origin| own.contains_set(origin));
    if !between && !look.follows(primary.uuid) {
        let error = look.replicates_from.iter().map(|from| from.error.as_str());
        let error = error.filter(|error| !error.is_empty()).collect::<String>();
        let found_so = match error.is_empty() {
            true => "its mysqld does not replicate from the primary".to_owned(),
            false => format!("its mysqld does not replicate from the primary: {error}"),
        };
        found.push(Obstacle::new(
            name,
            found_so,
            "make it a running replica of the primary by auto-position (from a backup or a clone of it)",
        ));
    }
    found.extend(several_channels(
        name,
        look,
        "a follower has one source, the ring: RESET REPLICA ALL FOR CHANNEL the others",
    ));
    // By its GTIDs it would look complete, and could become the primary.
    if !look.leaves_out.is_empty() {
        found.push(Obstacle::new(
            name,
            format!(
                "its replica threads leave transactions out ({}), whose rows it lacks then",
                look.leaves_out.join(", ")
            ),
            format!("{NOTHING_LEFT_OUT}; then rebuild this server from the primary"),
        ));
    }
    let lacks = written.difference(&own).count();
    // A server that has left the source gets its missing transactions from the ring's log.
    if lacks > MOST_BEHIND && !between {
        found.push(Obstacle::new(
            name,
            format!("it is {lacks} transactions behind"),
            format!("wait until it lacks fewer than {MOST_BEHIND}"),
        ));
    }
    found
}

fn several_channels(place: &str, look: &ServerLook, advice: &str) -> Option<Obstacle> {
    let several = look.replicates_from.len() > 1;
    several.then(|| {
        Obstacle::new(
            place,
            "its mysqld replicates through several channels",
            advice,
        )
    })
}

/// Transactions that the primary lacks even among its uncommitted ones. Its replicas have executed those that wait there for an ACK; they
/// are let through before any replica joins the ring.
fn errant(place: &str, look: &ServerLook, written: &GtidSet) -> Option<Obstacle> {
    let own = match look.executed() {
        Ok(own) => own,
        Err(_) => return Some(unreadable(place)),
    };
    let errant = own.difference(written);
    if errant.is_empty() {
        return None;
    }
    Some(Obstacle::new(
        place,
        format!("it has transactions that the primary has not (errant): {errant}"),
        "inspect them with mysqlbinlog; then rebuild this server from the primary, or apply them at the primary",
    ))
}

/// A foreign replica that acknowledges after the takeover would let commits through that the ring lacks.
fn strange_ackers(scene: &EnableScene, primary: &ServerLook) -> Vec<Obstacle> {
    let members = scene
        .others
        .iter()
        .filter_map(|server| server.look.as_ref().ok());
    let stock = scene
        .stock
        .iter()
        .filter_map(|(_, look)| look.as_ref().ok());
    let known: Vec<_> = members.chain(stock).filter_map(|look| look.uuid).collect();
    let strange = primary.ackers.iter().filter(|uuid| !known.contains(uuid));
    strange
        .map(|uuid| {
            Obstacle::new(
                &scene.primary.name,
                format!("the semi-sync replica {uuid} acknowledges its commits, and is not known here"),
                "name it with --stock-replica, or on it: SET PERSIST rpl_semi_sync_replica_enabled = OFF; STOP REPLICA \
                 IO_THREAD; START REPLICA IO_THREAD",
            )
        })
        .collect()
}
