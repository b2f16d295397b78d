//! How much of a stream is under way: the sender waits when it is full, the answers make room. The
//! engine itself pipelines without a bound.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::task::AtomicWaker;
use raft_types::REPLICATION_WINDOW_BYTES;

/// Bytes a second that the disk of a member writes at least, of entries whose stream is not given up meanwhile.
const SLOWEST_DISK: usize = 2 << 20;

/// One append stream's window, shared by its two ends.
#[derive(Debug)]
pub(crate) struct Window {
    state: Mutex<State>,
    sender: AtomicWaker,
}

#[derive(Debug)]
struct State {
    /// The requests that were sent and not answered, by the size of their entries.
    unanswered: VecDeque<usize>,
    bytes: usize,
    moved: Instant,
    /// Why the sender gave up; the answers end with it.
    failure: Option<String>,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                unanswered: VecDeque::new(),
                bytes: 0,
                moved: Instant::now(),
                failure: None,
            }),
            sender: AtomicWaker::new(),
        }
    }

    /// Ready when another request may be sent. An entry larger than the window is sent when nothing
    /// else is under way.
    pub(crate) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        self.sender.register(context.waker());
        // An answer may have come between the two looks.
        if self.has_room() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    fn has_room(&self) -> bool {
        self.lock().bytes < REPLICATION_WINDOW_BYTES
    }

    /// A message went out; with `request`, it was the last one of a request of that size.
    pub(crate) fn sent(&self, request: Option<usize>) {
        let mut state = self.lock();
        state.moved = Instant::now();
        if let Some(bytes) = request {
            state.bytes += bytes;
            state.unanswered.push_back(bytes);
        }
    }

    /// The oldest request was answered. False when none was under way.
    pub(crate) fn answered(&self) -> bool {
        let was_full = {
            let mut state = self.lock();
            state.moved = Instant::now();
            let Some(bytes) = state.unanswered.pop_front() else {
                return false;
            };
            let was_full = state.bytes >= REPLICATION_WINDOW_BYTES;
            state.bytes -= bytes;
            was_full
        };
        if was_full {
            self.sender.wake();
        }
        true
    }

    /// Whether requests are under way.
    pub(crate) fn is_open(&self) -> bool {
        !self.lock().unanswered.is_empty()
    }

    /// Whether requests are under way and nothing has moved for `deadline`, and for as long as a slow disk needs on top to write
    /// what is under way: it is answered when it is durable.
    pub(crate) fn is_stalled(&self, deadline: Duration) -> bool {
        let state = self.lock();
        let written = Duration::from_secs((state.bytes / SLOWEST_DISK) as u64);
        !state.unanswered.is_empty() && state.moved.elapsed() >= deadline + written
    }

    /// The sender gives up.
    pub(crate) fn fail(&self, reason: String) {
        self.lock().failure.get_or_insert(reason);
    }

    /// Why the sender gave up, once.
    pub(crate) fn take_failure(&self) -> Option<String> {
        self.lock().failure.take()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::task::noop_waker;

    use super::*;

    #[test]
    fn a_full_window_waits_for_an_answer() {
        let waker = noop_waker();
        let mut context = Context::from_waker(&waker);
        let window = Window::new();
        window.sent(Some(REPLICATION_WINDOW_BYTES - 1));
        assert!(window.poll_room(&mut context).is_ready());
        window.sent(Some(10));
        assert!(window.poll_room(&mut context).is_pending());
        assert!(window.answered());
        assert!(window.poll_room(&mut context).is_ready());
        assert!(window.is_open());
        assert!(window.answered());
        assert!(!window.is_open());
        assert!(!window.answered(), "an answer that nobody asked for");
    }

    #[test]
    fn only_what_is_under_way_can_stall() {
        let window = Window::new();
        assert!(!window.is_stalled(Duration::ZERO));
        window.sent(Some(0));
        assert!(window.is_stalled(Duration::ZERO));
        assert!(!window.is_stalled(Duration::from_secs(60)));
    }

    #[test]
    fn a_large_entry_may_take_as_long_as_a_slow_disk_writes_it() {
        let window = Window::new();
        window.sent(Some(REPLICATION_WINDOW_BYTES));
        assert!(!window.is_stalled(Duration::ZERO));
        window.sent(Some(0));
        assert!(window.answered());
        assert!(window.is_stalled(Duration::ZERO));
    }
}
