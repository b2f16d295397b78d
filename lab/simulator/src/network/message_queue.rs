//! The queue of messages in flight. Decides what happens to each message on its link, and delivers the messages that are due. Streams and
//! sessions keep their order. After a lost message they deliver nothing more.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use raft_types::{MemberId, Vote};
use testkit::network::{Call, Reply};

use crate::event::Event;
use crate::network::links::{Fate, Links};
use crate::network::message::{Body, CallId, Message};
use crate::network::session_part::SessionPart;
use crate::record::Record;
use crate::shared::Shared;
use crate::tick::Tick;

/// The message queue. Clones share it.
#[derive(Clone)]
pub(crate) struct MessageQueue {
    state: Shared<State>,
    record: Record,
}

struct State {
    dice: Rng,
    links: Links,
    next_call: u64,
    sent: u64,
    /// The messages in flight, by arrival time and then in the order in which they were sent.
    under_way: BTreeMap<(Tick, u64), Message>,
    /// The arrival time of the last message in each direction of a stream.
    streams: BTreeMap<(CallId, bool), Tick>,
    dead: BTreeSet<CallId>,
}

impl State {
    /// Returns the step after the arrival of all messages from one member to another. An exiting process closes its connections after its
    /// last bytes, and the other member receives these bytes before the end of the connection.
    fn after_all(&self, from: MemberId, to: MemberId) -> Tick {
        let between = self.under_way.iter();
        let between = between.filter(|(_, message)| (message.from, message.to) == (from, to));
        let last = between.map(|((at, _), _)| *at).max();
        last.map_or_else(Tick::default, |last| last + 1)
    }
}

impl MessageQueue {
    pub(crate) fn new(links: Links, dice: Rng, record: Record) -> Self {
        Self {
            state: Shared::new(State {
                dice,
                links,
                next_call: 1,
                sent: 0,
                under_way: BTreeMap::new(),
                streams: BTreeMap::new(),
                dead: BTreeSet::new(),
            }),
            record,
        }
    }

    pub(crate) fn new_call(&self) -> CallId {
        let mut state = self.state.lock();
        state.next_call += 1;
        CallId(state.next_call)
    }

    /// Calls `change` with the links.
    pub(crate) fn links<T>(&self, change: impl FnOnce(&mut Links) -> T) -> T {
        change(&mut self.state.lock().links)
    }

    /// Sends a message.
    pub(crate) fn send(&self, mut message: Message) {
        match &message.body {
            Body::Call(_, Call::Heartbeat(request)) => self.led(&request.vote),
            Body::Request { asked, .. } => self.led(&asked.request.vote),
            Body::Session(_, SessionPart::Request { request, .. }) => self.led(&request.vote),
            _ => {}
        }
        let now = self.record.now();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if let Body::Call(id, Call::Knock) = message.body
            && state.links.alarmed.contains(&message.from)
        {
            // A device between the member and the address refuses the call, whatever the state of the ring's links.
            (message.to, message.body) = (message.from, Body::Reply(id, Reply::Refused));
            state.sent += 1;
            state.under_way.insert((now + 1, state.sent), message);
            return;
        }
        if message.body.leads() {
            message.to = state.links.stands_in_for(message.from, message.to);
        }
        let (from, to) = (message.from, message.to);
        let stream = message.body.stream();
        if stream.is_some_and(|(stream, _)| state.dead.contains(&stream)) {
            return;
        }
        let fate = state
            .links
            .fate(from, to, stream.is_some(), &mut state.dice);
        let numbers = [now.0, from.0, to.0, message.body.kind(), state.sent];
        self.record.message(&numbers, || {
            format!("{from} -> {to}: {} ({fate:?})", message.body.words())
        });
        let Fate::Arrives(latencies) = fate else {
            if let Some((stream, _)) = stream {
                state.dead.insert(stream);
            }
            return;
        };
        let lag = match message.body.carries_entries() {
            true => state.links.lag_of(from),
            false => 0,
        };
        for latency in latencies {
            let mut at = now + latency + lag;
            if let Some(direction) = stream {
                let last = state.streams.entry(direction).or_default();
                at = at.max(*last);
                *last = at;
            }
            if matches!(message.body, Body::HungUp) {
                at = at.max(state.after_all(from, to));
            }
            state.sent += 1;
            state.under_way.insert((at, state.sent), message.clone());
        }
    }

    /// Records that a leader has sent a message. The leader is the owner of the vote, because a proxy sends on behalf of a leader.
    fn led(&self, vote: &Vote) {
        let (term, leader) = (vote.leader_id.term, vote.leader_id.voted_for);
        self.record.saw(&Event::Led { term, leader });
    }

    /// Returns the messages that are due for listening members. Other messages stay in the queue.
    pub(crate) fn due(&self, now: Tick, listens: impl Fn(MemberId) -> bool) -> Vec<Message> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let due: Vec<(Tick, u64)> = state
            .under_way
            .range(..=(now, u64::MAX))
            .filter(|(_, message)| listens(message.to))
            .map(|(key, _)| *key)
            .collect();
        let mut arrived = Vec::with_capacity(due.len());
        for key in due {
            let Some(message) = state.under_way.remove(&key) else {
                continue;
            };
            let stream = message.body.stream().map(|(stream, _)| stream);
            if stream.is_some_and(|stream| state.dead.contains(&stream)) {
                continue;
            }
            let streamed = stream.is_some();
            if state.links.lets_through(message.from, message.to, streamed) {
                arrived.push(message);
            } else {
                state.dead.extend(stream);
            }
        }
        arrived
    }
}
