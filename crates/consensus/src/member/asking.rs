//! Asking the leader what only it knows.

use std::time::Duration;

use bytes::Bytes;
use raft_types::{FilePart, MemberId, OpId};

use super::Member;
use crate::calls::questions::{Answer, CallError, Question};

impl Member {
    /// Up to where the ring's log is committed, as its leader knows it at some moment during this call. The own mark
    /// ([`Member::committed`]) may be behind it.
    ///
    /// # Errors
    /// [`CallError`] when no leader is known, it does not serve, or it does not answer in time.
    pub async fn committed_in_ring(&self) -> Result<Option<OpId>, CallError> {
        if let Some(committed) = self.0.core.committed_now() {
            return Ok(committed);
        }
        match self.ask_leader(Question::Committed).await? {
            Answer::Committed { up_to } => Ok(up_to),
            other => Err(CallError(format!("it answers something else: {other:?}"))),
        }
    }

    /// A piece of a closed file of another member's log.
    ///
    /// # Errors
    /// [`CallError`] when it does not have that very file, or does not answer within `deadline`.
    pub async fn part_of_file(
        &self,
        of: MemberId,
        part: FilePart,
        deadline: Duration,
    ) -> Result<Bytes, CallError> {
        let role = self.0.core.role();
        let record = role.membership.get_node(&of);
        let record = record.ok_or_else(|| CallError(format!("member {of} is gone")))?;
        let asked = self
            .0
            .calls
            .ask(of, record, Question::FilePart(part), deadline);
        match asked.await? {
            Answer::FilePart(bytes) => Ok(bytes.0),
            other => Err(CallError(format!("it answers something else: {other:?}"))),
        }
    }

    /// Asks the leader, which is another member.
    pub(super) async fn ask_leader(&self, question: Question) -> Result<Answer, CallError> {
        let core = &self.0.core;
        let role = core.role();
        let leader = role.leader.filter(|leader| *leader != core.id);
        let known = leader.and_then(|leader| {
            let record = role.membership.get_node(&leader)?;
            Some((leader, record))
        });
        let Some((leader, record)) = known else {
            return Err(CallError("no leader is known".to_owned()));
        };
        let deadline = core.timers.lease;
        self.0.calls.ask(leader, record, question, deadline).await
    }
}
