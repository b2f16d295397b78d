//! The store: openraft's log storage over the writer and the shared view.

use std::io;
use std::ops::Deref;

use openraft::OptionalSend;
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use raft_types::{Entry, LogId, OpId, TypeConfig, Vote};
use tokio::sync::oneshot;

use crate::cut_tail::CutTail;
use crate::error::{CutBackError, StoreError};
use crate::format::prepare;
use crate::handle::LogHandle;
use crate::reader::LogReader;
use crate::writer::{Command, can_keep};

/// If at least this many bytes are queued for the writer, a purge is not awaited: otherwise the engine's loop, and with it the heartbeats,
/// would stall.
const PURGED_LATER_FROM: u64 = 1 << 20;

/// A member's log, opened by [`BinlogStore::open`]. The engine owns it; other components get a [`LogHandle`] from [`BinlogStore::handle`]
/// first. When it is dropped, the writer makes pending requests durable and stops.
pub struct BinlogStore {
    pub(crate) handle: LogHandle,
}

impl BinlogStore {
    /// A handle for all components except the engine.
    pub fn handle(&self) -> LogHandle {
        self.handle.clone()
    }

    /// Truncates the log after `to`, or entirely for `None`, even below its commit index. Used after the repair of a lost quorum, for a
    /// member that did not take part in the repair, and before its engine gets the log.
    ///
    /// The tail's bytes are kept in `trimmed/` next to the log, with `reason` and `at`, in seconds since the epoch; see [`CutTail`]. The
    /// stored committed op id is lowered with the log; the vote never is. Durable on return. If a crash interrupts it, another call
    /// completes it. Repeating the call changes nothing.
    ///
    /// # Errors
    /// [`CutBackError`]; with [`CutBackError::NotThere`] nothing was changed.
    pub async fn cut_back(
        &mut self,
        to: Option<OpId>,
        reason: &str,
        at: u64,
    ) -> Result<Option<CutTail>, CutBackError> {
        self.check()?;
        let can = {
            let view = self.shared.view.lock();
            can_keep(to, view.floor_op_id(), |index| view.terms.op_id(index))
        };
        can.map_err(|found| CutBackError::NotThere { to, found })?;
        let reason = reason.to_owned();
        let cut_back = |done| Command::CutBack {
            to,
            reason,
            at,
            done,
        };
        let tail = self.shared.ask(cut_back).await?;
        let mut view = self.shared.view.lock();
        view.at_open = (view.committed, view.committed_membership());
        Ok(tail)
    }

    fn check(&self) -> Result<(), StoreError> {
        self.failure().map_or(Ok(()), Err)
    }
}

impl Deref for BinlogStore {
    type Target = LogHandle;

    fn deref(&self) -> &LogHandle {
        &self.handle
    }
}

impl Drop for BinlogStore {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl RaftLogStorage<TypeConfig> for BinlogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let view = self.shared.view.lock();
        Ok(LogState {
            last_purged_log_id: view.floor_op_id().map(LogId::from),
            last_log_id: view.last().map(LogId::from),
        })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        LogReader::new(self.shared.clone(), true)
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        self.check()?;
        let vote = *vote;
        Ok(self.shared.ask(|done| Command::Vote(vote, done)).await?)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.check()?;
        let mut view = self.shared.view.lock();
        view.committed = committed.map(OpId::from);
        if let Some(committed) = view.committed {
            view.tail.settle(committed.index);
        }
        drop(view);
        self.shared.nudge();
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.shared.view.lock().committed.map(LogId::from))
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: IOFlushed<TypeConfig>,
    ) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.check()?;
        let entries: Vec<Entry> = entries.into_iter().collect();
        let mut prepared = Vec::with_capacity(entries.len());
        {
            let mut last = None;
            let view = self.shared.view.lock();
            for entry in &entries {
                let op_id = OpId::from(entry.log_id());
                view.check_next(last, op_id).map_err(StoreError::from)?;
                last = Some(op_id);
            }
        }
        for entry in &entries {
            prepared.push(prepare(entry).map_err(StoreError::from)?);
        }
        // Wait for nothing: this is the engine's loop, which also sends heartbeats and votes.
        {
            let mut view = self.shared.view.lock();
            for (entry, prepared) in entries.into_iter().zip(&prepared) {
                view.append(entry, prepared);
            }
        }
        if let Some(newest) = prepared.last() {
            let next = newest.op_id.index + 1;
            self.shared.appended.send_replace(next);
        }
        let submitted = self.shared.submit(Command::Append(prepared, callback));
        if let Err(refused) = submitted
            && let Command::Append(_, callback) = *refused
        {
            callback.io_completed(Err(StoreError::Closed.into()));
            return Err(StoreError::Closed.into());
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        self.check()?;
        let keep = last_log_id.map(OpId::from);
        Ok(self
            .shared
            .ask(|done| Command::Truncate(keep, done))
            .await?)
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        self.check()?;
        let upto = OpId::from(log_id);
        let within = self.shared.view.lock().last() >= Some(upto);
        if within && self.shared.queue.bytes() >= PURGED_LATER_FROM {
            // Until the writer processes the purge, the log has entries that it no longer needs, which is also possible after a crash.
            let (done, _) = oneshot::channel();
            let submitted = self.shared.submit(Command::Purge(upto, done));
            return submitted.map_err(|_| StoreError::Closed.into());
        }
        Ok(self.shared.ask(|done| Command::Purge(upto, done)).await?)
    }
}
