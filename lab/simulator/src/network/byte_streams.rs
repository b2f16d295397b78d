//! The connections of the real transport: bidirectional byte streams over the links, as with TCP. Bytes arrive in order or not at all. Lost
//! bytes are retransmitted, with increasing delay. If a process has ended, its host answers with a reset. If a host is off or cut off,
//! there is no answer, and the other end does not notice. The same applies if a device on the way, such as a firewall, has dropped the
//! connection's state.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use fastrand::Rng;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use raft_types::MemberId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};
use transport::{ByteStream, Listening, Streams};

use crate::dice::pick;
use crate::network::links::{Fate, Links};
use crate::network::message_queue::MessageQueue;
use crate::record::Record;
use crate::shared::Shared;
use crate::tick::Tick;

/// Delay of the first retransmission, in steps. The delay doubles each time.
const FIRST_RETRY: u64 = 40;
/// Maximum delay of a retransmission, in steps. It limits how long a repaired link goes unnoticed.
const LONGEST_RETRY: u64 = 320;

/// All connections. Clones share them.
#[derive(Clone)]
pub(crate) struct ByteStreams {
    state: Shared<State>,
    queue: MessageQueue,
    record: Record,
}

struct State {
    dice: Rng,
    /// Maximum number of bytes in one direction that are in flight or unread.
    window: usize,
    next: u64,
    connections: BTreeMap<u64, Connection>,
    /// The connection attempts in progress.
    connecting: Vec<Connecting>,
    /// The processes that listen.
    listeners: BTreeMap<MemberId, mpsc::UnboundedSender<(ByteStream, SocketAddr)>>,
}

type Connected = io::Result<ByteStream>;

/// A connection attempt: the request to the listener, or the answer to it.
struct Connecting {
    from: MemberId,
    to: MemberId,
    at: Tick,
    tries: u32,
    answer: Option<Connected>,
    caller: oneshot::Sender<Connected>,
    given_up_after: Option<Duration>,
}

/// A connection with its two directions: from the caller, and to the caller.
struct Connection {
    directions: [Direction; 2],
    /// True if a device on the way has dropped the connection's state. It then forwards nothing.
    forgotten: bool,
}

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    from: MemberId,
    to: MemberId,
    /// True if the sending end was dropped.
    abandoned: bool,
    under_way: VecDeque<Segment>,
    /// When bytes in flight last arrived, or were sent while none were in flight.
    moved: Tick,
    given_up_after: Option<Duration>,
    arrived: BytesMut,
    /// The end of the stream, which follows the arrived bytes.
    over: Option<Over>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

struct Segment {
    at: Tick,
    tries: u32,
    content: Content,
}

enum Content {
    Bytes(Bytes),
    End,
    Reset,
}

impl Content {
    fn length(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::End | Self::Reset => 0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Ended,
    Failed(io::ErrorKind),
}

impl Direction {
    fn new(from: MemberId, to: MemberId, given_up_after: Option<Duration>) -> Self {
        Self {
            from,
            to,
            given_up_after,
            ..Self::default()
        }
    }

    /// Returns the number of bytes that count for the window.
    fn held(&self) -> usize {
        let under_way = self.under_way.iter();
        let under_way = under_way.map(|segment| segment.content.length());
        under_way.sum::<usize>() + self.arrived.len()
    }

    fn ends(&mut self, over: Over, woken: &mut Vec<Waker>) {
        self.over.get_or_insert(over);
        woken.extend(self.reader.take());
        woken.extend(self.writer.take());
    }

    /// The sender's host has closed the connection, and answers an arriving segment with a reset at `at`, after the bytes in flight. Lost
    /// bytes are not retransmitted. The host answers each segment, but only the first reset counts; later resets must not delay it.
    fn answers_with_a_reset(&mut self, at: Tick, now: Tick) {
        let is_reset = |segment: &Segment| matches!(segment.content, Content::Reset);
        if self.under_way.iter().any(is_reset) {
            return;
        }
        let is_lost = |segment: &Segment| segment.tries > 0;
        if let Some(lost) = self.under_way.iter().position(is_lost) {
            self.under_way.truncate(lost);
        }
        self.push(at, 0, Content::Reset, now);
    }

