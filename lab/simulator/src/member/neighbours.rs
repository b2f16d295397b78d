//! Connections between hosts for a clone: a server connects to the donor's server, and a member asks the donor's member for an account. If
//! one direction of their link is cut, both fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use member::protocol::{Refusal, RefusalKind};
use member::{Donor, MysqldBeside};
use mysql_link::ConnectOptions;
use mysqld_model::{FindServer, Mysqld};
use mysqld_server::provision::{self, CloneAccount, CloneOffer, ProvisionError};
use raft_types::MemberId;
use tokio::sync::oneshot;

use crate::network::MessageQueue;
use crate::shared::Shared;

/// Time limit for another member's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// All hosts that have servers. Clones share them.
#[derive(Clone)]
pub(crate) struct Neighbours {
    queue: MessageQueue,
    known: Shared<Known>,
}

#[derive(Default)]
struct Known {
    /// The servers, by host name.
    servers: BTreeMap<String, (MemberId, Mysqld)>,
    /// Requests between members that are not delivered yet.
    calls: Vec<DonorCall>,
    /// The pairs of donor and recipient for which the donor may have an account.
    accounts: BTreeSet<(MemberId, MemberId)>,
}

impl Neighbours {
    pub(crate) fn new(queue: MessageQueue) -> Self {
        Self {
            queue,
            known: Shared::default(),
        }
    }

    pub(crate) fn join(&self, host: &str, member: MemberId, server: Mysqld) {
        self.known
            .lock()
            .servers
            .insert(host.to_owned(), (member, server));
    }

    /// Returns a function with which the server of member `own` finds other servers.
    pub(crate) fn seen_by(&self, own: MemberId) -> FindServer {
        let this = self.clone();
        Arc::new(move |host, _| {
            let (member, server) = this.known.lock().servers.get(host).cloned()?;
            (member != own && this.reaches(own, member)).then_some(server)
        })
    }

    /// Returns whether the link between two hosts is open in both directions.
    pub(super) fn reaches(&self, one: MemberId, other: MemberId) -> bool {
        self.queue.links(|links| {
            links.lets_through(one, other, false) && links.lets_through(other, one, false)
        })
    }

    /// Returns the member `donor` as a donor for another member.
    pub(crate) fn donor(&self, donor: MemberId, name: &str) -> AskedDonor {
        AskedDonor {
            donor,
            name: name.to_owned(),
            neighbours: self.clone(),
        }
    }

    /// Returns the requests to donors that can be reached now, and drops the others.
    pub(crate) fn calls(&self) -> Vec<DonorCall> {
        let calls = std::mem::take(&mut self.known.lock().calls);
        let reached = |call: &DonorCall| self.reaches(call.recipient, call.donor);
        calls.into_iter().filter(reached).collect()
    }

    /// Returns the pairs of donor and recipient for which the donor may have an account.
    pub(crate) fn accounts(&self) -> BTreeSet<(MemberId, MemberId)> {
        self.known.lock().accounts.clone()
    }
}

/// A donor, as the recipient's member sees it.
pub(crate) struct AskedDonor {
    donor: MemberId,
    name: String,
    neighbours: Neighbours,
}

impl AskedDonor {
    async fn ask<T>(
        &self,
        recipient: MemberId,
        question: impl FnOnce(oneshot::Sender<Result<T, Refusal>>) -> Question,
    ) -> Result<T, Refusal> {
        let (answer, answered) = oneshot::channel();
        let call = DonorCall {
            recipient,
            donor: self.donor,
            question: question(answer),
            neighbours: self.neighbours.clone(),
        };
        self.neighbours.known.lock().calls.push(call);
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(Refusal::new(
                RefusalKind::Refused,
                format!("`{}` cannot be asked", self.name),
                "name another donor with --from",
            )),
        }
    }
}

impl Donor for AskedDonor {
    fn name(&self) -> &str {
        &self.name
    }

    fn host(&self) -> &str {
        &self.name
    }

    fn offer(&self, recipient: MemberId) -> BoxFuture<'_, Result<CloneOffer, Refusal>> {
        self.ask(recipient, Question::Offer).boxed()
    }

    fn withdraw<'a>(&'a self, account: &'a CloneAccount) -> BoxFuture<'a, Result<(), Refusal>> {
        let recipient = recipient_in(account.name()).unwrap_or(MemberId(0));
        let account = account.clone();
        self.ask(recipient, |answer| Question::Withdraw(account, answer))
            .boxed()
    }
}

/// Returns the recipient of the clone for which this account exists, from the number in the account's name. Returns 0 if the name has no
/// number, and `None` for other accounts.
pub(crate) fn recipient_in(account: &str) -> Option<MemberId> {
    let number = account.strip_prefix("witness_clone_")?.split('_').next();
    let number = number.and_then(|number| number.parse().ok());
    Some(MemberId(number.unwrap_or(0)))
}

/// A recipient's request to a donor. Dropping it tells the recipient that the donor is unreachable.
pub(crate) struct DonorCall {
    recipient: MemberId,
    pub(crate) donor: MemberId,
    question: Question,
    neighbours: Neighbours,
}

enum Question {
    Offer(oneshot::Sender<Result<CloneOffer, Refusal>>),
    Withdraw(CloneAccount, oneshot::Sender<Result<(), Refusal>>),
}

impl DonorCall {
    /// Handles the request as a member of the product does.
    pub(crate) async fn answer(self, local_mysqld: MysqldBeside, connect: ConnectOptions) {
        let accounts = (self.donor, self.recipient);
        match self.question {
            Question::Offer(answer) => {
                self.neighbours.known.lock().accounts.insert(accounts);
                drop(answer.send(local_mysqld.offer(self.recipient).await));
            }
            Question::Withdraw(account, answer) => {
                let withdrawn = provision::withdraw(&connect, &account).await;
                if withdrawn.is_ok() {
                    self.neighbours.known.lock().accounts.remove(&accounts);
                }
                drop(answer.send(withdrawn.map_err(refused)));
            }
        }
    }
}

fn refused(error: ProvisionError) -> Refusal {
    Refusal::new(
        RefusalKind::Failed,
        error.to_string(),
        "fix that and try again",
    )
}
