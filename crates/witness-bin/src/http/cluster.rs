//! The ring as one member sees it, in the shape of Patroni's `/cluster`.

use member::status::{MemberView, PauseView, PeerView, Role};
use raft_types::MemberId;
use serde::Serialize;

/// The ring.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Cluster {
    /// The ring's name.
    pub(crate) scope: String,
    /// Who leads, as far as the member knows.
    pub(crate) leader: Option<MemberId>,
    /// Whether failover is paused.
    pub(crate) pause: bool,
    /// The pause, if one stands.
    pub(crate) paused: Option<PauseView>,
    /// Everyone that the member knows of.
    pub(crate) members: Vec<ClusterMember>,
}

/// One member of it.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct ClusterMember {
    pub(crate) name: String,
    pub(crate) id: MemberId,
    pub(crate) region: String,
    /// `leader`, `replica` or `witness`.
    pub(crate) role: &'static str,
    /// `running`, `silent`, or `unknown` when the member asked is not the leader.
    pub(crate) state: &'static str,
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    /// Entries behind the leader; only the leader knows.
    pub(crate) lag: Option<u64>,
}

/// The ring from one member's view.
pub(crate) fn cluster(view: &MemberView) -> Cluster {
    let own = ClusterMember {
        name: view.member.name.clone(),
        id: view.member.id,
        region: view.member.region.0.clone(),
        role: role(view.member.id, view.leader, view.member.kind),
        state: "running",
        host: split(&view.member.address).0,
        port: split(&view.member.address).1,
        lag: (view.role == Role::Leader).then_some(0),
    };
    let peer = |peer: &PeerView| ClusterMember {
        name: peer.name.clone(),
        id: peer.id,
        region: peer.region.0.clone(),
        role: role(peer.id, view.leader, peer.kind),
        state: match (view.role, peer.answered_seconds) {
            (Role::Leader, Some(seconds)) if seconds < SILENT_AFTER_SECONDS => "running",
            (Role::Leader, _) => "silent",
            _ => "unknown",
        },
        host: split(&peer.address).0,
        port: split(&peer.address).1,
        lag: peer.behind_entries,
    };
    let mut members: Vec<_> = std::iter::once(own)
        .chain(view.peers.iter().map(peer))
        .collect();
    members.sort_by_key(|member| member.id);
    Cluster {
        scope: view.ring.name.clone(),
        leader: view.leader,
        pause: view.pause.is_some(),
        paused: view.pause.clone(),
        members,
    }
}

/// Some heartbeats of the slowest ring that the configuration allows.
const SILENT_AFTER_SECONDS: f64 = 15.0;

fn role(id: MemberId, leader: Option<MemberId>, kind: raft_types::MemberKind) -> &'static str {
    match (leader == Some(id), kind) {
        (true, _) => "leader",
        (false, raft_types::MemberKind::Witness) => "witness",
        (false, raft_types::MemberKind::Database) => "replica",
    }
}

fn split(address: &str) -> (String, Option<u16>) {
    match address.rsplit_once(':') {
        Some((host, port)) => (host.to_owned(), port.parse().ok()),
        None => (address.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use member::status::sample::database_leader;

    #[test]
    fn the_leader_knows_everyone() {
        let seen = cluster(&database_leader());
        assert_eq!(seen.leader, Some(MemberId(1)));
        let brief: Vec<_> = seen
            .members
            .iter()
            .map(|m| (m.id.0, m.role, m.state, m.port, m.lag))
            .collect();
        assert_eq!(
            brief,
            [
                (1, "leader", "running", Some(7400), Some(0)),
                (2, "witness", "running", Some(7400), Some(2)),
            ]
        );
    }
}
