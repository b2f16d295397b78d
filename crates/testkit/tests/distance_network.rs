//! A distance network delays, cuts and loses packets of real sockets in each direction separately, and removes everything when it
//! is dropped.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::distance::{DistanceNetwork, Place};
use testkit::statistics::nearest_rank;

const PORT: u16 = 7000;
const EXCHANGES: usize = 41;
/// A busy machine delays everything at times, so a measurement is repeated up to this often.
const ATTEMPTS: u32 = 10;
const A: Place = Place::member(0);
const B: Place = Place::member(1);

fn network(members: usize) -> DistanceNetwork {
    DistanceNetwork::build(members).expect("a distance network can be made")
}

fn set_round_trip(network: &DistanceNetwork, round_trip: Duration) {
    network.links(|links| {
        links.set_delay(A, B, round_trip / 2);
        links.set_delay(B, A, round_trip / 2);
    });
}

/// Returns every datagram to its sender until it is stopped.
struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Echo {
    fn at(network: &DistanceNetwork, index: usize) -> Self {
        let address = network.address(Place::member(index));
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        let work = move || {
            let socket = UdpSocket::bind((address, PORT)).expect("the port is free");
            let pause = Some(Duration::from_millis(20));
            socket
                .set_read_timeout(pause)
                .expect("a timeout can be set");
            ready.send(()).expect("the test waits");
            let mut buffer = [0; 64];
            while !stopping.load(Ordering::Relaxed) {
                if let Ok((len, peer)) = socket.recv_from(&mut buffer) {
                    socket.send_to(&buffer[..len], peer).expect("it can answer");
                }
            }
        };
        let thread = network.enter(index, work).expect("a thread starts");
        is_ready
            .recv_timeout(Duration::from_secs(10))
            .expect("the echo is ready");
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the round trip times that member 0 measures, sorted. Round trips longer than `patience` are missing.
fn round_trips(
    network: &DistanceNetwork,
    to: Ipv4Addr,
    exchanges: usize,
    patience: Duration,
) -> Vec<Duration> {
    let measure = move || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port is free");
        socket.connect((to, PORT)).expect("there is a route");
        socket
            .set_read_timeout(Some(patience))
            .expect("a timeout can be set");
        let mut times = Vec::new();
        for number in 0..exchanges {
            let number = number.to_be_bytes();
            let sent = Instant::now();
            socket.send(&number).expect("it can send");
            let mut answer = [0; 64];
            // Skip answers to earlier exchanges that timed out.
            while let Ok(len) = socket.recv(&mut answer) {
                if answer[..len] == number {
                    times.push(sent.elapsed());
                    break;
                }
            }
        }
        times.sort();
        times
    };
    let measuring = network.enter(0, measure).expect("a thread starts");
    measuring
        .join()
        .expect("it does not panic")
        .expect("it can enter the place")
}

#[test]
fn a_round_trip_takes_the_configured_time() {
    let network = network(2);
    let _echo = Echo::at(&network, 1);
    let to = network.address(B);
    for wanted in [100, 1_000, 10_000, 30_000, 60_000].map(Duration::from_micros) {
        let tolerance = (wanted / 10).max(Duration::from_micros(150));
        let mut tried = Vec::new();
        let is_right = (0..ATTEMPTS).any(|attempt| {
            // Wait, since the load on the machine may end in the meantime.
            std::thread::sleep(attempt * Duration::from_millis(200));
            // Measure the machine's own current latency, which is not a part of the network's delay.
            set_round_trip(&network, Duration::ZERO);
            let bare = round_trips(&network, to, EXCHANGES, Duration::from_secs(5));
            let bare = nearest_rank(&bare, 50).expect("exchanges");
            set_round_trip(&network, wanted);
            let times = round_trips(&network, to, EXCHANGES, Duration::from_secs(5));
            assert_eq!(times.len(), EXCHANGES);
            let shortest = times[0];
            assert!(
                shortest >= wanted,
                "{shortest:?} is too short for {wanted:?}"
            );
            let median = nearest_rank(&times, 50).expect("exchanges");
            tried.push((bare, median));
            median - wanted <= tolerance + bare
        });
        println!("wanted {wanted:?}, medians without and with it: {tried:?}");
        assert!(is_right, "{tried:?} for {wanted:?}");
    }
}

#[test]
fn a_cut_is_of_one_direction() {
    let network = network(2);
    let _echo = Echo::at(&network, 1);
    let to = network.address(B);
    let patience = Duration::from_millis(50);
    assert_eq!(round_trips(&network, to, 5, patience).len(), 5);

    // Answers are cut: requests still arrive.
    network.links(|links| links.cut(B, A));
    let before = network.links(|links| links.traffic(A, B));
    assert!(round_trips(&network, to, 5, patience).is_empty());
    let (there, back) = network.links(|links| (links.traffic(A, B), links.traffic(B, A)));
    assert_eq!(there.packets - before.packets, 5);
    assert_eq!(back.lost_packets, 5);

    // Requests are cut: nothing arrives.
    network.links(|links| links.restore_all());
    network.links(|links| links.cut(A, B));
    let before = network.links(|links| links.traffic(A, B));
    assert!(round_trips(&network, to, 5, patience).is_empty());
    assert_eq!(
        network.links(|links| links.traffic(A, B)).packets,
        before.packets
    );

    network.links(|links| links.restore(A, B));
    assert_eq!(round_trips(&network, to, 5, patience).len(), 5);
}

#[test]
fn a_lossy_link_loses_its_part() {
    let network = network(2);
    let _echo = Echo::at(&network, 1);
    network.links(|links| links.set_loss(A, B, 0.5));
    let arrived = round_trips(&network, network.address(B), 200, Duration::from_millis(5)).len();
    // With the configured loss, the result is outside of this range once in a million runs.
    assert!((65..=135).contains(&arrived), "{arrived} of 200");
}

#[test]
fn tcp_carries_bytes_whole_over_a_long_and_lossy_way() {
    const BYTES: usize = 2 << 20;
    let network = network(2);
    network.set_distances(&["here", "there"], Duration::ZERO, Duration::from_millis(5));
    network.links(|links| links.set_loss(A, B, 0.01));
    let address = SocketAddr::from((network.address(B), PORT));
    let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
    let receive = move || {
        let listener = TcpListener::bind(address).expect("the port is free");
        ready.send(()).expect("the test waits");
        let (mut stream, _) = listener.accept().expect("a client connects");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("bytes come");
        all
    };
    let receiving = network.enter(1, receive).expect("a thread starts");
    is_ready
        .recv_timeout(Duration::from_secs(10))
        .expect("it listens");
    let sent: Vec<u8> = (0..BYTES).map(|index| (index % 251) as u8).collect();
    let bytes = sent.clone();
    let send = move || {
        let begun = Instant::now();
        let mut stream = TcpStream::connect(address).expect("it is reached");
        let connected = begun.elapsed();
        stream.write_all(&bytes).expect("bytes go");
        connected
    };
    let sending = network.enter(0, send).expect("a thread starts");
    let connected = sending.join().expect("no panic").expect("it enters");
    assert!(connected >= Duration::from_millis(10), "{connected:?}");
    let received = receiving.join().expect("no panic").expect("it enters");
    assert!(received == sent, "{} of {BYTES} bytes", received.len());
}

#[test]
fn the_harness_reaches_every_place_without_delay_and_processes_run_there() {
    let network = network(2);
    set_round_trip(&network, Duration::from_secs(2));
    let _echo = Echo::at(&network, 1);
    let socket = UdpSocket::bind((network.address(Place::HARNESS), 0)).expect("a port is free");
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("a timeout can be set");
    let sent = Instant::now();
    socket
        .send_to(b"x", (network.address(B), PORT))
        .expect("there is a route");
    socket.recv(&mut [0; 8]).expect("the place answers");
    assert!(
        sent.elapsed() < Duration::from_secs(1),
        "{:?}",
        sent.elapsed()
    );

    let wrapper = network.wrapper(1);
    let output = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .args(["ip", "-4", "-oneline", "address", "show"])
        .output()
        .expect("ip runs");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains(&network.address(B).to_string()), "{shown}");
    assert!(!shown.contains(&network.address(A).to_string()), "{shown}");
}

