//! Asking the other members how far their logs agree with this one's.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use raft_types::{MemberId, MemberRecord};

use crate::calls::questions::{Answer, CallError, MemberCalls, Question};
use crate::repair::rejoin::{Agreement, Recollection};

/// Asks all other members at once; an error where one did not answer in time.
pub(crate) async fn ask_for_agreement(
    calls: &dyn MemberCalls,
    others: &BTreeMap<MemberId, MemberRecord>,
    own: &Recollection,
    deadline: Duration,
) -> BTreeMap<MemberId, Result<Agreement, CallError>> {
    let asked = others.iter().map(|(id, record)| async move {
        let question = Question::Agreement(own.clone());
        let answer = match calls.ask(*id, record, question, deadline).await {
            Ok(Answer::Agreement(agreement)) => Ok(agreement),
            Ok(other) => Err(CallError(format!("it answers something else: {other:?}"))),
            Err(error) => Err(error),
        };
        (*id, answer)
    });
    join_all(asked).await.into_iter().collect()
}