    /// Adds a segment after the segments in flight.
    fn push(&mut self, at: Tick, tries: u32, content: Content, now: Tick) {
        if self.under_way.is_empty() {
            self.moved = now;
        }
        let last = self.under_way.back().map_or(at, |last| last.at);
        let at = at.max(last);
        self.under_way.push_back(Segment { at, tries, content });
    }
}

impl ByteStreams {
    pub(crate) fn new(queue: MessageQueue, mut dice: Rng, record: Record) -> Self {
        let window = *pick(&mut dice, &[16 << 10, 128 << 10, 4 << 20]);
        record.note(&format!("a connection holds {window} bytes"));
        Self {
            state: Shared::new(State {
                dice,
                window,
                next: 1,
                connections: BTreeMap::new(),
                connecting: Vec::new(),
                listeners: BTreeMap::new(),
            }),
            queue,
            record,
        }
    }

    /// Begins to listen for a member's process. Dropping the result ends that.
    pub(crate) fn listen(&self, member: MemberId) -> Listening {
        let (listener, callers) = mpsc::unbounded_channel();
        self.state.lock().listeners.insert(member, listener);
        let callers = stream::unfold(callers, |mut callers| async {
            Some((callers.recv().await?, callers))
        });
        Listening {
            address: address(member),
            callers: callers.boxed(),
        }
    }

    /// Returns the connections that a member opens to other members.
    pub(crate) fn of(&self, member: MemberId) -> Arc<dyn Streams> {
        Arc::new(OfOne {
            member,
            streams: self.clone(),
        })
    }

    /// Switches a member's host off. Its ends of connections disappear without notice.
    pub(crate) fn switch_off(&self, member: MemberId) {
        let mut state = self.state.lock();
        state.listeners.remove(&member);
        for connection in state.connections.values_mut() {
            for direction in &mut connection.directions {
                if direction.from == member {
                    direction.abandoned = true;
                    direction.under_way.clear();
                }
            }
        }
    }

    /// A device between two members, such as a firewall, drops the state of their connections. Both ends still consider the connections
    /// open.
    pub(crate) fn forget(&self, one: MemberId, other: MemberId) {
        for connection in self.state.lock().connections.values_mut() {
            let [to_called, _] = &connection.directions;
            let ends = [to_called.from, to_called.to];
            connection.forgotten |= ends == [one, other] || ends == [other, one];
        }
    }

    /// Delivers all segments that are due.
    pub(crate) fn step(&self, now: Tick, runs: impl Fn(MemberId) -> bool) {
        let mut woken = Vec::new();
        let mut answered = Vec::new();
        self.queue.links(|links| {
            let mut state = self.state.lock();
            self.step_connecting(&mut state, links, now, &runs, &mut answered);
            let state = &mut *state;
            for (&id, connection) in &mut state.connections {
                for side in 0..2 {
                    let wire = Wire {
                        links,
                        dice: &mut state.dice,
                        now,
                    };
                    connection.arrive(id, side, wire, &runs, &mut woken);
                }
            }
            let both_gone = |connection: &Connection| {
                let mut directions = connection.directions.iter();
                directions.all(|direction| direction.abandoned)
            };
            state
                .connections
                .retain(|_, connection| !both_gone(connection));
        });
        // Runs after the lock is released, because wakers and dropped ends may call back.
        woken.into_iter().for_each(Waker::wake);
        for (caller, answer) in answered {
            // The caller may have stopped waiting.
            let _ = caller.send(answer);
        }
    }

