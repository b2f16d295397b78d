//! Plain replication: the unnamed channel reads the dump of another server, as a stock replica does, and applies the transactions. If both
//! servers have semi-sync enabled, the receiver acknowledges received transactions. The relay log is lost when the process ends or the
//! receiver stops. Transactions that were not applied are then requested again, as with `relay_log_recovery`.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::framing::{StreamItem, TransactionFramer};
use binlog_format::gtid::GtidSet;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use mysql_link::wire::ByteStream;
use mysql_link::{
    ConnectOptions, Connection, Dial, Dialer, DumpOptions, Endpoint, ReplicationStream,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::options::FindServer;
use crate::process::Mysqld;
use crate::replica::{ReplicaSource, SourceSettings};
use crate::server::Server;

/// Buffer size of a connection between a client and a server, in bytes.
const STREAM_BYTES: usize = 64 << 10;
/// Limit for a transaction, in bytes.
const LARGEST: u64 = 1 << 20;
/// Interval at which the receiver checks whether an unreachable source is reachable again.
const LOOK: Duration = Duration::from_millis(50);
/// Time after which an unreachable source counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// The settings of the server that its receiver needs.
struct Asked {
    source: SourceSettings,
    find: FindServer,
    semi_sync: bool,
    uuid: Uuid,
    server_id: u32,
}

impl Server {
    fn asked(&self) -> Option<Asked> {
        let running = self.running.as_ref()?;
        Some(Asked {
            source: self.channel.as_ref()?.source.clone(),
            find: self.options.donors.clone(),
            semi_sync: running.variables.is_on("rpl_semi_sync_replica_enabled"),
            uuid: self.options.server_uuid,
            server_id: self.options.server_id,
        })
    }
}

impl Asked {
    /// Returns the source if it is reachable now.
    fn server(&self) -> Option<Mysqld> {
        (self.find)(&self.source.host, self.source.port)
    }

    fn connect(&self, server: Mysqld) -> ConnectOptions {
        let SourceSettings {
            host,
            port,
            user,
            password,
        } = &self.source;
        let endpoint = Endpoint::tcp(host.clone(), *port);
        ConnectOptions {
            dialer: Dialer::new(Arc::new(server)),
            ..ConnectOptions::new(endpoint, user, password.as_str())
        }
    }

    /// Waits while the source is unreachable. After `PATIENCE`, returns the error of a lost connection.
    async fn until_reached(&self) -> Result<(), String> {
        let mut waited = Duration::ZERO;
        while self.server().is_none() {
            if waited > PATIENCE {
                return Err("Lost connection to MySQL server during query".to_owned());
            }
            tokio::time::sleep(LOOK).await;
            waited += LOOK;
        }
        Ok(())
    }
}

/// Connects to the server through memory.
impl Dial for Mysqld {
    fn dial(&self, _: &Endpoint) -> BoxFuture<'_, io::Result<ByteStream>> {
        let dialed = match self.listens() {
            false => Err(io::ErrorKind::ConnectionRefused.into()),
            true => {
                let (own, servers) = tokio::io::duplex(STREAM_BYTES);
                tokio::spawn(self.serve(servers));
                Ok(ByteStream::Memory(own))
            }
        };
        std::future::ready(dialed).boxed()
    }
}

/// The other server, as the source of the channel.
struct OtherServer(Mysqld);

impl ReplicaSource for OtherServer {
    fn open(&self, have: GtidSet) -> BoxStream<'static, Result<Bytes, String>> {
        let (relay_log, received) = mpsc::unbounded_channel();
        let own = self.0.clone();
        let receiving = Receiving(tokio::spawn(async move {
            let ended = receive(&own, have, &relay_log).await;
            if let Err(why) = ended {
                // The applier may have ended.
                drop(relay_log.send(Err(why.to_string())));
            }
        }));
        stream::unfold(
            (received, receiving),
            |(mut received, receiving)| async move {
                let next = received.recv().await?;
                Some((next, (received, receiving)))
            },
        )
        .boxed()
    }
}

/// The task of a receiver. Dropping this value ends the task.
struct Receiving(JoinHandle<()>);

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Receives transactions until the connection to the source is lost.
async fn receive(
    own: &Mysqld,
    have: GtidSet,
    relay_log: &mpsc::UnboundedSender<Result<Bytes, String>>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let Some(asked) = own.act(|server| server.asked()) else {
        return Ok(());
    };
    let unreachable = || {
        let SourceSettings { host, port, .. } = &asked.source;
        format!("Can't connect to MySQL server on '{host}:{port}'")
    };
    let source = asked.server().ok_or_else(unreachable)?;
    let connect = asked.connect(source);
    let mut connection = Connection::open(&connect).await?;
    let uuid = connection.query("SELECT @@GLOBAL.server_uuid").await?;
    let uuid = uuid.first().and_then(|row| row.text_at(0));
    let uuid = uuid.unwrap_or_default().to_owned();
    own.act(|server| {
        if let Some(channel) = &mut server.channel {
            channel.source_uuid = uuid;
        }
    });
    let options = DumpOptions {
        semi_sync: asked.semi_sync,
        ..DumpOptions::new(asked.server_id, asked.uuid, have)
    };
    let mut dump = ReplicationStream::start(connection, &options).await?;
    let mut framer = TransactionFramer::new(ChecksumAlgorithm::Crc32, LARGEST);
    loop {
        let event = dump.next().await?;
        asked.until_reached().await?;
        // While the process is paused, it does not read the event.
        own.until(|server| (!server.paused).then_some(())).await;
        let item = framer.push(&event.event)?;
        if let Some(StreamItem::Transaction(framed)) = item {
            let position = framed.end_position.clone();
            if relay_log.send(Ok(framed.payload)).is_err() {
                return Ok(());
            }
            if event.ack_wanted {
                dump.ack(&position).await?;
            }
        }
    }
}

impl Mysqld {
    /// Runs the threads of the unnamed channel. While the channel is started, it follows the server in its settings, which
    /// [`MysqldOptions::donors`](crate::MysqldOptions::donors) finds. After the future is dropped, the channel receives nothing.
    pub async fn run_plain_replication(&self) {
        let source = OtherServer(self.clone());
        self.carry_threads(true, &source).await;
    }
}
