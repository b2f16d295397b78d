//! A client outside the ring that disturbs one mysqld: a foreign semi-sync replica that acknowledges everything, or a session that owns a
//! GTID. The replica reconnects when its connection is closed, until it is dropped.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::framing::TransactionFramer;
use mysql_link::{ConnectOptions, Connection, DumpOptions, Endpoint, ReplicationStream};
use testkit::cluster::{CLIENT, CLIENT_PASSWORD};
use uuid::Uuid;

use crate::clients::runtime;

/// A server id that no member or mysqld of the ring uses.
const SERVER_ID: u32 = 4_000_000_001;
/// More than the nemesis's clients write in one transaction.
const MAX_TRANSACTION_BYTES: u64 = 1 << 30;
/// The pause before it reconnects.
const RECONNECT: Duration = Duration::from_millis(20);
/// How often the owner of a GTID checks its connection.
const LOOK: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(crate) struct Intruder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Intruder {
    /// Starts it at the mysqld with this socket: it keeps a transaction with this GTID open, or, without one, acknowledges every received
    /// transaction, as a semi-sync replica.
    ///
    /// # Errors
    /// When the operating system refuses the thread.
    pub(crate) fn start(socket: PathBuf, gtid: Option<String>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let runtime = runtime()?;
        let thread = thread::Builder::new().name("intruder".to_owned());
        let thread = thread.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // A closed connection or a stopped mysqld is expected.
                let _ = runtime.block_on(intrude(&socket, gtid.as_deref(), &stopped));
                if gtid.is_some() {
                    break;
                }
                thread::sleep(RECONNECT);
            }
        })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Intruder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic is printed.
            let _ = thread.join();
        }
    }
}

async fn intrude(socket: &Path, gtid: Option<&str>, stop: &AtomicBool) -> Result<()> {
    let options = ConnectOptions::new(Endpoint::unix(socket), CLIENT, CLIENT_PASSWORD);
    let mut session = Connection::open(&options).await?;
    match gtid {
        Some(gtid) => {
            session
                .execute(&format!("SET gtid_next = '{gtid}'"))
                .await?;
            session.execute("BEGIN").await?;
            while !stop.load(Ordering::Relaxed) {
                tokio::time::sleep(LOOK).await;
                session.execute("DO 1").await?;
            }
            Ok(())
        }
        None => {
            let answer = session
                .query("SELECT @@GLOBAL.gtid_executed AS have")
                .await?;
            let have = answer.rows.first().and_then(|row| row.text("have"));
            let have = have.context("gtid_executed has no value")?.parse()?;
            let options = DumpOptions::new(SERVER_ID, Uuid::new_v4(), have);
            let mut dump = ReplicationStream::start(session, &options).await?;
            let framer = TransactionFramer::new(ChecksumAlgorithm::Crc32, MAX_TRANSACTION_BYTES);
            let mut framer = framer.without_payloads();
            // The source sends a heartbeat each second, so the flag is read in time.
            while !stop.load(Ordering::Relaxed) {
                let event = dump.next().await?;
                framer.push(&event.event)?;
                if event.ack_wanted {
                    dump.ack(framer.position()).await?;
                }
            }
            Ok(())
        }
    }
}
