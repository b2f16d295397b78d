//! The tasks of every member for the administration of its ring: it adds the events that it has recorded to the ring's history. As the
//! leader, it also queries the other members for their programs.
//!
//! A leader writes all pending events in one entry; a follower sends them to the leader. Clients never wait for these tasks, which yield to
//! all work that clients wait for.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use consensus::log_probe::MemberNetwork;
use consensus::{
    Answer, AppliedFloor, Greeting, MemberCalls, MemberConfig, Program, Question, RaftMember,
    RaftNode, RoleSnapshot, StartError,
};
use futures::future::join_all;
use openraft::storage::RaftLogStorage;
use raft_types::{FileStarts, FormatRange, FormatVersion, TypeConfig, lock};
use tokio::task::JoinSet;

use crate::administration::{Administration, LocalState};
use crate::formats::{self, Programs};
use crate::history;
use crate::leader_tasks;
use crate::member::Member;

impl Member {
    /// Starts a member with its log. The log is known to be committed up to `floor`. `starts` is the same log as a
    /// sequence of files; another member's log may begin with one of them.
    ///
    /// # Errors
    /// [`StartError`] if the configuration is invalid, or the log cannot be read or is of a later version.
    pub async fn start(
        config: MemberConfig,
        log: impl RaftLogStorage<TypeConfig>,
        network: impl MemberNetwork,
        calls: Arc<dyn MemberCalls>,
        floor: AppliedFloor,
        starts: Arc<dyn FileStarts>,
    ) -> Result<Self, StartError> {
        let local = Arc::new(LocalState::new(config.program.clone()));
        let raft = RaftMember::start(config, log, network, calls, floor, starts, local.clone());
        Ok(Self::over(raft.await?, local))
    }

    /// Starts all tasks that administer the ring.
    fn over(raft: RaftMember, local: Arc<LocalState>) -> Self {
        let admin = Arc::new(Administration::new(&raft, local));
        let leading = leader_tasks::run(admin.clone(), raft.leadership());
        let mut tasks = JoinSet::new();
        tasks.spawn(raft.essential("writing the history down", write_down(admin.clone())));
        tasks.spawn(raft.essential("asking for programs", ask_for_programs(admin.clone())));
        tasks.spawn(raft.essential("the leader's own tasks", leading));
        Self::new(raft, admin, tasks)
    }

    /// Sends recorded events to the leader, as far as that is possible within `patience`. For a member that is about to stop.
    pub async fn hand_notes_on(&self, patience: Duration) {
        let handed = hand_on(self.admin(), patience);
        match tokio::time::timeout(patience, handed).await {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => {
                tracing::info!(%why, "the ring's history lacks what this member noted last")
            }
            Err(_) => tracing::info!("the ring's history lacks what this member noted last"),
        }
    }
}

/// The least delay before recorded events are written, so that a failover is complete. A history entry is a membership. If an elected
/// witness appended it immediately, the transfer of the leadership would have to wait for its commit.
const SETTLED: Duration = Duration::from_secs(3);

/// Adds recorded events to the log while the member runs.
async fn write_down(admin: Arc<Administration>) {
    let lease = admin.node.timers().lease;
    loop {
        admin.local.notes.noted.notified().await;
        loop {
            // During this wait, a member that rejoins its ring also finds the leader.
            tokio::time::sleep((lease * 2).max(SETTLED)).await;
            match hand_on(&admin, lease).await {
                Ok(true) => break,
                Ok(false) => {}
                Err(why) => tracing::debug!(%why, "what was noted is not in the log yet"),
            }
        }
    }
}

/// Appends pending events as the leader, or sends them to the leader. Returns true when the log has all events. An error is only logged.
async fn hand_on(
    admin: &Administration,
    patience: Duration,
) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let role = admin.node.role();
    let records = role.membership.membership().nodes();
    let logged = history::read(records.map(|(_, record)| record));
    let entries = admin.local.notes.not_in(&logged);
    if entries.is_empty() {
        return Ok(true);
    }
    if admin.node.leadership().serving_term().is_some() {
        let lock = tokio::time::timeout(patience, admin.reconfiguration_lock.lock());
        let _lock = lock.await.map_err(|_| "something else changes the ring")?;
        admin.change_records(&entries, |_| {}).await?;
        return Ok(false);
    }
    let leader = role.other_leader(admin.node.id());
    let (leader, record) = leader.ok_or("no leader is known")?;
    let question = Question::Note { entries };
    let calls = admin.node.calls();
    match calls.ask(leader, record, question, patience).await? {
        Answer::Noted => Ok(false),
        other => Err(other.unexpected().into()),
    }
}

/// Queries the other members for their programs while this member serves as the leader and supports a newer format than the ring's.
async fn ask_for_programs(admin: Arc<Administration>) {
    let (node, local) = (&admin.node, &admin.local);
    let newest = local.program.formats.newest();
    if newest == FormatVersion::FIRST {
        return;
    }
    loop {
        let role = node.role();
        let serves = node.leadership_in(&role).serving_term().is_some();
        let programs = match serves && newest > formats::of_membership(&role.membership) {
            true => programs(node, &role).await,
            false => Programs::new(),
        };
        *lock(&local.programs) = programs;
        tokio::time::sleep(node.timers().heartbeat * 4).await;
    }
}

/// Queries all other members concurrently.
async fn programs(node: &RaftNode, role: &RoleSnapshot) -> Programs {
    let asked = role.others(node.id()).map(async |(id, record)| {
        let question = Question::Greeting(Greeting::default());
        let greeted = node.calls().ask(id, record, question, node.timers().lease);
        match greeted.await {
            Ok(Answer::Greeting { program, .. }) => {
                let unreported = || Program {
                    version: String::new(),
                    formats: FormatRange::only(FormatVersion::FIRST),
                };
                Some((id, program.unwrap_or_else(unreported)))
            }
            Ok(_) | Err(_) => None,
        }
    });
    join_all(asked).await.into_iter().flatten().collect()
}
