//! Clients that open connections to a member's ports and send little or nothing use a bounded number of descriptors and bounded memory.
//! They do not delay other clients.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use procfs::process::Process;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use testkit::cluster::http_get;
use testkit::wait::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::program::alone::Alone;
use crate::program::{Run, Scratch, witness};

const PATIENCE: Duration = Duration::from_secs(20);
/// More connections than any port accepts.
const FLOOD: usize = 900;

/// A ring of one witness that serves all ports.
struct Member {
    alone: Alone,
    scratch: Scratch,
    binlogs: SocketAddr,
}

impl Member {
    fn start() -> Self {
        let scratch = Scratch::new();
        let binlogs = testkit::ports::free_address().expect("a port");
        let further = format!(
            r#"
http.tls = false
[tls]
certificate_file = "tls/only.crt"
key_file = "tls/only.key"
ca_file = "tls/ca.crt"
operator_certificate_file = "tls/operator-ana.crt"
operator_key_file = "tls/operator-ana.key"
[binlog_server]
listen = "{binlogs}"
password = "replicas know it"
"#
        );
        let init = "tls init --directory tls --operator ana";
        let alone = Alone::start(&scratch, &further, &[init], &["--bootstrap"]);
        alone.wait_until_ready(&scratch);
        Self {
            alone,
            scratch,
            binlogs,
        }
    }

    fn run(&self, words: &[&str]) -> Run {
        witness(&self.scratch).args(words).run()
    }

    fn process(&self) -> Process {
        let id = i32::try_from(self.alone.child.id()).expect("a process id");
        Process::new(id).expect("a process")
    }

    fn descriptors(&self) -> usize {
        self.process().fd_count().expect("a number")
    }

    fn memory_kib(&self) -> u64 {
        let status = self.process().status().expect("a status");
        status.vmrss.expect("a number")
    }

    /// Returns the processor time that the member has used, in hundredths of a second.
    fn computed(&self) -> u64 {
        let stat = self.process().stat().expect("a status");
        stat.utime + stat.stime
    }
}

/// Opens connections from 127.0.0.2, which no other client uses, and sends a few bytes on each.
async fn flood(port: SocketAddr, callers: usize, begin: &[u8]) -> Vec<TcpStream> {
    let now = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: now.maximum,
        ..now
    };
    setrlimit(Resource::Nofile, most).expect("a limit for this process");
    let mut flood = Vec::new();
    for _ in 0..callers {
        let socket = TcpSocket::new_v4().expect("a socket");
        let from = "127.0.0.2:0".parse().expect("an address");
        socket.bind(from).expect("an address of the loopback");
        let mut stream = socket.connect(port).await.expect("a connection");
        // The member may have closed the connection already.
        let _ = stream.write_all(begin).await;
        flood.push(stream);
    }
    flood
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_and_slow_callers_are_bounded_on_every_port() {
    let member = Member::start();
    let (descriptors, kib) = (member.descriptors(), member.memory_kib());
    let (listen, http) = (member.alone.listen, member.alone.http);
    let slow_head = b"GET /liveness HTTP/1.1\r\nX-Slow: ";
    let _floods = [
        flood(listen, FLOOD, b"").await,
        flood(listen, FLOOD, &[22, 3, 1]).await,
        flood(http, FLOOD, slow_head).await,
        flood(member.binlogs, FLOOD, b"").await,
    ];
    // The limits are 512 on the port for members, 256 for HTTP and 100 for logins. Up to 100 more may be about to be closed.
    let more = member.descriptors() - descriptors;
    assert!(more < 512 + 256 + 100 + 100, "{more} more descriptors");
    let more = member.memory_kib().saturating_sub(kib);
    assert!(more < 48 << 10, "{more} KiB more");

    // All other clients are served immediately.
    let status = member.run(&["status"]);
    assert_eq!(status.code, 0, "{status}");
    let flushed = member.run(&["log", "flush"]);
    assert_eq!(flushed.code, 0, "{flushed}");
    let alive = http_get(http, "/liveness").expect("an answer");
    assert_eq!(alive.status, 200);
    let connected = TcpStream::connect(member.binlogs).await;
    let mut replica = connected.expect("a connection");
    let mut greeting = [0; 4];
    let greeted = timeout(Duration::from_secs(2), replica.read_exact(&mut greeting)).await;
    greeted.expect("an immediate answer").expect("a greeting");
}

/// Sends the head of a request that never ends, one byte every 500 ms, until the connection fails.
async fn drip(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"GET /liveness HTTP/1.1\r\nX: ").await?;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        stream.write_all(b"x").await?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_has_to_come_within_a_limit() {
    let member = Member::start();
    let http = member.alone.http;
    let mut slow = TcpStream::connect(http).await.expect("a connection");
    let ended = timeout(PATIENCE, drip(&mut slow)).await;
    let error = ended.expect("within the limit").expect_err("its end");
    let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(gone.contains(&error.kind()), "{error}");

    // A head that is too large is rejected.
    let mut large = TcpStream::connect(http).await.expect("a connection");
    let begin = "GET /liveness HTTP/1.1\r\nX: ".to_owned() + &"x".repeat(128 << 10);
    let _ = large.write_all(begin.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, large.read_to_end(&mut answer))
        .await
        .expect("its end");
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_descriptors_waits_for_them() {
    let member = Member::start();
    let (listen, http) = (member.alone.listen, member.alone.http);
    let few = Some(member.descriptors() as u64 + 20);
    let few = Rlimit {
        current: few,
        maximum: few,
    };
    let process = Pid::from_child(&member.alone.child);
    prlimit(Some(process), Resource::Nofile, few).expect("a limit");
    // More connections than the member has descriptors for, but not more than the system's backlog of the listeners.
    let floods = [flood(listen, 100, b"").await, flood(http, 100, b"").await];
    let before = member.computed();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let computed = member.computed() - before;
    assert!(computed < 100, "{computed} hundredths of two seconds");
    drop(floods);
    let served = eventually("it serves again", PATIENCE, || {
        let run = member.run(&["status"]);
        match run.code {
            0 => Ok(()),
            _ => Err(run.to_string()),
        }
    });
    served.expect("it does");
}
