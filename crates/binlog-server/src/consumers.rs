//! Attached clients: for `SHOW REPLICAS`, status and metrics, and so that a second dump of the same server ends the first.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::committed_files::{CommittedFiles, Position};

/// How a consumer specified the position at which its dump begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpKind {
    /// By the set of GTIDs that it has.
    Gtids,
    /// By the name of a file and an offset in it.
    Position,
}

/// Values of `COM_REGISTER_SLAVE`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) server_id: u32,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// A consumer at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerView {
    /// The server's number of the connection.
    pub connection: u32,
    /// Address of its end of the connection.
    pub address: SocketAddr,
    /// The host that it registered with; empty for none.
    pub host: String,
    /// The port that it registered with; 0 for none.
    pub port: u16,
    /// Its server id; 0 for none.
    pub server_id: u32,
    /// Its server UUID, if it sent one.
    pub uuid: Option<Uuid>,
    /// Whether it asked by GTIDs or by position.
    pub kind: DumpKind,
    /// The position up to which the log was read for it.
    pub position: Position,
    /// Bytes of the log after that position.
    pub behind_bytes: u64,
    /// Bytes that it has not read yet.
    pub queued_bytes: u64,
    /// Time since it attached.
    pub attached: Duration,
}

/// All consumers of a server. Cheap to clone.
#[derive(Clone, Default)]
pub struct Consumers(Arc<Mutex<Clients>>);

/// By connection.
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
    /// Ends the dump because another one of the same server has begun.
    replaced: CancellationToken,
}

/// Progress of a dump, which alone writes it.
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

/// A dump's entry, which is removed at the end of the dump.
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
    /// A client registers; it may dump later.
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

    /// A client's dump begins; another one of the same server ends.
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

    /// Clients that read the log, in the order in which they connected.
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
        // Entries are independent, so that a panic leaves no inconsistent state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// True if a new dump is of the same server: by UUID if both sent one, otherwise by server id.
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
