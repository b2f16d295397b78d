//! The members that are called: each with its two connections, and what was wrong with it last. Calls
//! to one member share its connections, whoever makes them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use consensus::{Envelope, IdentityBook, Party};
use raft_types::{MemberId, MemberRecord, Region};
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::endpoint::{self, AddressError};
use super::link_bytes::{LinkBytes, LinkCounters};
use super::proxy_line::ProxyLine;
use super::trouble::{PeerTrouble, Trouble};
use crate::compression::{Compression, CompressionFigures, Packer};
use crate::envelope;
use crate::schema::raft_client::RaftClient;
use crate::tls::TlsMaterial;
use crate::transport_config::TransportConfig;

/// Packs what goes to other regions.
pub(crate) struct FarPacker {
    own: Region,
    packer: Arc<Packer>,
}

impl FarPacker {
    pub(crate) fn new(own: Region, compression: Compression) -> Self {
        Self {
            own,
            packer: Arc::new(Packer::new(compression)),
        }
    }

    /// What packs for a member.
    fn towards(&self, record: &MemberRecord) -> Option<Arc<Packer>> {
        (record.region != self.own).then(|| self.packer.clone())
    }
}

/// All members that this one calls.
pub(crate) struct Peers {
    book: Arc<IdentityBook>,
    tls: Option<TlsMaterial>,
    config: TransportConfig,
    far: Option<FarPacker>,
    known: Mutex<BTreeMap<MemberId, Arc<Peer>>>,
    counters: Mutex<BTreeMap<MemberId, Arc<LinkCounters>>>,
}

impl Peers {
    pub(crate) fn new(
        book: Arc<IdentityBook>,
        tls: Option<TlsMaterial>,
        config: TransportConfig,
        far: Option<FarPacker>,
    ) -> Self {
        Self {
            book,
            tls,
            config,
            far,
            known: Mutex::default(),
            counters: Mutex::default(),
        }
    }

    /// The member as its record has it; a changed record makes it anew.
    pub(crate) fn peer(&self, id: MemberId, record: &MemberRecord) -> Arc<Peer> {
        let mut known = self.lock();
        if let Some(peer) = known.get(&id)
            && peer.is(record)
        {
            return peer.clone();
        }
        let peer = Arc::new(self.connect(id, record));
        known.insert(id, peer.clone());
        peer
    }

    /// The member by the newest record that anybody has called it by.
    pub(crate) fn newest(&self, id: MemberId) -> Option<Arc<Peer>> {
        self.lock().get(&id).cloned()
    }

    /// Connections come up with the first call on them.
    fn connect(&self, id: MemberId, record: &MemberRecord) -> Peer {
        let connect = || endpoint::lazy(&record.address, self.tls.as_ref(), &self.config);
        Peer {
            own: self.book.clone(),
            config: self.config,
            to: Party {
                member: id,
                incarnation: record.incarnation,
            },
            address: record.address.clone(),
            bulk: connect().map(raft_client),
            urgent: connect().map(raft_client),
            packer: self.far.as_ref().and_then(|far| far.towards(record)),
            region: record.region.clone(),
            counters: self.counters().entry(id).or_default().clone(),
            proxy_line: ProxyLine::default(),
            troubled: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    /// What was sent to each member so far.
    pub(crate) fn link_bytes(&self) -> BTreeMap<MemberId, LinkBytes> {
        let counters = self.counters();
        let counted = counters.iter().map(|(id, link)| (*id, link.counted()));
        counted.collect()
    }

    fn counters(&self) -> MutexGuard<'_, BTreeMap<MemberId, Arc<LinkCounters>>> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What compression spared so far.
    pub(crate) fn compression(&self) -> CompressionFigures {
        let far = self.far.as_ref();
        far.map(|far| far.packer.figures()).unwrap_or_default()
    }

    /// What is wrong with whom.
    pub(crate) fn troubles(&self) -> BTreeMap<MemberId, PeerTrouble> {
        let known = self.lock();
        let troubled = known
            .iter()
            .filter_map(|(id, peer)| Some((*id, peer.trouble()?)));
        troubled.collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MemberId, Arc<Peer>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn raft_client(channel: Channel) -> RaftClient<Channel> {
    RaftClient::new(channel)
}

/// One member that is called.
pub(crate) struct Peer {
    own: Arc<IdentityBook>,
    pub(crate) config: TransportConfig,
    to: Party,
    address: String,
    region: Region,
    /// Entries.
    bulk: Result<RaftClient<Channel>, AddressError>,
    /// Heartbeats, votes, transfers: never behind entries.
    urgent: Result<RaftClient<Channel>, AddressError>,
    packer: Option<Arc<Packer>>,
    /// Of what is sent to it.
    pub(crate) counters: Arc<LinkCounters>,
    /// What it sends on for this member.
    pub(crate) proxy_line: ProxyLine,
    troubled: AtomicBool,
    trouble: Mutex<Option<Trouble>>,
}

impl Peer {
    fn is(&self, record: &MemberRecord) -> bool {
        self.address == record.address
            && self.to.incarnation == record.incarnation
            && self.region == record.region
    }

    /// What packs the payloads of entries for it.
    pub(crate) fn packer(&self) -> Option<Arc<Packer>> {
        self.packer.clone()
    }

    pub(crate) fn id(&self) -> MemberId {
        self.to.member
    }

    pub(crate) fn own_id(&self) -> MemberId {
        self.own.identity().member
    }

    pub(crate) fn bulk(&self) -> Result<RaftClient<Channel>, AddressError> {
        self.bulk.clone()
    }

    pub(crate) fn urgent(&self) -> Result<RaftClient<Channel>, AddressError> {
        self.urgent.clone()
    }

    /// A message in its envelope.
    pub(crate) fn sealed<T>(&self, message: T) -> Request<T> {
        let own = self.own.identity();
        let envelope = Envelope {
            // A member that has no ring does not call; the receiver would say so.
            ring: own.ring.ring().unwrap_or_default(),
            from: Party {
                member: own.member,
                incarnation: own.incarnation,
            },
            to: self.to,
        };
        let mut request = Request::new(message);
        envelope::seal(&envelope, request.metadata_mut());
        request
    }

    /// Notes that the member answered.
    pub(crate) fn well(&self) {
        if self.troubled.swap(false, Ordering::Relaxed) {
            tracing::info!(member = %self.id(), address = %self.address, "the member answers again");
            *self.lock() = None;
        }
    }

    /// Notes what was wrong, and logs it when it is worth that.
    pub(crate) fn troubled(&self, refusal: Option<&str>, message: &str) {
        if Trouble::note(&mut self.lock(), refusal, message, Instant::now()) {
            tracing::warn!(member = %self.id(), address = %self.address, %message, "the member cannot be called");
        }
        self.troubled.store(true, Ordering::Relaxed);
    }

    /// Notes what a failed call says, and returns it in words.
    pub(crate) fn failed(&self, status: &Status) -> String {
        let message = endpoint::words(status);
        self.troubled(envelope::refusal_code(status), &message);
        message
    }

    fn trouble(&self) -> Option<PeerTrouble> {
        self.lock().as_ref().map(Trouble::view)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Trouble>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
