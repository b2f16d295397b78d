//! The engine's requests with their payloads packed, where they go to another region.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use consensus::log_probe::Asked;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use raft_types::{AppEntry, EntryPayload};

use crate::compression::Packer;
use crate::wire::PackedRequest;

/// See the module.
pub(crate) struct Packing<S> {
    requests: S,
    /// None: everything travels as it is.
    packer: Option<Arc<Packer>>,
    current: Option<BoxFuture<'static, PackedRequest>>,
}

impl<S> Packing<S> {
    pub(crate) fn new(requests: S, packer: Option<Arc<Packer>>) -> Self {
        Self {
            requests,
            packer,
            current: None,
        }
    }
}

impl<S> Stream for Packing<S>
where
    S: Stream<Item = Asked> + Unpin,
{
    type Item = PackedRequest;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<PackedRequest>> {
        let this = &mut *self;
        loop {
            if let Some(current) = &mut this.current {
                let packed = ready!(current.poll_unpin(context));
                this.current = None;
                return Poll::Ready(Some(packed));
            }
            let Some(asked) = ready!(this.requests.poll_next_unpin(context)) else {
                return Poll::Ready(None);
            };
            match &this.packer {
                None => return Poll::Ready(Some(asked.into())),
                Some(packer) => this.current = Some(pack(packer.clone(), asked).boxed()),
            }
        }
    }
}

async fn pack(packer: Arc<Packer>, asked: Asked) -> PackedRequest {
    let mut packed = Vec::with_capacity(asked.request.entries.len());
    for entry in &asked.request.entries {
        packed.push(match &entry.payload {
            EntryPayload::Normal(AppEntry::Transaction(payload)) => {
                packer.pack(entry.log_id.into(), payload.bytes()).await
            }
            _ => None,
        });
    }
    PackedRequest { asked, packed }
}
