//! Bootstraps a ring: the calls around the decision of `ring_admin::plan_bootstrap`. Each step is durable before the next, and a restarted
//! bootstrap continues.

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

/// Pause before the bootstrapping member asks again.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(200);

/// Why no ring was made.
#[derive(Debug, Error)]
pub enum RingBootstrapError {
    /// The members cannot form a ring.
    #[error("{refusal}{}", .last_error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default())]
    Refused {
        /// The first obstacle found.
        refusal: BootstrapRefusal,
        /// The last failed call's error, if a member did not answer.
        last_error: Option<AdminError>,
    },
    /// A member did not adopt its ring.
    #[error("member {member} did not join ring {ring}: {source}")]
    NotAdopted {
        /// The member.
        member: MemberId,
        /// The ring to be adopted.
        ring: RingId,
        /// The failure of the call, or the member's refusal.
        source: AdminError,
    },
    /// The bootstrapping member's own identity could not be changed.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// How a bootstrapping member calls the others. Normally by admin calls; a simulation has its own.
pub trait BootstrapCalls: Send + Sync {
    /// Asks a member for its identity.
    ///
    /// # Errors
    /// [`AdminError`].
    fn identify<'a>(
        &'a self,
        record: &'a MemberRecord,
    ) -> BoxFuture<'a, Result<Introduction, AdminError>>;

    /// Assigns a fresh member to its ring, whose log begins at `origin`. Idempotent.
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

/// The product's calls, with TLS if material is given.
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

/// Makes a ring of the `configured` members, whose incarnations are not known yet, and gives all of them its id and its log's `origin`.
/// `own_log_is_empty` is called if this member's earlier bootstrap was interrupted. With entries in its log the ring is complete, and only
/// [`IdentityBook::bootstrapped`] remains.
///
/// The caller then opens the log with the ring's id and starts the member. It initialises Raft with the plan's members, and records the
/// ring's completion in the book.
///
/// # Errors
/// [`RingBootstrapError`], after `deadline` if members are not up by then.
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

/// Asks all members until the decision no longer depends on members that are down.
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