    fn step_connecting(
        &self,
        state: &mut State,
        links: &Links,
        now: Tick,
        runs: &impl Fn(MemberId) -> bool,
        answered: &mut Vec<(oneshot::Sender<Connected>, Connected)>,
    ) {
        for mut attempt in std::mem::take(&mut state.connecting) {
            if attempt.caller.is_closed() {
                // A dropped end locks the state. So the answer is dropped after the lock is released.
                if let Some(answer) = attempt.answer {
                    answered.push((attempt.caller, answer));
                }
                continue;
            }
            if attempt.at > now {
                state.connecting.push(attempt);
                continue;
            }
            if let Some(answer) = attempt.answer {
                answered.push((attempt.caller, answer));
                continue;
            }
            let (from, to) = (attempt.from, attempt.to);
            let there = links.fate(from, to, false, &mut state.dice);
            let back = links.fate(to, from, false, &mut state.dice);
            let (Fate::Arrives(_), Fate::Arrives(back), true) = (there, back, runs(to)) else {
                attempt.at = now + retry(attempt.tries);
                attempt.tries += 1;
                state.connecting.push(attempt);
                continue;
            };
            attempt.at = now + back.first().copied().unwrap_or(1);
            attempt.answer = Some(self.accept(state, from, to, attempt.given_up_after, now));
            state.connecting.push(attempt);
        }
    }

    /// Accepts or refuses a connection, as the called host does.
    fn accept(
        &self,
        state: &mut State,
        from: MemberId,
        to: MemberId,
        given_up_after: Option<Duration>,
        now: Tick,
    ) -> io::Result<ByteStream> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let listener = state.listeners.get(&to).ok_or_else(refused)?;
        let id = state.next;
        let end = |side| -> ByteStream {
            Box::new(End {
                connection: id,
                side,
                streams: self.clone(),
            })
        };
        if listener.is_closed() {
            return Err(refused());
        }
        state.next += 1;
        state.connections.insert(
            id,
            Connection {
                directions: [
                    Direction::new(from, to, given_up_after),
                    Direction::new(to, from, None),
                ],
                forgotten: false,
            },
        );
        self.record.message(&[now.0, from.0, to.0, 90, id], || {
            format!("{from} -> {to}: connection {id}")
        });
        let _ = listener.send((end(1), address(from)));
        Ok(end(0))
    }
}

/// Returns the number of steps until the next attempt.
fn retry(tries: u32) -> u64 {
    (FIRST_RETRY << tries.min(8)).min(LONGEST_RETRY)
}

/// Returns the address of a member's host.
fn address(member: MemberId) -> SocketAddr {
    let [.., third, fourth] = member.0.to_be_bytes();
    (Ipv4Addr::new(10, 0, third, fourth), 7001).into()
}

/// Computes when segments arrive.
struct Wire<'a> {
    links: &'a Links,
    dice: &'a mut Rng,
    now: Tick,
}

impl Wire<'_> {
    /// Returns when a segment that is sent now arrives. `None`: it is lost.
    fn arrival(&mut self, connection: u64, from: MemberId, to: MemberId) -> Option<Tick> {
        match self
            .links
            .fate(from, to, is_stalled_kind(connection), self.dice)
        {
            Fate::Arrives(after) => Some(self.now + after.first().copied().unwrap_or(1)),
            Fate::Lost => None,
        }
    }
}

/// Returns whether a connection stalls while the streams of a member stall. Every second connection does: it looks open, but nothing
/// arrives.
fn is_stalled_kind(connection: u64) -> bool {
    connection.is_multiple_of(2)
}

