//! Attached clients, for `SHOW REPLICAS`, status and metrics. If a server starts a second dump, its first one ends.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::committed_files::{CommittedFiles, Position};

/// How a consumer specified the start of its dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpKind {
    /// The consumer sent the set of GTIDs that it has.
    Gtids,
    /// The consumer sent a file name and an offset in the file.
    Position,
}

/// Values of `COM_REGISTER_SLAVE`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) server_id: u32,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The state of a consumer at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerView {
    /// The server's number for the connection.
    pub connection: u32,
    /// Address of the consumer's end of the connection.
    pub address: SocketAddr,
    /// The host in the consumer's registration; empty if there is none.
    pub host: String,
    /// The port in the consumer's registration; 0 if there is none.
    pub port: u16,
    /// The consumer's server id; 0 if it has sent none.
    pub server_id: u32,
    /// The consumer's server UUID, if it has sent one.
    pub uuid: Option<Uuid>,
    /// Whether the consumer requested the dump by GTIDs or by position.
    pub kind: DumpKind,
    /// The position up to which the log was read for the consumer.
    pub position: Position,
    /// Bytes of the log after that position.
    pub behind_bytes: u64,
    /// Bytes queued for the consumer, which it has not read yet.
    pub queued_bytes: u64,
    /// Time since the consumer attached.
    pub attached: Duration,
}

/// All consumers of a server. Cloning is cheap.
#[derive(Clone, Default)]
pub struct Consumers(Arc<Mutex<Clients>>);

/// The clients by connection number.
type Clients = BTreeMap<u32, Client>;

struct Client {
    address: SocketAddr,
    registration: Registration,
    uuid: Option<Uuid>,
    dump: Option<Dump>,
}

struct Dump {
    kind: DumpKind,
    progress: Arc<Progress>,
    since: Instant,
    /// Cancelled when another dump of the same server begins; ends this dump.
    replaced: CancellationToken,
}

/// Progress of a dump. Only the dump writes it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    reached: Mutex<Position>,
    queued: AtomicU64,
}

impl Progress {
    pub(crate) fn reached(&self, position: Position) {
        *self.position() = position;
    }

    pub(crate) fn queued(&self, bytes: usize) {
        self.queued.store(bytes as u64, Ordering::Relaxed);
    }

    fn position(&self) -> MutexGuard<'_, Position> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A dump's entry in the list of clients; dropping it removes the entry.
pub(crate) struct Attached {
    consumers: Consumers,
    connection: u32,
    pub(crate) progress: Arc<Progress>,
    pub(crate) replaced: CancellationToken,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.consumers.leave(self.connection);
    }
}

impl Consumers {
    /// Records the registration of a client, which may start a dump later.
    pub(crate) fn register(
        &self,
        connection: u32,
        address: SocketAddr,
        uuid: Option<Uuid>,
        registration: Registration,
    ) {
        let client = Client {
            address,
            registration,
            uuid,
            dump: None,
        };
        self.lock().insert(connection, client);
    }

    /// Records the start of a client's dump, and ends another dump of the same server.
    pub(crate) fn attach(
        &self,
        connection: u32,
        address: SocketAddr,
        server_id: u32,
        uuid: Option<Uuid>,
        kind: DumpKind,
    ) -> Attached {
        let mut clients = self.lock();
        for (other, client) in &*clients {
            if *other != connection
                && let Some(dump) = &client.dump
                && client.is_server(server_id, uuid)
            {
                dump.replaced.cancel();
            }
        }
        let progress = Arc::new(Progress::default());
        let replaced = CancellationToken::new();
        let client = clients.entry(connection);
        let client = client.or_insert_with(|| Client {
            address,
            registration: Registration::default(),
            uuid: None,
            dump: None,
        });
        client.uuid = uuid.or(client.uuid);
        client.registration.server_id = server_id;
        client.dump = Some(Dump {
            kind,
            progress: progress.clone(),
            since: Instant::now(),
            replaced: replaced.clone(),
        });
        drop(clients);
        Attached {
            consumers: self.clone(),
            connection,
            progress,
            replaced,
        }
    }

