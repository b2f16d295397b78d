//! A member's admin calls, before and after it has a ring: uses the product's code wherever that needs no gRPC.

use std::sync::Arc;
use std::time::Duration;

use member::MysqldBeside;
use member::protocol::{MysqldAnswer, MysqldOrder, Refusal, RefusalKind};
use member::status::{MemberView, RingName};
use raft_types::{MemberId, RingId};
use ring_admin::{Introduction, LogOrigin, Member, Party, PromotionProgress, RingState};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::member::admin_calls::{Question, Status};
use crate::member::directory::Directory;
use crate::member::process_setup::ProcessSetup;
use crate::mutation::Mutation;

/// Time for bootstrap with all members up.
const FOUNDING_LIMIT: Duration = Duration::from_secs(25);
/// Interval of checks for its completion.
const LOOK: Duration = Duration::from_millis(50);

/// An order to bootstrap the ring.
pub(super) struct BootstrapOrder {
    pub(super) origin: LogOrigin,
    /// Why it failed.
    pub(super) failed: oneshot::Sender<String>,
}

/// See the module documentation. Clones share the member.
#[derive(Clone)]
pub(super) struct Answering {
    setup: Arc<ProcessSetup>,
    directory: Directory,
    /// Receiver of orders, while the member waits for a ring.
    pub(super) orders: Option<mpsc::Sender<BootstrapOrder>>,
    /// The participating member, once it takes part.
    pub(super) takes_part: Option<(Member, Option<MysqldBeside>)>,
}

impl Answering {
    pub(super) fn new(setup: &ProcessSetup, directory: &Directory) -> Self {
        Self {
            setup: Arc::new(setup.clone()),
            directory: directory.clone(),
            orders: None,
            takes_part: None,
        }
    }

    /// Answers; the caller may be gone.
    pub(super) async fn answer(self, question: Question) {
        match question {
            Question::Identify(answer) => {
                if let Some(introduction) = self.introduction().await {
                    let _ = answer.send(introduction);
                }
            }
            Question::Adopt {
                ring,
                to,
                origin,
                answer,
            } => drop(answer.send(self.adopt(ring, to, &origin))),
            Question::Status(answer) => drop(answer.send(self.status())),
            Question::Order(order, answer) => drop(answer.send(self.carry_out(order).await)),
            Question::Bootstrap(origin, answer) => {
                drop(answer.send(self.bootstrap(origin).await));
            }
            Question::Promote(to, answer) => drop(answer.send(self.promote(to).await)),
        }
    }

    /// `None` if the member's engine has ended: then there is no answer.
    async fn introduction(&self) -> Option<Introduction> {
        let log_is_empty = match &self.takes_part {
            // It has no log yet, and opens none while it answers.
            None => true,
            Some((member, _)) => member.inbound().is_pristine().await.ok()?,
        };
        Some(Introduction {
            identity: self.directory.book.identity(),
            log_is_empty: Some(log_is_empty),
            speaks: self.directory.book.speaks(),
        })
    }

    fn adopt(&self, ring: RingId, to: Party, origin: &LogOrigin) -> Result<(), String> {
        let own = self.directory.book.identity();
        if (to.member, to.incarnation) != (own.member, own.incarnation) {
            return Err("the ring is for another data directory".to_owned());
        }
        let adopted = self.directory.book.adopt(ring, origin);
        adopted.map_err(|error| error.to_string())
    }

    fn status(&self) -> Status {
        let ring = self.directory.ring();
        let outside = MemberView {
            ring: RingName {
                id: ring,
                ..RingName::default()
            },
            ..MemberView::default()
        };
        let Some((member, local_mysqld)) = &self.takes_part else {
            return Status {
                said: outside,
                serves: None,
            };
        };
        let said = match local_mysqld {
            Some(local_mysqld) => local_mysqld.member_view(self.directory.book.identity()),
            None => outside,
        };
        let serves = member.leadership_now().serving_term();
        Status {
            said,
            serves: serves.map(|term| term.0),
        }
    }

    async fn carry_out(&self, order: MysqldOrder) -> Result<MysqldAnswer, Refusal> {
        let takes_part = self.takes_part.as_ref();
        let local_mysqld = takes_part.and_then(|(_, local_mysqld)| local_mysqld.clone());
        let Some(host) = &self.setup.host else {
            let what = "this member is a witness and has no mysqld";
            return Err(Refusal::new(RefusalKind::Refused, what, ""));
        };
        let in_words = self.setup.mutation == Some(Mutation::ReleaseInWords);
        let order = match order {
            MysqldOrder::ReleaseFollower if in_words => MysqldOrder::Look,
            order => order,
        };
        let mysqld = host.converted(&self.setup, &self.directory, local_mysqld);
        let mysqld = mysqld
            .map_err(|error| Refusal::new(RefusalKind::Failed, error.to_string(), "fix that"))?;
        mysqld.carry_out(&order).await
    }

    /// As the product's member: it may have begun already, or wait for another one.
    async fn bootstrap(&self, origin: String) -> Result<(), Refusal> {
        let until = Instant::now() + FOUNDING_LIMIT;
        let mut failed = None;
        loop {
            if let RingState::Belongs { .. } = self.directory.state() {
                return Ok(());
            }
            if failed.is_none()
                && let Some(orders) = &self.orders
            {
                let (tell, told) = oneshot::channel();
                let order = BootstrapOrder {
                    origin: LogOrigin::after(origin.clone()),
                    failed: tell,
                };
                failed = orders.try_send(order).is_ok().then_some(told);
            }
            if let Some(failed) = &mut failed
                && let Ok(cause) = failed.try_recv()
            {
                let what = format!("the ring cannot be made: {cause}");
                return Err(Refusal::new(RefusalKind::Refused, what, "try again"));
            }
            if Instant::now() > until {
                let what = "the ring is not made yet";
                return Err(Refusal::new(RefusalKind::Unknown, what, "try again"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn promote(&self, to: MemberId) -> Result<(), Refusal> {
        let refused = |what: String| Refusal::new(RefusalKind::Refused, what, "");
        let Some((member, _)) = &self.takes_part else {
            return Err(refused("it does not take part in its ring yet".to_owned()));
        };
        if member.leadership_now().leading_term().is_none() {
            return Err(refused("it does not lead".to_owned()));
        }
        let (progress, _) = watch::channel(PromotionProgress::default());
        let promoted = member.promote(to, progress).await.map(drop);
        promoted.map_err(|error| refused(error.to_string()))
    }
}
