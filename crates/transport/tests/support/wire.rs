//! A TCP relay in front of a member, which can cut, freeze, slow down or damage incoming calls.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::watch;

/// The relay's treatment of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Open,
    /// Closes all connections, also new ones.
    Cut,
}

struct Shared {
    mode: watch::Sender<Mode>,
    /// Connections with a number lower than this are frozen, but stay open.
    frozen_below: AtomicU64,
    damage_next: AtomicBool,
    connections: AtomicU64,
    /// The numbers of the open connections.
    open: Mutex<BTreeSet<u64>>,
    /// Bytes sent to the member, by connection.
    carried: Mutex<Vec<u64>>,
    /// Bytes per second of each connection; 0 means unlimited.
    speed: AtomicU64,
}

/// A relay in front of one member. Clones share the relay.
#[derive(Clone)]
pub(crate) struct Wire {
    shared: Arc<Shared>,
}

impl Wire {
    /// Starts a relay to `target`. Returns it and its own address.
    pub(crate) async fn to(target: SocketAddr) -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            mode: watch::Sender::new(Mode::Open),
            frozen_below: AtomicU64::new(0),
            damage_next: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            open: Mutex::default(),
            carried: Mutex::default(),
            speed: AtomicU64::new(0),
        });
        let wire = Self {
            shared: shared.clone(),
        };
        tokio::spawn(async move {
            while let Ok((incoming, _)) = listener.accept().await {
                tokio::spawn(relay(shared.clone(), incoming, target));
            }
        });
        (wire, address)
    }

    /// Closes all connections, and each new one.
    pub(crate) fn cut(&self) {
        self.shared.mode.send_replace(Mode::Cut);
    }

    /// Accepts connections again.
    pub(crate) fn repair(&self) {
        self.shared.mode.send_replace(Mode::Open);
    }

    /// Freezes the current connections without closing them.
    pub(crate) fn freeze_connections(&self) {
        let connections = self.shared.connections.load(Ordering::SeqCst);
        self.shared
            .frozen_below
            .store(connections, Ordering::SeqCst);
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Returns the numbers of the open connections.
    pub(crate) fn open(&self) -> BTreeSet<u64> {
        self.shared.open.lock().unwrap().clone()
    }

    /// Returns the bytes sent to the member, by connection.
    pub(crate) fn carried(&self) -> Vec<u64> {
        self.shared.carried.lock().unwrap().clone()
    }

    /// Limits each connection to this rate.
    pub(crate) fn slow_down(&self, bytes_per_second: u64) {
        self.shared.speed.store(bytes_per_second, Ordering::SeqCst);
    }

    /// Flips a bit in the middle of the next large block to the member.
    pub(crate) fn damage_next(&self) {
        self.shared.damage_next.store(true, Ordering::SeqCst);
    }

    /// Returns true if the bit was flipped.
    pub(crate) fn has_damaged(&self) -> bool {
        !self.shared.damage_next.load(Ordering::SeqCst)
    }
}

async fn relay(shared: Arc<Shared>, incoming: TcpStream, target: SocketAddr) {
    let mut mode = shared.mode.subscribe();
    if *mode.borrow_and_update() == Mode::Cut {
        return;
    }
    let Ok(outgoing) = TcpStream::connect(target).await else {
        return;
    };
    let number = shared.connections.fetch_add(1, Ordering::SeqCst);
    shared.open.lock().unwrap().insert(number);
    let (from_caller, to_caller) = incoming.into_split();
    let (from_member, to_member) = outgoing.into_split();
    tokio::select! {
        () = copy(&shared, number, from_caller, to_member, true) => {}
        () = copy(&shared, number, from_member, to_caller, false) => {}
        _ = mode.wait_for(|mode| *mode == Mode::Cut) => {}
    }
    shared.open.lock().unwrap().remove(&number);
}

async fn copy(
    shared: &Shared,
    number: u64,
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    towards_member: bool,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        if number < shared.frozen_below.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let large = towards_member && length > 32 << 10;
        if large && shared.damage_next.swap(false, Ordering::SeqCst) {
            buffer[length / 2] ^= 1;
        }
        let speed = shared.speed.load(Ordering::SeqCst);
        if speed > 0 {
            let seconds = length as f64 / speed as f64;
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
        }
        if towards_member {
            let mut carried = shared.carried.lock().unwrap();
            let number = number as usize;
            if carried.len() <= number {
                carried.resize(number + 1, 0);
            }
            carried[number] += length as u64;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
