//! Members tell each other how far they have come, and what they remember of each other ([`super::put_back`]).

use std::sync::Arc;

use futures::future::join_all;
use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use raft_types::{FileStarts, LogId, MemberId, OpId, Standing};

use crate::calls::{Answer, Greeting, MemberCalls, Question};
use crate::election::put_back::{PutBack, Remembered, given_up, judge};
use crate::member::core::MemberCore;

/// How many heartbeats lie between two rounds. What a member had is remembered up to the last round before it was stopped; what
/// is put back mostly is older than that.
const ROUND: u32 = 10;

/// Greets all others again and again, from the start on.
pub(crate) async fn go_round(
    core: Arc<MemberCore>,
    calls: Arc<dyn MemberCalls>,
    starts: Arc<dyn FileStarts>,
) {
    loop {
        let role = core.role();
        let others = role.membership.nodes().filter(|(id, _)| **id != core.id);
        let greeted = others.map(async |(id, record)| {
            let question = Question::Greeting(greeting(&core, &*starts, *id));
            let answer = calls.ask(*id, record, question, core.timers.lease);
            if let Ok(Answer::Greeting { greeting, .. }) = answer.await {
                take_in(&core, &*starts, *id, &greeting).await;
            }
        });
        join_all(greeted).await;
        tokio::time::sleep(core.timers.heartbeat * ROUND).await;
    }
}

/// What this member says to another one.
pub(crate) fn greeting(core: &MemberCore, starts: &dyn FileStarts, to: MemberId) -> Greeting {
    Greeting {
        report: core.past.report(starts),
        remembered: remembered(core, to),
    }
}

/// What this member remembers of another one.
pub(crate) fn remembered(core: &MemberCore, of: MemberId) -> Option<Remembered> {
    // Role and progress of one moment.
    let metrics = core.raft.metrics();
    let metrics = metrics.borrow_watched();
    let membership = metrics.membership_config.membership();
    let whose = membership.get_node(&of)?.incarnation;
    let term = metrics.vote.leader_id.term;
    let progress = metrics.replication.as_ref();
    let progress = progress.filter(|_| metrics.state == ServerState::Leader);
    let matched: Option<LogId> = progress.and_then(|progress| *progress.get(&of)?);
    if let Some(matched) = matched {
        let end = Some(OpId::from(matched));
        core.memory.acknowledged(of, whose, Standing { term, end });
    }
    core.memory.to_tell(of, whose, term)
}

/// Takes in what another member says.
pub(crate) async fn take_in(
    core: &MemberCore,
    starts: &dyn FileStarts,
    from: MemberId,
    greeting: &Greeting,
) {
    let role = core.role();
    let record = role.membership.membership().get_node(&from);
    if let (Some(report), Some(record)) = (&greeting.report, record)
        && let Some(put_back) = core.memory.heard(from, record.incarnation, report)
    {
        tracing::error!(member = %from, "of another member: {put_back}");
    }
    if let Some(remembered) = greeting.remembered {
        heed(core, starts, from, remembered).await;
    }
}

/// Finds out whether this member has all that another one remembers of it. Where not, it elects nobody from here on.
async fn heed(core: &MemberCore, starts: &dyn FileStarts, from: MemberId, told: Remembered) {
    let _one_at_a_time = core.doubting.lock().await;
    let Some(own) = starts.standing() else {
        return;
    };
    let given_up = given_up(core.campaigning.gate.committed());
    let explained = core.past.doubted().max(given_up);
    let Some((found, doubt)) = judge(own, explained, &[(from, told)]) else {
        return;
    };
    core.campaigning.doubt(&doubt, &core.raft);
    if let Err(error) = starts.note_doubt(doubt).await {
        // The log does nothing more, and the engine stops with it.
        tracing::error!(%error, "that the data directory was put back cannot be noted");
    }
    say(&found);
    core.past.found(found, doubt);
    core.doubted.notify_one();
}

/// Says it to the operator.
pub(crate) fn say(found: &PutBack) {
    tracing::error!("of this member: {found}");
}
