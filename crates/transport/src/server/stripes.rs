//! Restores the order of a message stream that arrives over several connections (`client/stripes.rs`).
//!
//! The first connection opens the stream, and states the maximum number of connections. The others may join with the stream's number. One
//! message of each connection is buffered until its turn; later messages wait in the connection. If a connection breaks, the stream ends.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::stream::BoxStream;
use futures::{FutureExt, Stream, StreamExt};
use raft_types::{MemberId, lock};
use tokio::sync::oneshot;
use tonic::Status;

use crate::schema::AppendPart;

/// Maximum number of connections of a stream.
const MOST_STRIPES: u32 = 16;

/// The messages of one connection.
pub(crate) type Parts = BoxStream<'static, Result<AppendPart, Status>>;

/// A stream, identified by the sending member and the number that this member chose.
pub(crate) type Session = (MemberId, u64);

/// The connections that may still join open streams.
#[derive(Default, Clone)]
pub(crate) struct Expected(Arc<Mutex<Awaiting>>);

/// Senders for joining connections, by stream and number of the connection.
type Awaiting = HashMap<(Session, u32), oneshot::Sender<Arrived>>;

/// A connection that has joined its stream.
struct Arrived {
    parts: Parts,
    /// Dropped when the stream no longer reads this connection.
    read: oneshot::Sender<()>,
}

impl Expected {
    /// Opens a stream of `stripes` connections at most, with its first connection.
    ///
    /// # Errors
    /// The number of connections is above the limit.
    pub(crate) fn open(
        &self,
        session: Session,
        stripes: u32,
        first: Parts,
    ) -> Result<Merged, Status> {
        if !(1..=MOST_STRIPES).contains(&stripes) {
            let message = format!("{stripes} connections for one stream of entries");
            return Err(Status::invalid_argument(message));
        }
        let mut all = vec![Stripe::here(first, None)];
        let mut expected = lock(&self.0);
        for number in 1..stripes {
            let (arrives, awaited) = oneshot::channel();
            expected.insert((session, number), arrives);
            all.push(Stripe::Awaited(awaited));
        }
        drop(expected);
        Ok(Merged {
            stripes: all,
            next: 0,
            session,
            expected: self.clone(),
        })
    }

    /// Adds a further connection to its stream. Returns when the stream no longer reads the connection.
    ///
    /// # Errors
    /// No such stream is open.
    pub(crate) async fn arrives(
        &self,
        session: Session,
        number: u32,
        parts: Parts,
    ) -> Result<(), Status> {
        let awaited = lock(&self.0).remove(&(session, number));
        let (read, ended) = oneshot::channel();
        let arrived = Arrived { parts, read };
        let gone = || Status::failed_precondition("the stream of entries is no longer open");
        let sent = awaited.ok_or_else(gone)?.send(arrived);
        sent.map_err(|_| gone())?;
        // No value is ever sent; the wait ends when the sender is dropped.
        let _ = ended.await;
        Ok(())
    }
}

/// The messages of all connections of a stream in order: see the module documentation.
pub(crate) struct Merged {
    stripes: Vec<Stripe>,
    /// The number of the next message.
    next: u64,
    session: Session,
    expected: Expected,
}

enum Stripe {
    Awaited(oneshot::Receiver<Arrived>),
    Here {
        parts: Parts,
        held: Option<AppendPart>,
        _read: Option<oneshot::Sender<()>>,
    },
    Ended,
}

impl Stripe {
    fn here(parts: Parts, read: Option<oneshot::Sender<()>>) -> Self {
        Self::Here {
            parts,
            held: None,
            _read: read,
        }
    }

    /// Buffers the next message of this connection, if one is available.
    fn buffer_next(&mut self, context: &mut Context<'_>) -> Result<(), Status> {
        if let Self::Awaited(awaited) = self {
            match awaited.poll_unpin(context) {
                Poll::Ready(Ok(Arrived { parts, read })) => *self = Self::here(parts, Some(read)),
                Poll::Ready(Err(_)) => *self = Self::Ended,
                Poll::Pending => {}
            }
        }
        let Self::Here { parts, held, .. } = self else {
            return Ok(());
        };
        if held.is_none()
            && let Poll::Ready(part) = parts.poll_next_unpin(context)
        {
            match part.transpose()? {
                Some(part) => *held = Some(part),
                None => *self = Self::Ended,
            }
        }
        Ok(())
    }