impl Connection {
    fn arrive(
        &mut self,
        id: u64,
        side: usize,
        mut wire: Wire<'_>,
        runs: &impl Fn(MemberId) -> bool,
        woken: &mut Vec<Waker>,
    ) {
        let other_is_gone = self.directions[1 - side].abandoned;
        let direction = &mut self.directions[side];
        let now = wire.now;
        while let Some(segment) = direction.under_way.front_mut() {
            if segment.at > now {
                break;
            }
            let (from, to) = (direction.from, direction.to);
            let gets_through = wire.links.lets_through(from, to, is_stalled_kind(id))
                && runs(to)
                && !self.forgotten;
            if !gets_through {
                segment.at = now + retry(segment.tries);
                segment.tries += 1;
                break;
            }
            direction.moved = now;
            let Some(segment) = direction.under_way.pop_front() else {
                break;
            };
            match segment.content {
                // A reset ends both directions, because a writer must notice it even after it has read the end of the stream.
                Content::Reset => {
                    for direction in &mut self.directions {
                        direction.ends(Over::Failed(io::ErrorKind::ConnectionReset), woken);
                    }
                    self.directions[1 - side].under_way.clear();
                    return;
                }
                // No process has this end of the connection any longer, so its host answers with a reset.
                Content::Bytes(_) if other_is_gone => {
                    let at = wire.arrival(id, to, from).unwrap_or(now + FIRST_RETRY);
                    self.directions[1 - side].answers_with_a_reset(at, now);
                    return;
                }
                Content::Bytes(bytes) => {
                    direction.arrived.extend_from_slice(&bytes);
                    woken.extend(direction.reader.take());
                }
                Content::End => direction.ends(Over::Ended, woken),
            }
        }
        let silent = direction
            .given_up_after
            .filter(|limit| !direction.under_way.is_empty() && now - direction.moved >= *limit);
        if silent.is_some() {
            for direction in &mut self.directions {
                direction.ends(Over::Failed(io::ErrorKind::TimedOut), woken);
            }
        }
    }
}

/// The connections that one member opens.
struct OfOne {
    member: MemberId,
    streams: ByteStreams,
}

impl Streams for OfOne {
    fn connect(
        &self,
        address: &str,
        given_up_after: Option<Duration>,
    ) -> BoxFuture<'static, io::Result<ByteStream>> {
        let to = address.rsplit(':').next().and_then(|id| id.parse().ok());
        let Some(to) = to.map(MemberId) else {
            return std::future::ready(Err(io::ErrorKind::AddrNotAvailable.into())).boxed();
        };
        let from = self.member;
        let queue = &self.streams.queue;
        let refused = queue.links(|links| links.alarmed.contains(&from));
        if refused {
            // A device between the member and the address refuses the connection.
            return std::future::ready(Err(io::ErrorKind::ConnectionRefused.into())).boxed();
        }
        let (caller, answer) = oneshot::channel();
        let now = self.streams.record.now();
        let arrives = queue.links(|links| {
            let dice = &mut self.streams.state.lock().dice;
            match links.fate(from, to, false, dice) {
                Fate::Arrives(after) => now + after.first().copied().unwrap_or(1),
                Fate::Lost => now + FIRST_RETRY,
            }
        });
        self.streams.state.lock().connecting.push(Connecting {
            from,
            to,
            at: arrives,
            tries: 1,
            answer: None,
            caller,
            given_up_after,
        });
        let gone = |_| Err(io::ErrorKind::ConnectionAborted.into());
        async move { answer.await.unwrap_or_else(gone) }.boxed()
    }
}

/// An end of a connection.
struct End {
    connection: u64,
    side: usize,
    streams: ByteStreams,
}

impl End {
    /// Sends a segment.
    fn send(&self, content: Content) {
        let now = self.streams.record.now();
        let length = content.length();
        self.streams.queue.links(|links| {
            let mut guard = self.streams.state.lock();
            let state = &mut *guard;
            let Some(connection) = state.connections.get_mut(&self.connection) else {
                return;
            };
            let direction = &mut connection.directions[self.side];
            let (from, to) = (direction.from, direction.to);
            let mut wire = Wire {
                links,
                dice: &mut state.dice,
                now,
            };
            let arrival = wire.arrival(self.connection, from, to);
            let (at, tries) = arrival.map_or((now + FIRST_RETRY, 1), |at| (at, 0));
            direction.push(at, tries, content, now);
            let numbers = [now.0, from.0, to.0, 91, self.connection, length as u64];
            self.streams.record.message(&numbers, || {
                format!(
                    "{from} -> {to}: {length} bytes of connection {}",
                    self.connection
                )
            });
        });
    }
}

