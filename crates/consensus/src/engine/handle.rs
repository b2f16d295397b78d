//! One running engine, and what all tasks of its member need of it: its number and timers, its commit mark, and why it stopped.

use std::sync::OnceLock;

use raft_types::MemberId;
use tokio::sync::watch;

use crate::engine;
use crate::engine::{Engine, Fault, RoleSnapshot};
use crate::lease::last_heard::LastHeard;
use crate::member::config::Timers;
use crate::state_machine::CommitMark;

/// A leader that is silent for this many leases is no longer named.
pub(crate) const SILENT: u32 = 2;

/// The engine of one member.
#[derive(Debug)]
pub(crate) struct EngineHandle {
    pub(crate) raft: Engine,
    pub(crate) id: MemberId,
    pub(crate) timers: Timers,
    pub(crate) mark: CommitMark,
    pub(crate) heard: LastHeard,
    /// Why this member stopped its engine itself.
    pub(crate) failed: OnceLock<Fault>,
    /// Why it has stopped.
    pub(crate) fault: FirstFault,
}

impl EngineHandle {
    pub(crate) fn new(raft: Engine, id: MemberId, timers: Timers, mark: CommitMark) -> Self {
        Self {
            raft,
            id,
            timers,
            mark,
            heard: LastHeard::never(),
            failed: OnceLock::new(),
            fault: FirstFault::default(),
        }
    }

    /// The current role. A leader that has been silent for two leases is no longer named: by then others
    /// may have elected another.
    pub(crate) fn role(&self) -> RoleSnapshot {
        let mut role = engine::role(&self.raft);
        let silent = !self.heard.within(self.timers.lease * SILENT);
        role.leader = role.leader.filter(|&leader| leader == self.id || !silent);
        role
    }
}

/// Why a member has stopped; the first reason stays.
#[derive(Debug, Default)]
pub(crate) struct FirstFault(watch::Sender<Option<Fault>>);

impl FirstFault {
    pub(crate) fn publish(&self, fault: Fault) {
        self.0.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(fault);
            is_first
        });
    }

    pub(crate) fn now(&self) -> Option<Fault> {
        self.0.borrow().clone()
    }

    pub(crate) async fn wait(&self) -> Fault {
        let mut first = self.0.subscribe();
        let stopped = first.wait_for(Option::is_some).await;
        stopped
            .ok()
            .and_then(|fault| fault.clone())
            .unwrap_or(Fault::Stopped)
    }
}
