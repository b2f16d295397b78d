//! The queue of the writer's thread. It accepts every command, because the engine's loop, which pushes commands, must not block. Callers
//! bound its bytes with [`CommandQueue::wait_for_room`] before they pass entries to the engine.

use std::pin::pin;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use openraft::storage::IOFlushed;
use raft_types::{DoubtedTail, ElectionNotes, OpId, TypeConfig, Vote};
use tokio::sync::{Notify, oneshot};

use crate::cut_tail::CutTail;
use crate::error::StoreError;
use crate::format::PreparedEntry;
use crate::scan::ReceivedStart;

#[derive(Default)]
struct QueueState {
    commands: Vec<Command>,
    /// The writer's thread is working on commands.
    busy: bool,
    /// Memory of the queued commands and of those that the writer works on.
    bytes: u64,
    closed: bool,
    /// The writer no longer waits for a full disk.
    hurries: bool,
    /// There may be work other than commands.
    nudged: bool,
    parked: Parked,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Parked {
    #[default]
    No,
    /// The writer wakes after a timeout.
    ForAWhile,
    /// Only a command or a nudge wakes the writer.
    ForGood,
}

/// Commands for the writer's thread.
#[derive(Default)]
pub(crate) struct CommandQueue {
    state: Mutex<QueueState>,
    wake: Condvar,
    /// Notified when the writer must no longer wait.
    hurry: Condvar,
    room: Notify,
    limit: u64,
}

/// The result of taking from the queue.
pub(crate) enum Taken {
    Commands(Vec<Command>),
    /// No command arrived within the time.
    Idle,
    /// No command arrived, but there may be other work.
    Nudged,
    /// The queue is empty and closed.
    Closed,
}

impl CommandQueue {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state
            .lock()
            .expect("no thread panics while it holds the queue's lock")
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// True if new commands are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Waits until this many bytes fit; any size fits into an empty queue.
    pub(crate) async fn wait_for_room(&self, bytes: u64) {
        loop {
            // Registered before the check, so that a release immediately after the check is not missed.
            let mut released = pin!(self.room.notified());
            released.as_mut().enable();
            {
                let state = self.lock();
                if state.closed || state.bytes == 0 || state.bytes + bytes <= self.limit {
                    return;
                }
            }
            released.await;
        }
    }

    /// Appends a command.
    ///
    /// # Errors
    /// The command, if the queue is closed.
    pub(crate) fn push(&self, command: Command) -> Result<(), Box<Command>> {
        let mut state = self.lock();
        if state.closed {
            return Err(Box::new(command));
        }
        state.bytes += command.memory();
        state.commands.push(command);
        self.wake_writer(state);
        Ok(())
    }

    /// Makes the writer check for other work, unless it will do so anyway.
    pub(crate) fn nudge(&self) {
        let mut state = self.lock();
        if state.parked != Parked::ForAWhile {
            state.nudged = true;
            self.wake_writer(state);
        }
    }

    /// Refuses new commands; the writer finishes the queued ones.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.hurries = true;
        self.wake_writer(state);
        self.hurry.notify_all();
        self.room.notify_waiters();
    }

    /// From now on the writer does not wait for room on a full disk.
    pub(crate) fn hurry(&self) {
        self.lock().hurries = true;
        self.hurry.notify_all();
    }

    /// Makes the writer wait during its work; returns false immediately if it must no longer wait.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let waits = |state: &mut QueueState| !state.hurries;
        let state = self.hurry.wait_timeout_while(self.lock(), time, waits);
        let state = state.expect("no thread panics while it holds the queue's lock");
        !state.0.hurries
    }

    /// Takes the queued purges that may be performed before all other commands. `synced` is the log's synced end.
    pub(super) fn take_purges(&self, synced: Option<OpId>) -> Vec<(OpId, Done)> {
        take_purges(&mut self.lock().commands, synced)
    }

    fn wake_writer(&self, state: MutexGuard<'_, QueueState>) {
        let parked = state.parked;
        // The writer is woken after the lock is released, because it needs the lock.
        drop(state);
        if parked != Parked::No {
            self.wake.notify_one();
        }
    }

    /// All queued commands; blocks for at most `patience` if there are none.
    pub(crate) fn take(&self, patience: Option<Duration>) -> Taken {
        let quiet =
            |state: &mut QueueState| state.commands.is_empty() && !state.closed && !state.nudged;
        let poisoned = "no thread panics while it holds the queue's lock";
        let mut state = self.lock();
        if quiet(&mut state) {
            state.parked = if patience.is_some() {
                Parked::ForAWhile
            } else {
                Parked::ForGood
            };
            state = match patience {
                None => self.wake.wait_while(state, quiet).expect(poisoned),
                Some(patience) => {
                    self.wake
                        .wait_timeout_while(state, patience, quiet)
                        .expect(poisoned)
                        .0
                }
            };
            state.parked = Parked::No;
        }
        if !state.commands.is_empty() {
            state.busy = true;
            Taken::Commands(std::mem::take(&mut state.commands))
        } else if state.closed {
            Taken::Closed
        } else if std::mem::take(&mut state.nudged) {
            Taken::Nudged
        } else {
            Taken::Idle
        }
    }

    /// All queued commands, without blocking, and whether there may be other work.
    pub(crate) fn take_now(&self) -> (Vec<Command>, bool) {
        let mut state = self.lock();
        state.busy = true;
        let commands = std::mem::take(&mut state.commands);
        (commands, std::mem::take(&mut state.nudged))
    }

    /// Records that the writer's thread has finished the taken commands, which had this many bytes.
    pub(crate) fn release(&self, bytes: u64) {
        let mut state = self.lock();
        state.bytes -= bytes;
        state.busy = false;
        drop(state);
        self.room.notify_waiters();
    }

    /// True if all pushed commands are done.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.commands.is_empty() && !state.busy
    }
}

