//! Measures the commit latency of a ring of three members over loopback gRPC, with logs in memory:
//! what consensus and transport cost without a disk and without a network. Each member has a runtime
//! of its own, as it has in its own process.
//!
//! `cargo run --release -p transport --example loopback_latency -- [seconds] [threads of a member]`

#![allow(
    clippy::unwrap_used,
    reason = "a measurement that ends at the first surprise"
)]

#[allow(dead_code, reason = "shared with the tests")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use consensus::{Identity, IdentityBook, LogOrigin, Member, Outcome, RingState, Timers};
use hdrhistogram::Histogram;
use raft_types::{MemberId, MemberKind, MemberRecord, RingId};
use support::grpc_ring::{NoFile, NodeSetup, listener, record, transaction, within};
use support::memory_log::MemoryDisk;
use tokio::runtime::{Builder, Handle, Runtime};
use transport::TransportConfig;

const ENTRY_BYTES: usize = 500;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let seconds = arguments.next().and_then(Result::ok).unwrap_or(3);
    let threads = arguments.next().and_then(Result::ok).unwrap_or(1) as usize;
    let length = Duration::from_secs(seconds);

    let ring = Ring::start(threads);
    println!("3 members, {threads} thread(s) each, {ENTRY_BYTES}-byte entries, logs in memory");
    println!(
        "{:>8} {:>12} {:>10} {:>10} {:>10}",
        "clients", "commits/s", "p50 us", "p99 us", "max us"
    );
    for clients in [1, 8, 64] {
        let latencies = ring.measure(clients, length);
        println!(
            "{clients:>8} {:>12.0} {:>10} {:>10} {:>10}",
            latencies.len() as f64 / length.as_secs_f64(),
            latencies.value_at_quantile(0.5),
            latencies.value_at_quantile(0.99),
            latencies.max(),
        );
    }
}

struct Ring {
    members: BTreeMap<MemberId, (Member, Handle)>,
}

impl Ring {
    fn start(threads: usize) -> Self {
        let ids = [1, 2, 3].map(MemberId);
        let runtimes = ids.map(|_| runtime(threads));
        let mut listeners = Vec::new();
        let mut records: BTreeMap<MemberId, MemberRecord> = BTreeMap::new();
        for (id, runtime) in ids.into_iter().zip(&runtimes) {
            let (listener, address) = runtime.block_on(listener());
            records.insert(id, record(id, MemberKind::Database, address));
            listeners.push(listener);
        }
        let ring = RingId::random();
        let mut members = BTreeMap::new();
        for ((id, runtime), listener) in ids.into_iter().zip(runtimes).zip(listeners) {
            let identity = Identity {
                member: id,
                incarnation: records[&id].incarnation,
                ring: RingState::Belongs { ring },
            };
            let book = Arc::new(IdentityBook::new(
                identity,
                LogOrigin::default(),
                Box::new(NoFile),
            ));
            let setup = NodeSetup {
                book,
                record: records[&id].clone(),
                timers: Timers::default(),
                config: TransportConfig::default(),
                proxying: proxy::ProxyOptions::off(),
                far: None,
                sends_on: None,
                tls: None,
            };
            let node = runtime.block_on(setup.start(listener, MemoryDisk::default()));
            members.insert(id, (node.member.clone(), runtime.handle().clone()));
            thread::spawn(move || {
                runtime.block_on(std::future::pending::<()>());
                drop(node);
            });
        }
        let (founder, handle) = &members[&ids[0]];
        handle.block_on(founder.bootstrap(records)).unwrap();
        Self { members }
    }

    fn measure(&self, clients: usize, length: Duration) -> Histogram<u64> {
        let (member, handle) = self.serving();
        let (sender, receiver) = std::sync::mpsc::channel();
        handle.spawn(async move {
            let clients = (0..clients).map(|_| tokio::spawn(client(member.clone(), length)));
            let mut all = Histogram::new(3).unwrap();
            for latencies in futures::future::join_all(clients).await {
                all.add(latencies.unwrap()).unwrap();
            }
            sender.send(all)
        });
        receiver.recv().unwrap()
    }

    fn serving(&self) -> (Member, Handle) {
        loop {
            for (member, handle) in self.members.values() {
                if member.leadership().borrow().serving_term().is_some() {
                    return (member.clone(), handle.clone());
                }
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// One client: the next proposal after the commit of the one before.
async fn client(member: Member, length: Duration) -> Histogram<u64> {
    let term = member.leadership().borrow().serving_term().unwrap();
    let entry = transaction(vec![7; ENTRY_BYTES]);
    let mut latencies = Histogram::new(3).unwrap();
    let end = Instant::now() + length;
    while Instant::now() < end {
        let begin = Instant::now();
        let mut ticket = member.propose(entry.clone(), term).await.unwrap();
        let outcome = within("a commit", ticket.outcome()).await;
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
        latencies
            .record(begin.elapsed().as_micros() as u64)
            .unwrap();
    }
    latencies
}

fn runtime(threads: usize) -> Runtime {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().unwrap()
}
