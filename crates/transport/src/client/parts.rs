//! The engine's requests as a stream of messages. It is polled by the connection, so nothing stands
//! between the engine and the socket but the cutting.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::{Stream, StreamExt};

use super::link_bytes::LinkCounters;
use super::window::Window;
use crate::schema::AppendPart;
use crate::wire::{PackedRequest, Splitter};

/// See the module.
pub(crate) struct Parts<S> {
    requests: S,
    window: Arc<Window>,
    counters: Arc<LinkCounters>,
    current: Option<Splitter>,
    ended: bool,
}

impl<S> Parts<S> {
    pub(crate) fn new(requests: S, window: Arc<Window>, counters: Arc<LinkCounters>) -> Self {
        Self {
            requests,
            window,
            counters,
            current: None,
            ended: false,
        }
    }
}

impl<S> Stream for Parts<S>
where
    S: Stream<Item = PackedRequest> + Unpin,
{
    type Item = AppendPart;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<AppendPart>> {
        let this = &mut *self;
        while !this.ended {
            let Some(splitter) = &mut this.current else {
                let request = ready!(this.requests.poll_next_unpin(context));
                this.ended = request.is_none();
                this.current = request.map(Splitter::new);
                continue;
            };
            // Within an entry, HTTP/2's own window holds the sender back.
            if !splitter.is_inside_entry() {
                ready!(this.window.poll_room(context));
            }
            match splitter.next_part() {
                Ok(Some(part)) => {
                    this.window.sent(part.ends_request_of);
                    this.counters.entries(&part.message);
                    return Poll::Ready(Some(part.message));
                }
                Ok(None) => this.current = None,
                Err(error) => {
                    this.window.fail(error.to_string());
                    this.ended = true;
                }
            }
        }
        Poll::Ready(None)
    }
}
