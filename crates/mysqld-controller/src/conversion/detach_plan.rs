//! The plan that returns a ring to plain replication, pure. The order matters:
//!
//! ```text
//!  followers: released ► the primary: drained, released, opened ► followers: replicate from it
//!  └ only the primary can be opened from here on             └ what it has, the ring had acknowledged
//! ```
//!
//! Followers' members release first: a managed one that came to lead would open its server next to the plain primary. Followers replicate
//! last. A replica also receives transactions that wait for an ACK, and the ring may trim those at a primary it still manages.
//!
//! A release of the primary may fail, and another member may lead for a while. The primary's server follows in the meantime, and purges
//! that time from its binlog when it leads again. A follower released earlier can get those transactions only from the ring, so its member
//! manages it again first.
//!
//! A released follower looks like a drained primary that is not opened yet: unmanaged and closed. But the ring may have acknowledged more
//! than the follower had applied. So no server is released as the primary while another one is managed, writable, or has more.

#[cfg(test)]
mod tests;

use std::fmt;

use binlog_format::gtid::GtidSet;
use mysqld_server::conversion::ServerLook;

use crate::conversion::{Obstacle, Planned};

/// One database member and its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachServer {
    /// Name of the server's member.
    pub name: String,
    /// The observation, or why it failed.
    pub look: Result<ServerLook, String>,
    /// Whether the member manages it.
    pub managed: bool,
}

/// Everything that the plan depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetachScene {
    /// The primary and its member.
    pub primary: DetachServer,
    /// Whether that member leads the ring.
    pub leads: bool,
    /// All other database members of the ring.
    pub others: Vec<DetachServer>,
    /// Replicas without a member, by their address, that are to follow the primary.
    pub stock: Vec<(String, Result<ServerLook, String>)>,
}

/// A step out of a ring, in execution order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetachStep {
    /// This follower's member manages it again, so that it gets the transactions that the primary has purged.
    ManageAgain(String),
    /// This follower's member stops managing it.
    StopManaging(String),
    /// The primary's member stops managing it. Open transactions are acknowledged first; clients then write without the ring.
    Release,
    /// This server replicates from the primary.
    Replicate(String),
}

impl fmt::Display for DetachStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ManageAgain(name) => write!(
                f,
                "manage the mysqld of {name} again (it lacks what the primary has purged)"
            ),
            Self::StopManaging(name) => write!(f, "stop managing the mysqld of {name}"),
            Self::Release => f.write_str("release the primary (writes pause)"),
            Self::Replicate(name) => write!(f, "{name} replicates from the primary"),
        }
    }
}

/// The steps in order, completed ones included.
///
/// # Errors
/// All obstacles.
pub fn plan_detach(scene: &DetachScene) -> Result<Vec<Planned<DetachStep>>, Vec<Obstacle>> {
    let primary = &scene.primary;
    let unreachable = |place: &str, cause: &String| {
        Obstacle::new(
            place,
            format!("its mysqld cannot be examined: {cause}"),
            "start it, or let its member start it, and try again",
        )
    };
    let look = match &primary.look {
        Ok(look) => look,
        Err(cause) => return Err(vec![unreachable(&primary.name, cause)]),
    };
    let mut obstacles = Vec::new();
    if primary.managed && !(scene.leads && look.writable) {
        obstacles.push(Obstacle::new(
            &primary.name,
            "the primary is not at this member, or does not take writes",
            "run this command with the configuration of the member that answers /primary, or move the primary here \
             with `witness switchover`",
        ));
    }
    if !primary.managed && !look.replicates_from.is_empty() {
        obstacles.push(Obstacle::new(
            &primary.name,
            "its mysqld is a replica, so it is not the primary",
            "run this command with the configuration of the member beside the primary",
        ));
    }
    match primary.managed {
        true => obstacles.extend(beside_the_ring(scene)),
        false => obstacles.extend(not_the_primary(scene, look)),
    }
    let purged = look.purged().unwrap_or_default();
    let members = scene.others.iter();
    // The ring has all that a member's server lacks, as long as the ring manages the primary.
    let members = members.map(|server| (server.name.as_str(), &server.look, primary.managed));
    let stock = scene.stock.iter();
    let stock = stock.map(|(address, look)| (address.as_str(), look, false));
    for (place, seen, gets_it_from_the_ring) in members.chain(stock) {
        match seen {
            Err(cause) => obstacles.push(unreachable(place, cause)),
            Ok(_) if gets_it_from_the_ring => {}
            Ok(seen) => obstacles.extend(cannot_replicate(place, seen, &purged)),
        }
    }
    let stock = scene.stock.iter();
    let stock = stock.filter_map(|(address, look)| Some((address, look.as_ref().ok()?)));
    for (address, _) in stock.filter(|(_, seen)| seen.replicates_from.len() > 1) {
        obstacles.push(Obstacle::new(
            address,
            "its mysqld replicates through several channels",
            "it would have to be said which one the primary is for: RESET REPLICA ALL FOR CHANNEL the others",
        ));
    }
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    let mut steps = Vec::new();
    let mut plan = |step, done| steps.push(Planned { step, done });
    for server in &scene.others {
        let lacks = server.look.as_ref().map(|seen| lacking(seen, &purged));
        let is_short = !server.managed && lacks.is_ok_and(|lacks| !lacks.is_empty());
        if is_short {
            plan(DetachStep::ManageAgain(server.name.clone()), false);
        }
        plan(
            DetachStep::StopManaging(server.name.clone()),
            !server.managed && !is_short,
        );
    }
    let released = !primary.managed && look.writable && !look.waits_for_acks;
    plan(DetachStep::Release, released);
    let members = scene
        .others
        .iter()
        .map(|server| (&server.name, &server.look));
    for (name, seen) in members.chain(scene.stock.iter().map(|(name, look)| (name, look))) {
        let done = seen.as_ref().is_ok_and(|seen| seen.follows(look.uuid));
        plan(DetachStep::Replicate(name.clone()), done);
    }
    Ok(steps)
}