    /// Returns the buffered message of this connection, if it has this number.
    fn take(&mut self, number: u64) -> Option<AppendPart> {
        match self {
            Self::Here { held, .. } => held.take_if(|part| part.number == number),
            Self::Awaited(_) | Self::Ended => None,
        }
    }
}

impl Stream for Merged {
    type Item = Result<AppendPart, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<AppendPart, Status>>> {
        let this = &mut *self;
        for stripe in &mut this.stripes {
            if let Err(status) = stripe.buffer_next(context) {
                return Poll::Ready(Some(Err(status)));
            }
            if let Some(part) = stripe.take(this.next) {
                this.next += 1;
                return Poll::Ready(Some(Ok(part)));
            }
        }
        // The sender closes all connections together. Connections that never joined have carried no message.
        let is_here = |stripe: &Stripe| matches!(stripe, Stripe::Here { .. });
        match this.stripes.iter().any(is_here) {
            true => Poll::Pending,
            false => Poll::Ready(None),
        }
    }
}

impl Drop for Merged {
    fn drop(&mut self) {
        let mut expected = lock(&self.expected.0);
        for number in (1..).take(self.stripes.len()) {
            expected.remove(&(self.session, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    const SESSION: Session = (MemberId(1), 7);

    fn part(number: u64) -> AppendPart {
        AppendPart {
            number,
            ..AppendPart::default()
        }
    }

    fn parts(numbers: &[u64]) -> Parts {
        let all: Vec<_> = numbers.iter().map(|number| Ok(part(*number))).collect();
        // Each connection ends only after the messages of the others.
        stream::iter(all).chain(stream::pending()).boxed()
    }

    #[tokio::test]
    async fn messages_of_three_connections_keep_their_order() {
        let expected = Expected::default();
        let mut merged = expected.open(SESSION, 4, parts(&[0, 1, 4, 8])).unwrap();
        let arrive = |number, numbers: &'static [u64]| {
            let expected = expected.clone();
            tokio::spawn(async move { expected.arrives(SESSION, number, parts(numbers)).await })
        };
        let third = arrive(2, &[3, 5, 6]);
        for number in [0, 1] {
            assert_eq!(merged.next().await.unwrap().unwrap().number, number);
        }
        let reading = tokio::spawn(async move {
            let read: Vec<_> = merged.by_ref().take(7).collect().await;
            (merged, read)
        });
        tokio::task::yield_now().await;
        let second = arrive(1, &[2, 7]);
        let (merged, read) = reading.await.unwrap();
        let read: Vec<u64> = read.into_iter().map(|part| part.unwrap().number).collect();
        assert_eq!(read, [2, 3, 4, 5, 6, 7, 8]);
        // The last connection never joined.
        drop(merged);
        second.await.unwrap().unwrap();
        third.await.unwrap().unwrap();
        let late = expected.arrives(SESSION, 3, parts(&[9])).await;
        assert!(late.unwrap_err().message().contains("no longer open"));
    }

    #[tokio::test]
    async fn a_broken_connection_ends_the_stream() {
        let expected = Expected::default();
        let mut merged = expected.open(SESSION, 3, parts(&[0, 3])).unwrap();
        let broken = stream::iter([Ok(part(1)), Err(Status::unavailable("it broke"))]).boxed();
        let arrives = expected.arrives(SESSION, 1, broken);
        let read = async {
            let mut read = Vec::new();
            while let Some(Ok(part)) = merged.next().await {
                read.push(part.number);
            }
            drop(merged);
            read
        };
        let (read, ended) = tokio::join!(read, arrives);
        assert_eq!(read, [0, 1]);
        ended.unwrap();
        assert!(lock(&expected.0).is_empty());
        assert!(
            expected
                .open(SESSION, MOST_STRIPES + 1, parts(&[]))
                .is_err()
        );
    }

    #[tokio::test]
    async fn the_sender_ends_a_stream() {
        let expected = Expected::default();
        let first = stream::iter([Ok(part(0))]).boxed();
        let merged = expected.open(SESSION, 2, first).unwrap();
        let read: Vec<_> = merged.collect().await;
        assert_eq!(read.len(), 1);
    }
}
