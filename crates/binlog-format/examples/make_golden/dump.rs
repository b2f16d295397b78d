//! Records the stream that a replica receives: the events of all files, with the source's artificial events around them.
//!
//! Implements only the part of MySQL's protocol that an account without a password needs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use testkit::mysqld::Mysqld;

pub(crate) const ACCOUNT: &str = "
    CREATE USER 'dump'@'%' IDENTIFIED BY '';
    GRANT REPLICATION SLAVE ON *.* TO 'dump'@'%';
";

const COM_QUERY: u8 = 3;
const COM_BINLOG_DUMP_GTID: u8 = 0x1e;
/// Flags: protocol 4.1, secure authentication, plugin names.
const CAPABILITIES: u32 = 0x0200 | 0x8000 | 0x0008_0000;
const THROUGH_GTID: u16 = 0x04;
const HEARTBEAT_V2: u16 = 0x02;

/// Parameters of the replica's request.
pub(crate) struct Request {
    /// The replica's `@source_binlog_checksum`.
    pub(crate) checksum: &'static str,
    pub(crate) heartbeat_v2: bool,
}

/// Returns all events from the server's first file up to the second heartbeat.
pub(crate) fn record(server: &Mysqld, request: &Request) -> Result<Vec<u8>> {
    let mut link = Link::open(server)?;
    link.query(&format!(
        "SET @source_binlog_checksum = '{}'",
        request.checksum
    ))?;
    link.query("SET @source_heartbeat_period = 200000000")?;
    let mut dump = vec![COM_BINLOG_DUMP_GTID];
    let flags = THROUGH_GTID
        | if request.heartbeat_v2 {
            HEARTBEAT_V2
        } else {
            0
        };
    dump.extend(flags.to_le_bytes());
    dump.extend(99_u32.to_le_bytes());
    // The request has no file name, position 4, and an empty GTID set of eight bytes.
    dump.extend(0_u32.to_le_bytes());
    dump.extend(4_u64.to_le_bytes());
    dump.extend(8_u32.to_le_bytes());
    dump.extend(0_u64.to_le_bytes());
    link.send(0, &dump)?;

    let (mut stream, mut heartbeats) = (Vec::new(), 0);
    while heartbeats < 2 {
        let packet = link.receive()?;
        match packet.split_first() {
            Some((0, event)) => {
                heartbeats += usize::from(matches!(event.get(4), Some(27 | 41)));
                stream.extend_from_slice(event);
            }
            _ => bail!(
                "the source ended the dump: {}",
                String::from_utf8_lossy(&packet)
            ),
        }
    }
    Ok(stream)
}

struct Link(TcpStream);

impl Link {
    fn open(server: &Mysqld) -> Result<Self> {
        let stream = TcpStream::connect(server.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut link = Self(stream);
        link.receive()?;
        let mut hello = CAPABILITIES.to_le_bytes().to_vec();
        hello.extend((1_u32 << 24).to_le_bytes());
        hello.push(255);
        hello.extend([0; 23]);
        hello.extend(b"dump\0");
        // With an empty password, the authentication response is empty.
        hello.push(0);
        hello.extend(b"caching_sha2_password\0");
        link.send(1, &hello)?;
        link.expect_ok()?;
        Ok(link)
    }

    fn query(&mut self, sql: &str) -> Result<()> {
        self.send(0, &[&[COM_QUERY], sql.as_bytes()].concat())?;
        self.expect_ok()
    }

    fn expect_ok(&mut self) -> Result<()> {
        let answer = self.receive()?;
        ensure!(
            answer.first() == Some(&0),
            "refused: {}",
            String::from_utf8_lossy(&answer)
        );
        Ok(())
    }

    fn send(&mut self, number: u8, packet: &[u8]) -> Result<()> {
        let length = u32::try_from(packet.len())?.to_le_bytes();
        self.0
            .write_all(&[length[0], length[1], length[2], number])?;
        self.0.write_all(packet)?;
        Ok(())
    }

    fn receive(&mut self) -> Result<Vec<u8>> {
        let mut head = [0; 4];
        self.0.read_exact(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
        ensure!(length < 0xff_ffff, "a packet of more than 16 MiB");
        let mut packet = vec![0; length];
        self.0.read_exact(&mut packet)?;
        Ok(packet)
    }
}
