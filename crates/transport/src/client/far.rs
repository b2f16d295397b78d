//! What is different on the way to another region: payloads are compressed, and the connections are made for distance and loss.
//!
//! What is under way on one connection is bounded by the system's send buffer (`net.ipv4.tcp_wmem`), and a system that takes each
//! lost packet for a full line is slow where packets get lost by themselves. So these connections ask for the largest buffer that
//! they may have, and for a congestion control that measures the line instead. Both are asked for once a connection, and where the
//! system does not give them, it works as it did.
//!
//! One that carries entries is given up when the system at the other end acknowledges nothing for a while, and not by HTTP/2's
//! keepalive: that question, or its answer, waits behind what is under way, and a connection that moves slowly would be taken for
//! a dead one.

use std::sync::{Arc, Once};
use std::time::Duration;
use std::{fs, io};

use raft_types::{MemberRecord, Region};
use rustix::net::sockopt;
use spilling_bytes::SpillFolder;
use tokio::net::TcpStream;

use crate::compression::{Compression, CompressionFigures, Packer};
use crate::config::STREAM_WINDOW_BYTES;

/// Over how many connections beside the first the entries for a member in another region may go.
pub(super) const FURTHER_STRIPES: usize = 5;
/// How many bytes of entries may be under way to it: 50 MB/s over 300 ms there and back, with the time that a disk takes. A receiver
/// gives a connection's window back by halves, so each connection can count on half of its own; with more under way, messages wait in
/// connections that are full while the receiver waits for them, and less arrives.
pub(super) const FAR_WINDOW_BYTES: usize = (1 + FURTHER_STRIPES) * STREAM_WINDOW_BYTES as usize / 2;
/// How much of a message its entries may take. The receiver waits for the next message, and a part of it that its connection's window
/// has no room for holds up all others for a round trip.
pub(super) const FAR_PART_BYTES: usize = 256 << 10;
/// With so many bytes of entries under way, one connection is not enough any more.
pub(super) const MUCH_BYTES: usize = 1 << 20;

/// What is different on the way to another region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FarOptions {
    /// How payloads are compressed; `None`: not at all.
    pub compression: Option<Compression>,
    /// The system's name of the congestion control; `None`: what it has for everybody.
    pub congestion_control: Option<String>,
}

/// The same, for the members that are in another region than this one.
pub(crate) struct Far {
    own: Region,
    packer: Option<Arc<Packer>>,
    line: FarLine,
}

impl Far {
    pub(crate) fn new(own: Region, options: FarOptions, spill: SpillFolder) -> Self {
        let packer = |one| Arc::new(Packer::new(one, spill));
        Self {
            own,
            packer: options.compression.map(packer),
            line: FarLine {
                congestion_control: options.congestion_control.map(Into::into),
                carries_entries: false,
            },
        }
    }

    fn is_far(&self, record: &MemberRecord) -> bool {
        record.region != self.own
    }

    /// What packs for a member.
    pub(crate) fn packer(&self, record: &MemberRecord) -> Option<Arc<Packer>> {
        self.packer.clone().filter(|_| self.is_far(record))
    }

    /// What the connections to a member are told.
    pub(crate) fn line(&self, record: &MemberRecord) -> Option<FarLine> {
        self.is_far(record).then(|| self.line.clone())
    }

    /// What compression spared so far.
    pub(crate) fn compression(&self) -> CompressionFigures {
        let packer = self.packer.as_ref();
        packer.map(|packer| packer.figures()).unwrap_or_default()
    }
}

/// What a connection to another region is told.
#[derive(Debug, Clone, Default)]
pub(crate) struct FarLine {
    congestion_control: Option<Arc<str>>,
    /// Whether entries go over it, and not heartbeats and votes.
    pub(crate) carries_entries: bool,
}

impl FarLine {
    /// The same for one that carries entries.
    pub(crate) fn for_entries(&self) -> Self {
        Self {
            carries_entries: true,
            ..self.clone()
        }
    }

    /// Tells a connection that has just come up. One that carries entries is given up when nothing of what it sent is acknowledged
    /// for `deadline`.
    ///
    /// # Errors
    /// The system refuses the deadline.
    pub(crate) fn tell(&self, stream: &TcpStream, deadline: Duration) -> io::Result<()> {
        if self.carries_entries {
            let milliseconds = u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX);
            sockopt::set_tcp_user_timeout(stream, milliseconds)?;
        }
        if let Some(wanted) = self.congestion_control.as_deref() {
            static TOLD: Once = Once::new();
            if let Err(error) = sockopt::set_tcp_congestion(stream, wanted) {
                TOLD.call_once(|| {
                    tracing::info!(
                        %error,
                        wanted,
                        "the system does not give this congestion control to connections to other regions: where packets get \
                         lost, catching up is slow. Load the module, and list it in net.ipv4.tcp_allowed_congestion_control"
                    );
                });
            }
        }
        if let Some(bytes) = buffer_worth_asking_for() {
            // Where it is refused, the system's own bounds hold.
            let _ = sockopt::set_socket_send_buffer_size(stream, bytes);
        }
        Ok(())
    }
}

/// The size to ask for, in bytes, if what the system would then give is more than what it gives by itself.
fn buffer_worth_asking_for() -> Option<usize> {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/{name}")).ok();
    let (most, by_itself) = (read("core/wmem_max")?, read("ipv4/tcp_wmem")?);
    worth_asking_for(&most, &by_itself)
}

/// The system gives twice what is asked for, `most` at most, and `by_itself` has the most that it gives unasked.
fn worth_asking_for(most: &str, by_itself: &str) -> Option<usize> {
    let most: usize = most.trim().parse().ok()?;
    let unasked: usize = by_itself.split_whitespace().nth(2)?.parse().ok()?;
    (most.saturating_mul(2) > unasked).then_some(most)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_buffer_is_asked_for_that_is_larger_than_the_systems_own() {
        assert_eq!(
            worth_asking_for("4194304\n", "4096\t16384\t4194304\n"),
            Some(4 << 20)
        );
        // As many systems are: what could be asked for is less than what comes by itself.
        assert_eq!(worth_asking_for("212992\n", "4096 16384 4194304"), None);
        assert_eq!(worth_asking_for("", ""), None);
    }

    #[tokio::test]
    async fn a_connection_works_whatever_the_system_gives() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for wanted in ["reno", "no-such-control"] {
            let line = FarLine {
                congestion_control: Some(wanted.into()),
                carries_entries: true,
            };
            let (stream, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            let stream = stream.unwrap();
            line.tell(&stream, Duration::from_secs(7)).unwrap();
            assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 7000);
            let has = sockopt::tcp_congestion(&stream).unwrap();
            assert_eq!(has == wanted, wanted == "reno", "{has}");
            let (mut other, _) = accepted.unwrap();
            let mut stream = stream;
            tokio::io::AsyncWriteExt::write_all(&mut stream, b"word")
                .await
                .unwrap();
            let mut word = [0; 4];
            tokio::io::AsyncReadExt::read_exact(&mut other, &mut word)
                .await
                .unwrap();
            assert_eq!(&word, b"word");
        }
    }
}
