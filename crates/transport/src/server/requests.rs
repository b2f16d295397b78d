//! An append stream as the engine reads it: whole requests, until the stream ends or something is
//! wrong with it. What was wrong is kept for the answers, which say it after those that are due.

use std::collections::VecDeque;
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

/// Which of the requests that the engine has taken and not answered want a report, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted(Arc<Mutex<VecDeque<bool>>>);

impl Wanted {
    fn push(&self, wants_report: bool) {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.push_back(wants_report);
    }

    /// Whether the answer that is due brings a report.
    pub(crate) fn take(&self) -> bool {
        let mut wanted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.pop_front().unwrap_or(false)
    }
}

/// See the module.
pub(crate) struct Requests {
    parts: Option<Streaming<AppendPart>>,
    assembly: Assembly,
    /// What the head of the request that is being put together says.
    wants_report: bool,
    wanted: Wanted,
    end: EndReason,
}

impl Requests {
    pub(crate) fn new(parts: Streaming<AppendPart>, wanted: Wanted, end: EndReason) -> Self {
        Self {
            parts: Some(parts),
            assembly: Assembly::default(),
            wants_report: false,
            wanted,
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
            if let Some(head) = &part.head {
                this.wants_report = head.wants_report;
            }
            match this.assembly.push(part) {
                Ok(Some(request)) => {
                    this.wanted.push(this.wants_report);
                    return Poll::Ready(Some(request));
                }
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