impl AsyncRead for End {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.streams.state.lock();
        let Some(connection) = state.connections.get_mut(&self.connection) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let direction = &mut connection.directions[1 - self.side];
        if direction.arrived.is_empty() {
            return match direction.over {
                None => {
                    direction.reader = Some(context.waker().clone());
                    Poll::Pending
                }
                Some(Over::Ended) => Poll::Ready(Ok(())),
                Some(Over::Failed(kind)) => Poll::Ready(Err(kind.into())),
            };
        }
        let length = direction.arrived.len().min(into.remaining());
        into.put_slice(&direction.arrived[..length]);
        direction.arrived.advance(length);
        let writer = direction.writer.take();
        drop(state);
        writer.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let length = {
            let mut state = self.streams.state.lock();
            let window = state.window;
            let Some(connection) = state.connections.get_mut(&self.connection) else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            if let Some(Over::Failed(kind)) = connection.directions[1 - self.side].over {
                return Poll::Ready(Err(kind.into()));
            }
            let direction = &mut connection.directions[self.side];
            if let Some(Over::Failed(kind)) = direction.over {
                return Poll::Ready(Err(kind.into()));
            }
            let room = window.saturating_sub(direction.held());
            if room == 0 {
                direction.writer = Some(context.waker().clone());
                return Poll::Pending;
            }
            bytes.len().min(room)
        };
        self.send(Content::Bytes(Bytes::copy_from_slice(&bytes[..length])));
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send(Content::End);
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    /// Closes the end like a socket: the sent bytes still arrive, and then the end of the stream.
    fn drop(&mut self) {
        let is_gone = {
            let state = self.streams.state.lock();
            let connection = state.connections.get(&self.connection);
            connection.is_none_or(|connection| connection.directions[self.side].abandoned)
        };
        if is_gone {
            return;
        }
        self.send(Content::End);
        let mut state = self.streams.state.lock();
        if let Some(connection) = state.connections.get_mut(&self.connection) {
            connection.directions[self.side].abandoned = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use raft_types::Region;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::network::links::Distances;
    use crate::record::Trace;

    const ONE: MemberId = MemberId(1);
    const TWO: MemberId = MemberId(2);

    struct Net {
        streams: ByteStreams,
        record: Record,
        off: bool,
        listening: Listening,
    }

    impl Net {
        /// Creates two members in one region, with links of one step. The second member listens.
        fn new() -> Self {
            let record = Record::new(Trace::new(false), false);
            let home = |id| (id, Region("home".to_owned()));
            let distances = Distances {
                inside: 1,
                across: 8,
                jitter: 0,
            };
            let links = Links::new(BTreeMap::from([home(ONE), home(TWO)]), distances);
            let queue = MessageQueue::new(links, Rng::with_seed(1), record.clone());
            let streams = ByteStreams::new(queue, Rng::with_seed(1), record.clone());
            let listening = streams.listen(TWO);
            Self {
                streams,
                record,
                off: false,
                listening,
            }
        }

        fn steps(&self, steps: u64) {
            for _ in 0..steps {
                let now = self.record.now() + 1;
                self.record.set_now(now);
                self.streams.step(now, |_| !self.off);
            }
        }

        fn connect(&mut self, limit: Option<Duration>) -> (ByteStream, ByteStream) {
            let mut connecting = self.streams.of(ONE).connect("simulated:2", limit);
            self.steps(2);
            let own = connecting.as_mut().now_or_never().expect("an answer");
            let (other, from) = now(self.listening.callers.next()).expect("a caller");
            assert_eq!(from, address(ONE));
            (own.expect("a connection"), other)
        }
    }

    fn now<T>(future: impl Future<Output = T>) -> T {
        future.now_or_never().expect("it waits for nothing")
    }

    fn read(stream: &mut ByteStream) -> Option<io::Result<Vec<u8>>> {
        let mut bytes = vec![0; 100];
        let read = stream.read(&mut bytes).now_or_never()?;
        Some(read.map(|length| bytes[..length].to_vec()))
    }

    fn failed(read: Option<io::Result<Vec<u8>>>) -> Option<io::ErrorKind> {
        read.and_then(Result::err).map(|error| error.kind())
    }

    #[test]
    fn bytes_arrive_in_order_before_the_end() {
        let mut net = Net::new();
        let (mut one, mut two) = net.connect(None);
        now(one.write_all(b"a")).expect("sent");
        now(one.write_all(b"b")).expect("sent");
        assert!(read(&mut two).is_none());
        drop(one);
        net.steps(1);
        assert_eq!(read(&mut two).expect("bytes").expect("bytes"), b"ab");
        assert_eq!(read(&mut two).expect("the end").expect("the end"), b"");
        drop(two);
        net.steps(1);
        assert!(net.streams.state.lock().connections.is_empty());
    }

    #[test]
    fn a_receiver_that_does_not_read_blocks_the_sender() {
        let mut net = Net::new();
        let (mut one, mut two) = net.connect(None);
        let window = net.streams.state.lock().window;
        now(one.write_all(&vec![7; window])).expect("there is room");
        net.steps(1);
        assert!(one.write(b"x").now_or_never().is_none());
        assert_eq!(read(&mut two).expect("bytes").expect("bytes").len(), 100);
        assert_eq!(now(one.write(&[7; 200])).expect("room"), 100);
    }

    #[test]
    fn a_machine_without_power_is_silent_until_it_restarts() {
        let mut net = Net::new();
        let (mut one, two) = net.connect(None);
        net.off = true;
        net.streams.switch_off(TWO);
        drop(two);
        now(one.write_all(b"a")).expect("it goes out");
        net.steps(LONGEST_RETRY * 3);
        assert!(read(&mut one).is_none());
        net.off = false;
        net.steps(LONGEST_RETRY + 2);
        assert_eq!(failed(read(&mut one)), Some(io::ErrorKind::ConnectionReset));
        let mut connecting = net.streams.of(ONE).connect("simulated:2", None);
        net.steps(2);
        let refused = now(&mut connecting).err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::ConnectionRefused));
    }