/// Unmanaged servers that accept writes, and would still accept them next to the plain primary.
fn beside_the_ring(scene: &DetachScene) -> Vec<Obstacle> {
    let open = |server: &&DetachServer| {
        !server.managed && server.look.as_ref().is_ok_and(|look| look.writable)
    };
    let others = scene.others.iter().filter(open);
    let found = others.map(|server| {
        Obstacle::new(
            &server.name,
            "its mysqld takes writes, and no member manages it",
            "SET GLOBAL super_read_only = ON there, and look for transactions that the primary has not",
        )
    });
    found.collect()
}

/// Evidence that another server is or was the primary, where the command's own server is unmanaged.
fn not_the_primary(scene: &DetachScene, look: &ServerLook) -> Vec<Obstacle> {
    let advice = "run this command with the configuration of the member beside the primary";
    let executed = look.executed().unwrap_or_default();
    let mut found = Vec::new();
    for server in &scene.others {
        let open = server.look.as_ref().is_ok_and(|look| look.writable);
        let shows = match (server.managed, open) {
            (_, true) => "its mysqld takes writes",
            (true, false) => "its member manages its mysqld in the ring",
            (false, false) => continue,
        };
        let primary = &scene.primary.name;
        let words = format!(
            "{shows}, and no member manages that of {primary}, which is not the primary then"
        );
        found.push(Obstacle::new(&server.name, words, advice));
    }
    if look.writable {
        return found;
    }
    let members = scene.others.iter();
    let members = members.map(|server| (&server.name, &server.look));
    let stock = scene.stock.iter().map(|(address, look)| (address, look));
    for (place, seen) in members.chain(stock) {
        let more = seen.as_ref().ok().and_then(|seen| seen.executed().ok());
        let more = more.unwrap_or_default().difference(&executed);
        if !more.is_empty() {
            let words = format!(
                "it has {more}, which the closed mysqld of {} lacks",
                scene.primary.name
            );
            found.push(Obstacle::new(place, words, advice));
        }
    }
    found
}

/// The transactions of `of` that a server lacks.
fn lacking(look: &ServerLook, of: &GtidSet) -> GtidSet {
    match look.executed() {
        Ok(executed) => of.difference(&executed),
        Err(_) => of.clone(),
    }
}

/// A replica cannot get transactions that the primary has purged from its binlog.
fn cannot_replicate(place: &str, look: &ServerLook, purged: &GtidSet) -> Option<Obstacle> {
    let missing = lacking(look, purged);
    if missing.is_empty() {
        return None;
    }
    Some(Obstacle::new(
        place,
        format!("it lacks {missing}, which the primary has purged from its binlog"),
        "if it replicates from the ring, wait until it has caught up; otherwise rebuild it from the primary",
    ))
}
