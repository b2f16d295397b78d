//! One message stream over several connections.
//!
//! The system limits the bytes in flight on a connection, and packet loss slows a connection down. So a stream to another region may use
//! several connections. Messages are numbered, and the receiver restores their order (`server/stripes.rs`). While few bytes are in flight,
//! the first connection with room carries every message. Otherwise, the connections with room take turns, because a single connection would
//! delay the other messages. If a connection fails with a message in flight, the stream fails. An unused connection may fail.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use futures::{Stream, StreamExt};
use raft_types::lock;

use crate::schema::AppendPart;

/// A message stream that is distributed over connections.
pub(crate) struct Deal<S>(Arc<Mutex<Dealing<S>>>);

/// One connection's share of the stream.
pub(crate) struct Stripe<S> {
    number: usize,
    deal: Deal<S>,
}

struct Dealing<S> {
    messages: S,
    next: u64,
    ended: bool,
    stripes: Vec<Seat>,
    /// Returns true if enough bytes are in flight for several connections.
    is_much: Box<dyn Fn() -> bool + Send>,
}

#[derive(Clone, Default)]
struct Seat {
    /// Set while the connection has room and waits for a message.
    waiting: Option<Waker>,
    /// The number of the last message that the connection carried.
    had: Option<u64>,
}

impl<S> Deal<S> {
    /// Distributes `messages` over this number of connections. Only the first is used while `is_much` returns false.
    pub(crate) fn new(
        messages: S,
        stripes: usize,
        is_much: impl Fn() -> bool + Send + 'static,
    ) -> Self {
        Self(Arc::new(Mutex::new(Dealing {
            messages,
            next: 0,
            ended: false,
            stripes: vec![Seat::default(); stripes],
            is_much: Box::new(is_much),
        })))
    }

    /// Returns the share of a connection, numbered from 0. There must be at most one share for each number.
    pub(crate) fn stripe(&self, number: usize) -> Stripe<S> {
        Stripe {
            number,
            deal: self.clone(),
        }
    }

    /// Returns true if the connection with this number has carried a message.
    pub(crate) fn has_used(&self, number: usize) -> bool {
        lock(&self.0).stripes[number].had.is_some()
    }
}

impl<S> Clone for Deal<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> Drop for Stripe<S> {
    fn drop(&mut self) {
        let mut dealing = lock(&self.deal.0);
        if dealing.stripes[self.number].waiting.take().is_some() {
            dealing.wake_one();
        }
    }
}

impl<S> Dealing<S> {
    /// Returns the waiting connection that gets the next message.
    fn turn(&self) -> Option<usize> {
        let is_much = (self.is_much)();
        let waiting = (0..)
            .zip(&self.stripes)
            .filter(|(_, seat)| seat.waiting.is_some());
        let first = waiting.min_by_key(|(_, seat)| seat.had.filter(|_| is_much));
        first.map(|(number, _)| number)
    }

    fn wake_one(&mut self) {
        let turn = self.turn();
        let first = turn.and_then(|number| self.stripes[number].waiting.clone());
        first.into_iter().for_each(Waker::wake);
    }
}

/// Returns a number that is unique among the streams of all processes.
pub(crate) fn new_session() -> u64 {
    // A hasher's seed is random.
    RandomState::new().build_hasher().finish()
}

