//! A rejoining member, as in the product. Before it takes part, it asks the other members whether the ring has continued without the end of
//! its log. If so, it truncates this end. Until then it accepts no calls.

use std::sync::Arc;
use std::time::Duration;

use binlog_store::{BinlogStore, CutBackError, LogHandle};
use consensus::{MemberCalls, Recollection};
use raft_types::MemberId;
use ring_admin::{Member, Rejoin, Returning};
use testkit::network::{Call, Reply};
use tokio::sync::oneshot;

use crate::event::Event;
use crate::member::process::Process;
use crate::member::process_setup::Surroundings;
use crate::member::watched_log::Watch;
use crate::network::{Body, Message, MessageQueue, PendingCalls, Reception};
use crate::tick::Tick;

/// The reason why a process did not start.
#[derive(Debug)]
pub(crate) enum OpenFailure {
    /// The power was cut before the start was complete.
    Off,
    /// A call to the disk failed: the disk is full, or the failure was injected.
    Disk(String),
    /// The member refused the log.
    Refused(String),
}

/// The parts of a process that takes part in the ring.
pub(crate) struct Parts {
    pub(super) member: Member,
    pub(super) log: LogHandle,
    pub(super) reception: Reception,
    pub(super) returning: Option<Returning>,
}

/// The process of a member that asks the other members.
pub(crate) struct Asking {
    around: Surroundings,
    pending: PendingCalls,
    parts: oneshot::Receiver<Result<Parts, OpenFailure>>,
}

impl Asking {
    /// Creates the process of a member that asks and then takes part.
    pub(super) fn new(
        around: Surroundings,
        pending: PendingCalls,
        taking_part: impl Future<Output = Result<Parts, OpenFailure>> + Send + 'static,
    ) -> Self {
        let (done, parts) = oneshot::channel();
        around.runtime.spawn(async move {
            // If the process has ended, there is no receiver.
            let _ = done.send(taking_part.await);
        });
        Self {
            around,
            pending,
            parts,
        }
    }

    /// Runs the process until `now`. Returns whether the member has finished asking; then [`Asking::end`] returns the result.
    pub(crate) fn run_until(&mut self, now: Tick) -> bool {
        self.around.run_until(now);
        !self.parts.is_empty() || self.parts.is_terminated()
    }

    /// Returns the process, which now takes part.
    ///
    /// # Errors
    /// The reason why the process did not start.
    pub(crate) fn end(mut self) -> Result<Process, OpenFailure> {
        let gone = |_| Err(OpenFailure::Off);
        let parts = self.parts.try_recv().unwrap_or_else(gone)?;
        Ok(Process::up(self.around, parts))
    }

    /// Delivers answers to the member's calls. Calls from other members are refused.
    pub(crate) fn deliver(&self, message: Message, queue: &MessageQueue) {
        let Message { from, to, body } = message;
        match body {
            Body::Reply(id, reply) => self.pending.replied(id, reply),
            Body::Call(id, call) => {
                let reply = match call {
                    Call::Knock => Reply::Answers,
                    _ => Reply::Unreachable("it does not take part yet".to_owned()),
                };
                let (from, to) = (to, from);
                queue.send(Message {
                    from,
                    to,
                    body: Body::Reply(id, reply),
                });
            }
            _ => {}
        }
    }
}

/// Asks the other members, and truncates the log if the ring continued without its end.
pub(super) async fn come_back(
    store: &mut BinlogStore,
    calls: Arc<dyn MemberCalls>,
    watch: &Watch,
) -> Result<Returning, CutBackError> {
    let log = store.handle();
    let mut asking = returning(&log, watch.member, calls);
    let rejoin = tokio::select! {
        biased;
        rejoin = asking.before_the_start(&log) => rejoin,
        () = writing(&log) => Ok(Rejoin::AsItIs),
    };
    if let Some(found) = asking.restored() {
        watch.saw(|member| Event::RestoredDirectory {
            member,
            words: found.to_string(),
        });
    }
    let Ok(Rejoin::CutBack { to, .. }) = rejoin else {
        return Ok(asking);
    };
    // The event is recorded before the truncation. If the disk is cut off in between, only a part of the truncated entries may remain.
    watch.saw(|member| Event::CutBack { member, keep: to });
    tokio::select! {
        cut = store.cut_back(to, "the quorum was repaired without this member", 0) => { cut?; }
        () = writing(&log) => {}
    }
    Ok(asking.cut_back(recollection(&log)))
}

/// Writes queued entries to the log while the member asks.
async fn writing(log: &LogHandle) {
    loop {
        tokio::time::sleep(Duration::from_millis(1)).await;
        log.write_waiting();
    }
}

fn returning(log: &LogHandle, own: MemberId, calls: Arc<dyn MemberCalls>) -> Returning {
    let (_, membership) = log.applied_at_open();
    Returning::new(own, recollection(log), &membership, calls)
}

fn recollection(log: &LogHandle) -> Recollection {
    Recollection::new(log.term_runs(), log.settled())
}
