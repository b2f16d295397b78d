//! Bootstraps a ring: makes the calls that follow from the decision of `ring_admin::plan_bootstrap`. Each step is durable before the next
//! one, so a restarted bootstrap continues.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use raft_types::{MemberId, MemberRecord, RingId};
use ring_admin::{
    BootstrapPlan, BootstrapRefusal, IdentityBook, IdentityError, Introduction, LogOrigin, Party,
    plan_bootstrap,
};
use thiserror::Error;
use tokio::time::{Instant, sleep};

use crate::client::{AdminClient, AdminError};
use crate::config::TransportConfig;
use crate::tls::TlsMaterial;

/// The pause before the bootstrapping member asks the others again.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(200);

/// Why no ring was bootstrapped.
#[derive(Debug, Error)]
pub enum RingBootstrapError {
    /// The members cannot form a ring.
    #[error("{refusal}{}", .last_error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default())]
    Refused {
        /// The first obstacle found.
        refusal: BootstrapRefusal,
        /// The error of the last failed call, if a member did not answer.
        last_error: Option<AdminError>,
    },
    /// A member did not accept its assignment to the ring.
    #[error("member {member} did not join ring {ring}: {source}")]
    NotAdopted {
        /// The member that did not accept it.
        member: MemberId,
        /// The ring to which it was assigned.
        ring: RingId,
        /// The failure of the call, or the member's refusal.
        source: AdminError,
    },
    /// The bootstrapping member's own identity could not be changed.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// How a bootstrapping member calls the other members. The product makes admin calls; a simulation has its own.
pub trait BootstrapCalls: Send + Sync {
    /// Asks a member for its identity.
    ///
    /// # Errors
    /// [`AdminError`].
    fn identify<'a>(
        &'a self,
        record: &'a MemberRecord,
    ) -> BoxFuture<'a, Result<Introduction, AdminError>>;

    /// Assigns a new member to its ring, whose log begins at `origin`. Idempotent.
    ///
    /// # Errors
    /// [`AdminError`].
    fn adopt<'a>(
        &'a self,
        record: &'a MemberRecord,
        ring: RingId,
        to: Party,
        origin: &'a LogOrigin,
    ) -> BoxFuture<'a, Result<(), AdminError>>;
}

/// The calls of the product: admin calls, with TLS if TLS material is given.
pub struct AdminCalls<'t>(pub Option<&'t TlsMaterial>, pub TransportConfig);

impl AdminCalls<'_> {
    fn client(&self, record: &MemberRecord) -> Result<AdminClient, AdminError> {
        AdminClient::new(&record.address, self.0, self.1)
    }
}

impl BootstrapCalls for AdminCalls<'_> {
    fn identify<'a>(
        &'a self,
        record: &'a MemberRecord,
    ) -> BoxFuture<'a, Result<Introduction, AdminError>> {
        async move { self.client(record)?.identify().await }.boxed()
    }

    fn adopt<'a>(
        &'a self,
        record: &'a MemberRecord,
        ring: RingId,
        to: Party,
        origin: &'a LogOrigin,
    ) -> BoxFuture<'a, Result<(), AdminError>> {
        async move { self.client(record)?.adopt(ring, to, origin).await }.boxed()
    }
}

/// Bootstraps a ring of the `configured` members, whose incarnations are not known yet. All members receive the ring's id and the `origin`
/// of its log. `own_log_is_empty` is used if an earlier bootstrap by this member was interrupted. If this member's log has entries, the
/// ring is complete, and only [`IdentityBook::bootstrapped`] remains.
///
/// Afterwards, the caller opens the log with the ring's id, starts the member, and initialises Raft with the members of the plan. Then it
/// records in the book that the ring is complete.
///
/// # Errors
/// [`RingBootstrapError`]. If a member does not answer, it is returned after `deadline`.
pub async fn bootstrap_ring(
    calls: &dyn BootstrapCalls,
    book: &IdentityBook,
    own_log_is_empty: bool,
    origin: &LogOrigin,
    configured: &BTreeMap<MemberId, MemberRecord>,
    deadline: Duration,
) -> Result<BootstrapPlan, RingBootstrapError> {
    let until = Instant::now() + deadline;
    let plan = agree(calls, book, own_log_is_empty, configured, until).await?;
    book.begin_bootstrap(plan.ring, origin)?;
    tracing::info!(ring = %plan.ring, members = plan.members.len(), "making a ring");
    let own = book.identity().member;
    let others = plan.members.iter().filter(|(id, _)| **id != own);
    let adopted = join_all(others.map(|(&member, record)| {
        let ring = plan.ring;
        async move {
            let to = Party {
                member,
                incarnation: record.incarnation,
            };
            loop {
                match calls.adopt(record, ring, to, origin).await {
                    Err(error) if error.may_pass() && Instant::now() < until => {
                        sleep(BETWEEN_ROUNDS).await;
                    }
                    adopted => {
                        return adopted.map_err(|source| RingBootstrapError::NotAdopted {
                            member,
                            ring,
                            source,
                        });
                    }
                }
            }
        }
    }));
    adopted.await.into_iter().collect::<Result<(), _>>()?;
    Ok(plan)
}

/// Asks all members until the decision no longer depends on members that do not answer.
async fn agree(
    calls: &dyn BootstrapCalls,
    book: &IdentityBook,
    own_log_is_empty: bool,
    configured: &BTreeMap<MemberId, MemberRecord>,
    until: Instant,
) -> Result<BootstrapPlan, RingBootstrapError> {
    let new_ring = RingId::random();
    let own = book.identity();
    loop {
        let mut last_error = None;
        let introduction = Introduction {
            identity: own,
            log_is_empty: Some(own_log_is_empty),
            speaks: book.speaks(),
        };
        let mut introductions = BTreeMap::from([(own.member, introduction)]);
        let others = configured.iter().filter(|(id, _)| **id != own.member);
        let asked =
            join_all(others.map(|(&id, record)| async move { (id, calls.identify(record).await) }));
        for (id, answer) in asked.await {
            match answer {
                Ok(introduction) => {
                    introductions.insert(id, introduction);
                }
                Err(error) => last_error = Some(error),
            }
        }
        match plan_bootstrap(&own, configured, &introductions, new_ring) {
            Ok(plan) => return Ok(plan),
            Err(refusal) if refusal.may_pass() && Instant::now() < until => {
                tracing::info!(%refusal, "waiting before the ring is made");
                sleep(BETWEEN_ROUNDS).await;
            }
            Err(refusal) => {
                let last_error = last_error.filter(|_| refusal.may_pass());
                return Err(RingBootstrapError::Refused {
                    refusal,
                    last_error,
                });
            }
        }
    }
}
