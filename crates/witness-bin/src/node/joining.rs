//! How a data directory comes to its ring: it belongs to one already, it waits to be taken into one, or
//! it makes one because it was started with `--bootstrap` (or had begun to, before it was stopped).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use binlog_store::{BinlogStore, StoreObserver};
use consensus::{IdentityBook, LogOrigin, RingState};
use raft_types::{Incarnation, MemberId, MemberRecord, RingId};
use transport::{TlsMaterial, TransportConfig, found_ring};

use super::error::NodeError;
use super::log_opening::open_log;
use super::member_state::{FoundOrder, MemberState};
use crate::config::{MemberEntry, Settings};

/// How often a waiting member looks whether it was taken into a ring.
const LOOK: Duration = Duration::from_millis(50);
/// A founder waits for the other members as long as nobody stops it.
const FOUNDER_PATIENCE: Duration = Duration::from_secs(365 * 86_400);

/// How long the others are waited for when an operator waits too.
const ORDERED_PATIENCE: Duration = Duration::from_secs(10);

/// An open log, and the first membership when this member has to begin the ring.
pub(crate) struct Joined {
    pub(crate) ring: RingId,
    pub(crate) log: BinlogStore,
    pub(crate) first_members: Option<BTreeMap<MemberId, MemberRecord>>,
}

/// What joining needs.
pub(crate) struct Joining<'a> {
    pub(crate) config: &'a Arc<Settings>,
    pub(crate) member_state: &'a MemberState,
    pub(crate) book: &'a IdentityBook,
    pub(crate) tls: Option<&'a TlsMaterial>,
    pub(crate) transport: TransportConfig,
    pub(crate) flushes: Option<&'a Arc<dyn StoreObserver>>,
    pub(crate) bootstrap: bool,
}

impl Joining<'_> {
    /// Comes to the ring, however long that takes. May be stopped and repeated at any point.
    ///
    /// # Errors
    /// When waiting cannot help.
    pub(crate) async fn join(&self) -> Result<Joined, NodeError> {
        match self.book.identity().ring {
            RingState::Belongs { ring } => {
                if self.bootstrap {
                    tracing::info!(%ring, "--bootstrap has nothing to do: this member belongs to a ring");
                }
                self.open(ring, None).await
            }
            RingState::Founding { ring } => {
                // Stopped before or after the first entry was written: the log tells.
                let log = self.open_log(ring).await?;
                if log.bounds().is_some() {
                    self.book.founded()?;
                    return Ok(Joined {
                        ring,
                        log,
                        first_members: None,
                    });
                }
                drop(log.close());
                drop(log);
                self.found(&self.book.origin(), FOUNDER_PATIENCE).await
            }
            RingState::Fresh if self.bootstrap => {
                self.found(&LogOrigin::default(), FOUNDER_PATIENCE).await
            }
            RingState::Fresh => self.taken_in_or_ordered().await,
        }
    }

    /// Waits until another member founds the ring, or an operator has this one do it.
    async fn taken_in_or_ordered(&self) -> Result<Joined, NodeError> {
        tracing::info!(
            "waiting to be taken into a ring; start one member with --bootstrap, or run `witness enable-raft`"
        );
        let mut orders = self.member_state.founding_orders();
        loop {
            let ordered = async {
                match &mut orders {
                    Some(orders) => orders.recv().await,
                    None => std::future::pending().await,
                }
            };
            let order = tokio::select! {
                ring = self.taken_in() => return self.open(ring, None).await,
                order = ordered => order,
            };
            let Some(FoundOrder { origin, answer }) = order else {
                orders = None;
                continue;
            };
            // Begun already, it is still the same ring.
            let origin = match self.book.identity().ring {
                RingState::Founding { .. } => self.book.origin(),
                _ => origin,
            };
            // Whoever ordered it may have left; that changes nothing here.
            match self.found(&origin, ORDERED_PATIENCE).await {
                Ok(joined) => {
                    drop(answer.send(Ok(joined.ring)));
                    return Ok(joined);
                }
                Err(error) => {
                    tracing::warn!(%error, "the ring that was ordered is not made");
                    drop(answer.send(Err(error.to_string())));
                }
            }
        }
    }

    async fn found(&self, origin: &LogOrigin, patience: Duration) -> Result<Joined, NodeError> {
        let configured = configured_members(self.config);
        let plan = found_ring(
            self.book,
            true,
            origin,
            &configured,
            self.tls,
            self.transport,
            patience,
        );
        let plan = plan.await?;
        self.open(plan.ring, Some(plan.members)).await
    }

    async fn taken_in(&self) -> RingId {
        loop {
            if let RingState::Belongs { ring } = self.book.identity().ring {
                return ring;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn open(
        &self,
        ring: RingId,
        first_members: Option<BTreeMap<MemberId, MemberRecord>>,
    ) -> Result<Joined, NodeError> {
        let log = self.open_log(ring).await?;
        Ok(Joined {
            ring,
            log,
            first_members,
        })
    }

    async fn open_log(&self, ring: RingId) -> Result<BinlogStore, NodeError> {
        open_log(
            self.config.clone(),
            ring,
            &self.book.origin(),
            self.flushes.cloned(),
        )
        .await
    }
}

/// The first membership, before the data directories are known.
fn configured_members(config: &Settings) -> BTreeMap<MemberId, MemberRecord> {
    config
        .members
        .iter()
        .map(|entry| (entry.id, record_of(entry)))
        .collect()
}

pub(super) fn record_of(entry: &MemberEntry) -> MemberRecord {
    MemberRecord {
        name: entry.name.clone(),
        region: entry.region.clone(),
        kind: entry.kind,
        votes: entry.votes,
        priority: entry.priority,
        address: entry.address.clone(),
        incarnation: Incarnation::default(),
        ..MemberRecord::default()
    }
}
