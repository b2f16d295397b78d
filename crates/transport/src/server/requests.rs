//! An append stream as the engine reads it: whole requests, until the stream ends or something is
//! wrong with it. What was wrong is kept for the answers, which say it after those that are due.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures::{Stream, StreamExt};
use openraft::raft::AppendEntriesRequest;
use raft_types::TypeConfig;
use tonic::{Status, Streaming};

use crate::schema::AppendPart;
use crate::wire::Assembly;

/// Why a stream was ended from here.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndReason(Arc<Mutex<Option<Status>>>);

impl EndReason {
    fn set(&self, status: Status) {
        let mut reason = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reason.get_or_insert(status);
    }

    pub(crate) fn take(&self) -> Option<Status> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// See the module.
pub(crate) struct Requests {
    parts: Option<Streaming<AppendPart>>,
    assembly: Assembly,
    end: EndReason,
}

impl Requests {
    pub(crate) fn new(parts: Streaming<AppendPart>, end: EndReason) -> Self {
        Self {
            parts: Some(parts),
            assembly: Assembly::default(),
            end,
        }
    }
}

impl Stream for Requests {
    type Item = AppendEntriesRequest<TypeConfig>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        while let Some(parts) = &mut this.parts {
            let part = match ready!(parts.poll_next_unpin(context)) {
                Some(Ok(part)) => part,
                // The caller is gone, and with it whoever would read a reason.
                Some(Err(_)) | None => break,
            };
            match this.assembly.push(part) {
                Ok(Some(request)) => return Poll::Ready(Some(request)),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "a leader's stream of entries is refused");
                    this.end.set(Status::data_loss(error.to_string()));
                    break;
                }
            }
        }
        this.parts = None;
        Poll::Ready(None)
    }
}
