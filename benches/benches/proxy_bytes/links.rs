//! Counts the traffic over each link between two members.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use raft_types::MemberId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::delay_timer::DelayTimer;

/// The largest TCP payload of a segment on Ethernet, with timestamps.
const SEGMENT_BYTES: u64 = 1448;
/// The size of the headers of IPv4 and of TCP with timestamps.
const SEGMENT_HEADER_BYTES: u64 = 52;

/// The purpose of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// A member's own messages: entries, heartbeats, votes.
    Own,
    /// Sessions with a proxy for the proxy's destinations.
    Proxied,
}

/// Which of the two members sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Heading {
    /// The caller sends.
    There,
    /// The callee sends.
    Back,
}

/// One direction of a link: `from` calls `to`, and one of them sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LinkId {
    pub(crate) from: MemberId,
    pub(crate) to: MemberId,
    pub(crate) lane: Lane,
    pub(crate) heading: Heading,
}

/// The traffic over a link, summed over all its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Bytes of TCP payload, which includes HTTP/2 and gRPC.
    pub(crate) bytes: u64,
    /// The number of reads by the forwarder, about as many as writes by the members.
    pub(crate) messages: u64,
    /// The smallest number of TCP segments that these reads need.
    segments: u64,
}

impl Count {
    /// Returns the bytes with TCP and IP headers, without pure acknowledgements.
    pub(crate) fn bytes_with_headers(self) -> u64 {
        self.bytes + self.segments * SEGMENT_HEADER_BYTES
    }
}

impl Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            messages: self.messages + other.messages,
            segments: self.segments + other.segments,
        }
    }
}

impl Sub for Count {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            bytes: self.bytes - other.bytes,
            messages: self.messages - other.messages,
            segments: self.segments - other.segments,
        }
    }
}

impl std::iter::Sum for Count {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}

/// The counter of a link in use.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    bytes: AtomicU64,
    messages: AtomicU64,
    segments: AtomicU64,
}

impl Counter {
    pub(crate) fn read(&self, bytes: usize) {
        let bytes = bytes as u64;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.messages.fetch_add(1, Ordering::Relaxed);
        let segments = bytes.div_ceil(SEGMENT_BYTES);
        self.segments.fetch_add(segments, Ordering::Relaxed);
    }

    fn now(&self) -> Count {
        Count {
            bytes: self.bytes.load(Ordering::Relaxed),
            messages: self.messages.load(Ordering::Relaxed),
            segments: self.segments.load(Ordering::Relaxed),
        }
    }
}

/// All links of a ring.
#[derive(Debug, Default)]
pub(crate) struct Links(BTreeMap<LinkId, Arc<Counter>>);

impl Links {
    pub(crate) fn counter(&mut self, link: LinkId) -> Arc<Counter> {
        self.0.entry(link).or_default().clone()
    }

    pub(crate) fn now(&self) -> Counts {
        let counts = self.0.iter().map(|(link, counter)| (*link, counter.now()));
        Counts(counts.collect())
    }
}

/// The traffic over all links until some time, or between two times.
#[derive(Clone, Debug)]
pub(crate) struct Counts(BTreeMap<LinkId, Count>);

impl Counts {
    /// Returns the traffic after `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let later = self.0.iter().map(|(link, count)| {
            let before = earlier.0.get(link).copied().unwrap_or_default();
            (*link, *count - before)
        });
        Self(later.collect())
    }

    /// Returns the traffic over all links for which `wanted` is true.
    pub(crate) fn over(&self, wanted: impl Fn(&LinkId) -> bool) -> Count {
        let links = self.0.iter().filter(|(link, _)| wanted(link));
        links.map(|(_, count)| *count).sum()
    }
}

// A link: a TCP forwarder in front of a member for one caller, which counts and delays traffic. Bytes keep their order. Only the two
// members limit the bytes in flight.

/// The most bytes of one read.
const MOST_READ: usize = 256 << 10;

/// One link. Dropping it closes its connections.
pub(crate) struct Forwarder {
    address: SocketAddr,
    accepting: AbortHandle,
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// How bytes are delayed and counted.
#[derive(Clone)]
pub(crate) struct Journey {
    pub(crate) delay_timer: DelayTimer,
    pub(crate) one_way: Duration,
    pub(crate) there: Arc<Counter>,
    pub(crate) back: Arc<Counter>,
}

impl Forwarder {
    /// Starts a forwarder to `target`.
    pub(crate) async fn start(target: SocketAddr, journey: Journey) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            // The connections are dropped and closed together with this task.
            let mut connections = JoinSet::new();
            while let Ok((caller, _)) = listener.accept().await {
                connections.spawn(connect(caller, target, journey.clone()));
            }
        });
        Ok(Self {
            address,
            accepting: accepting.abort_handle(),
        })
    }

    /// Returns the address on which the forwarder listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn connect(caller: TcpStream, target: SocketAddr, journey: Journey) {
    // If connecting fails, the caller's connection is closed. The caller observes that and connects again.
    let Ok(member) = TcpStream::connect(target).await else {
        return;
    };
    if caller.set_nodelay(true).is_err() || member.set_nodelay(true).is_err() {
        return;
    }
    let (from_caller, to_caller) = caller.into_split();
    let (from_member, to_member) = member.into_split();
    let (there, arriving_there) = mpsc::unbounded_channel();
    let (back, arriving_back) = mpsc::unbounded_channel();
    tokio::join!(
        depart(from_caller, there, &journey, &journey.there),
        arrive(arriving_there, to_member),
        depart(from_member, back, &journey, &journey.back),
        arrive(arriving_back, to_caller),
    );
}

/// Reads the bytes that one side sends, and delivers them after the delay, including the end of the stream.
async fn depart(
    mut from: OwnedReadHalf,
    to: mpsc::UnboundedSender<Bytes>,
    journey: &Journey,
    counter: &Counter,
) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(MOST_READ);
        match from.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(length) => counter.read(length),
        }
        let (bytes, to) = (buffer.split().freeze(), to.clone());
        journey.delay_timer.after(journey.one_way, move || {
            // The receiving side has ended; the sender will observe that, too.
            let _ = to.send(bytes);
        });
    }
    journey.delay_timer.after(journey.one_way, move || drop(to));
}

async fn arrive(mut arriving: mpsc::UnboundedReceiver<Bytes>, mut to: OwnedWriteHalf) {
    while let Some(bytes) = arriving.recv().await {
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
