//! Another member as the donor of a copy. It is called over the ring's connections.

use futures::FutureExt;
use futures::future::BoxFuture;
use mysqld_server::provision::{CloneAccount, CloneOffer};
use raft_types::{MemberId, MemberKind, MemberRecord};
use transport::{AdminClient, AdminError};

use crate::other_members::OtherMembers;
use crate::protocol::{CommandEvent, CommandResult, OperatorCommand, Refusal};
use crate::provisioning::decisions::{fit, no_donor};
use crate::reachability::host;
use crate::status::MysqlView;

pub(crate) struct DonorMember {
    name: String,
    /// The host of the address at which the member answers. Its mysqld listens on the same host.
    host: String,
    client: AdminClient,
}

impl DonorMember {
    /// Returns the member with this number and `record` in the ring, if it can be a donor for the mysqld `own` now.
    ///
    /// # Errors
    /// If it cannot, with the reason.
    pub(crate) async fn find(
        record: Option<&MemberRecord>,
        id: MemberId,
        own: Option<&MysqlView>,
        others: &OtherMembers,
    ) -> Result<Self, Refusal> {
        let record = record.filter(|record| record.kind == MemberKind::Database);
        let record = record.ok_or_else(|| {
            no_donor(format!(
                "member {id} is no other database member of this ring"
            ))
        })?;
        let answering = others.view_of(id, record).await;
        let answering = answering.map_err(|error| unreachable(&record.name, &error))?;
        let donor = Self {
            name: record.name.clone(),
            host: host(&answering.address).to_owned(),
            client: answering.client,
        };
        fit(&donor.name, answering.view.mysql.as_ref(), own)?;
        Ok(donor)
    }

    async fn ask(&self, command: &OperatorCommand) -> Result<CommandResult, Refusal> {
        let name = &self.name;
        let broken = |error: AdminError| unreachable(name, &error);
        let json = serde_json::to_vec(command).unwrap_or_default();
        let mut events = self.client.command(json.into()).await.map_err(broken)?;
        while let Some(event) = events.next().await.map_err(broken)? {
            match serde_json::from_slice(&event) {
                Ok(CommandEvent::Result(result)) => return Ok(result),
                Ok(CommandEvent::Refused(refusal)) => return Err(refusal),
                Ok(_) => {}
                Err(error) => {
                    return Err(no_donor(format!(
                        "`{name}` gave an answer that cannot be read ({error}); run the same version everywhere"
                    )));
                }
            }
        }
        Err(no_donor(format!("`{name}` ended before it had an answer")))
    }
}

impl Donor for DonorMember {
    fn name(&self) -> &str {
        &self.name
    }

    fn host(&self) -> &str {
        &self.host
    }

    fn offer(&self, recipient: MemberId) -> BoxFuture<'_, Result<CloneOffer, Refusal>> {
        async move {
            match self.ask(&OperatorCommand::OfferClone { recipient }).await? {
                CommandResult::Offered(offer) => Ok(offer),
                _ => Err(no_donor(format!(
                    "`{}` gave an unexpected answer; run the same version everywhere",
                    self.name
                ))),
            }
        }
        .boxed()
    }

    fn withdraw<'a>(&'a self, account: &'a CloneAccount) -> BoxFuture<'a, Result<(), Refusal>> {
        async move {
            let account = account.clone();
            let withdraw = OperatorCommand::WithdrawClone { account };
            self.ask(&withdraw).await.map(drop)
        }
        .boxed()
    }
}

fn unreachable(name: &str, error: &dyn std::fmt::Display) -> Refusal {
    no_donor(format!("`{name}` cannot be asked: {error}"))
}

// The recipient's interface to the donor of a copy.

/// The donor member.
pub trait Donor: Send + Sync {
    /// The donor's name in the ring.
    fn name(&self) -> &str;

    /// The host of the donor's mysqld.
    fn host(&self) -> &str;

    /// Makes the donor create an account for a copy by `recipient`.
    ///
    /// # Errors
    /// The donor's refusal, or that it does not answer.
    fn offer(&self, recipient: MemberId) -> BoxFuture<'_, Result<CloneOffer, Refusal>>;

    /// Makes the donor remove the account of a copy.
    ///
    /// # Errors
    /// As [`Self::offer`].
    fn withdraw<'a>(&'a self, account: &'a CloneAccount) -> BoxFuture<'a, Result<(), Refusal>>;
}
