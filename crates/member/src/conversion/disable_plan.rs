//! The plan that converts a ring to plain replication. Pure functions. The order of the steps matters:
//!
//! ```text
//!  followers: released ► the primary: drained, released, opened ► followers: replicate from it
//!  └ only the primary can be opened from here on             └ what it has, the ring had acknowledged
//! ```
//!
//! Followers' members release first. If such a member still managed its mysqld and became the leader, it would open that mysqld next to the
//! plain primary. Followers replicate from the primary last. A replica also receives transactions that wait for an ACK, and while the ring
//! manages the primary, it may trim those.
//!
//! If the release of the primary fails, another member may lead for some time. The primary's server then follows, and may have purged the
//! transactions of that time from its binlog when it is the primary again. A follower that was released earlier can get these transactions
//! only from the ring. So its member first manages it again.
//!
//! A released follower looks like a drained primary that is not opened yet: unmanaged and closed. But the ring may have acknowledged more
//! than the follower had applied. So no server is released as the primary while another server is managed, accepts writes, or has more
//! transactions.

use binlog_format::gtid::GtidSet;
use mysqld_server::conversion::ServerLook;

use crate::conversion::plan::{Obstacle, Plan, Planned, Scene, Server, Step};

/// The advice about a server that cannot be examined.
const START_IT: &str = "start it, or let its member start it, and try again";
const BESIDE_THE_PRIMARY: &str =
    "run this command with the configuration of the member next to the primary";

/// Plans the steps out of a ring.
///
/// # Errors
/// All obstacles.
pub(super) fn plan_disable(scene: &Scene) -> Plan {
    let primary = &scene.primary;
    let managed = primary.is_or_will_be_managed();
    let look = primary.look(START_IT).map_err(|unseen| vec![unseen])?;
    let mut obstacles = Vec::new();
    if managed && !(scene.leads && look.writable) {
        obstacles.push(primary.obstacle(
            "the primary is not at this member, or does not take writes",
            "run this command with the configuration of the member that answers /primary, or move the primary here \
             with `witness switchover`",
        ));
    }
    if !managed && !look.replicates_from.is_empty() {
        let found = "its mysqld is a replica, so it is not the primary";
        obstacles.push(primary.obstacle(found, BESIDE_THE_PRIMARY));
    }
    obstacles.extend(match managed {
        true => beside_the_ring(scene),
        false => not_the_primary(scene, look),
    });
    let purged = look.purged().unwrap_or_default();
    // While the ring manages the primary, a member's server can get all missing transactions from the ring.
    let others = scene.others.iter().map(|server| (server, managed));
    let stock = scene.stock.iter().map(|server| (server, false));
    for (server, gets_it_from_the_ring) in others.chain(stock) {
        match server.look(START_IT) {
            Err(unseen) => obstacles.push(unseen),
            Ok(_) if gets_it_from_the_ring => {}
            Ok(seen) => obstacles.extend(cannot_replicate(server, seen, &purged)),
        }
    }
    obstacles.extend(scene.stock.iter().filter_map(|server| {
        server.several_channels(
            "it would have to be said which one the primary is for: RESET REPLICA ALL FOR CHANNEL the others",
        )
    }));
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    let mut steps = Vec::new();
    let mut plan = |step, done| steps.push(Planned { step, done });
    for server in &scene.others {
        let managed = server.is_or_will_be_managed();
        let is_short = !managed && server.is(|look| !lacking(look, &purged).is_empty());
        if is_short {
            plan(Step::ManageAgain(server.name.clone()), false);
        }
        let released = !managed && !is_short;
        plan(Step::ReleaseFollower(server.name.clone()), released);
    }
    let released = !managed && look.writable && !look.waits_for_acks;
    plan(Step::ReleasePrimary, released);
    for server in scene.replicas() {
        let done = server.is(|seen| seen.follows(look.uuid));
        plan(Step::Replicate(server.name.clone()), done);
    }
    Ok(steps)
}

/// Finds unmanaged servers that accept writes, and would still accept them next to the plain primary.
fn beside_the_ring(scene: &Scene) -> Vec<Obstacle> {
    let open =
        |server: &&Server| !server.is_or_will_be_managed() && server.is(|look| look.writable);
    let found = scene.others.iter().filter(open).map(|server| {
        server.obstacle(
            "its mysqld takes writes, and no member manages it",
            "SET GLOBAL super_read_only = ON there, and look for transactions that the primary has not",
        )
    });
    found.collect()
}

/// If the server of this command is unmanaged, returns the evidence that another server is or was the primary.
fn not_the_primary(scene: &Scene, look: &ServerLook) -> Vec<Obstacle> {
    let primary = &scene.primary.name;
    let executed = look.executed().unwrap_or_default();
    let mut found = Vec::new();
    for server in &scene.others {
        let open = server.is(|look| look.writable);
        let shows = match (server.is_or_will_be_managed(), open) {
            (_, true) => "its mysqld takes writes",
            (true, false) => "its member manages its mysqld in the ring",
            (false, false) => continue,
        };
        let words = format!(
            "{shows}, and no member manages that of {primary}, which is not the primary then"
        );
        found.push(server.obstacle(words, BESIDE_THE_PRIMARY));
    }
    if look.writable {
        return found;
    }
    for server in scene.replicas() {
        let seen = server.seen.look.as_ref();
        let more = seen.and_then(|seen| seen.executed().ok());
        let more = more.unwrap_or_default().difference(&executed);
        if !more.is_empty() {
            let words = format!("it has {more}, which the closed mysqld of {primary} lacks");
            found.push(server.obstacle(words, BESIDE_THE_PRIMARY));
        }
    }
    found
}

/// Returns the transactions in `of` that a server lacks.
fn lacking(look: &ServerLook, of: &GtidSet) -> GtidSet {
    of.difference(&look.executed().unwrap_or_default())
}

/// Returns an obstacle if the server lacks transactions that the primary has purged from its binlog, because it cannot replicate them.
fn cannot_replicate(server: &Server, look: &ServerLook, purged: &GtidSet) -> Option<Obstacle> {
    let missing = lacking(look, purged);
    (!missing.is_empty()).then(|| {
        server.obstacle(
            format!("it lacks {missing}, which the primary has purged from its binlog"),
            "if it replicates from the ring, wait until it has caught up; otherwise rebuild it from the primary",
        )
    })
}

#[cfg(test)]
mod tests;
