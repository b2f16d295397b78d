//! That something is committed is news of few bytes, for which a frame on a long link is dear. To a member behind a proxy it
//! waits a moment for the next request, which says it too. What is left out here was never asked: nobody counts on an answer to
//! it, so this stands before a session takes note of what it sends.

use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use tokio::time::{Instant, timeout_at};

use crate::request::{ProxyRequest, Stripped};

/// Short beside the way to another region, long beside the time between the commits of a busy ring.
const WAITS: Duration = Duration::from_millis(10);

/// The requests without those that the next one makes needless. The first goes at once: it opens the session.
pub(crate) fn joined(
    requests: BoxStream<'static, Stripped>,
) -> impl Stream<Item = Stripped> + Send + 'static {
    let state = (requests.fuse(), None, true);
    stream::unfold(state, |(mut requests, held, first)| async move {
        let mut going: Stripped = match held {
            Some(held) => held,
            None => requests.next().await?,
        };
        let until = Instant::now() + WAITS;
        let mut held = None;
        while !first && held.is_none() && is_news_alone(&going.request) {
            match timeout_at(until, requests.next()).await {
                Ok(Some(next)) if says_all_of(&next.request, &going.request) => going = next,
                Ok(Some(next)) => held = Some(next),
                Ok(None) | Err(_) => break,
            }
        }
        Some((going, (requests, held, false)))
    })
}

fn is_news_alone(request: &ProxyRequest) -> bool {
    request.is_empty() && !request.wants_report
}

/// Whether a request says all that the one before it, which is news alone, says.
fn says_all_of(next: &ProxyRequest, news: &ProxyRequest) -> bool {
    next.vote == news.vote
        && next.previous == news.previous
        && next.leader_commit >= news.leader_commit
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;

    use super::*;
    use crate::request::samples::{self, at};

    fn request(previous: u64, last: u64, commit: u64) -> Stripped {
        let mut stripped = samples::request(previous, last);
        stripped.request.leader_commit = Some(at(commit));
        stripped
    }

    async fn joined_all(requests: Vec<Stripped>) -> Vec<Stripped> {
        joined(stream::iter(requests).boxed()).collect().await
    }

    #[tokio::test]
    async fn news_goes_with_the_next_request() {
        let entries = [request(4, 5, 4), request(5, 6, 5)];
        let last = request(6, 6, 6);
        let sent = vec![
            entries[0].clone(),
            request(5, 5, 5),
            entries[1].clone(),
            // Two of them are one.
            request(6, 6, 5),
            last.clone(),
        ];
        let expected: Vec<_> = entries.into_iter().chain([last]).collect();
        assert_eq!(joined_all(sent).await, expected);
    }

    #[tokio::test]
    async fn what_the_next_request_does_not_say_is_said() {
        let mut wanting = request(6, 6, 6);
        wanting.request.wants_report = true;
        let sent = vec![
            // The first goes at once.
            request(5, 5, 5),
            request(5, 6, 5),
            // Elsewhere in the log.
            request(6, 6, 6),
            request(3, 4, 6),
            // A report is asked for.
            wanting,
            request(6, 7, 6),
            // An earlier commit.
            request(7, 7, 7),
            request(7, 8, 6),
        ];
        assert_eq!(joined_all(sent.clone()).await, sent);
    }

    #[tokio::test]
    async fn news_without_a_next_request_does_not_wait_for_one() {
        let (sender, requests) = mpsc::unbounded();
        let mut joined = Box::pin(joined(requests.boxed()));
        for sent in [request(5, 6, 5), request(6, 6, 6)] {
            sender.unbounded_send(sent.clone()).unwrap();
            assert_eq!(joined.next().await, Some(sent));
        }
        drop(sender);
        assert_eq!(joined.next().await, None);
    }
}
