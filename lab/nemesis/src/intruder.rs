//! A client from outside the ring that disturbs one mysqld. It is either a foreign semi-sync replica that acknowledges everything, or a
//! session that owns a GTID. The replica reconnects when its connection is closed, until the [`Intruder`] is dropped.

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
/// Limit for a transaction, larger than all transactions of the clients.
const MAX_TRANSACTION_BYTES: u64 = 1 << 30;
/// The pause before the replica reconnects.
const RECONNECT: Duration = Duration::from_millis(20);
/// The interval at which the owner of a GTID checks its connection.
const LOOK: Duration = Duration::from_millis(100);

/// The running client. Dropping this value ends it.
#[derive(Debug)]
pub(crate) struct Intruder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Intruder {
    /// Starts a client at the mysqld with this socket. With a GTID, the client keeps a transaction with this GTID open. Without one, it is
    /// a semi-sync replica that acknowledges every received transaction.
    ///
    /// # Errors
    /// The operating system cannot create the thread.
    pub(crate) fn start(socket: PathBuf, gtid: Option<String>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let runtime = runtime()?;
        let thread = thread::Builder::new().name("intruder".to_owned());
        let thread = thread.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                // An error is expected, because a fault may close the connection or stop mysqld.
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
            // A panic of the thread was already printed.
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
            // The source sends a heartbeat each second, so that `stop` is checked at least once a second.
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
