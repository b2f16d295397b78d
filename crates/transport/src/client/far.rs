//! Options for other regions: compressed payloads, and connections that are tuned for distance and packet loss.
//!
//! The system's send buffer (`net.ipv4.tcp_wmem`) limits the bytes in flight of a connection. Many congestion controls treat each lost
//! packet as congestion, and are slow if packets are lost for other reasons. So these connections request the largest buffer, and a
//! congestion control that measures the bandwidth. Each option is requested once per connection. If the system refuses an option, its
//! default applies.
//!
//! A connection for entries is closed if the other end's system acknowledges nothing for some time. HTTP/2's keepalive is not used: a ping
//! or its answer waits for the data in flight, so a slow connection would seem to be dead.

use std::sync::{Arc, Once};
use std::time::Duration;
use std::{fs, io};

use raft_types::Region;
use rustix::net::sockopt;
use spilling_bytes::SpillFolder;
use tokio::net::TcpStream;

use crate::compression::{Compression, Packer};
use crate::config::STREAM_WINDOW_BYTES;

/// Number of connections for entries to a member in another region, in addition to the first one.
pub(super) const FURTHER_STRIPES: usize = 5;
/// Limit of the bytes of entries in flight to a member in another region: 50 MB/s over a round trip of 300 ms, plus time for the disk. A
/// receiver opens a connection's window again in halves, so each connection can use half of its window. With a higher limit, messages would
/// wait in full connections while the receiver needs them, and throughput would drop.
pub(super) const FAR_WINDOW_BYTES: usize = (1 + FURTHER_STRIPES) * STREAM_WINDOW_BYTES as usize / 2;
/// Maximum bytes of entries in a message. The receiver needs the messages in order. If a part of the next message does not fit the window
/// of its connection, it delays all others by a round trip.
pub(super) const FAR_PART_BYTES: usize = 256 << 10;
/// Above this number of bytes of entries in flight, several connections are used.
pub(super) const MUCH_BYTES: usize = 1 << 20;

/// Options for other regions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FarOptions {
    /// Compression of payloads; `None`: no compression.
    pub compression: Option<Compression>,
    /// The system's name of the congestion control; `None` for the system's default.
    pub congestion_control: Option<String>,
}

/// Options for members in other regions than this member.
pub(crate) struct Far {
    pub(super) own: Region,
    /// Compresses payloads.
    pub(super) packer: Option<Arc<Packer>>,
    /// Socket options of the connections.
    pub(super) line: FarLine,
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
}

/// Socket options of a connection to another region.
#[derive(Debug, Clone, Default)]
pub(crate) struct FarLine {
    congestion_control: Option<Arc<str>>,
    /// True if the connection carries entries; false if it carries heartbeats and votes.
    pub(crate) carries_entries: bool,
}

impl FarLine {
    /// Sets the options of a new connection. A connection for entries is closed if sent data are not acknowledged for `deadline`.
    ///
    /// # Errors
    /// If the system refuses the deadline.
    pub(crate) fn apply(&self, stream: &TcpStream, deadline: Duration) -> io::Result<()> {
        if self.carries_entries {
            let milliseconds = u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX);
            sockopt::set_tcp_user_timeout(stream, milliseconds)?;
        }
        if let Some(wanted) = self.congestion_control.as_deref() {
            static LOGGED: Once = Once::new();
            if let Err(error) = sockopt::set_tcp_congestion(stream, wanted) {
                LOGGED.call_once(|| {
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
            // If the system refuses the size, its own limits apply.
            let _ = sockopt::set_socket_send_buffer_size(stream, bytes);
        }
        Ok(())
    }
}

/// Returns the buffer size to request, in bytes. `None` if a request would not give more than the default.
fn buffer_worth_asking_for() -> Option<usize> {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/{name}")).ok();
    let (most, by_itself) = (read("core/wmem_max")?, read("ipv4/tcp_wmem")?);
    worth_asking_for(&most, &by_itself)
}

/// Compares the two sizes. For a request, the system gives twice the requested size, at most `most`. `by_itself` contains the maximum that
/// it gives without a request.
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
    fn only_a_buffer_above_the_default_is_requested() {
        assert_eq!(
            worth_asking_for("4194304\n", "4096\t16384\t4194304\n"),
            Some(4 << 20)
        );
        // Common values of many systems: a requested size would be smaller than the size that the kernel reaches by itself.
        assert_eq!(worth_asking_for("212992\n", "4096 16384 4194304"), None);
        assert_eq!(worth_asking_for("", ""), None);
    }

    #[tokio::test]
    async fn a_connection_works_with_and_without_the_congestion_control() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for wanted in ["reno", "no-such-control"] {
            let line = FarLine {
                congestion_control: Some(wanted.into()),
                carries_entries: true,
            };
            let (stream, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            let stream = stream.unwrap();
            line.apply(&stream, Duration::from_secs(7)).unwrap();
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
