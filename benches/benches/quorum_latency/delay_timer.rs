//! A thread that runs actions after a delay, accurate to some tens of microseconds. The runtime's own timers have a resolution of one
//! millisecond.

use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use testkit::distance::DelayLine;
use tokio::sync::oneshot;

type Delivery = Box<dyn FnOnce() + Send>;

/// A handle of the thread. The thread ends when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct DelayTimer(Arc<Handle>);

struct Handle(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    line: DelayLine<Delivery>,
    closed: bool,
}

impl DelayTimer {
    pub(crate) fn start() -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                line: DelayLine::default(),
                closed: false,
            }),
            changed: Condvar::new(),
        });
        let working = shared.clone();
        thread::spawn(move || working.work());
        Self(Arc::new(Handle(shared)))
    }

    /// Runs `what` after `delay`. Actions that are due at the same time run in the order of their calls.
    pub(crate) fn after(&self, delay: Duration, what: impl FnOnce() + Send + 'static) {
        self.at(Instant::now() + delay, what);
    }

    /// Returns at the time `due`.
    pub(crate) async fn wait_until(&self, due: Instant) {
        let (done, waiting) = oneshot::channel();
        self.at(due, move || {
            let _ = done.send(());
        });
        // An error means that the timer has ended, because the bench ends.
        let _ = waiting.await;
    }

    /// Returns after `delay`.
    pub(crate) async fn wait(&self, delay: Duration) {
        self.wait_until(Instant::now() + delay).await;
    }

    fn at(&self, due: Instant, what: impl FnOnce() + Send + 'static) {
        let shared = &self.0.0;
        let mut state = shared.lock();
        let first = state.line.next_due().is_none_or(|next| due < next);
        state.line.push(due, Box::new(what));
        drop(state);
        if first {
            shared.changed.notify_one();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn work(&self) {
        // The kernel's default timer slack of 50 µs would be half of the shortest delay.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut state = self.lock();
        while !state.closed {
            if let Some(what) = state.line.pop_due(Instant::now()) {
                drop(state);
                what();
                state = self.lock();
                continue;
            }
            state = match state.line.next_due() {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let left = due.saturating_duration_since(Instant::now());
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