#[test]
fn nothing_remains_even_of_a_killed_harness() {
    let name = |network: &DistanceNetwork| {
        let option = network.wrapper(0)[1];
        option.trim_start_matches("--net=/run/netns/").to_owned()
    };
    let exists =
        |name: &str| fs::exists(format!("/run/netns/{name}")).expect("it can be inspected");
    let dropped = {
        let network = network(1);
        assert!(exists(&name(&network)));
        name(&network)
    };
    assert!(!exists(&dropped));

    // Process 1 did not start at that time, so the owner of this namespace has ended. A process still runs inside.
    let stale = "witness-1-99999999999-0";
    let add = Command::new("ip").args(["netns", "add", stale]).status();
    assert!(add.expect("ip runs").success());
    let mut left = Command::new("ip")
        .args(["netns", "exec", stale, "sleep", "600"])
        .spawn()
        .expect("it starts");
    while !inside(stale, left.id()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mine = network(1);
    assert!(!exists(stale) && exists(&name(&mine)));
    let ended = testkit::bounded_run::wait_within(&mut left, Duration::from_secs(10));
    let ended = ended.expect("it can be asked");
    if ended.is_none() {
        left.kill().expect("it can be killed");
    }
    assert!(
        ended.is_some(),
        "what a killed harness left running is ended"
    );
}

/// True if a process has entered a namespace.
fn inside(namespace: &str, pid: u32) -> bool {
    let pids = Command::new("ip")
        .args(["netns", "pids", namespace])
        .output();
    let pids = pids.expect("ip runs").stdout;
    String::from_utf8_lossy(&pids)
        .lines()
        .any(|line| line.trim() == pid.to_string())
}
