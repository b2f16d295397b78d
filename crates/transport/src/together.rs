//! Batches messages that are ready concurrently: a network frame costs more than a small message.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Most messages in one frame.
const MOST: usize = 256;

/// Aborts a task when the stream that it serves is dropped.
pub(crate) struct AbortOnDrop(pub(crate) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The messages of a channel, batched by availability. Before a batch is sent, other senders get a turn.
pub(crate) struct Together<T> {
    queue: mpsc::UnboundedReceiver<T>,
    ready: Vec<T>,
    others_had_a_turn: bool,
}

impl<T> Together<T> {
    pub(crate) fn new(queue: mpsc::UnboundedReceiver<T>) -> Self {
        Self {
            queue,
            ready: Vec::new(),
            others_had_a_turn: false,
        }
    }
}

impl<T: Unpin> Stream for Together<T> {
    type Item = Vec<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Vec<T>>> {
        let this = &mut *self;
        let room = MOST - this.ready.len();
        let ended = match this.queue.poll_recv_many(context, &mut this.ready, room) {
            Poll::Ready(received) => received == 0,
            Poll::Pending => false,
        };
        if this.ready.is_empty() {
            return if ended {
                Poll::Ready(None)
            } else {
                Poll::Pending
            };
        }
        if !this.others_had_a_turn && !ended && this.ready.len() < MOST {
            this.others_had_a_turn = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        this.others_had_a_turn = false;
        Poll::Ready(Some(std::mem::take(&mut this.ready)))
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[tokio::test]
    async fn ready_messages_share_a_frame_in_order() {
        let (sender, queue) = mpsc::unbounded_channel();
        let mut together = Together::new(queue);
        for number in 0..3 {
            sender.send(number).unwrap();
        }
        assert_eq!(together.next().await, Some(vec![0, 1, 2]));
        let later = sender.clone();
        tokio::spawn(async move {
            later.send(3).unwrap();
            tokio::spawn(async move { later.send(4).unwrap() });
        });
        assert_eq!(together.next().await, Some(vec![3, 4]));
        for number in 0..300 {
            sender.send(number).unwrap();
        }
        assert_eq!(together.next().await.map(|list| list.len()), Some(MOST));
        drop(sender);
        assert_eq!(
            together.next().await.map(|list| list.len()),
            Some(300 - MOST)
        );
        assert_eq!(together.next().await, None);
    }
}
