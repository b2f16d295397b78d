//! Admin calls between members, and from operators' commands to members, with or without a ring. The world delivers each request. A request
//! is dropped if the member is unreachable, or if the member's process ends first.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use member::protocol::{MysqldAnswer, MysqldOrder, Refusal};
use member::status::MemberView;
use raft_types::{MemberId, MemberRecord, RingId};
use ring_admin::{Introduction, LogOrigin, Party};
use tokio::sync::oneshot;
use tokio::time::Instant;
use transport::{AdminError, BootstrapCalls};

use crate::member::neighbours::Neighbours;
use crate::shared::Shared;

/// Time limit for a member's answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// All pending admin calls. Clones share them.
#[derive(Clone)]
pub(crate) struct AdminCalls {
    neighbours: Neighbours,
    calls: Shared<Vec<AdminCall>>,
}

/// A request. Dropping it tells the caller that the member is unreachable.
pub(crate) struct AdminCall {
    from: MemberId,
    pub(crate) to: MemberId,
    pub(super) question: Question,
}

/// Sends the answer to the caller.
pub(super) type Answer<T> = oneshot::Sender<T>;

pub(super) enum Question {
    Identify(Answer<Introduction>),
    Adopt {
        ring: RingId,
        to: Party,
        origin: LogOrigin,
        answer: Answer<Result<(), String>>,
    },
    Status(Answer<Status>),
    Order(MysqldOrder, Answer<Result<MysqldAnswer, Refusal>>),
    Bootstrap(String, Answer<Result<(), Refusal>>),
    Promote(MemberId, Answer<Result<(), Refusal>>),
}

/// A member's status.
pub(super) struct Status {
    pub(super) said: MemberView,
    /// The term in which the member serves, if it does.
    pub(super) serves: Option<u64>,
}

impl AdminCalls {
    pub(crate) fn new(neighbours: Neighbours) -> Self {
        Self {
            neighbours,
            calls: Shared::default(),
        }
    }

    pub(super) async fn ask<T>(
        &self,
        from: MemberId,
        to: MemberId,
        until: Instant,
        question: impl FnOnce(Answer<T>) -> Question,
    ) -> Result<T, &'static str> {
        let (answer, answered) = oneshot::channel();
        let question = question(answer);
        self.calls.lock().push(AdminCall { from, to, question });
        match tokio::time::timeout_at(until, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err("no process answers there, or it ended before it had an answer"),
            Err(_) => Err("it did not end in time"),
        }
    }

    /// Returns the requests to members that can be reached now, and drops the others.
    pub(crate) fn due(&self) -> Vec<AdminCall> {
        let calls = std::mem::take(&mut *self.calls.lock());
        let reached =
            |call: &AdminCall| call.from == call.to || self.neighbours.reaches(call.from, call.to);
        calls.into_iter().filter(reached).collect()
    }

    /// Keeps a request to a paused process for a later step.
    pub(crate) fn hand_back(&self, call: AdminCall) {
        self.calls.lock().push(call);
    }
}

/// The member that bootstraps the ring, with its calls to the other members.
pub(super) struct FoundingMember {
    pub(super) own: MemberId,
    pub(super) calls: AdminCalls,
}

impl FoundingMember {
    async fn ask<T>(
        &self,
        record: &MemberRecord,
        question: impl FnOnce(Answer<T>) -> Question,
    ) -> Result<T, AdminError> {
        let number = record.address.rsplit_once(':').map(|(_, number)| number);
        let to = number.and_then(|number| number.parse().ok()).unwrap_or(0);
        let until = Instant::now() + PATIENCE;
        let asked = self.calls.ask(self.own, MemberId(to), until, question);
        asked.await.map_err(|silence| AdminError::Unreachable {
            address: record.address.clone(),
            reason: silence.to_owned(),
        })
    }
}

impl BootstrapCalls for FoundingMember {
    fn identify<'a>(
        &'a self,
        record: &'a MemberRecord,
    ) -> BoxFuture<'a, Result<Introduction, AdminError>> {
        self.ask(record, Question::Identify).boxed()
    }

    fn adopt<'a>(
        &'a self,
        record: &'a MemberRecord,
        ring: RingId,
        to: Party,
        origin: &'a LogOrigin,
    ) -> BoxFuture<'a, Result<(), AdminError>> {
        async move {
            let origin = origin.clone();
            let asked = self.ask(record, |answer| Question::Adopt {
                ring,
                to,
                origin,
                answer,
            });
            asked.await?.map_err(|reason| AdminError::Refused {
                address: record.address.clone(),
                reason,
            })
        }
        .boxed()
    }
}
