//! One stream of messages over several connections.
//!
//! A system bounds what is under way on one connection, and a lost packet slows one connection down. So what goes to another region
//! may go over a few. Messages are numbered, and each goes over the first connection that has room: while one is enough, all go over
//! one. The other end has them in their order again (`server/stripes.rs`).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use futures::{Stream, StreamExt};

use crate::schema::AppendPart;

/// One connection's share of a stream.
pub(crate) struct Stripe<S> {
    number: usize,
    deal: Arc<Mutex<Deal<S>>>,
}

struct Deal<S> {
    messages: S,
    next: u64,
    ended: bool,
    /// The stripes that have room and wait for a message.
    waiting: Vec<Option<Waker>>,
}

impl<S> Deal<S> {
    fn wake_one(&mut self) {
        let first = self.waiting.iter_mut().find_map(Option::take);
        first.into_iter().for_each(Waker::wake);
    }

    fn wake_all(&mut self) {
        let all = self.waiting.iter_mut().filter_map(Option::take);
        all.for_each(Waker::wake);
    }
}

/// Deals a stream out to so many connections.
pub(crate) fn deal<S>(messages: S, stripes: u32) -> Vec<Stripe<S>> {
    let stripes = stripes as usize;
    let deal = Arc::new(Mutex::new(Deal {
        messages,
        next: 0,
        ended: false,
        waiting: vec![None; stripes],
    }));
    let stripe = |number| Stripe {
        number,
        deal: Arc::clone(&deal),
    };
    (0..stripes).map(stripe).collect()
}

/// A number that no other stream of any process has.
pub(crate) fn new_session() -> u64 {
    // Hashers are seeded at random.
    RandomState::new().build_hasher().finish()
}

impl<S: Stream<Item = AppendPart> + Unpin> Stream for Stripe<S> {
    type Item = AppendPart;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<AppendPart>> {
        let mut deal = self.deal.lock().unwrap_or_else(PoisonError::into_inner);
        if deal.ended {
            return Poll::Ready(None);
        }
        deal.waiting[self.number] = Some(context.waker().clone());
        // One before it has room as well, and has asked.
        if deal.waiting[..self.number].iter().any(Option::is_some) {
            return Poll::Pending;
        }
        let message = ready!(deal.messages.poll_next_unpin(context));
        deal.waiting[self.number] = None;
        let Some(mut message) = message else {
            deal.ended = true;
            deal.wake_all();
            return Poll::Ready(None);
        };
        message.number = deal.next;
        deal.next += 1;
        // This one may have no room for another, and does not ask then.
        deal.wake_one();
        Poll::Ready(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    use futures::channel::mpsc;

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn the_first_that_has_room_gets_the_message_and_all_end() {
        let (sender, messages) = mpsc::unbounded();
        let mut stripes = deal(messages, 3);
        let wakes: Vec<Arc<Counted>> = (0..3).map(|_| Arc::default()).collect();
        let mut poll = |stripe: usize| {
            let waker = Waker::from(wakes[stripe].clone());
            let polled = stripes[stripe].poll_next_unpin(&mut Context::from_waker(&waker));
            polled.map(|message| message.map(|message| message.number))
        };
        let woken = |stripe: usize| wakes[stripe].0.swap(0, Relaxed) > 0;
        // In whichever order they begin to wait.
        for stripe in [1, 0, 2] {
            assert_eq!(poll(stripe), Poll::Pending);
        }
        sender.unbounded_send(AppendPart::default()).unwrap();
        assert!(woken(0) && !woken(1) && !woken(2));
        assert_eq!(poll(0), Poll::Ready(Some(0)));
        // The first has no room for another: the second one asks.
        assert!(woken(1) && !woken(2));
        assert_eq!(poll(1), Poll::Pending);
        sender.unbounded_send(AppendPart::default()).unwrap();
        assert!(woken(1));
        assert_eq!(poll(1), Poll::Ready(Some(1)));
        // It has room again.
        assert!(woken(2));
        assert_eq!(poll(2), Poll::Pending);
        assert_eq!(poll(0), Poll::Pending);
        sender.unbounded_send(AppendPart::default()).unwrap();
        assert!(woken(0));
        assert_eq!(poll(0), Poll::Ready(Some(2)));
        drop(sender);
        assert_eq!(poll(2), Poll::Ready(None));
        assert_eq!([poll(0), poll(1)], [Poll::Ready(None); 2]);
    }
}
