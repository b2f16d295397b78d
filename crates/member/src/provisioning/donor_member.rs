//! Another member as the donor of a copy, reached over the ring's connections.

use futures::FutureExt;
use futures::future::BoxFuture;
use mysqld_server::provision::{CloneAccount, CloneOffer};
use raft_types::{MemberId, MemberKind, MemberRecord};
use transport::{AdminClient, AdminError};

use crate::other_members::OtherMembers;
use crate::protocol::{CommandEvent, CommandResult, OperatorCommand, Refusal, RefusalKind};
use crate::status::MysqlView;

pub(crate) struct DonorMember {
    name: String,
    /// The host at which it answers, where its mysqld also listens.
    host: String,
    client: AdminClient,
}

impl DonorMember {
    /// The member with this number and `record` in the ring, if it can now be a donor for the mysqld `own`.
    ///
    /// # Errors
    /// When it cannot, with the reason.
    pub(crate) async fn find(
        record: Option<&MemberRecord>,
        id: MemberId,
        own: Option<&MysqlView>,
        others: &OtherMembers,
    ) -> Result<Self, Refusal> {
        let record = record.filter(|record| record.kind == MemberKind::Database);
        let record = record.ok_or_else(|| {
            refused(format!(
                "member {id} is no other database member of this ring"
            ))
        })?;
        let answering = others.view_of(id, record).await;
        let answering = answering.map_err(|error| unreachable(&record.name, &error))?;
        let donor = Self {
            name: record.name.clone(),
            host: host_of(&answering.address).to_owned(),
            client: answering.client,
        };
        fit(&donor.name, answering.view.mysql.as_ref(), own)?;
        Ok(donor)
    }

    async fn ask(&self, command: &OperatorCommand) -> Result<CommandResult, Refusal> {
        let broken = |error: AdminError| unreachable(&self.name, &error);
        let json = serde_json::to_vec(command).unwrap_or_default();
        let mut events = self.client.command(json.into()).await.map_err(broken)?;
        while let Some(event) = events.next().await.map_err(broken)? {
            match serde_json::from_slice(&event) {
                Ok(CommandEvent::Result(result)) => return Ok(result),
                Ok(CommandEvent::Refused(refusal)) => return Err(refusal),
                Ok(_) => {}
                Err(error) => {
                    return Err(refused(format!(
                        "`{}` gave an answer that cannot be read ({error}); run the same version everywhere",
                        self.name
                    )));
                }
            }
        }
        Err(refused(format!(
            "`{}` ended before it had an answer",
            self.name
        )))
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
                _ => Err(refused(format!(
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
            self.ask(&OperatorCommand::WithdrawClone { account })
                .await
                .map(drop)
        }
        .boxed()
    }
}

/// Whether the mysqld `theirs` of the named member can now be copied to the mysqld `own`.
///
/// # Errors
/// When it cannot, with the reason.
pub(crate) fn fit(
    name: &str,
    theirs: Option<&MysqlView>,
    own: Option<&MysqlView>,
) -> Result<(), Refusal> {
    let Some(theirs) = theirs else {
        return Err(refused(format!("the mysqld of `{name}` is not reported")));
    };
    if !theirs.following && !theirs.writable {
        return Err(refused(format!(
            "the mysqld of `{name}` is no source of a copy: {}",
            theirs.role
        )));
    }
    let ours = own.and_then(|own| own.version.as_ref());
    match (ours, &theirs.version) {
        (Some(ours), Some(theirs)) if series(ours) != series(theirs) => Err(refused(format!(
            "the mysqld of `{name}` is a {theirs}, and this one a {ours}; MySQL copies between servers of one series only"
        ))),
        _ => Ok(()),
    }
}

/// The series of a version: `9.7` of `9.7.4`.
fn series(version: &str) -> &str {
    let second_dot = version.match_indices('.').nth(1);
    second_dot.map_or(version, |(at, _)| &version[..at])
}

/// The host of `host:port`, without the brackets of an IPv6 address.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

fn refused(what: String) -> Refusal {
    Refusal::new(
        RefusalKind::Refused,
        what,
        "nothing was changed; name another donor with --from, or check with `witness status`",
    )
}

fn unreachable(name: &str, error: &dyn std::fmt::Display) -> Refusal {
    refused(format!("`{name}` cannot be asked: {error}"))
}

// The recipient's interface to the donor of a copy.

/// The donor member.
pub trait Donor: Send + Sync {
    /// The donor's name in the ring.
    fn name(&self) -> &str;

    /// The host of its mysqld.
    fn host(&self) -> &str;

    /// Makes it create an account for a copy by `recipient`.
    ///
    /// # Errors
    /// Its refusal, or that it does not answer.
    fn offer(&self, recipient: MemberId) -> BoxFuture<'_, Result<CloneOffer, Refusal>>;

    /// Makes it remove that account.
    ///
    /// # Errors
    /// As [`Self::offer`].
    fn withdraw<'a>(&'a self, account: &'a CloneAccount) -> BoxFuture<'a, Result<(), Refusal>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_versions_are_taken_apart() {
        assert_eq!(host_of("db-2:7400"), "db-2");
        assert_eq!(host_of("[::1]:7400"), "::1");
        assert_eq!(series("9.7.4"), "9.7");
        assert_eq!(series("8.4.10"), "8.4");
    }
}