impl<S: Stream<Item = AppendPart> + Unpin> Stream for Stripe<S> {
    type Item = AppendPart;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<AppendPart>> {
        let mut dealing = lock(&self.deal.0);
        if dealing.ended {
            return Poll::Ready(None);
        }
        dealing.stripes[self.number].waiting = Some(context.waker().clone());
        if dealing.turn() != Some(self.number) {
            // The connection that has the turn may be waiting already, so it is woken.
            dealing.wake_one();
            return Poll::Pending;
        }
        let message = ready!(dealing.messages.poll_next_unpin(context));
        dealing.stripes[self.number].waiting = None;
        let Some(mut message) = message else {
            dealing.ended = true;
            let stripes = dealing.stripes.iter_mut();
            let waiting = stripes.filter_map(|stripe| stripe.waiting.take());
            waiting.for_each(Waker::wake);
            return Poll::Ready(None);
        };
        message.number = dealing.next;
        dealing.next += 1;
        dealing.stripes[self.number].had = Some(message.number);
        // This connection may have no room for another message. Then it does not ask again, so another one is woken.
        dealing.wake_one();
        Poll::Ready(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    use futures::channel::mpsc;
    use futures::stream;
    use futures::task::noop_waker_ref;

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn with_little_in_flight_the_first_connection_with_room_gets_each_message() {
        let (sender, messages) = mpsc::unbounded();
        let deal = Deal::new(messages, 3, || false);
        let mut stripes: Vec<_> = (0..3).map(|number| deal.stripe(number)).collect();
        let wakes: Vec<Arc<Counted>> = (0..3).map(|_| Arc::default()).collect();
        let mut poll = |stripe: usize| {
            let waker = Waker::from(wakes[stripe].clone());
            let polled = stripes[stripe].poll_next_unpin(&mut Context::from_waker(&waker));
            polled.map(|message| message.map(|message| message.number))
        };
        let woken = |stripe: usize| wakes[stripe].0.swap(0, Relaxed) > 0;
        // The order in which the connections begin to wait does not matter.
        for stripe in [1, 0, 2] {
            assert_eq!(poll(stripe), Poll::Pending);
        }
        sender.unbounded_send(AppendPart::default()).unwrap();
        assert!(woken(0) && !woken(1) && !woken(2));
        assert_eq!(poll(0), Poll::Ready(Some(0)));
        // The first connection has no room left, so the second one is woken.
        assert!(woken(1) && !woken(2));
        assert_eq!(poll(1), Poll::Pending);
        sender.unbounded_send(AppendPart::default()).unwrap();
        assert!(woken(1));
        assert_eq!(poll(1), Poll::Ready(Some(1)));
        // The second connection has room again.
        assert!(woken(2) && deal.has_used(0) && deal.has_used(1) && !deal.has_used(2));
        assert_eq!(poll(2), Poll::Pending);
        assert_eq!(poll(0), Poll::Pending);
        sender.unbounded_send(AppendPart::default()).unwrap();
        assert!(woken(0));
        assert_eq!(poll(0), Poll::Ready(Some(2)));
        drop(sender);
        assert_eq!(poll(2), Poll::Ready(None));
        assert_eq!([poll(0), poll(1)], [Poll::Ready(None); 2]);
    }

    #[test]
    fn with_much_in_flight_connections_with_room_take_turns() {
        let deal = Deal::new(stream::repeat(AppendPart::default()), 3, || true);
        let mut stripes: Vec<_> = (0..3).map(|number| deal.stripe(number)).collect();
        let mut context = Context::from_waker(noop_waker_ref());
        let mut gets = |stripe: usize| stripes[stripe].poll_next_unpin(&mut context).is_ready();
        // No other connection waits.
        assert!(gets(0) && gets(0));
        assert!(gets(2) && gets(1));
        // The other connections poll while the first one has the turn but no room. Then the first one has room.
        lock(&deal.0).stripes[0].waiting = Some(noop_waker_ref().clone());
        assert!(!gets(1) && !gets(2));
        assert!(gets(0));
        assert!(gets(2) && gets(1));
    }

    #[test]
    fn a_dropped_connection_passes_its_turn() {
        let (sender, messages) = mpsc::unbounded();
        let deal = Deal::new(messages, 2, || false);
        let woken = Arc::<Counted>::default();
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        let (mut first, mut second) = (deal.stripe(0), deal.stripe(1));
        assert!(first.poll_next_unpin(&mut context).is_pending());
        assert!(second.poll_next_unpin(&mut context).is_pending());
        drop(first);
        assert!(woken.0.swap(0, Relaxed) > 0);
        assert!(second.poll_next_unpin(&mut context).is_pending());
        sender.unbounded_send(AppendPart::default()).unwrap();
        assert!(woken.0.swap(0, Relaxed) > 0);
        assert!(second.poll_next_unpin(&mut context).is_ready());
        assert!(!deal.has_used(0) && deal.has_used(1));
    }
}