// The writer's commands.

/// Notified when a command is done and durable.
pub(crate) type Done = oneshot::Sender<Result<(), StoreError>>;

pub(crate) enum Command {
    /// Write entries; the callback is called when they are durable.
    Append(Vec<PreparedEntry>, IOFlushed<TypeConfig>),
    Vote(Vote, Done),
    /// Drop the entries after this one; all of them for `None`.
    Truncate(Option<OpId>, Done),
    /// Purge the entries up to this one.
    Purge(OpId, Done),
    /// Record that acknowledged entries may be missing.
    NoteDoubt(DoubtedTail, Done),
    /// Store the record for the next election.
    NoteElections(ElectionNotes, Done),
    /// Clear the doubt about the tail if the log ends at or after this entry.
    SettleTail(OpId, oneshot::Sender<Result<bool, StoreError>>),
    /// Truncate the log below its commit index.
    CutBack {
        /// The last remaining entry.
        to: Option<OpId>,
        reason: String,
        /// Time of the operator's command, in seconds since 1970.
        at: u64,
        done: oneshot::Sender<Result<Option<CutTail>, StoreError>>,
    },
    /// Restart the log with a file of another member.
    Begin(Box<ReceivedStart>, Done),
}

impl Command {
    /// Approximate memory of the command in bytes.
    pub(crate) fn memory(&self) -> u64 {
        match self {
            Self::Append(entries, _) => entries.iter().map(|entry| entry.memory).sum(),
            _ => 0,
        }
    }
}

/// Removes the purges from `commands` that may be performed before all other commands. They purge durable entries, and no truncation is
/// queued before them. So they and the pending writes do not affect each other.
pub(super) fn take_purges(commands: &mut Vec<Command>, durable: Option<OpId>) -> Vec<(OpId, Done)> {
    let mut takes_back = false;
    let taken = commands.extract_if(.., |command| match command {
        Command::Purge(upto, _) => {
            !takes_back && durable.is_some_and(|durable| upto.index <= durable.index)
        }
        Command::Truncate { .. } | Command::CutBack { .. } | Command::Begin { .. } => {
            takes_back = true;
            false
        }
        _ => false,
    });
    let purge = |command| match command {
        Command::Purge(upto, done) => Some((upto, done)),
        _ => None,
    };
    taken.filter_map(purge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purges_of_durable_entries_precede_all_but_truncations() {
        let done = || oneshot::channel().0;
        let purge = |index: u64| Command::Purge(OpId::new(1, index), done());
        let vote = || Command::Vote(Vote::new(7, raft_types::MemberId(1)), done());
        let truncate = || Command::Truncate(None, done());
        let taken = |durable: Option<u64>, mut commands: Vec<Command>| {
            let durable = durable.map(|index| OpId::new(1, index));
            let taken = take_purges(&mut commands, durable);
            let indexes: Vec<u64> = taken.iter().map(|(upto, _)| upto.index).collect();
            (indexes, commands.len())
        };
        assert_eq!(taken(None, vec![purge(3)]), (vec![], 1));
        assert_eq!(
            taken(Some(5), vec![vote(), purge(3), vote(), purge(5), purge(6)]),
            (vec![3, 5], 3)
        );
        assert_eq!(
            taken(Some(5), vec![purge(2), truncate(), purge(3)]),
            (vec![2], 2)
        );
    }
}
