//! What a member and an operator's command ask members over their admin calls, also members without a ring. The world carries a
//! question; who cannot be reached is not asked, and the end of a member's process is the end of what it was asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consensus::{Introduction, LogOrigin, Party};
use futures::FutureExt;
use futures::future::BoxFuture;
use member::conversion::MemberSaid;
use member::protocol::{MysqldAnswer, MysqldOrder, Refusal};
use raft_types::{MemberId, MemberRecord, RingId};
use tokio::sync::oneshot;
use tokio::time::Instant;
use transport::{AdminError, FounderCalls};

use crate::member::neighbours::Neighbours;

/// How long a member may take to say something of itself.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// All of them that are under way. Clones are the same ones.
#[derive(Clone)]
pub(crate) struct AdminCalls {
    neighbours: Neighbours,
    calls: Arc<Mutex<Vec<AdminCall>>>,
}

/// One question. Dropped, the member was not reached.
pub(crate) struct AdminCall {
    from: MemberId,
    pub(crate) to: MemberId,
    pub(super) question: Question,
}

/// Where an answer goes.
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

/// What a member says of itself.
pub(super) struct Status {
    pub(super) said: MemberSaid,
    /// The term in which it serves.
    pub(super) serves: Option<u64>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// Nobody was there, or not to the end.
    Gone,
    Late,
}

impl Silence {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Gone => "nobody answers there, or it ended before it had an answer",
            Self::Late => "it did not end in time",
        }
    }
}

impl AdminCalls {
    pub(crate) fn new(neighbours: Neighbours) -> Self {
        Self {
            neighbours,
            calls: Arc::default(),
        }
    }

    fn calls(&self) -> MutexGuard<'_, Vec<AdminCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn ask<T>(
        &self,
        from: MemberId,
        to: MemberId,
        until: Instant,
        question: impl FnOnce(Answer<T>) -> Question,
    ) -> Result<T, Silence> {
        let (answer, answered) = oneshot::channel();
        let question = question(answer);
        self.calls().push(AdminCall { from, to, question });
        match tokio::time::timeout_at(until, answered).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Silence::Gone),
            Err(_) => Err(Silence::Late),
        }
    }

    /// What was asked of members that can be reached.
    pub(crate) fn due(&self) -> Vec<AdminCall> {
        let calls = std::mem::take(&mut *self.calls());
        let reached =
            |call: &AdminCall| call.from == call.to || self.neighbours.reaches(call.from, call.to);
        calls.into_iter().filter(reached).collect()
    }

    /// A question to a process that is stopped where it stands waits for it.
    pub(crate) fn put_back(&self, call: AdminCall) {
        self.calls().push(call);
    }
}

/// A member that makes a ring.
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
            reason: silence.words().to_owned(),
        })
    }
}

impl FounderCalls for FoundingMember {
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
