//! A link: a TCP forwarder in front of a member for one caller, which counts what passes, and lets it take its time. Bytes keep
//! their order, and as many as the two ends send are on their way at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::links::Counter;
use super::postman::Postman;

/// What one reading brings at most.
const MOST_READ: usize = 256 << 10;

/// See the module. With it go its connections.
pub(crate) struct Forwarder {
    address: SocketAddr,
    accepting: AbortHandle,
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// What happens to the bytes.
#[derive(Clone)]
pub(crate) struct Journey {
    pub(crate) postman: Postman,
    pub(crate) one_way: Duration,
    pub(crate) there: Arc<Counter>,
    pub(crate) back: Arc<Counter>,
}

impl Forwarder {
    /// Forwards to `target`.
    pub(crate) async fn start(target: SocketAddr, journey: Journey) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            // Dropped with this task, and the connections with it.
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

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn connect(caller: TcpStream, target: SocketAddr, journey: Journey) {
    // A connection that fails is closed: the caller sees that, and makes another.
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

/// Reads what is sent, and lets it be there after its time; the end of it too.
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
        journey.postman.after(journey.one_way, move || {
            // Nobody is there any more: the sender will see the same.
            let _ = to.send(bytes);
        });
    }
    journey.postman.after(journey.one_way, move || drop(to));
}

async fn arrive(mut arriving: mpsc::UnboundedReceiver<Bytes>, mut to: OwnedWriteHalf) {
    while let Some(bytes) = arriving.recv().await {
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
