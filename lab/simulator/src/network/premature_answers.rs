//! The exchange of [`Mutation::CommitOnAMinority`]: every request counts as answered when it is sent. Real answers are used only if they
//! are refusals.
//!
//! [`Mutation::CommitOnAMinority`]: crate::mutation::Mutation::CommitOnAMinority

use std::time::Duration;

use consensus::log_probe::{Answered, Asked, RpcResult};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use raft_types::MemberId;
use tokio::sync::mpsc;

use super::answers::exchange;
use super::pending_calls::{PendingCalls, WINDOW};

pub(super) fn counted_unseen<S>(
    pending: PendingCalls,
    to: MemberId,
    dead_after: Duration,
    requests: S,
) -> BoxStream<'static, RpcResult<Answered>>
where
    S: Stream<Item = Asked> + Send + Unpin + 'static,
{
    let (count, mut counted) = mpsc::channel(WINDOW);
    let requests = requests.then(move |asked| {
        let count = count.clone();
        async move {
            let matching = asked.request.entries.last().map(|last| last.log_id);
            let matching = matching.or(asked.request.prev_log_id);
            let answered = Answered {
                result: Ok(matching),
                report: None,
            };
            // After the end of the stream, there is no receiver.
            let _ = count.send(Ok(answered)).await;
            asked
        }
    });
    let counted = stream::poll_fn(move |context| counted.poll_recv(context));
    let real = exchange(pending, to, dead_after, Box::pin(requests));
    let objections = real.filter_map(|answer| async move {
        let objects = answer
            .as_ref()
            .is_ok_and(|answered| answered.result.is_err());
        objects.then_some(answer)
    });
    stream::select(counted, objections).boxed()
}