    #[test]
    fn a_sender_that_continues_to_write_is_reset() {
        let mut net = Net::new();
        let (mut one, two) = net.connect(None);
        drop(two);
        for _ in 0..2 {
            now(one.write_all(b"a")).expect("nothing is known yet");
            net.steps(1);
        }
        assert_eq!(read(&mut one).expect("the end").expect("the end"), b"");
        net.steps(1);
        // A writer notices the reset, even after it has read the end of the stream.
        let written = now(one.write_all(b"a")).map_err(|error| error.kind());
        assert_eq!(written, Err(io::ErrorKind::ConnectionReset));
        drop(one);
        net.steps(1);
        assert!(net.streams.state.lock().connections.is_empty());
    }

    #[test]
    fn a_reset_follows_bytes_in_flight_and_replaces_lost_ones() {
        let segment = |at, tries| Segment {
            at: Tick(at),
            tries,
            content: Content::End,
        };
        let resets = |direction: &Direction| {
            let under_way = direction.under_way.iter();
            let told =
                under_way.map(|segment| (segment.at.0, matches!(segment.content, Content::Reset)));
            told.collect::<Vec<_>>()
        };
        let mut direction = Direction::new(ONE, TWO, None);
        direction.under_way.extend([segment(9, 0), segment(20, 1)]);
        direction.answers_with_a_reset(Tick(5), Tick(2));
        assert_eq!(resets(&direction), [(9, false), (9, true)]);
        // A reset for later bytes does not delay the first reset.
        direction.answers_with_a_reset(Tick(30), Tick(3));
        assert_eq!(resets(&direction), [(9, false), (9, true)]);
    }

    #[test]
    fn a_forgotten_connection_fails_on_request() {
        let mut net = Net::new();
        let limit = Duration::from_secs(1);
        let (mut one, mut two) = net.connect(Some(limit));
        let (mut bold, _listens) = net.connect(None);
        net.streams.forget(TWO, ONE);
        for stream in [&mut one, &mut bold] {
            now(stream.write_all(b"a")).expect("it goes out");
        }
        net.steps(Tick::steps(limit) + LONGEST_RETRY);
        assert_eq!(failed(read(&mut one)), Some(io::ErrorKind::TimedOut));
        assert!(read(&mut two).is_none_or(|read| read.is_err()));
        assert!(read(&mut bold).is_none());
    }
}