    /// Removes a client whose connection has ended.
    pub(crate) fn leave(&self, connection: u32) {
        self.lock().remove(&connection);
    }

    /// The server id with which a connection registered, if any.
    pub(crate) fn registered_as(&self, connection: u32) -> Option<u32> {
        let clients = self.lock();
        let id = clients.get(&connection)?.registration.server_id;
        (id != 0).then_some(id)
    }

    /// The state of all clients with a dump, in the order in which they connected.
    pub fn views(&self, log: &dyn CommittedFiles) -> Vec<ConsumerView> {
        let mut files = log.older_files();
        files.extend(log.files());
        let now = Instant::now();
        let view = |(connection, client): (&u32, &Client)| {
            let dump = client.dump.as_ref()?;
            let position = *dump.progress.position();
            let unread = files.iter().map(|file| match file.number {
                number if number < position.file => 0,
                number if number == position.file => file.bytes.saturating_sub(position.offset),
                _ => file.bytes,
            });
            Some(ConsumerView {
                connection: *connection,
                address: client.address,
                host: client.registration.host.clone(),
                port: client.registration.port,
                server_id: client.registration.server_id,
                uuid: client.uuid,
                kind: dump.kind,
                position,
                behind_bytes: unread.sum(),
                queued_bytes: dump.progress.queued.load(Ordering::Relaxed),
                attached: now.saturating_duration_since(dump.since),
            })
        };
        self.lock().iter().filter_map(view).collect()
    }

    /// The registered clients for `SHOW REPLICAS`: server id, host, port, UUID.
    pub(crate) fn replicas(&self) -> Vec<(u32, String, u16, Option<Uuid>)> {
        let clients = self.lock();
        let replicas = clients.values().map(|client| {
            let own = &client.registration;
            (own.server_id, own.host.clone(), own.port, client.uuid)
        });
        replicas.filter(|(id, ..)| *id != 0).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Clients> {
        // Entries are independent, so a panic leaves no inconsistent state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// True if this client is the same server as that of a new dump. Compares UUIDs if both sent one, otherwise server ids.
    fn is_server(&self, server_id: u32, uuid: Option<Uuid>) -> bool {
        match (self.uuid, uuid) {
            (Some(own), Some(uuid)) => own == uuid,
            (None, None) => server_id != 0 && self.registration.server_id == server_id,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attach(
        consumers: &Consumers,
        connection: u32,
        server_id: u32,
        uuid: Option<u128>,
    ) -> Attached {
        let address = "127.0.0.1:1".parse().unwrap();
        let uuid = uuid.map(Uuid::from_u128);
        consumers.attach(connection, address, server_id, uuid, DumpKind::Gtids)
    }

    #[test]
    fn a_second_dump_of_the_same_server_replaces_the_first() {
        let consumers = Consumers::default();
        let first = attach(&consumers, 1, 7, Some(9));
        let other = attach(&consumers, 2, 7, Some(8));
        let plain = attach(&consumers, 3, 0, None);
        let plain_too = attach(&consumers, 4, 0, None);
        assert!(!first.replaced.is_cancelled());
        let second = attach(&consumers, 5, 70, Some(9));
        assert!(first.replaced.is_cancelled());
        for untouched in [&other, &plain, &plain_too, &second] {
            assert!(!untouched.replaced.is_cancelled());
        }
        let by_id = attach(&consumers, 6, 5, None);
        let _again = attach(&consumers, 7, 5, None);
        assert!(by_id.replaced.is_cancelled());
    }

    #[test]
    fn disconnected_clients_are_not_listed() {
        let consumers = Consumers::default();
        let registration = Registration {
            server_id: 3,
            host: "replica".into(),
            port: 3306,
        };
        consumers.register(1, "127.0.0.1:1".parse().unwrap(), None, registration);
        assert_eq!(
            consumers.replicas(),
            [(3, "replica".to_owned(), 3306, None)]
        );
        let attached = attach(&consumers, 1, 3, Some(9));
        assert_eq!(consumers.replicas()[0].3, Some(Uuid::from_u128(9)));
        drop(attached);
        assert_eq!(consumers.replicas(), []);
    }
}
