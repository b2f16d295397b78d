//! Answers a member's admin calls, before and after it has a ring. Uses the product's code, except for the parts that need gRPC.

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

/// Time limit for a bootstrap while all members run.
const FOUNDING_LIMIT: Duration = Duration::from_secs(25);
/// Interval at which the completion of the bootstrap is checked.
const LOOK: Duration = Duration::from_millis(50);

/// An order to bootstrap the ring.
pub(super) struct BootstrapOrder {
    pub(super) origin: LogOrigin,
    /// Receives the reason if the bootstrap fails.
    pub(super) failed: oneshot::Sender<String>,
}

/// Answers the calls of one member. Clones share the member.
#[derive(Clone)]
pub(super) struct Answering {
    setup: Arc<ProcessSetup>,
    directory: Directory,
    /// Receives bootstrap orders while the member waits for a ring.
    pub(super) orders: Option<mpsc::Sender<BootstrapOrder>>,
    /// The member, after it has begun to take part in its ring.
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

    /// Sends the answer to a request. The caller may have ended.
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

    /// Returns the member's identity and the state of its log. `None`: openraft has stopped, so that there is no answer.
    async fn introduction(&self) -> Option<Introduction> {
        let log_is_empty = match &self.takes_part {
            // The member has no log yet, and opens none while it answers.
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

    /// Bootstraps the ring, as in the product. The bootstrap may have begun already, or may wait for another member.
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
