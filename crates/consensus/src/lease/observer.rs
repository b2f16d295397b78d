//! The task that updates the published leadership. It checks the leadership on each change of the engine's role or the membership, and
//! before the quorum's last answer is older than the lease. A commit causes no check.

use std::sync::Arc;

use openraft::async_runtime::watch::WatchReceiver;
use tokio::sync::watch;

use crate::lease::leadership::{Leadership, NotServing, next_look};
use crate::node::RaftNode;
use crate::primacy::Primacy;

/// Publishes the leadership, and the resulting state for the member's own mysqld, until the engine stops.
pub(crate) async fn observe(
    node: Arc<RaftNode>,
    leadership: watch::Sender<Leadership>,
    primacy: watch::Sender<Primacy>,
) {
    let mut role_changes = node.engine.raft.server_metrics();
    let mut answers = node.engine.raft.data_metrics();
    let mut commits = node.engine.mark.subscribe();
    let mut led = None;
    loop {
        commits.mark_unchanged();
        let role = node.engine.role();
        node.administrator.note_membership(&role.membership);
        let now = node.elections.assess(&role);
        publish(&leadership, now);
        let primacy_now = node.primacy(&role);
        primacy.send_if_modified(|published| {
            let changed = *published != primacy_now;
            *published = primacy_now;
            changed
        });

        let why = now.not_serving();
        let waits_for_commit = matches!(
            why,
            Some(NotServing::OwnEntryNotCommitted | NotServing::AnotherAlone(_))
        );
        let waits_for_answer = why == Some(NotServing::QuorumSilent);
        let follows = now.leading_term().is_none();
        let timed = now.leading_term().is_some() && !role.is_alone(node.engine.id);
        node.elections.keep_quiet_without_a_quorum(&role, timed);
        if led != now.leading_term() {
            led = now.leading_term();
            node.elections.contacts.unpromised.notify_one();
        }
        let quorum = node.elections.quorum(&role);
        let lease = quorum.map_or(node.engine.timers.lease, |quorum| quorum.lease);
        let look = next_look(
            quorum.map(|quorum| quorum.age),
            node.engine.timers.heartbeat.min(lease * 2 / 3),
            lease,
        );
        if timed && look.call_now && node.engine.raft.trigger().heartbeat().await.is_err() {
            break;
        }
        tokio::select! {
            changed = role_changes.changed() => if changed.is_err() { break },
            _ = commits.changed(), if waits_for_commit => {}
            _ = answers.changed(), if waits_for_answer => {}
            () = node.elections.transfer_started.notified() => {}
            () = tokio::time::sleep(look.after), if timed => {}
            // Detects a silent leader, and a leader that calls again.
            () = tokio::time::sleep(node.engine.timers.lease), if follows => {}
        }
    }
    publish(&leadership, Leadership::Follower { leader: None });
    primacy.send_replace(Primacy::NONE);
}

fn publish(leadership: &watch::Sender<Leadership>, now: Leadership) {
    leadership.send_if_modified(|published| {
        let changed = *published != now;
        if changed {
            tracing::info!(was = ?published, now = ?now, "leadership");
            *published = now;
        }
        changed
    });
}
